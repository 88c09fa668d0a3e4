"""GD220 small-bar: a GPU's BAR1 window is smaller than its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.gpu_links import GpuLink, Reading, gpu_links, no_gpu, seen
from gpudoctor.checkers.traffic import can_peer, pcie_peer
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import CERTAIN, NOTE, WARNING, CannotTell, Cause, Finding, Step, Threshold

MIB = 1 << 20
LEGACY = Threshold(
    "BAR1 at or below which it is small whatever the memory", 256, "MiB",
    "our choice: the window of cards without Resizable BAR; no supported GPU has so little memory", "2026-11",
)  # fmt: skip

SMALL_BAR = Cause(
    "GD220", "small-bar", "A GPU's BAR1 window is smaller than its memory",
    "warning where two or more GPUs could use peer to peer over PCIe; otherwise note",
    "Another device reaches a GPU's memory over PCIe through the BAR1 window. A window smaller than the memory can map only a "
    "part of it at a time: peer to peer through BAR1 is then refused or limited, and so are GPUDirect RDMA buffers. The usual "
    "reason is firmware: Above 4G Decoding or Resizable BAR off. NVLink does not use the window, and cards whose driver refuses "
    "peer to peer lose nothing by it.",
    "nvidia-smi -q: BAR1 Memory Usage Total against FB Memory Usage Total; lspci -vv Region 1",
    "Firmware setup: Above 4G Decoding and Resizable BAR on.",
    (LEGACY,),
)  # fmt: skip


class SmallBar(BaseChecker):
    """BAR1 against frame buffer, weighed by whether peers would use it."""

    name: ClassVar[str] = "small-bar"
    any_of = (Gpus, PciTree)
    wants = (Gpus, PciTree, Pairs, Platform)
    causes = (SMALL_BAR,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from no_gpu("small-bar", facts)
        for link in gpu_links(facts):
            gpu = link.gpu
            if gpu.virtualization == "vgpu" or gpu.mig_mode == "enabled":
                continue  # a slice has a slice's window
            bar = _bar1(link)
            if bar is None or (gpu.fb_mib is None and bar.value > LEGACY.value):
                what = "BAR1" if bar is None else "memory"
                yield CannotTell("small-bar", f"the size of its {what} is not in the input", link.subject)
            elif bar.value < (gpu.fb_mib if gpu.fb_mib is not None else LEGACY.value + 1):
                yield _finding(link, bar, _could_peer(link, facts))


def _bar1(link: GpuLink) -> Reading | None:
    if link.gpu.bar1_mib is not None:
        return Reading(link.gpu.bar1_mib, link.gpu.at("bar1_mib"))
    sizes = link.card.bar_sizes if link.card is not None else None
    # Region 1 of an NVIDIA function is the window to its memory; region 0 holds registers.
    if link.card is not None and sizes is not None and len(sizes) > 1 and sizes[1]:
        return Reading(sizes[1] / MIB, link.card.at("bar_sizes"))
    return None


def _could_peer(link: GpuLink, facts: FactView) -> bool:
    """Would this GPU and another peer over PCIe, if the window let them?"""
    gpus, pairs = facts.get(Gpus), facts.get(Pairs)
    if gpus is None or len(gpus) < 2 or link.gpu.index is None:
        return False
    mine = [p for p in pairs or () if link.gpu.index in (p.a, p.b)]
    if not mine:
        return bool(can_peer(link.gpu)) and sum(1 for g in gpus if can_peer(g)) > 1
    # Where the driver says OK it works already, in whatever way; where it refuses, the window may be why.
    open_ = [p for p in mine if p.path != "NVL" and "OK" not in (p.p2p_read, p.p2p_write)]
    return bool(can_peer(link.gpu)) and any(
        pcie_peer(p, gpus) is not False or p.p2p_read in ("CNS", "TNS", "NS", "U") for p in open_
    )


def _finding(link: GpuLink, bar: Reading, peers: bool) -> Finding:
    gpu = link.gpu
    memory = f" of {gpu.fb_mib} MiB memory" if gpu.fb_mib is not None else ""
    use = (
        "Peer to peer over PCIe needs the whole memory mapped." if peers
        else "Peer to peer over PCIe is not in play here; GPUDirect RDMA would be limited to the window."
    )  # fmt: skip
    fb = (gpu.at("fb_mib"),) if gpu.fb_mib is not None else ()
    return Finding(
        "small-bar",
        WARNING if peers else NOTE,
        link.subject,
        f"{link.label}: other devices see {bar.value:g} MiB{memory} (BAR1). {use}",
        (*seen(bar), *fb),
        CERTAIN,
        "NCCL goes through host memory where peer to peer is refused" if peers else None,
        (
            Step("Firmware setup: Above 4G Decoding on, Resizable BAR on (the card's own firmware must know it too).", None,
                 "disruptive", "nvidia-smi -q -d MEMORY | grep -A1 BAR1   (wants at least the memory)"),
        ),
    )  # fmt: skip
