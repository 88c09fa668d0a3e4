"""busbw-low, pair-slow, host-copy-slow, wrong-results, bandwidth-failed, gpu-not-visible: every severity, every near miss."""

import pytest

from gpudoctor.checkers.bandwidth_run import BandwidthRunState
from gpudoctor.checkers.busbw import BusbwLow
from gpudoctor.checkers.host_copy import HostCopySlow
from gpudoctor.checkers.pair_slow import PairSlow
from gpudoctor.correlate.diagnose import diagnose
from gpudoctor.facts.bandwidth import (
    Bandwidth,
    BandwidthRow,
    BandwidthRun,
    Failure,
    HostCopies,
    HostCopy,
    Member,
    PairRate,
    PairRates,
)
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.nccl import Nccl, NcclMessage
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CannotTell, Finding
from gpudoctor.record import replace
from tests.support import FIXTURES, HERE, check, findings, report, slugs
from tests.tables import table

GIB = 1 << 30
H200, RTX = "NVIDIA H200", "NVIDIA GeForce RTX 4090"


def member(n, name=H200):
    return Member(rank=n, device=n, host="vm", name=name, bdf=f"0000:{n + 1:02x}:00.0")


def run(rate, members=None, **more):
    members = (member(0), member(1)) if members is None else members
    rows = tuple(BandwidthRow(size=s, busbw_out_gbs=rate, wrong_out=0, line=9) for s in (GIB // 2, GIB))
    fields = {"collective": "all_reduce", "nranks": len(members), "rows": rows, "members": members, "wrong": False, "completed": True, "origin": HERE}
    return BandwidthRun(**{**fields, **more})


def gpus(count=2, name=H200, **more):
    return Gpus(tuple(Gpu(index=n, bdf=f"0000:{n + 1:02x}:00.0", name=name, origin=HERE, **more) for n in range(count)))


def pairs(count=2, path="NVL", nvlinks=18):
    return Pairs(tuple(Pair(a=a, b=b, path=path, nvlinks=nvlinks if path == "NVL" else None, origin=HERE) for a in range(count) for b in range(a + 1, count)))


def doubts(said):
    return [s for s in said if isinstance(s, CannotTell)]


# --- busbw-low


@pytest.mark.parametrize(("rate", "severity"), [(28.0, "error"), (250.0, "warning"), (325.0, None)])
def test_busbw(rate, severity):
    found = findings(BusbwLow(), Bandwidth((run(rate),)), gpus(), pairs())
    assert {f.severity for f in found.values()} == ({severity} if severity else set())
    if severity:
        said = found["busbw-low", "pair:0-1"]
        assert "332" in said.message and "reference" in said.message and "85 %" in said.message and "wire" in said.message
        assert (said.gain.before, said.gain.after, said.confidence) == (rate, 332.0, "certain")
        assert "--gpus 0,1" in said.remediation[2].command


def test_busbw_of_links_nobody_read_is_a_warning_at_most():
    found = findings(BusbwLow(), Bandwidth((run(28.0),)))
    assert (found["busbw-low", "host"].severity, found["busbw-low", "host"].confidence) == ("warning", "likely")


@pytest.mark.parametrize(
    "measured",
    [
        run(0.0, members=(member(0),)),
        run(0.3, rows=(BandwidthRow(size=2048, busbw_out_gbs=0.3),)),
        run(9.0, members=(member(0, RTX), member(1, RTX))),
        run(9.0, members=()),
        run(9.0, members=(member(0, "NVIDIA Z1"), member(1, "NVIDIA Z1"))),
    ],
)
def test_busbw_that_nothing_can_be_compared_with(measured):
    said = check(BusbwLow(), Bandwidth((measured,)))
    assert len(said) == 1 and isinstance(said[0], CannotTell)


def test_a_minimum_that_one_rank_cannot_meet_is_explained():
    (said,) = check(BusbwLow(), Bandwidth((run(0.0, members=(member(0),), below_minimum=True),)))
    assert isinstance(said, CannotTell) and "NCCL_TESTS_MIN_BW" in said.reason and "one rank" in said.reason


def test_a_run_that_failed_before_its_first_row_is_not_judged_for_speed():
    assert check(BusbwLow(), Bandwidth((run(0.0, rows=(), completed=False, failures=(Failure(kind="nccl", text="x"),)),))) == []


# --- wrong-results, bandwidth-failed, gpu-not-visible


def state(*runs_, facts=()):
    return findings(BandwidthRunState(), Bandwidth(runs_), *facts)


def test_wrong_results():
    rows = (BandwidthRow(size=GIB, busbw_out_gbs=300.0, wrong_out=7, wrong_in=0),)
    said = state(run(300.0, rows=rows, wrong=True))["wrong-results", "host"]
    assert said.severity == "error" and "7 elements" in said.message
    assert any("NCCL_P2P_DISABLE=1" in (s.command or "") for s in said.remediation)


def test_wrong_results_of_one_rank_blame_its_gpu():
    said = state(run(0.0, members=(member(0),), wrong=True))["wrong-results", "gpu:0000:01:00.0"]
    assert "one rank" in said.message and not any("P2P" in (s.command or "") for s in said.remediation)


def test_right_results_say_nothing_and_unchecked_ones_that_nobody_looked():
    assert check(BandwidthRunState(), Bandwidth((run(300.0),))) == []
    for unchecked in (run(300.0, wrong=None), run(300.0, checked=False)):
        (said,) = check(BandwidthRunState(), Bandwidth((unchecked,)))
        assert isinstance(said, CannotTell) and said.slug == "wrong-results"


@pytest.mark.parametrize("failure", [Failure(kind=k, text=f"{k} line") for k in ("nccl", "cuda", "timeout", "test", "exit")])
def test_a_run_that_did_not_finish(failure):
    said = state(run(300.0, completed=False, failures=(failure,)))["bandwidth-failed", "host"]
    assert said.severity == "error" and failure.text in said.message


def test_the_first_cause_is_named_and_not_the_launcher():
    failures = (Failure(kind="exit", text="exit line"), Failure(kind="test", text="test line"), Failure(kind="nccl", text="nccl line"))
    assert "nccl line" in state(run(300.0, completed=False, failures=failures))["bandwidth-failed", "host"].message


def test_an_exit_status_alone_is_a_failure_of_an_unfinished_run():
    assert "exit status 3" in state(run(300.0, completed=False, exit_status=3))["bandwidth-failed", "host"].message
    assert state(run(300.0, exit_status=7)) == {}


@pytest.mark.parametrize("measured", [run(300.0, completed=False), run(300.0, failures=(Failure(kind="test", text="min bw"),)), run(300.0, rows=(), completed=False)])
def test_an_excerpt_and_a_finished_run_did_not_fail(measured):
    assert state(measured) == {}


def test_fewer_gpus_than_asked_for():
    short = run(0.0, rows=(), completed=False, failures=(Failure(kind="gpus", text="Invalid number", asked=3, found=2),))
    said = state(short, facts=(gpus(4),))
    assert said["gpu-not-visible", "host"].severity == "error"
    assert "asked for 3" in said["gpu-not-visible", "host"].message and "lists 4" in said["gpu-not-visible", "host"].message
    (root,) = diagnose(said.values())
    assert root.finding.slug == "gpu-not-visible" and [f.slug for f in root.explains] == ["bandwidth-failed"]


@pytest.mark.parametrize(
    ("kind", "words", "slug", "confidence"),
    [
        ("cuda", "invalid device ordinal", "gpu-not-visible", "likely"),
        ("cuda", "system not yet initialized", "fabric", "likely"),
        ("cuda", "out of memory", "cuda-error", "likely"),
        ("nccl", "unhandled cuda error (run with NCCL_DEBUG=INFO for details) / ", "cuda-error", "possible"),
        ("nccl", "unhandled system error / Error while creating shared memory segment /dev/shm/nccl-a (size 64)", "shm", "likely"),
    ],
)
def test_an_error_line_that_names_the_cause(kind, words, slug, confidence):
    failed = run(0.0, rows=(), completed=False, failures=(Failure(kind="test", text="Test failure common.cu:915"), Failure(kind=kind, text=f"a: Test {kind.upper()} failure common.cu:941 '{words}'")))
    found = state(failed)
    assert {k: f.confidence for k, f in found.items()} == {(slug, "host"): confidence, ("bandwidth-failed", "host"): "certain"}
    (root,) = diagnose(found.values())
    assert root.finding.slug == slug
    # NCCL's own log says it better.
    message = NcclMessage(family="shm-full", slug="shm", tier=0, text="x", source="t", line=1, level="WARN", origin=HERE)
    assert set(state(failed, facts=(Nccl(messages=(message,)),))) == {("bandwidth-failed", "host")}


@pytest.mark.parametrize("words", ["internal error - please report this issue to the NCCL developers / ", "unhandled system error / ", "invalid usage"])
def test_a_result_alone_names_no_cause(words):
    failed = run(0.0, rows=(), completed=False, failures=(Failure(kind="nccl", text=f"a: Test NCCL failure common.cu:941 '{words}'"),))
    assert set(state(failed)) == {("bandwidth-failed", "host")}


# --- pair-slow


def rates(values, what="copy read"):
    return PairRates(tuple(PairRate(a=a, b=b, gbs=v, what=what, origin=HERE) for (a, b), v in values.items()))


SQUARE = {(0, 1): 100.0, (0, 2): 101.0, (0, 3): 99.0, (1, 2): 100.0, (1, 3): 100.0, (2, 3): 100.0}


@pytest.mark.parametrize(("rate", "severity"), [(86.0, None), (84.0, "warning"), (71.0, "warning"), (69.0, "error")])
def test_one_slow_pair(rate, severity):
    found = findings(PairSlow(), rates({**SQUARE, (1, 3): rate}), gpus(4), pairs(4))
    assert {k: f.severity for k, f in found.items()} == ({("pair-slow", "pair:1-3"): severity} if severity else {})


def test_a_gpu_all_of_whose_pairs_are_slow():
    slow = {k: 50.0 if 2 in k else v for k, v in SQUARE.items()}
    found = findings(PairSlow(), rates(slow), gpus(4), pairs(4))
    assert list(found) == [("pair-slow", "gpu:0000:03:00.0")]


def test_two_gpus_of_eight_are_both_named_and_so_is_a_pair_beside_them():
    values = {(a, b): 40.0 if {a, b} & {2, 5} else 60.0 if (a, b) == (0, 7) else 100.0 for a in range(8) for b in range(a + 1, 8)}
    found = findings(PairSlow(), rates(values), gpus(8), pairs(8))
    assert sorted(subject for _, subject in found) == ["gpu:0000:03:00.0", "gpu:0000:06:00.0", "pair:0-7"]


def test_a_star_of_slow_pairs_blames_its_centre_and_one_fast_pair_clears_it():
    slow = {(0, 1): 100.0, (2, 3): 40.0, (0, 2): 98.0, (1, 3): 41.0, (4, 5): 99.0}
    assert list(findings(PairSlow(), rates(slow), gpus(6), pairs(6))) == [("pair-slow", "gpu:0000:04:00.0")]
    assert list(findings(PairSlow(), rates({**slow, (1, 3): 97.0}), gpus(6), pairs(6))) == [("pair-slow", "pair:2-3")]


def test_the_links_of_the_blamed_gpu_stand_beside_it():
    narrow = Gpus(tuple(replace(g, width=4, max_width=16, max_speed_gts=16.0) if g.index == 3 else g for g in gpus(4)))
    slow = {pair: 40.0 if 3 in pair else 100.0 for pair in SQUARE}
    found = findings(PairSlow(), rates(slow), narrow, pairs(4, "PHB", None))
    assert "Links as read on this host: GPU3 Gen4 x4 of x16." in found["pair-slow", "gpu:0000:04:00.0"].message


def test_pairs_on_other_paths_are_no_peers():
    mixed = Pairs(tuple(Pair(a=a, b=b, path="NVL" if (a, b) == (0, 1) else "SYS", nvlinks=4 if (a, b) == (0, 1) else None, origin=HERE) for a in range(3) for b in range(a + 1, 3)))
    assert findings(PairSlow(), rates({(0, 1): 100.0, (0, 2): 20.0, (1, 2): 20.0}), gpus(3), mixed) == {}


def test_pairs_of_other_parts_are_no_peers():
    parts = Gpus((*gpus(2).gpus, *gpus(4, RTX).gpus[2:]))
    assert findings(PairSlow(), rates({(0, 1): 100.0, (2, 3): 20.0}), parts, pairs(4)) == {}


def test_two_pairs_that_differ_are_likely():
    found = findings(PairSlow(), rates({(0, 1): 100.0, (2, 3): 40.0}), gpus(4), pairs(4))
    assert found["pair-slow", "pair:2-3"].confidence == "likely"


def test_runs_over_two_gpus_are_pairs():
    measured = Bandwidth(tuple(run(v, members=(member(a), member(b))) for (a, b), v in {**SQUARE, (0, 1): 30.0}.items()))
    assert list(findings(PairSlow(), measured, gpus(4), pairs(4))) == [("pair-slow", "pair:0-1")]


@pytest.mark.parametrize("facts", [(rates(SQUARE),), (rates({(0, 1): 3.0}), gpus(4), pairs(4)), (rates(SQUARE), gpus(4, "NVIDIA L40S")), (Bandwidth((run(3.0, members=(member(0), member(1), member(2))),)),)])
def test_pairs_that_cannot_be_compared(facts):
    said = check(PairSlow(), *facts)
    assert said == doubts(said) and len(said) == 1


# --- host-copy-slow


def copies(*values, **more):
    return HostCopies(tuple(HostCopy(gpu=n, bdf=f"0000:{n + 1:02x}:00.0", to_device_gbs=v, from_device_gbs=v, origin=HERE, **more) for n, v in enumerate(values)))


LINK = {"max_speed_gts": 16.0, "max_width": 16}


@pytest.mark.parametrize(("rate", "severity"), [(25.0, None), (22.2, None), (21.9, "warning"), (15.9, "warning"), (15.6, "error")])
def test_copies_against_the_link(rate, severity):
    found = findings(HostCopySlow(), copies(rate), gpus(1, RTX, **LINK))
    assert {f.severity for f in found.values()} == ({severity} if severity else set())


def test_a_link_trained_down_is_measured_against_what_it_could_be():
    (said,) = findings(HostCopySlow(), copies(6.2, speed_gts=16.0, width=4), gpus(1, RTX, **LINK)).values()
    assert said.severity == "error" and "Gen4 x4 meanwhile" in said.message and "31.5" in said.message


def test_the_slot_s_own_port_counts():
    tree = PciTree(
        (
            PciDevice(bdf="0000:00:1c.0", max_width=4, max_speed_gts=16.0, parent_known=True, origin=HERE),
            PciDevice(bdf="0000:01:00.0", parent="0000:00:1c.0", class_code="030000", device_id="10de:2684", max_width=16, max_speed_gts=16.0, origin=HERE),
        )
    )
    assert findings(HostCopySlow(), copies(6.2), gpus(1, RTX, **LINK), tree) == {}


def test_copies_against_peers_alone():
    found = findings(HostCopySlow(), copies(25.0, 25.0, 12.0, name=RTX))
    assert {k: f.severity for k, f in found.items()} == {("host-copy-slow", "gpu:0000:03:00.0"): "error"}


def test_copies_over_nvlink_c2c_are_not_held_against_pcie():
    (said,) = check(HostCopySlow(), copies(15.0), gpus(1, "NVIDIA GH200 480GB", c2c=True, **LINK))
    assert isinstance(said, CannotTell)


def test_copies_without_link_or_peer():
    (said,) = check(HostCopySlow(), copies(15.0))
    assert isinstance(said, CannotTell) and said.subject == "gpu:0000:01:00.0"


def test_peers_of_another_part_do_not_count():
    mixed = Gpus((*gpus(1, RTX).gpus, *gpus(2, "NVIDIA T4").gpus[1:]))
    assert len(doubts(check(HostCopySlow(), copies(25.0, 6.0), mixed))) == 2


# --- causes


def test_a_root_takes_what_was_measured():
    low = next(f for f in check(BusbwLow(), Bandwidth((run(28.0),)), gpus(), pairs()) if isinstance(f, Finding))
    for slug in ("p2p-disabled-env", "p2p-not-used", "nvlink-down", "socket-fallback", "pcie-width", "pair-slow"):
        cause = Finding(slug, "error", "host" if slug != "pcie-width" else "gpu:0", "x", low.evidence)
        (root,) = diagnose([low, cause])
        assert root.finding.slug == slug and root.explains == (low,)
    assert len(diagnose([low, Finding("pcie-width", "note", "gpu:0", "x", low.evidence)])) == 2


# --- the whole program


def test_a_healthy_table_passes(tmp_path):
    status, result = report("check", "--from", str(FIXTURES / "outputs" / "nccl-tests" / "h200x2-nvlink-8B-1G.txt"))
    assert status == 0 and slugs(result, "warning", "error") == set()
    (entry,) = result["facts"]["bandwidth"]
    assert (entry["program"], entry["nranks"], len(entry["rows"]), entry["completed"], entry["wrong"]) == ("all_reduce_perf", 2, 28, True, False)
    assert entry["plateau_busbw_gbs"] == pytest.approx(320.5, abs=0.1)
    assert {"size", "busbw_out_gbs", "busbw_in_gbs", "wrong_out", "wrong_in"} <= entry["rows"][0].keys()


def test_a_slow_table_with_its_host_fails(tmp_path):
    text = (FIXTURES / "outputs" / "nccl-tests" / "h200x2-p2p-disabled-shm.txt").read_text()
    (tmp_path / "run.txt").write_text("\n".join(line for line in text.splitlines() if "NCCL INFO" not in line) + "\n")
    (tmp_path / "topo.txt").write_text("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-31\t0\nGPU1\tNV18\t X \t0-31\t0\n")
    status, result = report("check", "--from", str(tmp_path / "run.txt"), "--from", str(tmp_path / "topo.txt"))
    assert (status, slugs(result, "error")) == (1, {"busbw-low"})


def test_wrong_results_fail_and_lead(tmp_path):
    (tmp_path / "run.txt").write_text(table([(GIB, 300.0)], wrong="2", bounds="2 FAILED"))
    status, result = report("check", "--from", str(tmp_path / "run.txt"))
    assert (status, result["diagnoses"][0]["cause"]) == (1, "wrong-results")
