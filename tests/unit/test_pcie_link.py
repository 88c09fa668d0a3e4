"""pcie-width and pcie-speed on built hosts."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.checkers.pcie_errors import PcieErrors
from gpudoctor.checkers.pcie_link import PcieSpeed, PcieWidth
from gpudoctor.facts.gpu import Gpu, Gpus, LinkSample
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.model import CannotTell
from tests.builders import Host, host
from tests.support import HERE, check, findings, parse


def width(made: Host) -> dict[str, tuple[str, str]]:
    return {f.subject: (f.severity, f.confidence) for f in findings(PcieWidth(), *made.facts()).values()}


def speed(made: Host) -> dict[str, str]:
    return {f.subject: f.severity for f in findings(PcieSpeed(), *made.facts()).values()}


GPU1 = "gpu:0000:82:00.0"


def test_a_whole_link_is_in_order() -> None:
    assert check(PcieWidth(), *host(8, 4).facts()) == []
    assert check(PcieSpeed(), *host(8, 4).facts()) == []


@pytest.mark.parametrize(("lanes", "severity"), [(12, "warning"), (8, "error"), (4, "error"), (1, "error")])
def test_severity_by_lanes_left(lanes: int, severity: str) -> None:
    assert width(host().narrow(1, lanes)) == {GPU1: (severity, "certain")}


def test_nvlink_pairs_leave_only_host_copies_on_the_link() -> None:
    assert width(host(name="NVIDIA A100-SXM4-40GB", device_id="10de:20b0").nvlink().narrow(1, 4)) == {GPU1: ("warning", "certain")}


def test_a_bridged_pair_still_reaches_others_over_pcie() -> None:
    assert width(host(4).nvlink((0, 1), (2, 3)).narrow(1, 8)) == {GPU1: ("error", "certain")}


def test_a_lone_gpu_carries_no_gpu_traffic() -> None:
    assert width(host(1).narrow(0, 4)) == {"gpu:0000:81:00.0": ("warning", "certain")}


def test_the_port_limits_what_is_wanted() -> None:
    # x8 trained in a x8 port is the slot's matter.
    assert width(host().slot(1, width=8)) == {}
    assert width(host().slot(1, width=8).narrow(1, 4)) == {GPU1: ("error", "certain")}


def test_a_card_made_with_eight_lanes_is_whole_at_eight() -> None:
    made = host(name="NVIDIA GeForce RTX 4060", device_id="10de:2882")
    for gpu in (0, 1):
        made.set(made.bdf(gpu), max_width=8).set_gpu(gpu, max_width=8).narrow(gpu, 8)
    assert width(made) == {}


def test_only_the_cards_end_is_possible() -> None:
    made = host().narrow(1, 8)
    made.devices = {}
    # Eight lanes may be the slot's own; four would be an error either way.
    assert width(made) == {GPU1: ("warning", "possible")}
    made = host().narrow(1, 4)
    made.devices = {}
    assert width(made) == {GPU1: ("error", "possible")}


def test_cost_and_commands_name_this_host() -> None:
    (found,) = findings(PcieWidth(), *host().narrow(1, 4).facts()).values()
    assert found.cost == "at most 7.9 of 31.5 GB/s each way"
    assert found.gain is not None
    assert (found.gain.before, found.gain.after) == (7.9, 31.5)
    assert any("0000:82:00.0" in (s.command or "") and "0000:01:01.0" in (s.command or "") for s in found.remediation)
    assert found.evidence


def test_without_widths_it_cannot_tell() -> None:
    gpus = Gpus((Gpu(index=0, origin=HERE), Gpu(index=1, width=16, origin=HERE)))
    said = check(PcieWidth(), gpus)
    assert [type(s) for s in said] == [CannotTell, CannotTell]
    said = check(PcieSpeed(), gpus)
    assert [type(s) for s in said] == [CannotTell, CannotTell]


def test_no_gpu_in_the_input_is_no_health() -> None:
    nic = PciDevice(bdf="0000:31:00.0", class_code="020000", width=8, max_width=16, origin=HERE)
    assert [type(s) for s in check(PcieWidth(), PciTree((nic,)))] == [CannotTell]
    # The whole bus without a GPU: nothing to judge, and a NIC is none of this check's business.
    assert check(PcieWidth(), PciTree((nic,), complete=True)) == []


def test_an_empty_port_is_nothing() -> None:
    port = PciDevice(bdf="0000:00:1c.0", class_code="060400", width=1, max_width=16, link_up=False, origin=HERE)
    assert check(PcieWidth(), PciTree((port,), complete=True)) == []


@pytest.mark.parametrize("how", ["platform", "emulated", "root-bus", "passthrough"])
def test_a_virtual_machine_proves_no_fault(how: str) -> None:
    made = host().narrow(1, 4).slow(1, 2.5)
    if how == "platform":
        made.platform(vm=True)
    elif how == "emulated":
        made.set(made.port(1), virtual=True)
    elif how == "root-bus":
        made.set(made.bdf(1), parent=None)
    else:
        made.devices = {}
        made.every_gpu(virtualization="passthrough")
    for checker in (PcieWidth(), PcieSpeed()):
        said = check(checker, *made.facts())
        assert said
        assert all(isinstance(s, CannotTell) for s in said)


@pytest.mark.parametrize("name", ["GB202 [GeForce RTX 5090]", "GH100 [H100 PCIe]", "GB203 [GeForce RTX 5080]"])
def test_a_die_of_hopper_or_blackwell_is_no_superchip(name: str) -> None:
    """lspci names the die before the product."""
    made = host(name=f"NVIDIA Corporation {name}", device_id=None)
    assert width(made) == {}
    assert set(width(made.narrow(1, 8))) == {GPU1}


def test_grace_superchips_are_left_out() -> None:
    assert width(host(name="NVIDIA GH200 480GB", device_id="10de:2342").narrow(1, 1)) == {}
    assert width(host().every_gpu(c2c=True).narrow(1, 1)) == {}


def test_a_block_without_address_is_possible() -> None:
    card = PciDevice(driver="nvidia", width=4, max_width=8, speed_gts=2.5, max_speed_gts=16.0, origin=HERE)
    found = findings(PcieWidth(), PciTree((card,)))
    assert {k: (f.severity, f.confidence) for k, f in found.items()} == {("pcie-width", "gpu:?"): ("warning", "possible")}
    (note,) = findings(PcieSpeed(), PciTree((card,))).values()
    assert (note.severity, note.confidence) == ("note", "possible")


def test_two_switch_chip_links_are_no_gpus() -> None:
    made = host()
    made.devices["0000:90:00.0"] = PciDevice(bdf="0000:90:00.0", class_code="068000", width=2, max_width=16, origin=HERE)
    assert width(made) == {}


def test_an_idle_low_rate_is_a_note() -> None:
    assert speed(host().slow(1, 2.5)) == {GPU1: "note"}
    (found,) = findings(PcieSpeed(), *host().slow(1, 2.5).set_gpu(1, pstate=0).facts()).values()
    assert found.severity == "note"
    assert "P0" in found.message


def test_a_low_rate_under_proven_load() -> None:
    assert speed(host().slow(1, 8.0, busy=True)) == {GPU1: "error"}
    assert speed(host(name="NVIDIA A100-SXM4-40GB", device_id="10de:20b0").nvlink().slow(1, 8.0, busy=True)) == {GPU1: "warning"}
    (found,) = findings(PcieSpeed(), *host().slow(1, 8.0, busy=True).facts()).values()
    assert found.cost == "at most 15.8 of 31.5 GB/s each way"


def test_one_reading_at_full_rate_clears_the_low_ones() -> None:
    samples = tuple(LinkSample(speed_gts=s, width=16, busy=b) for s, b in ((2.5, False), (16.0, True), (8.0, True)))
    assert speed(host().slow(1, 2.5).set_gpu(1, samples=samples)) == {}


def test_samples_not_proven_busy_stay_a_note() -> None:
    assert speed(host().slow(1, 8.0, busy=False)) == {GPU1: "note"}


def test_the_slots_generation_is_the_measure() -> None:
    assert speed(host().slot(1, speed_gts=8.0)) == {}


def test_a_laptop_may_wire_fewer_lanes() -> None:
    gpu = Gpu(index=0, bdf="0000:01:00.0", name="NVIDIA GeForce RTX 3050 Laptop GPU", width=8, max_width=16, origin=HERE)
    (found,) = findings(PcieWidth(), Gpus((gpu,), complete=True)).values()
    assert (found.severity, found.confidence) == ("note", "possible") and "laptop" in found.message


def nameless(**values: object) -> PciDevice:
    return PciDevice(**values, origin=HERE)  # type: ignore[arg-type]


def test_of_a_filtered_listing_only_lspcis_word_tells() -> None:
    gpu = {"bdf": "0000:41:00.0", "class_code": "030000", "device_id": "10de:2204", "width": 4}
    found = findings(PcieWidth(), PciTree((nameless(**gpu, narrowed=True),)))["pcie-width", "gpu:0000:41:00.0"]
    assert (found.severity, found.confidence, found.gain) == ("warning", "possible", None)
    assert "x4" in found.message
    assert findings(PcieWidth(), PciTree((nameless(**gpu),))) == {}
    laptop = nameless(**gpu, narrowed=True, name="NVIDIA Corporation GA107M [GeForce RTX 3050 Mobile]")
    assert findings(PcieWidth(), PciTree((laptop,)))["pcie-width", "gpu:0000:41:00.0"].severity == "note"


def test_links_that_nobody_names_make_one_note() -> None:
    low = nameless(width=8, max_width=16, speed_gts=2.5, max_speed_gts=16.0)
    whole = nameless(width=16, max_width=16, speed_gts=16.0, max_speed_gts=16.0)
    for checker, slug in ((PcieWidth(), "pcie-width"), (PcieSpeed(), "pcie-speed")):
        found = findings(checker, PciTree((low, whole, low)))
        assert {(key, f.severity, f.confidence) for key, f in found.items()} == {((slug, "host"), "note", "possible")}
        assert "2 PCIe links" in found[slug, "host"].message
        assert findings(checker, PciTree((whole,))) == {}


def test_ports_drives_and_devices_beside_known_gpus_are_not_spoken_of() -> None:
    low = {"width": 1, "max_width": 16, "speed_gts": 2.5, "max_speed_gts": 16.0}
    others = (
        nameless(**low, port_type="root"),
        nameless(**low, link_up=False),
        nameless(**low, bdf="0000:01:00.0", class_code="010802"),
    )
    beside = Gpus((Gpu(index=0, bdf="0000:41:00.0", width=16, max_width=16, speed_gts=16.0, max_speed_gts=16.0, origin=HERE),), True)
    for checker in (PcieWidth(), PcieSpeed()):
        assert findings(checker, PciTree(others)) == {}
        assert findings(checker, PciTree((nameless(**low, bdf="0000:01:00.0"),)), beside) == {}


BOOT = "[ 9.2] pci 0000:41:00.0: {gb} Gb/s available PCIe bandwidth, limited by {speed} GT/s PCIe x{now} link at 0000:40:01.1 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x{could} link)\n"
BOUND = "[ 12.6] nvidia 0000:41:00.0: enabling device (0000 -> 0003)\n"


def at_boot(log: str, *facts: Any) -> dict[str, tuple[str, str]]:
    read = parse("kernel-log", log)
    return {s: (f.severity, f.confidence) for (slug, s), f in findings(PcieWidth(), *read, *facts).items() if slug == "pcie-width"}


def test_lanes_that_the_kernel_found_at_boot() -> None:
    four = BOOT.format(gb=63.008, speed="16.0", now=4, could=16)
    assert at_boot(four + BOUND) == {"gpu:0000:41:00.0": ("warning", "possible")}
    assert at_boot(four + "[ 99.1] NVRM: Xid (PCI:0000:41:00): 31, pid=1\n") == {"gpu:0000:41:00.0": ("warning", "possible")}
    # Once: no second word on the same line by another check.
    assert ("pcie-errors", "pci:0000:41:00.0") not in findings(PcieErrors(), *parse("kernel-log", four + BOUND))


@pytest.mark.parametrize(
    "log",
    [
        BOOT.format(gb=63.008, speed="16.0", now=4, could=16),  # perhaps a drive
        BOOT.format(gb=63.008, speed="16.0", now=4, could=16) + BOUND.replace("41:00", "42:00"),
        BOOT.format(gb=32.0, speed="2.5", now=16, could=16) + BOUND,  # idle
        BOOT.format(gb=126.0, speed="16.0", now=8, could=16) + BOUND,  # two cards often share sixteen lanes
        BOOT.format(gb=8.0, speed="2.5", now=4, could=4) + BOUND,
    ],
)
def test_what_the_kernel_says_of_an_idle_link_at_boot_is_no_fault(log: str) -> None:
    assert at_boot(log) == {}


def test_a_width_that_was_read_beats_the_words_of_boot() -> None:
    gpu = Gpu(index=0, bdf="0000:41:00.0", name="NVIDIA L40S", width=16, max_width=16, origin=HERE)
    assert at_boot(BOOT.format(gb=63.008, speed="16.0", now=4, could=16) + BOUND, Gpus((gpu,))) == {}
