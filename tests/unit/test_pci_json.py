"""sysfs, as the pci child prints it, to facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.system import Aspm, Iommu
from gpudoctor.facts.topology import Nics
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

HEAD = {"probe": "gpudoctor.pci", "schema": 1}
GPU = {"path": "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0", "class": "0x030000", "vendor": "0x10de", "device": "0x2684"}


def fixture(name: str) -> dict[type[Any], Any]:
    return {type(f): f for f in parse("pci-json", (FIXTURES / "outputs/pci-json" / f"{name}.txt").read_text())}


def told(devices: Any, **more: Any) -> dict[type[Any], Any]:
    return {type(f): f for f in parse("pci-json", json.dumps({**HEAD, "devices": devices, **more}))}


def one(**attributes: Any) -> Any:
    return told({"0000:41:00.0": {**GPU, **attributes}})[PciTree].by_bdf("0000:41:00.0")


def test_a_virtual_machine_shows_no_bridge_and_no_node() -> None:
    found = fixture("h200x2-vm")
    tree = found[PciTree]
    first, second = tree.gpus()
    assert (first.bdf, first.device_id, first.class_code) == ("0000:00:06.0", "10de:2335", "030200")
    assert (first.speed_gts, first.max_speed_gts, first.width, first.max_width) == (32.0, 32.0, 16, 16)
    assert (first.numa_node, first.numa_reported, first.local_cpulist) == (None, -1, "0-31")
    assert first.parent is None and first.parent_known and first.virtual is False
    assert [d.bdf for d in tree if d.virtual] == [f"0000:00:0{n}.0" for n in range(1, 6)]
    assert tree.complete and found[Iommu].entry.mode == "off" and found[Iommu].entry.units == 0
    assert found[Aspm].policy == "default"
    assert not found[Nics].states_read


def test_two_sockets_one_switch() -> None:
    found = fixture("two-sockets-one-switch")
    tree = found[PciTree]
    assert [d.port_type for d in tree.ancestors("0000:43:00.0")] == ["downstream", "upstream", "root"]
    assert [d.bdf for d in tree.between("0000:43:00.0", "0000:44:00.0")] == ["0000:42:01.0", "0000:41:00.0", "0000:42:02.0"]
    assert tree.between("0000:43:00.0", "0000:c1:00.0") is None
    nic = found[Nics].nics[0]
    assert (nic.device, nic.bdf, nic.state, nic.rate_gbps, nic.port) == ("mlx5_0", "0000:44:00.0", "active", 400.0, 1)
    assert nic.at("rate_gbps").where == "/sys/class/infiniband/mlx5_0/ports/1/rate"
    assert (found[Iommu].entry.mode, found[Iommu].entry.translating) == ("translating", True)
    assert found[Iommu].entry.at("mode").value == "DMA-FQ"


@pytest.mark.parametrize(
    ("said", "speed"),
    [
        ("2.5 GT/s PCIe", 2.5),
        ("64.0 GT/s PCIe", 64.0),
        ("8 GT/s", 8.0),
        ("Unknown", None),
        ("Unknown speed", None),
        ("", None),
        (None, None),
        ("999 GT/s", None),
        (16, None),
    ],
)
def test_speeds(said: Any, speed: float | None) -> None:
    assert one(max_link_speed=said).max_speed_gts == speed


@pytest.mark.parametrize(("said", "width"), [("16", 16), ("1", 1), ("0", None), ("63", None), ("255", None), ("-1", None), ("x8", None), (None, None)])
def test_widths(said: Any, width: int | None) -> None:
    assert one(current_link_width=said).width == width


def test_a_link_without_lanes_is_down() -> None:
    assert one(current_link_width="0").link_up is False
    assert one(current_link_width="63").link_up is None  # a function that does not answer says nothing of its link


def test_the_best_of_the_readings_counts_with_its_text_as_evidence() -> None:
    gpu = one(
        current_link_speed="2.5 GT/s PCIe", current_link_width="16", samples=[["2.5 GT/s PCIe", "16"], ["32.0 GT/s PCIe", "16"], [None, "0"], 7]
    )
    assert (gpu.speed_gts, gpu.width) == (32.0, 16)
    assert gpu.at("speed_gts").value == "32 GT/s"


@pytest.mark.parametrize(
    ("path", "parent"),
    [
        ("/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0", "0000:40:01.1"),
        ("/sys/devices/pci0000:00/0000:00:06.0", None),
        # A VMD controller's devices stand on a root bus of their own.
        ("/sys/devices/pci0000:16/0000:16:00.5/pci10000:00/10000:00:01.0", None),
        ("/sys/devices/pci0000:16/0000:16:00.5/pci10000:00/10000:00:01.0/10000:01:00.0", "10000:00:01.0"),
        ("/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001-0000-3130-444532333330/pciABCD:00/ABCD:00:00.0", None),
    ],
)
def test_parents(path: str, parent: str | None) -> None:
    gpu = one(path=path)
    assert gpu.parent == parent and gpu.parent_known


def test_without_a_path_the_parent_is_unknown() -> None:
    assert one(path=None).parent_known is None


def test_numa_minus_one_is_no_node() -> None:
    assert (one(numa_node="-1").numa_node, one(numa_node="-1").numa_reported) == (None, -1)
    assert (one(numa_node="3").numa_node, one(numa_node="x").numa_reported) == (3, None)


def test_aspm_is_unknown_where_the_kernel_has_no_control() -> None:
    assert (one().aspm_enabled, one().aspm_supported) == (None, None)
    off = one(**{"link/clkpm": "0", "link/l1_aspm": "0"})
    assert (off.aspm_supported, off.aspm_enabled, off.aspm_substates) == (("L1",), (), ())
    on = one(**{"link/l0s_aspm": "1", "link/l1_aspm": "1", "link/l1_2_aspm": "1"})
    assert (on.aspm_enabled, on.aspm_substates) == (("L0s", "L1"), ("L1.2",))


def test_aer_totals() -> None:
    gpu = one(aer_dev_correctable="TOTAL_ERR_COR 12", aer_dev_fatal="TOTAL_ERR_FATAL 0", aer_dev_nonfatal="mangled")
    assert gpu.aer == {"correctable": 12, "fatal": 0}
    assert one().aer is None


def test_bars() -> None:
    rows = "0x00000000a0000000 0x00000000a0ffffff 0x40200\n0x0 0x0 0x0\n0x0000024000000000 0x000002403fffffff 0x14220c"
    assert one(resource=rows).bar_sizes == (16 << 20, 1 << 30)
    assert one(resource="mangled").bar_sizes is None


@pytest.mark.parametrize(
    ("vendor", "subsystem", "virtual"),
    [
        ("0x1af4", "0x1af4", True),
        ("0x1b36", "0x1b36", True),
        ("0x15ad", "0x15ad", True),
        ("0x1414", None, True),
        ("0x8086", "0x1af4", True),  # an Intel port that QEMU imitates
        ("0x8086", "0x15d9", False),
        (None, None, None),
    ],
)
def test_emulated_devices(vendor: str | None, subsystem: str | None, virtual: bool | None) -> None:
    assert one(vendor=vendor, subsystem_vendor=subsystem, subsystem_device="0x1100").virtual is virtual


def test_slots_and_names() -> None:
    found = told({"0000:41:00.0": {**GPU, "names": {"vendor": "NVIDIA Corporation", "model": "AD102"}}}, slots={"0000:41:00": "3-1"})
    gpu = found[PciTree].gpus()[0]
    assert (gpu.slot, gpu.name) == ("3-1", "NVIDIA Corporation AD102")


def test_a_pcie_to_pci_bridge_below_a_root_port_is_no_switch() -> None:
    bridge = {"class": "0x060400", "vendor": "0x1b21", "device": "0x1080", "max_link_width": "1"}
    found = told(
        {
            "0000:00:1c.0": {**bridge, "path": "/sys/devices/pci0000:00/0000:00:1c.0"},
            "0000:01:00.0": {**bridge, "path": "/sys/devices/pci0000:00/0000:00:1c.0/0000:01:00.0"},
        }
    )
    assert [d.port_type for d in found[PciTree]] == ["root", None]


def iommu(units: Any, groups: Any, *types: str | None) -> Any:
    devices = {
        f"0000:4{n}:00.0": {**GPU, "iommu_group": str(n), "iommu_type": kind} for n, kind in enumerate(types)
    } or {"0000:41:00.0": GPU}
    found = told(devices, iommu_units=units, iommu_groups=groups).get(Iommu)
    return found and (found.entry.units, found.entry.mode, found.entry.translating)


def test_iommu_modes() -> None:
    assert iommu([], 0) == (0, "off", False)
    assert iommu(["dmar0"], 0) == (1, "off", False)  # units without groups remap interrupts only
    assert iommu(["dmar0", "dmar1"], 60, "identity", "identity") == (2, "passthrough", False)
    assert iommu(["ivhd0"], 60, "identity", "DMA-FQ") == (1, "translating", True)
    assert iommu(["ivhd0"], 60, None) == (1, None, None)  # an old kernel without `type`: not known
    assert iommu(None, None) is None


def test_a_nics_group_does_not_outvote_the_gpu() -> None:
    nic = {"path": "/sys/devices/pci0000:00/0000:00:03.0", "class": "0x020000", "vendor": "0x15b3", "device": "0x1021"}
    found = told(
        {
            "0000:41:00.0": {**GPU, "iommu_group": "1", "iommu_type": "identity"},
            "0000:00:03.0": {**nic, "iommu_group": "2", "iommu_type": "DMA"},
        },
        iommu_units=["dmar0"],
        iommu_groups=3,
    )
    assert found[Iommu].entry.mode == "passthrough"


def port(state: str, rate: str = "100 Gb/sec (4X EDR)") -> dict[str, Any]:
    return {"state": state, "rate": rate, "link_layer": "InfiniBand", "netdev": None}


def test_rdma_ports() -> None:
    said = {
        "mlx5_0": {"path": "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0", "netdevs": ["ibs1"], "ports": {"1": port("4: ACTIVE")}},
        "mlx5_1": {"path": "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.1", "netdevs": [], "ports": {"1": port("1: DOWN", "10 Gb/sec (4X SDR)")}},
        "mlx4_0": {"path": "/sys/devices/pci0000:00/0000:00:02.0", "netdevs": ["a", "b"], "ports": {"1": port("1: DOWN"), "2": port("4: ACTIVE", "56 Gb/sec (4X FDR)")}},
        "rxe0": {"path": "/sys/devices/virtual/net/lo", "netdevs": [], "ports": {}},
        "mlx5_2": {"path": "", "netdevs": [], "ports": {"1": port("5: ACTIVE_DEFER")}},
    }
    found = told({"0000:41:00.0": GPU}, infiniband=said)[Nics]
    assert [(n.name, n.bdf, n.port, n.state, n.rate_gbps, n.netdev) for n in found] == [
        ("mlx5_0", "0000:41:00.0", 1, "active", 100.0, "ibs1"),
        ("mlx5_1", "0000:41:00.1", 1, "down", 10.0, None),
        ("mlx4_0", "0000:00:02.0", 2, "active", 56.0, None),
        ("rxe0", None, None, None, None, None),
        ("mlx5_2", None, 1, "active", 100.0, None),
    ]
    assert found.states_read


def test_an_empty_bus_proves_nothing() -> None:
    assert told({})[PciTree].complete is False


def test_bad_addresses_are_said() -> None:
    found = parse("pci-json", json.dumps({**HEAD, "devices": {"not an address": {}, "0000:41:00.0": 7, "0000:42:00.0": GPU}}))
    assert sum(isinstance(f, Loss) for f in found) == 2
    assert [d.bdf for d in next(f for f in found if isinstance(f, PciTree))] == ["0000:42:00.0"]


def test_without_devices_it_is_refused() -> None:
    with pytest.raises(Unparsable, match="no list of PCI devices"):
        told_ = json.dumps(HEAD)
        parse("pci-json", told_)


def test_a_large_host_fits_one_line() -> None:
    """A line of text is shortened at 64 Ki characters; a child's JSON must not be."""
    devices = {f"0000:{n // 32:02x}:{n % 32:02x}.0": {**GPU, "local_cpulist": "0-191" * 20} for n in range(1500)}
    text = json.dumps({**HEAD, "devices": devices}) + "\n"
    assert len(text) > 300_000
    (section,) = recognise(text)
    assert section.kind == "pci-json" and not section.lines[0].cut
    assert len(next(f for f in parse("pci-json", text) if isinstance(f, PciTree)).devices) == 1500
