"""Which host is which, and which GPU is which, on two sides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from gpudoctor.diff.model import NODES, TIME, Side
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Platform
from gpudoctor.record import Record

_STAND_IN = re.compile(r"host-[0-9a-f]{6}(?:-\d+)?$")  # what a capture writes for a host's name
_STAND_IN_UUID = re.compile(r"(?:\w+-)?0{8}-0{4}-0{4}-0{4}-")
_BOOT_WITHIN_S = 30.0  # two looks that name the same moment of boot: the clock and the uptime are read a little apart


def mode_of(a: Side, b: Side, asked: str | None = None) -> tuple[str, str]:
    """One host over time, or two nodes; and why that is believed."""
    if asked:
        return asked, "as asked for"
    names_a, names_b = ({s.host for s in side.stores if s.host} for side in (a, b))
    if names_a and names_b:
        if names_a & names_b:
            return TIME, f"both are of {', '.join(sorted(names_a & names_b)[:3])}"
        if all(_STAND_IN.match(n) for n in names_a | names_b) and _same_boot(a, b):
            return TIME, "the same GPU addresses, up since the same moment"
        return NODES, f"{sorted(names_a)[0]} and {sorted(names_b)[0]} are two hosts"
    cards_a, cards_b = addresses(a), addresses(b)
    if cards_a and cards_b and not cards_a & cards_b:
        return NODES, "no GPU of one has an address of the other"
    return TIME, "the same GPU addresses" if cards_a and cards_b else "nothing says that they are two hosts"


def addresses(side: Side) -> set[str]:
    """The GPUs' PCI addresses, by which two sides of one host are told to be one."""
    return {g.bdf for s in side.stores for g in s.get(Gpus) or () if g.bdf is not None}


def _same_boot(a: Side, b: Side) -> bool:
    """A capture's stand-in for the name changes with the GPUs it sees: a host that lost one is told by its boot."""
    one, other = _booted(a), _booted(b)
    cards_a, cards_b = addresses(a), addresses(b)
    if one is None or other is None or not (cards_a <= cards_b or cards_b <= cards_a):
        return False
    return abs(one - other) <= _BOOT_WITHIN_S


def _booted(side: Side) -> float | None:
    platform = side.stores[0].get(Platform) if len(side.stores) == 1 else None
    if platform is None or platform.entry.uptime_s is None or side.captured_at is None:
        return None
    try:
        taken = datetime.fromisoformat(side.captured_at.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return taken - float(platform.entry.uptime_s)


def hosts(a: Side, b: Side) -> Iterator[tuple[FactStore | None, FactStore | None]]:
    """Which host of A is which of B. One each are each other's, whatever they are called."""
    if len(a.stores) == 1 == len(b.stores):
        yield a.stores[0], b.stores[0]
        return
    theirs = {s.host: s for s in b.stores}
    for store in a.stores:
        yield store, theirs.pop(store.host, None)
    for rest in theirs.values():
        yield None, rest


class Seat(Record):
    """One GPU on both sides; None where it is not there."""

    a: Gpu | None
    b: Gpu | None

    @property
    def gpu(self) -> Gpu:
        """For a reader: as B has it."""
        found = self.b or self.a
        assert found is not None
        return found

    @property
    def both(self) -> tuple[Gpu, Gpu] | None:
        return (self.a, self.b) if self.a is not None and self.b is not None else None


class Seats:
    """Every GPU of both sides, and what an index of A is called in B."""

    def __init__(self, seats: tuple[Seat, ...]) -> None:
        self.seats = seats
        pairs = [s.both for s in seats if s.both]
        self._to_b = {a.index: b.index for a, b in pairs if a.index is not None and b.index is not None}
        self._a_alone = {s.a.index for s in seats if s.a is not None and s.b is None}
        self._b_alone = {s.b.index for s in seats if s.b is not None and s.a is None}
        self._listed_a = {s.a.index for s in seats if s.a is not None}
        self._listed_b = {s.b.index for s in seats if s.b is not None}
        self._by_index = {s.b.index: s.b for s in seats if s.b is not None}
        self._by_bdf = {g.bdf: s.gpu for s in seats for g in (s.a, s.b) if g is not None and g.bdf is not None}

    def of_bdf(self, bdf: str | None) -> Gpu | None:
        """The GPU that has, or had, this address."""
        return None if bdf is None else self._by_bdf.get(bdf)

    def to_b(self, index: int) -> int | None:
        """None where B has no such GPU. A number that A's own list lacks is what B's list says of it."""
        alone = index in self._a_alone or index not in self._listed_a and index in self._b_alone
        return self._to_b.get(index, None if alone else index)

    def new(self, index: int) -> bool:
        """Is this index of B a GPU that A does not have?"""
        return index in self._b_alone or index not in self._listed_b and index in self._a_alone

    def label(self, index: int) -> str:
        found = self._by_index.get(index)
        return found.label if found is not None else f"GPU{index}"

    def subject(self, index: int) -> str:
        found = self._by_index.get(index)
        return found.subject if found is not None else f"gpu:{index}"


def seats_of(a: Gpus | None, b: Gpus | None, mode: str) -> Seats:
    """By address on one host, then by UUID; on two nodes by address where the one's are among the other's, else by index."""
    ours, theirs = ([g for g in side or () if not g.unnamed] for side in (a, b))
    if not ours or not theirs:
        return Seats(())
    mine, others = ({g.bdf for g in side if g.bdf} for side in (ours, theirs))
    by_address = mode == TIME or mine <= others or others <= mine
    found: list[Seat] = []
    for key in ("bdf", "uuid", "index") if by_address else ("index",):
        # A list shifts when one of it is gone: with addresses on both sides an index only tells of cards that all moved.
        level = len(ours) == len(theirs) or not by_address
        known = {getattr(g, key): g for g in reversed(theirs)}
        taken: set[int] = set()
        for gpu in ours:
            value = getattr(gpu, key)
            other = known.get(value) if value is not None else None
            if other is None or id(other) in taken or key == "uuid" and _STAND_IN_UUID.match(value):
                continue
            if key != "index" or level or gpu.bdf is None or other.bdf is None:
                found.append(Seat(gpu, other))
                taken.update((id(gpu), id(other)))
        ours, theirs = ([g for g in side if id(g) not in taken] for side in (ours, theirs))
    found += [Seat(g, None) for g in ours] + [Seat(None, g) for g in theirs]
    return Seats(tuple(sorted(found, key=lambda s: (s.gpu.index is None, s.gpu.index or 0, s.gpu.bdf or ""))))
