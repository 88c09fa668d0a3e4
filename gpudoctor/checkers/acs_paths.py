"""Which bridges lie on a peer-to-peer path below a common switch, and who uses them."""

from __future__ import annotations

from gpudoctor.checkers.gpu_links import GpuLink
from gpudoctor.checkers.traffic import can_peer, part_of, pcie_peer
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import INFINIBAND, PciDevice, PciTree
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.record import Record

# Drivers of NICs that do RDMA; their class may be plain Ethernet (RoCE, EFA).
_RDMA_DRIVERS = ("mlx5_core", "mlx4_core", "bnxt_en", "ice", "irdma", "efa", "qedr")


class PeerPath(Record):
    """Two devices below one switch. `direct`: do they use peer to peer over it? None: not known."""

    who: str
    bridges: tuple[PciDevice, ...]
    direct: bool | None
    ends: frozenset[str | None]  # their addresses


def is_root(device: PciDevice) -> bool:
    """A root port: what it turns back goes through the processor with or without ACS."""
    if device.port_type is not None:
        return device.port_type == "root"
    return device.parent is None and bool(device.parent_known)


def peer_paths(links: list[GpuLink], tree: PciTree, gpus: Gpus | None, pairs: Pairs | None) -> list[PeerPath]:
    """Paths between GPUs, and between a GPU and an RDMA NIC, that turn at a switch. Root ports are left out of them."""
    above = {link.subject: _switches(link.above) for link in links}
    # Only devices below the same topmost switch can meet below a switch at all.
    trees: dict[str | None, list[GpuLink]] = {}
    for link in links:
        if above[link.subject]:
            trees.setdefault(above[link.subject][-1].bdf, []).append(link)
    out: list[PeerPath] = []
    for near in trees.values():
        for at, one in enumerate(near):
            for other in near[at + 1 :]:
                bridges = _turn(above[one.subject], above[other.subject])
                who, ends = f"{_short(one)} and {_short(other)}", frozenset((one.gpu.bdf, other.gpu.bdf))
                out.append(PeerPath(who, bridges, _direct(one, other, gpus, pairs), ends))
    for nic in tree if trees else ():
        if nic.is_nic and _rdma(nic):
            way = _switches(tree.ancestors(nic.bdf))
            for one in trees.get(way[-1].bdf, ()) if way else ():
                # GPUDirect RDMA is what a NIC below a GPU's switch is for, but the input does not prove its use.
                bridges = _turn(above[one.subject], way)
                who, ends = f"{_short(one)} and the NIC {nic.bdf}", frozenset((one.gpu.bdf, nic.bdf))
                out.append(PeerPath(who, bridges, can_peer(one.gpu), ends))
    return out


def _switches(above: tuple[PciDevice, ...]) -> tuple[PciDevice, ...]:
    return tuple(d for d in above if not is_root(d))


def _turn(one: tuple[PciDevice, ...], other: tuple[PciDevice, ...]) -> tuple[PciDevice, ...]:
    """Bridges from one device up to the first that is above both, and down to the other."""
    names = [d.bdf for d in other]
    up: list[PciDevice] = []
    for bridge in one:
        up.append(bridge)
        if bridge.bdf in names:
            return (*up, *other[: names.index(bridge.bdf)])
    return ()


def _short(link: GpuLink) -> str:
    return f"GPU{link.gpu.index}" if link.gpu.index is not None else f"GPU {link.gpu.bdf}"


def _rdma(nic: PciDevice) -> bool:
    mellanox = (nic.device_id or "").startswith("15b3:")
    return mellanox or (nic.class_code or "").startswith(INFINIBAND) or nic.driver in _RDMA_DRIVERS


def _direct(one: GpuLink, other: GpuLink, gpus: Gpus | None, pairs: Pairs | None) -> bool | None:
    a, b = one.gpu.index, other.gpu.index
    if a is not None and b is not None:
        pair = (pairs.of(a, b) if pairs is not None else None) or Pair(a=min(a, b), b=max(a, b))
        if pair.path is not None or pair.p2p_read is not None or pair.p2p_write is not None:
            return pcie_peer(pair, gpus)
    elif pairs is not None and pairs.pairs and all(p.path == "NVL" for p in pairs):
        return False
    return _by_part(one, other)


def _by_part(one: GpuLink, other: GpuLink) -> bool | None:
    """What the two parts alone tell: a part that may have NVLink leaves it open which way they take."""
    parts = [part_of(one.gpu), part_of(other.gpu)]
    if any(p is not None and (p.p2p is False or p.required) for p in parts):
        return False
    return True if all(p is not None and p.p2p and not p.nvlink for p in parts) else None
