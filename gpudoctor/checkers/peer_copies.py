"""Copies of p2pBandwidthLatencyTest: pairs that CUDA gives no peer access, and peer copies that are slower than their links.

Loaded where the program's output is in the input; p2p and busbw say what it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudoctor import pcie
from gpudoctor.checkers.nvlink_view import Card
from gpudoctor.expect.opinion import FAIL, WARN, WIRE_FAIL, WIRE_WARN
from gpudoctor.facts.bandwidth import PeerCopies, PeerCopy
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, WARNING, CannotTell, Evidence, Finding, Gain, Step, severity_rank
from gpudoctor.parts import Part, find
from gpudoctor.record import Record

NEAR = ("PIX", "PXB")  # below one PCIe switch: what a peer copy takes there never leaves it
MAX_PAIRS = 3  # slow pairs that are said one by one
SLUG = "busbw-low"


class Seen(Record):
    """One measured pair with the host's own view of it."""

    copy: PeerCopy
    gpus: tuple[Gpu | None, Gpu | None]
    pair: Pair | None  # of nvidia-smi's matrix

    @property
    def indices(self) -> tuple[int, int]:
        """nvidia-smi's numbers where they are known, else CUDA's; the smaller first."""
        a, b = (card.index for card in self.cards)
        return a, b

    @property
    def parts(self) -> list[Part | None]:
        """What the two GPUs are, by the host's list or by the program's own."""
        return [card.part for card in self.cards]

    @property
    def cards(self) -> tuple[Card, Card]:
        """Both GPUs, by their numbers."""
        known = [g.index for g in self.gpus if g is not None and g.index is not None]
        numbers = known if len(known) == 2 else [self.copy.a, self.copy.b]
        made = [_card(i, g, n) for i, g, n in zip(numbers, self.gpus, (self.copy.a_name, self.copy.b_name), strict=True)]
        a, b = sorted(made, key=lambda card: card.index)
        return a, b

    @property
    def board(self) -> bool:
        """Nobody looked at the way, and both are of boards that join all their GPUs by NVLink (those of Volta join some)."""
        return self.path is None and all(p is not None and p.required and (p.nvlink_gen or 0) >= 3 for p in self.parts)

    @property
    def path(self) -> str | None:
        return self.pair.path if self.pair is not None and not self.pair.pcie_only else None


def seen(copies: Iterable[PeerCopy], gpus: Gpus | None, pairs: Pairs | None) -> list[Seen]:
    """CUDA's numbers are nvidia-smi's only by chance, so a GPU is found by its address."""
    out = []
    for copy in copies:
        a, b = (gpus.by_bdf(bdf) if gpus is not None else None for bdf in (copy.a_bdf, copy.b_bdf))
        indices = [g.index for g in (a, b) if g is not None and g.index is not None]
        out.append(Seen(copy, (a, b), pairs.of(indices[0], indices[1]) if pairs is not None and len(indices) == 2 else None))
    return out


def refusals(facts: FactView) -> Iterator[tuple[Pair, Card, Card, bool]]:
    """Pairs without peer access that the driver's own matrix does not speak of: as a pair, its cards, joined by NVLink?

    The evidence stands in the pair's `p2p_unstated`.
    """
    for one in seen(facts.get(PeerCopies) or (), facts.get(Gpus), facts.get(Pairs)):
        if one.copy.access is not False or _stated(one.pair):
            continue
        a, b = one.indices
        pair = Pair(a=a, b=b, path=one.path, origin={"p2p_unstated": one.copy.at("access")})
        yield pair, *one.cards, one.board or one.path == "NVL"


def granted(facts: FactView) -> Iterator[tuple[Seen, Card, Card]]:
    """Pairs with peer access that the driver's own matrix does not speak of."""
    for one in seen(facts.get(PeerCopies) or (), facts.get(Gpus), facts.get(Pairs)):
        if one.copy.access and not _stated(one.pair) and one.path != "NVL":
            yield one, *one.cards


def _stated(pair: Pair | None) -> bool:
    return pair is not None and any((pair.p2p_read, pair.p2p_write, pair.p2p_unstated))


def _card(index: int, gpu: Gpu | None, name: str | None) -> Card:
    name = (gpu.name if gpu is not None else None) or name
    return Card(index, gpu, name, find(gpu.device_id if gpu is not None else None, name))


class _Slow(Record):
    one: Seen
    severity: str
    expected: float
    words: str  # what is expected, for a reader
    certain: bool
    evidence: tuple[Evidence, ...]


def slow_copies(facts: FactView) -> Iterator[Finding | CannotTell]:
    """Peer copies against what the same two GPUs reach through host memory, and against their links."""
    measured = [one for one in seen(facts.get(PeerCopies) or (), facts.get(Gpus), facts.get(Pairs)) if one.copy.on_gbs is not None]
    able = [one for one in measured if one.copy.access is not False]
    if not able:
        why = "none of the measured pairs has peer access" if measured else "p2pBandwidthLatencyTest measured no pair one way with peer access"
        yield CannotTell(SLUG, f"{why}, so that no copy can be held against a link")
        return
    judged = 0
    slow: list[_Slow] = []
    for one in able:
        opinions = [o for o in (_by_host(one), _by_wire(one, facts.get(PciTree))) if o is not None]
        judged += bool(opinions)
        bad = [o for o in opinions if isinstance(o, _Slow)]
        if bad:
            slow.append(min(bad, key=lambda s: severity_rank(s.severity)))
    if not judged:
        yield CannotTell(SLUG, "p2pBandwidthLatencyTest's copies through host memory, or the pairs' paths, are needed to judge its peer copies")
    groups: dict[tuple[str, str | None], list[_Slow]] = {}
    for found in slow:
        groups.setdefault((found.severity, found.one.path), []).append(found)
    for same in groups.values():
        if len(same) > MAX_PAIRS:
            yield _finding(min(same, key=lambda s: (s.one.copy.on_gbs or 0) / s.expected), same, len(able))
        else:
            yield from (_finding(found, [found], len(able)) for found in same)


def lost(facts: FactView) -> dict[frozenset[str | None], PeerCopy]:
    """Peer copies over PCIe that lose most of what the way could carry, by the addresses of the two GPUs.

    Far from each other, on some processors, peers lose much with nothing in their way: there only a collapse counts.
    """
    out: dict[frozenset[str | None], PeerCopy] = {}
    for one in seen(facts.get(PeerCopies) or (), facts.get(Gpus), facts.get(Pairs)):
        on, off = one.copy.on_gbs, one.copy.off_gbs
        if one.copy.access is False or on is None or one.path == "NVL" or None in (one.copy.a_bdf, one.copy.b_bdf):
            continue
        if one.path is None and any(p is not None and p.required for p in one.parts):
            continue  # a board's GPUs: they copy over NVLink
        collapsed = bool(off) and on / (off or 1) < WIRE_FAIL.value
        opinions = (_by_host(one), _by_wire(one, facts.get(PciTree))) if one.path in NEAR else ()
        if collapsed or any(isinstance(o, _Slow) and o.severity == ERROR for o in opinions):
            out[frozenset((one.copy.a_bdf, one.copy.b_bdf))] = one.copy
    return out


def said(copy: PeerCopy) -> str:
    """The measured loss, for another finding's cost."""
    through = f" and {copy.off_gbs:.3g} GB/s through host memory" if copy.off_gbs else ""
    return f"measured: {copy.on_gbs:.3g} GB/s from GPU to GPU{through}"


def _by_host(one: Seen) -> _Slow | bool | None:
    """A copy through host memory takes both GPUs' PCIe links, so these carry at least its rate. None: not known.

    Across host bridges or sockets the processor limits what peers may send each other, on some far below that: it is then
    worth saying, and no fault of a link.
    """
    on, off = one.copy.on_gbs, one.copy.off_gbs
    if on is None or not off:
        return None
    share = on / off
    near = one.path == "NVL" or one.path in NEAR
    if share >= (WARN.value if near else FAIL.value):
        return True
    words = "that the same two GPUs reach through host memory"
    return _Slow(one, ERROR if near and share < FAIL.value else WARNING, off, words, near, (one.copy.at("on_gbs"), one.copy.at("off_gbs")))


def _by_wire(one: Seen, tree: PciTree | None) -> _Slow | bool | None:
    wire, words, evidence = _wire(one, tree)
    if wire is None or one.copy.on_gbs is None:
        return None
    share = one.copy.on_gbs / wire
    if share >= WIRE_WARN.value:
        return True
    return _Slow(one, ERROR if share < WIRE_FAIL.value else WARNING, wire, words, True, (one.copy.at("on_gbs"), *evidence))


def _wire(one: Seen, tree: PciTree | None) -> tuple[float | None, str, tuple[Evidence, ...]]:
    """GB/s each way of what joins the two: NVLinks, or the narrower PCIe link below a common switch."""
    if one.pair is not None and one.path == "NVL" and one.pair.nvlinks:
        rates = [p.link_gbs for p in one.parts if p is not None and p.link_gbs is not None]
        if len(rates) == 2:
            return one.pair.nvlinks * min(rates), f"of {one.pair.nvlinks} NVLinks", (one.pair.at("path"),)
    if one.board:
        least = [(min(p.pair_links), p.link_gbs) for p in one.parts if p is not None and p.pair_links and p.link_gbs]
        if len(least) == 2:
            count, rate = min(least)
            return count * rate, f"of the {count} NVLinks or more that join any two GPUs of such a board", ()
    if one.path in NEAR:
        links = [_link(g, tree) for g in one.gpus]
        rates = [r for r, _ in links if r is not None]
        if len(rates) == 2:
            narrow = min(links, key=lambda x: x[0] or 0)
            return narrow[0], f"of the narrower PCIe link, {narrow[1]}", tuple(g.at("max_width") for g in one.gpus if g is not None)
    return None, "", ()


def _link(gpu: Gpu | None, tree: PciTree | None) -> tuple[float | None, str]:
    """What both ends of the GPU's link allow."""
    if gpu is None:
        return None, ""
    ports = [p for p in (tree.ancestors(gpu.bdf)[:1] if tree is not None else ()) if not p.virtual]
    speeds = [s for s in (gpu.max_speed_gts, *(p.max_speed_gts for p in ports)) if s is not None]
    widths = [w for w in (gpu.width or gpu.max_width, *(p.max_width for p in ports)) if w is not None]
    if not speeds or not widths:
        return None, ""
    return pcie.gbs(min(speeds), min(widths)), pcie.name(min(speeds), min(widths))


def _finding(worst: _Slow, same: list[_Slow], of: int) -> Finding:
    one, rate = worst.one, worst.one.copy.on_gbs or 0.0
    a, b = one.indices
    joined = f" ({'NV' + str(one.pair.nvlinks) if one.pair is not None and one.path == 'NVL' else one.path})" if one.path else ""
    who = f"GPU{a} and GPU{b}{joined}"
    if len(same) > 1:
        who = f"{len(same)} of {of} pairs, the slowest GPU{a} and GPU{b}{joined},"
    share = 100 * rate / worst.expected
    far = "" if worst.certain else " Across host bridges some processors pass no more between peers; ACS and the IOMMU look the same."
    return Finding(
        SLUG,
        worst.severity,
        f"pair:{a}-{b}" if len(same) == 1 else "host",
        f"Peer copies between {who} reach {rate:.3g} GB/s, {share:.0f} % of the {worst.expected:.3g} GB/s {worst.words}.{far}",
        tuple(dict.fromkeys(e for s in same[:4] for e in s.evidence)),
        CERTAIN if worst.certain else LIKELY,
        f"{rate:.3g} of {worst.expected:.3g} GB/s",
        _steps(one, a, b),
        Gain(round(rate, 1), round(worst.expected, 1), "GB/s"),
    )


def _steps(one: Seen, a: int, b: int) -> tuple[Step, ...]:
    again = Step("Measure again with nothing else running on these GPUs", f"nvidia-smi pmon -c 1 -i {a},{b}", verify="p2pBandwidthLatencyTest")
    if one.path == "NVL" or one.board:
        return (
            again,
            Step("Look at the NVLinks of both: a link that is down, or errors", "; ".join(f"nvidia-smi nvlink -s -i {i}; nvidia-smi nvlink -e -i {i}" for i in (a, b))),
        )  # fmt: skip
    return (
        again,
        Step(
            "See whether ACS redirects peer traffic to the processor, or the IOMMU translates it: both show in the PCI tree and the boot options",
            "sudo lspci -vv -D > lspci.txt; gpudoctor check --live --from lspci.txt --select acs,iommu,pcie-width,pcie-upstream",
        ),
        Step(
            "Let NCCL go through host memory for one run: if that is the faster one, keep it until the cause is found",
            "NCCL_P2P_DISABLE=1 all_reduce_perf -b 64M -e 1G -f 2 -g 2; all_reduce_perf -b 64M -e 1G -f 2 -g 2",
        ),
    )
