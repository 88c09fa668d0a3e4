"""The ports that `rdma link` lists."""

from __future__ import annotations

from typing import Any

from gpudoctor.checkers.nic import NicHealth
from gpudoctor.facts.topology import Nics
from gpudoctor.model import Finding
from tests.support import check, parse, recognise

IB = "link mlx5_{n}/1 subnet_prefix fe80:0000:0000:0000 lid {lid} sm_lid 1 lmc 0 state {state} physical_state {physical} \n"
ROCE = "link mlx5_{n}/1 state {state} physical_state {physical} netdev ens{n}f0np0 \n"
UP, DOWN = {"state": "ACTIVE", "physical": "LINK_UP"}, {"state": "DOWN", "physical": "DISABLED"}


def nics(text: str) -> Any:
    (found,) = [f for s in recognise(text) for f in parse(s.kind, "".join(f"{x.text}\n" for x in s)) if isinstance(f, Nics)]
    return found


def test_both_networks_and_both_forms() -> None:
    text = "$ rdma link\n" + IB.format(n=0, lid=5, **UP) + ROCE.format(n=1, **DOWN)
    assert [(n.device, n.port, n.state, n.link_layer, n.netdev) for n in nics(text)] == [
        ("mlx5_0", 1, "active", "InfiniBand", None),
        ("mlx5_1", 1, "down", "Ethernet", "ens1f0np0"),
    ]
    old = "1/1: mlx5_bond_0/1: state ACTIVE physical_state LINK_UP netdev bond0 \n"
    assert [(n.device, n.state, n.netdev) for n in nics(old)] == [("mlx5_bond_0", "active", "bond0")]


def test_a_port_that_is_down_beside_active_ones() -> None:
    text = "".join(IB.format(n=n, lid=5 + n, **(DOWN if n == 2 else UP)) for n in range(4))
    found = [f for f in check(NicHealth(), nics(text)) if isinstance(f, Finding)]
    assert [(f.slug, f.subject, f.severity) for f in found] == [("nic-link", "nic:mlx5_2", "error")]
    sound = "".join(IB.format(n=n, lid=5 + n, **UP) for n in range(4))
    assert not [f for f in check(NicHealth(), nics(sound)) if isinstance(f, Finding)]


def test_a_spare_ethernet_port_is_no_fault() -> None:
    text = IB.format(n=0, lid=5, **UP) + IB.format(n=1, lid=6, **UP) + ROCE.format(n=2, **DOWN)
    assert not [f for f in check(NicHealth(), nics(text)) if isinstance(f, Finding)]


def test_cut_anywhere_it_says_nothing_else() -> None:
    text = ROCE.format(n=1, **UP).rstrip()
    whole = {("mlx5_1", 1, "active", "ens1f0np0"), ("mlx5_1", 1, "active", None)}
    for end in range(len(text)):
        for fact in parse("rdma-link", text[:end]):
            assert {(n.device, n.port, n.state, n.netdev) for n in fact} <= whole
