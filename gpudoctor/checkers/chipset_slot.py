"""GD215 chipset-slot: the GPU hangs off the chipset instead of the processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import chipsets
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.gpu_links import GpuLink, gpu_links, hidden, no_gpu
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.model import CERTAIN, LIKELY, WARNING, CannotTell, Cause, Finding, Step

CHIPSET = Cause(
    "GD215", "chipset-slot", "The GPU's slot belongs to the chipset, not to the processor",
    "warning",
    "A chipset has one link to the processor, four or eight lanes wide, and shares it among disks, network, USB and every slot "
    "behind it. A GPU in such a slot gets what is left, with more latency, and reaches a GPU on the processor's lanes only "
    "through that link. Which bridges are a chipset's is known from their device ids alone; an id that is not in the table "
    "says nothing, so nothing is said.",
    "device ids of the bridges above the GPU (sysfs, lspci -nn), or lspci's names of them",
    "Move the card to a slot wired to the processor.",
)  # fmt: skip


class ChipsetSlot(BaseChecker):
    """Looks up every bridge above a GPU in the table of chipset bridges."""

    name: ClassVar[str] = "chipset-slot"
    needs = (PciTree,)
    wants = (Gpus, PciTree, Platform)
    causes = (CHIPSET,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from no_gpu("chipset-slot", facts)
        for link in gpu_links(facts):
            # Firmware of a virtual machine imitates old chipsets: their ids there mean nothing.
            if hidden(link, facts):
                continue
            if not any(b.device_id or b.name for b in link.above):
                yield CannotTell("chipset-slot", "which bridges are above it is not in the input", link.subject)
                continue
            for bridge in link.above:
                chipset = chipsets.find(bridge.device_id, bridge.name)
                if chipset is not None:
                    yield _finding(link, bridge, chipset)
                    break


def _finding(link: GpuLink, bridge: PciDevice, chipset: chipsets.Chipset) -> Finding:
    by_id = bridge.device_id is not None
    return Finding(
        "chipset-slot",
        WARNING,
        link.subject,
        f"{link.label}: the bridge {bridge.bdf} above it is a port of the chipset ({chipset.name}), not of the processor. The "
        "GPU shares the chipset's own link with disks, network and USB.",
        (bridge.at("device_id" if by_id else "name"),),
        CERTAIN if by_id else LIKELY,
        None,
        (
            Step("Move the card to a slot wired to the processor; the board's manual marks them (often the first long slots).",
                 None, "hardware", "gpudoctor check --select chipset-slot,slot-width"),
        ),
    )  # fmt: skip
