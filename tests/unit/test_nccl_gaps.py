"""A log with lines lost: what a rank did not print is no setting that differs, and a version that was cut is none."""

from __future__ import annotations

import pytest

from gpudoctor.discover import load
from gpudoctor.ingest import take
from gpudoctor.judge import judge
from gpudoctor.read.source import Document
from tests.support import FIXTURES

LOGS = FIXTURES / "outputs" / "job-log"


def found(lines: list[str]) -> set[str]:
    raw = "".join(line + "\n" for line in lines).encode()
    report = judge(take(sources=[Document(name="job.log", chunks=lambda: iter([raw]))]), load(), {"kind": "recorded", "paths": ["job.log"]})
    return {f.slug for r in report.results for f in r.findings}


def test_lines_lost_of_one_rank_are_no_mismatch() -> None:
    lines = (LOGS / "p2p-off.log").read_text().splitlines()
    assert "rank-mismatch" not in found(lines)
    lost = ("[1] NCCL INFO NCCL_P2P_DISABLE set", "[1] NCCL INFO MNNVL busId", "[1] NCCL INFO cudaDriverVersion")
    less = [line for line in lines if not any(words in line for words in lost)]
    assert len(less) == len(lines) - 3
    assert "rank-mismatch" not in found(less)


def test_a_setting_that_one_rank_alone_has_is_a_mismatch() -> None:
    """Recorded: the first rank has nothing of it, and every other line."""
    assert "rank-mismatch" in found((LOGS / "other-settings.log").read_text().splitlines())


@pytest.mark.parametrize("cut", ["NCCL version 2.2", "NCCL version 2.28"])
def test_a_version_that_was_cut_is_none(cut: str) -> None:
    lines = (LOGS / "healthy.log").read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if "NCCL version 2." in line)
    assert "version-mismatch" not in found([*lines[:at], lines[at].partition("NCCL version")[0] + cut, *lines[at + 1 :]])
