"""Jobs of which only the launcher tells how they ended: by a signal, without a word of NCCL's. Synthetic."""

from __future__ import annotations

import pytest

from gpudoctor.facts.bandwidth import Bandwidth
from tests.unit.test_homes import P2P, found, log, reason, report

HEALTHY = log({"node07": P2P})  # ranks 0 to 3, processes 100 to 103
TABLE = """============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_18:35:21
  host      : node07
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 101)
  error_file: <N/A>
  traceback : Signal {signal} (SIGABRT) received by PID 101
============================================================
"""
AGENT = "E1129 18:35:21.747801 4242 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: {code}) local_rank: 1 (pid: {pid}) of binary: /usr/bin/python3\n"
WRAPPED = "mpirun noticed that process rank 1 with PID 0 on node node07 exited on\nsignal {signal}.\n"


@pytest.mark.parametrize(
    "end",
    [
        TABLE.format(code=-6, signal=6),
        AGENT.format(code=-6, pid=101),
        AGENT.format(code=-11, pid=101),
        "  traceback : Signal 6 (SIGABRT) received by PID 101\n",
        WRAPPED.format(signal="6 (Aborted)"),
        WRAPPED.format(signal="11 (Segmentation fault)"),
        "[node07:101] *** Process received signal ***\n[node07:101] Signal: Segmentation fault (11)\n",
        "srun: error: node07: task 1: Aborted (core dumped)\n",
    ],
)
def test_the_process_that_ended_is_named(end: str) -> None:
    told = report(HEALTHY + end)
    assert [(f.subject, f.severity) for f in found(told, "peer-died").values()] == [("rank:1", "error")]
    assert told.exit_code == 1


@pytest.mark.parametrize(
    "end",
    [
        AGENT.format(code=-15, pid=101),  # how the launcher stops the others
        AGENT.format(code=1, pid=101),  # an exception of the program's
        "[other:4711] Signal: Segmentation fault (11)\n",  # no process of the job
        "*** SIGABRT (@0x3e8) received by PID 101 (TID 0x7f) from PID 101; stack trace: ***\n",
        "signal 6 (Aborted).\n",
        "the watchdog sends signal 6 (Aborted) to a process that hangs\n",
    ],
)
def test_other_words_of_signals_are_no_death(end: str) -> None:
    told = report(HEALTHY + end)
    assert not found(told, "peer-died") and told.exit_code == 0


def test_torchruns_word_of_a_killed_process_needs_no_line_of_nccls() -> None:
    told = report(AGENT.format(code=-9, pid=101))
    assert [(f.subject, f.severity) for f in found(told, "peer-died").values()] == [("host", "error")]


def test_without_nccls_lines_an_abort_may_be_any_programs() -> None:
    assert "101 ended by SIGABRT" in reason(report(AGENT.format(code=-6, pid=101)), "peer-died")
    assert not found(report(AGENT.format(code=-6, pid=101)), "peer-died")
    assert not found(report("[node07:101] Signal: Aborted (6)\n"), "peer-died")


def test_a_cause_that_is_told_comes_first() -> None:
    """The abort is how PyTorch's watchdog ends a process in which NCCL failed."""
    failed = "node07:102:202 [2] misc/cudawrap.cc:36 NCCL WARN Cuda failure 'out of memory'\n"
    told = report(HEALTHY + failed + TABLE.format(code=-6, signal=6))
    assert found(told, "cuda-error") and not found(told, "peer-died")


def test_mpiruns_two_lines_below_a_bandwidth_table() -> None:
    text = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n"
    told = report(text + WRAPPED.format(signal="9 (Killed)"))
    (bandwidth,) = [b for s in told.hosts if (b := s.get(Bandwidth)) is not None]
    assert [f.status for run in bandwidth for f in run.failures] == [9]
    assert [f.subject for f in found(told, "peer-died").values()] == ["rank:1"]
