"""A part of the matrix: every fault once, each command and each kind of program among them. `make faults` runs all of it.

The runs mostly wait, so they go side by side, once for all tests; each test then judges one of them.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults import matrix, system
from tests.faults.cells import BY_COMMAND, COMMANDS, Cell, may_have
from tests.faults.judge import wrong
from tests.faults.stage import BENCH
from tests.faults.table import BY_ID, FAULTS
from tests.support import ROOT

LOOKS = tuple(k.id for k in COMMANDS if k.looks)
# Of each fault one cell with the driver, and one with another program; the commands take turns.
OTHERS = ("smi-q-x", "nvml", "dmesg", "pci", "smi-topo-m", "lspci", "system", "fabricmanager")
CELLS = tuple(
    cell
    for number, fault in enumerate(FAULTS)
    for cell in (
        Cell(fault.id, ("the driver", "nvidia-smi")[number % 2], LOOKS[number % len(LOOKS)]),
        Cell(fault.id, OTHERS[number % len(OTHERS)], "check"),
    )
    if may_have(cell.program, fault)
) + tuple(Cell(fault, BENCH, "bandwidth") for fault in ("stays:setsid", "nul", "flood-stderr", "signal:11", "hang:setsid"))
SYSTEM = tuple(f for f in system.faults(3) if "MiB" not in f.id or "64" in f.id)
SYSTEM_COMMANDS = ("check", "check, nagios", "gate", "capture", "bandwidth")
RAS = ("absent", "closes", "endless line", "half", "flood")


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Future[matrix.Done]]]:
    mine = {cell.name for cell in CELLS} | {f"{f} | RAS | check --ras" for f in RAS}
    pool = ThreadPoolExecutor(4 * (os.cpu_count() or 1))
    out = {name: pool.submit(job) for name, job in matrix.jobs(True) if name in mine}
    for number, sick in enumerate(SYSTEM):
        command = BY_COMMAND[SYSTEM_COMMANDS[number % len(SYSTEM_COMMANDS)]]
        out[sick.id] = pool.submit(matrix._system, sick, command, sick.id)
    yield out
    pool.shutdown(cancel_futures=True)  # a thread that stays would keep later tests from starting processes


@pytest.mark.parametrize("name", [*(cell.name for cell in CELLS), *(f"{f} | RAS | check --ras" for f in RAS), *(s.id for s in SYSTEM)])
def test_every_promise_is_kept(name: str, runs: dict[str, Future[matrix.Done]]) -> None:
    done = runs[name].result()
    if done.ended is None:
        pytest.skip(done.bad[0])
    assert done.bad == (), (done.ended.err[-500:], done.ended.out[-300:])


def test_a_broken_promise_is_seen() -> None:
    """The judge itself: each promise, broken."""
    from tests.faults.run import Ended

    cell = Cell("exit:9", "the driver", "check")
    sound = b'{"exit_code": 3, "verdict": "unknown", "facts": {}, "results": [], "missing": []}'
    for ended, word in (
        (Ended(None, b"", b"", 99, (), ()), "hang"),
        (Ended(3, sound, b"", 1, ("sleep 600",), ()), "left behind"),
        (Ended(3, sound, b"", 1, (), ("tmpx",)), "temporary files"),
        (Ended(3, sound, b"Traceback (most recent call last)\nValueError", 1, (), ()), "traceback"),
        (Ended(3, sound + b"\x1b[31m", b"", 1, (), ()), "control character"),
        (Ended(3, b"", b"", 1, (), ()), "no JSON"),
        (Ended(0, sound.replace(b"3", b"0").replace(b"unknown", b"pass"), b"", 1, (), ()), "false pass"),
        (Ended(3, sound, b"", 1, (), ()), "not said that 'exit status 9'"),
    ):
        assert any(word in said for said in wrong(cell, ended)), word


def test_every_fault_is_in_the_part_that_always_runs() -> None:
    assert {cell.fault for cell in CELLS} == set(BY_ID)
    assert {cell.command for cell in CELLS} >= set(LOOKS)


def test_only_the_monotonic_clock_decides_over_deadlines() -> None:
    """A clock that jumps may change a date in a report and nothing else."""
    found = []
    for path in (ROOT / "gpudoctor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "time.time":
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
