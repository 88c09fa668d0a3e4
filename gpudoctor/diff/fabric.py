"""How GPUs reach each other: the path of every pair, peer to peer, NVLinks."""

from __future__ import annotations

from gpudoctor import cpulist
from gpudoctor.diff.match import Seats
from gpudoctor.diff.model import BETTER, NODES, OTHER, WORSE, Notes, spots
from gpudoctor.facts.topology import PATHS, NvLink, NvLinkGpu, NvLinks, Pair, Pairs
from gpudoctor.model import ERROR, NOTE, WARNING, Threshold

TENFOLD = Threshold(
    "growth of an error counter that both sides have, at least", 10, "times",
    "our choice: one that grows less is judged by what it is, not by what it was", "2026-11",
)  # fmt: skip
_P2P = ("p2p_read", "p2p_write", "p2p_nvlink", "p2p_atomics", "p2p_unstated")
_COUNTERS = ("replay", "recovery", "crc", "recovery_failed")


def grew(before: int, after: int) -> bool:
    """Did a counter grow by more than time explains? From nothing to something is said by the checks that judge it."""
    return before > 0 and after >= before * TENFOLD.value


def pairs(seats: Seats, a: Pairs, b: Pairs, notes: Notes) -> None:
    """Pair by pair: the path, the number of NVLinks, and peer access."""
    seen: set[tuple[int, int]] = set()
    for one in a:
        x, y = seats.to_b(one.a), seats.to_b(one.b)
        if x is None or y is None:
            continue  # a GPU that is gone takes its pairs along
        seen.add((min(x, y), max(x, y)))
        other = b.of(x, y)
        if other is None:
            notes.only("the path", "A", f"pair {min(x, y)}-{max(x, y)}")
        else:
            _pair(one, other, seats, notes)
    for other in b:
        if (other.a, other.b) not in seen and not seats.new(other.a) and not seats.new(other.b):
            notes.only("the path", "B", f"pair {other.a}-{other.b}")


def cell(pair: Pair) -> str:
    """`NV18`, or the path's class."""
    return f"NV{pair.nvlinks}" if pair.path == "NVL" and pair.nvlinks else str(pair.path)


def _pair(one: Pair, other: Pair, seats: Seats, notes: Notes) -> None:
    name = f"pair {other.a}-{other.b}"
    about = (seats.subject(other.a), seats.subject(other.b), f"gpu:{other.a}", f"gpu:{other.b}")
    if notes.both("the path", name, one.path, other.path):
        if bool(one.pcie_only) != bool(other.pcie_only) and one.path != other.path:
            notes.lack("the path", "one side shows the PCIe path only (topo -mp, NVML), which hides NVLink", name)
        elif (one.path, one.nvlinks or other.nvlinks) != (other.path, other.nvlinks or one.nvlinks):
            _path(one, other, name, about, notes)
    changed = [f for f in _P2P if notes.both("peer to peer", name, getattr(one, f), getattr(other, f)) and getattr(one, f) != getattr(other, f)]
    if changed:
        words = ", ".join(f"{f.removeprefix('p2p_')} {notes.turn(getattr(one, f), getattr(other, f))}" for f in changed)
        lost = any(getattr(one, f) == "OK" for f in changed)
        gained = any(getattr(other, f) == "OK" for f in changed)
        notes.change(
            "p2p", other.subject, f"{name}: peer to peer {words}", direction=WORSE if lost else BETTER if gained else OTHER,
            before=getattr(one, changed[0]), after=getattr(other, changed[0]), severity=WARNING if lost else NOTE, about=about,
            evidence=spots(changed[0], one, other),
        )  # fmt: skip


def _path(one: Pair, other: Pair, name: str, about: tuple[str, ...], notes: Notes) -> None:
    ranks = [PATHS.index(p.path) if p.path in PATHS else len(PATHS) for p in (one, other)]
    links = [p.nvlinks or 0 for p in (one, other)]
    worse = (ranks[1], -links[1]) > (ranks[0], -links[0])
    lost = worse and one.path == "NVL"
    # With the count only where the path stays: `NVL -> PHB`, `NV18 -> NV17`.
    before, after = (cell(p) if one.path == other.path else str(p.path) for p in (one, other))
    notes.change(
        "pair-path", other.subject, f"{name}: {notes.turn(before, after)}", before=before, after=after, about=about,
        direction=WORSE if worse else BETTER, severity=ERROR if lost else WARNING if worse else NOTE, evidence=spots("path", one, other),
    )  # fmt: skip


def nvlinks(seats: Seats, a: NvLinks, b: NvLinks, notes: Notes) -> None:
    """Link by link: up or down, and errors that were counted since."""
    ours: dict[int, dict[int, NvLink]] = {}
    theirs: dict[int, dict[int, NvLink]] = {}
    for link in a:
        gpu = seats.to_b(link.gpu)
        if gpu is not None:
            ours.setdefault(gpu, {})[link.link] = link
    for link in b:
        if not seats.new(link.gpu):
            theirs.setdefault(link.gpu, {})[link.link] = link
    dark_a = {seats.to_b(g.gpu): g for g in a.gpus if g.all_inactive}
    dark_b = {g.gpu: g for g in b.gpus if g.all_inactive}
    for gpu in sorted(ours.keys() | theirs.keys()):
        one = ours.get(gpu) or _dark(gpu, dark_a.get(gpu), theirs.get(gpu))
        other = theirs.get(gpu) or _dark(gpu, dark_b.get(gpu), ours.get(gpu))
        _links(gpu, one, other, seats, notes)


def _dark(gpu: int, about: NvLinkGpu | None, like: dict[int, NvLink] | None) -> dict[int, NvLink]:
    """`all links are inActive` is said of a GPU in place of its rows."""
    if about is None:
        return {}
    return {n: NvLink(gpu=gpu, link=n, active=False, origin=about.origin) for n in like or ()}


def _links(gpu: int, ours: dict[int, NvLink], theirs: dict[int, NvLink], seats: Seats, notes: Notes) -> None:
    flipped: dict[bool, list[tuple[NvLink, NvLink]]] = {}
    for side, mine, others in (("A", ours, theirs), ("B", theirs, ours)):
        if mine.keys() - others.keys():
            notes.only("the state of NVLinks", side, f"GPU{gpu}")
    shared = sorted(ours.keys() & theirs.keys())
    for number in shared:
        one, other = ours[number], theirs[number]
        if notes.both("the state of NVLinks", f"GPU{gpu}", one.active, other.active) and one.active != other.active:
            flipped.setdefault(bool(other.active), []).append((one, other))
        _link(one, other, seats, notes)
    for up, found in flipped.items():
        _flipped(seats, gpu, up, found, len(shared), notes)


def _flipped(seats: Seats, gpu: int, up: bool, found: list[tuple[NvLink, NvLink]], count: int, notes: Notes) -> None:
    numbers = cpulist.render({other.link for _, other in found})
    what = f"NVLink {numbers} of GPU {gpu}" if len(found) == 1 else f"{len(found)} of {count} NVLinks of GPU {gpu}"
    many = f" ({numbers})" if len(found) > 1 else ""
    words = "came up" if up else "went down"
    if notes.mode == NODES:
        one = len(found) == 1
        words = f"{'is' if one else 'are'} {'up' if up else 'down'} on B, {'down' if up else 'up'} on A"
    subject = f"nvlink:{gpu}/{found[0][1].link}" if len(found) == 1 else seats.subject(gpu)
    notes.change(
        "nvlinks" if len(found) == count > 1 else "nvlink", subject, f"{what} {words}{many}", before="down" if up else "up", after="up" if up else "down",
        direction=BETTER if up else WORSE, severity=NOTE if up else ERROR, about=(seats.subject(gpu), f"gpu:{gpu}"),
        evidence=spots("active", *found[0]), extent=len(found),
    )  # fmt: skip


def _link(one: NvLink, other: NvLink, seats: Seats, notes: Notes) -> None:
    about = (seats.subject(other.gpu), f"gpu:{other.gpu}")
    name = f"NVLink {other.link} of GPU {other.gpu}"
    if one.active and other.active and one.speed_gbs and other.speed_gbs and one.speed_gbs != other.speed_gbs:
        worse = other.speed_gbs < one.speed_gbs
        notes.change(
            "nvlink-speed", other.subject, f"{name}: {notes.turn(f'{one.speed_gbs:g} GB/s', f'{other.speed_gbs:g} GB/s')}", about=about,
            before=f"{one.speed_gbs:g} GB/s", after=f"{other.speed_gbs:g} GB/s", direction=WORSE if worse else BETTER,
            severity=WARNING if worse else NOTE, evidence=spots("speed_gbs", one, other),
        )  # fmt: skip
    for field in _COUNTERS:
        before, after = getattr(one, field), getattr(other, field)
        if before is None or after is None or before == after:
            continue
        words = f"{name}: {field.replace('_', ' ')} errors {notes.turn(before, after)}"
        if field == "recovery_failed" or grew(min(before, after), max(before, after)):
            worse = after > before
            notes.change(
                "nvlink-errors", other.subject, words, before=str(before), after=str(after), direction=WORSE if worse else BETTER,
                severity=WARNING if worse else NOTE, about=about, evidence=spots(field, one, other),
            )  # fmt: skip
        else:
            notes.vary("counter", other.subject, words)
