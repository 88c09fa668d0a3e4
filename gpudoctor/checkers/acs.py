"""GD218 acs: a switch port sends peer-to-peer traffic up to the processor instead of across."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.acs_paths import PeerPath, is_root, peer_paths
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.gpu_links import gpu_links, hidden, no_gpu
from gpudoctor.checkers.isolation import leave_on, passes_devices_on
from gpudoctor.checkers.traffic import can_peer
from gpudoctor.facts.bandwidth import PeerCopies, PeerCopy
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Modules, Platform
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Evidence, Finding, Step

REDIRECTS = ("ReqRedir", "CmpltRedir")
FULL_LISTING = "sudo lspci -vv -D > lspci.txt; gpudoctor check --live --from lspci.txt"

ACS = Cause(
    "GD218", "acs", "Access Control Services redirect peer-to-peer traffic",
    "warning where peer to peer over PCIe is in use; error with a measured loss or hang; otherwise note",
    "A PCIe switch can pass packets between two GPUs, or a GPU and a NIC, without the processor. With request or completion "
    "redirect on, a downstream port sends them up to the root complex first: the uplink carries everything twice, and with an "
    "IOMMU that translates, transfers may hang or arrive wrong. Source validation alone (SrcValid+) redirects nothing. On a root "
    "port it changes nothing, since traffic between root ports passes the processor anyway, and ports off every such path do "
    "not matter. ACS is also what keeps virtual machines apart, so it is no fault on a host that passes devices to guests.",
    "ACSCtl of the switch ports between the devices (sudo lspci -vv -D): without root the line is not shown",
    "In this order: firmware setting on bare metal, kernel parameter pci=disable_acs_redir, setpci at run time.",
)  # fmt: skip


class AcsRedirect(BaseChecker):
    """Redirect bits on ports between two devices below one switch."""

    name: ClassVar[str] = "acs"
    needs = (PciTree,)
    wants = (Gpus, PciTree, Pairs, Platform, Modules, PeerCopies)
    causes = (ACS,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        tree, gpus = facts[PciTree], facts.get(Gpus)
        links = [link for link in gpu_links(facts) if not hidden(link, facts)]
        paths = peer_paths(links, tree, gpus, facts.get(Pairs))
        guests = passes_devices_on(facts)
        ports: dict[str | None, PciDevice] = {}
        through: dict[str | None, list[PeerPath]] = {}
        for path in paths:
            for bridge in path.bridges:
                ports[bridge.bdf] = bridge
                through.setdefault(bridge.bdf, []).append(path)
        redirecting = {bdf: d for bdf, d in ports.items() if redirects(d)}
        losses = measured_loss(facts) if redirecting else {}
        for bdf, port in redirecting.items():
            lossy = [losses[p.ends] for p in through[bdf] if p.ends in losses]
            worst = min(lossy, key=lambda c: c.on_gbs or 0, default=None)
            yield _finding(port, through[bdf], list(redirecting), guests, worst)
        unread = [d for d in ports.values() if d.acs is None]
        if unread:
            yield CannotTell("acs", f"{_why_unread(unread)} ({_list([str(d.bdf) for d in unread])}): {FULL_LISTING}")
        strays = [d for d in tree if redirects(d) and d.bdf not in ports and _unplaced(d, tree)]
        if strays:
            yield _stray(strays, facts)
            return
        yield from no_gpu("acs", facts)
        for link in links:
            if not link.above:
                yield CannotTell("acs", f"the bridges above it are not in the input: {FULL_LISTING}", link.subject)


def measured_loss(facts: FactView) -> dict[frozenset[str | None], PeerCopy]:
    """Pairs whose peer copies over PCIe were measured and are far too slow."""
    if facts.get(PeerCopies) is None:
        return {}
    from gpudoctor.checkers.peer_copies import lost

    return lost(facts)


def redirects(device: PciDevice) -> bool:
    """Request or completion redirect is on."""
    return device.acs is not None and any(device.acs.get(bit) for bit in REDIRECTS)


def _unplaced(port: PciDevice, tree: PciTree) -> bool:
    """Nothing in the input says what lies above and below it. On bus 0 there are only ports of the root."""
    if port.bdf is None:
        return True
    if tree.complete or is_root(port) or port.port_type in ("endpoint", "integrated") or port.bdf[-7:-5] == "00":
        return False
    named = port.is_bridge or port.class_code is None
    return named and port.parent is None and not any(d.parent == port.bdf for d in tree)


def _why_unread(ports: list[PciDevice]) -> str:
    count = f"{len(ports)} port" + ("s" if len(ports) != 1 else "")
    if any(d.access_denied for d in ports):
        return f"lspci ran without root, so ACS of {count} between GPUs was not shown"
    return f"ACS of {count} between GPUs is not in the input; only root may read it"


def _list(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _finding(
    port: PciDevice, paths: list[PeerPath], all_ports: list[str | None], guests: Evidence | None, loss: PeerCopy | None
) -> Finding:
    used = loss is not None or any(p.direct for p in paths)
    unused = all(p.direct is False for p in paths)
    set_bits = [bit for bit in REDIRECTS if port.acs is not None and port.acs.get(bit)]
    use = (
        "" if used else " They do not use peer to peer over PCIe, so nothing is lost now."
        if unused else " Whether they use peer to peer over PCIe is not in the input."
    )  # fmt: skip
    cost = "peer traffic passes the switch's uplink twice instead of not at all" if used else None
    if loss is not None:
        from gpudoctor.checkers.peer_copies import said

        cost = f"{cost}; {said(loss)}"
    return Finding(
        "acs",
        ERROR if loss is not None else WARNING if used else NOTE,
        f"pci:{port.bdf}",
        f"The switch port {port.bdf} sends peer-to-peer traffic up to the processor ({' and '.join(set_bits)} on). It lies "
        f"between {_list([p.who for p in paths], 4)}.{use}",
        (port.at("acs"), *((loss.at("on_gbs"),) if loss is not None else ()), *((guests,) if guests else ())),
        CERTAIN if used or unused else LIKELY,
        cost,
        leave_on("ACS") if guests else _steps([str(b) for b in all_ports]),
    )


def _steps(ports: list[str]) -> tuple[Step, ...]:
    verify = f"sudo lspci -vv -s {ports[0]} | grep ACSCtl:   (wants ReqRedir- CmpltRedir-)"
    caution = "Only on a host that runs no virtual machines and no untrusted guests: ACS keeps their devices apart."
    return (
        Step(f"{caution} Firmware setup on bare metal: ACS off (with the IOMMU off it stays off).", None, "disruptive", verify),
        Step("Or on the kernel command line; clears redirect before IOMMU groups form, so guests lose that isolation.",
             f"pci=disable_acs_redir={';'.join(ports)}", "disruptive", verify),
        Step("Or now, until the next reset of the port or boot.",
             "; ".join(f"sudo setpci -v -s {p} ECAP_ACS+0x6.w=0000" for p in ports), "reversible", verify),
    )  # fmt: skip


def _stray(strays: list[PciDevice], facts: FactView) -> Finding:
    """Bare ACSCtl lines, or ports out of their tree: they redirect, and where they sit cannot be said."""
    pairs, gpus = facts.get(Pairs), facts.get(Gpus)
    known = [p for p in pairs or () if p.path in ("PIX", "PXB") and not p.pcie_only]
    in_use = any(p.p2p_read == "OK" or (p.p2p_read is None and _can(gpus, p.a) and _can(gpus, p.b)) for p in known)
    named = [d.bdf for d in strays if d.bdf is not None]
    many = len(strays) != 1
    which = f"{_list(named)}: " if named else ""
    lost = (
        f"what lies above and below {'them' if many else 'it'} is" if len(named) == len(strays)
        else "their addresses are" if many else "its address is"
    )  # fmt: skip
    return Finding(
        "acs",
        WARNING if in_use else NOTE,
        f"pci:{named[0]}" if named and not many else "host",
        f"{len(strays)} {'ports redirect' if many else 'port redirects'} peer-to-peer traffic ({which}ReqRedir or CmpltRedir on), "
        f"but {lost} not in the input. It matters only if a port lies between GPUs, or between a GPU and a NIC, below one switch.",
        tuple(dict.fromkeys(d.at("acs") for d in strays[:6])),
        POSSIBLE,
        None,
        (Step("Show the ports with their addresses and the tree.", FULL_LISTING),),
    )


def _can(gpus: Gpus | None, index: int) -> bool:
    gpu = gpus.by_index(index) if gpus is not None else None
    return gpu is not None and bool(can_peer(gpu))
