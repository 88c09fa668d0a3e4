"""GD240 nic-link, GD241 nic-far: RDMA ports that are down or slow, and GPUs without a NIC nearby."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import Nic, NicPath, Nics
from gpudoctor.model import ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Evidence, Finding, Step

NIC_LINK = Cause(
    "GD240",
    "nic-link",
    "An RDMA port is down or slower than its peers",
    "no port active, or down beside active peers: error; slower or narrower: warning",
    "NCCL spreads its channels over all NICs of its kind, and the slowest one sets the pace of a ring. A port that "
    "is down takes "
    "the GPUs next to it off the direct path. Ports are compared only with ports of the same link layer and part: a "
    "management or "
    "storage port of another kind is no peer, nor is the unused second port of a card whose first one is active.",
    "ibstat, /sys/class/infiniband/*/ports/*/{state,rate}",
    "Check cable and switch port; `Initializing` means that no subnet manager answers. A rate of a half or a quarter "
    "is a cable "
    "or lane that did not train.",
)
NIC_FAR = Cause(
    "GD241",
    "nic-far",
    "A GPU's nearest RDMA NIC is not below its PCIe switch",
    "warning where another GPU of the host has one at PIX or PXB, or a job does not use a nearer one; else note",
    "GPUDirect RDMA is fast where GPU and NIC share a PCIe switch (PIX, PXB). Through the CPU's root ports (PHB, "
    "NODE, SYS) it is "
    "slower, and NCCL by default copies through host memory instead. With NVLink, NCCL from 2.12 on may hand traffic "
    "to a GPU that "
    "has a near NIC (PXN), which softens it. It only matters for traffic that leaves the host.",
    "nvidia-smi topo -m (NIC columns); NCCL's log (`NET/IB : Using …` and `via NET/IB/n`)",
    "Move the NIC or the GPU to a slot below the same switch; where the board has none, this is what it gives.",
)

NEAR = ("PIX", "PXB")
ORDER = ("PIX", "PXB", "PHB", "NODE", "SYS")
_WORDS = {
    "PHB": "through the CPU's host bridge",
    "NODE": "through the CPU, between host bridges of one NUMA node",
    "SYS": "over the link between the sockets",
}
_SEE = Step(
    "See which NIC each rank takes, and whether with GPUDirect (GDRDMA)",
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH COMMAND 2>&1 | grep -E 'NET/IB|GDR'",
)
# So many active Ethernet ports of one part, and a port that is down is taken for a member of the fabric and not for a spare.
_FABRIC_PORTS = 3


class NicHealth(BaseChecker):
    """Ports against their peers, and the distance between GPUs and NICs."""

    name: ClassVar[str] = "nic"
    needs = (Nics,)
    causes = (NIC_LINK, NIC_FAR)
    wants = (Gpus, PciTree, Platform)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from _links(facts)
        yield from _far(facts)


def _links(facts: FactView) -> Iterator[Finding | CannotTell]:
    nics = facts[Nics]
    if not nics.nics:
        return
    known = [n for n in nics if n.state is not None]
    if not nics.states_read or not known:
        yield CannotTell(NIC_LINK.slug, "the state of the RDMA ports is not in the input")
        return
    active = [n for n in known if n.state == "active"]
    if known and not active:
        yield _none_active(known)
        return
    groups: dict[tuple[str, str], list[Nic]] = {}
    for nic in known:
        groups.setdefault((nic.link_layer or "", _part(nic, facts) or ""), []).append(nic)
    near = {p.nic for p in nics.paths if p.path in NEAR}
    for group in groups.values():
        up = [n for n in group if n.state == "active"]
        for nic in (n for n in group if n.state != "active"):
            yield from _down(nic, up, nic.name in near, facts)
        yield from _slow(up, near, bool(nics.paths))


def _part(nic: Nic, facts: FactView) -> str | None:
    tree = facts.get(PciTree)
    device = tree.by_bdf(nic.bdf) if tree is not None else None
    return (device.device_id if device is not None else None) or nic.model


def _none_active(known: list[Nic]) -> Finding:
    words = ", ".join(f"{n.device or n.name} {n.state}" for n in known[:8]) + (", …" if len(known) > 8 else "")
    return Finding(
        NIC_LINK.slug,
        ERROR,
        known[0].subject if len(known) == 1 else "host",
        f"No RDMA port is active ({words}): NCCL falls back to TCP between hosts.",
        tuple(n.at("state") for n in known[:8]),
        cost="traffic between hosts at TCP speed",
        remediation=_port_steps(known[0]),
    )


def _down(nic: Nic, up: list[Nic], near: bool, facts: FactView) -> Iterator[Finding | CannotTell]:
    name = nic.device or nic.name
    if not up:
        yield CannotTell(
            NIC_LINK.slug, f"it is {nic.state}, and no port of its kind is active: perhaps not in use", nic.subject
        )
        return
    sibling = next((n for n in up if nic.bdf and n.bdf and n.bdf != nic.bdf and n.bdf[:-2] == nic.bdf[:-2]), None)
    ethernet = (nic.link_layer or "").lower() == "ethernet"
    if sibling is not None:
        yield CannotTell(
            NIC_LINK.slug,
            f"it is {nic.state} while the other port of its card ({sibling.device or sibling.name}) is active: "
            "perhaps not in use",
            nic.subject,
        )
        return
    if ethernet and not near and len(up) < _FABRIC_PORTS:
        yield CannotTell(NIC_LINK.slug, f"it is {nic.state}: perhaps a spare Ethernet port", nic.subject)
        return
    peers = ", ".join(n.device or n.name for n in up[:4]) + (", …" if len(up) > 4 else "")
    why = " No subnet manager answers on its network." if nic.state in ("init", "initializing") else ""
    yield Finding(
        NIC_LINK.slug,
        ERROR,
        nic.subject,
        f"{name} is {nic.state}, while its peers ({peers}) are active.{why}",
        (nic.at("state"), up[0].at("state")),
        cost="the GPUs beside it reach other hosts only over another GPU's NIC or the CPU",
        remediation=_port_steps(nic),
    )


def _port_steps(nic: Nic) -> tuple[Step, ...]:
    device = nic.device or nic.name
    port = nic.port or 1
    state = f"cat /sys/class/infiniband/{device}/ports/{port}/state"
    netdev = nic.netdev or f"$(ls /sys/class/infiniband/{device}/device/net | head -1)"
    layer = (nic.link_layer or "").lower()
    steps = [
        Step(
            "See what the port says: `Polling` or `Disabled` is cable or switch port, `Initializing` a missing "
            "subnet manager",
            f"ibstat {device}; rdma link show",
        )
    ]
    if layer != "infiniband":
        steps.append(Step("RoCE: bring its interface up", f"sudo ip link set {netdev} up", "reversible", state))
    if layer != "ethernet":
        steps.append(Step("InfiniBand: see whether a subnet manager answers", f"sudo sminfo -C {device}"))
    steps.append(Step("Seat the cable anew on both ends, or exchange it", None, "hardware", state))
    return tuple(steps)


def _slow(up: list[Nic], near: set[str], matrix: bool) -> Iterator[Finding | CannotTell]:
    rated = [n for n in up if n.rate_gbps]
    best = max((n.rate_gbps or 0 for n in rated), default=0)
    fast = [n for n in rated if n.rate_gbps == best]
    slow = [n for n in rated if (n.rate_gbps or 0) < best]
    for nic in slow:
        limit = nic.max_rate_gbps
        if limit is not None and nic.rate_gbps is not None and limit <= nic.rate_gbps:
            continue  # a port of a slower class, at its best
        if nic.name in near or (limit is not None) or (not matrix and len(slow) == 1 and len(fast) > 1):
            rate = nic.rate_gbps or 0
            yield Finding(
                NIC_LINK.slug,
                WARNING,
                nic.subject,
                f"{nic.device or nic.name} runs at {rate:g} Gb/s, its peers of the same part at {best:g} Gb/s.",
                (nic.at("rate_gbps"), fast[0].at("rate_gbps")),
                LIKELY,
                f"{rate / 8:g} of {best / 8:g} GB/s each way; a ring over all NICs goes at its pace",
                _port_steps(nic),
            )
        else:
            # Storage networks are often of the same part at another rate, by design.
            yield CannotTell(
                NIC_LINK.slug,
                f"it runs at {nic.rate_gbps:g} and others at {best:g} Gb/s: perhaps another network",
                nic.subject,
            )


def _far(facts: FactView) -> Iterator[Finding | CannotTell]:
    nics, platform, gpus = facts[Nics], facts.get(Platform), facts.get(Gpus)
    if not nics.nics:
        return
    if platform is not None and (platform.entry.vm or platform.entry.wsl):
        yield CannotTell(NIC_FAR.slug, "a virtual machine: its PCIe distances are not the board's")
        return
    best = _nearest(nics)
    if not best:
        yield CannotTell(NIC_FAR.slug, "the paths between GPUs and NICs are not in the input (nvidia-smi topo -m)")
        return
    served = next((p for p in best.values() if p.path in NEAR), None)
    names = {n.name for n in nics}
    if any(p.nic.startswith("NIC") for p in nics.paths):
        names = {n for n in names if n.startswith("NIC")}  # without the legend, mlx5_0 cannot be told from NIC0
    far: dict[str, list[tuple[Gpu, NicPath]]] = {}
    for index, path in sorted(best.items()):
        if path.path in NEAR:
            continue
        gpu = gpus.by_index(index) if gpus is not None else None
        gpu = gpu or Gpu(index=index)
        measured = {p.nic for p in nics.paths if p.gpu == index}
        if names - measured or any(n.startswith("?") for n in measured):
            yield CannotTell(NIC_FAR.slug, "the matrix shows only some of the NICs", gpu.subject)
            continue
        far.setdefault(path.nic, []).append((gpu, path))
    alone = len({p.nic for p in best.values()}) == 1
    for group in far.values():
        if alone and len(group) > 1:
            yield _one_for_all(group, nics, [p for _, p in sorted(best.items()) if p.path in NEAR])
        else:
            yield from (_far_finding(gpu, path, served, gpus) for gpu, path in group)


def _one_for_all(group: list[tuple[Gpu, NicPath]], nics: Nics, near: list[NicPath]) -> Finding:
    """One adapter serves all GPUs of the host: that is said once, of the adapter."""
    name = group[0][1].nic
    nic = next((n for n in nics if n.name == name), Nic(name=name))
    ways: dict[str, list[int | None]] = {}
    for gpu, path in group:
        ways.setdefault(path.path, []).append(gpu.index)
    words = "; ".join(
        f"{', '.join(f'GPU{i}' for i in ways[p])} {'reach' if len(ways[p]) > 1 else 'reaches'} it {_WORDS[p]} ({p})" for p in ORDER if p in ways
    )
    served = near[0] if near else None
    beside = f" Only {', '.join(f'GPU{p.gpu}' for p in near)} {'has' if len(near) == 1 else 'have'} it at {' or '.join(dict.fromkeys(p.path or '' for p in near))}." if near else ""
    return Finding(
        NIC_FAR.slug,
        WARNING if served is not None else NOTE,
        nic.subject,
        f"{nic.device or name} is the nearest RDMA NIC of every GPU: {words}.{beside}",
        tuple(path.at("path") for _, path in group[:8]) + ((served.at("path"),) if served is not None else ()),
        LIKELY if served is not None else POSSIBLE,
        "only traffic between hosts: without a common switch NCCL copies through host memory, and all GPUs share this port",
        (_SEE,),
    )


def _nearest(nics: Nics) -> dict[int, NicPath]:
    best: dict[int, NicPath] = {}
    for path in nics.paths:
        if path.path in ORDER and (
            path.gpu not in best or ORDER.index(path.path) < ORDER.index(best[path.gpu].path)
        ):
            best[path.gpu] = path
    return best


def _far_finding(gpu: Gpu, path: NicPath, served: NicPath | None, gpus: Gpus | None) -> Finding:
    evidence: list[Evidence] = [path.at("path")]
    beside = ""
    if served is not None:
        evidence.append(served.at("path"))
        beside = f", while GPU{served.gpu} has {served.nic} at {served.path}"
    grace = gpu.c2c or (gpus is not None and any(g.c2c for g in gpus))
    steps = [_SEE]
    if served is not None:
        steps.append(
            Step(
                f"Move a NIC to a slot below the switch of GPU{gpu.index}, by the board's manual",
                None,
                "hardware",
                "nvidia-smi topo -m",
            )
        )
    if grace:
        steps = steps[:1]  # Grace: the NICs hang off the CPU by design, and the C2C link is as fast
    return Finding(
        NIC_FAR.slug,
        WARNING if served is not None else NOTE,
        gpu.subject,
        f"The nearest RDMA NIC of {gpu.label} is {path.nic}, {_WORDS[path.path]} ({path.path}){beside}.",
        tuple(evidence),
        LIKELY if served is not None else POSSIBLE,
        "only traffic between hosts: without a common switch NCCL copies through host memory",
        tuple(steps),
    )
