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


# --- Slurm's srun, of several tasks at once. Printed by Slurm 22.05 on three made-up nodes of three tasks each.

BOTH_NODES = "srun: error: n0: tasks 1-2: Killed\nsrun: error: n1: task 5: Killed\nsrun: Force Terminated StepId=2.0\n"
CRASHED = """srun: error: n1: task 4: Segmentation fault
srun: launch/slurm: _step_signal: Terminating StepId=4.0
slurmstepd-n0: error: *** STEP 4.0 ON n0 CANCELLED AT 2026-11-30T02:26:23 ***
srun: error: n1: tasks 3,5: Terminated
srun: error: n2: tasks 6-8: Terminated
srun: error: n0: tasks 0-2: Terminated
srun: Force Terminated StepId=4.0
"""
FAILED = CRASHED.replace("Segmentation fault", "Exited with exit code 1").replace("Terminated\n", "Killed\n")
CANCELLED = """slurmstepd-n0: error: *** STEP 8.0 ON n0 CANCELLED AT 2026-11-30T02:26:38 DUE TO TIME LIMIT ***
srun: Job step aborted: Waiting up to 5 seconds for job step to finish.
srun: error: n2: task 2: Killed
srun: error: Timed out waiting for job step to complete
"""


@pytest.mark.parametrize(
    ("text", "subjects"),
    [
        ("srun: error: node: tasks 1,3: Killed\n", ["rank:1", "rank:3"]),
        ("srun: error: node[07-08]: tasks 0-3,5: Segmentation fault (core dumped)\n", [f"rank:{n}" for n in (0, 1, 2, 3, 5)]),
        ("srun: error: n1: tasks 3-4: Out Of Memory\n", ["rank:3", "rank:4"]),
        ("srun: error: n1: tasks 3-4: Bus error\n", ["rank:3", "rank:4"]),
        ("srun: error: n1: tasks 3-4: Exited with exit code 137\n", ["rank:3", "rank:4"]),  # a shell between srun and the program
        (BOTH_NODES, ["rank:1", "rank:2", "rank:5"]),
        ("srun: error: n0: tasks 0-63: Killed\n", ["host"]),
        # What srun itself ends after the first failure tells nothing.
        (CRASHED, ["rank:4"]),
        (FAILED, ["rank:4"]),
        (CANCELLED + BOTH_NODES, ["rank:1", "rank:2", "rank:5"]),  # another step
    ],
)
def test_srun_tells_of_several_tasks_in_one_line(text: str, subjects: list[str]) -> None:
    told = report(text)
    assert sorted(f.subject for r in told.results for f in r.findings if f.slug == "peer-died") == subjects
    assert told.exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: n1: tasks 3-4: Exited with exit code 1\n",
        "srun: error: n1: tasks 3-4: Terminated\n",
        "srun: error: n1: tasks 3-4: Exited with exit code 143\n",
        CANCELLED,
        "srun: error: n1: tasks x: Killed\n",
        "srun: error: n1: tasks 3-4: Killed by nobody\n",
    ],
)
def test_what_srun_says_besides_is_no_death(text: str) -> None:
    told = report(text)
    assert not found(told, "peer-died") and told.exit_code == 3  # nothing that could be judged


def test_many_tasks_are_told_at_once() -> None:
    (finding,) = found(report("srun: error: n[0-7]: tasks 0-62,64: Killed\n"), "peer-died").values()
    assert "The processes of ranks 0-62,64 on n[0-7] were killed by SIGKILL" in finding.message


def test_a_task_that_nccl_has_elsewhere_is_no_rank() -> None:
    """srun starts torchrun once a node: task 1 is the second node's launcher, and not rank 1, which is on the first."""
    job = log({"node07": P2P})
    (finding,) = found(report(job + "srun: error: node08: task 1: Killed\n"), "peer-died").values()
    assert finding.subject == "host" and "The process of task 1 on node08 was killed by SIGKILL" in finding.message
    (finding,) = found(report(job + "srun: error: node07: task 1: Killed\n"), "peer-died").values()
    assert finding.subject == "rank:1"


def test_an_exit_code_that_may_go_on_is_not_read() -> None:
    whole = "srun: error: n1: tasks 3-4: Exited with exit code 137\n"
    for end in range(len(whole)):
        assert not found(report(whole[:end]), "peer-died"), end
