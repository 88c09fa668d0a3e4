"""What a report of a hang or a dead rank asks for: what the job alone can tell comes first, and only what applies."""

from __future__ import annotations

import pytest

from gpudoctor.model import Report
from gpudoctor.report.not_read import requests
from tests.support import FIXTURES
from tests.unit.test_ends_unexplained import begun
from tests.unit.test_homes import P2P, log, report

KILLED = (FIXTURES / "outputs" / "job-log" / "killed-over-sockets.log").read_text().splitlines(keepends=True)
TIMED_OUT = (
    "[rank0]:[E1129 18:35:17.74 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=15000) ran for 15057 milliseconds before timing out.\n"
)
HEARD = (
    "[rank1]:[E1129 18:35:22.11 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective timeout from "
    " rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: 1, last completed NCCL work: 1.\n"
)


def asks(told: Report) -> list[str]:
    return requests([m for m in told.missing if m.pressing])


def test_a_dead_rank_whose_log_is_not_there() -> None:
    told = asks(report("".join(line for line in KILLED if line.startswith("[rank0]"))))
    assert told[0].startswith("the log of rank 1,") and told[1].startswith("sudo dmesg -T ") and len(told) == 2


def test_a_dead_rank_whose_log_is_there() -> None:
    (told,) = asks(report("".join(KILLED)))
    assert told == "sudo dmesg -T     (on vm, where it ran)"


def test_what_settles_it_stands_before_the_hosts_outputs() -> None:
    said = requests(list(report("".join(KILLED)).missing))
    assert said[0].startswith("sudo dmesg -T ") and "sudo dmesg -T" not in said[1:] and "nvidia-smi -q -x" in said


def test_a_hang() -> None:
    told = asks(report(log({"vm": P2P}) + TIMED_OUT + HEARD))
    assert [next(w for w in ("flight recorder", "--ras", "py-spy") if w in t) for t in told] == ["flight recorder", "--ras", "py-spy"]
    assert "/tmp/nccl_trace_rank_*" in told[0] and "rank 1" in told[2]


@pytest.mark.parametrize(
    ("version", "name"), [("2.5.1", "TORCH_NCCL_TRACE_BUFFER_SIZE=2000"), ("2.11.0", "TORCH_FR_BUFFER_SIZE=2000"), (None, "TORCH_NCCL_TRACE_BUFFER_SIZE=2000")]
)
def test_the_recorder_is_switched_on_by_the_name_that_this_release_knows(version: str | None, name: str) -> None:
    env = f"Collecting environment information...\nPyTorch version: {version}\nIs debug build: False\nCUDA used to build PyTorch: 12.8\n\n" if version else ""
    (told,) = [t for t in asks(report(env + TIMED_OUT)) if "recorder" in t]
    assert name in told


def test_nccl_without_the_service_is_not_asked_for_it() -> None:
    old = log({"vm": P2P}).replace("2.28.9", "2.21.5") + TIMED_OUT + HEARD
    off = log({"vm": P2P}, env={"NCCL_RAS_ENABLE": "0"}) + TIMED_OUT + HEARD
    assert not any("--ras" in t for text in (old, off) for t in asks(report(text)))


def test_a_start_that_waits_for_a_rank() -> None:
    told = asks(report(begun(range(7), 8)))
    assert told[0].startswith("the log of rank 7,") and "--ras" in told[1] and len(told) == 2


def test_two_dead_of_many_and_one_log() -> None:
    lost = "node07:100:300 [0] misc/socket.cc:47 NCCL WARN socketProgressOpt: Call to recv from 10.0.0.1<4> failed : Connection reset by peer\n"
    text = "".join(line + "\n" for line in log({"node07": P2P}).splitlines() if ":100:" in line) + lost
    assert asks(report(text))[0].startswith("the logs of ranks 1-3, from the start")


@pytest.mark.parametrize("text", [log({"node07": P2P}), begun(range(8), 8)], ids=["a run", "a start"])
def test_nothing_is_asked_for_where_nothing_hangs(text: str) -> None:
    assert not asks(report(text))
