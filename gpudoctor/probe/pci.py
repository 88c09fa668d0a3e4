"""The PCI tree, RDMA ports, IOMMU and ASPM policy from sysfs, as one line of JSON: attribute texts by address.

Usage: pci.py [SYSFS_ROOT]. Needs no privileges. `config` and `vpd` are never read: they may block on a sick device.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

_BDF = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_LIMIT = 4096  # characters of one attribute
IDENTITY = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
FULL = (
    "current_link_speed",
    "max_link_speed",
    "current_link_width",
    "max_link_width",
    "numa_node",
    "local_cpulist",
    "d3cold_allowed",
    "secondary_bus_number",
    "power/control",
    "power/runtime_status",
    "link/clkpm",
    "link/l0s_aspm",
    "link/l1_aspm",
    "link/l1_1_aspm",
    "link/l1_2_aspm",
    "link/l1_1_pcipm",
    "link/l1_2_pcipm",
    "resource",
)
AER = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
SAMPLES, PAUSE_S = 3, 0.025  # a link that wakes up or falls asleep shows within some tens of milliseconds


def read(*parts: str) -> str | None:
    """An attribute's text; None where it is absent, forbidden or answers with an error."""
    try:
        with open(os.path.join(*parts), "rb") as file:
            return file.read(_LIMIT).decode("utf-8", "replace").strip()
    except OSError:
        return None


def listing(*parts: str) -> list[str] | None:
    """The names in a directory; None where it is not there."""
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:
        return None


def target(*parts: str) -> str | None:
    """The last component of a link (`driver`, `iommu_group`)."""
    try:
        return os.path.basename(os.readlink(os.path.join(*parts)))
    except OSError:
        return None


def by_udev() -> dict[str, dict[str, str]]:
    """Addresses and names by pyudev: names come from the udev hardware database where udevd runs."""
    try:
        import pyudev

        found = {}
        for device in pyudev.Context().list_devices(subsystem="pci"):
            names = {}
            for key, name in (("ID_VENDOR_FROM_DATABASE", "vendor"), ("ID_MODEL_FROM_DATABASE", "model")):
                value = device.properties.get(key)
                if value:
                    names[name] = str(value)[:200]
            found[device.sys_name] = names
        return found
    except Exception:  # no pyudev, no libudev, or a libudev that breaks: sysfs alone has all that a verdict needs
        return {}


def wanted(facts: dict[str, object]) -> bool:
    """GPUs, NVSwitches and network adapters: these and all bridges above them are read in full."""
    kind, vendor = str(facts.get("class") or ""), facts.get("vendor")
    return kind.startswith("0x02") or vendor == "0x10de" and kind.startswith(("0x03", "0x0680"))


def is_gpu(facts: dict[str, object]) -> bool:
    """Does NVIDIA make it, and is it a display or 3D controller?"""
    return facts.get("vendor") == "0x10de" and str(facts.get("class") or "").startswith("0x03")


def shown(root: str, path: str) -> str:
    """A real path as it would read under /sys."""
    real = os.path.realpath(root)
    return "/sys" + path[len(real) :] if path.startswith(real + os.sep) else path


def identify(root: str, place: str, names: dict[str, str]) -> dict[str, object]:
    """What is told of every device."""
    real = os.path.realpath(place)
    out: dict[str, object] = {"path": shown(root, real)}
    for name in IDENTITY:
        out[name] = read(place, name)
    out["driver"] = target(place, "driver")
    if names:
        out["names"] = names
    return out


def read_fully(root: str, place: str, out: dict[str, object]) -> None:
    """What is told of GPUs, adapters and the bridges above them."""
    for name in FULL:
        text = read(place, name)
        if text is not None:
            out[name] = text
    for name in AER:
        total = re.search(r"^TOTAL\S*\s+\d+", read(place, name) or "", re.M)
        if total:
            out[name] = total[0]
    group = target(place, "iommu_group")
    if group is not None:
        out["iommu_group"] = group
        out["iommu_type"] = read(place, "iommu_group", "type")


def devices(root: str) -> tuple[dict[str, dict[str, object]], bool]:
    """All devices by address; False where there is no PCI bus to be seen."""
    base = os.path.join(root, "bus", "pci", "devices")
    names = by_udev() if os.path.realpath(root) == "/sys" else {}
    found = sorted({n for n in (*(listing(base) or ()), *names) if _BDF.match(n)})
    out = {bdf: identify(root, os.path.join(base, bdf), names.get(bdf, {})) for bdf in found}
    full: set[str] = set()
    for facts in out.values():
        if wanted(facts):
            full.update(part for part in str(facts["path"]).split("/") if part in out)
    for bdf in full:
        read_fully(root, os.path.join(base, bdf), out[bdf])
    sample([(os.path.join(base, bdf), facts) for bdf, facts in out.items() if is_gpu(facts)])
    return out, os.path.isdir(base)


def sample(gpus: list[tuple[str, dict[str, object]]]) -> None:
    """Read the GPUs' links a few times: one reading may fall on a moment of power saving or of training."""
    taken: dict[str, list[list[str | None]]] = {place: [] for place, _ in gpus}
    for turn in range(SAMPLES if gpus else 0):
        if turn:
            time.sleep(PAUSE_S)
        for place, _ in gpus:
            taken[place].append([read(place, "current_link_speed"), read(place, "current_link_width")])
    for place, facts in gpus:
        facts["samples"] = taken[place]


def slots(root: str) -> dict[str, str]:
    """Address -> name of the slot, as the firmware numbers them."""
    base = os.path.join(root, "bus", "pci", "slots")
    out = {}
    for name in listing(base) or ():
        address = read(base, name, "address")
        if address:
            out[address] = name
    return out


def infiniband(root: str) -> dict[str, object] | None:
    """RDMA devices with the states of their ports."""
    base = os.path.join(root, "class", "infiniband")
    names = listing(base)
    if names is None:
        return None
    out: dict[str, object] = {}
    for name in names:
        device = os.path.join(base, name, "device")
        ports = {}
        for port in listing(base, name, "ports") or ():
            ports[port] = {
                key: read(base, name, "ports", port, key) for key in ("state", "phys_state", "rate", "link_layer")
            }
            # Which network interface is this port: the ones of the whole function would mix the ports of one card.
            ports[port]["netdev"] = read(base, name, "ports", port, "gid_attrs", "ndevs", "0")
        out[name] = {
            "path": shown(root, os.path.realpath(device)),
            "numa_node": read(device, "numa_node"),
            "netdevs": listing(device, "net") or [],
            "ports": ports,
        }
    return out


def network(root: str) -> dict[str, str]:
    """Network interface -> path of its device."""
    base = os.path.join(root, "class", "net")
    return {
        name: shown(root, os.path.realpath(os.path.join(base, name, "device")))
        for name in listing(base) or ()
        if os.path.exists(os.path.join(base, name, "device"))
    }


def main(root: str) -> int:
    """Print the answer; 3 where there is no PCI bus to be seen."""
    found, readable = devices(root)
    if not readable:
        print(f"{os.path.join(root, 'bus/pci/devices')} cannot be read: no PCI bus, or sysfs is not mounted", file=sys.stderr)
        return 3
    groups = listing(root, "kernel", "iommu_groups")
    answer = {
        "probe": "gpudoctor.pci",
        "schema": 1,
        "devices": found,
        "slots": slots(root),
        "infiniband": infiniband(root),
        "net": network(root),
        "iommu_units": listing(root, "class", "iommu"),
        "iommu_groups": None if groups is None else len(groups),
        "aspm_policy": read(root, "module", "pcie_aspm", "parameters", "policy"),
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "/sys"))
