"""What a report says of a dead or late rank whose log is in the input: where it ends, and what stands there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpudoctor.discover import load
from gpudoctor.ingest import take
from gpudoctor.judge import judge
from gpudoctor.model import Diagnosis, Report
from gpudoctor.parsers.log_end import parse
from gpudoctor.read.section import Section
from gpudoctor.read.source import open_all
from tests.support import FIXTURES, ROOT

KILLED = (FIXTURES / "outputs" / "job-log" / "killed-over-sockets.log").read_text().splitlines(keepends=True)
TIMED_OUT = ROOT / "fixtures" / "outputs" / "torch-watchdog"


def judged(*paths: Path) -> Report:
    return judge(take((), open_all([str(p) for p in paths])), load(), {"kind": "recorded", "paths": [str(p) for p in paths]})


def first(*paths: Path) -> Diagnosis:
    return judged(*paths).diagnoses[0]


def of_rank(rank: int) -> str:
    """One rank's own file: its lines without torchrun's mark."""
    mark = f"[rank{rank}]:"
    return "".join(line.removeprefix(mark) for line in KILLED if line.startswith(mark))


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    for rank in (0, 1):
        (tmp_path / f"r{rank}.log").write_text(of_rank(rank))
    return tmp_path / "r0.log", tmp_path / "r1.log"


def test_the_dead_ranks_log_in_one_file_with_the_others(tmp_path: Path) -> None:
    job = tmp_path / "job.log"
    job.write_text("".join(KILLED))
    finding = first(job).finding
    assert (finding.slug, finding.subject) == ("peer-died", "rank:1")
    assert f"{job}:{len(KILLED)} `[rank1]:vm:" in finding.message and "it just stops" in finding.message and "look at its log" not in finding.message
    assert (str(job), f"line {len(KILLED)}") in {(e.source, e.where) for e in finding.evidence}


def test_its_own_file_ends_with_a_line_of_the_program(logs: tuple[Path, Path]) -> None:
    logs[1].write_text(logs[1].read_text() + "epoch 3 begins\n")
    said = first(*logs).finding.message
    assert f"{logs[1]}:{len(of_rank(1).splitlines()) + 1} `epoch 3 begins`" in said and "it just stops" in said


def test_an_error_above_the_end_is_what_is_shown(logs: tuple[Path, Path]) -> None:
    trace = "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\nValueError: too many values\n"
    logs[1].write_text(logs[1].read_text() + trace + "cleaning up\n")
    finding = first(*logs).finding
    assert "`ValueError: too many values`" in finding.message and "just stops" not in finding.message
    assert "Mend the error" in finding.remediation[0].step


def test_a_rank_that_left_in_order(logs: tuple[Path, Path]) -> None:
    left = "vm:3593:3593 [1] NCCL INFO comm 0xe2f0020 rank 1 nranks 2 cudaDev 1 busId 70 - Destroy COMPLETE\n"
    logs[1].write_text(logs[1].read_text() + left)
    finding = first(*logs).finding
    assert "ends in order" in finding.message and not any("dmesg" in (s.command or "") for s in finding.remediation)


def test_a_log_that_is_not_there_is_asked_for(logs: tuple[Path, Path]) -> None:
    finding = first(logs[0]).finding
    assert finding.subject == "rank:1" and "look at its log" in finding.message and "just stops" not in finding.message


def test_lines_keep_their_numbers_where_only_the_end_of_a_log_is_kept(tmp_path: Path) -> None:
    job = tmp_path / "job.log"
    noise = "".join(f"step {n} of many, loss 0.12345\n" for n in range(40_000))
    job.write_text(noise + "".join(KILLED))
    assert f"{job}:{40_000 + len(KILLED)} `[rank1]:vm:" in first(job).finding.message


def test_an_end_too_far_above_is_not_guessed(tmp_path: Path) -> None:
    job = tmp_path / "job.log"
    job.write_text("".join(KILLED) + "".join(f"step {n} of many, loss 0.12345\n" for n in range(40_000)))
    said = first(job).finding.message
    assert "look at its log" in said and "just stops" not in said


def test_a_command_for_the_stack_names_no_process_of_a_run_that_is_over(tmp_path: Path) -> None:
    late = (
        "[rank0]:[E1129 18:35:17.74 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
        "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=15000) ran for 15057 milliseconds before timing out.\n"
        "[rank1]:[E1129 18:35:22.11 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective timeout from "
        " rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: 1, last completed NCCL work: 1.\n"
    )
    job = tmp_path / "job.log"
    job.write_text("".join(KILLED[:40]) + of_rank(1) + "loading shard 7\n" + late)
    finding = first(job).finding
    commands = " ".join(s.command or "" for s in finding.remediation)
    assert finding.subject == "rank:1" and "sudo grep -lzx RANK=1 " in commands and "3593" not in commands
    assert "Its last line before the time-out is" in finding.message and "just stops" not in finding.message


def test_the_command_finds_the_process_by_its_rank(tmp_path: Path) -> None:
    """As printed, with a py-spy of a virtual environment that says how it was called, and but for sudo, which would not look there: the processes of another user, as a container's root, show their
    environment to nobody else."""
    from gpudoctor.checkers.job_stacks import of_process, of_rank

    venv = tmp_path / "bin"
    venv.mkdir()
    (venv / "py-spy").write_text('#!/bin/sh\necho "$0" "$@"\n')
    (venv / "py-spy").chmod(0o755)
    child = subprocess.Popen(["sleep", "30"], env={"RANK": "900713", "PATH": "/usr/bin:/bin"})
    try:
        for step in (of_rank(900713, False), of_process(child.pid, "rank 0", None)):
            command = (step.command or "").replace("sudo ", "")
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20, env={**os.environ, "PATH": f"{venv}:{os.environ['PATH']}"})
            assert done.stdout.split() == [str(venv / "py-spy"), "dump", "--pid", str(child.pid)]
    finally:
        child.kill()
        child.wait()


def test_ranks_that_python_started_are_found_by_their_gpu() -> None:
    from gpudoctor.checkers.job_stacks import of_rank
    from gpudoctor.facts.hang import Frame
    from gpudoctor.facts.nccl import NcclRank

    seat = NcclRank(rank=1, nranks=2, bus_id="70")
    spawned = of_rank(1, True, "vm", seat, (Frame("_wrap", "/venv/torch/multiprocessing/spawn.py", 87),))
    assert "nvidia-smi -i 0000:00:07.0" in (spawned.command or "")
    assert "RANK=1" in (of_rank(1, True, "vm", seat, (Frame("main", "/work/train.py", 8),)).command or "")


def test_a_word_of_the_shell_is_no_error_to_mend(logs: tuple[Path, Path]) -> None:
    logs[1].write_text(logs[1].read_text() + "Killed\n")
    finding = first(*logs).finding
    assert "ended from outside" in finding.message and "`Killed`" in finding.message
    assert "dmesg" in (finding.remediation[0].command or "") and "Mend" not in finding.remediation[0].step


def test_what_killed_the_rank_stands_before_what_slowed_it(logs: tuple[Path, Path], tmp_path: Path) -> None:
    kernel = tmp_path / "dmesg.txt"
    kernel.write_text("[Sun Nov 29 21:18:43 2026] NVRM: Xid (PCI:0000:00:07): 79, pid=3593, name=python, GPU has fallen off the bus.\n")
    found = judged(*logs, kernel).diagnoses
    assert found[0].finding.slug == "xid" and "peer-died" in {f.slug for f in found[0].explains}
    assert "p2p-disabled-env" in {d.finding.slug for d in found[1:]}


def test_a_log_of_a_known_rank_is_asked_for_by_its_number(logs: tuple[Path, Path]) -> None:
    assert "the log of rank 1, which is not in the input" in first(logs[0]).finding.remediation[0].step


OOM = "[Sun Nov 29 21:18:43 2026] {how}Killed process {pid} (python){uid} total-vm:41240504kB, anon-rss:40000000kB, file-rss:0kB, shmem-rss:0kB\n"


@pytest.mark.parametrize(("how", "uid"), [("Out of memory: ", ""), ("Memory cgroup out of memory: ", ", UID 1000,"), ("", "")])
def test_the_kernels_word_on_the_dead_rank(logs: tuple[Path, Path], tmp_path: Path, how: str, uid: str) -> None:
    kernel = tmp_path / "dmesg.txt"
    kernel.write_text(OOM.format(how=how, uid=uid, pid=3593))
    finding = first(*logs, kernel).finding
    assert finding.subject == "rank:1" and f"for want of memory: {kernel}, line 1" in finding.message
    assert str(kernel) in {e.source for e in finding.evidence} and "memory.max" in (finding.remediation[0].command or "")


def test_a_kill_of_another_process_is_not_the_ranks(logs: tuple[Path, Path], tmp_path: Path) -> None:
    kernel = tmp_path / "dmesg.txt"
    kernel.write_text(OOM.format(how="Out of memory: ", uid="", pid=359))
    finding = first(*logs, kernel).finding
    assert "for want of memory" not in finding.message and "dmesg" in (finding.remediation[0].command or "")


def test_a_kill_alone_is_neither_a_fault_nor_a_pass(tmp_path: Path) -> None:
    kernel = tmp_path / "dmesg.txt"
    kernel.write_text(OOM.format(how="Out of memory: ", uid="", pid=359))
    told = judged(kernel)
    assert told.exit_code == 3 and not told.diagnoses and any("process 359 (python)" in m.reason for m in told.missing)
    sound = judged(kernel, FIXTURES / "hosts" / "h200x2-vm")
    assert sound.exit_code == 0
    kernel.write_text(OOM.format(how="Out of memory: ", uid="", pid=359)[:60])  # cut within the number or the name
    assert judged(kernel).exit_code == 3


def test_two_of_which_one_went_first(tmp_path: Path) -> None:
    from tests.unit.test_homes import P2P, log

    text = log({"node07": P2P})
    lost = "".join(f"node07:{100 + r}:{300 + r} [{r}] misc/socket.cc:47 NCCL WARN socketProgressOpt: Call to recv from 10.0.0.1<4> failed : Connection reset by peer\n" for r in (0, 3))
    job = tmp_path / "job.log"
    job.write_text(text + lost)
    finding = first(job).finding
    assert finding.subject == "host" and "Ranks 1, 2 have no complaint of their own" in finding.message
    job.write_text("".join(line + "\n" for line in text.splitlines() if ":101:" not in line) + lost)
    assert "no complaint of their own" not in first(job).finding.message  # the other one's log is not there


def table(code: int, said: str) -> str:
    """torchrun's, of rank 1."""
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + "=" * 60 + "\ntrain.py FAILED\n" + "-" * 60 + "\nFailures:\n  <NO_OTHER_FAILURES>\n"
        + "-" * 60 + "\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-11-29_21:18:50\n  host      : vm\n  rank      : 1 (local_rank: 1)\n"
        f"  exitcode  : {code} (pid: 3593)\n  error_file: <N/A>\n  traceback : {said}\n" + "=" * 60 + "\n"
    )  # fmt: skip


def test_a_launchers_word_and_the_others_are_one_death(tmp_path: Path) -> None:
    job, kernel = tmp_path / "job.log", tmp_path / "dmesg.txt"
    job.write_text("".join(KILLED) + table(-9, "Signal 9 (SIGKILL) received by PID 3593"))
    found = [d for d in judged(job).diagnoses if d.finding.slug == "peer-died"]
    assert len(found) == 1 and "SIGKILL" in found[0].finding.message and "peer-died" in {f.slug for f in found[0].explains}
    assert f"{job}:{len(KILLED)} `[rank1]" in found[0].finding.message  # not the launcher's own lines below
    kernel.write_text(OOM.format(how="Out of memory: ", uid="", pid=3593))
    told = first(job, kernel).finding
    assert "for want of memory" in told.message and "memory.max" in (told.remediation[0].command or "")


def test_a_rank_that_ended_by_itself_was_not_killed(tmp_path: Path) -> None:
    job = tmp_path / "job.log"
    job.write_text("".join(KILLED) + table(1, "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"))
    finding = first(job).finding
    assert finding.subject == "rank:1" and "exit status 1" in finding.message and not any("dmesg" in (s.command or "") for s in finding.remediation)
    job.write_text("".join(KILLED) + table(137, "-"))
    assert "not killed" not in first(job).finding.message


def test_the_end_of_a_log_that_is_blank_lines_takes_no_room() -> None:
    section = Section(kind="log-end", source="job.log", lines=(), content=b"cut\nrank 0 stops here\n" + b"\n" * 4000 + b"a\n" * 4000, read=9000)
    (ends,) = parse(section)
    assert len(ends.ends[0].lines) == 2048 and ends.ends[0].lines[-1] == (9000, "a")
    (ends,) = parse(Section(kind="log-end", source="job.log", lines=(), content=b"cut\nrank 0 stops here\n" + b"\n" * 4000, read=9000))
    assert ends.ends[0].lines == ((5000, "rank 0 stops here"),)


TWO_HOSTS = "".join(
    f"{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0xa{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xa - Init {word}\n"
    for rank, (host, pid) in enumerate((("node07", 101), ("node08", 201)))
    for word in ("START", "COMPLETE")
) + "node07:101:111 [0] misc/socket.cc:47 NCCL WARN socketProgressOpt: Call to recv from 10.0.0.2<41000> failed : Connection reset by peer\n"  # fmt: skip
KILL = "Memory cgroup out of memory: Killed process 201 (python3) total-vm:1kB, anon-rss:1kB\n"


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("Nov 29 12:00:00 node08 kernel: " + KILL, "for want of memory: "),
        ("2026-11-29T12:00:00.123456+00:00 node08.example.org kernel: " + KILL, "for want of memory: "),
        ("root@node08:~# dmesg\n[ 12.5] " + KILL, "for want of memory: "),
        ("[ 12.5] " + KILL, "That log does not name its host; rank 1 ran on node08."),
        ("Nov 29 12:00:00 host-ab12cd kernel: " + KILL, "for want of memory: "),  # a stand-in may be any host
        ("Nov 29 12:00:00 node07 kernel: " + KILL, None),
        ("root@node07:~# dmesg\n[ 12.5] " + KILL, None),
        ("root@node07:~# dmesg\n[ 12.5] " + KILL + "root@node08:~# dmesg\n[ 12.5] " + KILL.replace("201", "77"), None),
        ("root@node07:~# dmesg\n[ 12.5] " + KILL.replace("201", "77") + "root@node08:~# dmesg\n[ 12.5] " + KILL, "for want of memory: "),
    ],
)
def test_a_process_number_is_one_process_on_one_host_only(tmp_path: Path, kernel: str, said: str | None) -> None:
    job, log = tmp_path / "job.log", tmp_path / "dmesg.txt"
    job.write_text(TWO_HOSTS)
    log.write_text(kernel)
    finding = first(job, log).finding
    assert finding.subject == "rank:1"
    assert said in finding.message if said is not None else "for want of memory" not in finding.message
