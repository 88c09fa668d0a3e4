"""NCCL's topology XML: dumps, hint files, and what they do not prove."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Cpu, Numa
from gpudoctor.facts.topology import Nics, Pairs
from gpudoctor.parsers.topo_xml import cpus_of
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, HERE, parse, recognise, store

F = TypeVar("F", bound=Fact)


def sample(name: str) -> str:
    return (FIXTURES / "outputs/topo-xml" / f"{name}.txt").read_text()


def fact(kind: type[F], text: str) -> F | None:
    return next((f for f in parse("topo-xml", text) if isinstance(f, kind)), None)


def need(kind: type[F], text: str) -> F:
    found = fact(kind, text)
    assert found is not None
    return found


def pairs(text: str) -> dict[tuple[int, int], tuple[str | None, int | None]]:
    found = fact(Pairs, text)
    return {(p.a, p.b): (p.path, p.nvlinks) for p in found} if found else {}


def host(*gpus: str, numa: int = 0, more: str = "") -> str:
    return f'<system version="1">\n<cpu numaid="{numa}" arch="x86_64">\n' + "\n".join(gpus) + f"\n</cpu>\n{more}</system>\n"


def gpu(dev: int, bus: str, inside: str = "", rank: str = ' sm="80" rank="0"') -> str:
    return (
        f'<pci busid="0000:{bus}:00.0" class="0x030200" link_speed="" link_width="0">\n'
        f'<gpu dev="{dev}"{rank}>\n{inside}\n</gpu>\n</pci>'
    )


def test_a_virtual_machine_with_a_hidden_switch() -> None:
    text = sample("h200x2-vm")
    assert pairs(text) == {(0, 1): ("NVL", 18)}
    first = need(PciTree, text).by_bdf("0000:00:06.0")
    assert first is not None
    assert (first.speed_gts, first.width, first.device_id, first.class_code) == (32.0, None, "10de:2335", "030200")
    assert (first.numa_node, first.numa_reported, first.parent) == (None, -1, None)
    assert "the most that card and port can do" in first.at("speed_gts").where
    assert [(g.index, g.bdf, g.numa_node) for g in need(Gpus, text)] == [(0, "0000:00:06.0", None), (1, "0000:00:07.0", None)]
    assert fact(Nics, text) is None, "eth0 is NCCL's socket transport, no RDMA adapter"
    assert fact(Numa, text) is None


def test_a_partial_mesh() -> None:
    text = sample("dgx-mesh")
    # 1-2 has no NVLink; the tree has them below different NUMA nodes.
    assert pairs(text) == {(0, 1): ("NVL", 2), (0, 2): ("NVL", 1), (1, 2): ("SYS", None)}
    tree = need(PciTree, text)
    assert [d.parent for d in tree] == [None, "0000:05:00.0", "0000:05:00.0", "0000:05:00.0", None]
    assert [d.width for d in tree] == [16, 16, 16, 16, 8] and all(d.max_width is None for d in tree)
    assert not tree.complete
    assert [(n.id, n.cpus) for n in need(Numa, text)] == [(0, "0-19"), (1, "20-39")]
    assert [g.cpu_affinity for g in need(Gpus, text)] == ["0-19", "0-19", "20-39"]
    nics = need(Nics, text)
    assert [(n.name, n.device, n.bdf, n.port, n.rate_gbps, n.numa_node) for n in nics] == [
        ("mlx5_0", "mlx5_0", "0000:0a:00.0", 1, 100.0, 0)
    ]
    assert not nics.states_read and nics.nics[0].state is None
    assert [(p.gpu, p.nic, p.path) for p in nics.paths] == [(0, "mlx5_0", "PIX"), (1, "mlx5_0", "PIX")]
    cpu = need(Cpu, text).entry
    assert (cpu.vendor, cpu.family, cpu.model, cpu.architecture) == ("AuthenticAMD", 25, 1, "x86_64")


@pytest.mark.parametrize(("written", "family"), [("143", 23), ("175", 25), ("23", 23), ("6", 6), ("-1", None)])
def test_cpu_family_as_nccl_packs_it(written: str, family: int | None) -> None:
    text = f'<system version="1"><cpu numaid="0" vendor="x" familyid="{written}"></cpu></system>\n'
    assert need(Cpu, text).entry.family == family


def test_switches_carry_the_sum_of_their_links() -> None:
    links = "".join(f'<nvlink target="0000:{s}:00.0" count="{n}" tclass="0x068000"/>\n' for s, n in (("c1", 5), ("c2", 4)))
    fewer = links.replace('count="5"', 'count="3"')
    assert pairs(host(gpu(0, "01", links), gpu(1, "02", links), gpu(2, "03", fewer))) == {
        (0, 1): ("NVL", 9),
        (0, 2): ("NVL", 7),
        (1, 2): ("NVL", 7),
    }


def test_a_link_to_itself_proves_nothing() -> None:
    own = '<nvlink target="0000:{}:00.0" count="12" tclass="0x030200"/>'
    text = host(
        gpu(0, "01", own.format("01")), more='<cpu numaid="1">' + gpu(1, "02", own.format("02")) + "</cpu>\n"
    )
    assert pairs(text) == {}
    assert [g.numa_node for g in need(Gpus, text)] == [0, 1]


def test_a_link_to_the_processor_is_no_path_between_gpus() -> None:
    power = '<nvlink target="0004:04:00.0" count="3" tclass="0x068001"/>'
    assert pairs(host(gpu(0, "01", power), gpu(1, "02", power))) == {}


def test_pcie_paths_only_where_the_tree_settles_them() -> None:
    bridge = '<pci busid="{}" class="0x060400" link_speed="16 GT/s" link_width="16">\n{}\n</pci>'
    one = bridge.format("0000:10:00.0", gpu(0, "11") + gpu(1, "12"))
    two = bridge.format("0000:20:00.0", bridge.format("0000:21:00.0", gpu(2, "22")) + gpu(3, "23"))
    text = host(one, two)
    # Between the two switches it may be PHB or NODE, which the file does not tell.
    assert pairs(text) == {(0, 1): ("PIX", None), (2, 3): ("PXB", None)}
    made_up = host(bridge.format("ffff:ff:01.0", gpu(0, "11") + gpu(1, "12")))
    assert pairs(made_up) == {}
    by_hand = host(bridge.format("0000:10:00.0", gpu(0, "11", rank="") + gpu(1, "12", rank="")))
    assert pairs(by_hand) == {}, "a hint file may leave NVLink out"


def test_a_hint_file_without_gpus() -> None:
    text = """\
<!-- two GPUs and a NIC below each switch -- made up -->
<system version="1">
  <cpu numaid="3" affinity="ffff0000" arch="x86_64">
    <pci busid="ffff:ff:01.0" class="0x060400" vendor="0xffff" device="0xffff" link_speed="16 GT/s" link_width="16"> <!-- Switch 0 -- begins -->
      <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/> <!-- GPU
        0 -->
      <pci busid="0101:00:00"/>
    </pci>
  </cpu>
</system>
"""
    tree = need(PciTree, text)
    assert [(d.bdf, d.parent, d.speed_gts, d.width, d.numa_node) for d in tree] == [
        ("ffff:ff:01.0", None, 16.0, 16, 3),
        ("0001:00:00.0", "ffff:ff:01.0", 16.0, 16, 3),
        ("0101:00:00.0", "ffff:ff:01.0", None, None, 3),
    ]
    assert tree.devices[0].device_id is None and tree.devices[2].class_code is None
    assert fact(Gpus, text) is None and fact(Pairs, text) is None and fact(Nics, text) is None
    assert not [f for f in parse("topo-xml", text) if isinstance(f, Loss)]
    # Evidence keeps the file's own lines, comments counted.
    assert "(line 5)" in tree.devices[1].at("class_code").where
    assert "(line 7)" in tree.devices[2].at("parent").where
    assert [s.kind for s in recognise(text)] == ["topo-xml"]


def test_ports_of_one_card_share_no_address() -> None:
    nets = "".join(
        f'<net name="mlx5_{n}" dev="{n}" speed="200000" port="{n + 1}" guid="0x9a"/>\n' for n in range(2)
    )
    text = host(f'<pci busid="0000:0c:00.0" class="0x020000">\n<nic>\n{nets}</nic>\n</pci>')
    assert [(n.name, n.bdf, n.port) for n in need(Nics, text)] == [("mlx5_0", None, 1), ("mlx5_1", None, 2)]


def test_grace_and_several_hosts() -> None:
    text = host(gpu(0, "01", '<c2c bw="44712" count="10"/>')).replace("<cpu ", '<cpu host_hash="0x1" ')
    assert [g.c2c for g in need(Gpus, text)] == [True]
    other = text.replace('host_hash="0x1"', 'host_hash="0x2"').replace('<system version="1">\n', "")
    both = text.replace("</system>\n", "") + other
    assert [(g.index, g.bdf) for g in need(Gpus, both)] == [(0, "0000:01:00.0")]
    assert any("2 machines" in f.reason for f in parse("topo-xml", both) if isinstance(f, Loss))


def test_a_cut_file_keeps_what_it_has() -> None:
    text = sample("dgx-mesh")
    cut = text[: text.index('<nvlink target="0000:86:00.0"')]
    assert pairs(cut) == {}
    assert [d.bdf for d in need(PciTree, cut)] == ["0000:05:00.0", "0000:06:00.0"]
    assert any("cut or damaged at line" in f.reason for f in parse("topo-xml", cut) if isinstance(f, Loss))


def test_hostile_files() -> None:
    deep = '<system version="1">\n<cpu numaid="0">\n'
    deep += "".join(f'<pci busid="0000:{n >> 5 & 0xFF:02x}:{n & 31:02x}.0">\n' for n in range(8000)) + "</pci>\n" * 8000
    assert len(need(PciTree, deep).devices) == 8000
    wide = '<system version="1">\n' + '<x>\n' * 10_000 + '<pci busid="0000:01:00.0"/>\n'
    assert [d.parent for d in need(PciTree, wide)] == [None]
    circle = '<pci busid="0000:01:00.0"><pci busid="0000:02:00.0"><pci busid="0000:01:00.0"/></pci></pci>'
    tree = need(PciTree, host(circle))
    assert [(d.bdf, d.parent) for d in tree] == [("0000:01:00.0", None), ("0000:02:00.0", "0000:01:00.0")]
    crowd = host(*(gpu(n, f"{n & 0xFF:02x}") for n in range(300)))
    assert fact(Pairs, crowd) is None
    odd = '<system version="1"><cpu numaid="x" affinity="zz"><pci busid="??" link_width="9999"/></cpu></system>\n'
    assert any(isinstance(f, Loss) for f in parse("topo-xml", odd))


def test_the_bus_wins_over_nccls_view_in_any_order() -> None:
    seen = PciTree(
        (PciDevice(bdf="0000:86:00.0", width=4, max_width=8, parent="0000:85:00.0", parent_known=True, origin=HERE),), complete=True
    )
    nccl = need(PciTree, sample("dgx-mesh"))
    for parts in ((seen, nccl), (nccl, seen)):
        made = store(*parts)
        tree = made.get(PciTree)
        assert tree is not None and tree.complete and not tree.nccl_view
        device = tree.by_bdf("0000:86:00.0")
        assert device is not None
        assert (device.width, device.max_width, device.parent, device.speed_gts) == (4, 8, "0000:85:00.0", None)
        assert (device.device_id, device.numa_node) == ("10de:1db1", 1)
        assert not made.contradictions


def test_gpus_of_another_vendor_are_left_alone() -> None:
    text = host(gpu(0, "01"), gpu(1, "02")).replace('class="0x030200"', 'class="0x038000" vendor="0x1002" device="0x740f"')
    assert fact(Gpus, text) is None and fact(Pairs, text) is None


def test_classes_written_short() -> None:
    tree = need(PciTree, host('<pci busid="0000:01:00.0" class="0x0302"/>', '<pci busid="0000:02:00.0" class="nonsense"/>'))
    assert [d.class_code for d in tree] == ["030200", None]


def test_no_error_follows_from_a_dump() -> None:
    made = store(*parse("topo-xml", sample("dgx-mesh")))
    joined = made.get(Gpus)
    assert joined is not None and [(g.index, g.width, g.max_width) for g in joined] == [(0, 16, None), (1, 16, None), (2, 8, None)]


@pytest.mark.parametrize(
    ("mask", "cpus"),
    [
        ("00000000,0000000f", "0-3"),
        ("f", "0-3"),
        ("1,00000001", "0,32"),
        ("0", None),
        ("0-3,8", "0-3,8"),
        ("9-1", None),
        ("", None),
        ("xyz", None),
        (None, None),
        (",".join(["ffffffff"] * 300), None),
    ],
)
def test_masks(mask: Any, cpus: str | None) -> None:
    assert cpus_of(mask) == cpus


def test_prose_is_unparsable() -> None:
    with pytest.raises(Unparsable):
        parse("topo-xml", "no topology\n")


def test_network_interfaces_are_no_adapters() -> None:
    """NCCL's socket transport numbers them in place of a GUID; every bridge of a container host is there."""
    nets = "".join(
        f'<net name="{name}" dev="{n}" speed="10000" port="0" latency="0.000000" guid="{n:#x}" maxconn="65536" gdr="0"/>\n'
        for n, name in enumerate(("eno1", "br-1a2b", "veth12"))
    )
    text = f'<system version="1">\n<cpu numaid="0">\n<nic>\n{nets}</nic>\n</cpu>\n</system>\n'
    assert fact(Nics, text) is None
    real = text.replace('port="0" latency="0.000000" guid="0x2"', 'port="1" latency="0.000000" guid="0x2"')
    assert [n.name for n in need(Nics, real).nics] == ["veth12"]


def test_old_files_of_rccl_name_no_vendor() -> None:
    """Synthetic, in the shape RCCL 2.7 wrote."""
    gpus = "".join(
        f'<pci busid="0000:{n}d:00.0" class="0x038000" link_speed="16 GT/s" link_width="16">\n'
        f'<gpu dev="{n}" sm="64" gcn="906" arch="38911" rank="{n}" gdr="1"/>\n</pci>\n'
        for n in (1, 2)
    )
    text = f'<system version="2">\n<cpu numaid="0">\n{gpus}</cpu>\n</system>\n'
    assert fact(Gpus, text) is None and fact(Pairs, text) is None and not need(PciTree, text).gpus()
    assert len(need(Gpus, text.replace(' gcn="906"', ""))) == 2


# Synthetic: elements as authors quote them out of the middle of a dump.
PIECE = """      <pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:05:00.0" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
    </pci>
    <pci busid="0000:97:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:98:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="0000:05:00.0" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:99:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_1" dev="1" speed="400000" port="1" guid="0x1" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
"""


def pieces(text: str) -> list[Any]:
    return [f for s in recognise(text) if s.kind == "topo-xml" for f in parse(s.kind, s.text)]


def test_elements_from_the_middle_of_a_file() -> None:
    found = pieces(f"the interesting part:\n```\n{PIECE}```\n")
    gpus = next(f for f in found if isinstance(f, Gpus))
    assert [(g.index, g.bdf, g.numa_node, g.cpu_affinity) for g in gpus] == [(0, "0000:18:00.0", None, None), (1, "0000:98:00.0", None, None)]
    tree = next(f for f in found if isinstance(f, PciTree))
    assert [(d.bdf, d.parent, d.width) for d in tree] == [
        ("0000:18:00.0", None, 16), ("0000:97:00.0", None, 16), ("0000:98:00.0", "0000:97:00.0", 16), ("0000:99:00.0", "0000:97:00.0", 16),
    ]  # fmt: skip
    assert [(p.a, p.b, p.path, p.nvlinks) for f in found if isinstance(f, Pairs) for p in f] == [(0, 1, "NVL", 18)]
    assert not [f for f in found if isinstance(f, Loss)]


def test_a_piece_proves_no_path_that_its_frame_would_decide() -> None:
    """Without NVLinks the two GPUs may hang from one switch or from two sockets: what is above was not quoted."""
    bare = "\n".join(line for line in PIECE.splitlines() if "nvlink" not in line)
    assert not [f for f in pieces(bare) if isinstance(f, Pairs)]


def test_a_piece_cut_anywhere() -> None:
    for end in range(0, len(PIECE), 3):
        try:
            found = pieces(PIECE[:end])
        except Unparsable:
            continue
        for f in found:
            if isinstance(f, Pairs):
                assert [(p.path, p.nvlinks) for p in f] == [("NVL", 18)]
            elif isinstance(f, PciTree):
                assert {d.parent for d in f if d.bdf != "0000:18:00.0"} <= {None, "0000:97:00.0"}
                assert {d.width for d in f} <= {16, None}


def test_closing_tags_alone_are_no_topology() -> None:
    assert pieces("</gpu>\n</pci>\n<p>about the pci bus</p>\n") == []
