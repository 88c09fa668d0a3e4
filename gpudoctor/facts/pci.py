"""The PCI tree from sysfs, lspci or NCCL's topology XML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from gpudoctor.facts.base import Contradiction, Entry, Fact, merge_entry
from gpudoctor.record import replace

# PCI class codes, upper 16 bits (PCI Code and ID Assignment Specification).
DISPLAY, NETWORK, BRIDGE, INFINIBAND = "03", "02", "0604", "0207"


class PciDevice(Entry):
    """One PCI function. Speeds in GT/s per lane, widths in lanes."""

    STABLE: ClassVar[tuple[str, ...]] = ("parent", "max_width", "device_id", "numa_node", "width")

    bdf: str | None = None  # None: an lspci block whose address line is not in the input
    name: str | None = None
    class_code: str | None = None  # six hex digits without 0x: "030200"; lspci's class words are mapped to it
    device_id: str | None = None  # "10de:2335"
    subsystem_id: str | None = None
    parent: str | None = None  # the bridge above; None at the root bus or unknown (see `parent_known`)
    parent_known: bool | None = None  # True: parent None means "on the root bus"
    port_type: str | None = None  # "root", "upstream", "downstream", "endpoint", "bridge", "integrated"
    speed_gts: float | None = None
    max_speed_gts: float | None = None
    width: int | None = None
    narrowed: bool | None = None  # lspci calls the width "downgraded": fewer lanes than the device itself has
    max_width: int | None = None
    link_up: bool | None = None  # False: DLActive- or no card present; speed and width then mean nothing
    aspm_supported: tuple[str, ...] | None = None  # ("L0s", "L1")
    aspm_enabled: tuple[str, ...] | None = None  # () is "disabled"
    # Substates on top of L1: ("L1.1", "L1.2"); None unknown.
    aspm_substates: tuple[str, ...] | None = None
    # Control bits of ACSCtl, None when not read (no root, no capability line); {} when the device has no ACS.
    acs: Mapping[str, bool] | None = None
    access_denied: bool | None = None  # lspci printed <access denied>: capabilities are not there to be read
    numa_node: int | None = None  # -1 is None
    numa_reported: int | None = None  # as printed, -1 included
    local_cpulist: str | None = None
    driver: str | None = None  # bound driver: "nvidia", "vfio-pci", …
    iommu_group: int | None = None
    iommu_type: str | None = None  # "identity", "DMA", "DMA-FQ"
    runtime_status: str | None = None
    bar_sizes: tuple[int, ...] | None = None  # bytes, in BAR order
    # Totals of aer_dev_correctable and friends, or None: {"correctable": 0, "nonfatal": 0, "fatal": 0}
    aer: Mapping[str, int] | None = None
    aer_before: Mapping[str, int] | None = None  # an earlier reading of the same look: growth is what counts
    bandwidth_limited: bool | None = None  # LBMS/ABWMgmt+ in LnkSta: bandwidth changed on its own
    slot: str | None = None  # physical slot label
    virtual: bool | None = None  # emulated by a hypervisor (Red Hat, virtio, VMware … bridges)
    all_ones: bool | None = None  # its configuration space reads ff everywhere (lspci's "rev ff"): nothing answers there

    @property
    def is_gpu(self) -> bool:
        """NVIDIA display or 3D controller; NVSwitches (class 0680) and audio functions are none."""
        if not (self.class_code or "").startswith(DISPLAY):
            return False
        if self.device_id is not None:
            return self.device_id.startswith("10de")
        # lspci without -nn: a server's ASPEED display or a processor's own graphics is told by its maker's name.
        return self.name is None or "NVIDIA" in self.name.upper()

    @property
    def is_nic(self) -> bool:
        return (self.class_code or "").startswith(NETWORK)

    @property
    def is_bridge(self) -> bool:
        return (self.class_code or "").startswith(BRIDGE)


class PciTree(Fact):
    """All PCI functions a source showed. `complete` is True when it listed the whole bus (sysfs, full lspci)."""

    label: ClassVar[str] = "the PCI tree"
    hint: ClassVar[str | None] = "sudo lspci -vv -D"

    devices: tuple[PciDevice, ...]
    complete: bool = False
    # NCCL's topology file: its speed and width are what a link could do, its parents leave out ports.
    nccl_view: bool = False

    def __iter__(self) -> Iterator[PciDevice]:
        return iter(self.devices)

    def by_bdf(self, bdf: str | None) -> PciDevice | None:
        return None if bdf is None else next((d for d in self.devices if d.bdf == bdf), None)

    def gpus(self) -> tuple[PciDevice, ...]:
        return tuple(d for d in self.devices if d.is_gpu)

    def ancestors(self, bdf: str | None) -> tuple[PciDevice, ...]:
        """Bridges from the one directly above up to the root port; ends where a parent is not in the input."""
        out: list[PciDevice] = []
        device = self.by_bdf(bdf)
        while device is not None and device.parent is not None and len(out) < 32:
            above = self.by_bdf(device.parent)
            if above is None or above in out:  # a hostile topology file may hold a cycle
                break
            out.append(above)
            device = above
        return tuple(out)

    def between(self, a: str | None, b: str | None) -> tuple[PciDevice, ...] | None:
        """Bridges a packet from a to b passes when it turns at their common bridge; None when they share none."""
        up_a, up_b = self.ancestors(a), self.ancestors(b)
        common = next((d for d in up_a if any(d.bdf == e.bdf for e in up_b)), None)
        if common is None:
            return None
        cut_a = up_a[: [d.bdf for d in up_a].index(common.bdf)]
        cut_b = up_b[: [d.bdf for d in up_b].index(common.bdf)]
        return (*cut_a, common, *reversed(cut_b))

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> PciTree:
        known: dict[str, PciDevice] = {}
        nameless: list[PciDevice] = []
        # What the bus itself says comes first, in whatever order the files were given.
        for part in sorted(parts, key=lambda p: p.nccl_view):
            for device in part.devices:
                if part.nccl_view and device.bdf in known:
                    device = _beside_the_bus(device, known[device.bdf])
                if device.bdf is None:
                    nameless.append(device)
                elif device.bdf in known:
                    known[device.bdf] = merge_entry(known[device.bdf], device, f"PCI device {device.bdf}", say)
                else:
                    known[device.bdf] = device
        tree = (*known.values(), *nameless)
        return PciTree(tree, any(p.complete for p in parts), all(p.nccl_view for p in parts))


def _beside_the_bus(device: PciDevice, seen: PciDevice) -> PciDevice:
    """What NCCL's view may add to a device that the bus described: no link state, and a parent only where none is known."""
    parent = None if seen.parent is not None or seen.parent_known else device.parent
    return replace(device, speed_gts=None, width=None, parent=parent)
