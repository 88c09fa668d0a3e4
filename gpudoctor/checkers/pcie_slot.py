"""GD212 slot-width and GD213 slot-speed: the port gives less than the card could use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import pcie
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.gpu_links import (
    GpuLink,
    Reading,
    best_speed,
    gpu_links,
    hidden,
    look_command,
    no_gpu,
    port_name,
    seen,
)
from gpudoctor.checkers.traffic import between_gpus, carries
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Finding, Step, Threshold

NARROW = Threshold(
    "lanes at or below which a slot that carries traffic between GPUs is an error", 4, "lanes",
    "our choice: four lanes are a quarter of a x16 card's rate", "2026-11",
)  # fmt: skip

SLOT_WIDTH = Cause(
    "GD212", "slot-width", "The slot gives a GPU fewer lanes than the card has",
    "error at four lanes or fewer where traffic between GPUs takes the link; otherwise warning",
    "Long slots are often wired with eight or four lanes, or lose lanes when a neighbour slot or an M.2 drive is used "
    "(bifurcation). The port says so itself in its capability register, so this is the board's layout and not a fault of the "
    "card. Cards made with eight lanes (RTX 4060, for one) are compared with what they have. NCCL uses a GPU in a narrow slot "
    "as any other: there is no least width, the ring only gets as slow as its narrowest link.",
    "max_link_width of the port above the GPU (sysfs), or LnkCap of that port (lspci -vv)",
    "Move the card to a slot wired to the processor with all lanes.",
    (NARROW,),
)  # fmt: skip

SLOT_SPEED = Cause(
    "GD213", "slot-speed", "The slot's best PCIe generation is under the card's",
    "note; warning where another GPU of the same part has a better port",
    "Board and processor set the highest generation of a port; firmware may hold it lower. A card runs at the lesser of the "
    "two. It is a fact about the machine, worth acting on only where a better port is free or a firmware setting holds it down.",
    "max_link_speed of card and port (sysfs), LnkCap of both (lspci -vv), nvidia-smi -q Device Max and Host Max",
    "Firmware setting of the slot's link speed, or a port of the higher generation.",
)  # fmt: skip

_WANTS = (Gpus, PciTree, Pairs, Platform)


class SlotWidth(BaseChecker):
    """Lanes of the port against lanes of the card."""

    name: ClassVar[str] = "slot-width"
    any_of = (PciTree, Gpus)
    wants = _WANTS
    causes = (SLOT_WIDTH,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from no_gpu("slot-width", facts)
        for link in gpu_links(facts):
            if hidden(link, facts):
                continue
            card, port = link.card_max("width"), link.port_max("width")
            if card is None or port is None:
                end = "card" if card is None else "port above it"
                yield CannotTell("slot-width", f"how many lanes the {end} has is not in the input", link.subject)
            elif port.value < card.value:
                yield _slot_width(link, card, port, between_gpus(link.gpu, facts))


def _slot_width(link: GpuLink, card: Reading, port: Reading, carrying: bool | None) -> Finding:
    given, wanted = int(port.value), int(card.value)
    # What another slot would give: the card's own lanes at the card's own rate.
    own = link.card_max("speed_gts")
    before, after = pcie.gbs(best_speed(link), given), pcie.gbs(own.value if own else None, wanted)
    verify = f"cat /sys/bus/pci/devices/{link.bdf}/current_link_width   (wants {wanted})"
    return Finding(
        "slot-width",
        ERROR if carrying and given <= NARROW.value else WARNING,
        link.subject,
        f"{link.label}: the port {port_name(link)} gives {given} of the card's {wanted} lanes. Here {carries(carrying)}.",
        seen(port, card),
        CERTAIN,
        pcie.cost(before, after),
        (
            Step("Move the card to a slot with all lanes from the processor; the board's manual says which, and whether "
                 "filling it halves another slot.", None, "hardware", verify),
            Step("If the slot has the lanes on paper: firmware setup, PCIe bifurcation of this slot to x16, and look "
                 "whether an M.2 drive shares them.", None, "disruptive", verify),
        ),
        pcie.gain(before, after),
    )  # fmt: skip


class SlotSpeed(BaseChecker):
    """Best generation of the port against that of the card."""

    name: ClassVar[str] = "slot-speed"
    any_of = (PciTree, Gpus)
    wants = _WANTS
    causes = (SLOT_SPEED,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from no_gpu("slot-speed", facts)
        links = [link for link in gpu_links(facts) if not hidden(link, facts)]
        for link in links:
            card, port = link.card_max("speed_gts"), link.port_max("speed_gts")
            better = _driver_says_better(link, links) if port is None else None
            if better is not None:
                yield _under_its_peer(link, better)
            elif card is None or port is None:
                end = "card" if card is None else "port above it"
                yield CannotTell("slot-speed", f"the best rate of the {end} is not in the input", link.subject)
            elif port.value < card.value:
                yield _slot_speed(link, card, port, _better_off(link, port.value, links))


def _better_off(link: GpuLink, speed: float, links: list[GpuLink]) -> GpuLink | None:
    """A peer of the same part on a faster port."""
    for other in links:
        port = other.port_max("speed_gts")
        if port is not None and port.value > speed and other.gpu.device_id == link.gpu.device_id is not None:
            return other
    return None


def _driver_says_better(link: GpuLink, links: list[GpuLink]) -> GpuLink | None:
    """A GPU of the same part for which the driver's maximum, the lesser of card and slot, is higher."""
    own, gpu = link.gpu.max_speed_gts, link.gpu
    for other in links if own is not None else ():
        same = other.gpu.device_id == gpu.device_id if gpu.device_id and other.gpu.device_id else other.gpu.name == gpu.name is not None
        if same and (other.gpu.max_speed_gts or 0) > (own or 0):
            return other
    return None


def _under_its_peer(link: GpuLink, peer: GpuLink) -> Finding:
    own, best = link.gpu.max_speed_gts or 0.0, peer.gpu.max_speed_gts or 0.0
    width = link.now("width") or link.card_max("width")
    lanes = int(width.value) if width else None
    before, after = pcie.gbs(own, lanes), pcie.gbs(best, lanes)
    return Finding(
        "slot-speed",
        WARNING,
        link.subject,
        f"{link.label}: card and slot together reach {pcie.name(own)} at best, {peer.gpu.label} of the same part reaches {pcie.name(best)}.",
        (link.gpu.at("max_speed_gts"), peer.gpu.at("max_speed_gts")),
        LIKELY,
        pcie.cost(before, after),
        (
            Step("Firmware setup: link speed of this slot to Auto or the highest generation.", None, "disruptive", look_command(link)),
            Step(f"Or swap slots: the one of {peer.gpu.label} is faster; slots of the chipset are often a generation behind.", None, "hardware"),
        ),
        pcie.gain(before, after),
    )


def _slot_speed(link: GpuLink, card: Reading, port: Reading, peer: GpuLink | None) -> Finding:
    width = link.now("width") or link.card_max("width")
    lanes = int(width.value) if width else None
    before, after = pcie.gbs(port.value, lanes), pcie.gbs(card.value, lanes)
    beside = f" {peer.label} has a faster one." if peer else ""
    return Finding(
        "slot-speed",
        WARNING if peer else NOTE,
        link.subject,
        f"{link.label}: the card can do {pcie.name(card.value)}, the port {port_name(link)} at best "
        f"{pcie.name(port.value)}.{beside}",
        (*seen(port, card), *(seen(peer.port_max("speed_gts")) if peer else ())),
        CERTAIN if link.placed else POSSIBLE,
        pcie.cost(before, after),
        (
            Step("Firmware setup: link speed of this slot to Auto or the highest generation.", None, "disruptive", look_command(link)),
            *((Step(f"Or swap slots: the port of {peer.gpu.label} is faster.", None, "hardware"),) if peer else ()),
        ),
        pcie.gain(before, after),
    )  # fmt: skip
