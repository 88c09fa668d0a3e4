"""Who is to blame: watchdog lines and flight recorder dumps of made-up jobs, through the program's own judgement."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.checkers.collective_timeout import CollectiveTimeout
from gpudoctor.facts.hang import Accused, Death, Dump, FlightRecorder, RankWork, Watchdog
from gpudoctor.hang import hangs, listing
from gpudoctor.ingest import take
from gpudoctor.model import CERTAIN, ERROR, CannotTell, Finding
from gpudoctor.parsers import flight_recorder
from gpudoctor.parsers.flight_recorder import rank_of
from gpudoctor.read.section import Section
from gpudoctor.read.source import Document
from tests.made_jobs import Job, entry
from tests.support import FIXTURES, HERE, check, findings, report


def work(rank: int, seq: int | None = None, enqueued: int | None = None, group: str = "0", **more: Any) -> RankWork:
    waits = {"timed_out": True, "op": "ALLREDUCE", "numel_in": 8, "numel_out": 8} if seq is not None else {}
    return RankWork(**{"source": "t", "rank": rank, "group": group, "seq": seq, "last_enqueued": enqueued, "origin": HERE, **waits, **more})


def recorder(job: Job, ranks: Any = None) -> FlightRecorder:
    return dumps({rank: job.dump(rank) for rank in (ranks if ranks is not None else range(job.ranks))})


def dumps(said: dict[int, dict[str, Any]]) -> FlightRecorder:
    out: list[Dump] = []
    for rank, value in said.items():
        section = Section(kind="flight-recorder", source=f"trace_rank_{rank}", lines=(), content=json.dumps(value).encode())
        out += [d for f in flight_recorder.parse(section) if isinstance(f, FlightRecorder) for d in f.dumps]
    return FlightRecorder(tuple(out))


def subjects(*facts: Any) -> set[tuple[str, str]]:
    return set(findings(CollectiveTimeout(), *facts))


def test_the_rank_that_did_not_come() -> None:
    found = findings(CollectiveTimeout(), Watchdog((work(0, 2, 2), work(1, enqueued=1))))
    assert set(found) == {("collective-timeout", "rank:1")}
    finding = found["collective-timeout", "rank:1"]
    assert finding.severity == ERROR and finding.message.startswith("Rank 1 never called ALLREDUCE #2") and "#1" in finding.message
    assert any("py-spy" in (s.command or "") for s in finding.remediation)


def test_a_victim_is_never_blamed() -> None:
    """Waiting ranks are no suspects, however the counts of the others look."""
    for behind in range(4):
        facts = Watchdog(tuple(work(r, None if r == behind else 9, 8 if r == behind else 9 + r) for r in range(4)))
        assert subjects(facts) == {("collective-timeout", f"rank:{behind}")}


def test_one_rank_alone_names_nobody() -> None:
    assert subjects(Watchdog((work(2, 4),))) == {("collective-timeout", "host")}


def test_silence_counts_only_where_the_world_is_known() -> None:
    waiting = tuple(work(r, 4, 4) for r in (0, 1, 2))
    assert subjects(Watchdog(waiting)) == {("collective-timeout", "host")}
    world = Accused(kind="waits", ranks=(0,), world=4, joined=4, origin=HERE)
    assert subjects(Watchdog(waiting, (world,))) == {("collective-timeout", "rank:3")}
    # One rank that speaks and many that do not is an excerpt, not a verdict on the many.
    assert subjects(Watchdog(waiting[:1], (world,))) == {("collective-timeout", "host")}


def test_all_came_and_none_finished() -> None:
    world = Accused(kind="waits", ranks=(0,), world=2, joined=2, origin=HERE)
    (finding,) = findings(CollectiveTimeout(), Watchdog((work(0, 4, 4), work(1, 4, 4)), (world,))).values()
    assert finding.subject == "host" and "no rank is missing" in finding.message


def test_a_call_that_only_one_rank_makes() -> None:
    facts = Watchdog((work(0, 5, 5), *(work(r, enqueued=4) for r in range(1, 8))))
    (finding,) = findings(CollectiveTimeout(), facts).values()
    assert finding.subject == "rank:0" and "only some ranks make" in finding.message


def test_other_size_and_other_operation() -> None:
    for odd in ({"numel_in": 4, "numel_out": 4}, {"op": "BROADCAST"}):
        facts = Watchdog((*(work(r, 5, 5) for r in range(3)), work(3, 5, 5, **odd)))
        assert subjects(facts) == {("rank-mismatch", "rank:3")}
    # With two ranks nobody knows which is right.
    assert subjects(Watchdog((work(0, 5, 5), work(1, 5, 5, numel_in=4, numel_out=4)))) == {("rank-mismatch", "host")}


@pytest.mark.parametrize("op", ["GATHER", "SCATTER", "ALLTOALL_BASE"])
def test_sizes_that_may_differ(op: str) -> None:
    facts = Watchdog((*(work(r, 5, 5, op=op) for r in range(3)), work(3, 5, 5, op=op, numel_out=64)))
    assert not any(slug == "rank-mismatch" for slug, _ in subjects(facts))


def test_still_in_an_earlier_one() -> None:
    facts = Watchdog((*(work(r, 6, 6, last_completed=5) for r in range(3)), work(3, 5, 6)))
    (finding,) = findings(CollectiveTimeout(), facts).values()
    assert finding.subject == "rank:3" and "which the others have finished" in finding.message


def test_each_side_is_named_with_the_collective_in_which_it_waits() -> None:
    late = work(3, 5, 5, last_completed=4, op="ALLGATHER", numel_out=64)
    (finding,) = findings(CollectiveTimeout(), Watchdog((*(work(r, 6, 6, last_completed=5) for r in range(3)), late))).values()
    assert finding.message == "Rank 3 still waits in ALLGATHER #5, which the others have finished; those wait in ALLREDUCE #6."
    # The other way round: most wait in the earlier one.
    ahead = work(3, 6, 6, last_completed=5, op="BROADCAST")
    (finding,) = findings(CollectiveTimeout(), Watchdog((*(work(r, 5, 5, last_completed=4) for r in range(3)), ahead))).values()
    assert finding.subject == "rank:3" and "in BROADCAST #6, which the other ranks never called" in finding.message


def test_a_suspect_that_waits_elsewhere_is_a_victim_there() -> None:
    """Ranks 0 and 1 wait for 2 in the default group; 2 waits for 3 in another: 3 is the cause, and it is told first."""
    facts = Watchdog(
        (work(0, 7, 7), work(1, 7, 7), work(2, None, 6), work(2, 4, 4, group="9"), work(3, None, 3, group="9"))
    )
    first, second = hangs(facts, None)
    assert first.suspects == (3,) and not first.because
    assert second.suspects == (2,) and second.because == ("9",)


def test_groups_called_in_different_order() -> None:
    facts = Watchdog(
        (work(0, 7, 7), work(1, None, 6), work(1, 4, 4, group="9"), work(0, None, 3, group="9"))
    )
    assert all("different order" in f.message for f in findings(CollectiveTimeout(), facts).values())


def test_ranks_within_a_group_are_no_subjects() -> None:
    facts = Watchdog(
        (
            RankWork(source="t", group_rank=0, group="9", group_name="tp", seq=4, op="ALLREDUCE", timed_out=True, last_enqueued=4, origin=HERE),
            RankWork(source="t", group_rank=1, group="9", group_name="tp", last_enqueued=3, origin=HERE),
        )
    )
    (finding,) = findings(CollectiveTimeout(), facts).values()
    assert finding.subject == "host" and "Rank 1 of group tp never called" in finding.message


def test_named_by_torch_itself() -> None:
    named = Accused(kind="behind", ranks=(5,), seq=4, origin=HERE)
    assert subjects(Watchdog((work(0, 4), work(1, 4)), (named,))) == {("collective-timeout", "rank:5")}


def test_a_start_that_not_all_came_to() -> None:
    waits = tuple(Accused(kind="waits", ranks=(r,), world=4, joined=3, origin=HERE) for r in (0, 1, 3))
    assert subjects(Watchdog((), waits)) == {("collective-timeout", "rank:2")}
    assert subjects(Watchdog((), waits[:1])) == {("collective-timeout", "host")}
    whole = Accused(kind="waits", ranks=(0,), world=4, joined=4, origin=HERE)
    assert subjects(Watchdog((), (whole,))) == set()


def test_a_killed_process() -> None:
    first = Death(rank=3, exitcode=-9, host="node1", first=True, origin=HERE)
    echo = Death(rank=4, exitcode=-6, origin=HERE)
    found = findings(CollectiveTimeout(), Watchdog((), (), (echo, first)))
    assert set(found) == {("peer-died", "rank:3")}
    assert found["peer-died", "rank:3"].confidence == CERTAIN and "SIGKILL" in found["peer-died", "rank:3"].message
    # A script that ends with an error by itself is no fault of communication.
    assert subjects(Watchdog((), (), (Death(rank=3, exitcode=1, first=True, origin=HERE),))) == set()
    assert ("peer-died", "rank:3") in subjects(Watchdog((work(0, 4, 4),), (), (Death(rank=3, exitcode=1, first=True, origin=HERE),)))
    # The rank that waited ends because it waited.
    assert not any(slug == "peer-died" for slug, _ in subjects(Watchdog((work(3, 4, 4),), (), (Death(rank=3, exitcode=1, first=True, origin=HERE),))))


def test_asynchronous_errors() -> None:
    lost = work(0, error="NCCL error: remote process exited or there was a network error")
    assert subjects(Watchdog((lost,))) == {("peer-died", "host")}
    own = work(3, error="CUDA error: an illegal memory access was encountered")
    assert subjects(Watchdog((lost, own))) == {("cuda-error", "rank:3")}
    other = work(0, error="NCCL error: internal error")
    assert [type(x) for x in check(CollectiveTimeout(), Watchdog((other,)))] == [CannotTell]


def test_a_stuck_watchdog() -> None:
    (finding,) = findings(CollectiveTimeout(), Watchdog((work(2, stuck=True, stuck_seconds=480),))).values()
    assert finding.subject == "rank:2" and "480 s" in finding.message
    (finding,) = findings(CollectiveTimeout(), Watchdog((work(2, stuck=True, stuck_seconds=480), work(5, stuck=True)))).values()
    assert finding.subject == "host" and "ranks 2,5" in finding.message


def test_no_hang() -> None:
    assert check(CollectiveTimeout(), Watchdog()) == []
    assert check(CollectiveTimeout(), Watchdog((work(0, enqueued=5), work(1, enqueued=4)))) == []


# --- flight recorder


def test_dumps_tell_who_and_where_its_code_stood() -> None:
    found = findings(CollectiveTimeout(), recorder(Job(ranks=8, nodes=1, behind=(5,), seq=7)))
    assert set(found) == {("collective-timeout", "rank:5")}
    finding = found["collective-timeout", "rank:5"]
    assert "train_step at /opt/train/loop.py:206" in finding.message and finding.confidence == CERTAIN
    assert any("from the file's name" not in e.value for e in finding.evidence)


def test_a_missing_dump() -> None:
    job = Job(ranks=8, nodes=1, seq=7)
    found = findings(CollectiveTimeout(), recorder(job, [r for r in range(8) if r != 3]))
    assert set(found) == {("collective-timeout", "rank:3")}


@pytest.mark.parametrize("odd", [("ALLREDUCE", 64), ("ALLGATHER", 26214400)])
def test_dumps_with_another_call(odd: tuple[str, int]) -> None:
    assert subjects(recorder(Job(ranks=8, nodes=1, odd={6: odd}, seq=7))) == {("rank-mismatch", "rank:6")}


def test_another_order() -> None:
    said = {r: Job(ranks=4, nodes=1, seq=7).dump(r) for r in range(4)}
    for rank, value in said.items():
        calls = [("all_reduce", 8), ("broadcast", 8)] if rank != 2 else [("broadcast", 8), ("all_reduce", 8)]
        value["entries"] = [entry(7 + n, rank, op, count, "scheduled") for n, (op, count) in enumerate(calls)]
        value["pg_status"]["0"]["last_enqueued_collective"] = 8
    (finding,) = findings(CollectiveTimeout(), dumps(said)).values()
    assert (finding.slug, finding.subject) == ("rank-mismatch", "rank:2") and "another order" in finding.message


def test_a_gpu_that_has_not_begun() -> None:
    said = {r: Job(ranks=4, nodes=1, seq=7).dump(r) for r in range(4)}
    for rank, value in said.items():
        value["entries"][-1]["state"] = "scheduled" if rank == 1 else "started"
    (finding,) = findings(CollectiveTimeout(), dumps(said)).values()
    assert finding.subject == "rank:1" and "has not begun it" in finding.message


def test_dumps_of_a_job_that_runs() -> None:
    said = {r: Job(ranks=4, nodes=1, seq=7).dump(r) for r in range(4)}
    for value in said.values():
        for one in value["entries"]:
            one["state"] = "completed"
    assert check(CollectiveTimeout(), dumps(said)) == []


def test_log_and_dumps_together_make_one_finding() -> None:
    job = Job(ranks=4, nodes=1, behind=(2,), seq=7)
    both = (Watchdog((*(work(r, 7, 7) for r in (0, 1, 3)), work(2, enqueued=6))), recorder(job))
    assert subjects(*both) == {("collective-timeout", "rank:2")}


@pytest.mark.parametrize(
    "name, rank",
    [
        ("/tmp/nccl_trace_rank_3", 3), ("flight-recorder-rank0.pkl", 0), ("comm_lib_trace_rank_12", 12), ("dump_7", 7), ("x/rank4/trace.json", None),
        ("trace.pkl", None), ("rank_2.json", 2), ("2026-11-29-rank5.pkl", 5), ("job.2.11.1", None),
    ],
)  # fmt: skip
def test_rank_from_the_name(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank


def test_dump_without_a_rank_is_said(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(Job(ranks=2, nodes=1).dump(0)))
    status, said = report("check", "--from", str(tmp_path / "trace.json"))
    assert any("does not say its rank" in m["reason"] for m in said["missing"]) and status in (0, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"entries": [1, None, {"frames": 7}, {"collective_seq_id": "x"}]}, {"pg_config": [1]}, {"pg_status": {"0": 7}}, {"pg_config": {"0": {"ranks": {}}}},
        {"entries": [{"collective_seq_id": 3, "process_group": ["0"], "frames": [{}, 3], "input_sizes": [[None]], "state": 9}]}, {"version": 2},
    ],
)  # fmt: skip
def test_strange_dumps_break_nothing(change: dict[str, Any]) -> None:
    value = {**Job(ranks=2, nodes=1, seq=3).dump(0), **change}
    check(CollectiveTimeout(), dumps({0: value}))


# --- the whole program


def told(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(d["cause"], d["subject"]) for d in result["diagnoses"] if d["severity"] == "error"]


def test_64_ranks_on_8_nodes_in_one_log(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(Job(behind=(37,)).merged())
    status, said = report("check", "--from", str(log))
    assert status == 1 and told(said) == [("collective-timeout", "rank:37")]
    assert "collective-timeout" in [n["failure"] for n in said["facts"]["nccl"]]


@pytest.mark.parametrize("silent", [(), (21,)])
def test_64_ranks_in_64_files(tmp_path: Path, silent: tuple[int, ...]) -> None:
    job = Job(behind=() if silent else (37,), silent=silent)
    for rank in range(64):
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(job.rank_log(rank)) + "\n")
    status, said = report("check", "--from", str(tmp_path))
    assert status == 1 and told(said) == [("collective-timeout", f"rank:{silent[0] if silent else 37}")]


def test_64_dumps_in_an_archive(tmp_path: Path) -> None:
    job = Job(behind=(37,))
    archive = tmp_path / "dumps.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for rank in range(64):
            (tmp_path / "one").write_bytes(job.pickled(rank))
            tar.add(tmp_path / "one", f"dumps/nccl_trace_rank_{rank}")
    status, said = report("check", "--from", str(archive))
    assert status == 1 and told(said) == [("collective-timeout", "rank:37")]


def test_a_killed_rank_explains_that_it_did_not_come(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        Job(ranks=4, nodes=1, silent=(2,)).merged()
        + "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-29_18:35:22\n  host      : node0\n"
        "  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 4002)\n  error_file: <N/A>\n"
    )
    status, said = report("check", "--from", str(tmp_path / "job.log"))
    assert status == 1 and told(said) == [("peer-died", "rank:2")]
    assert said["diagnoses"][0]["explains"] == ["collective-timeout"]


@pytest.mark.parametrize("names", [("rank0.pkl", "rank1.pkl"), ("rank0.json", "rank1.pkl"), ("rank0.json", "rank1.json")])
def test_real_dumps(names: tuple[str, str]) -> None:
    """PyTorch 2.11 on two GPUs: rank 1 never joined the second all_reduce."""
    files = [str(FIXTURES / "outputs" / "flight-recorder" / f"flight-recorder-{n}") for n in names]
    status, said = report("check", "--from", files[0], "--from", files[1])
    assert status == 1 and told(said) == [("collective-timeout", "rank:1")]
    assert "w at /opt/bench/scen.py:8" in said["diagnoses"][0]["summary"]


def test_real_watchdog_lines() -> None:
    status, said = report("check", "--from", str(FIXTURES / "outputs" / "torch-watchdog" / "two-ranks-2.11.txt"))
    assert status == 1 and told(said) == [("collective-timeout", "rank:1")]
    assert [n["failure"] for n in said["facts"]["nccl"]] == ["collective-timeout"]


def test_real_answers_of_a_healthy_job() -> None:
    status, said = report("check", "--from", str(FIXTURES / "outputs" / "ras" / "text-and-json-2.32.3.txt"))
    assert status == 0 and said["diagnoses"] == []


def test_a_log_that_just_ends_is_no_fault(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("\n".join(Job(silent=tuple(range(64))).rank_log(0)) + "\n")
    status, said = report("check", "--from", str(log))
    assert not any(cause == "collective-timeout" for cause, _ in told(said))


def test_many_ranks_stay_readable() -> None:
    assert listing([0, 1, 2, 5]) == "0-2,5"
    assert listing(range(0, 4096, 3)) == "0,3,6,9,12,15,18,21,24,27,… (1366 ranks)"
    facts = Watchdog((*(work(r, 7, 7) for r in range(4096) if r % 3), *(work(r, enqueued=6) for r in range(0, 4096, 3))))
    (finding,) = [f for f in check(CollectiveTimeout(), facts) if isinstance(f, Finding)]
    assert finding.subject == "host" and len(finding.message) < 400


DUMP = (
    "[rank{r}]:[E418 01:32:50.907313453 ProcessGroupNCCL.cpp:1890] [PG ID 0 PG GUID 0(default_pg) Rank {r}] Received a dump signal due to a "
    "collective timeout from {who} and we will try our best to dump the debug info. Last enqueued NCCL work: {e}, last completed NCCL work: {c}."
    "This is most likely caused by incorrect usages of collectives.\n"
)


def judged(text: str) -> list[Finding]:
    intake = take((), [Document(name="log.txt", chunks=lambda: iter([text.encode()]))])
    return [
        f
        for store in intake.stores
        if (watchdog := store.get(Watchdog)) is not None
        for f in check(CollectiveTimeout(), watchdog)
        if isinstance(f, Finding)
    ]


def test_the_signal_to_dump_alone_is_a_time_out() -> None:
    found = judged("".join(DUMP.format(r=r, who="this local rank", e=22, c=21) for r in (1, 2)))
    assert [f.slug for f in found] == ["collective-timeout"] and "Ranks 1-2 waited in a collective #22" in found[0].message
    # All that was called is done: the time-out was in another group, and no number is made up.
    found = judged(DUMP.format(r=1, who="this local rank", e=7, c=7))
    assert "waited in a collective of default_pg" in found[0].message and "#" not in found[0].message
    # A rank that only heard of another's waited in nothing: the other one did.
    (heard,) = judged(DUMP.format(r=0, who=" rank 13", e=1261, c=1259))
    assert (heard.subject, heard.confidence) == ("host", "possible") and "Rank 13 waited" in heard.message and "rank 0 heard" in heard.message


def test_the_signal_to_dump_makes_no_second_time_out_of_one_in_another_group() -> None:
    caught = (
        "[rank1]:[E418 01:32:49 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, "
        "OpType=ALLTOALL_BASE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600033 milliseconds before timing out.\n"
        "[rank1]:[E418 01:32:49 ProcessGroupNCCL.cpp:2324] [PG ID 3 PG GUID 17(ep) Rank 0]  failure detected by watchdog at work sequence id: 77 "
        "PG status: last enqueued work: 77, last completed work: 76\n"
    )
    found = judged(caught + DUMP.format(r=1, who="this local rank", e=9, c=8))
    assert len(found) == 1 and "ALLTOALL_BASE #77" in found[0].message


def test_a_time_out_whose_group_is_cut_off_joins_those_who_wait_in_the_same_call() -> None:
    one = (
        "[rank{r}]:[E1206 18:44:12 ProcessGroupNCCL.cpp:607] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7753, "
        "OpType=_REDUCE_SCATTER_BASE, NumelIn={n}, NumelOut=64, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n"
    )
    group = "[rank{r}]:[E1206 18:44:12 ProcessGroupNCCL.cpp:1664] [PG {g} Rank {r}] Exception (either an error or timeout) detected by watchdog at work: 7753, last enqueued NCCL work: 7755, last completed NCCL work: 7752.\n"
    text = one.format(r=0, n=512) + group.format(r=0, g=1) + one.format(r=3, n=512)
    assert [f.message[:28] for f in judged(text)] == ["Ranks 0,3 waited 600 s in _R"]
    # Another call, or the same in two groups, stays apart.
    assert len(judged(text + one.format(r=4, n=8))) == 2
    assert len(judged(text + one.format(r=5, n=512) + group.format(r=5, g=2))) == 3


def test_the_news_that_a_collective_failed_is_not_nothing() -> None:
    ended = "[rank2]:[E307 05:30:18 ProcessGroupNCCL.cpp:744] [Rank 2] Some NCCL operations have failed or timed out. Due to the asynchronous nature\n"
    assert [f.slug for f in judged(ended)] == ["collective-timeout"]
    # An error says more than this line, which follows it.
    assert judged("[rank2]: RuntimeError: CUDA error: an illegal memory access was encountered\n" + ended) == []


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("mpirun noticed that process rank 3 with PID 21345 on node gpu12 exited on signal 9 (Killed).", "rank:3"),
        ("prterun noticed that process rank 7 with PID 0 on node gpu0304 exited on\nsignal 11 (Segmentation fault).", "rank:7"),
        ("srun: error: gpu-node-3: task 12: Killed", "rank:12"),
        ("srun: error: gpu-node-3: task 12: Exited with exit code 1", None),
        ("mpirun noticed that process rank 3 with PID 21345 on node gpu12 exited on signal 6 (Aborted).", None),
    ],
)
def test_launchers_that_saw_a_process_die(line: str, subject: str | None) -> None:
    assert [f.subject for f in judged(line + "\n")] == ([subject] if subject else [])


def p2p(name: str, state: str = "started") -> dict[str, Any]:
    return {"collective_seq_id": 0, "p2p_seq_id": 3, "is_p2p": True, "process_group": ["5", "pp"], "profiling_name": f"nccl:{name}", "state": state, "input_sizes": [[8]], "frames": []}


def pipeline(said: dict[int, list[dict[str, Any]]], versions: dict[int, str] | None = None) -> FlightRecorder:
    config = {"1": {"name": "5", "desc": "pp", "ranks": "[2, 6]"}}
    return dumps({rank: {"version": (versions or {}).get(rank, "2.9"), "entries": entries, "pg_config": config} for rank, entries in said.items()})


def test_a_send_without_its_receive_blames_the_rank_that_did_not_receive() -> None:
    found = findings(CollectiveTimeout(), pipeline({2: [p2p("send 0->1")], 6: [p2p("recv 1<-0", "completed")]}))
    assert set(found) == {("collective-timeout", "rank:6")}  # group rank 1 is rank 6 of the job
    assert "never called recv 1<-0 of pp, in which rank 2 waited" in found["collective-timeout", "rank:6"].message


def test_dumps_of_several_versions_are_put_side_by_side() -> None:
    found = findings(CollectiveTimeout(), pipeline({2: [p2p("recv 0<-1", "scheduled")], 6: []}, {2: "2.4", 6: "2.10"}))
    assert set(found) == {("collective-timeout", "rank:6")}


def test_both_sides_there_or_one_dump_alone_blames_nobody() -> None:
    both = findings(CollectiveTimeout(), pipeline({2: [p2p("send 0->1")], 6: [p2p("recv 1<-0")]}))
    assert set(both) == {("collective-timeout", "host")} and "no rank is missing" in both["collective-timeout", "host"].message
    assert findings(CollectiveTimeout(), pipeline({2: [p2p("send 0->1")]})) == {}
    assert findings(CollectiveTimeout(), pipeline({2: [p2p("send 0->1", "completed")], 6: [p2p("recv 1<-0", "completed")]})) == {}


def accused(kind: str, *ranks: int, **more: Any) -> Accused:
    return Accused(**{"kind": kind, "ranks": ranks, "origin": HERE, **more})


def test_a_comparison_alone_names_who_did_not_come() -> None:
    """No time-out of the watchdog's is in the text: a barrier, or the analysis of the dumps."""
    assert subjects(Watchdog((), (accused("barrier", 4, 6),))) == {("collective-timeout", "rank:4"), ("collective-timeout", "rank:6")}
    (finding,) = findings(CollectiveTimeout(), Watchdog((), (accused("absent", 1, seq=5, op="all_reduce", group="0:default_pg", world=4),))).values()
    assert finding.subject == "rank:1" and "did not join all_reduce #5 of 0:default_pg" in finding.message
    # Where most are absent, those that came may be the odd ones.
    assert subjects(Watchdog((), (accused("absent", 1, 2, 3, seq=5, world=4),))) == {("collective-timeout", "host")}
    assert subjects(Watchdog((), (accused("waits", 3),))) == {("collective-timeout", "host")}
    assert subjects(Watchdog((), (accused("left", 2),))) == {("peer-died", "host")}
    assert subjects(Watchdog((), (accused("left", 2), accused("barrier", 5)))) == {("collective-timeout", "rank:5")}
    # A time-out of the watchdog's tells more: one finding.
    assert len(subjects(Watchdog((work(0, 4), work(1, 4)), (accused("absent", 2, seq=4),)))) == 1


def test_ranks_that_call_something_else() -> None:
    calls = [accused("calls", r, seq=7, op="ALLREDUCE", sizes="8") for r in (0, 1)] + [accused("calls", 2, seq=7, op="REDUCE", sizes="8")]
    (finding,) = findings(CollectiveTimeout(), Watchdog((), tuple(calls))).values()
    assert (finding.slug, finding.subject) == ("rank-mismatch", "rank:2")
    assert "ranks 0-1 ALLREDUCE #7 of [8], rank 2 REDUCE #7 of [8]" in finding.message
    assert subjects(Watchdog((), tuple(calls[1:]))) == {("rank-mismatch", "host")}
    assert subjects(Watchdog((), (accused("odd", 2, seq=7, world=8),))) == {("rank-mismatch", "rank:2")}
    assert subjects(Watchdog((), (accused("odd", 1, 2, 3, seq=7, world=4),))) == {("rank-mismatch", "host")}


def test_what_the_launcher_kills_after_a_failure_is_no_cause() -> None:
    """Half a minute after SIGTERM torchrun kills the ranks that hang in a collective with the one that failed."""
    failed, killed = Death(rank=1, exitcode=1, first=True, origin=HERE), Death(rank=0, exitcode=-9, origin=HERE)
    assert subjects(Watchdog((), (), (killed, failed))) == {("peer-died", "rank:1")}
    crashed = Death(rank=0, exitcode=-11, origin=HERE)
    assert ("peer-died", "rank:0") not in subjects(Watchdog((), (), (failed, killed)))
    assert subjects(Watchdog((), (), (crashed,))) == {("peer-died", "rank:0")}


@pytest.mark.parametrize(
    ("last", "slug", "step"),
    [
        ("NET/IB : Got completion from peer 10.0.0.2<5000> with error 12, opcode 0, len 0, vendor err 129", "network-error", "ibstat"),
        ("NET/IB : Got completion from peer 10.0.0.2<5000> with error 5, opcode 0, len 0, vendor err 249", "peer-died", "earliest"),
        ("Cuda failure 'an illegal memory access was encountered'", "cuda-error", "Xids"),
    ],
)
def test_nccls_last_words_in_the_same_line(last: str, slug: str, step: str) -> None:
    """What a paste without line ends looks like. A request that was flushed only follows."""
    text = (
        "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. terminate called after throwing an instance of 'std::runtime_error' "
        f"what():  NCCL error: remote process exited or there was a network error, NCCL version 2.14.3 ncclRemoteError: A call failed. Last error: {last}\n"
    )
    status, result = report("check", "--from", "-", stdin=text.encode())
    (found,) = result["diagnoses"]
    assert (status, found["cause"]) == (1, slug) and step in json.dumps(found["remediation"])
    assert [n["failure"] for n in result["facts"]["nccl"] if n["failure"]] == [slug]
