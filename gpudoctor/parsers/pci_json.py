"""JSON of the `pci` child probe (sysfs) to PciTree, Nics, Iommu and Aspm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor import bdf as address
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Aspm, Iommu, IommuEntry
from gpudoctor.model import Evidence
from gpudoctor.parsers.probe_json import document, lines, rows, table, text, whole
from gpudoctor.parsers.rdma_json import rdma
from gpudoctor.read.section import Section, Unparsable
from gpudoctor.record import replace

_HEX = re.compile(r"^0x[0-9a-f]+$")
_SPEED = re.compile(r"^(\d+(?:\.\d+)?) GT/s")  # "32.0 GT/s PCIe"; kernels before 5.7 print "8 GT/s"; else "Unknown"
# Lanes that PCIe knows. A function that does not answer reads all ones: width 63 (or 255 in old kernels).
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
# Vendors of emulated devices: virtio, Xen, QEMU, VMware, VirtualBox, Parallels, Hyper-V (the PCI ID Repository, pci-ids.ucw.cz).
_EMULATED = ("1af4", "5853", "1b36", "15ad", "80ee", "1ab8", "1414")
_QEMU_SUBSYSTEM = "1af4:1100"  # QEMU marks the real parts it imitates (Intel 82Q35, ioh3420) with this subsystem
_ASPM = (("L0s", "link/l0s_aspm"), ("L1", "link/l1_aspm"))
_SUBSTATES = (("L1.1", ("link/l1_1_aspm", "link/l1_1_pcipm")), ("L1.2", ("link/l1_2_aspm", "link/l1_2_pcipm")))
_TRANSLATING = ("DMA", "DMA-FQ")


def parse(section: Section) -> Iterator[Fact | Loss]:
    said = document(section, "gpudoctor.pci")
    raw = table(said.get("devices"))
    slots = table(said.get("slots"))
    devices: dict[str, PciDevice] = {}
    for name, attributes in raw.items():
        bdf = address.normalise(name) if len(name) < 32 else None
        if bdf is None or not isinstance(attributes, dict):
            yield Loss("a PCI device", f"{section.source} lists it as {name[:40]!r}, which is no address")
            continue
        devices[bdf] = _device(section, bdf, attributes, slots)
    if not devices and "devices" not in said:
        raise Unparsable("no list of PCI devices")
    # An empty list is a /sys without PCI (some sandboxes): it proves the absence of nothing.
    yield PciTree(tuple(_placed(devices)), complete=bool(devices))
    yield rdma(section, said)
    iommu = _iommu(section, said, devices)
    if iommu is not None:
        yield iommu
    policy = text(said.get("aspm_policy"))
    active = re.search(r"\[(\w+)\]", policy or "")
    if policy and active:
        yield Aspm(active[1], section.spot("/sys/module/pcie_aspm/parameters/policy", policy))


def _device(section: Section, bdf: str, said: dict[str, Any], slots: dict[str, Any]) -> PciDevice:
    place = f"/sys/bus/pci/devices/{bdf}"  # the path everyone knows, not the long one behind it
    origin: dict[str, Evidence] = {"*": section.spot(place, bdf)}

    def seen(field: str, attribute: str, value: object = None) -> None:
        shown = said.get(attribute) if value is None else value
        origin[field] = section.spot(f"{place}/{attribute}", text(shown) or shown)

    for field, attribute in (
        ("max_speed_gts", "max_link_speed"),
        ("max_width", "max_link_width"),
        ("numa_node", "numa_node"),
        ("numa_reported", "numa_node"),
        ("local_cpulist", "local_cpulist"),
        ("driver", "driver"),
        ("iommu_type", "iommu_type"),
        ("runtime_status", "power/runtime_status"),
        ("aspm_enabled", "link/l1_aspm"),
        ("speed_gts", "current_link_speed"),
        ("width", "current_link_width"),
        ("bar_sizes", "resource"),
    ):
        if said.get(attribute) is not None:
            seen(field, attribute)
    speed, width = _link(said)
    if speed is not None:
        seen("speed_gts", "current_link_speed", f"{speed:g} GT/s")
    if width is not None:
        seen("width", "current_link_width", width)
    aer = _aer(said)
    if aer:
        origin["aer"] = section.spot(f"{place}/aer_dev_*", ", ".join(f"{k} {v}" for k, v in aer.items()))
    node = _signed(said.get("numa_node"))
    kind = _hex(said.get("class"))
    names = table(said.get("names"))
    model = text(names.get("model"))
    ids = _pair_of_ids(said.get("vendor"), said.get("device"))
    subsystem = _pair_of_ids(said.get("subsystem_vendor"), said.get("subsystem_device"))
    return PciDevice(
        bdf=bdf,
        name=" ".join(filter(None, (text(names.get("vendor")), model))) or None if model else None,
        class_code=kind.zfill(6)[-6:] if kind else None,
        device_id=ids,
        subsystem_id=subsystem if subsystem != "0000:0000" else None,
        parent=_parent(said.get("path")),
        parent_known=True if text(said.get("path")) else None,
        speed_gts=speed,
        max_speed_gts=_speed(said.get("max_link_speed")),
        width=width,
        max_width=_width(said.get("max_link_width")),
        link_up=False if text(said.get("current_link_width")) == "0" else None,
        aspm_supported=_aspm(said, present=True),
        aspm_enabled=_aspm(said, present=False),
        aspm_substates=_substates(said),
        numa_node=node if node is not None and node >= 0 else None,
        numa_reported=node,
        local_cpulist=text(said.get("local_cpulist")),
        driver=text(said.get("driver")),
        iommu_group=whole(said.get("iommu_group")),
        iommu_type=text(said.get("iommu_type")),
        runtime_status=text(said.get("power/runtime_status")),
        bar_sizes=_bars(said.get("resource")),
        aer=aer or None,
        slot=text(slots.get(bdf.rpartition(".")[0])),
        virtual=None if ids is None else ids[:4] in _EMULATED or subsystem == _QEMU_SUBSYSTEM,
        origin=origin,
    )


def _hex(value: Any) -> str | None:
    found = text(value)
    return found[2:] if found and len(found) <= 10 and _HEX.match(found) else None


def _pair_of_ids(vendor: Any, device: Any) -> str | None:
    a, b = _hex(vendor), _hex(device)
    return f"{a.zfill(4)}:{b.zfill(4)}" if a and b else None


def _signed(value: Any) -> int | None:
    """numa_node: -1 is what the kernel says where the firmware named none."""
    found = text(value)
    return -1 if found == "-1" else whole(found, 1 << 16)


def _speed(value: Any) -> float | None:
    found = _SPEED.match(text(value) or "")
    return float(found[1]) if found and 0 < float(found[1]) <= 128 else None


def _width(value: Any) -> int | None:
    found = whole(value)
    return found if found in _WIDTHS else None


def _link(said: dict[str, Any]) -> tuple[float | None, int | None]:
    """The best of the readings: a link that was seen faster can go faster, the slower moments were power saving."""
    readings = [[said.get("current_link_speed"), said.get("current_link_width")]]
    readings += [r for r in rows(said.get("samples"))[:16] if isinstance(r, list) and len(r) == 2]
    known = [(_speed(a), _width(b)) for a, b in readings]
    return max(known, key=lambda r: (r[0] or 0.0, r[1] or 0))


def _parent(path: Any) -> str | None:
    """The address above the last one in /sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0.

    Only the component directly above counts: between a VMD controller and its devices stands a `pci10000:e0`, which is
    a root bus of its own.
    """
    parts = (text(path) or "").split("/")
    return address.normalise(parts[-2]) if len(parts) > 2 and parts[-2].count(":") == 2 else None


def _aspm(said: dict[str, Any], present: bool) -> tuple[str, ...] | None:
    """The kernel makes a file for each state that both ends of the link can do, and none where it has no control."""
    if not any(key.startswith("link/") for key in said):
        return None
    return tuple(name for name, key in _ASPM if key in said and (present or text(said[key]) == "1"))


def _substates(said: dict[str, Any]) -> tuple[str, ...] | None:
    if not any(key.startswith("link/") for key in said):
        return None
    return tuple(name for name, keys in _SUBSTATES if any(text(said.get(key)) == "1" for key in keys))


def _aer(said: dict[str, Any]) -> dict[str, int]:
    out = {}
    for name in ("correctable", "nonfatal", "fatal"):
        words = (text(said.get(f"aer_dev_{name}")) or "").split()
        total = whole(words[1]) if len(words) == 2 and words[0].startswith("TOTAL") else None
        if total is not None:
            out[name] = total
    return out


def _bars(value: Any) -> tuple[int, ...] | None:
    """The first six lines of `resource`: start, end and flags of each base address register."""
    if not isinstance(value, str):
        return None
    sizes = []
    for line in lines(value)[:6]:
        words = [_hex_number(word) for word in line.split()]
        if len(words) != 3 or words[0] is None or words[1] is None:
            return None
        if words[1] > words[0]:
            sizes.append(words[1] - words[0] + 1)
    return tuple(sizes)


def _hex_number(word: str) -> int | None:
    return int(word, 16) if len(word) <= 18 and _HEX.match(word) else None


def _placed(devices: dict[str, PciDevice]) -> Iterator[PciDevice]:
    """Port types, which sysfs does not name, from the place in the tree.

    A bridge with a link on the root bus is a root port; below it bridges alternate: a switch's upstream port, then its
    downstream ports. A bridge below a root port without bridges of its own (PCIe to PCI) is none of these.
    """
    linked = {
        d.bdf for d in devices.values() if d.is_bridge and (d.max_width is not None or d.max_speed_gts is not None)
    }
    above_bridges = {devices[b].parent for b in linked if b is not None}
    types: dict[str | None, str] = {}
    for device in sorted(devices.values(), key=lambda d: _depth(devices, d)):
        if device.bdf not in linked:
            continue
        over = types.get(device.parent)
        if device.parent is None and device.parent_known:
            types[device.bdf] = "root"
        elif over in ("root", "downstream") and device.bdf in above_bridges:
            types[device.bdf] = "upstream"
        elif over == "upstream":
            types[device.bdf] = "downstream"
    for device in devices.values():
        port = types.get(device.bdf)
        yield replace(device, port_type=port) if port else device


def _depth(devices: dict[str, PciDevice], device: PciDevice) -> int:
    depth = 0
    while device.parent in devices and depth < 32:
        device, depth = devices[device.parent], depth + 1
    return depth


def _iommu(section: Section, said: dict[str, Any], devices: dict[str, PciDevice]) -> Iommu | None:
    units, groups = said.get("iommu_units"), whole(said.get("iommu_groups"))
    if not isinstance(units, list):
        return None
    concerned = [d for d in devices.values() if d.is_gpu or d.is_nic or d.is_bridge]
    types = {d.iommu_type: d for d in concerned if d.iommu_type is not None}
    # A GPU's own group decides; a bridge or NIC stands for it only where no GPU says.
    types = {d.iommu_type: d for d in concerned if d.is_gpu and d.iommu_type is not None} or types
    moving = next((types[t] for t in _TRANSLATING if t in types), None)
    translating, mode = None, None
    where = section.spot("/sys/class/iommu", ", ".join(filter(None, map(text, units))) or "empty")
    if moving is not None:
        translating, mode, where = True, "translating", moving.at("iommu_type")
    elif types:
        translating, mode, where = False, "passthrough", next(iter(types.values())).at("iommu_type")
    elif not units or groups == 0:
        # Units without groups remap interrupts only.
        translating, mode = False, "off"
    origin = {"*": where, "units": section.spot("/sys/class/iommu", len(units))}
    return Iommu(IommuEntry(units=len(units), groups=groups, translating=translating, mode=mode, origin=origin))
