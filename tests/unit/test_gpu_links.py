"""Which links are looked at, and how driver and bus are joined."""

from __future__ import annotations

from gpudoctor.checkers.gpu_links import GpuLink, gpu_links
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from tests.builders import Host, host
from tests.support import HERE, store


def links(made: Host) -> list[GpuLink]:
    return list(gpu_links(FactView(store(*made.facts()), frozenset((Gpus, PciTree, Platform)))))


def test_every_gpu_with_its_port_and_bridges() -> None:
    made = host(4, 2)
    found = links(made)
    assert [link.gpu.index for link in found] == [0, 1, 2, 3]
    assert [link.port.bdf for link in found if link.port] == [made.port(g) for g in range(4)]
    assert [d.bdf for d in found[0].above] == [made.port(0), made.uplink(0), made.root(0)]


def test_a_matrix_and_a_bus_listing_join_in_the_order_of_addresses() -> None:
    made = host(3)
    made.gpus = {i: Gpu(index=i, origin=HERE) for i in range(3)}
    assert [(link.gpu.index, link.gpu.bdf) for link in links(made)] == [(i, f"0000:{0x81 + i:02x}:00.0") for i in range(3)]
    # Unequal counts: which is which cannot be said.
    made.gpus = {i: Gpu(index=i, origin=HERE) for i in range(2)}
    assert [link.gpu.index for link in links(made)] == [None, None, None]


def test_a_card_the_driver_does_not_list_counts_only_when_bound_to_it() -> None:
    made = host(3)
    del made.gpus[2]
    assert len(links(made)) == 2  # the driver's list is whole: the third is not visible here (a container, an allocation)
    made.complete = False
    assert len(links(made)) == 3
    made.set("0000:83:00.0", driver="vfio-pci")
    assert len(links(made)) == 2


def test_display_cards_and_superchips_are_left_out() -> None:
    assert len(links(host(2).set_gpu(1, name="NVIDIA DGX Display", device_id="10de:1fb0"))) == 1
    assert len(links(host(2).set_gpu(1, name="NVIDIA GB200", device_id=None))) == 1


def test_a_dead_port_is_left_out() -> None:
    made = host(2)
    assert len(links(made.set(made.port(1), link_up=False))) == 1


def test_a_switch_drawn_without_its_downstream_ports_is_no_end_of_the_link() -> None:
    made = host(1)
    (link,) = links(made.set(made.port(0), port_type="upstream"))
    assert link.port is None
    assert len(link.above) == 1
