"""Output of nccl-tests (`all_reduce_perf` and its siblings) to Bandwidth: one entry per program run.

Its command lines go to Launches, for the settings in them.

The lines come from anywhere in a file, since NCCL's own log runs through the table. Every line has a stage (banner,
parameters, devices, header, rows, footer, end); a line of an earlier stage than the one before begins the next run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor import bdf
from gpudoctor.facts.bandwidth import COLLECTIVES, TWICE, Bandwidth, BandwidthRow, BandwidthRun, Failure, Member
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.hang import Watchdog
from gpudoctor.model import Evidence
from gpudoctor.parsers import launch
from gpudoctor.parsers.nccl_row import ROW, Layout, header, ranks, read
from gpudoctor.parsers.torch_blame import deaths_by_launcher
from gpudoctor.read.section import Line, Section
from gpudoctor.record import replace

_VERSION = re.compile(r"#\s*nccl-tests version (\S+)(?: \(\w+\))? nccl-headers=\d+ nccl-library=(\d+)\s")
_STARTING = re.compile(r"#\s*Collective test starting:\s*(\w+)")
_CONCLUDED = re.compile(r"#\s*Collective test concluded:\s*(\w+)")
_COMMAND = re.compile(rf"(?:^|[\s/])(({'|'.join(sorted(COLLECTIVES, key=len, reverse=True))})_perf)(?:_mpi)?(?=\s)")
# A page that takes `#` for a heading loses it.
_PARAMETERS = re.compile(r"(?:#|^)\s*nThread\s+\d+\s.*?minBytes\s+(\d+)\s+maxBytes\s+(\d+)\s(?:.*?validation:\s*(\d+)\s)?")
_DEVICES = re.compile(r"#\s*Using devices\b|^\s*Using devices\s*$")
_DEVICE = re.compile(
    r"(?:#|^)\s*Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+(?P<device>\d+)\s+"
    r"\[(?:0x(?P<bus>[0-9a-fA-F]{1,2})|(?P<bdf>[0-9a-fA-F:.]+))\](?:\s+(?P<name>\S.*?))?\s*$"
)
_BOUNDS = re.compile(r"(?:[#`]|^)[\s#>*`]*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")
_AVERAGE = re.compile(r"(?:#|^)\s*Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?|-?nan|-?inf)(?:\s+(OK|FAILED))?(?P<end>\s*)")
_GPUS = re.compile(r"Invalid number of GPUs:\s*(\d+) requested but only (\d+) (?:were|was) found")
_FAILED = re.compile(r"Test (NCCL|CUDA) failure\s+(\S+?:\d+)\s*'?([^']*)'?|(Test failure)\s+\S+?:\d+|(Test timeout) (?:\(\d+s\) )?\S+?:\d+")
_NAMING = ("gpus", "cuda", "nccl", "timeout")  # kinds of failures that name a call
_EXITED = re.compile(r"mpirun noticed that process|non-zero exit (?:code|status)|srun: error: .*(?:[Ee]xit|Kill|[Ss]egm|Abort|Bus error)")
_STATUS = re.compile(r"(?:exit code|exit status|[Ee]xited on signal)\s*:?\s*(\d+)(?=\D)")

# The order in which one run prints.
_BANNER, _PARAMS, _DEVS, _HEAD, _ROWS, _FOOT, _END = range(7)
_LONGEST = 1000  # characters; a row with per-iteration times has 250
_APART = 3  # a size that restarts this many lines below a table without header belongs to another table


class _Run:
    """One run while its lines come in."""

    def __init__(self, line: Line) -> None:
        self.first = line
        self.stage = _BANNER
        self.seen: dict[str, str] = {}  # what a run prints once -> the line
        self.copies = False  # several one-process programs printed into each other
        self.layout: Layout | None = None
        self.values: dict[str, Any] = {}
        self.origin: dict[str, Line] = {}
        self.members: list[Member] = []
        self.rows: list[BandwidthRow] = []
        self.row_line: Line | None = None
        self.failures: list[Failure] = []
        self.bounds: bool | None = None  # the footer's verdict: True is FAILED

    def put(self, name: str, value: object, line: Line) -> None:
        if value is not None and name not in self.values:
            self.values[name] = value
            self.origin[name] = line


def parse(section: Section) -> Iterator[Fact | Loss]:
    runs: list[_Run] = []
    command: tuple[Line, str, str] | None = None
    commands: list[Line] = []
    lost: list[Line] = []
    died = deaths_by_launcher(section)
    if died:
        yield Watchdog(deaths=died)
    for place, line in enumerate(section.lines):
        if len(line.text) > _LONGEST:
            continue
        text = line.text if line.cut else line.text + " "  # a whole line's last word has its end
        if ROW.match(line.text):
            run = _run_for(runs, line, _ROWS, "")
            row = read(line, run.layout)
            if row is None:
                lost.append(line)
                continue
            if run.row_line is not None and _restarts_elsewhere(run, row, line):
                run = _begin(runs, line, _ROWS)
            run.rows.append(row)
            run.row_line = line
        elif _comment(runs, line, text):
            pass
        elif found := _COMMAND.search(text):
            command = (line, found[1], found[2])
            commands.append(line)
            continue
        else:
            _failure(runs, line, text + _rest(section.lines, place))
            continue
        if command is not None and runs:
            at, program, collective = command
            # A command belongs to the output right below it, never to one that was open before.
            if runs[-1].first.number > at.number:
                runs[-1].put("program", program, at)
                runs[-1].put("collective", collective, at)
            command = None
    if commands:
        yield from launch.parse(replace(section, lines=tuple(commands)))
    done = [_finished(section, run) for run in runs]
    if lost:
        yield Loss(
            f"{len(lost)} row{'s' if len(lost) > 1 else ''} of a bandwidth table",
            f"not whole ({section.source}, line {lost[0].number})",
        )
    if done:
        yield Bandwidth(tuple(done))


def _rest(lines: tuple[Line, ...], place: int) -> str:
    """The second line of mpirun's sentence: the signal."""
    if not lines[place].text.rstrip().endswith("exited on") or place + 1 == len(lines):
        return ""
    below = lines[place + 1]
    return below.text.strip() + " " if below.number == lines[place].number + 1 and not below.cut else ""


def _begin(runs: list[_Run], line: Line, stage: int) -> _Run:
    runs.append(_Run(line))
    runs[-1].stage = stage
    return runs[-1]


def _run_for(runs: list[_Run], line: Line, stage: int, once: str) -> _Run:
    """The run this line belongs to. `once`: a thing that a run prints one time only."""
    run = runs[-1] if runs else None
    if run is not None and _another_copy(run, line, stage, once):
        run.stage = max(run.stage, stage)
        return run
    if run is None or stage < run.stage or once and once in run.seen:
        run = _begin(runs, line, stage)
    run.stage = stage
    if once:
        run.seen[once] = line.text.strip()
    return run


def _another_copy(run: _Run, line: Line, stage: int, once: str) -> bool:
    """Without MPI support, `mpirun -np 8` starts eight programs of one process each, whose lines run through each other."""
    if run.copies:
        return not (run.rows and stage <= _PARAMS)
    if run.rows or run.failures:
        return False
    alone = once == "rank 0" and once in run.seen and len(run.members) == 1
    run.copies = alone or stage <= _PARAMS and run.seen.get(once) == line.text.strip()
    return run.copies


def _restarts_elsewhere(run: _Run, row: BandwidthRow, line: Line) -> bool:
    """Two tails without header, pasted below each other with words between them."""
    before = run.row_line
    apart = before is not None and line.number - before.number > _APART
    return apart and run.layout is None and not run.members and bool(run.rows) and row.size < run.rows[-1].size


def _comment(runs: list[_Run], line: Line, text: str) -> bool:
    """A line of the program's own that begins with `#`, or did; False where it is none (a root prompt)."""
    if found := _VERSION.search(text):
        run = _run_for(runs, line, _BANNER, "version")
        run.put("tests_version", found[1], line)
        run.put("nccl_version", version_of(int(found[2])), line)
    elif found := _STARTING.search(text):
        run = _run_for(runs, line, _BANNER, "starting")
        _program(run, found[1], line, text, found.end())
    elif found := _PARAMETERS.search(text):
        run = _run_for(runs, line, _PARAMS, "parameters")
        run.put("min_bytes", int(found[1]), line)
        run.put("max_bytes", int(found[2]), line)
        if found[3] is not None:
            run.put("checked", found[3] != "0", line)
    elif _DEVICES.search(text):
        _run_for(runs, line, _DEVS, "devices")
    elif found := _DEVICE.search(line.text):
        _device(runs, line, found)
    elif (layout := header(line.text)) is not None and not line.cut:
        _run_for(runs, line, _HEAD, "header").layout = layout
    elif found := _BOUNDS.search(text):
        run = _run_for(runs, line, _FOOT, "bounds")
        run.bounds = found[2] == "FAILED"
        run.origin["wrong"] = line
        run.values["completed"] = True
    elif found := _AVERAGE.search(text):
        run = _run_for(runs, line, _FOOT, "average")
        run.values["completed"] = True
        if found[2] or found["end"]:
            run.put("average_busbw_gbs", float(found[1]) if found[1][:1].isdigit() else None, line)
        if found[2]:
            run.put("below_minimum", found[2] == "FAILED", line)
    elif found := _CONCLUDED.search(text):
        run = _run_for(runs, line, _END, "concluded")
        run.values["completed"] = True
        _program(run, found[1], line, text, found.end())
    else:
        return False
    return True


def _program(run: _Run, word: str, line: Line, text: str, end: int) -> None:
    if end < len(text) or not line.cut:
        run.put("program", word, line)
        name = word.removesuffix("_perf").removesuffix("_mpi")
        run.put("collective", name if name in COLLECTIVES else None, line)


def _device(runs: list[_Run], line: Line, found: re.Match[str]) -> None:
    rank = int(found["rank"])
    run = _run_for(runs, line, _DEVS, f"rank {rank}")
    address = bdf.normalise(found["bdf"]) if found["bdf"] else None
    run.members.append(
        Member(
            rank=rank,
            device=int(found["device"]),
            host=found["host"],
            bdf=address,
            bus=int(found["bus"], 16) if found["bus"] else None,
            name=None if line.cut else found["name"],
            group=int(found["group"]) if found["group"] else None,
        )
    )
    run.origin.setdefault("members", line)


def _failure(runs: list[_Run], line: Line, text: str) -> None:
    shown = " ".join(text.split())[:200]
    if found := _GPUS.search(text):
        failure = Failure(kind="gpus", text=shown, asked=int(found[1]), found=int(found[2]))
    elif found := _FAILED.search(text):
        failure = Failure(kind=(found[1] or "").lower() or ("timeout" if found[5] else "test"), text=shown)
    elif _EXITED.search(text):
        # A launcher's word counts only below a run: it ends any program the same way.
        if not runs:
            return
        status = _STATUS.search(text)
        failure = Failure(kind="exit", text=shown, status=int(status[1]) if status else None)
    else:
        return
    run = runs[-1] if runs else _begin(runs, line, _END)
    # The first line that names a call is the place to look at; "Test failure" above it may be another process's.
    if failure.kind in _NAMING and not any(f.kind in _NAMING for f in run.failures):
        run.origin["failures"] = line
    run.failures.append(failure)
    run.origin.setdefault("failures", line)


def version_of(code: object) -> str | None:
    """22809 -> 2.28.9; up to NCCL 2.8 the code had one digit less (2804)."""
    if not isinstance(code, int) or not 1000 <= code < 1_000_000:
        return None
    major, rest = divmod(code, 10_000 if code >= 10_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _finished(section: Section, run: _Run) -> BandwidthRun:
    values = run.values
    rows = tuple(run.rows)
    collective = values.get("collective") or _collective(rows)
    counts = [n for row in rows for n in (row.wrong_out, row.wrong_in) if n is not None]
    wrong = run.bounds if run.bounds is not None else (True if any(counts) else False if counts else None)
    origin: dict[str, Evidence] = {name: section.at(line) for name, line in run.origin.items()}
    origin["*"] = section.at(run.first)
    if run.row_line is not None:
        origin["rows"] = section.at(_largest(section, rows) or run.row_line)
    bad = next((row.line for row in rows if row.wrong_out or row.wrong_in), None)
    if bad is not None:
        origin["wrong"] = section.at(next(line for line in section if line.number == bad))
    return BandwidthRun(
        **{**values, "collective": collective, "completed": values.get("completed", False)},
        nranks=_nranks(run, rows, collective),
        rows=rows,
        wrong=wrong or any(counts) if wrong is not None else None,
        members=tuple(run.members),
        failures=tuple(run.failures),
        origin=origin,
    )


def _largest(section: Section, rows: tuple[BandwidthRow, ...]) -> Line | None:
    best = max(rows, key=lambda row: (row.size, row.busbw_gbs or 0), default=None)
    return next((line for line in section if best is not None and line.number == best.line), None)


def _collective(rows: tuple[BandwidthRow, ...]) -> str | None:
    """Only all_reduce has more busbw than algbw."""
    found = ranks(rows, None)
    big = max((r for r in rows if r.algbw_out_gbs and r.busbw_out_gbs), key=lambda r: r.size, default=None)
    more = big is not None and (big.busbw_out_gbs or 0) > 1.1 * (big.algbw_out_gbs or 0)
    return TWICE[0] if found is not None and more else None


def _nranks(run: _Run, rows: tuple[BandwidthRow, ...], collective: str | None) -> int | None:
    """The list of devices, held against the ratio of the bandwidths: either may be incomplete."""
    told = ranks(rows, collective)
    team = BandwidthRun(members=tuple(run.members)).team
    listed = {m.rank for m in team}
    # A list that nothing follows may go on; one with a gap at its front is known by its last rank.
    count = None
    if listed and run.stage > _DEVS and (rows or run.layout is not None):
        split = len({m.group or 0 for m in run.members}) > 1
        count = len(listed) if split else max(listed) + 1
    if told is None:
        return count
    if count is not None and told[0] <= count <= told[1]:
        return count
    return told[0] if told[0] == told[1] else None
