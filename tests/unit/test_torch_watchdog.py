"""Lines of ProcessGroupNCCL in the forms of several torch versions (synthetic: shapes of real lines, made-up values)."""

from __future__ import annotations

import importlib

import pytest

from gpudoctor.facts.hang import RankWork, Watchdog
from gpudoctor.parsers import torch_watchdog
from gpudoctor.read.section import Unparsable, parser_module
from tests.made_jobs import Job
from tests.support import recognise

WORK = "WorkNCCL(SeqNum=547, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000)"
T26 = (
    f"[rank3]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: {WORK} "
    "ran for 600081 milliseconds before timing out.\n"
    "[rank3]:[E1218 20:27:21.426655980 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog "
    "at work sequence id: 547 PG status: last enqueued work: 549, last completed work: 546\n"
)


def watchdog(text: str) -> Watchdog:
    parts = []
    for section in recognise(text):
        if section.kind == "torch-watchdog":
            try:
                parts += [f for f in importlib.import_module(parser_module(section.kind)).parse(section) if isinstance(f, Watchdog)]
            except Unparsable:
                pass
    return Watchdog.merge(parts, lambda _: None) if parts else Watchdog()


def one(text: str) -> RankWork:
    works = watchdog(text).works
    assert len(works) == 1, works
    return works[0]


def test_torch_2_6() -> None:
    work = one(T26)
    assert (work.rank, work.group_rank, work.group, work.group_name) == (3, 3, "0", "default_pg")
    assert (work.seq, work.op, work.numel_in, work.numel_out, work.timeout_ms, work.ran_ms) == (547, "ALLREDUCE", 4096, 4096, 600000, 600081)
    assert (work.last_enqueued, work.last_completed, work.timed_out) == (549, 546, True)


@pytest.mark.parametrize(
    "text, seq, op, shape, ran",
    [
        (
            "[E ProcessGroupNCCL.cpp:566] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(OpType=REDUCE, TensorShape=[1], "
            "Timeout(ms)=1800000) ran for 1803254 milliseconds before timing out.\n",
            None, "REDUCE", "1", 1803254,
        ),
        (
            "[E ProcessGroupNCCL.cpp:828] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=47, OpType=BROADCAST, "
            "TensorShape=[2, 8], Timeout(ms)=1800000) ran for 1803254 milliseconds before timing out.\n",
            47, "BROADCAST", "2, 8", 1803254,
        ),
        (
            "RuntimeError: NCCL communicator was aborted on rank 5.  Original reason for failure was: [Rank 5] Caught collective operation "
            "timeout: WorkNCCL(SeqNum=9, OpType=BARRIER, TensorShape=[1], Timeout(ms)=1800000) ran for 1800187 milliseconds before timing out.\n",
            9, "BARRIER", "1", 1800187,
        ),
        ("[E ProcessGroupNCCL.cpp:475] [Rank 5] Work WorkNCCL(SeqNum=9, OpType=ALLGATHER, NumelIn=1, NumelOut=8, Timeout(ms)=5000) timed out in "
         "blocking wait (TORCH_NCCL_BLOCKING_WAIT=1).\n", 9, "ALLGATHER", None, None),
    ],
)  # fmt: skip
def test_older_forms(text: str, seq: int | None, op: str, shape: str | None, ran: int | None) -> None:
    work = one(text)
    assert (work.rank, work.seq, work.op, work.shape, work.ran_ms, work.timed_out) == (5, seq, op, shape, ran, True)


@pytest.mark.parametrize(
    "line, group, name",
    [
        ("[PG 0 Rank 2] Timeout at NCCL work: 9, last enqueued NCCL work: 11, last completed NCCL work: 8.", "0", None),
        ("[PG 1 (tp) Rank 2] Exception (either an error or timeout) detected by watchdog at work: 9, last enqueued NCCL work: 11, last completed NCCL work: 8.", "1", "tp"),
        ("[PG ID 1 PG GUID 1 Rank 2]  failure detected by watchdog at work sequence id: 9 PG status: last enqueued work: 11, last completed work: 8", "1", None),
        ("[PG ID 2 PG GUID 51(mesh_dp) Rank 2]  failure detected by watchdog at work sequence id: 9 PG status: last enqueued work: 11, last completed work: 8", "51", "mesh_dp"),
    ],
)  # fmt: skip
def test_counts_and_groups(line: str, group: str, name: str | None) -> None:
    work = one(f"[rank6]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:1785] {line}\n")
    assert (work.rank, work.group_rank, work.group, work.group_name) == (6, 2, group, name)
    assert (work.seq, work.last_enqueued, work.last_completed) == (9, 11, 8)


def test_rank_of_a_group_is_no_rank_of_the_job() -> None:
    work = one("[E1218 20:27:21 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 51(tp) Rank 2]  failure detected by watchdog at work sequence id: 9 "
               "PG status: last enqueued work: 11, last completed work: -1\n")  # fmt: skip
    assert (work.rank, work.group_rank, work.last_completed) == (None, 2, 0)


def test_who_heard_of_whom() -> None:
    text = "[rank1]:[E1 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective timeout from {} and we will try our best to dump the debug info. Last enqueued NCCL work: 1, last completed NCCL work: 1.This is most likely\n"
    assert one(text.format(" rank 7")).told_by == 7
    assert one(text.format("this local rank")).told_by is None


def test_stack_of_the_call() -> None:
    work = one(T26 + "[rank3]:[E1 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective: \n#0 all_reduce from /v/torch/d.py:3068\n#1 step from /opt/t.py:23\n#7 x from /y:1\n")
    assert [str(f) for f in work.frames or ()] == ["all_reduce at /v/torch/d.py:3068", "step at /opt/t.py:23"]


@pytest.mark.parametrize("width", range(20, 200))
def test_broken_by_a_terminal_at_every_width(width: int) -> None:
    """A line broken at any width says what the whole line says, or nothing: never another rank or number."""
    text = "".join("\n".join(line[i : i + width] for i in range(0, len(line), width)) + "\n" for line in T26.splitlines())
    for work in watchdog(text).works:
        assert work.rank in (3, None) and work.group_rank in (3, None), width
        assert work.seq in (547, None) and work.numel_in in (4096, None) and work.ran_ms in (600081, None), width
        assert work.last_enqueued in (549, None) and work.last_completed in (546, None), (width, work)


def test_broken_at_usual_widths_is_read() -> None:
    for width in (80, 100, 120, 132, 136, 160):
        text = "".join("\n".join(line[i : i + width] for i in range(0, len(line), width)) + "\n" for line in T26.splitlines())
        works = watchdog(text).works
        assert any(w.seq == 547 and w.op == "ALLREDUCE" and w.rank == 3 for w in works), width


def test_cut_at_every_byte() -> None:
    text = "\n".join(Job(ranks=2, nodes=1, behind=(1,), nccl=False).trouble(0) + Job(ranks=2, nodes=1, behind=(1,), nccl=False).trouble(1)) + "\n"
    whole = {w.rank: w for w in watchdog(text).works}
    for end in range(len(text)):
        for work in watchdog(text[:end]).works:
            for name in ("seq", "op", "numel_in", "ran_ms", "timeout_ms", "last_enqueued", "last_completed", "told_by", "group"):
                value = getattr(work, name)
                assert work.rank in whole, (end, work)
                assert value is None or value == getattr(whole[work.rank], name), (end, name, value)


def test_lines_of_several_ranks_torn_into_each_other() -> None:
    a, b = (Job(ranks=8, nodes=1, behind=(5,), nccl=False).trouble(r) for r in (0, 1))
    torn = a[0][:150] + b[0] + "\n" + a[0][150:] + "\n" + a[1] + "\n"
    for work in watchdog(torn).works:
        assert work.rank in (0, 1) or work.group_rank is None and work.rank is None
        if work.rank == 1:
            assert work.ran_ms == 600011
        if work.rank == 0 and work.ran_ms is not None:
            assert work.ran_ms == 600010


def test_prefix_of_another_line_is_not_borrowed() -> None:
    text = (
        "[rank0]: something else that rank 0 said\n"
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) "
        "ran for 1800010 milliseconds before timing out.\n"
    )
    work = one(text)
    assert (work.rank, work.group_rank, work.seq) == (None, None, 4)


def test_launcher_prefixes() -> None:
    for before in ("(RayTrainWorker pid=123, ip=10.0.0.3) ", "[1,3]<stderr>:", "3: ", "2026-11-29T18:35:17.123Z ", "> "):
        work = one("".join(before + line + "\n" for line in T26.splitlines()))
        assert (work.rank, work.seq, work.last_enqueued) == (3, 547, 549), before


def test_asynchronous_error_with_what_nccl_said_last() -> None:
    work = one(
        f"[rank2]:[E1218 20:27:21 ProcessGroupNCCL.cpp:557] [Rank 2] Collective {WORK} raised the following async exception: NCCL error: remote process "
        "exited or there was a network error, NCCL version 2.21.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\n"
        "socketProgress: Connection closed by remote peer node7<53124>\n"
    )
    assert work.rank == 2 and work.timed_out is None and (work.error or "").startswith("NCCL error: remote process exited")
    assert work.last_error == "socketProgress: Connection closed by remote peer node7<53124>"


@pytest.mark.parametrize(
    "line",
    [
        "[rank0]:[W1129 18:35:02.534 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.\n",
        "[rank0]:[W1129 18:35:02.534 ProcessGroupNCCL.cpp:1476] Could not acquire GIL within 300 ms on exit, possible GIL induced hang\n",
        "[rank0]:[I1129 18:35:02.534 ProcessGroupNCCL.cpp:1600] [PG ID 0 PG GUID 0(default_pg) Rank 0] ProcessGroupNCCL initialization options: size: 8\n",
    ],
)
def test_harmless_lines_are_read_and_say_nothing(line: str) -> None:
    found = watchdog(line)
    assert found.works == () and found.accused == () and found.deaths == ()
    assert any(s.kind == "torch-watchdog" for s in recognise(line))


def test_a_restarted_job_makes_two_runs() -> None:
    text = T26 + T26.replace("SeqNum=547", "SeqNum=12").replace("id: 547", "id: 12")
    assert sorted((w.run, w.seq) for w in watchdog(text).works) == [(0, 547), (1, 12)]


def test_what_torch_names_itself() -> None:
    found = watchdog(
        "[Rank 0]: Ranks 1, 5 failed to pass monitoredBarrier in 30000 ms\n"
        "Timed out initializing process group in store based barrier on rank: 1, for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)\n"
        "\t - [0, 3] finished collective #6, but didn't join collective #7 (count from 1)\n"
        "\t - To our best knowledge, ranks [2] are the lagging ranks that caused this timeout. They never joined any collectives\n"
    ).accused
    assert [(a.kind, a.ranks, a.seq, a.world, a.joined) for a in found] == [
        ("barrier", (1, 5), None, None, None),
        ("waits", (1,), None, 4, 3),
        ("behind", (0, 3), 7, None, None),
        ("never", (2,), None, None, None),
    ]


def test_torchrun_table() -> None:
    found = watchdog(
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-29_18:35:22\n  host      : node3\n  rank      : 25 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 4001)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 4001\n"
    ).deaths
    assert [(d.rank, d.exitcode, d.host, d.first) for d in found] == [(25, -9, "node3", True)]


def test_a_store_that_waits_for_clients_blames_who_did_not_come():
    text = "[rank0]:torch.distributed.DistStoreError: Timed out after 21 seconds waiting for clients. 1/2 clients joined.\n"
    (section,) = recognise(text)
    (fact,) = torch_watchdog.parse(section)
    assert [(a.kind, a.ranks, a.world, a.joined) for a in fact.accused] == [("waits", (0,), 2, 1)]
    with pytest.raises(Unparsable):
        list(torch_watchdog.parse(recognise("3/4 clients joined the meeting\n")[0]))


PRINT = "CollectiveFingerPrint(SequenceNumber={}, OpType={}, TensorShape=[{}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))"
DIFFER = (
    f"[rank2]: RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running collective: {PRINT.format(7, 'ALLREDUCE', '4, 16')}, "
    f"but Rank 0 is running collective: {PRINT.format(7, 'BROADCAST', '64')}.Collectives differ in the following aspects: \t Op type: ALLREDUCEvs BROADCAST\n"
)


def calls(text: str) -> list[tuple[tuple[int, ...], str | None, int | None, str | None]]:
    return [(a.ranks, a.op, a.seq, a.sizes) for a in watchdog(text).accused if a.kind == "calls"]


def test_calls_that_pytorch_compared() -> None:
    both = [((2,), "ALLREDUCE", 7, "4, 16"), ((0,), "BROADCAST", 7, "64")]
    assert calls(DIFFER) == both
    assert calls(DIFFER.replace(" is running collective: ", " is running collective:\n").replace(", but Rank", ",\n\nbut Rank")) == both
    # Before torch 2.1 only the operation of the second rank.
    assert calls(DIFFER.replace(PRINT.format(7, "BROADCAST", "64"), "CollectiveFingerPrint(SequenceNumber=3OpType=BROADCAST)")) == [both[0], ((0,), "BROADCAST", 3, None)]


def test_compared_calls_cut_anywhere_tell_nothing_else() -> None:
    whole = set(calls(DIFFER))
    for end in range(0, len(DIFFER), 7):
        assert set(calls(DIFFER[:end])) <= whole | {(ranks, op, seq, None) for ranks, op, seq, _ in whole}


def test_analysis_of_dumps() -> None:
    block = "{}\ninternal record id: 30\ngroup info: 5:tp\ncollective: nccl:all_gather\n{}input sizes: [[8]]\noutput sizes: [[32]]\nworld size: 4\nexpected ranks: {{0, 1, 2, 3}}\ncollective state: scheduled\n{}collective stack trace:\n step at /w/train.py:7\n"
    absent = block.format("Not all ranks joining collective, sequence number: 31", "missing ranks: {1, 3}\n", "")
    odd = block.format("Collective sequence number: 31 has errors", "", "error msg: Culprit rank 2; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: [[8]]\n")
    state = block.format("Collective sequence number: 31 has errors", "", "error msg: Culprit rank 2; Error type: COLLECTIVE_STATE_MISMATCH\n")
    old = "Not all ranks joining collective 31 at entry 30\ngroup info: 5:tp\ncollective: nccl:all_gather\nmissing ranks: {1, 3}\nexpected ranks: 4\n"
    early = [
        odd.replace("Collective sequence number: 31 has errors\ninternal record id: 30", "Collective 31 at entry 30 errors").replace("error msg", word)
        for word in ("error msg", "error message")
    ]
    for text, kind, ranks in ((absent, "absent", (1, 3)), (odd, "odd", (2,)), (state, "unfinished", (2,)), (old, "absent", (1, 3)), *((e, "odd", (2,)) for e in early)):
        assert [(a.kind, a.ranks, a.seq, a.op, a.group, a.world) for a in watchdog(text).accused] == [(kind, ranks, 31, "all_gather", "5:tp", 4)], text
    assert recognise("Collective 31 at entry 30 was fine\nlook at entry 5 errors\n") == []
    # A set that is cut names nobody.
    assert [a.ranks for a in watchdog(absent[: absent.index("3}")]).accused] == [()]


def test_a_watchdog_without_a_heartbeat() -> None:
    work = one("[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=3\n")
    assert (work.rank, work.group, work.stuck, work.stuck_seconds) == (1, "0", True, None)


def test_barriers_that_others_did_not_reach() -> None:
    found = watchdog(
        "RuntimeError: Rank 3 timed out in monitoredBarrier after 30000 ms.\nNo ranks successfully processed in monitoredBarrier.\n"
        "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs.\n"
    ).accused
    assert [(a.kind, a.ranks) for a in found] == [("waits", (3,)), ("left", (2,))]
