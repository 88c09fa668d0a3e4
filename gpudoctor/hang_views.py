"""Each rank's view of each process group, from the lines of a watchdog and from flight recorder dumps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gpudoctor.facts.hang import Call, Dump, Frame, GroupStatus, RankWork
from gpudoctor.hang_dumps import OPEN
from gpudoctor.model import Evidence

# Collectives in which every rank must give the same sizes; elsewhere a root, or uneven parts, may differ.
_EVEN = frozenset(
    (
        "allreduce",
        "reduce",
        "broadcast",
        "allgather",
        "allgatherbase",
        "reducescatter",
        "reducescatterbase",
        "allreducecoalesced",
    )
)


class Signature(NamedTuple):
    """What a rank called. Compared between ranks; None matches everything, and a log's sizes any dump's."""

    op: str | None
    sizes: str | None
    source: str = "log"

    def fits(self, other: Signature) -> bool:
        same = self.op is None or other.op is None or _plain(self.op) == _plain(other.op)
        return same and (
            self.source != other.source or self.sizes is None or other.sizes is None or self.sizes == other.sizes
        )


class View(NamedTuple):
    """What is known of one rank in one process group."""

    rank: int
    enqueued: int | None = None
    completed: int | None = None
    waits_in: int | None = None  # number of the first collective that it called and that did not end
    waited_ms: int | None = None
    timed_out: bool = False
    signature: Signature | None = None  # of that collective
    started: bool | None = None  # its kernel runs; None where torch does not measure it
    frames: tuple[Frame, ...] = ()  # of that collective, or of the last one called
    calls: Mapping[int, Signature] = {}  # noqa: RUF012 (never written to)
    evidence: tuple[Evidence, ...] = ()


class Table:
    """Views of one process group, by rank."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.name: str | None = None
        self.members: tuple[int, ...] | None = None
        self.views: dict[int, View] = {}
        self.overall = True

    def add(self, view: View) -> None:
        known = self.views.get(view.rank)
        self.views[view.rank] = view if known is None else _merged(known, view)


def _merged(a: View, b: View) -> View:
    """`a` with what only `b` knows."""
    values: dict[str, Any] = {}
    for name in ("enqueued", "completed", "waits_in", "waited_ms", "signature", "started"):
        values[name] = getattr(a, name) if getattr(a, name) is not None else getattr(b, name)
    return a._replace(
        **values,
        timed_out=a.timed_out or b.timed_out,
        frames=a.frames or b.frames,
        calls=a.calls or b.calls,
        evidence=tuple(dict.fromkeys((*a.evidence, *b.evidence))),
    )


def tables_of(works: Iterable[RankWork]) -> dict[str, Table]:
    """Each process group's ranks, from the watchdog's lines."""
    tables: dict[str, Table] = {}
    works = list(works)
    local = {w.group or "0" for w in works if w.rank is None and w.group_rank is not None}
    # A rank tells its default group of a time-out that may have been in another group.
    told = {w.rank for w in works if w.timed_out}
    for work in works:
        key = work.group or "0"
        rank = work.group_rank if key in local else work.rank
        table = tables.setdefault(key, Table(key))
        table.name = table.name or work.group_name
        table.overall = key not in local
        signalled = work.signalled is True and work.rank not in told
        waits = work.timed_out is True or work.seq is not None and work.error is None
        if rank is None:
            continue
        table.add(
            View(
                rank=rank,
                enqueued=work.last_enqueued,
                completed=work.last_completed,
                waits_in=work.seq if waits else _next(work) if signalled else None,
                waited_ms=work.ran_ms if work.ran_ms is not None else work.timeout_ms if waits else None,
                timed_out=work.timed_out is True or signalled,
                signature=_signature(work) if waits and work.op else None,
                frames=work.frames or (),
                evidence=tuple(dict.fromkeys(work.at(f) for f in ("timed_out", "last_enqueued"))),
            )
        )
    return tables


def _next(work: RankWork) -> int | None:
    """The collective that is called and not done, where counts say so."""
    if work.last_enqueued is None or work.last_completed is None or work.last_enqueued <= work.last_completed:
        return None
    return work.last_completed + 1


def _signature(work: RankWork) -> Signature:
    counts = [str(n) for n in (work.numel_in, work.numel_out) if n is not None]
    return Signature(work.op, " ".join(counts) or work.shape if _even(work.op) else None)


def _even(op: str | None) -> bool:
    return op is not None and _plain(op) in _EVEN


def _plain(op: str) -> str:
    """ALLREDUCE in a log is all_reduce in a dump."""
    return op.lower().replace("_", "")


def add_dumps(tables: dict[str, Table], dumps: Iterable[Dump]) -> None:
    """Put in what flight recorders say of the same groups."""
    for dump in dumps:
        if dump.rank is None:
            continue
        for group in dict.fromkeys((*dump.groups, *(c.group for c in dump.calls))):
            table = tables.setdefault(group, Table(group))
            if not table.overall:
                continue
            status = dump.groups.get(group, GroupStatus(None, None, None, None, None))
            calls = [c for c in dump.calls if c.group == group and c.seq > 0]
            table.name = table.name or status.name
            table.members = table.members or status.ranks
            if calls or status.ranks is None or dump.rank in status.ranks:  # a rank may know groups that it is no member of
                table.add(_of_dump(dump.rank, status, calls) if calls else _of_counts(dump, status))


def _of_dump(rank: int, status: GroupStatus, calls: list[Call]) -> View:
    ended = status.last_completed if status.last_completed is not None else 0
    open_ = [c for c in calls if c.state in OPEN and c.seq > ended]
    first = min(open_, key=lambda c: c.seq, default=None)
    last = max(calls, key=lambda c: c.seq, default=None)
    shown = first or last
    return View(
        rank=rank,
        enqueued=status.last_enqueued
        if status.last_enqueued is not None
        else last.seq
        if last
        else 0
        if status.name
        else None,
        completed=status.last_completed,
        waits_in=first.seq if first else None,
        waited_ms=None,
        signature=called(first) if first else None,
        started=first.state == "started" if first else None,
        frames=shown.frames if shown else (),
        calls={c.seq: called(c) for c in calls},
        evidence=(shown.at("*"),) if shown else (),
    )


def _of_counts(dump: Dump, status: GroupStatus) -> View:
    """Of a recorder that was off: how many it has called and how many are done, and nothing of what they were."""
    enqueued, completed = status.last_enqueued, status.last_completed
    waits = enqueued is not None and completed is not None and enqueued > completed
    said = f"last enqueued {enqueued}, last completed {completed}"
    return View(
        rank=dump.rank or 0,
        enqueued=enqueued if enqueued is not None else 0 if status.name else None,
        completed=completed,
        waits_in=(completed or 0) + 1 if waits else None,
        evidence=(Evidence(dump.source, f"pg_status of {status.name or 'a group'}", said),) if enqueued is not None else (),
    )


def called(call: Call) -> Signature:
    """What it was, to be compared with what other ranks called."""
    sizes = " to ".join(dict.fromkeys(s for s in (call.sizes_in, call.sizes_out) if s)) or None
    return Signature(call.op, f"{sizes} {call.dtypes or ''}".strip() if sizes and _even(call.op) else None, "dump")


