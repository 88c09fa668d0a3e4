import pytest

from gpudoctor.checkers.nic import NicHealth
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.facts.topology import Nic, NicPath, Nics
from gpudoctor.model import CannotTell
from gpudoctor.read.section import Unparsable
from tests.support import HERE, check, findings, parse, recognise


def nic(number, state="active", rate=400.0, layer="InfiniBand", model="MT4129", **more):
    name = f"mlx5_{number}"
    return Nic(name=name, device=name, state=state, rate_gbps=rate, link_layer=layer, model=model, origin=HERE, **more)


def ports(*nics, paths=()):
    return Nics(nics, paths, states_read=True)


def path(gpu, name, word):
    return NicPath(gpu=gpu, nic=name, path=word, origin=HERE)


def links(*facts):
    return {s: f for (slug, s), f in findings(NicHealth(), *facts).items() if slug == "nic-link"}


def open_points(*facts, slug="nic-link"):
    return {s.subject for s in check(NicHealth(), *facts) if isinstance(s, CannotTell) and s.slug == slug}


# --- nic-link


def test_all_alike():
    assert links(ports(*(nic(i) for i in range(8)))) == {}
    assert open_points(ports(*(nic(i) for i in range(8)))) == set()


def test_down_beside_active_peers():
    said = links(ports(nic(0), nic(1), nic(2, state="down")))
    assert list(said) == ["nic:mlx5_2"]
    assert said["nic:mlx5_2"].severity == "error"


def test_waiting_for_a_subnet_manager():
    said = links(ports(nic(0), nic(1, state="init")))
    assert "subnet manager" in said["nic:mlx5_1"].message


def test_none_active():
    said = links(ports(nic(0, state="down"), nic(1, state="down")))
    assert {s: f.severity for s, f in said.items()} == {"host": "error"}
    assert list(links(ports(nic(0, state="down")))) == ["nic:mlx5_0"]


def test_a_spare_ethernet_port_is_no_fault():
    """The management card's second port has no cable."""
    spare = nic(9, state="down", layer="Ethernet", model="MT4117", rate=25.0)
    facts = ports(nic(0), nic(1), nic(8, layer="Ethernet", model="MT4117", rate=25.0), spare)
    assert links(facts) == {}
    assert open_points(facts) == {"nic:mlx5_9"}


def test_a_roce_port_of_the_fabric_is():
    many = [nic(i, layer="Ethernet") for i in range(7)]
    down = nic(7, state="down", layer="Ethernet")
    assert list(links(ports(*many, down))) == ["nic:mlx5_7"]
    near = ports(nic(0, layer="Ethernet"), down, paths=(path(0, "mlx5_7", "PIX"),))
    assert list(links(near)) == ["nic:mlx5_7"]


def test_the_other_port_of_an_active_card():
    facts = ports(nic(0, bdf="0000:41:00.0"), nic(1, state="down", bdf="0000:41:00.1"))
    assert links(facts) == {}
    assert open_points(facts) == {"nic:mlx5_1"}
    assert list(links(ports(nic(0, bdf="0000:41:00.0"), nic(1, state="down", bdf="0000:42:00.0")))) == ["nic:mlx5_1"]


def test_no_peers_of_another_kind():
    """An InfiniBand port in a host that uses Ethernet, and virtual functions nobody was given."""
    other = ports(nic(0, layer="Ethernet"), nic(1, layer="Ethernet"), nic(2, state="down"))
    assert links(other) == {} and open_points(other) == {"nic:mlx5_2"}
    functions = ports(nic(0), nic(1), nic(2, state="down", model="MT4126"), nic(3, state="down", model="MT4126"))
    assert links(functions) == {}


def test_parts_are_told_by_the_bus():
    bus = PciTree(
        tuple(PciDevice(bdf=f"0000:4{i}:00.0", class_code="020700", device_id=d, origin=HERE) for i, d in enumerate(("15b3:1021", "15b3:101e"))),
        complete=True,
    )
    facts = (ports(nic(0, model=None, bdf="0000:40:00.0"), nic(1, state="down", model=None, bdf="0000:41:00.0")), bus)
    assert links(*facts) == {}


def test_slower_than_its_peers():
    said = links(ports(nic(0), nic(1), nic(2, rate=200.0)))
    assert said["nic:mlx5_2"].severity == "warning"
    assert said["nic:mlx5_2"].cost.startswith("25 of 50 GB/s")


def test_a_storage_network_is_slower_by_design():
    paths = tuple(path(g, f"mlx5_{g}", "PIX") for g in range(4)) + (path(0, "mlx5_8", "NODE"), path(0, "mlx5_9", "SYS"))
    facts = ports(*(nic(i) for i in range(4)), nic(8, rate=200.0), nic(9, rate=200.0), paths=paths)
    assert links(facts) == {}
    assert open_points(facts) == {"nic:mlx5_8", "nic:mlx5_9"}
    beside_a_gpu = ports(nic(0), nic(1, rate=200.0), paths=(path(0, "mlx5_0", "PIX"), path(1, "mlx5_1", "PIX")))
    assert list(links(beside_a_gpu)) == ["nic:mlx5_1"]


def test_a_port_at_its_best_is_not_slow():
    assert links(ports(nic(0), nic(1), nic(2, rate=200.0, max_rate_gbps=200.0))) == {}
    assert list(links(ports(nic(0), nic(1), nic(2, rate=200.0, max_rate_gbps=400.0)))) == ["nic:mlx5_2"]


def test_only_the_matrix_was_seen():
    assert open_points(Nics((Nic(name="NIC0", origin=HERE),), (path(0, "NIC0", "PIX"),))) == {"host"}
    assert check(NicHealth(), Nics((), states_read=True)) == []


# --- nic-far


def matrix(rows, elided=()):
    names = [f"NIC{i}" for i in range(len(rows[0]))]
    return Nics(
        tuple(Nic(name=n, origin=HERE) for n in (*names, *elided)),
        tuple(path(g, n, w) for g, row in enumerate(rows) for n, w in zip(names, row, strict=True)),
    )


def far(*facts):
    return {s: f.severity for (slug, s), f in findings(NicHealth(), *facts).items() if slug == "nic-far"}


def test_each_has_its_own():
    assert far(matrix([["PIX", "SYS"], ["SYS", "PXB"]])) == {}


def test_some_have_and_some_have_not():
    said = far(matrix([["PIX", "SYS"], ["NODE", "SYS"], ["SYS", "PXB"], ["SYS", "SYS"]]))
    assert said == {"gpu:1": "warning", "gpu:3": "warning"}


def test_nobody_has():
    assert far(matrix([["NODE", "SYS"], ["SYS", "PHB"]])) == {"gpu:0": "note", "gpu:1": "note"}
    assert far(matrix([["NODE"]])) == {"gpu:0": "note"}


def test_one_nic_for_all_is_said_once():
    assert far(matrix([["SYS"]] * 8)) == {"nic:NIC0": "note"}
    assert far(matrix([["NODE", "SYS"]] * 4)) == {"nic:NIC0": "note"}
    assert far(matrix([["PIX"], *[["SYS"]] * 3])) == {"nic:NIC0": "warning"}
    gpus = Gpus(tuple(Gpu(index=i, bdf=f"0000:{4 + i}1:00.0", origin=HERE) for i in range(8)))
    one = Nics((Nic(name="NIC0", device="mlx5_0", origin=HERE),), tuple(path(g, "NIC0", "NODE" if g < 4 else "SYS") for g in range(8)))
    (finding,) = (f for (slug, _), f in findings(NicHealth(), one, gpus).items() if slug == "nic-far")
    assert finding.subject == "nic:mlx5_0" and len(finding.evidence) == 8
    assert "GPU0, GPU1, GPU2, GPU3 reach it through the CPU, between host bridges of one NUMA node (NODE); GPU4" in finding.message
    (finding,) = (f for (slug, _), f in findings(NicHealth(), matrix([["PXB"], ["SYS"], ["PIX"], ["SYS"]])).items() if slug == "nic-far")
    assert "GPU1, GPU3 reach it" in finding.message and finding.message.endswith("Only GPU0, GPU2 have it at PXB or PIX.")
    # One NIC at each socket, or another nearest for one of them: each GPU by itself.
    assert far(matrix([["NODE", "SYS"], ["NODE", "SYS"], ["SYS", "NODE"]])) == {f"gpu:{i}": "note" for i in range(3)}


def test_the_gpu_is_named_by_its_address():
    gpus = Gpus((Gpu(index=0, bdf="0000:41:00.0", origin=HERE),))
    assert list(far(matrix([["SYS"]]), gpus)) == ["gpu:0000:41:00.0"]


def unnamed():
    """A matrix without header whose last column no row names."""
    return Nics((Nic(name="NIC0", origin=HERE),), tuple(path(g, n, w) for g, w in enumerate(("PIX", "SYS")) for n in ("NIC0", "?3")))


@pytest.mark.parametrize("facts", [matrix([["PIX"], ["SYS"]], ("NIC7",)), unnamed()])
def test_left_out_columns_prove_nothing(facts):
    assert far(facts) == {}
    assert open_points(facts, slug="nic-far") == {"gpu:1"}


def test_virtual_machines_have_no_distances():
    guest = Platform(PlatformEntry(vm=True, origin=HERE))
    assert far(matrix([["SYS"]]), guest) == {}
    assert open_points(matrix([["SYS"]]), guest, slug="nic-far") == {"host"}


def test_the_matrix_name_wins_over_the_devices():
    merged = Nics.merge(
        [
            ports(nic(0)),
            Nics((Nic(name="NIC0", device="mlx5_0", origin=HERE),), (path(0, "NIC0", "SYS"),)),
        ],
        lambda _: None,
    )
    assert [n.name for n in merged] == ["NIC0"] and merged.states_read
    assert far(merged) == {"gpu:0": "note"}


def test_ibstat_names_the_part():
    text = (
        "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 2\n\tPort 1:\n\t\tState: Down\n\t\tRate: 10\n"
        "\tPort 2:\n\t\tState: Active\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
    )
    (read,) = [f for f in parse("ibstat", text) if isinstance(f, Nics)]
    assert [(n.model, n.port, n.state) for n in read] == [("MT4129", 2, "active")]
    for end in range(len(text)):
        try:
            found = [n.model for f in parse("ibstat", text[:end]) if isinstance(f, Nics) for n in f]
        except Unparsable:
            continue
        assert set(found) <= {None, "MT4129"}, text[:end]


def test_ibdev2netdev_names_the_interfaces():
    text = "mlx5_0 port 1 ==> ib0 (Up)\nmlx5_1 port 1 ==> ibp26s0 (Down)\nmlx5_10   port  1  ==>  eth1   (Up)  # the shop's own\n"
    (read,) = [f for s in recognise(f"$ ibdev2netdev\n{text}") for f in parse(s.kind, s.text, s.command)]
    assert [(n.device, n.netdev, n.state) for n in read] == [("mlx5_0", "ib0", "active"), ("mlx5_1", "ibp26s0", None), ("mlx5_10", "eth1", "active")]
    assert links(read) == {} and read.states_read  # an interface that is down may only lack an address


def test_ibdev2netdev_v_tells_the_ports():
    part = "(MT4129 - MCX75310AAS-NEAT) ConnectX-7 HHHL, 400GbE / NDR IB (default mode) fw 28.39.1002"
    text = "".join(f"0000:{n}a:00.0 mlx5_{n} {part} port 1 ({'DOWN  ' if n == 2 else 'ACTIVE'}) ==> ib{n} ({'Down' if n == 2 else 'Up'})\n" for n in range(1, 5))
    (read,) = [f for s in recognise(text) for f in parse(s.kind, s.text)]
    assert [(n.bdf, n.model, n.link_layer) for n in read][:1] == [("0000:1a:00.0", "MT4129", "InfiniBand")]
    assert {s: f.severity for s, f in links(read).items()} == {"nic:mlx5_2": "error"}
    whole = {n.device: n for n in read}
    for end in range(len(text)):
        try:
            found = [n for f in parse("ibdev2netdev", text[:end]) if isinstance(f, Nics) for n in f]
        except Unparsable:
            continue
        for n in found:
            assert (n.bdf, n.model, n.state, n.netdev) == (whole[n.device].bdf, whole[n.device].model, whole[n.device].state, whole[n.device].netdev)


def test_an_arrow_alone_is_no_ibdev2netdev():
    assert recognise("step 1 ==> eth0 (Up)\n==> /var/log/x <==\nport 1 ==> GPU0\n") == []
