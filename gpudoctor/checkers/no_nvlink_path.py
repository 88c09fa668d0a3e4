"""NVLink-capable GPUs of a pair that talk over PCIe: no bridge, a partial mesh, or a hypervisor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import pcie
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.nvlink_view import PCIE_PATHS, Card, cards, computing, left_out, listing, nvl_pairs
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import NvLinks, Pair, Pairs
from gpudoctor.model import CERTAIN, LIKELY, NOTE, CannotTell, Cause, Finding, Step

NO_NVLINK = Cause(
    "GD404",
    "no-nvlink-path",
    "Two GPUs that have NVLink talk over PCIe",
    "note",
    "Both GPUs of the pair can have NVLink, but the path between them is PCIe. Mostly that is the design: PCIe cards without a "
    "bridge, cards bridged in pairs, or the cube mesh of eight V100, where each GPU has NVLink to only four or so of the others. A "
    "ring over all GPUs then runs at the rate of its slowest hop, which is the PCIe one. Where the board joins all GPUs (SXM "
    "since A100), it is a consequence of links that are down or of a fabric that is not set up, and that is reported. A PCIe-only "
    "source (topo -mp, NVML's common ancestor) proves nothing.",
    "nvidia-smi topo -m; nvidia-smi nvlink -s",
    "Fit bridges where the cards take them, or keep a job on the GPUs that are joined.",
)


class NoNvlinkPath(BaseChecker):
    """Capability comes from the part table, or from the pair's GPUs having NVLink to others on this host."""

    name: ClassVar[str] = "no-nvlink-path"
    needs = (Pairs,)
    wants = (Gpus, NvLinks, Platform)
    causes = (NO_NVLINK,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        pairs, links = facts[Pairs], facts.get(NvLinks)
        every = cards(facts.get(Gpus), links, pairs)
        known = computing(every)
        platform = facts.get(Platform)
        vm = platform is not None and platform.entry.vm is True
        joined = {i for p in nvl_pairs(pairs) for i in (p.a, p.b)}
        for pair in pairs:
            if pair.a not in known or pair.b not in known or pair.path not in PCIE_PATHS:
                continue
            a, b = known[pair.a], known[pair.b]
            able = [_capable(c, joined, known) for c in (a, b)]
            if not all(able):
                continue
            if pair.pcie_only:
                yield CannotTell(
                    NO_NVLINK.slug, "the source shows only PCIe paths; needed is nvidia-smi topo -m", pair.subject
                )
                continue
            inactive = all(listing(links, c.index).all_inactive for c in (a, b))
            message, steps = _reason(pair, a, b, joined, inactive, vm)
            proven = all(c.part is not None for c in (a, b)) or {pair.a, pair.b} <= joined
            yield Finding(
                NO_NVLINK.slug,
                NOTE,
                pair.subject,
                message + left_out(every),
                (pair.at("path"),),
                CERTAIN if proven else LIKELY,
                _cost(a, b),
                steps,
            )


def _capable(card: Card, joined: set[int], known: dict[int, Card]) -> bool:
    if card.part is not None:
        return card.part.nvlink
    if card.index in joined or card.required:
        return True
    # An unknown part of which another sample on this host has NVLink.
    return card.kind is not None and any(known[i].kind == card.kind for i in joined if i in known)


def _reason(
    pair: Pair, a: Card, b: Card, joined: set[int], inactive: bool, vm: bool
) -> tuple[str, tuple[Step, ...]]:
    head = f"GPU{pair.a} and GPU{pair.b} can have NVLink, but their traffic takes PCIe ({pair.path}): "
    look = Step("See which links are up", "nvidia-smi nvlink -s")
    if _unlike(a, b):
        return (
            f"GPU{pair.a} and GPU{pair.b} have NVLink each, but neither a board nor a bridge joins parts so unlike "
            f"({a.words}, {b.words}): their traffic takes PCIe ({pair.path}).",
            (Step("Nothing to repair. A job on GPUs of one part runs at NVLink's rate where these are joined", "nvidia-smi topo -m"),),
        )
    whole_board = a.required and b.required and _full_mesh_part(a)
    if whole_board:
        end = " A hypervisor that hands out GPUs one by one can be the reason." if vm else ""
        return head + "on their board NVLink should join them." + end, (look,)
    if {pair.a, pair.b} <= joined or a.required:
        return (
            head + "each has NVLink to other GPUs, not to this one. Bridged pairs and partial meshes are built like that.",
            (Step("Nothing to repair. A job on GPUs that are joined runs at NVLink's rate", "nvidia-smi topo -m"),),
        )
    if inactive:
        return (
            head + "all their NVLinks are inactive, so no bridge is fitted between them, or it is not seated.",
            (Step("Fit a bridge between the two, if the server has room for it", None, "hardware", "nvidia-smi nvlink -s"),),
        )
    if vm:
        return head + "no bridge is fitted, or the hypervisor does not pass it on.", (look,)
    return head + "no bridge is fitted between them, as far as the matrix shows.", (look,)


def _unlike(a: Card, b: Card) -> bool:
    """Generations of NVLink do not talk to each other, nor a module on a board to a card in a slot."""
    one, other = a.part, b.part
    return one is not None and other is not None and (one.nvlink_gen, one.form) != (other.nvlink_gen, other.form)


def _full_mesh_part(card: Card) -> bool:
    """Boards since A100 join all GPUs; a V100 cube does not."""
    return card.part is None or (card.part.nvlink_gen or 0) >= 3


def _cost(a: Card, b: Card) -> str | None:
    """What the pair could have over NVLink, and what PCIe gives it."""
    rates = [pcie.gbs(c.gpu.max_speed_gts, c.gpu.max_width) for c in (a, b) if c.gpu is not None]
    known = [r for r in rates if r is not None]
    part = a.part
    if len(known) < 2 or part is None or _unlike(a, b) or part.link_gbs is None or not part.pair_links:
        return None
    return pcie.cost(min(known), part.link_gbs * max(part.pair_links))
