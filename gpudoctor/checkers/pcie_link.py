"""GD210 pcie-width and GD211 pcie-speed: a GPU's link trained below what both its ends allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import pcie
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.boot_width import boot_findings
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
    unnamed,
)
from gpudoctor.checkers.pcie_slot import NARROW
from gpudoctor.checkers.traffic import between_gpus, carries
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Finding, Step, Threshold
from gpudoctor.parts import is_laptop

HALF = Threshold(
    "share of the lanes at or below which a link that carries traffic between GPUs is an error", 0.5, "of the lanes",
    "our choice: half the lanes are half the rate", "2026-11",
)  # fmt: skip

WIDTH = Cause(
    "GD210", "pcie-width", "A GPU's PCIe link trained with fewer lanes than both ends allow",
    "error at half the lanes or fewer where traffic between GPUs takes the link (at four where the port is unknown); otherwise warning",
    "Card and port each state how many lanes they have, and agree on a width when the link trains. A link narrower than the "
    "lesser of the two has lost lanes on the way: a card not fully seated, a riser or cable, dirt on the contacts, a bent pin, "
    "or lanes given to another slot. Unlike the speed, the width is not lowered to save power, so one reading at any time "
    "counts. Up to 2.30.4 NCCL reads the maximum of both ends and plans as if the link were whole, so its log shows nothing. "
    "Where only the card's end is visible, a slot with fewer lanes looks the same, and the finding is called possible.",
    "sysfs current_link_width and max_link_width of card and port; lspci -vv LnkSta and LnkCap; nvidia-smi -q Link Width",
    "Reseat the card, then replace riser or cable, then look for lane sharing in the board's manual.",
    (HALF, NARROW),
)  # fmt: skip

SPEED = Cause(
    "GD211", "pcie-speed", "A GPU's PCIe link is slower than both ends allow while it is busy",
    "as pcie-width; a reading without proof of traffic: note",
    "NVIDIA GPUs lower the generation of an idle link to save power, down to 2.5 GT/s, and raise it within milliseconds when "
    "work comes. A low reading on an idle GPU therefore says nothing. A reading that stays low while data is being copied does: "
    "the link failed to train at the higher rate (signal quality, riser) or firmware holds it down.",
    "several readings while a copy runs (gpudoctor bandwidth takes them); sysfs current_link_speed and max_link_speed",
    "Read it under load first. Then firmware settings of the slot, riser or cable, and the card itself.",
)  # fmt: skip

_WANTS = (Gpus, PciTree, Pairs, Platform)


class PcieWidth(BaseChecker):
    """Trained lanes against the lesser of card and port."""

    name: ClassVar[str] = "pcie-width"
    any_of = (Gpus, PciTree, KernelLog)
    wants = (*_WANTS, KernelLog)
    causes = (WIDTH,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from boot_findings(facts)
        if facts.get(Gpus) is None and facts.get(PciTree) is None:
            yield CannotTell("pcie-width", "the kernel log alone names the lanes of a GPU only where they are few")
            return
        yield from no_gpu("pcie-width", facts)
        yield from _unnamed_width(facts)
        for link in gpu_links(facts):
            now, card, port = link.now("width"), link.card_max("width"), link.port_max("width")
            if now is not None and card is None and link.card is not None and link.card.narrowed and not hidden(link, facts):
                yield _narrowed(link, now, between_gpus(link.gpu, facts))
                continue
            if now is None or card is None:
                what = "its trained width" if now is None else "how many lanes the card has"
                yield CannotTell("pcie-width", f"{what} is not in the input", link.subject)
                continue
            limit = int(min(card.value, port.value if port else card.value))
            if now.value >= limit:
                continue
            if hidden(link, facts):
                yield CannotTell(
                    "pcie-width",
                    f"reads x{now.value:g} of x{limit}, but a hypervisor stands between; read it on the host",
                    link.subject,
                )
                continue
            yield _width_finding(link, now, card, port, limit, between_gpus(link.gpu, facts))


_NAMELESS = "Whether a GPU is among them, the input does not say: the lines with address and name are missing."


def _unnamed_width(facts: FactView) -> Iterator[Finding]:
    """Links of a filtered lspci (`grep LnkSta`), whose devices nobody names: one note for all."""
    low = [d for d in unnamed(facts) if d.narrowed or d.width and d.max_width and d.width < d.max_width]
    if low:
        said = dict.fromkeys(f"x{d.width}{f' of x{d.max_width}' if d.max_width else ''}" for d in low)
        what = f"{len(low)} PCIe link{'s' if len(low) > 1 else ''} trained with fewer lanes than the device has"
        yield _of_nameless("pcie-width", low, f"{what} ({', '.join(said)}). {_NAMELESS}", "width")


def _unnamed_speed(facts: FactView) -> Iterator[Finding]:
    low = [d for d in unnamed(facts) if d.speed_gts and d.max_speed_gts and d.speed_gts < d.max_speed_gts]
    if low:
        said = dict.fromkeys(f"{d.speed_gts:g} of {d.max_speed_gts:g} GT/s" for d in low)
        what = f"{len(low)} PCIe link{'s were' if len(low) > 1 else ' was'} slower than the device can when read"
        idle = "Idle GPUs lower the rate to save power, so this is no fault by itself."
        yield _of_nameless("pcie-speed", low, f"{what} ({', '.join(said)}). {idle} {_NAMELESS}", "speed_gts")


def _of_nameless(slug: str, low: list[PciDevice], message: str, field: str) -> Finding:
    bdf = low[0].bdf if len(low) == 1 else None
    command = f"sudo lspci -vv -s {bdf or 'GPU_BDF'} | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'"
    return Finding(
        slug,
        NOTE,
        f"pci:{bdf}" if bdf else "host",
        message,
        tuple(dict.fromkeys(d.at(field) for d in low)),
        POSSIBLE,
        remediation=(Step("Read it again with the device's name, while the GPU works.", command),),
    )


def _narrowed(link: GpuLink, now: Reading, carrying: bool | None) -> Finding:
    """Of `lspci | grep LnkSta` only lspci's own word is there."""
    width = int(now.value)
    laptop = is_laptop(link.gpu.name, link.card.name if link.card else None)
    return Finding(
        "pcie-width",
        NOTE if laptop else ERROR if carrying and width <= NARROW.value else WARNING,
        link.subject,
        f"{link.label}: the PCIe link trained x{width}, and lspci calls that downgraded: the card has more lanes (how many, and what "
        f"the port has, is not in the input; a slot with fewer lanes would look the same). Here {carries(carrying)}.",
        (now.evidence,),
        POSSIBLE,
        None,
        _width_steps(link, None),
    )


def _width_finding(
    link: GpuLink, now: Reading, card: Reading, port: Reading | None, limit: int, carrying: bool | None
) -> Finding:
    width = int(now.value)
    speed = best_speed(link)
    before, after = pcie.gbs(speed, width), pcie.gbs(speed, limit)
    ends = f"card and port ({port_name(link)}) both allow x{limit}" if port else f"the card has x{limit}"
    doubt = "" if port else "; the port is not in the input, so a slot with fewer lanes would look the same"
    # A slot of eight lanes is common by design (two cards share sixteen): unless the port is known to allow more, only
    # what would be an error in either case is one.
    worst = HALF.value * limit if port else NARROW.value
    laptop = port is None and is_laptop(link.gpu.name, link.card.name if link.card else None)
    if laptop:
        doubt = "; laptops often wire no more to it, and the port is not in the input"
    return Finding(
        "pcie-width",
        NOTE if laptop else ERROR if carrying and width <= worst else WARNING,
        link.subject,
        f"{link.label}: the PCIe link trained x{width}, {ends}{doubt}. Here {carries(carrying)}.",
        seen(now, card, port),
        CERTAIN if port and link.placed else POSSIBLE,
        pcie.cost(before, after),
        (Step("Read what both ends allow and have trained.", look_command(link)),) if laptop else _width_steps(link, limit),
        pcie.gain(before, after),
    )


def _width_steps(link: GpuLink, limit: int | None) -> tuple[Step, ...]:
    wanted = f"   (wants {limit})" if limit is not None else ""
    verify = f"cat /sys/bus/pci/devices/{link.bdf}/current_link_width{wanted}"
    return (
        Step("Read what both ends allow and have trained.", look_command(link)),
        Step("Power off, reseat the card and its power plugs, clean the contacts.", None, "hardware", verify),
        Step("Without the riser or cable, or with another one; then another slot, to tell the card from the slot.", None, "hardware", verify),
        Step("Look in the board's manual whether an M.2 drive or a second slot takes lanes from this one, and at the "
             "firmware's bifurcation setting.", None, "disruptive", verify),
    )  # fmt: skip


class PcieSpeed(BaseChecker):
    """Rate per lane against the lesser of card and port, judged only under proven traffic."""

    name: ClassVar[str] = "pcie-speed"
    any_of = (Gpus, PciTree)
    wants = _WANTS
    causes = (SPEED,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from no_gpu("pcie-speed", facts)
        yield from _unnamed_speed(facts)
        for link in gpu_links(facts):
            now, limit = link.now("speed_gts"), best_speed(link)
            samples = [s for s in link.gpu.samples or () if s.speed_gts is not None]
            if (now is None and not samples) or limit is None:
                what = "the fastest rate both ends allow" if limit is None else "its present rate"
                yield CannotTell("pcie-speed", f"{what} is not in the input", link.subject)
                continue
            rates = [s.speed_gts for s in samples if s.speed_gts is not None]
            # One reading at full rate proves that the link can: the lower ones were idle moments.
            if max([*rates, *([now.value] if now else [])]) >= limit:
                continue
            if hidden(link, facts):
                yield CannotTell("pcie-speed", "a hypervisor stands between; read it on the host", link.subject)
                continue
            busy = [s.speed_gts for s in samples if s.busy and s.speed_gts is not None]
            if busy:
                yield _speed_finding(link, max(busy), limit, between_gpus(link.gpu, facts))
            elif now is not None:
                yield _idle_note(link, now, limit)


def _speed_finding(link: GpuLink, speed: float, limit: float, carrying: bool | None) -> Finding:
    width = link.now("width") or link.card_max("width")
    lanes = int(width.value) if width else None
    before, after = pcie.gbs(speed, lanes), pcie.gbs(limit, lanes)
    # A generation less is half the rate or under, so no share is asked for (5 of 8 GT/s is 51 % after line coding).
    both = link.port_max("speed_gts") is not None or _driver_knows_both(link)
    return Finding(
        "pcie-speed",
        ERROR if carrying else WARNING,
        link.subject,
        f"{link.label}: while data was being copied the PCIe link ran at {pcie.name(speed)} ({speed:g} GT/s), "
        f"card and port allow {pcie.name(limit)}. Here {carries(carrying)}.",
        (link.gpu.at("samples"), *seen(link.card_max("speed_gts"), link.port_max("speed_gts"))),
        LIKELY if both else POSSIBLE,
        pcie.cost(before, after),
        (
            Step("Read both ends again while a copy runs.", look_command(link)),
            Step("Firmware setup: PCIe link speed of this slot to Auto or the highest generation.", None, "disruptive"),
            Step("Reseat the card; without the riser or cable, or with one made for this generation.", None, "hardware",
                 "gpudoctor bandwidth --gpus all"),
        ),
        pcie.gain(before, after),
    )  # fmt: skip


def _driver_knows_both(link: GpuLink) -> bool:
    """nvidia-smi's `Max` is the lesser of device and host; a maximum that came from the card's register is not."""
    maximum, card = link.gpu.max_speed_gts, link.card
    return maximum is not None and (card is None or link.gpu.at("max_speed_gts") != card.at("max_speed_gts"))


def _idle_note(link: GpuLink, now: Reading, limit: float) -> Finding:
    state = link.gpu.pstate
    why = (
        f"the GPU was in P{state}, where links usually run at full rate: read it again under load"
        if state is not None and state <= 2
        else "idle GPUs lower it to save power, so this is no fault by itself"
    )
    return Finding(
        "pcie-speed",
        NOTE,
        link.subject,
        f"{link.label}: the PCIe link was at {pcie.name(now.value)} of {pcie.name(limit)} when read; {why}.",
        seen(now),
        CERTAIN if link.placed else POSSIBLE,
        None,
        (Step("Measure under load.", "gpudoctor bandwidth --gpus all"),),
    )
