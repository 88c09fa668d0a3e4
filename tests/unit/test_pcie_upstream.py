"""pcie-upstream and chipset-slot on built hosts."""

from __future__ import annotations

from gpudoctor.checkers.chipset_slot import ChipsetSlot
from gpudoctor.checkers.pcie_upstream import PcieUpstream
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.model import CannotTell
from tests.builders import Host, host
from tests.support import HERE, check, findings


def said(made: Host) -> dict[str, tuple[str, str]]:
    return {f.subject: (f.severity, f.confidence) for f in findings(PcieUpstream(), *made.facts()).values()}


def test_a_shared_full_uplink_is_by_design() -> None:
    assert check(PcieUpstream(), *host(8, 2).facts()) == []


def test_a_narrow_uplink_hits_every_gpu_below() -> None:
    made = host(4, 2)
    made.set(made.uplink(0), width=8).set(made.root(0), width=8)
    assert said(made) == {"gpu:0000:81:00.0": ("warning", "certain"), "gpu:0000:83:00.0": ("warning", "certain")}
    (found, _) = findings(PcieUpstream(), *made.facts()).values()
    assert "2 GPUs share it" in found.message
    assert found.cost == "at most 15.8 of 31.5 GB/s each way"
    made.set(made.uplink(0), width=4)
    assert {s for s, _ in said(made).values()} == {"error"}


def test_nvlink_leaves_host_copies() -> None:
    made = host(2, 1, device_id="10de:20b0", name="NVIDIA A100-SXM4-40GB").nvlink()
    assert {s for s, _ in said(made.set(made.uplink(0), width=2)).values()} == {"warning"}


def test_speed_is_judged_by_what_the_hop_can_do() -> None:
    made = host(2, 1)
    assert {s for s, _ in said(made.set(made.uplink(0), max_speed_gts=8.0, speed_gts=8.0)).values()} == {"warning"}


def test_a_sleeping_uplink_above_a_sleeping_gpu_is_nothing() -> None:
    made = host(1, 1)
    made.slow(0, 2.5).set(made.uplink(0), speed_gts=2.5)
    assert said(made) == {}


def test_a_slow_uplink_above_a_gpu_at_full_rate_is_slow() -> None:
    made = host(1, 1)
    made.set(made.uplink(0), speed_gts=8.0)
    assert said(made) == {"gpu:0000:81:00.0": ("warning", "likely")}


def test_the_gpus_own_link_is_not_a_hop_above() -> None:
    assert said(host(2, 1).narrow(0, 4)) == {}
    assert said(host(2).slot(0, width=4)) == {}
    made = host(2)
    assert said(made.set(made.port(0), width=4)) == {}  # two readings of one link that differ are no hop


def test_a_topology_file_gives_one_figure_per_hop() -> None:
    def hop(bdf: str, parent: str | None, speed: float, class_code: str = "060400") -> PciDevice:
        return PciDevice(bdf=bdf, parent=parent, class_code=class_code, speed_gts=speed, width=16, origin=HERE)

    tree = [hop("0000:08:00.0", None, 5.0), hop("0000:0d:00.0", "0000:08:00.0", 32.0), hop("0000:0f:00.0", "0000:0d:00.0", 32.0, "030200")]
    found = findings(PcieUpstream(), PciTree(tuple(tree)))
    assert {(f.severity, f.confidence) for f in found.values()} == {("warning", "possible")}
    tree[0] = hop("0000:08:00.0", None, 32.0)
    assert check(PcieUpstream(), PciTree(tuple(tree))) == []


def test_unknown_bridges_and_rates_cannot_be_told() -> None:
    made = host(1)
    made.set(made.bdf(0), parent=None, parent_known=None)
    assert [type(s) for s in check(PcieUpstream(), *made.facts())] == [CannotTell]
    bare = PciTree((PciDevice(bdf="0000:02:00.0", class_code="030000", parent="0000:00:01.0", origin=HERE),
                    PciDevice(bdf="0000:00:01.0", class_code="060400", origin=HERE)))  # fmt: skip
    assert [type(s) for s in check(PcieUpstream(), bare)] == [CannotTell]


def test_emulated_bridges_are_not_judged() -> None:
    made = host(1, 1)
    made.every_bridge(virtual=True, width=1)
    assert check(PcieUpstream(), *made.facts()) == []


def test_chipset_port_by_id_and_by_name() -> None:
    made = host()
    made.every_bridge(device_id="8086:460d")
    assert check(ChipsetSlot(), *made.facts()) == []
    made.set(made.port(1), device_id="8086:7a38")
    (found,) = findings(ChipsetSlot(), *made.facts()).values()
    assert (found.subject, found.severity, found.confidence) == ("gpu:0000:82:00.0", "warning", "certain")
    assert "700" in found.message
    made.set(made.port(1), device_id=None, name="Intel Corporation 200 Series PCH PCI Express Root Port #1 (rev f0)")
    (found,) = findings(ChipsetSlot(), *made.facts()).values()
    assert found.confidence == "likely"


def test_chipset_switch_anywhere_above_counts_once() -> None:
    made = host(1, 1)
    made.set(made.uplink(0), device_id="1022:43f4").set(made.port(0), device_id="1022:43f5")
    assert len(findings(ChipsetSlot(), *made.facts())) == 1


def test_imitated_chipset_of_a_virtual_machine_is_nothing() -> None:
    made = host(1).platform(vm=True)
    made.set(made.port(0), device_id="8086:7a38")
    assert check(ChipsetSlot(), *made.facts()) == []


def test_chipset_without_bridges_cannot_be_told() -> None:
    made = host(1)
    made.set(made.bdf(0), parent=None, parent_known=None)
    assert [type(s) for s in check(ChipsetSlot(), *made.facts())] == [CannotTell]
    assert [type(s) for s in check(ChipsetSlot(), *host(1).facts())] == [CannotTell]  # bridges of unknown make


def test_gpus_below_one_switch_reach_each_other_without_its_uplink() -> None:
    made = host(2, 1)
    made.set(made.uplink(0), width=2).set(made.root(0), width=2)
    assert {s for s, _ in said(made).values()} == {"warning"}
    assert all("only copies to and from the host" in f.message for f in findings(PcieUpstream(), *made.facts()).values())
    # A port that sends their traffic up makes it pass, and what the ports do may not be in the input.
    port = made.port(0)
    made.set(port, acs={"ReqRedir": True, "CmpltRedir": True})
    assert said(made)["gpu:0000:81:00.0"] == ("error", "certain")
    made.set(port, acs=None)
    assert said(made)["gpu:0000:81:00.0"] == ("warning", "certain")
    assert "is not in the input" in findings(PcieUpstream(), *made.facts())["pcie-upstream", "gpu:0000:81:00.0"].message
    # With another switch beside it, what goes there passes.
    wider = host(4, 2)
    assert {s for s, _ in said(wider.set(wider.uplink(0), width=2).set(wider.root(0), width=2)).values()} == {"error"}
