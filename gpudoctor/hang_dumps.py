"""Which flight recorder dumps belong together, and whose are not there: one dump says how far one rank came, no more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpudoctor.facts.hang import Call, Dump, FlightRecorder, Frame

OPEN = ("scheduled", "started")


class Job(NamedTuple):
    """Dumps of one run of one job."""

    dumps: tuple[Dump, ...]
    members: frozenset[int]  # ranks that the dumps' own lists of groups name; empty where they have none

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset(d.rank for d in self.dumps if d.rank is not None)

    @property
    def lacking(self) -> tuple[int, ...]:
        return tuple(sorted(self.members - self.ranks))


def jobs(recorder: FlightRecorder) -> tuple[Job, ...]:
    """The dumps by job: they are of several where one rank made the same call twice, at two times. Then names tell them apart."""
    dumps = recorder.dumps
    if _of_one(dumps):
        return (_job(dumps),)
    named: dict[str, list[Dump]] = {}
    for dump in dumps:
        named.setdefault(_without_rank(dump), []).append(dump)
    return tuple(_job(group) for group in named.values())


def _job(dumps: Iterable[Dump]) -> Job:
    dumps = tuple(dumps)
    return Job(dumps, frozenset(r for d in dumps for g in d.groups.values() for r in g.ranks or ()))


def _of_one(dumps: Iterable[Dump]) -> bool:
    seen: dict[tuple[int, str, int], tuple[object, ...]] = {}
    for dump in dumps:
        for call in dump.calls if dump.rank is not None else ():
            if call.seq and seen.setdefault((dump.rank or 0, call.group, call.seq), _made(call)) != _made(call):
                return False
    return True


def _made(call: Call) -> tuple[object, ...]:
    return (call.created_ns,) if call.created_ns is not None else (call.op, call.sizes_in)


def _without_rank(dump: Dump) -> str:
    """`run2/nccl_trace_rank_3.json` -> `run2/nccl_trace_rank_`: the same for all ranks of one job."""
    folder, slash, name = dump.source.rpartition("/")
    at = name.rfind(str(dump.rank)) if dump.rank is not None else -1
    return folder + slash + (name[:at] if at >= 0 else name)


def open_calls(dump: Dump) -> list[Call]:
    """What it called and had not ended."""
    return [c for c in dump.calls if c.state in OPEN and c.seq > (_done(dump, c.group) if c.seq else -1)]


def _done(dump: Dump, group: str) -> int:
    status = dump.groups.get(group)
    return (status.last_completed or 0) if status is not None else 0


def uneven(job: Job) -> tuple[str, dict[int, list[int]]] | None:
    """A group of which the ranks have called unequal numbers of collectives: its name, and the ranks by count."""
    counts: dict[str, dict[int, list[int]]] = {}
    names: dict[str, str] = {}
    for dump in job.dumps:
        for key, status in dump.groups.items() if dump.rank is not None else ():
            if status.name is not None:
                names.setdefault(key, status.name)
            count = status.last_enqueued if status.last_enqueued is not None else max((c.seq for c in dump.calls if c.group == key), default=0)
            if status.ranks is None or dump.rank in status.ranks:
                counts.setdefault(key, {}).setdefault(count, []).append(dump.rank or 0)
    found = next((key for key, by_count in counts.items() if len(by_count) > 1), None)
    return (names.get(found, f"group {found}"), {n: sorted(set(r)) for n, r in counts[found].items()}) if found is not None else None


def own_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame that is not PyTorch's own."""
    return next((f for f in frames if "/torch/" not in f.file and not f.file.startswith(("<", "torch/"))), None)
