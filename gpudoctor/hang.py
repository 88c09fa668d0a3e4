"""Who is to blame for a collective that did not end: every source's view of every rank, put side by side.

The rank whose watchdog complains is the one that waited. The suspect is the rank that did not come: it has called fewer
collectives than the others, calls another one, or says nothing at all. Pure: reads facts, decides, words nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpudoctor.cpulist import render
from gpudoctor.facts.hang import Dump, FlightRecorder, RankWork, Watchdog
from gpudoctor.facts.nccl import Nccl
from gpudoctor.hang_dumps import jobs
from gpudoctor.hang_pairs import ALONE, BOTH, DIFFER, Unmatched, unmatched
from gpudoctor.hang_views import Table, View, add_dumps, tables_of
from gpudoctor.model import CERTAIN, LIKELY, POSSIBLE
from gpudoctor.nccl_messages import ECHO, classify
from gpudoctor.record import KeyedRecord, replace

# How a suspect stands out. The order is that of trust.
BEHIND, AHEAD, MISMATCH, EARLIER, NOT_STARTED, SILENT, UNKNOWN, ALL_IN = (
    "behind", "ahead", "mismatch", "earlier", "not started", "silent", "unknown", "all in",
)  # fmt: skip


class Hang(KeyedRecord):
    """One collective of one process group that did not end."""

    group: str
    group_name: str | None
    seq: int | None
    op: str | None
    sizes: str | None
    kind: str
    suspects: tuple[int, ...]
    waiting: tuple[int, ...]
    views: Mapping[int, View]
    members: tuple[int, ...] | None  # ranks of the group, where known
    overall: bool  # ranks are numbered through the whole job, not within the group
    timed_out: bool
    waited_ms: int | None
    confidence: str
    run: int = 0
    # The suspects wait themselves, in these other groups: the cause is there.
    because: tuple[str, ...] = ()
    swapped: bool = False  # the suspects call the same collectives in another order


def listing(ranks: Iterable[int], most: int = 12) -> str:
    """[0, 1, 2, 5] -> `0-2,5`; many pieces are counted: `0,16,23,… (312 ranks)`."""
    numbers = set(ranks)
    pieces = render(numbers).split(",")
    if len(pieces) <= most:
        return ",".join(pieces)
    return ",".join(pieces[: most - 2]) + f",… ({len(numbers)} ranks)"


def collective(hang: Hang) -> str:
    """`ALLREDUCE #2 of default_pg`."""
    words = hang.op or "a collective"
    if hang.seq is not None:
        words += f" #{hang.seq}"
    group = hang.group_name or (f"group {hang.group}" if hang.group != "0" else None)
    return f"{words} of {group}" if group else words


def world_of(nccl: Nccl | None, watchdog: Watchdog | None) -> int | None:
    """Ranks of the whole job: the largest communicator, or what a store barrier counts. None where nothing says."""
    sizes = [c.nranks for c in nccl or () if c.nranks is not None]
    sizes += [a.world for a in (watchdog.accused if watchdog is not None else ()) if a.kind == "waits" and a.world is not None]
    return max(sizes, default=None)


# What CUDA's error says of the GPU or the library itself; NCCL's last words that say more than torch's.
OF_A_GPU = frozenset(("ecc-remap", "nvlink-errors", "version-mismatch"))
_QUOTED = OF_A_GPU | {"peer-died", "network-error", "cuda-error"}


def error_slug(work: RankWork) -> str | None:
    """What an error of the watchdog's is: by NCCL's own last words where torch quotes them, else by torch's.

    A work request that was flushed, a helper thread that failed: such words follow from something else, and torch's count.
    """
    for words, slugs in ((work.last_error, _QUOTED), (work.error, OF_A_GPU)):
        known = classify(words + "\n") if words else None
        if known is not None and known[0].tier < ECHO and known[0].slug in slugs:
            return known[0].slug
    text = f"{work.error} {work.last_error}".lower()
    if "remote process exited" in text or "ncclremoteerror" in text or "connection closed by remote peer" in text:
        return "peer-died"
    return "cuda-error" if "cuda" in text else None


def hangs(watchdog: Watchdog | None, recorder: FlightRecorder | None, world: int | None = None) -> tuple[Hang, ...]:
    """Every hang that the sources show, causes before consequences. world: ranks of the whole job, where known."""
    out: list[Hang] = []
    runs = sorted({w.run for w in watchdog.works}) if watchdog is not None else []
    recorded = jobs(recorder) if recorder is not None else ()
    for run in runs or [0]:
        tables = tables_of([w for w in watchdog.works if w.run == run] if watchdog is not None else [])
        if run == 0 and len(recorded) == 1:
            add_dumps(tables, recorded[0].dumps)
        # A later run of the same log counts only where it says something by itself.
        out += [h for h in _of_tables(tables, world, watchdog, run) if run == 0 or h.kind not in (UNKNOWN, SILENT)]
    if len(recorded) > 1:
        for number, job in enumerate(recorded, len(runs)):
            tables = {}
            add_dumps(tables, job.dumps)
            out += _of_tables(tables, None, None, number)
    for number, job in enumerate(recorded, len(runs) if len(recorded) > 1 else 0):
        out += _without_partner(job.dumps, number)
    return _chained(out)


def _of_tables(tables: Mapping[str, Table], world: int | None, watchdog: Watchdog | None, run: int) -> list[Hang]:
    heard = {rank for table in tables.values() if table.overall for rank in table.views}
    found = (_judge(table, world, heard, watchdog, run) for table in tables.values())
    return [hang for hang in found if hang is not None]


def _without_partner(dumps: Iterable[Dump], run: int) -> list[Hang]:
    """Sends and receives whose other side was not called, or with another size. Where both sides wait for each other, and
    no other rank is missing, the way between them is it."""
    calls, rings = unmatched(dumps)
    if any(c.kind == ALONE for c in calls):
        calls = [c for c in calls if c.kind != BOTH]
    out = []
    alone: dict[tuple[str, int], list[Unmatched]] = {}
    for call in calls:
        if call.kind == ALONE:
            alone.setdefault((call.group, call.partner), []).append(call)
    for same in alone.values():
        views = {rank: view for call in reversed(same) for rank, view in call.views.items()}
        out.append(_of_pair(same[0], BEHIND, (same[0].partner,), tuple(c.rank for c in same), views, run))
    for call in calls:
        seen = call.rank > call.partner and any((c.rank, c.partner) == (call.partner, call.rank) for c in calls)  # from its other end
        if call.kind != ALONE and not seen:
            out.append(_of_pair(call, MISMATCH if call.kind == DIFFER else ALL_IN, (), (call.rank, call.partner), call.views, run))
    return out + [_of_pair(ring.first, MISMATCH, (), ring.ranks, ring.views, run) for ring in rings]


def _of_pair(call: Unmatched, kind: str, suspects: tuple[int, ...], waiting: tuple[int, ...], views: Mapping[int, View], run: int) -> Hang:
    return Hang(
        group=call.group,
        group_name=call.group_name,
        seq=None,
        op=call.op,
        sizes=None,
        kind=kind,
        suspects=suspects,
        waiting=tuple(sorted(waiting)),
        views=views,
        members=None,
        overall=True,
        timed_out=False,
        waited_ms=None,
        confidence=POSSIBLE if kind == ALL_IN else LIKELY,
        run=run,
    )


def _judge(table: Table, world: int | None, heard: set[int], watchdog: Watchdog | None, run: int) -> Hang | None:
    views = table.views
    waiting = [v for v in views.values() if v.waits_in is not None or v.timed_out]
    if not waiting:
        return None
    numbers = sorted({v.waits_in for v in waiting if v.waits_in is not None})
    seq = numbers[0] if numbers else None
    members = table.members
    if members is None and world is not None and table.overall and _is_default(table):
        members = tuple(range(world))
    kind, suspects, confidence = _suspects(
        views, waiting, numbers, members, heard, _named_by_torch(watchdog, seq, table, run)
    )
    inside = [v for v in waiting if v.rank not in suspects] or waiting
    first = next((v for v in inside if v.signature is not None), inside[0])
    return Hang(
        group=table.group,
        group_name=table.name,
        seq=first.waits_in,
        op=first.signature.op if first.signature else None,
        sizes=first.signature.sizes if first.signature else None,
        kind=kind,
        suspects=tuple(sorted(suspects)),
        waiting=tuple(sorted(v.rank for v in waiting if v.rank not in suspects or kind in (MISMATCH, AHEAD))),
        views=views,
        members=members,
        overall=table.overall,
        timed_out=any(v.timed_out for v in waiting),
        waited_ms=max((v.waited_ms for v in waiting if v.waited_ms is not None), default=None),
        confidence=confidence,
        run=run,
        swapped=kind == MISMATCH and _swapped(views, suspects, seq),
    )


def _is_default(table: Table) -> bool:
    return table.group == "0" or table.name == "default_pg"


def _named_by_torch(watchdog: Watchdog | None, seq: int | None, table: Table, run: int) -> tuple[int, ...]:
    """Ranks that torch's own desync report or barrier names."""
    if watchdog is None or run or not _is_default(table):
        return ()
    fitting = [
        a for a in watchdog.accused
        if a.kind in ("behind", "unfinished", "never", "barrier", "absent") and (a.seq is None or seq is None or a.seq == seq)
    ]  # fmt: skip
    return tuple(dict.fromkeys(r for a in fitting for r in a.ranks))


def _suspects(
    views: Mapping[int, View],
    waiting: list[View],
    numbers: list[int],
    members: tuple[int, ...] | None,
    heard: set[int],
    named: tuple[int, ...],
) -> tuple[str, frozenset[int], str]:
    """What sets one side apart, and that side."""
    last = numbers[-1] if numbers else None
    if last is not None:
        absent = {v.rank for v in views.values() if v.enqueued is not None and v.enqueued < last and v.waits_in is None}
        if absent:
            called = set(views) - absent
            complete = members is not None and set(members) <= set(views)
            if len(absent) <= len(called):
                return BEHIND, frozenset(absent), CERTAIN if complete and len(views) > 2 else LIKELY
            return AHEAD, frozenset(v.rank for v in waiting if v.waits_in == last), POSSIBLE
    if named and len(named) * 2 <= max(len(set(named) | set(views)), 2):
        return BEHIND, frozenset(named), LIKELY
    odd = _odd_ones(waiting)
    if odd is not None:
        return MISMATCH, odd, CERTAIN
    if len(numbers) > 1:
        early = {v.rank for v in waiting if v.waits_in == numbers[0]}
        if len(early) * 2 <= len(waiting):
            return EARLIER, frozenset(early), LIKELY
        return AHEAD, frozenset(v.rank for v in waiting if v.waits_in == last), POSSIBLE
    idle = {v.rank for v in waiting if v.started is False}
    if idle and len(idle) * 2 <= len(waiting) and any(v.started for v in waiting):
        return NOT_STARTED, frozenset(idle), POSSIBLE
    if members is not None:
        silent = set(members) - set(views) - heard
        if silent and len(silent) * 2 <= len(members):
            return SILENT, frozenset(silent), LIKELY if len(silent) * 4 <= len(members) else POSSIBLE
        if not silent and len(waiting) == len(members):
            return ALL_IN, frozenset(), POSSIBLE
    return UNKNOWN, frozenset(), POSSIBLE


def _odd_ones(waiting: list[View]) -> frozenset[int] | None:
    """Ranks that call something else than most; empty where neither side is the larger. None: all call the same."""
    by_number: dict[int | None, list[View]] = {}
    for view in waiting:
        if view.signature is not None:
            by_number.setdefault(view.waits_in, []).append(view)
    for same in by_number.values():
        signatures = [v.signature for v in same if v.signature is not None]
        if all(a.fits(signatures[0]) for a in signatures):
            continue
        counts = Counter(signatures).most_common()
        usual = counts[0][0]
        odd = frozenset(v.rank for v in same if v.signature is not None and not v.signature.fits(usual))
        return odd if len(odd) * 2 < len(same) else frozenset()
    return None


def _swapped(views: Mapping[int, View], suspects: frozenset[int], seq: int | None) -> bool:
    """Does an odd rank call next what the others call now? Only a flight recorder knows."""
    if seq is None:
        return False
    now = {v.rank: v.calls[seq] for v in views.values() if seq in v.calls}
    usual = next((r for r in now if r not in suspects), None)
    if usual is None:
        return False
    for rank, called in now.items():
        if not called.fits(now[usual]):
            after, before = views[rank].calls.get(seq + 1), views[usual].calls.get(seq + 1)
            if after is not None and after.fits(now[usual]) or before is not None and before.fits(called):
                return True
    return False


def _chained(found: list[Hang]) -> tuple[Hang, ...]:
    """A suspect that waits itself in another group is a victim there: that group's hang comes first and is the cause.

    Where others do not come either and wait nowhere, those are the suspects.
    """
    out = []
    for hang in found:
        others = [
            h for h in found
            if h is not hang and h.run == hang.run and h.overall and hang.overall and h.suspects and h.kind not in (UNKNOWN, ALL_IN)
        ]  # fmt: skip
        free = set(hang.suspects) - {r for h in others for r in set(h.waiting) - set(h.suspects)}
        groups = [h.group for h in others if hang.suspects and set(hang.suspects) <= set(h.waiting)]
        if groups:
            hang = replace(hang, because=tuple(groups))
        elif free and len(free) < len(hang.suspects):
            hang = replace(hang, suspects=tuple(sorted(free)))
        out.append(hang)
    return tuple(sorted(out, key=lambda h: (h.run, bool(h.because), h.kind in (UNKNOWN, ALL_IN))))
