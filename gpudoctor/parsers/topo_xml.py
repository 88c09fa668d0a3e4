"""NCCL's topology XML (`NCCL_TOPO_DUMP_FILE`, or a hint file for `NCCL_TOPO_FILE`) to the PCI tree, GPUs, pairs and NICs.

What it shows is NCCL's view, not the bus: up to 2.30.4 a link's speed and width are the most that card and port can do
(NCCL reads sysfs max_link_speed and max_link_width), and of a switch only the upstream ports appear. Hint files of clouds
hold made-up switch addresses (ffff:ff:01.0) and often no <gpu>: then the tree is all there is, and it proves no fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.cpulist import parse as parse_cpus
from gpudoctor.cpulist import render
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Cpu, CpuEntry, Numa, NumaNode
from gpudoctor.facts.topology import Nics, Pairs
from gpudoctor.model import Evidence
from gpudoctor.parsers.topo_links import nic_paths, nics, pairs
from gpudoctor.parsers.topo_nodes import Node, Tree, read
from gpudoctor.read.section import Section, Unparsable

MAX_GPUS = 128  # pairs grow with the square
_SPEED = re.compile(r"^(\d{1,3}(?:\.\d+)?) ?GT/s")
_HEX = re.compile(r"^0x([0-9a-fA-F]{1,6})$")
_MASK = re.compile(r"^[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8}){0,255}$")


def parse(section: Section) -> Iterator[Fact | Loss]:
    """Facts of one file. What was read before a cut or a damaged place counts."""
    tree = read(section)
    if not tree.nodes:
        raise Unparsable("no element of NCCL's topology")
    yield from tree.losses
    # From 2.21 on the ranks' views are merged, and on an NVLink domain that spans hosts they hold several machines.
    hosts = list(dict.fromkeys(n.get("host_hash") for n in tree.of("cpu")))
    if len(hosts) > 1:
        yield Loss("the other hosts of NCCL's topology", f"{len(hosts)} machines in {section.source}: only the first is read")
        tree = tree.only_host(hosts[0])
    yield from _pci(section, tree)
    yield from _host(section, tree)
    gpus = _gpus(section, tree)
    if len(gpus) > MAX_GPUS:
        yield Loss("the GPUs of NCCL's topology", f"more than {MAX_GPUS} GPUs in one file: none is read")
        return
    if gpus:
        # Since 2.21 a dump has only the GPUs of the communicator: absence proves nothing.
        yield Gpus(tuple(gpu for gpu, _ in gpus), complete=False)
        nodes = {gpu.index: node for gpu, node in gpus if gpu.index is not None}
        found = tuple(pairs(section, nodes))
        if found:
            yield Pairs(found)
        adapters = tuple(nics(section, tree))
        if adapters:
            yield Nics(adapters, tuple(nic_paths(section, nodes, tree)))
    elif adapters := tuple(nics(section, tree)):
        yield Nics(adapters)


def _pci(section: Section, tree: Tree) -> Iterator[Fact | Loss]:
    devices: dict[str, PciDevice] = {}
    for node in tree.of("pci"):
        bdf = node.bdf
        if bdf is None:
            yield Loss("a PCI device of NCCL's topology", f"line {node.line}: {node.get('busid')!r} is no address")
        elif bdf in devices:
            yield Loss("a PCI device of NCCL's topology", f"line {node.line}: {bdf} stands there twice; the first is used")
        else:
            devices[bdf] = _device(section, node, bdf)
    if devices:
        yield PciTree(tuple(devices.values()), complete=False, nccl_view=True)


def _device(section: Section, node: Node, bdf: str) -> PciDevice:
    above = node.pci
    cpu = node.cpu
    node_id = _integer(cpu, "numaid") if cpu else None
    class_code = _class(node)
    place = f"NCCL's topology, pci {bdf} (line {node.line})"
    link = f"{node.get('link_speed') or ''} x{node.get('link_width') or ''}"
    most = section.spot(f"{place}: the most that card and port can do", link)
    return PciDevice(
        bdf=bdf,
        # RCCL's older files name no vendor; only its GPUs have this attribute.
        name="AMD GPU" if any(child.get("gcn") is not None for child in node.children) else None,
        class_code=class_code,
        device_id=_ids(node, "vendor", "device"),
        subsystem_id=_ids(node, "subsystem_vendor", "subsystem_device"),
        parent=above.bdf if above else None,
        speed_gts=_speed(node),
        width=_width(node),
        numa_node=node_id if node_id is not None and node_id >= 0 else None,
        numa_reported=node_id,
        origin={"*": section.spot(place, node.text), "speed_gts": most, "width": most},
    )


def _host(section: Section, tree: Tree) -> Iterator[Fact]:
    nodes: dict[int, NumaNode] = {}
    cpu: CpuEntry | None = None
    for node in tree.of("cpu"):
        origin = _origin(section, node, "cpu")
        number = _integer(node, "numaid")
        if number is not None and number >= 0 and number not in nodes:
            nodes[number] = NumaNode(id=number, cpus=cpus_of(node.get("affinity")), origin=origin)
        if cpu is None and (node.get("vendor") or node.get("arch")):
            cpu = _cpu(node, origin)
    if nodes:
        yield Numa(tuple(nodes.values()))
    if cpu is not None:
        yield Cpu(cpu)


def _cpu(node: Node, origin: dict[str, Evidence]) -> CpuEntry:
    """NCCL packs base and extended family of CPUID side by side (AMD's 0x19 as 0xaf); their sum is the family.

    A base below 0xf has no extension (Intel's 6), and hint files hold true families too (23).
    """
    family, model = _integer(node, "familyid"), _integer(node, "modelid")
    if family is not None and family > 0 and family & 0xF == 0xF:
        family = 0xF + (family >> 4)
    return CpuEntry(
        vendor=node.get("vendor") or None,
        architecture=node.get("arch") or None,
        family=family if family is not None and family >= 0 else None,
        model=model if model is not None and model >= 0 else None,
        origin=origin,
    )


def _gpus(section: Section, tree: Tree) -> list[tuple[Gpu, Node]]:
    out: list[tuple[Gpu, Node]] = []
    seen: set[int] = set()
    for node in tree.of("gpu"):
        index, pci, cpu = _integer(node, "dev"), node.pci, node.cpu
        if index is None or index < 0 or index in seen or pci is None or (_hex(pci, "vendor", 4) or "10de") != "10de":
            continue  # RCCL writes the same files for AMD's GPUs
        if node.get("gcn") is not None:
            continue  # the older ones name no vendor
        seen.add(index)
        numa = _integer(cpu, "numaid") if cpu else None
        out.append(
            (
                Gpu(
                    index=index,
                    bdf=pci.bdf,
                    device_id=_ids(pci, "vendor", "device"),
                    subsystem_id=_ids(pci, "subsystem_vendor", "subsystem_device"),
                    numa_node=numa if numa is not None and numa >= 0 else None,
                    cpu_affinity=cpus_of(cpu.get("affinity")) if cpu else None,
                    c2c=True if any(child.name == "c2c" for child in node.children) else None,
                    origin=_origin(section, node, "gpu"),
                ),
                node,
            )
        )
    return out


def _origin(section: Section, node: Node, what: str) -> dict[str, Evidence]:
    return {"*": section.spot(f"NCCL's topology, {what} (line {node.line})", node.text)}


def _integer(node: Node, name: str) -> int | None:
    text = node.get(name) or ""
    return int(text) if re.match(r"^-?\d{1,9}$", text) else None


def _hex(node: Node, name: str, digits: int) -> str | None:
    found = _HEX.match(node.get(name) or "")
    return found[1].lower().zfill(digits) if found else None


def _class(node: Node) -> str | None:
    """`0x030200` -> `030200`; files written by hand may leave out the programming interface (`0x0302`)."""
    code = node.get("class") or ""
    return (
        _hex(node, "class", 6)
        if len(code) == 8
        else f"{_hex(node, 'class', 4)}00"
        if _HEX.match(code) and len(code) == 6
        else None
    )


def _ids(node: Node, vendor: str, device: str) -> str | None:
    """`10de:2335`; the ffff or 0000 of a made-up switch is no id."""
    a, b = _hex(node, vendor, 4), _hex(node, device, 4)
    return f"{a}:{b}" if a and b and a not in ("ffff", "0000") else None


def _speed(node: Node) -> float | None:
    found = _SPEED.match(node.get("link_speed") or "")
    return float(found[1]) if found and float(found[1]) > 0 else None


def _width(node: Node) -> int | None:
    """0 (a virtual machine) and 255 (an emulated bridge) are how the kernel says that it does not know."""
    width = _integer(node, "link_width")
    return width if width is not None and 0 < width <= 32 else None


def cpus_of(mask: str | None) -> str | None:
    """The kernel's mask, most significant word first: `00000000,0000000f` -> `0-3`; an empty mask is None.

    Files written by hand hold a list instead (`0-3`); without a dash the two cannot be told apart.
    """
    if mask and "-" in mask:
        listed = parse_cpus(mask)
        return render(listed) if listed else None
    if not mask or not _MASK.match(mask):
        return None
    words = mask.split(",")
    value = int(words[0] + "".join(word.zfill(8) for word in words[1:]), 16)
    return render({bit for bit in range(value.bit_length()) if value >> bit & 1}) or None
