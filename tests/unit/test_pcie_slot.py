"""slot-width and slot-speed on built hosts."""

from __future__ import annotations

import pytest

from gpudoctor.checkers.pcie_slot import SlotSpeed, SlotWidth
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.model import CannotTell
from tests.builders import Host, host
from tests.support import HERE, check, findings

GPU1 = "gpu:0000:82:00.0"


def said(checker: object, made: Host) -> dict[str, str]:
    return {f.subject: f.severity for f in findings(checker, *made.facts()).values()}


@pytest.mark.parametrize(("lanes", "severity"), [(8, "warning"), (4, "error"), (1, "error")])
def test_severity_by_the_ports_lanes(lanes: int, severity: str) -> None:
    assert said(SlotWidth(), host().slot(1, width=lanes)) == {GPU1: severity}


def test_narrow_slot_without_traffic_between_gpus_is_a_warning() -> None:
    assert said(SlotWidth(), host(1).slot(0, width=4)) == {"gpu:0000:81:00.0": "warning"}
    assert said(SlotWidth(), host(device_id="10de:20b0", name="NVIDIA A100-SXM4-40GB").nvlink().slot(1, width=4)) == {GPU1: "warning"}


def test_a_link_that_trained_narrow_is_not_the_slots_fault() -> None:
    assert said(SlotWidth(), host().narrow(1, 4)) == {}


def test_an_x8_card_in_an_x8_slot_is_in_order() -> None:
    made = host().slot(1, width=8).set("0000:82:00.0", max_width=8).set_gpu(1, max_width=8)
    assert check(SlotWidth(), *made.facts()) == []


def test_the_cost_is_said() -> None:
    (found,) = findings(SlotWidth(), *host().slot(1, width=8).facts()).values()
    assert found.cost == "at most 15.8 of 31.5 GB/s each way"
    assert "0000:01:01.0" in found.message
    # A slot that is old as well: what counts is what the card could have elsewhere.
    (found,) = findings(SlotWidth(), *host().slot(1, width=4, speed_gts=8.0).facts()).values()
    assert found.cost == "at most 3.9 of 31.5 GB/s each way"


def test_without_the_port_it_cannot_tell() -> None:
    gpus = Gpus((Gpu(index=0, bdf="0000:01:00.0", width=16, max_width=16, card_max_speed_gts=16.0, origin=HERE),))
    for checker in (SlotWidth(), SlotSpeed()):
        assert [type(s) for s in check(checker, gpus)] == [CannotTell]


def test_emulated_ports_are_not_judged() -> None:
    made = host().slot(1, width=1, speed_gts=2.5).set(host().port(1), virtual=True)
    assert check(SlotWidth(), *made.facts()) == []
    assert check(SlotSpeed(), *made.facts()) == []


def test_slot_speed_is_a_note_and_a_warning_beside_a_better_peer() -> None:
    both = host().slot(0, speed_gts=8.0).slot(1, speed_gts=8.0)
    assert said(SlotSpeed(), both) == {"gpu:0000:81:00.0": "note", GPU1: "note"}
    assert said(SlotSpeed(), host().slot(1, speed_gts=8.0)) == {GPU1: "warning"}
    # The other card is of another part: nothing to compare with.
    assert said(SlotSpeed(), host().slot(1, speed_gts=8.0).set_gpu(0, device_id="10de:2235")) == {GPU1: "note"}


def test_slot_speed_from_the_driver_alone() -> None:
    made = host().slot(1, speed_gts=8.0)
    made.devices = {}
    assert said(SlotSpeed(), made) == {GPU1: "warning"}


def test_equal_ends_are_in_order() -> None:
    assert check(SlotSpeed(), *host().facts()) == []


@pytest.mark.parametrize(("mine", "name", "severity"), [(8.0, "NVIDIA RTX A6000", "warning"), (16.0, "NVIDIA RTX A6000", None), (8.0, "NVIDIA TITAN V", None)])
def test_the_drivers_maximum_under_that_of_a_peer_of_the_same_part(mine: float, name: str, severity: str | None) -> None:
    """Without the port: the driver's maximum is the lesser of card and slot, so a like card that has more shows the slot."""
    gpus = (
        Gpu(index=0, bdf="0000:17:00.0", name="NVIDIA RTX A6000", max_speed_gts=16.0, width=16, max_width=16, origin=HERE),
        Gpu(index=1, bdf="0000:65:00.0", name=name, max_speed_gts=mine, width=16, max_width=16, origin=HERE),
    )
    found = findings(SlotSpeed(), Gpus(gpus)).values()
    assert [(f.subject, f.severity, f.confidence) for f in found] == ([("gpu:0000:65:00.0", severity, "likely")] if severity else [])
