"""Sends and receives that found no partner, from flight recorders: torch numbers them apart from the collectives.

torch names them by the ranks of their group: `send 0->1` on one side, `recv 1<-0` on the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpudoctor.facts.hang import Call, Dump
from gpudoctor.hang_dumps import OPEN
from gpudoctor.hang_views import View, called

_NAME = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})$")
ALONE, BOTH, DIFFER = "alone", "both", "differ"


class Unmatched(NamedTuple):
    """One open call, and the rank that should have made its counterpart."""

    group: str
    group_name: str | None
    op: str  # the partner's side of it
    rank: int
    partner: int
    kind: str  # ALONE: it was not called; BOTH: the partner waits in it, so that nobody is missing; DIFFER: with another size
    views: dict[int, View]


class Ring(NamedTuple):
    """Ranks of which each waits for the next, and the last for the first: none of them is late."""

    first: Unmatched
    ranks: tuple[int, ...]
    views: dict[int, View]


def unmatched(of_job: Iterable[Dump]) -> tuple[list[Unmatched], list[Ring]]:
    """Of every rank the oldest open batch, where the partner's dump is there too; of ranks that wait for one that waits
    itself only the end of the chain counts."""
    dumps = {d.rank: d for d in of_job if d.rank is not None}
    found = {rank: told for rank, dump in dumps.items() if (told := _of(rank, dump, dumps)) is not None}
    ends = [u for u in found.values() if u.kind != ALONE or u.partner not in found or found[u.partner].kind != ALONE]
    return ends, _rings(found)


def _of(rank: int, dump: Dump, dumps: dict[int, Dump]) -> Unmatched | None:
    open_ = _open(dump)
    first = next((c for c in open_ if _NAME.match(c.op or "")), None)
    batch = [c for c in open_ if first is not None and (c is first or c.batch is not None and (c.group, c.batch) == (first.group, first.batch))]
    told = [u for u in (_pair(rank, dump, call, dumps) for call in batch) if u is not None]
    return min(told, key=lambda u: (ALONE, DIFFER, BOTH).index(u.kind), default=None)


def _pair(rank: int, dump: Dump, call: Call, dumps: dict[int, Dump]) -> Unmatched | None:
    found = _NAME.match(call.op or "")
    status = dump.groups.get(call.group)
    partner = _global(int(found[3]), status.ranks if status is not None else None) if found is not None else None
    if found is None or partner not in dumps or partner is None or partner == rank:
        return None
    other = "recv" if found[1] == "send" else "send"
    wanted = f"{other} {found[3]}{'<-' if other == 'recv' else '->'}{found[2]}"
    theirs = dumps[partner]
    counterpart = next((c for c in _open(theirs) if c.group == call.group and c.op == wanted), None)
    last = counterpart or (theirs.calls[-1] if theirs.calls else None)
    views = {rank: _view(rank, call), partner: _view(partner, counterpart, last)}
    kind = ALONE if counterpart is None else BOTH if _size(call) == _size(counterpart) else DIFFER
    return Unmatched(call.group, status.name if status is not None else None, wanted, rank, partner, kind, views)


def _view(rank: int, call: Call | None, shown: Call | None = None) -> View:
    shown = call or shown
    signature = called(call)._replace(sizes=_size(call)) if call is not None else None
    return View(rank=rank, signature=signature, frames=shown.frames if shown is not None else (), evidence=(shown.at("*"),) if shown is not None else ())


def _size(call: Call) -> str | None:
    return " ".join(w for w in (call.sizes_in or call.sizes_out, call.dtypes) if w) or None


def _rings(found: dict[int, Unmatched]) -> list[Ring]:
    rings: list[Ring] = []
    seen: set[int] = set()
    for start in found:
        way: list[int] = []
        at = start
        while at in found and found[at].kind == ALONE and at not in seen:
            seen.add(at)
            way.append(at)
            at = found[at].partner
        if at in way:
            ranks = way[way.index(at) :]
            rings.append(Ring(found[ranks[0]], tuple(ranks), {r: found[r].views[r] for r in ranks}))
    return rings


def _open(dump: Dump) -> list[Call]:
    return [c for c in dump.calls if c.seq == 0 and c.state in OPEN]


def _global(rank: int, members: tuple[int, ...] | None) -> int | None:
    if members is None:
        return rank
    return members[rank] if rank < len(members) else None
