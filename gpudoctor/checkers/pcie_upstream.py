"""GD214 pcie-upstream: a bridge above the GPU is narrower or slower than the GPU's own link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import pcie
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.gpu_links import GpuLink, Reading, best_speed, gpu_links, hidden, no_gpu, seen
from gpudoctor.checkers.traffic import between_gpus, carries
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, POSSIBLE, WARNING, CannotTell, Cause, Finding, Gain, Step, Threshold
from gpudoctor.record import Record

QUARTER = Threshold(
    "share of the GPU's own link at or below which a hop that carries traffic between GPUs is an error", 0.25, "of GB/s",
    "our choice: a hop is shared by design, so only a quarter left counts as an error", "2026-11",
)  # fmt: skip

UPSTREAM = Cause(
    "GD214", "pcie-upstream", "A bridge above the GPU is narrower or slower than the GPU's own link",
    "warning; error where a quarter or less is left for traffic between GPUs",
    "A path is as fast as its narrowest hop, and behind a switch a GPU's own link may look perfect while the switch's uplink "
    "trained x4. Width is judged as read, since it is not lowered to save power; speed by what the hop can do, or by what it "
    "does while the GPU's own link is at full rate. Several GPUs behind one full uplink share it by design: that is no finding, "
    "but where the uplink is weak all of them share the rest. GPUs below the same switch reach each other without it.",
    "current and max link width and speed of every bridge above the GPU (sysfs or lspci -vv)",
    "Reseat or replace what the narrow hop runs through (riser, cable, switch board), or its firmware setting.",
    (QUARTER,),
)  # fmt: skip


class _Hop(Record):
    bridge: PciDevice
    rate_gbs: float
    width: int
    speed_gts: float
    readings: tuple[Reading, ...]


class PcieUpstream(BaseChecker):
    """The narrowest hop above each GPU's own link."""

    name: ClassVar[str] = "pcie-upstream"
    needs = (PciTree,)
    wants = (Gpus, PciTree, Pairs, Platform)
    causes = (UPSTREAM,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from no_gpu("pcie-upstream", facts)
        links = list(gpu_links(facts))
        for link in links:
            if hidden(link, facts):
                continue
            if not link.above:
                yield CannotTell("pcie-upstream", "the bridges above it are not in the input", link.subject)
                continue
            own = _own_rate(link)
            if own is None:
                yield CannotTell("pcie-upstream", "what its own link can do is not in the input", link.subject)
                continue
            hops = [h for h in (_hop(link, bridge) for bridge in _beyond(link)) if h is not None]
            worst = min(hops, key=lambda h: h.rate_gbs, default=None)
            # A hundredth of slack: rates are computed, not read.
            if worst is not None and worst.rate_gbs < own * 0.99:
                carrying = between_gpus(link.gpu, facts)
                if carrying:
                    carrying = _comes_by(worst, link, links, facts)
                yield _finding(link, worst, own, _sharing(worst, links), carrying)


def _beyond(link: GpuLink) -> tuple[PciDevice, ...]:
    """Bridges whose reading is not of the GPU's own link."""
    return link.above[1:] if link.port is not None else link.above


def _own_rate(link: GpuLink) -> float | None:
    width = link.now("width") or link.card_max("width")
    return pcie.gbs(_own_speed(link), int(width.value)) if width else None


def _own_speed(link: GpuLink) -> float | None:
    """What the link can do, or where only one figure is given for every hop (NCCL's topology file), that figure."""
    now = link.now("speed_gts")
    return best_speed(link) or (now.value if now is not None else None)


def _hop(link: GpuLink, bridge: PciDevice) -> _Hop | None:
    """What a bridge's reading allows. A port that is wider than what hangs below it reads the trained width."""
    width = bridge.width if bridge.width is not None else bridge.max_width
    speed = bridge.max_speed_gts if bridge.max_speed_gts is not None else bridge.speed_gts
    if width is None or speed is None or bridge.link_up is False:
        return None
    readings = [Reading(width, bridge.at("width" if bridge.width is not None else "max_width"))]
    readings.append(Reading(speed, bridge.at("max_speed_gts" if bridge.max_speed_gts is not None else "speed_gts")))
    now, best = link.now("speed_gts"), _own_speed(link)
    # With the GPU's own link at full rate the machine is awake, and a slower hop is slower for real.
    if bridge.speed_gts is not None and bridge.speed_gts < speed and now is not None and now.value == best:
        speed = bridge.speed_gts
        readings[1] = Reading(speed, bridge.at("speed_gts"))
    rate = pcie.gbs(speed, width)
    return None if rate is None else _Hop(bridge, rate, width, speed, tuple(readings))


def _sharing(hop: _Hop, links: list[GpuLink]) -> int:
    return sum(1 for other in links if any(b.bdf == hop.bridge.bdf for b in other.above))


def _comes_by(hop: _Hop, link: GpuLink, links: list[GpuLink], facts: FactView) -> bool | None:
    """Does this GPU's traffic with the others pass the hop? Below one switch it turns round there, unless a port sends it up (ACS).

    None: all are below the hop, and what the ports below do is not in the input.
    """
    gpus = facts.get(Gpus)
    if _sharing(hop, links) < max(len(links), len(gpus) if gpus is not None else 0):
        return True
    below = link.above[: [b.bdf for b in link.above].index(hop.bridge.bdf)]
    redirects = [b.acs.get("ReqRedir", False) for b in below if b.acs is not None]
    return None if len(redirects) < len(below) and not any(redirects) else any(redirects)


def _finding(link: GpuLink, hop: _Hop, own: float, sharing: int, carrying: bool | None) -> Finding:
    shared = f" {sharing} GPUs share it." if sharing > 1 else ""
    now = link.now("speed_gts")
    width = link.now("width") or link.card_max("width")
    verify = f"cat /sys/bus/pci/devices/{hop.bridge.bdf}/current_link_{{speed,width}}"
    return Finding(
        "pcie-upstream",
        ERROR if carrying and hop.rate_gbs <= QUARTER.value * own else WARNING,
        link.subject,
        f"{link.label}: the bridge {hop.bridge.bdf} above it runs {pcie.name(hop.speed_gts, hop.width)}, less than the GPU's "
        f"own {pcie.name(_own_speed(link), int(width.value) if width else None)}.{shared} Here {carries(carrying)}.",
        seen(*hop.readings, width, now),
        POSSIBLE if hop.bridge.max_speed_gts is None
        else CERTAIN if hop.bridge.width is not None and hop.bridge.max_speed_gts == hop.speed_gts else LIKELY,
        pcie.cost(hop.rate_gbs, own),
        (
            Step("Read what this hop allows and has trained.",
                 f"sudo lspci -vv -s {hop.bridge.bdf} | grep -E 'LnkCap:|LnkSta:'"),
            Step("Firmware setup: link speed and bifurcation of the slot or riser that feeds the switch.", None, "disruptive", verify),
            Step("Reseat or replace what this hop runs through: riser, cable, switch board.", None, "hardware", verify),
        ),
        Gain(round(hop.rate_gbs, 1), round(own, 1), "GB/s each way"),
    )  # fmt: skip
