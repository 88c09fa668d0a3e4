"""`python -m tests.faults.matrix`: run the cells side by side, print the matrix and its totals.

    --only WORDS   cells whose name holds all of these words (separated by commas)
    --all          every program with every command, and 60 instants of each signal
    --save FILE    write the page there too
    --jobs N       at once (default: 4 a processor; most of a hang is waiting)
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import NamedTuple

import gpudoctor
from tests.faults import cells as c
from tests.faults import judge, ras, system
from tests.faults.run import Ended, run
from tests.faults.stage import Stage, bare
from tests.faults.table import FAULTS

RAS = c.Command("check --ras", ("check", "--format", "json"), "json")
RAS_S = 6.0
COLUMNS = (*c.COMMANDS, RAS)
PAGE = """# What sick tools and a sick system do to gpudoctor

Made by `make faults` on {day} with gpudoctor {version}: real processes on {cpus} processors, with played tools that answer as
one host with two H200. Do not edit it by hand.

A cell is one fault met by one command, in as many runs as it has programs to be sick: how many runs, the exit statuses seen,
the longest run in seconds (of a command whose `--timeout` was {short:g} s (`bandwidth`: {bench:g} s) where something hangs, {long:g} s elsewhere; beyond
it each command may take {grace:g} s). `✗` marks a run that broke a promise: it hung, left a process or a temporary file
behind, printed a traceback or a control character, gave no JSON where JSON was asked, ended with a status that the evidence
does not bear (0 above all), or did not name the program that failed and why. An empty cell: the command does not meet it.

**{cells} runs: {bad} broke a promise; {hangs} hung, {passes} false passes, {traces} tracebacks, {left} left something behind,
{alarms} false alarms, {slow} took longer than `--timeout` and {grace:g} s, {skipped} could not be made on this machine.**
"""
LIMITS = """
## What is out of reach

- Between the start of the interpreter and the first line of gpudoctor (tens of milliseconds, more on a busy machine) a signal
  meets Python alone: Ctrl-C may print Python's own words there, and the status is Python's (1, or death by the signal).
  Nothing has been started by then.
- A probe's descendants are ended even where they left its process group, by way of the kernel's child subreaper. Not those of
  another user (setuid programs that become somebody else), nor one inside a system call that cannot be interrupted, which is
  given up and named. In a program that embeds gpudoctor and has threads of its own only the process group is ended.
- SIGKILL of gpudoctor itself: what `bandwidth` measures with dies with it; the probes of a look end by themselves, or hang on.
- Memory cgroups are played by a limit of the address space; a jump of the clock is covered by a test that only the monotonic
  clock decides over deadlines.
- gpudoctor runs no `ibstat`, `rdma`, `lscpu`, `numactl`, `df`, `lsmod` or `journalctl`: it reads their saved outputs. The
  files under /proc and /sys that stand for them are read by child programs, which are among the programs here.
- Not played yet: a tool that lists fewer GPUs than NVML, a PyTorch worker that fails after it has started (the tests of
  `bandwidth` do that), the zstd program that reads a compressed `--from`, and every single cut of a table (three are).
"""


class Done(NamedTuple):
    """One run. `ended` None: it cannot be made here, `bad` says why."""

    table: str
    row: str
    command: str
    name: str
    limit_s: float
    ended: Ended | None
    bad: tuple[str, ...]


Job = tuple[str, Callable[[], Done]]


def jobs(everything: bool) -> Iterator[Job]:
    words = {fault.id: fault.words for fault in FAULTS}
    for cell in c.cells(everything):
        yield cell.name, lambda cell=cell: _program(cell, words[cell.fault])  # type: ignore[misc]
    for fault in ras.FAULTS:
        yield f"{fault} | RAS | check --ras", lambda fault=fault: _ras(fault)  # type: ignore[misc]
    for sick in system.faults(60 if everything else 8):
        for command in c.COMMANDS:
            if command.id == "bandwidth, torch" or (sick.during is not None and command.id not in SIGNALLED):
                continue
            name = f"{sick.id} | the system | {command.id}"
            yield name, lambda sick=sick, command=command, name=name: _system(sick, command, name)  # type: ignore[misc]


SIGNALLED = ("check", "check, text", "gate", "capture", "bandwidth")


def _program(cell: c.Cell, row: str) -> Done:
    ended = c.look(cell)
    return Done("programs", row, cell.command, cell.name, c.limit_of(cell), ended, tuple(judge.wrong(cell, ended)))


def _system(sick: system.System, command: c.Command, name: str) -> Done:
    row = sick.id.split(" after ")[0] + (" at random instants of the first second" if " after " in sick.id else "")
    if sick.why_not:
        return Done("system", row, command.id, name, c.LONG_S, None, (sick.why_not,))
    ended = system.look(sick, command)
    return Done("system", row, command.id, name, c.LONG_S, ended, tuple(system.wrong(sick, command, ended)))


def _ras(fault: str) -> Done:
    ended = ask(fault)
    bad = [*judge.manners(ended)]
    if ended.status != 3:
        bad.append(f"{'false pass' if ended.status == 0 else 'status'}: {ended.status}, not 3")
    elif b"RAS service at" not in ended.out:
        bad.append("not said that the RAS service gave nothing")
    return Done("ras", ras.FAULTS[fault], RAS.id, f"{fault} | RAS | check --ras", RAS_S, ended, tuple(bad))


def ask(fault: str) -> Ended:
    """`check --ras` of a sick service."""
    place = Path(tempfile.mkdtemp(prefix="fault-"))
    try:
        stage = Stage(place)
        with ras.service(fault) as where:
            return run((*RAS.words, "--ras", where, "--timeout", f"{RAS_S:g}"), bare(stage.env()), RAS_S, tmp=stage.tmp)
    finally:
        shutil.rmtree(place, ignore_errors=True)


GRACE_S = 2.0  # two graces of the runner, and the report


def tables(done: list[Done]) -> str:
    out = []
    for table, title in (("programs", "Sick programs"), ("ras", "A sick RAS service"), ("system", "A sick system")):
        mine = [d for d in done if d.table == table]
        columns = [k.id for k in COLUMNS if any(d.command == k.id for d in mine)]
        if not mine:
            continue
        out += [f"\n## {title}\n", "| fault | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for row in dict.fromkeys(d.row for d in mine):
            out.append(f"| {row} | " + " | ".join(_cell([d for d in mine if d.row == row and d.command == k]) for k in columns) + " |")
    return "\n".join(out) + "\n"


def _cell(done: list[Done]) -> str:
    made = [d for d in done if d.ended is not None]
    if not done:
        return ""
    if not made:
        return f"– ({done[0].bad[0]})"
    bad = sum(1 for d in made if d.bad)
    seen = sorted({d.ended.status for d in made if d.ended is not None and d.ended.status is not None})
    most = max(d.ended.seconds for d in made if d.ended is not None)
    return f"{f'✗ {bad} of ' if bad else '✓ '}{len(made)}: {' '.join(map(str, seen))}, {most:.1f} s"


def page(done: list[Done]) -> str:
    made = [d for d in done if d.ended is not None]

    def counted(*words: str) -> int:
        return sum(1 for d in made if any(b.startswith(words) for b in d.bad))

    head = PAGE.format(
        day=date.today().isoformat(),
        version=gpudoctor.__version__,
        cpus=os.cpu_count(),
        short=c.SHORT_S,
        bench=c.BENCH_S,
        long=c.LONG_S,
        grace=GRACE_S,
        cells=len(made),
        bad=sum(1 for d in made if d.bad),
        hangs=counted("hang"),
        passes=counted("false pass"),
        traces=counted("traceback"),
        left=counted("left", "temporary"),
        alarms=counted("false alarm"),
        slow=sum(1 for d in made if d.ended is not None and d.ended.seconds > d.limit_s + GRACE_S),
        skipped=len(done) - len(made),
    )
    return head + tables(done) + LIMITS


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--only", default="")
    words.add_argument("--all", action="store_true")
    words.add_argument("--save")
    words.add_argument("--jobs", type=int, default=4 * (os.cpu_count() or 1))
    asked = words.parse_args()
    wanted = [job for name, job in jobs(asked.all) if all(w in name for w in asked.only.split(","))]
    began = time.monotonic()

    def one(job: Callable[[], Done]) -> Done:
        done = job()
        if done.bad and done.ended is not None:
            print(f"{done.name}: {'; '.join(done.bad)}", file=sys.stderr, flush=True)
        return done

    with ThreadPoolExecutor(asked.jobs) as pool:
        done = list(pool.map(one, wanted))
    text = page(done)
    print(text)
    print(f"{len(done)} runs in {time.monotonic() - began:.0f} s", file=sys.stderr)
    if asked.save:
        Path(asked.save).write_text(text, encoding="utf-8")
    return 1 if any(d.bad for d in done if d.ended is not None) else 0


if __name__ == "__main__":
    sys.exit(main())
