"""Pairs and NICs of NCCL's topology XML: only what the file proves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor.bdf import normalise
from gpudoctor.facts.topology import Nic, NicPath, Pair
from gpudoctor.parsers.topo_nodes import Node, Tree
from gpudoctor.read.section import Section

_SWITCH = "0x0680"  # PCI class of an NVSwitch; 0x068001 is an NVLink bridge of a POWER processor
_HIDDEN = re.compile(r"^f{4,8}:ff:ff(?:\.[0-7])?$")  # an NVSwitch that the hypervisor does not show


class _NvLinks:
    """Links of one GPU by what is at their other end."""

    def __init__(self, gpu: Node) -> None:
        pci = gpu.pci
        self.own = pci.bdf if pci else None
        self.whole = gpu.closed
        self.any = False
        self.to_gpu: dict[str, int] = {}
        self.to_switch: dict[str, int] = {}
        for link in gpu.children:
            if link.name != "nvlink":
                continue
            self.any = True
            target, number = (link.get("target") or "").lower(), link.get("count") or ""
            if not re.match(r"^\d{1,3}$", number):
                continue
            bdf = normalise(target)
            if _HIDDEN.match(target):
                self._add(self.to_switch, "hidden", int(number))
            elif bdf is None or bdf == self.own:
                # A virtual machine without switches at hand names the GPU itself: no other end is known.
                continue
            elif (link.get("tclass") or "").lower() == "0x068000":
                self._add(self.to_switch, bdf, int(number))
            elif not (link.get("tclass") or "").lower().startswith(_SWITCH):
                self._add(self.to_gpu, bdf, int(number))

    @staticmethod
    def _add(into: dict[str, int], key: str, number: int) -> None:
        into[key] = into.get(key, 0) + number


def _between(a: _NvLinks, b: _NvLinks) -> int | None:
    """NVLinks from one GPU to the other, directly or through the switches both reach; None where the file has none."""
    direct = [n for n in (a.to_gpu.get(b.own or ""), b.to_gpu.get(a.own or "")) if n]
    if direct:
        return min(direct)
    common = a.to_switch.keys() & b.to_switch.keys()
    if common:
        return min(sum(side.to_switch[key] for key in common) for side in (a, b)) or None
    return None


def _pcie_path(a: Node, b: Node) -> str | None:
    """The path class where the tree settles it: one switch, several, or two NUMA nodes.

    Below one CPU without a common switch it may be PHB or NODE: NCCL leaves out root ports, so neither is said.
    """
    above_a, above_b = a.ancestors()[1:], b.ancestors()[1:]  # the first is the GPU's own function
    shared = next((n for n in above_a if any(n is other for other in above_b)), None)
    if shared is not None:
        if shared.bdf is None or shared.bdf.startswith("ffff:ff:"):
            return None  # made up for NCCL: what nvidia-smi would print is another matter
        return "PIX" if shared is above_a[0] and shared is above_b[0] else "PXB"
    ids = [node.cpu.get("numaid") if node.cpu else None for node in (a, b)]
    if ids[0] and ids[1] and ids[0] != ids[1] and "-1" not in ids:
        return "SYS"
    return None


def pairs(section: Section, gpus: Mapping[int, Node]) -> Iterator[Pair]:
    """The NVLink pairs; what only PCIe joins is not said here."""
    links = {index: _NvLinks(node) for index, node in gpus.items()}
    order = sorted(gpus)
    for place, a in enumerate(order):
        for b in order[place + 1 :]:
            one, two = links[a], links[b]
            if not (one.whole and two.whole):
                continue  # links cut off would change the count
            count = _between(one, two)
            path = "NVL" if count else None
            if path is None and _dumped(gpus[a]) and _dumped(gpus[b]) and not (_unclear(one) or _unclear(two)):
                path = _pcie_path(gpus[a], gpus[b])
            if path is not None:
                where = f"NCCL's topology, gpu {a} and gpu {b} (lines {gpus[a].line} and {gpus[b].line})"
                shown = f"{count} NVLinks" if count else f"{path} by the tree, no NVLink between them"
                yield Pair(a=a, b=b, path=path, nvlinks=count, origin={"*": section.spot(where, shown)})


def _dumped(gpu: Node) -> bool:
    """Written by NCCL, which then lists every NVLink it found; a hint file written by hand may leave them out."""
    return gpu.get("sm") is not None and gpu.get("rank") is not None


def _unclear(links: _NvLinks) -> bool:
    """NVLinks are there but where they lead is not."""
    return links.any and not links.to_gpu and not links.to_switch


def _is_tcp(net: Node) -> bool:
    """NCCL's socket transport lists plain network interfaces in the same way: no port, and their number for a GUID."""
    guid = int(net.get("guid") or "", 16) if _guid(net) else None
    return guid is not None and (net.get("port") or "0") == "0" and (guid == 0 or str(guid) == net.get("dev"))


def _guid(net: Node) -> bool:
    return bool(re.match(r"^0x[0-9a-fA-F]{1,16}$", net.get("guid") or ""))


def _adapters(tree: Tree) -> Iterator[Node]:
    seen: set[str] = set()
    for net in tree.of("net"):
        name = net.get("name") or ""
        if re.match(r"^[\w.+:-]{1,64}$", name) and name not in seen and not _is_tcp(net):
            seen.add(name)
            yield net


def nics(section: Section, tree: Tree) -> Iterator[Nic]:
    """The network adapters that NCCL found."""
    for net in _adapters(tree):
        name, speed, port = net.get("name") or "", net.get("speed") or "", net.get("port") or ""
        pci, cpu = net.pci, net.cpu
        # NCCL sets the function to 0 to join the ports of one card, so with several ports the address is not theirs.
        siblings = sum(child.name == "net" for child in net.parent.children) if net.parent else 1
        alone = siblings == 1 and net.parent is not None and net.parent.closed
        numa = cpu.get("numaid") if cpu else None
        yield Nic(
            name=name,
            device=name if "+" not in name else None,  # mlx5_0+mlx5_1: two ports that NCCL drives as one
            bdf=pci.bdf if pci and alone else None,
            port=int(port) if re.match(r"^[1-9]\d?$", port) else None,
            rate_gbps=int(speed) / 1000 if re.match(r"^[1-9]\d{0,8}$", speed) else None,
            numa_node=int(numa) if numa and re.match(r"^\d{1,4}$", numa) else None,
            origin={"*": section.spot(f"NCCL's topology, net {name} (line {net.line})", net.text)},
        )


def nic_paths(section: Section, gpus: Mapping[int, Node], tree: Tree) -> Iterator[NicPath]:
    """Only NICs below a switch of the GPU: the rest would be PHB, NODE or SYS, which the file does not tell apart."""
    for net in list(_adapters(tree))[:64]:
        above_net = net.ancestors()[1:]
        for index, gpu in sorted(gpus.items()):
            above_gpu = gpu.ancestors()[1:]
            shared = next((n for n in above_gpu if any(n is other for other in above_net)), None)
            if shared is None or shared.bdf is None or shared.bdf.startswith("ffff:ff:"):
                continue
            path = "PIX" if above_gpu[0] is shared and above_net[0] is shared else "PXB"
            where = f"NCCL's topology, gpu {index} and net {net.get('name')} (lines {gpu.line} and {net.line})"
            yield NicPath(
                gpu=index,
                nic=net.get("name") or "",
                path=path,
                origin={"*": section.spot(where, f"both below {shared.bdf}")},
            )
