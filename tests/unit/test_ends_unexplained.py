"""A job that failed for a reason that is not in the input is no pass. Synthetic, in the shape of torchrun's summary."""

from __future__ import annotations

import pytest

from tests.unit.test_homes import P2P, log, report

SUMMARY = """\
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_12:00:02
  host      : node07
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 101)
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""
PYTHON = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@pytest.mark.parametrize(
    ("code", "traceback", "words"),
    [(1, PYTHON, "rank 1 ended with exit status 1"), (-6, "Signal 6 (SIGABRT) received by PID 101", "rank 1 ended by SIGABRT")],
)
def test_a_job_that_failed_and_nothing_says_why(code: int, traceback: str, words: str) -> None:
    told = report(SUMMARY.format(code=code, traceback=traceback))
    (missing,) = [m for m in told.missing if m.fact == "why the job ended"]
    assert told.verdict == "unknown" and told.exit_code == 3 and missing.needed and words in missing.reason and "line" in missing.reason


def test_what_is_explained_is_not_said_again() -> None:
    warned = "node07:101:201 [1] misc/cudawrap.cc:36 NCCL WARN Cuda failure 'out of memory'\n"
    told = report(log({"node07": P2P}) + warned + SUMMARY.format(code=1, traceback=PYTHON))
    assert told.exit_code == 1 and not any(m.fact == "why the job ended" for m in told.missing)


@pytest.mark.parametrize("end", ["", SUMMARY.format(code=1, traceback=PYTHON)], ids=["well", "by an exception of its own"])
def test_a_job_whose_communication_is_shown_in_order(end: str) -> None:
    told = report(log({"node07": P2P}) + end)
    assert told.exit_code == 0 and not any(m.fact == "why the job ended" for m in told.missing)


def test_what_a_launcher_stopped_is_no_end_of_a_job() -> None:
    told = report(SUMMARY.format(code=-15, traceback="Signal 15 (SIGTERM) received by PID 101"))
    assert not any(m.fact == "why the job ended" for m in told.missing)
