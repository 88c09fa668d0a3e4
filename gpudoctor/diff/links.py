"""PCIe: every GPU's link, the bridges above it, and what they redirect or put to sleep."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.diff.match import Seats
from gpudoctor.diff.model import BETTER, OTHER, TIME, WORSE, Notes, spots
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.model import ERROR, NOTE, WARNING
from gpudoctor.pcie import gbs
from gpudoctor.record import Record

REDIRECTS = ("ReqRedir", "CmpltRedir")
IDLE_GTS = 2.5  # where NVIDIA's links rest when nothing crosses them


class Way(Record):
    """One bridge on both sides. on_way: above a GPU. port: the other end of a GPU's own link, which slows down with it at rest."""

    a: PciDevice
    b: PciDevice
    on_way: bool
    port: bool = False


class Link(Record):
    """One GPU's link as one side saw it."""

    reading: float | None  # the fastest of all readings
    proven: float | None  # what it does under load: seen at its limit, or read while data crossed it
    limit: float | None  # the lesser of both ends
    width: int | None
    max_width: int | None

    def words(self, width_only: bool) -> str:
        lanes = f"x{self.width}" if self.width is not None else ""
        return lanes if width_only or self.proven is None else f"{self.proven:.1f} GT/s {lanes}".strip()


def link_of(gpu: Gpu, card: PciDevice | None, port: PciDevice | None) -> Link:
    """One GPU's PCIe link: the best that was read, against the least that its ends allow."""
    readings = [s.speed_gts for s in gpu.samples or () if s.speed_gts is not None]
    readings += [gpu.speed_gts] if gpu.speed_gts is not None else []
    busy = [s.speed_gts for s in gpu.samples or () if s.busy and s.speed_gts is not None]
    ends = [gpu.max_speed_gts, gpu.card_max_speed_gts, gpu.slot_max_speed_gts, *(d.max_speed_gts for d in (card, port) if d)]
    known = [e for e in ends if e is not None]
    limit, reading = (min(known) if known else None), (max(readings) if readings else None)
    at_limit = reading is not None and limit is not None and reading >= limit
    return Link(reading, reading if at_limit else max(busy) if busy else None, limit, gpu.width, gpu.max_width)


def compare(seats: Seats, a: PciTree | None, b: PciTree | None, notes: Notes) -> None:
    """Every GPU's link, and the bridges above it."""
    for seat in seats.seats:
        if seat.both is None or any(g.c2c for g in seat.both):
            continue
        above_a, above_b = (list(t.ancestors(g.bdf)) if t else [] for t, g in zip((a, b), seat.both, strict=True))
        _link(seat.both, (a, b), (above_a, above_b), notes)
    if a is not None and b is not None:
        bridges = _bridges(seats, a, b, notes)
        _acs(bridges, notes)
        _aspm([*_cards(seats, a, b), *bridges], notes)
        for way in bridges:
            if way.on_way:
                _device_link(way, "bridge", "pcie-bridge", notes)
        for way in _nics(a, b) if notes.mode == TIME else ():
            _device_link(way, "NIC", "pcie-nic", notes)


def _link(gpus: tuple[Gpu, Gpu], trees: tuple[PciTree | None, PciTree | None], above: tuple[list[PciDevice], list[PciDevice]], notes: Notes) -> None:
    seen = [
        link_of(g, t.by_bdf(g.bdf) if t else None, up[0] if up else None)
        for g, t, up in zip(gpus, trees, above, strict=True)
    ]
    one, other, gpu = seen[0], seen[1], gpus[1]
    width = notes.both("the PCIe width", gpu.label, one.width, other.width) and one.width != other.width
    speed = _speed(one, other, gpu.label, notes)
    limit = notes.both("the PCIe limit", gpu.label, one.limit, other.limit) and one.limit != other.limit
    lanes = one.max_width is not None and other.max_width is not None and one.max_width != other.max_width
    about = tuple(f"pci:{d.bdf}" for side in above for d in side[:1]) + (f"gpu:{gpu.index}",)
    if width or speed:
        plain = not speed and (one.proven is None or other.proven is None)
        before, after = (_reading(x) if speed and x.proven is None else x.words(plain) for x in seen)
        worth = [gbs(x.proven or x.limit, x.width or 1) or 0.0 for x in seen]
        worse = worth[1] < worth[0] if worth[0] != worth[1] else (other.width or 0) < (one.width or 0)
        half = worse and (worth[1] * 2 <= worth[0])
        notes.change(
            "pcie-link", gpu.subject, f"{gpu.opening}: PCIe link {notes.turn(before, after)}", before=before, after=after, about=about,
            direction=WORSE if worse else BETTER, severity=ERROR if half else WARNING if worse else NOTE,
            evidence=spots("width" if width else "speed_gts", *gpus),
        )  # fmt: skip
    if limit or lanes:
        ends = [f"{x.limit:.1f} GT/s" if limit and x.limit else f"x{x.max_width}" for x in seen]
        worse = (other.limit or 0, other.max_width or 0) < (one.limit or 0, one.max_width or 0)
        notes.change(
            "pcie-limit", gpu.subject, f"{gpu.opening}: the most that its PCIe link allows {notes.turn(*ends)}", before=ends[0],
            after=ends[1], about=about, direction=WORSE if worse else BETTER, severity=WARNING if worse else NOTE,
            evidence=spots("max_speed_gts" if limit else "max_width", *gpus),
        )  # fmt: skip


def _reading(link: Link) -> str:
    return f"at least {link.reading:.1f} GT/s x{link.width}"


def _speed(one: Link, other: Link, who: str, notes: Notes) -> bool:
    """Did the rate under load change? A link at rest proves nothing, one way or the other."""
    if not notes.both("the PCIe speed", who, one.reading, other.reading):
        return False
    assert one.reading is not None and other.reading is not None
    if one.proven is not None and other.proven is not None:
        return one.proven != other.proven
    if one.proven is None and other.proven is None:
        if one.limit is None and other.limit is None and one.reading == other.reading > IDLE_GTS:
            return False
        # Cards that rest in every look would else never be found unchanged.
        alike = one.reading == other.reading
        notes.lack("the PCIe speed under load", "read on both sides while the link may have been idle: look again while a job runs", who, not alike)
        return False
    proven, rest = (one.proven, other.reading) if one.proven is not None else (other.proven, one.reading)
    assert proven is not None
    if rest > proven:
        return True  # it was seen faster than the other side reached with data crossing it
    if rest == IDLE_GTS and proven > rest:
        notes.vary("pcie-idle", "host", f"{who}: PCIe link at {rest} GT/s when read, {proven} GT/s on the other side: idle links slow down")
    elif rest < proven:
        notes.lack("the PCIe speed under load", f"{proven:g} GT/s on one side; on the other {rest:g} GT/s, perhaps idle", who)
    return False


def _bridges(seats: Seats, a: PciTree, b: PciTree, notes: Notes) -> list[Way]:
    """Bridges on both sides; on one host also those off every GPU's way."""
    out: dict[tuple[str | None, str | None], Way] = {}
    for seat in seats.seats:
        if seat.both is None:
            continue
        ways = [t.ancestors(g.bdf) for t, g in zip((a, b), seat.both, strict=True)]
        moved = [d.bdf for d in ways[0]] != [d.bdf for d in ways[1]] if notes.mode == TIME else len(ways[0]) != len(ways[1])
        known = all(t.by_bdf(g.bdf) for t, g in zip((a, b), seat.both, strict=True)) and all(ways)
        if moved and known and seat.both[0].bdf == seat.both[1].bdf:
            words = [" < ".join(str(d.bdf) for d in way) for way in ways]
            told = f"were {words[0]}, now {words[1]}" if notes.mode == TIME else f"are {notes.turn(*words)}"
            notes.change(
                "pcie-place", seat.gpu.subject, f"{seat.gpu.opening}: the bridges above it {told}",
                before=words[0], after=words[1], about=(f"gpu:{seat.gpu.index}",),
            )  # fmt: skip
        if len(ways[0]) == len(ways[1]):
            for level, (one, other) in enumerate(zip(*ways, strict=True)):
                out.setdefault((one.bdf, other.bdf), Way(one, other, True, level == 0))
    if notes.mode == TIME:
        theirs = {d.bdf: d for d in b if d.bdf is not None}
        for one in a:
            same = theirs.get(one.bdf) if one.is_bridge and one.bdf is not None else None
            if same is not None:
                out.setdefault((one.bdf, same.bdf), Way(one, same, False))
    return list(out.values())


def _cards(seats: Seats, a: PciTree, b: PciTree) -> Iterator[Way]:
    for seat in seats.seats:
        if seat.both is not None:
            one, other = a.by_bdf(seat.both[0].bdf), b.by_bdf(seat.both[1].bdf)
            if one is not None and other is not None:
                yield Way(one, other, True)


def _nics(a: PciTree, b: PciTree) -> Iterator[Way]:
    theirs = {d.bdf: d for d in b if d.is_nic and d.bdf is not None}
    for one in a:
        if one.is_nic and one.bdf in theirs:
            yield Way(one, theirs[one.bdf], True)


def _acs(bridges: list[Way], notes: Notes) -> None:
    turned: dict[tuple[bool, bool], list[tuple[PciDevice, PciDevice]]] = {}
    for way in bridges:
        one, other, on_way = way.a, way.b, way.on_way
        if not notes.both("ACS", str(other.bdf), one.acs, other.acs):
            continue
        assert one.acs is not None and other.acs is not None
        before, after = (any(d.acs.get(bit) for bit in REDIRECTS) for d in (one, other) if d.acs is not None)
        if before != after:
            turned.setdefault((after, on_way), []).append((one, other))
        elif dict(one.acs) != dict(other.acs):
            notes.vary("acs-other", f"pci:{other.bdf}", f"ACS bits of bridge {other.bdf} that redirect nothing between GPUs differ")
    for (on, on_way), found in turned.items():
        names = [str(other.bdf) for _, other in found]
        where = f"at bridge {names[0]}" if len(names) == 1 else f"at {len(names)} bridges: {', '.join(names[:8])}" + (" …" if len(names) > 8 else "")
        how = f"was turned {'on' if on else 'off'}" if notes.mode == TIME else f"is {'on' if on else 'off'} on B, {'off' if on else 'on'} on A,"
        notes.change(
            "acs", f"pci:{names[0]}", f"ACS redirect {how} {where}" + ("" if on_way else ", above no GPU"),
            before="off" if on else "on", after="on" if on else "off", direction=WORSE if on and on_way else BETTER if on_way else OTHER,
            severity=WARNING if on and on_way else NOTE, about=tuple(f"pci:{n}" for n in names), evidence=spots("acs", *found[0]),
        )  # fmt: skip


def _aspm(devices: list[Way], notes: Notes) -> None:
    for way in devices:
        one, other = way.a, way.b
        if not way.on_way or not notes.both("ASPM", str(other.bdf), one.aspm_enabled, other.aspm_enabled):
            continue
        before, after = (" and ".join(d.aspm_enabled or ()) or "off" for d in (one, other))
        if before != after:
            notes.change(
                "aspm", f"pci:{other.bdf}", f"ASPM of {other.bdf}: {notes.turn(before, after)}", before=before, after=after,
                direction=WORSE if before == "off" else BETTER if after == "off" else OTHER, evidence=spots("aspm_enabled", one, other),
            )  # fmt: skip


def _device_link(way: Way, what: str, kind: str, notes: Notes) -> None:
    """A port directly above a GPU is the other end of that GPU's link; further up a narrow or slow link is a cause of its own."""
    one, other = way.a, way.b
    if one.virtual or other.virtual or one.link_up is False or other.link_up is False:
        return
    name = f"{what} {other.bdf}"
    width = notes.both("the PCIe width", str(other.bdf), one.width, other.width) and one.width != other.width
    speed = not way.port and notes.both("the PCIe speed", str(other.bdf), one.speed_gts, other.speed_gts) and one.speed_gts != other.speed_gts
    if not width and not speed:
        return
    before, after = (f"{d.speed_gts:.1f} GT/s x{d.width}" if speed else f"x{d.width}" for d in (one, other))
    worth = [(d.speed_gts or 0.0) * (d.width or 0) if speed else (d.width or 0) for d in (one, other)]
    worse = worth[1] < worth[0]
    notes.change(
        kind, f"pci:{other.bdf}", f"{name}: PCIe link {notes.turn(before, after)}", before=before, after=after,
        direction=WORSE if worse else BETTER, severity=WARNING if worse else NOTE, evidence=spots("speed_gts" if speed else "width", one, other),
    )  # fmt: skip
