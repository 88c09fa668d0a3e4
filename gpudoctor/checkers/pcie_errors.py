"""GD216 pcie-errors: transmission errors on a GPU's PCIe path: AER reports, replays, links the kernel called slow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.boot_width import narrow_at_boot
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.model import CERTAIN, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Evidence, Finding, Step, Threshold
from gpudoctor.pattern import lazy

_REPLAYS = Threshold(
    "PCIe replays, for each lane and each GT/s of the link", 0.06, "a minute",
    "NVIDIA DCGM 4.6.0, modules/health/DcgmHealthWatch.cpp: one error in 10^12 bits; 8 a minute for Gen3 x16, 31 for Gen5 x16",
    "2026-07-06",
)  # fmt: skip
_MESSAGES = Threshold(
    "correctable AER messages of one device", 10, "in one log",
    "Linux 6.16, drivers/pci/pcie/aer.c: so many in 5 s, and the kernel holds further ones back as a flood", "2025",
)  # fmt: skip

PCIE_ERRORS = Cause(
    "GD216", "pcie-errors", "Transmission errors on a GPU's PCIe path",
    "warning: uncorrected errors, counts that grow, or over a limit; else note",
    "PCIe repairs damaged packets by sending them again (replay) and reports that as a correctable error (AER). A few mean nothing. "
    "Many, or ones that keep coming, mean a marginal signal: riser, cable, seating, retimer, or a generation too fast for the "
    "board; each replay costs time, and enough of them take the link down. Uncorrected errors lost data. Reports of other "
    "devices (NVMe, network) are left alone unless they are bridges above a GPU. The kernel's line that a device has less "
    "bandwidth than it could is written while GPUs idle at boot, at 2.5 GT/s, so by itself it is only worth knowing.",
    "kernel log (AER, PCIe Bus Error, available PCIe bandwidth), sysfs aer_dev_*, nvidia-smi -q (replays)",
    "Reseat the card, replace riser or cable, set the slot one generation lower in firmware setup.",
    (_REPLAYS, _MESSAGES),
)  # fmt: skip

_LIMIT = lazy(r"limited by ([\d.]+ GT/s)(?: PCIe)? (x\d+) link at \S+(?: \(capable of [\d.]+ Gb/s with ([\d.]+ GT/s)(?: PCIe)? (x\d+) link\))?")


class PcieErrors(BaseChecker):
    """One finding for each device on a GPU's path that reported errors."""

    name: ClassVar[str] = "pcie-errors"
    any_of = (Gpus, PciTree, KernelLog)
    wants = (Gpus, PciTree, KernelLog, Platform)
    causes = (PCIE_ERRORS,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus, tree, log = facts.get(Gpus), facts.get(PciTree), facts.get(KernelLog)
        paths = _paths(gpus, tree)
        events: dict[str | None, list[KernelEvent]] = {}
        for event in log.of("aer", "bandwidth-limited") if log is not None else ():
            events.setdefault(event.bdf, []).append(event)
        told = narrow_at_boot(facts) if events else {}
        for bdf, mine in events.items():
            ours = _ours(bdf, mine, paths, tree)
            if ours is None:
                continue
            yield from _reported(bdf, paths.get(bdf or ""), [e for e in mine if e.kind == "aer"], ours)
            if bdf not in told:
                yield from _slow([e for e in mine if e.kind == "bandwidth-limited"], paths, ours)
        counted = False
        for device in tree or ():
            if device.bdf in paths and device.aer is not None:
                counted = True
                if not any(e.kind == "aer" for e in events.get(device.bdf, ())):
                    yield from _totals(device, paths[device.bdf or ""])
        platform = facts.get(Platform)
        uptime = platform.entry.uptime_s if platform is not None else None
        for gpu in gpus or ():
            counted = counted or gpu.replays is not None
            yield from _replays(gpu, uptime)
        if not counted and log is None:
            yield CannotTell(PCIE_ERRORS.slug, "neither the kernel log nor replay or AER counters are at hand")
        elif not counted and facts.recorded and not events:
            yield CannotTell(PCIE_ERRORS.slug, "the lines of the kernel log at hand hold no AER report, but they may not be the whole log")


def _paths(gpus: Gpus | None, tree: PciTree | None) -> dict[str, str]:
    """Address of every device on a GPU's path, and how to call it."""
    out: dict[str, str] = {}
    cards = {g.bdf: g.label for g in gpus or () if g.bdf}
    for device in tree.gpus() if tree is not None else ():
        if device.bdf is not None:
            cards.setdefault(device.bdf, f"the GPU at {device.bdf}")
    for bdf, label in cards.items():
        out[bdf] = label
        for bridge in tree.ancestors(bdf) if tree is not None else ():
            if bridge.bdf:
                out.setdefault(bridge.bdf, f"the bridge {bridge.bdf} above {label}")
    return out


def _ours(bdf: str | None, events: list[KernelEvent], paths: dict[str, str], tree: PciTree | None) -> str | None:
    """Confidence that the device is on a GPU's path; None when it is not."""
    if bdf in paths or any(e.driver == "nvidia" for e in events):
        return CERTAIN
    if tree is not None and tree.by_bdf(bdf) is not None:
        return None
    # No tree at hand: a port may lead to a GPU, a network card or a drive does not.
    if any(e.driver == "pcieport" or (e.driver is None and e.kind == "aer") for e in events):
        return POSSIBLE
    if paths:
        return None
    return POSSIBLE if any(e.kind == "bandwidth-limited" for e in events) else None


def _reported(bdf: str | None, label: str | None, events: list[KernelEvent], confidence: str) -> Iterator[Finding]:
    if not events:
        return
    lost = [e for e in events if e.severity != "correctable"]
    held = sum(e.held_back or 0 for e in events)
    many = len(events) - len(lost) + held >= _MESSAGES.value
    if label is None and bdf and any(e.driver == "nvidia" for e in events):
        label = f"the GPU at {bdf}"
    name = label or (f"the device at {bdf}" if bdf else "a device whose address is not in the line")
    words = [f"{len(lost)} uncorrected"] if lost else []
    if len(events) > len(lost):
        words.append(f"{len(events) - len(lost)} corrected")
    one = len(events) == 1
    message = f"{name[0].upper()}{name[1:]}: the kernel log has {' and '.join(words)} PCIe error report{'' if one else 's'}"
    message += f", and the kernel held back {held} more." if held else "."
    if confidence == POSSIBLE:
        message += " Whether a GPU lies behind it, the input does not say."
    yield Finding(
        PCIE_ERRORS.slug,
        WARNING if (lost or many) and confidence == CERTAIN else NOTE,
        f"gpu:{bdf}" if label is not None and "bridge" not in label else f"pci:{bdf}" if bdf else "host",
        message,
        tuple(dict.fromkeys((events[0].at("text"), events[-1].at("text")))),
        confidence,
        "what was under way when an error was not corrected is lost: the job fails or hangs, and the GPU may need a reset"
        if lost
        else "each corrected error sends a packet again; many of them slow the link or take it down",
        _steps(bdf, [e.severity for e in lost]),
    )


def _slow(events: list[KernelEvent], paths: dict[str, str], confidence: str) -> Iterator[Finding]:
    if not events:
        return
    event = events[-1]
    found = _LIMIT.search(event.text)
    now = f"{found[2]} at {found[1]}" if found else "less than it could"
    could = f" of {found[4]} at {found[3]}" if found and found[3] else ""
    name = paths.get(event.bdf or "") or f"the device at {event.bdf}"
    message = (
        f"{name[0].upper()}{name[1:]}: when it was found, the kernel saw its link at {now}{could}, limited at "
        f"{event.bridge or 'a bridge above it'}. A low speed is normal for an idle GPU, fewer lanes are not."
    )
    yield Finding(
        PCIE_ERRORS.slug, NOTE, f"gpu:{event.bdf}" if confidence == CERTAIN else f"pci:{event.bdf}", message, (event.at("text"),),
        confidence, None, (Step("Read the link while the GPU works.", f"sudo lspci -vv -s {event.bdf} | grep LnkSta:"),),
    )  # fmt: skip


def _totals(device: PciDevice, label: str) -> Iterator[Finding]:
    counts = {k: n for k, n in (device.aer or {}).items() if n}
    if not counts:
        return
    before = device.aer_before
    grown = before is not None and any(n > before.get(k, 0) for k, n in counts.items())
    said = ", ".join(f"{n} {k}" for k, n in counts.items())
    grows = " The count rose between two readings." if grown else ""
    yield Finding(
        PCIE_ERRORS.slug,
        WARNING if grown else NOTE,
        f"pci:{device.bdf}" if "bridge" in label else f"gpu:{device.bdf}",
        f"{label[0].upper()}{label[1:]} counts PCIe errors since boot: {said}.{grows}",
        (device.at("aer"),),
        remediation=_steps(device.bdf),
    )


def _replays(gpu: Gpu, uptime_s: float | None) -> Iterator[Finding]:
    if not gpu.replays and not gpu.replay_rollovers:
        return
    grown = gpu.replays_before is not None and (gpu.replays or 0) > gpu.replays_before
    rate = (gpu.replays or 0) * 60 / uptime_s if uptime_s else None
    limit = _replay_limit(gpu)
    over = rate is not None and limit is not None and rate > limit
    evidence: list[Evidence] = [gpu.at("replays")] if gpu.replays else []
    words = f"{gpu.replays or 0} PCIe packet{'' if gpu.replays == 1 else 's'} sent again"
    if over:
        words += f", at least {rate:.0f} a minute on average (limit {limit})"
    if grown:
        words += ", and more between two readings"
    if gpu.replay_rollovers:
        words += f"; {gpu.replay_rollovers} times four tries were not enough and the link was trained anew"
        evidence.append(gpu.at("replay_rollovers"))
    yield Finding(
        PCIE_ERRORS.slug, WARNING if grown or over else NOTE, gpu.subject, f"{gpu.label[0].upper()}{gpu.label[1:]}: {words}.",
        tuple(evidence), remediation=_steps(gpu.bdf),
    )  # fmt: skip


def _replay_limit(gpu: Gpu) -> int | None:
    """Replays a minute that a link of this speed and width may have; None where the link is not known."""
    speed, width = gpu.max_speed_gts or gpu.speed_gts, gpu.max_width or gpu.width
    return math.ceil(round(_REPLAYS.value * speed * width, 6)) if speed is not None and width is not None else None


def _steps(bdf: str | None, lost: Sequence[str | None] = ()) -> tuple[Step, ...]:
    """`lost`: the severities of the errors that were not corrected."""
    at = bdf or "BDF"
    kinds = ["fatal" if s == "fatal" else "nonfatal" for s in lost if s is not None] or ["fatal", "nonfatal"] * bool(lost)
    files = [f"/sys/bus/pci/devices/{at}/aer_dev_{kind}" for kind in dict.fromkeys(kinds or ["correctable"])]
    count = f"cat {' '.join(files)}"
    again = "it comes again" if lost else "it grows"
    return (
        Step("Look whether the count still grows, best under load.", f"watch -n 10 {count}"),
        Step(f"If {again}: reseat the card, replace riser or cable.", None, "hardware", count),
        Step("Else set the slot one PCIe generation lower in firmware setup and count again.", None, "disruptive", count),
    )
