"""Flight recorder dumps as people have them: of some ranks, in JSON of torch's own, of Gloo's, of several jobs at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.checkers.collective_timeout import CollectiveTimeout
from gpudoctor.parsers import flight_recorder
from tests.made_jobs import Job
from tests.support import FIXTURES, findings, report
from tests.unit.test_hang import dumps, told

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
    status, said = report("check", *paths(*(RECORDED / f"gloo-hang-rank{r}.json" for r in range(3))))
    assert status == 1 and told(said) == [("collective-timeout", "rank:1")]
    assert "never called all_reduce #4 of default_pg, in which ranks 0,2 waited: the last that it called is #3" in said["diagnoses"][0]["summary"]


def test_calls_over_gloo_that_are_done() -> None:
    status, said = report("check", *paths(*(RECORDED / f"gloo-done-rank{r}.json" for r in range(3))))
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
