"""Inactive NVLinks: read from the link listing, or inferred from a matrix whose counts do not fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.nvlink_matrix import MatrixFault, matrix_faults
from gpudoctor.checkers.nvlink_view import (
    Card,
    Links,
    cards,
    computing,
    far_ends,
    left_out,
    listing,
    many,
    nvl_pairs,
    repair_steps,
    same_everywhere,
)
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.kernel import UnsetLinks
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, CannotTell, Cause, Evidence, Finding, Step

DOWN = Cause(
    "GD401",
    "nvlink-down",
    "NVLinks that should be up are inactive",
    "error; a PCIe card with every link inactive: note",
    "On an SXM board every NVLink is wired to a switch or to a neighbour and trains when the driver loads, so an inactive one "
    "is a fault of that link, of one of its two ends, or of the fabric's set-up. NCCL counts the links that are up and leaves "
    "out the others without a word: one of 18 down costs every ring through that GPU a link's share, and a GPU without any "
    "falls back to PCIe and drags the whole job to that rate. A card that takes a bridge lists its links as inactive when no "
    "bridge is fitted, which is no fault; some of them up and some down is a bridge that does not sit. Cards are compared only "
    "with cards of the same device id. Boards with fewer links by design are in order: H800 and A800 have eight, an H100 PCIe "
    "card shows 12 of its 17 or 18 up with all three bridges, boards of four GPUs have NV4 or NV6 per pair, and a V100 cube "
    "mesh mixes NV1, NV2 and none. A link that sleeps to save power is up.",
    "nvidia-smi nvlink -s; nvidia-smi topo -m",
    "Reset, then power cycle, then swap to see whether the fault stays with the GPU or the board. No option of nvidia-smi "
    "switches links on.",
)


class NvLinkDown(BaseChecker):
    """Judges each GPU by its own link listing first; the matrix speaks where no listing does."""

    name: ClassVar[str] = "nvlink-down"
    causes = (DOWN,)
    any_of = (NvLinks, Pairs, UnsetLinks)
    wants = (Gpus, Platform)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        links, pairs, gpus = facts.get(NvLinks), facts.get(Pairs), facts.get(Gpus)
        known = computing(cards(gpus, links, pairs))
        states = {i: listing(links, i) for i in known}
        said: set[int] = set()
        aside = left_out(cards(gpus, links, pairs))
        platform = facts.get(Platform)
        vm = platform is not None and platform.entry.vm is True
        alike = same_everywhere(known, states)
        for index, card in known.items():
            state = states[index]
            if state.down and not state.up and state.elided and not (state.about is not None and state.about.all_inactive):
                said.add(index)
                yield from _named_inactive(card, state, pairs, aside)
            elif state.all_inactive:
                yield from _all_inactive(card, known, states, pairs, gpus, aside)
                said.add(index)
            elif state.down:
                said.add(index)
                if far_ends(card, known, states, pairs):
                    continue
                yield from _some_inactive(card, state, alike, vm, pairs, aside)
            elif short := _rows_lacking(card, known, states):
                said.add(index)
                yield _too_few_rows(card, state, short, pairs)
        listed = {i for i, s in states.items() if s.up and not s.elided} | said
        for fault in matrix_faults(pairs, known, vm):
            if set(fault.gpus) & listed:
                continue
            yield _from_matrix(fault, known, aside)
        if not said and facts.get(UnsetLinks) is not None:
            from gpudoctor.checkers.nvlink_log import unset_links  # few logs have it

            yield from unset_links(DOWN.slug, facts)


def _switched(card: Card, pairs: Pairs | None) -> bool:
    """Behind NVSwitches? Their hosts reset all GPUs together. Pairs of a mesh of four have a third of the links."""
    counts = {p.nvlinks for p in nvl_pairs(pairs) if p.nvlinks}
    if card.part is None or card.part.links is None or not card.required:
        return False
    return not counts or max(counts) >= card.part.links - 2


def _all_inactive(
    card: Card,
    known: dict[int, Card],
    states: dict[int, Links],
    pairs: Pairs | None,
    gpus: Gpus | None,
    aside: str,
) -> Iterator[Finding | CannotTell]:
    state = states[card.index]
    evidence = _evidence(state)
    alone = gpus is not None and gpus.complete and len(gpus) == 1 and (gpus.attached or 1) == 1
    if card.required and not alone:
        yield Finding(
            DOWN.slug,
            ERROR,
            card.subject,
            f"{card.label} ({card.words}) has no active NVLink. On its board every link must be up, so all its traffic with "
            f"other GPUs goes over PCIe." + aside,
            evidence,
            cost=_cost(card, card.part.links if card.part is not None else None),
            remediation=repair_steps(card, _switched(card, pairs)),
        )
    elif card.required:
        yield Finding(
            DOWN.slug,
            NOTE,
            card.subject,
            f"{card.label} ({card.words}) has no active NVLink. It is the only GPU here, so there is nothing that it could "
            "reach over NVLink; a GPU given alone to a virtual machine has its links switched off.",
            evidence,
        )
    elif card.part is not None and not card.part.nvlink:
        return
    elif card.part is None and _on_a_board(card, states):
        yield Finding(
            DOWN.slug,
            ERROR,
            card.subject,
            f"{card.label} ({card.words}) has no active NVLink, while every other GPU here has all of its links up. Bridges join cards by "
            "twos, so this is a board, on which every link must be up." + aside,
            evidence,
            LIKELY,
            remediation=repair_steps(card, _switched(card, pairs)),
        )
    elif card.part is not None and card.part.form == "superchip":
        yield Finding(
            DOWN.slug,
            NOTE,
            card.subject,
            f"{card.label} ({card.words}) has every NVLink inactive. On a superchip that stands alone this is normal: its NVLinks lead "
            "to other superchips of a rack, and the CPU is reached over NVLink-C2C, which is not in this list.",
            evidence,
        )
    else:
        unknown = card.part is None
        yield Finding(
            DOWN.slug,
            NOTE,
            card.subject,
            f"{card.label} ({card.words}) has every NVLink inactive: no bridge is fitted, or it is not seated.",
            evidence,
            POSSIBLE if unknown else CERTAIN,
            remediation=(
                Step(
                    "If a bridge is fitted, power off and press it home on both cards; without one this is normal",
                    None,
                    "hardware",
                    f"nvidia-smi nvlink -s -i {card.index}",
                ),
            ),
        )


def _on_a_board(card: Card, states: dict[int, Links]) -> bool:
    """Of a part that nobody names: all others, an odd number or more than two bridges join, have their links up alike."""
    others = [s for i, s in states.items() if i != card.index]
    counts = {len(s.up) for s in others}
    return len(others) > 2 and len(others) % 2 == 1 and len(counts) == 1 and counts != {0} and not any(s.down for s in others)


def _named_inactive(card: Card, state: Links, pairs: Pairs | None, aside: str) -> Iterator[Finding | CannotTell]:
    """Only some links are named, all of them inactive: of the others nothing is known, be it that DCGM complains of a few."""
    numbers = many(x.link for x in state.down)
    whole = card.part.links if card.part is not None else None
    if not card.required and (whole is None or len(state.down) < whole):
        why = "whether any other is up is not in the input, and a card without a bridge lists them all so; needed is nvidia-smi nvlink -s"
        if card.part is None or card.part.nvlink:
            yield CannotTell(DOWN.slug, f"{numbers} inactive: {why}", card.subject)
    elif not card.required:
        yield from _all_inactive(card, {}, {card.index: state}, pairs, None, aside)
    else:
        yield Finding(
            DOWN.slug,
            ERROR,
            card.subject,
            f"{card.label} ({card.words}): {numbers} inactive. On its board every link must be up." + aside,
            _evidence(state),
            cost=_cost(card, len(state.down), max((whole or 0) - len(state.down), 0)),
            remediation=repair_steps(card, _switched(card, pairs)),
        )


def _some_inactive(
    card: Card, state: Links, alike: bool, vm: bool, pairs: Pairs | None, aside: str
) -> Iterator[Finding | CannotTell]:
    numbers = many(x.link for x in state.down)
    total = len(state.up) + len(state.down)
    expected = card.part.links if card.part is not None else None
    if expected is not None and len(state.up) >= expected and not card.required:
        return  # a bridged card with all its bridges: the rest of the links lead nowhere
    if alike and card.part is None and not card.required:
        yield CannotTell(
            DOWN.slug, f"{numbers} inactive on every GPU alike, and the part is not known: a fault or its design", card.subject
        )
        return
    if alike and vm and card.part is not None and card.part.nvlink_gen == 2:
        yield CannotTell(
            DOWN.slug,
            f"{numbers} inactive, as many on every GPU of this virtual machine: they may lead to GPUs outside it",
            card.subject,
        )
        return
    why = "On its board every link must be up." if card.required else "The others are up, so this is no missing bridge."
    whole = f"{len(state.up)} of {total}" if expected is None or not card.required else f"{len(state.up)} of {expected}"
    yield Finding(
        DOWN.slug,
        ERROR,
        card.subject,
        f"{card.label} ({card.words}): {numbers} inactive, {whole} up. {why}" + aside,
        _evidence(state),
        CERTAIN if card.part is not None or card.required else LIKELY,
        cost=_cost(card, len(state.down), len(state.up)),
        remediation=repair_steps(card, _switched(card, pairs)) if card.required else _reseat(card),
    )


def _reseat(card: Card) -> tuple[Step, ...]:
    verify = f"nvidia-smi nvlink -s -i {card.index}"
    return (
        Step(
            "Power off and press the NVLink bridge home on both cards: coolers and cases often keep it from sitting",
            None,
            "hardware",
            verify,
        ),
        Step("If the same links stay down, try another bridge, then swap the cards' places", None, "hardware", verify),
    )


def _rows_lacking(card: Card, known: dict[int, Card], states: dict[int, Links]) -> int:
    """How many link rows fewer than equal parts a GPU lists: only where its listing is whole for sure.

    Whole: rows 0 to n without a gap, and another GPU's block follows, so that no cut ended it.
    """
    state = states[card.index]
    rows = [x.link for x in state.up]
    if not rows and (state.about is None or not state.about.no_nvlink or card.mig):
        return 0  # with MIG on, links are not listed
    last = max((i for i, s in states.items() if s.up or s.down or s.all_inactive), default=card.index)
    if card.kind is None or state.elided or rows != list(range(len(rows))) or card.index == last:
        return 0
    peers = [
        len(s.up) for i, s in states.items() if i != card.index and known[i].kind == card.kind and s.up and not s.elided
    ]
    usual = max(set(peers), key=peers.count) if peers else 0
    return usual - len(rows) if peers.count(usual) >= 2 and usual > len(rows) else 0


def _too_few_rows(card: Card, state: Links, short: int, pairs: Pairs | None) -> Finding:
    return Finding(
        DOWN.slug,
        ERROR,
        card.subject,
        f"{card.label} ({card.words}) lists {len(state.up) or 'no'} NVLinks where GPUs of the same part list {len(state.up) + short}.",
        _evidence(state),
        LIKELY,
        cost=_cost(card, short, len(state.up)),
        remediation=repair_steps(card, _switched(card, pairs)),
    )


def _from_matrix(fault: MatrixFault, known: dict[int, Card], aside: str) -> Finding:
    card = known[fault.gpus[0]]
    subject = (
        "host" if fault.whole else card.subject if len(fault.gpus) == 1 else f"pair:{fault.gpus[0]}-{fault.gpus[1]}"
    )
    look = Step("See which links are down", "nvidia-smi nvlink -s")
    return Finding(
        DOWN.slug,
        ERROR,
        subject,
        fault.message + aside,
        fault.evidence,
        fault.confidence,
        cost=_cost(card, fault.down, fault.up) if fault.down else None,
        remediation=(look, *(repair_steps(card, fault.switched) if card.required or fault.switched else _reseat(card))),
    )


def _evidence(state: Links) -> tuple[Evidence, ...]:
    """nvidia-smi's own sentence says more than a row of zeros; without it, the rows."""
    if state.about is not None and state.about.all_inactive:
        return (state.about.at("all_inactive"), *(x.at("active") for x in state.down[:1]))
    if state.down:
        return tuple(x.at("active") for x in state.down)
    if not state.up and state.about is not None:
        return (state.about.at("no_nvlink"),)
    return tuple(x.at("active") for x in state.up[-1:])


def _cost(card: Card, down: int | None, up: int = 0) -> str | None:
    """In GB/s each way, from the part's rate per link."""
    rate = card.part.link_gbs if card.part is not None else None
    if rate is None or not down:
        return None
    return f"{down * rate:.0f} of {(down + up) * rate:.0f} GB/s each way of this GPU's NVLink bandwidth is lost"
