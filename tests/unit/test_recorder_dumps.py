"""Flight recorder dumps as people have them: of some ranks, in JSON of torch's own, of Gloo's, of several jobs at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpudoctor.checkers.collective_timeout import CollectiveTimeout
from gpudoctor.cli.check import command
from gpudoctor.facts.base import Loss
from gpudoctor.facts.hang import FlightRecorder
from gpudoctor.model import ERROR, NOTE, Finding
from gpudoctor.parsers import flight_recorder
from gpudoctor.read.section import Section
from tests.made_jobs import Job, entry
from tests.support import FIXTURES, check, findings
from tests.unit.test_hang import dumps, told
from tests.unit.test_homes import P2P, log


def run(*words: str) -> Result:
    return CliRunner().invoke(command, [*words], prog_name="gpudoctor check")


def report(*words: str) -> tuple[int, dict[str, Any]]:
    """As `tests.support.report`, in this process."""
    done = run(*words, "--format", "json")
    return done.exit_code, json.loads(done.stdout)


RECORDED = FIXTURES / "outputs" / "flight-recorder"


def paths(*files: Path | str) -> list[str]:
    return [word for file in files for word in ("--from", str(file))]


def written(folder: Path, said: dict[int, Any]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for rank, value in said.items():
        (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(value))
    return sorted(folder.iterdir())


def test_a_hang_over_gloo() -> None:
    """Recorded: torch leaves its calls `scheduled` for ever and writes counts as strings, the group without its name."""
    status, said = report(*paths(*(RECORDED / f"gloo-hang-rank{r}.json" for r in range(3))))
    assert status == 1 and told(said) == [("collective-timeout", "rank:1")]
    assert "never called all_reduce #4 of default_pg, in which ranks 0,2 waited: the last that it called is #3" in said["diagnoses"][0]["summary"]


def test_calls_over_gloo_that_are_done() -> None:
    status, said = report(*paths(*(RECORDED / f"gloo-done-rank{r}.json" for r in range(3))))
    assert status == 0 and said["verdict"] == "pass" and not said["diagnoses"]


@pytest.mark.parametrize("count", ["7", 7])
def test_counts_are_strings_in_torchs_own_json(count: Any) -> None:
    """With the counts the finished calls below the last completed one are known as done, whatever their state says."""
    said = {r: Job(ranks=4, nodes=1, behind=(2,), seq=8).dump(r) for r in range(4)}
    for value in said.values():
        value["pg_status"]["0"]["last_completed_collective"] = count
        for one in value["entries"]:
            one["state"] = "scheduled"
    assert set(findings(CollectiveTimeout(), dumps(said))) == {("collective-timeout", "rank:2")}


@pytest.mark.parametrize("count", ["", "-1", "x", "1.5", "٣", "9" * 30, None, [1]])
def test_a_count_that_is_none(count: Any) -> None:
    assert flight_recorder._count(count) is None


def test_a_retired_call_over_nccl_may_have_failed() -> None:
    said = {r: Job(ranks=4, nodes=1, behind=(2,), seq=8).dump(r) for r in range(4)}
    for value in said.values():
        value["entries"][-1]["retired"] = True
    assert set(findings(CollectiveTimeout(), dumps(said))) == {("collective-timeout", "rank:2")}


def needed(said: dict[str, Any]) -> list[str]:
    return [m["fact"] for m in said["missing"]]


def test_the_guilty_ranks_dump_alone_is_no_pass() -> None:
    """Recorded. It shows a rank that is done with all it called: so does one of a job that runs."""
    status, said = report(*paths(RECORDED / "flight-recorder-rank1.pkl"))
    assert status == 3 and said["verdict"] == "unknown" and not said["diagnoses"]
    (told_,) = [m["reason"] for m in said["missing"] if m["fact"] == "what the other ranks called"]
    assert "rank 1 alone, of 2 ranks" in told_ and "all_reduce #1 of default_pg last (in w at /opt/bench/scen.py:8)" in told_ and "the dump of rank 0 would tell" in told_
    text = run(*paths(RECORDED / "flight-recorder-rank1.pkl")).stdout
    asked = text[text.index("To settle what is open") :].splitlines()[1]
    assert asked == "  PyTorch's flight recorder dump of rank 0"


def test_the_waiting_ranks_dump_alone_asks_for_the_other() -> None:
    text = run(*paths(RECORDED / "flight-recorder-rank0.pkl")).stdout
    assert "of rank 1 the input has no dump: it did not come, or waits there too" in " ".join(text.split())
    assert text[text.index("To settle what is open") :].splitlines()[1] == "  PyTorch's flight recorder dump of rank 1"


def done(ranks: int, seq: int = 7) -> dict[int, dict[str, Any]]:
    said = {r: Job(ranks=ranks, nodes=1, seq=seq).dump(r) for r in range(ranks)}
    for rank, value in said.items():
        value["pg_status"]["0"]["last_completed_collective"] = seq
        for one in value["entries"]:
            one["state"] = "completed"
            one["thread_id"] = str(140378674189056 + rank)  # no two dumps are byte for byte the same
    return said


def test_dumps_of_all_ranks_that_are_done_are_a_pass(tmp_path: Path) -> None:
    status, _ = report(*paths(*written(tmp_path / "all", done(4))))
    assert status == 0
    files = written(tmp_path / "some", {r: v for r, v in done(4).items() if r != 2})
    status, said = report(*paths(*files))
    assert status == 3 and any("the dump of rank 2 would tell" in m["reason"] for m in said["missing"])


def test_dumps_of_all_ranks_that_came_unequally_far(tmp_path: Path) -> None:
    said = done(4)
    said[2] = done(4, 6)[2]
    status, told_ = report(*paths(*written(tmp_path, said)))
    assert status == 3 and any("rank 2 6, ranks 0-1,3 7" in m["reason"] for m in told_["missing"])


def test_a_dump_that_tells_no_rank_is_no_pass(tmp_path: Path) -> None:
    for name, value in (("waits", Job(ranks=4, nodes=1).dump(0)), ("done", done(4)[0])):
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
        status, said = report(*paths(tmp_path / f"{name}.json"))
        assert status == 3 and "whose flight recorder it is" in needed(said)


def test_dumps_without_a_list_of_ranks(tmp_path: Path) -> None:
    """torch before 2.3 writes the calls alone: how many ranks there are only NCCL's log tells."""
    calls = {r: value["entries"] for r, value in done(2).items()}
    files = written(tmp_path / "dumps", calls)
    status, said = report(*paths(*files))
    assert status == 3 and "what the other ranks called" in needed(said)
    calls = {r: value["entries"] for r, value in done(4).items()}
    (tmp_path / "nccl.log").write_text(log({"node07": P2P}))  # of four ranks
    status, said = report(*paths(*written(tmp_path / "all", calls), tmp_path / "nccl.log"))
    assert status == 0 and not said["diagnoses"]
    status, said = report(*paths(*files, tmp_path / "nccl.log"))
    assert status == 3 and any("the dump of ranks 2-3 would tell" in m["reason"] for m in said["missing"])


def test_dumps_of_two_jobs_are_kept_apart(tmp_path: Path) -> None:
    """The same rank, the same number, at another time: of one folder each."""
    first = {r: Job(ranks=4, nodes=1, behind=(1,), seq=7).dump(r) for r in range(4)}
    second = {r: Job(ranks=4, nodes=1, behind=(3,), seq=7).dump(r) for r in range(4)}
    for value in second.values():
        for one in value["entries"]:
            one["time_created_ns"] += 10**12
    files = [*written(tmp_path / "monday", first), *written(tmp_path / "tuesday", second)]
    status, said = report(*paths(*files))
    assert status == 1 and sorted(told(said)) == [("collective-timeout", "rank:1"), ("collective-timeout", "rank:3")]
    # Copies are of one job.
    status, said = report(*paths(*written(tmp_path / "monday", first), *written(tmp_path / "copy", first)))
    assert status == 1 and told(said) == [("collective-timeout", "rank:1")]


# --- sends and receives: synthetic, in the shape of torch 2.11


def p2p(name: str, state: str = "scheduled", batch: int = 1, size: int = 8) -> dict[str, Any]:
    return {
        "collective_seq_id": 0, "p2p_seq_id": batch, "is_p2p": True, "process_group": ["5", "pp"], "profiling_name": f"nccl:{name}", "state": state,
        "input_sizes": [[size]], "output_sizes": [[size]], "input_dtypes": ["Float"], "output_dtypes": ["Float"], "frames": [],
    }  # fmt: skip


def pipeline(*of_ranks: list[dict[str, Any]]) -> list[Finding]:
    config = {"1": {"name": "5", "desc": "pp", "ranks": str(list(range(len(of_ranks))))}}
    made = dumps({rank: {"version": "2.10", "entries": entries, "pg_config": config} for rank, entries in enumerate(of_ranks)})
    return [f for f in check(CollectiveTimeout(), made) if isinstance(f, Finding)]


def test_only_the_end_of_a_chain_is_to_blame() -> None:
    """Ranks 1 to 3 each wait for the rank before; rank 0 sends nothing."""
    (finding,) = pipeline([], [p2p("recv 1<-0")], [p2p("recv 2<-1")], [p2p("recv 3<-2")])
    assert (finding.slug, finding.subject) == ("collective-timeout", "rank:0") and "never called send 0->1 of pp" in finding.message


def test_ranks_that_wait_for_each_other_in_a_ring() -> None:
    (finding,) = pipeline([p2p("recv 0<-2")], [p2p("recv 1<-0")], [p2p("recv 2<-1")])
    assert (finding.slug, finding.subject) == ("rank-mismatch", "host") and "rank 0 recv 0<-2" in finding.message and "#None" not in finding.message


def batch(rank: int, ranks: int, state: str, size: int = 8) -> list[dict[str, Any]]:
    """A ring exchange: torch keeps the state of the last entry alone."""
    ahead, before = (rank + 1) % ranks, (rank - 1) % ranks
    return [p2p(f"send {rank}->{ahead}", size=size), p2p(f"recv {rank}<-{before}", size=size), {**p2p("coalesced", state), "input_sizes": []}]


def test_batched_calls_that_are_done_hang_nobody() -> None:
    assert pipeline(*(batch(r, 4, "completed") for r in range(4))) == []
    many = [[{**one, "p2p_seq_id": n} for n in range(1, 200) for one in batch(r, 2, "completed")] for r in range(2)]
    assert pipeline(*many) == []


def test_a_rank_that_does_not_come_to_a_batch() -> None:
    (finding,) = pipeline(*(batch(r, 4, "scheduled") if r != 3 else [] for r in range(4)))
    assert finding.subject == "rank:3" and "no rank is missing" not in finding.message
    (finding, *_) = pipeline(*(batch(r, 4, "scheduled") for r in range(4)))
    assert finding.subject == "host" and "no rank is missing" in finding.message


def test_a_send_and_its_receive_of_unequal_sizes() -> None:
    (finding,) = pipeline([p2p("send 0->1", size=8)], [p2p("recv 1<-0", size=64)])
    assert (finding.slug, finding.subject) == ("rank-mismatch", "host")
    assert "rank 0 send 0->1 of 8 Float, rank 1 recv 1<-0 of 64 Float" in finding.message


def in_tp(said: dict[int, dict[str, Any]], waits: int, absent: int) -> FlightRecorder:
    """Two of the ranks have a group of their own, in which one waits for the other."""
    for rank, value in said.items():
        value["pg_config"]["9"] = {"name": "9", "desc": "tp", "ranks": str(sorted((waits, absent)))}
        if rank in (waits, absent):
            calls = ((3, "completed"), (4, "scheduled")) if rank == waits else ((3, "completed"),)
            value["entries"] += [entry(n, rank, "all_gather", 8, state, "9", "tp") for n, state in calls]
    return dumps(said)


def test_a_victim_of_a_hang_in_another_group_is_no_subject() -> None:
    """Ranks 2 and 3 did not come to the default group's collective: 2 waits for 3 in their own, and 3 is to blame."""
    said = {r: Job(ranks=4, nodes=1, behind=(2, 3), seq=7).dump(r) for r in range(4)}
    found = {f.subject: f for f in findings(CollectiveTimeout(), in_tp(said, 2, 3)).values()}
    assert set(found) == {"rank:3"} and found["rank:3"].severity == ERROR
    # 2 alone is behind in the default group, because it waits for 3, which waits nowhere else.
    said = {r: Job(ranks=4, nodes=1, behind=(2,), seq=7).dump(r) for r in range(4)}
    said[3]["entries"][-1]["state"] = "completed"
    said[3]["pg_status"]["0"]["last_completed_collective"] = 7
    found = {f.subject: f for f in findings(CollectiveTimeout(), in_tp(said, 2, 3)).values()}
    assert set(found) == {"rank:3", "host"} and "all_gather #4 of tp" in found["rank:3"].message
    assert found["host"].severity == NOTE and "Rank 2 did not come to all_reduce #7" in found["host"].message


def test_two_groups_called_in_different_order_blame_both() -> None:
    said = {r: Job(ranks=4, nodes=1, behind=(2,), seq=7).dump(r) for r in range(4)}
    found = {f.subject: f for f in findings(CollectiveTimeout(), in_tp(said, 2, 3)).values()}
    assert set(found) == {"rank:2", "rank:3"} and all("in different order" in f.message and f.severity == ERROR for f in found.values())


def test_equal_dumps_of_two_ranks_are_two(tmp_path: Path) -> None:
    """As where the recorder is off and only the counts are written: whose they are stands in their names alone."""
    value = {**done(3)[0], "entries": []}
    files = written(tmp_path, dict.fromkeys(range(3), value))
    assert len({f.read_bytes() for f in files}) == 1
    status, said = report(*paths(*files))
    assert status == 0 and not said["diagnoses"]
    status, said = report(*paths(*files[:2]))
    assert status == 3 and any("recorder of ranks 0-1, of 3 ranks" in m["reason"] for m in said["missing"])


def test_counts_without_calls_tell_who_did_not_come() -> None:
    said = {r: {**Job(ranks=4, nodes=1, behind=(2,), seq=7).dump(r), "entries": []} for r in range(4)}
    (finding,) = findings(CollectiveTimeout(), dumps(said)).values()
    assert finding.subject == "rank:2" and "never called a collective #7 of default_pg, in which ranks 0-1,3 waited" in finding.message
    assert "last enqueued 6, last completed 6" in finding.evidence[0].value
    assert findings(CollectiveTimeout(), dumps({r: {**v, "entries": []} for r, v in done(4).items()})) == {}


def test_of_thousands_of_calls_the_last_ones_are_read() -> None:
    """And every one that is open, however far above; what has no number is said at any place."""
    value = Job(ranks=2, nodes=1, seq=3).dump(0)
    value["entries"] = [entry(n, 0, "all_reduce", 8, "completed" if n != 5 else "scheduled") for n in range(1, 1001)]
    value["entries"][2] = {"state": "completed"}
    made = list(flight_recorder.parse(Section(kind="flight-recorder", source="rank_0", lines=(), content=json.dumps(value).encode())))
    (recorded,) = [f for f in made if isinstance(f, FlightRecorder)]
    assert [c.seq for c in recorded.dumps[0].calls] == [5, *range(1001 - flight_recorder.KEPT, 1001)]
    assert [f.fact for f in made if isinstance(f, Loss)] == ["1 entries of rank_0"]
