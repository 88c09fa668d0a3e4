"""Where the log of a rank ends, if it is in the input: what "look in its log" comes to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpudoctor.facts.hang import LogEnd, LogEnds
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.nccl import Nccl, NcclProc
from gpudoctor.facts.store import short
from gpudoctor.model import Evidence, Step

KILLED = "sudo dmesg -T | grep -iE 'out of memory|killed process|xid'"
_LOOKED_AT = 60  # of its last lines
_SHOWN = 100  # characters of a line within a sentence
_RANK = re.compile(r"\[rank ?(\d{1,7})\]|^\[\d{1,5},(\d{1,7})\]<std|\[Rank (\d{1,7})\]")
# How a program says that it ended in an error, or a shell or a kernel of it.
_TROUBLE = re.compile(
    r"(?:^|[\s\]:])(?:[a-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt)\b(?::|\s*$)|terminate called|Segmentation fault|core dumped|Bus error"
    r"|Fatal Python error|\bKilled\b|oom[-_]kill|Out Of Memory|Signal: [A-Z]\w+ \(\d|No space left on device|DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)"
)
# The shell's word, Slurm's or the kernel's: nothing that the program could have said.
_OUTSIDE = re.compile(r"\bKilled\b|oom[-_]kill|Out Of Memory|DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)")
_LEFT = re.compile(r"comm 0x[0-9a-f]+ rank \d+ .*- (?:Destroy|Abort) COMPLETE\s*$")
# What a watchdog says of a time-out tells nothing of what the program did before.
_WATCHDOG = re.compile(r"ProcessGroupNCCL\.cpp|Watchdog caught|FlightRecorder|WorkNCCL\(")
# A launcher's lines among those of the process it started.
_LAUNCHER = re.compile(
    r"ChildFailedError|^\s*(?:time|host|rank|exitcode|error_file|traceback)\s+: |^[=-]{20,}|Root Cause|^Failures:|NO_OTHER_FAILURES|/torch/distributed/(?:launcher|run|elastic)"
    r"|torch\.distributed\.elastic|^\s+return (?:f|launch_agent)\(|^\s+(?:\^+|run\(args\)|elastic_launch\()|srun: |slurmstepd: |mpirun|prterun"
)


class Stop(NamedTuple):
    """words: a sentence. troubled: an error stands there. left: it took its communicator down."""

    words: str
    evidence: Evidence
    troubled: bool
    left: bool


def stop_of(rank: int, ends: LogEnds | None, nccl: Nccl | None, before: Iterable[Evidence] = ()) -> Stop | None:
    """Where this rank's log stops; None where the input has none of its lines, or where its end stands too far above others'.

    before: lines of a time-out: what stands below them in the same log is not the rank's own work.
    """
    if ends is None:
        return None
    comm = max((c for c in nccl or () if c.nranks is not None), key=lambda c: c.nranks or 0, default=None)
    procs = [p for number, p, _ in comm.members() if number == rank] if comm is not None else []
    sources = list(dict.fromkeys([p.source for p in procs] or [e.source for e in ends.ends]))
    until = _first_lines(before)
    found: Stop | None = None
    for source in sources:
        end = ends.of(source)
        if end is None:
            continue
        mine = [p for p in procs if p.source == source]
        alone = bool(mine) and _alone(rank, end, mine, nccl)
        marks = (f"[rank{rank}]", f"[1,{rank}]<std", *(f"{p.host}:{p.pid}:" for p in mine if p.host and p.pid is not None))
        told = [t for t in end.last_of(marks, alone) if t[0] < until.get(source, 1 << 60) and not _WATCHDOG.search(t[1]) and not _LAUNCHER.search(t[1])]
        if told and (found is None or alone):
            found = _stop(rank, end, told, source in until)
    return found


def _first_lines(spots: Iterable[Evidence]) -> dict[str, int]:
    """The first of these lines of each log."""
    out: dict[str, int] = {}
    for spot in spots:
        number = spot.where.removeprefix("line ")
        if number.isdigit():
            out[spot.source] = min(int(number), out.get(spot.source, 1 << 60))
    return out


def _alone(rank: int, end: LogEnd, mine: list[NcclProc], nccl: Nccl | None) -> bool:
    """Is all that stands in this log of one process? A launcher's own lines may be among them."""
    others = any(p.source == end.source and (p.host, p.pid) != (mine[0].host, mine[0].pid) for p in (nccl.procs if nccl is not None else ()))
    named = {int(n) for _, text in end.lines for groups in _RANK.findall(text) for n in groups if n}
    return not others and named <= {rank} and len({r.rank for p in mine for r in p.ranks}) == 1


def _stop(rank: int, end: LogEnd, told: list[tuple[int, str]], hung: bool) -> Stop:
    number, text = told[0]
    last = f"{end.source}:{number} `{_short(text)}`"
    left = any(_LEFT.search(line) for _, line in told[:8])
    for at, line in told[:_LOOKED_AT]:
        if _OUTSIDE.search(line):
            words = f"Its log is in the input and says that it was ended from outside: {end.source}:{at} `{_short(line)}`."
            return Stop(words, Evidence(end.source, f"line {at}", line.strip()), False, False)
        if _TROUBLE.search(line):
            words = f"Its log is in the input and tells an error of its own: {end.source}:{at} `{_short(line)}`."
            return Stop(words, Evidence(end.source, f"line {at}", line.strip()), True, left)
    if left:
        words = f"Its log is in the input and ends in order: rank {rank} took its communicator down while others still used theirs. Its last line is {last}."
    elif hung:
        words = f"Its last line before the time-out is {last}."
    else:
        words = f"Its log is in the input; its last line there is {last}, and without a complaint it just stops."
    return Stop(words, Evidence(end.source, f"line {number}", text.strip()), False, left)


def after(rank: int, stop: Stop, host: str | None) -> tuple[Step, ...]:
    """Its log was read: what is left to ask is what ended it, on the host where it ran."""
    if stop.left:
        return (Step(f"Why is rank {rank} done before the others: fewer batches, an early return, an exit that only it takes? Let all ranks end together"),)
    steps = [Step(f"Mend the error that rank {rank} tells; what the others say follows from it")] if stop.troubled else []
    killed = Step(f"On {f'host {host}' if host else 'its host'}: was the process of rank {rank} killed, did its GPU fail", KILLED)
    return (*steps, killed)


def killed_by_kernel(rank: int, nccl: Nccl | None, kills: MemoryKills | None) -> Stop | None:
    """The kernel's word that it ended this rank's process; within a container the log has another number for it.

    A number is one process only on one host: the log of another host speaks of another's.
    """
    for comm in nccl or () if kills is not None else ():
        seats = list(comm.members())
        hosts = {short(p.host) for _, p, _ in seats if p.host is not None}
        for number, proc, _ in seats:
            kill = kills.of(proc.pid, proc.host) if number == rank and kills is not None and proc.pid is not None else None
            if kill is not None:
                spot = kill.at("*")
                open_ = f" That log does not name its host; rank {rank} ran on {proc.host}." if kill.host is None and len(hosts) > 1 else ""
                return Stop(f"The kernel ended its process {kill.pid} ({kill.name}) for want of memory: {spot.source}, {spot.where}.{open_}", spot, False, False)
    return None


def after_kill(rank: int) -> tuple[Step, ...]:
    return (
        Step("See how much memory the host and the job's cgroup have", "free -g; cat /sys/fs/cgroup/memory.max"),
        Step(f"Let rank {rank} use less (fewer workers of its data loader, less kept in host memory), or give the job more"),
    )


def by_itself(rank: int) -> Step:
    """A process that its launcher saw end with a status of its own."""
    return Step(f"Read all that rank {rank} printed, its standard error too: an exception of Python's ends with exit status 1")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
