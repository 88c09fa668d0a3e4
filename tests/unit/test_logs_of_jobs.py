"""Logs of several jobs given together keep their diagnoses apart; the logs of one job stay joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.correlate.diagnose import diagnose
from gpudoctor.model import ERROR, Evidence, Finding
from tests.support import FIXTURES, report

LOGS = FIXTURES / "outputs" / "nccl-log"


def roots(*given: Path) -> dict[str, dict[str, Any]]:
    """cause -> the error at the root, with what it explains."""
    _, told = report("check", *(word for path in given for word in ("--from", str(path))))
    return {d["cause"]: d for d in told["diagnoses"] if d["severity"] == "error"}


def log(name: str) -> Path:
    return LOGS / f"h200x2-2.28.9-{name}.txt"


def parted(name: str, folder: Path, second: str) -> tuple[Path, Path]:
    """One file per rank, as NCCL_DEBUG_FILE leaves them."""
    lines = log(name).read_bytes().splitlines(keepends=True)
    own = [line for line in lines if f":{second}:".encode() in line]
    paths = folder / f"{name}-rank0.txt", folder / f"{name}-rank1.txt"
    paths[0].write_bytes(b"".join(line for line in lines if line not in own))
    paths[1].write_bytes(b"".join(own))
    return paths


def of(diagnosis: dict[str, Any]) -> set[str]:
    return {Path(e["source"]).name for e in diagnosis["evidence"]}


@pytest.mark.parametrize(
    ("one", "other"),
    [("killed-peer", "env-mismatch"), ("p2p-disabled", "split-host"), ("split-host", "killed-peer")],
)
def test_two_jobs_keep_what_each_has_alone(one: str, other: str) -> None:
    alone = {**roots(log(one)), **roots(log(other))}
    together = roots(log(one), log(other))
    assert together.keys() == alone.keys()
    for cause, root in together.items():
        assert root["remediation"] == alone[cause]["remediation"] and root["remediation"]


def test_a_finding_cites_its_own_jobs_log() -> None:
    told = roots(log("p2p-disabled"), log("split-host"))
    assert {slug: of(root) for slug, root in told.items()} == {
        "p2p-disabled-env": {log("p2p-disabled").name},
        "split-host": {log("split-host").name},
    }


@pytest.mark.parametrize(("name", "second"), [("split-host", "567"), ("p2p-disabled", "2060")])
def test_one_job_in_two_files_has_the_root_that_it_has_in_one(name: str, second: str, tmp_path: Path) -> None:
    whole, apart = roots(log(name)), roots(*parted(name, tmp_path, second))
    assert apart.keys() == whole.keys() and len(whole) == 1
    (root,), (as_one,) = apart.values(), whole.values()
    assert set(root["explains"]) == set(as_one["explains"]) != set()


def test_what_two_jobs_have_alike_is_told_once_with_both_logs(tmp_path: Path) -> None:
    again = tmp_path / "again.txt"
    text = log("p2p-disabled").read_text()
    comm_id = text.partition("commId ")[2].split()[0]
    again.write_text(text.replace(comm_id, "0x1234567890abcdef").replace(":2060:", ":3060:").replace(":2059:", ":3059:"))
    (root,) = roots(log("p2p-disabled"), again).values()
    assert of(root) == {log("p2p-disabled").name, "again.txt"}


def test_only_findings_of_jobs_that_differ_are_kept_apart() -> None:
    cause = Finding("network-error", ERROR, "host", "x", (Evidence("a", "line 1", "x"),))
    effect = Finding("peer-died", ERROR, "rank:1", "y", (Evidence("b", "line 1", "y"),))

    def count(**jobs: str) -> int:
        return len(diagnose([cause, effect], jobs_of=lambda f: frozenset(jobs.get(f.evidence[0].source, ""))))

    assert count(a="1", b="2") == 2
    assert count(a="1", b="1") == count(a="12", b="2") == count(a="1") == count(b="2") == count() == 1
