"""GD219 iommu: address translation stands in the way of peer-to-peer traffic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.acs import measured_loss
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.gpu_links import gpu_links
from gpudoctor.checkers.isolation import leave_on, passes_devices_on
from gpudoctor.checkers.traffic import can_peer, pcie_peer
from gpudoctor.facts.bandwidth import PeerCopies
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Cpu, Iommu, Modules, Platform
from gpudoctor.facts.topology import Nics, Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Evidence, Finding, Step

IOMMU = Cause(
    "GD219", "iommu", "The IOMMU translates the GPUs' traffic",
    "warning where peer to peer over PCIe or GPUDirect RDMA would be in use, or the log shows accesses refused; error with a measured loss or hang; otherwise note",
    "With translation on (group type DMA or DMA-FQ) every address a GPU or NIC uses is looked up in the IOMMU, and peer-to-peer "
    "traffic has to pass the root complex for it. Transfers then get slow, and on some boards hang or arrive wrong without any "
    "line in NCCL's log. Identity mapping (iommu=pt) keeps the unit on and takes it out of the way of the host's own devices. "
    "NVLink traffic never meets the IOMMU. Inside a virtual machine the guest's unit tells nothing about the host's.",
    "/sys/kernel/iommu_groups/*/type of the GPUs, /sys/class/iommu, /proc/cmdline; in the kernel log how it began, AMD-Vi and DMAR faults",
    "iommu=pt on the kernel command line; not on a host that passes devices to guests.",
)  # fmt: skip


class IommuTranslating(BaseChecker):
    """Translation on bare metal, weighed by whether anything peers over PCIe."""

    name: ClassVar[str] = "iommu"
    any_of = (Iommu, PciTree, KernelLog)
    wants = (Gpus, PciTree, Pairs, Nics, Cpu, Platform, Modules, Iommu, KernelLog, PeerCopies)
    causes = (IOMMU,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        refused = _refused(facts)
        if refused:
            yield _refusal(facts, refused)
            return
        platform = facts.get(Platform)
        links = list(gpu_links(facts))
        virtual = any(d.virtual for link in links for d in (link.card, *link.above) if d is not None)
        if virtual or (platform is not None and platform.entry.vm):
            return
        iommu = facts.get(Iommu)
        on_gpus = [link.card for link in links if link.card is not None and link.card.iommu_type is not None]
        asked = False
        translated = [d for d in on_gpus if d.iommu_type in ("DMA", "DMA-FQ")]
        if translated:
            evidence = translated[0].at("iommu_type")
        elif not on_gpus and iommu is not None and iommu.entry.translating:
            evidence = iommu.entry.at("translating")
            asked = iommu.entry.mode is None  # the command line asks for it, and that is all there is
        elif on_gpus or (iommu is not None and (iommu.entry.translating is False or iommu.entry.mode is not None)):
            return
        else:
            yield CannotTell("iommu", "whether the IOMMU translates is not in the input (/sys/kernel/iommu_groups/*/type)")
            return
        yield _finding(facts, evidence, asked)


def _refused(facts: FactView) -> list[KernelEvent]:
    """Accesses by a GPU that the IOMMU stopped. Lines of other devices, or of one that is not known for a GPU, are not ours."""
    log, gpus, tree = facts.get(KernelLog), facts.get(Gpus), facts.get(PciTree)
    ours = {g.bdf for g in gpus or ()} | {d.bdf for d in (tree.gpus() if tree is not None else ())}
    ours |= {e.bdf for e in (log.of("xid") if log is not None else ())}
    faults = log.of("iommu-fault") if log is not None else ()
    return [e for e in faults if not e.stale and (e.driver == "nvidia" or (e.bdf is not None and e.bdf in ours))]


def _refusal(facts: FactView, faults: list[KernelEvent]) -> Finding:
    cards = sorted({e.bdf for e in faults if e.bdf})
    who = f"the GPU at {cards[0]}" if len(cards) == 1 else f"{len(cards)} GPUs ({', '.join(cards[:4])})"
    times = "once" if len(faults) == 1 else f"{len(faults)} times"
    return Finding(
        "iommu",
        WARNING,
        f"gpu:{cards[0]}" if len(cards) == 1 else "host",
        f"The IOMMU stopped accesses of {who}, {times} in the log: it translates, and did not know the address. Peer to peer "
        "between GPUs does this where the driver does not map it.",
        (faults[0].at("text"),),
        LIKELY,
        "data that a GPU writes to a peer gets lost: jobs hang or compute wrong values",
        _steps(facts),
    )


def _peers(facts: FactView) -> tuple[bool | None, str]:
    """Does anything peer over PCIe, and who?"""
    gpus, pairs, nics = facts.get(Gpus), facts.get(Pairs), facts.get(Nics)
    answers = [pcie_peer(p, gpus) for p in pairs or ()]
    if any(answers):
        return True, "GPUs that peer over PCIe"
    modules = facts.get(Modules)
    peermem = modules is not None and "nvidia_peermem" in modules.loaded
    if nics is not None and nics.nics and (peermem or any(can_peer(g) for g in gpus or ())):
        return True, "GPUDirect RDMA between GPUs and the RDMA adapters"
    if gpus is None and not answers or gpus is not None and len(gpus) > 1 and (not answers or None in answers):
        return None, ""
    return False, ""


def _finding(facts: FactView, evidence: Evidence, asked: bool) -> Finding:
    used, who = _peers(facts)
    loss = min(measured_loss(facts).values(), key=lambda c: c.on_gbs or 0, default=None)
    if loss is not None and not used:
        used, who = True, "GPUs that peer over PCIe"
    guests = passes_devices_on(facts)
    use = f"This is in the way of {who}." if used else (
        "Whether GPUs here peer over PCIe is not in the input." if used is None
        else "Nothing here peers over PCIe, so nothing is lost now."
    )  # fmt: skip
    cost = "peer traffic takes the way through the processor; on some boards it hangs" if used else None
    if loss is not None:
        from gpudoctor.checkers.peer_copies import said

        cost = f"{cost}; {said(loss)}"
    return Finding(
        "iommu",
        ERROR if loss is not None else WARNING if used else NOTE,
        "host",
        f"The IOMMU translates every address the GPUs use. {use}",
        (evidence, *((loss.at("on_gbs"),) if loss is not None else ()), *((guests,) if guests else ())),
        POSSIBLE if used is None else LIKELY if asked else CERTAIN,
        cost,
        leave_on("the IOMMU") if guests else _steps(facts),
    )


def _steps(facts: FactView) -> tuple[Step, ...]:
    cpu = facts.get(Cpu)
    vendor = cpu.entry.vendor if cpu is not None else None
    unit = {"GenuineIntel": "intel_iommu=on iommu=pt", "AuthenticAMD": "iommu=pt"}.get(
        vendor or "", "iommu.passthrough=1"
    )
    if vendor is None:
        unit = "iommu=pt"
    verify = "cat /sys/kernel/iommu_groups/*/type | sort | uniq -c   (wants identity)"
    return (
        Step("On the kernel command line, then reboot: identity mapping. The host's own devices are then no longer kept from "
             "each other's memory; guests still could be.", unit, "disruptive", verify),
        Step("Or, where no virtual machine ever runs: firmware setup, VT-d or AMD-Vi (IOMMU) off.", None, "disruptive", verify),
    )  # fmt: skip
