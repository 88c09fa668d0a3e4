"""Tables of nccl-tests: every layout, what surrounds them, what is missing from them."""

import pytest

from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun
from gpudoctor.facts.base import Loss
from tests.support import FIXTURES, parse, recognise
from tests.tables import LAYOUTS, header, only, read, row, runs, table

OUTPUTS = FIXTURES / "outputs"
MIB, GIB = 1 << 20, 1 << 30
RATES = [(8, 0.0), (MIB, 24.0), (64 * MIB, 80.0), (256 * MIB, 96.0), (1024 * MIB, 100.0)]


# --- captured


@pytest.mark.parametrize(
    ("name", "collective", "nranks", "rows", "level", "average", "completed"),
    [
        ("nvlink-8B-1G", "all_reduce", 2, 28, (312, 329), 84.9503, True),
        ("p2p-disabled-shm", "all_reduce", 2, 6, (27, 29), 25.0958, True),
        ("socket", "all_reduce", 2, 5, (3.3, 3.6), 2.95027, True),
        ("sweep-base", "all_reduce", 2, 3, (330, 349), 326.522, True),
        ("sweep-ag", "all_gather", 2, 3, (323, 324), 279.266, True),
        ("sweep-sr", "sendrecv", 2, 3, (360, 366), 343.541, True),
    ],
)
def test_captured_runs(name, collective, nranks, rows, level, average, completed):
    run = only((OUTPUTS / "nccl-tests" / f"h200x2-{name}.txt").read_text())
    assert (run.collective, run.nranks, len(run.rows), run.completed) == (collective, nranks, rows, completed)
    assert run.program == f"{collective}_perf"
    assert level[0] <= run.plateau_busbw_gbs <= level[1]
    assert run.average_busbw_gbs == average
    assert run.wrong is False
    assert (run.nccl_version, run.tests_version, run.hosts) == ("2.28.9", "2.19.6", ("vm",))
    assert [m.bdf for m in run.members] == ["0000:00:06.0", "0000:00:07.0"]


def test_one_row_is_read_field_by_field():
    run = only((OUTPUTS / "nccl-tests" / "h200x2-sweep-sr.txt").read_text())
    assert run.rows[1] == BandwidthRow(
        size=1073741824, type="float", redop="sum", line=13,
        time_out_us=2979.63, algbw_out_gbs=360.36, busbw_out_gbs=360.36, wrong_out=0,
        time_in_us=2982.53, algbw_in_gbs=360.01, busbw_in_gbs=360.01, wrong_in=None,
    )  # fmt: skip


def test_one_gpu_has_no_level():
    run = only((OUTPUTS / "nccl-tests" / "h200x2-one-gpu.txt").read_text())
    assert (run.nranks, run.plateau_busbw_gbs, run.average_busbw_gbs, run.wrong) == (1, None, 0.0, False)


def test_too_few_gpus_leave_an_entry_without_rows():
    run = only((OUTPUTS / "nccl-tests" / "h200x2-fail-three-gpus-asked.txt").read_text())
    assert (run.rows, run.completed, run.nranks) == ((), False, None)
    assert [(f.kind, f.asked, f.found) for f in run.failures] == [("gpus", 3, 2), ("test", None, None)]


# --- layouts


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("with_header", [True, False])
def test_every_layout_gives_the_same_numbers(layout, with_header):
    text = table(RATES, layout=layout)
    if not with_header:
        text = "\n".join(line for line in text.splitlines() if "algbw" not in line) + "\n"
    run = only(text)
    assert [(r.size, r.busbw_out_gbs, r.busbw_in_gbs) for r in run.rows] == [(s, v, v) for s, v in RATES]
    old = LAYOUTS[layout][2] == "error"
    assert all(r.wrong_out == (None if old else 0) for r in run.rows)
    assert all(r.error_in == (0.0 if old else None) for r in run.rows)
    assert (run.nranks, run.completed, run.average_busbw_gbs) == (2, True, 100.5)


def test_old_error_column_is_no_count():
    run = only(table(RATES, layout="old all_reduce", wrong="2e-07"))
    assert all(r.wrong_out is None and r.error_out == 2e-07 for r in run.rows)
    assert run.wrong is False  # by the footer


def test_not_checked_is_not_right():
    run = only(table(RATES, wrong="N/A").replace("# Out of bounds values : 0 OK\n", ""))
    assert run.wrong is None


def test_old_devices_name_only_the_bus():
    run = only(table(RATES, layout="old all_reduce", nranks=2, named=False))
    assert [(m.bus, m.bdf) for m in run.members] == [(6, None), (7, None)]
    assert run.collective is None  # a ratio of 1 is an all_reduce over two, or a broadcast, or a sendrecv


def test_only_the_in_place_half():
    text = table([]).replace("# Out of", "     1048576        262144     float     sum      -1                                     100.0   10.48   10.48      0\n# Out of")
    (found,) = only(text).rows
    assert (found.busbw_out_gbs, found.busbw_in_gbs, found.wrong_in) == (None, 10.48, 0)


# --- what stands around a table


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "   [1,0]<stdout>:", "0: ", "> ", "  ", "2026-11-29T18:30:29Z "])
def test_prefixes(tag):
    text = "".join(f"{tag}{line}\n" for line in table(RATES).splitlines())
    run = only(text)
    assert (len(run.rows), run.nranks, run.completed, run.collective) == (5, 2, True, "all_reduce")


def test_log_lines_between_the_rows():
    lines = table(RATES).splitlines()
    mixed = [part for n, line in enumerate(lines) for part in (line, f"vm:1752:17{n:02} [0] NCCL INFO Channel {n:02}/24 : 0 1")]
    run = only("\n".join(mixed) + "\n")
    assert (len(run.rows), run.completed) == (5, True)


def test_rows_below_an_indented_block_are_not_taken_by_it():
    text = "41:00.0 3D controller: NVIDIA Corporation GH100 [H200 SXM]\n\tLnkSta:\tSpeed 32GT/s, Width x16\n" + table(RATES)
    assert len(only(text).rows) == 5


def test_prose_and_commands_are_no_run():
    assert read("Run `all_reduce_perf -b 8 -e 1G -f 2 -g 2` and send the output.\n$ ./build/all_reduce_perf -b 8 -g 2\nsrun: error: node1: task 0: Exited with exit code 1\n") == []


def test_a_root_prompt_names_the_program():
    run = only("# ./build/all_gather_perf -b 8 -e 1G -f 2 -g 8\n" + "\n".join([header("2.19"), row("2.19", MIB * 64, 70.0, 7 / 8)]) + "\n")
    assert (run.program, run.collective, run.nranks) == ("all_gather_perf", "all_gather", 8)


# --- several runs


def test_two_whole_runs():
    first, second = read(table(RATES) + "\nand after the change:\n" + table(RATES[:3], collective="all_gather"))
    assert (first.collective, len(first.rows), second.collective, len(second.rows)) == ("all_reduce", 5, "all_gather", 3)


def test_two_runs_without_banner():
    text = table(RATES, named=False)
    assert [len(r.rows) for r in read(text + text)] == [5, 5]


def test_restarting_sizes_are_one_run():
    lines = table(RATES).splitlines()
    rows = [line for line in lines if "float" in line]
    text = "\n".join(lines).replace(rows[-1], "\n".join([rows[-1], *(r.replace(" sum", "prod") for r in rows)]))
    run = only(text + "\n")
    assert len(run.rows) == 10 and {r.redop for r in run.rows} == {"sum", "prod"}


@pytest.mark.parametrize("burst", [1, 4, 100])
def test_copies_started_without_mpi_are_one_run_of_one_rank(burst):
    """`mpirun -np 3` of a build without MPI: three tables of one GPU, in any mixture."""
    lines = table([(8, 0.0), (MIB, 0.0), (GIB, 0.0)], nranks=1).splitlines()[:-1]
    mixed = [f"[1,{n}]<stdout>:{line}" for at in range(0, len(lines), burst) for n in range(3) for line in lines[at : at + burst]]
    found = read("\n".join(mixed) + "\n")
    # Written one after the other they are three.
    assert [len(r.rows) for r in found] == ([9] if burst < 100 else [3, 3, 3])
    assert all((r.nranks, r.plateau_busbw_gbs, r.completed) == (1, None, True) for r in found)


def test_two_tails_with_words_between_are_two_tables():
    tail = "".join(row("2.19", size, rate, 1.5) + "\n" for size, rate in RATES[2:])
    assert [len(r.rows) for r in read(tail + "\nWith the switch set:\n\n\n" + tail)] == [3, 3]


def test_rows_below_a_footer_are_a_new_table():
    tail = row("2.19", 64 * MIB, 50.0, 1.5) + "\n"
    assert [len(r.rows) for r in read(tail + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 50.0 \n" + tail)] == [1, 1]


# --- wrong data, failures, cuts


def test_wrong_results_by_count_and_by_footer():
    assert only(table(RATES, wrong="3", bounds="10 FAILED")).wrong is True
    assert only(table(RATES, layout="old all_reduce", wrong="1e+02", bounds="10 FAILED")).wrong is True
    assert only(table(RATES, wrong="3").replace("# Out of bounds values : 0 OK\n", "")).wrong is True


def test_a_footer_that_says_ok_does_not_hide_a_count():
    assert only(table(RATES, wrong="3")).wrong is True


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("vm: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '", "nccl"),
        ("vm: Test CUDA failure common.cu:733 'out of memory'", "cuda"),
        (" .. vm pid 1843: Test failure common.cu:1454", "test"),
        ("mpirun noticed that process rank 1 with PID 77 on node vm exited on signal 9 (Killed).", "exit"),
        ("srun: error: vm: task 3: Exited with exit code 3", "exit"),
    ],
)
def test_failures(line, kind):
    run = only(table(RATES[:2]).partition("# Out")[0] + line + "\n")
    assert [f.kind for f in run.failures] == [kind]
    assert run.completed is False


def test_a_failure_line_alone_makes_an_entry():
    run = only("vm: Test NCCL failure common.cu:958 'unhandled cuda error / '\n")
    assert (run.rows, run.completed, run.failures[0].kind) == ((), False, "nccl")


def test_the_program_s_own_minimum():
    run = only(table(RATES, average="0").replace("bandwidth    : 0 ", "bandwidth    : 0 FAILED"))
    assert (run.below_minimum, run.completed, run.wrong) == (True, True, False)


def test_a_mangled_row_is_a_loss_and_no_row():
    facts = parse("nccl-tests", table(RATES).replace("1048576        ", "1048576 ", 1) + "     2097152        524288     float     sum      -1    43.4\n")
    assert any(isinstance(f, Loss) and "1 row" in f.fact for f in facts)
    assert len(runs(table(RATES))[0].rows) == 5


def test_an_endless_line_is_passed_over():
    assert runs(table(RATES) + "# nThread 1 " * 20_000 + "\n" + "# Rank " + " " * 60_000 + "\n")[0].completed


def test_a_cut_row_keeps_what_is_proven():
    text = table(RATES).partition("# Out")[0].rstrip("\n")
    whole, cut = only(text + "\n"), only(text[:-1])
    assert whole.rows[-1].wrong_in == 0
    assert cut.rows[-1].wrong_in is None and cut.rows[-1].busbw_in_gbs == whole.rows[-1].busbw_in_gbs


def test_a_cut_list_of_devices_does_not_count():
    text = table(RATES)
    assert runs(text[: text.index("#  Rank  1")])[0].nranks is None


# --- what pages and programs do to a table


def test_a_page_that_took_the_hashes_for_headings_changes_nothing() -> None:
    text = table(RATES, nranks=8)
    kept, bare = only(text), only("\n".join(line.lstrip("#") for line in text.splitlines()) + "\n")
    for name in ("nranks", "completed", "wrong", "average_busbw_gbs", "plateau_busbw_gbs", "max_bytes"):
        assert getattr(bare, name) == getattr(kept, name), name
    assert bare.completed and [m.bdf for m in bare.members] == [m.bdf for m in kept.members]


def test_wrong_results_are_seen_where_the_hash_of_the_footer_is_lost() -> None:
    run = only(header("old all_gather").lstrip("#") + "\n" + row("old all_gather", 1 << 32, 129.05, 0.875, wrong="1e+00") + "\n Out of bounds values : 2 FAILED\n")
    assert run.wrong is True and run.completed


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2", "fp8_e4m3"])
def test_rows_of_every_type_are_found(kind: str) -> None:
    text = "\n".join(line.replace("  float  ", f"  {kind}  ") for line in table(RATES, nranks=8).splitlines()) + "\n"
    run = only(text)
    assert len(run.rows) == len(RATES) and {r.type for r in run.rows} == {kind}


@pytest.mark.parametrize("failure", ["Test NCCL failure common.cu:1204 'unhandled cuda error'", "Test CUDA failure common.cu:905 'out of memory'", "Test timeout (60s) common.cu:545"])
def test_a_failure_with_its_host_ahead_belongs_to_the_run_above(failure: str) -> None:
    whole = table(RATES, nranks=2).splitlines()
    lines = [line for line in whole if "Out of" not in line and "Avg" not in line and "concluded" not in line]
    run = only("\n".join([*lines, f"node07: {failure}", " .. node07 pid 4242: Test failure common.cu:915"]) + "\n")
    assert len(run.rows) == len(RATES) and [f.kind for f in run.failures][1:] == ["test"] and failure in run.failures[0].text


def test_a_host_label_before_every_line_is_still_one() -> None:
    text = "".join(f"node07: {line}\n" for line in [*table(RATES, nranks=2).splitlines()[:9], "node07: Test NCCL failure common.cu:958 'x'"])
    (section,) = [s for s in recognise(text) if s.kind == "nccl-tests"]
    assert section.host == "node07" and section.lines[-1].text.startswith("node07: Test NCCL failure")


def test_the_program_s_own_source_is_no_failure() -> None:
    assert read('  printf("%s: Test timeout (%ds) %s:%d\\n",\n    hostname, timeout, __FILE__, __LINE__);\n') == []


def test_the_level_is_that_of_the_large_sizes_however_wide_the_steps_are() -> None:
    def level(*rates: tuple[int, float]) -> float | None:
        rows = tuple(BandwidthRow(size=size, busbw_out_gbs=rate) for size, rate in rates)
        return BandwidthRun(nranks=2, rows=rows).plateau_busbw_gbs

    assert level((MIB, 34.8), (GIB, 28.2)) == 28.2
    assert level((16 * MIB, 30.0), (64 * MIB, 31.0), (256 * MIB, 31.5), (GIB, 31.4)) == 31.4


def test_a_table_of_2018_counts_in_milliseconds() -> None:
    text = (
        "nThread 1 nGpus 4 minBytes 1048576 maxBytes 33554432 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 \n"
        "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n"
        "     1048576        262144   float     sum    0.630   1.66   2.50    1e+01    0.643   1.63   2.45    0e+00\n"
        "    33554432       8388608   float     sum    3.356  10.00  15.00    1e-06    3.356  10.00  15.00    1e-06\n"
        " Out of bounds values : 12 FAILED\n Avg bus bandwidth    : 8.7375\n"
    )
    run = only(text)
    assert [(r.size, r.time_out_us, r.busbw_out_gbs, r.error_out, r.wrong_out) for r in run.rows] == [(1048576, 630.0, 2.5, 10.0, None), (33554432, 3356.0, 15.0, 1e-6, None)]
    assert (run.wrong, run.plateau_busbw_gbs, run.average_busbw_gbs, run.nranks) == (True, 15.0, 8.7375, 4)


def test_the_place_of_a_failure_is_the_line_that_names_a_call() -> None:
    run = only(" .. node3 pid 71: Test failure common.cu:915\nnode1: Test CUDA failure common.cu:941 'invalid device ordinal'\n .. node1 pid 70: Test failure common.cu:915\n")
    assert run.at("failures").where == "line 2"


@pytest.mark.parametrize("line", ["` Out of bounds values : 56 FAILED`", "> # Out of bounds values : 56 FAILED", "With four GPUs it says `# Out of bounds values : 56 FAILED` at the end."])
def test_a_footer_quoted_by_itself(line):
    (section,) = recognise(f"Hello,\n{line}\nthanks\n")
    (fact,) = parse("nccl-tests", section.text)
    assert [(r.wrong, r.completed) for r in fact] == [(True, True)]


@pytest.mark.parametrize("line", ["I want to see Out of bounds values : 0 OK there", "`Out of bounds values` says N FAILED", "what does Out of bounds values : 56 mean?"])
def test_words_about_the_footer_are_none(line):
    assert [f for s in recognise(f"{line}\n") for f in parse("nccl-tests", s.text)] == []
