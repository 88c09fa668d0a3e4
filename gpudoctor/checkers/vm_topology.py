"""GD107 vm-topology: a hypervisor between this system and the real PCIe tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.model import CERTAIN, LIKELY, NOTE, CannotTell, Cause, Evidence, Finding, Step
from gpudoctor.parts import is_vgpu

VM_TOPOLOGY = Cause(
    "GD107",
    "vm-topology",
    "A hypervisor hides the real PCIe tree",
    "note",
    "In a virtual machine the bridges above a GPU, its slot and its NUMA node are what the hypervisor makes up, or "
    "are not there "
    "at all. PCIe path classes, slot and port limits, NUMA placement and NIC distances can then not be judged from "
    "inside. "
    "What the GPU itself reports stays true: NVLink states, its own PCIe link, errors, clocks. NCCL reads the same "
    "made-up "
    "tree; cloud providers that know better give it a topology file (NCCL_TOPO_FILE).",
    "lscpu (Hypervisor vendor), nvidia-smi -q (Virtualization Mode), lspci -t",
    "Nothing to repair inside the machine. Look at the host itself for slots, switches and ACS; use the provider's "
    "topology "
    "file where there is one.",
)

# Makers of bridges that only exist in software: Red Hat/QEMU, virtio, VMware, Microsoft, Parallels, Xen, Oracle.
_EMULATED = ("1b36", "1af4", "15ad", "1414", "1ab8", "5853", "80ee")
_QEMU_PORTS = ("8086:3420", "8086:244e", "8086:2448")  # QEMU's ioh3420 and DMI-to-PCI bridges bear Intel ids


class VmTopology(BaseChecker):
    """Says once that the tree is not the real one, so that nobody reads path classes as facts about the board."""

    name: ClassVar[str] = "vm-topology"
    causes = (VM_TOPOLOGY,)
    any_of = (Platform, Gpus)
    wants = (PciTree,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        slug = VM_TOPOLOGY.slug
        platform, gpus, tree = facts.get(Platform), facts.get(Gpus), facts.get(PciTree)
        entry = platform.entry if platform is not None else None
        passed = _passed_through(gpus)
        if entry is not None and entry.wsl:
            yield _finding(
                "This is WSL2: Windows owns the PCIe tree, and GPUs are reached through a virtual device",
                (entry.at("wsl"),),
                CERTAIN,
                (Step("Look at the link and the driver from Windows", "nvidia-smi.exe -q   # in Windows", "none"),),
            )
            return
        if not (entry is not None and entry.vm) and passed is None:
            if entry is None or entry.vm is None:
                yield CannotTell(slug, "whether this is a virtual machine is not in the input")
            return
        if gpus is None or not gpus.gpus:
            yield CannotTell(slug, "a virtual machine, but no GPU is known")
            return
        real = [g for g in gpus if _below_real_bridge(g, tree)]
        if real:
            return  # the tree above is a real one: a bare-metal instance, or a host that merely runs guests
        evidence: list[Evidence] = []
        if entry is not None and entry.vm:
            evidence.append(entry.at("vm"))
        if passed is not None:
            evidence.append(passed.at("virtualization" if passed.virtualization else "name"))
        kind = f" ({entry.hypervisor})" if entry is not None and entry.hypervisor else ""
        above = tree is not None and any(tree.ancestors(g.bdf) for g in gpus)
        seen = "the bridges above its GPUs are emulated" if above else "no bridge is visible above its GPUs"
        words = f"This is a virtual machine{kind}" + (
            f" and {seen}" if tree is not None else "; its PCIe tree is the hypervisor's"
        )
        yield _finding(words, tuple(evidence), CERTAIN if tree is not None else LIKELY)


def _passed_through(gpus: Gpus | None) -> Gpu | None:
    """A GPU that says of itself that it works in a guest: `Pass-Through` or `VGPU`, not a host's `Host VGPU`; or by its name."""
    for gpu in gpus or ():
        mode = (gpu.virtualization or "").lower()
        if "pass" in mode or mode.startswith("vgpu") or mode == "virtual gpu" or (not mode and is_vgpu(gpu.name)):
            return gpu
    return None


def _below_real_bridge(gpu: Gpu, tree: PciTree | None) -> bool:
    above = tree.ancestors(gpu.bdf) if tree is not None else ()
    return any(not _emulated(d) for d in above)


def _emulated(bridge: PciDevice) -> bool:
    """A guest's bridges count as emulated unless the part is known to be real hardware."""
    if bridge.virtual is not None:
        return bridge.virtual
    ident = bridge.device_id or ""
    return not ident or ident[:4] in _EMULATED or ident in _QEMU_PORTS


_OUTSIDE = (
    Step("Judge the board itself by the same command on the hypervisor's host", "gpudoctor check", "none"),
    Step(
        "See whether the provider has given NCCL the real tree",
        "env | grep NCCL_TOPO_FILE; ls /var/run/nvidia-topologyd/",
        "none",
    ),
)


def _finding(words: str, evidence: tuple[Evidence, ...], confidence: str, steps: tuple[Step, ...] = _OUTSIDE) -> Finding:
    return Finding(
        VM_TOPOLOGY.slug,
        NOTE,
        "host",
        f"{words}: path classes, slots, NUMA nodes and NIC distances cannot be judged from inside. NVLink readings "
        "and the "
        "GPUs' own counters stay true.",
        evidence,
        confidence,
        remediation=steps,
    )
