"""Which probes can give a fact, best first: so that an absent fact can say why."""

from __future__ import annotations

from gpudoctor.facts.base import Fact
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.system import (
    Aspm,
    Cpu,
    FabricManager,
    Grant,
    Iommu,
    Jobs,
    Limits,
    Modules,
    Numa,
    OwnAffinity,
    Platform,
    Settings,
    Shm,
    Software,
)
from gpudoctor.facts.topology import Nics, NvLinks, Pairs

GIVERS: dict[type[Fact], tuple[str, ...]] = {
    Gpus: ("smi-q-x", "nvml"),
    Driver: ("smi-q-x", "nvml"),
    Pairs: ("smi-topo-m", "nvml"),
    NvLinks: ("smi-nvlink-s", "smi-nvlink-e", "nvml"),
    PciTree: ("pci", "lspci"),
    Nics: ("smi-topo-m", "pci"),
    KernelLog: ("dmesg",),
    FabricManager: ("fabricmanager",),
    Jobs: ("job",),
    **dict.fromkeys(
        (Aspm, Cpu, Grant, Iommu, Limits, Modules, Numa, OwnAffinity, Platform, Settings, Shm, Software), ("system",)
    ),
}
