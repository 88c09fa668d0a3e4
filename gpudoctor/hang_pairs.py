"""Sends and receives that found no partner, from flight recorders: torch numbers them apart from the collectives.

torch names them by the ranks of their group: `send 0->1` on one side, `recv 1<-0` on the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpudoctor.facts.hang import Call, Dump
from gpudoctor.hang_dumps import OPEN
from gpudoctor.hang_views import View

_NAME = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})$")


class Unmatched(NamedTuple):
    """One open call, and the rank that should have made its counterpart."""

    group: str
    group_name: str | None
    op: str  # the call that the partner did not make
    rank: int
    partner: int
    both: bool  # the partner waits in its counterpart, so that nobody is missing
    views: dict[int, View]


def unmatched(of_job: Iterable[Dump]) -> list[Unmatched]:
    """The oldest open send or receive of every rank and group, where the partner's dump is there too."""
    dumps = {d.rank: d for d in of_job if d.rank is not None}
    out: list[Unmatched] = []
    for rank, dump in dumps.items():
        for call in _open(dump):
            found = _NAME.match(call.op or "")
            members = dump.groups[call.group].ranks if call.group in dump.groups else None
            partner = _global(int(found[3]), members) if found is not None else None
            if found is None or partner not in dumps or partner is None or partner == rank:
                continue
            other = "recv" if found[1] == "send" else "send"
            wanted = f"{other} {found[3]}{'<-' if other == 'recv' else '->'}{found[2]}"
            theirs = dumps[partner]
            both = any(c.group == call.group and c.op == wanted for c in _open(theirs))
            last = theirs.calls[-1] if theirs.calls else None
            views = {
                rank: View(rank=rank, frames=call.frames, evidence=(call.at("*"),)),
                partner: View(rank=partner, frames=last.frames if last is not None else (), evidence=(last.at("*"),) if last is not None else ()),
            }
            name = dump.groups[call.group].name if call.group in dump.groups else None
            out.append(Unmatched(call.group, name, wanted, rank, partner, both, views))
            break
    return out


def _open(dump: Dump) -> list[Call]:
    return [c for c in dump.calls if c.seq == 0 and c.state in OPEN]


def _global(rank: int, members: tuple[int, ...] | None) -> int | None:
    if members is None:
        return rank
    return members[rank] if rank < len(members) else None
