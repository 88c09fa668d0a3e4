"""Cells of the matrix: a fault of a program met by a command, on a stage of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults.run import WELL, Ended, run
from tests.faults.stage import BENCH, CHILDREN, GROUPS, SMI, TORCH, Stage, bare
from tests.faults.table import BY_ID, FAULTS, Fault

LONG_S = 30.0  # --timeout where nothing hangs: never what decides
SHORT_S = 3.0  # where something hangs
BENCH_S = 8.0  # the look at the host, and a program that hangs for 3 s
BENCH_WORDS = ("--gpus", "2", "--no-host-copies", "--no-bisect", "--force", "--sizes", "64M,256M,1G", "--hang-after", "3")


class Command(NamedTuple):
    """One way to call gpudoctor. `{bin}`, `{folder}`: of the stage."""

    id: str
    words: tuple[str, ...]
    form: str  # of its standard output: json, text, line
    looks: bool = True  # judges the host itself


COMMANDS = (
    Command("check", ("check", "--format", "json"), "json"),
    Command("check, text", ("check", "-v"), "text"),
    Command("check -q", ("check", "-q"), "line"),
    Command("check, nagios", ("check", "--format", "nagios"), "line"),
    Command("check --job", ("check", "--job", "--format", "json"), "json"),
    Command("gate", ("gate", "--format", "json"), "json"),
    Command("facts", ("facts", "--format", "json"), "json"),
    Command("capture", ("capture", "-o", "{folder}/snapshot"), "text"),
    Command("bandwidth", ("bandwidth", "--engine", "nccl-tests", "--python", "/bin/false", *BENCH_WORDS, "--format", "json"), "json", False),
    Command("bandwidth, torch", ("bandwidth", "--engine", "torch", "--python", "{bin}/python3", *BENCH_WORDS, "--format", "json"), "json", False),
)
BY_COMMAND = {command.id: command for command in COMMANDS}
OPTIONAL = ("nvml", "pci", "system", "lspci", "dmesg", "fabricmanager")
PROBES = (*GROUPS, *SMI, *OPTIONAL)
# Which programs a command meets in the matrix: `check` all of them, the others one of each kind.
SOME = ("nvidia-smi", "the driver", "smi-q-x", "nvml", "dmesg")


class Cell(NamedTuple):
    """`prepare`, `during`, …: see run()."""

    fault: str
    program: str
    command: str

    @property
    def name(self) -> str:
        return f"{self.fault} | {self.program} | {self.command}"

    @property
    def sick(self) -> Fault | None:
        return BY_ID.get(self.fault)


def cells(everything: bool = False) -> Iterator[Cell]:
    """The matrix, row by row."""
    for fault in FAULTS:
        for command in COMMANDS:
            for program in programs(command, everything):
                if may_have(program, fault):
                    yield Cell(fault.id, program, command.id)


def programs(command: Command, everything: bool) -> tuple[str, ...]:
    if command.id == "bandwidth":
        return (BENCH, "the driver", "dmesg")
    if command.id == "bandwidth, torch":
        return (TORCH,)
    if command.id == "check --job":
        return (*SOME, "job")
    return PROBES if everything or command.id == "check" else SOME


def may_have(program: str, fault: Fault) -> bool:
    """A fault of the file concerns the file: one invocation of nvidia-smi has none of its own, and an interpreter runs."""
    return not fault.whole or program not in (*SMI, *CHILDREN)


def limit_of(cell: Cell) -> float:
    """--timeout of a cell."""
    if cell.sick is None or not cell.sick.hangs:
        return LONG_S
    return BENCH_S if BY_COMMAND[cell.command].id.startswith("bandwidth") else SHORT_S


def look(
    cell: Cell,
    stage: Callable[[Path], Stage] | None = None,
    program: tuple[str, ...] = WELL,
    folder: Path | None = None,
) -> Ended:
    """Run one cell."""
    place = Path(tempfile.mkdtemp(prefix="fault-", dir=folder))
    try:
        made = stage(place) if stage is not None else Stage(place, cell.program, cell.fault)
        limit = limit_of(cell)
        words = [w.format(bin=made.bin, folder=place) for w in BY_COMMAND[cell.command].words]
        return run((*words, "--timeout", f"{limit:g}"), bare(made.env()), limit, program, tmp=made.tmp)
    finally:
        shutil.rmtree(place, ignore_errors=True)
