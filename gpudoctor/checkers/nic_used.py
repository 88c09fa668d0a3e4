"""The adapters that NCCL's log says each rank uses, against the host's own: far ones where a near one is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.checkers.nccl_view import Ranks, gpu_of
from gpudoctor.checkers.nic import NEAR, NIC_FAR, ORDER
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.nccl import Nccl, NcclProc, NcclRank
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import Nic, NicPath, Nics, Pairs
from gpudoctor.hang import listing
from gpudoctor.model import LIKELY, WARNING, Evidence, Finding, Step

_VIA = re.compile(r"NET/IB/(\d{1,4})(?![^/])")
_PXN_FROM = (2, 12)  # NCCL hands traffic to a GPU with a near adapter, over NVLink


class _Far(NamedTuple):
    """One rank, the nearest adapter that it uses, and the nearer one that it could."""

    rank: int
    gpu: int
    takes: NicPath
    near: NicPath
    listed: bool  # does NCCL know the nearer one at all?
    way: str | None  # a connection of it, in the log's words
    source: str  # the log
    proc: NcclProc


def far_adapters(ranks: Ranks, nccl: Nccl, home: FactView) -> Iterator[Finding]:
    """Of one machine: each rank whose every connection to other hosts goes over an adapter farther than one that is active."""
    nics, platform = home.get(Nics), home.get(Platform)
    if nics is None or not nics.paths or platform is not None and (platform.entry.vm or platform.entry.wsl):
        return
    found: dict[bool, list[_Far]] = {}
    for number, rank in sorted(ranks.rank.items()):
        far = _of_rank(number, rank, ranks.proc[number], nics, home)
        if far is not None:
            found.setdefault(far.listed, []).append(far)
    for group in found.values():
        yield _finding(group, nccl, nics, home)


def _of_rank(number: int, rank: NcclRank, proc: NcclProc, nics: Nics, home: FactView) -> _Far | None:
    gpu = gpu_of(rank, home.get(Gpus))
    index = gpu.index if gpu is not None else rank.nvml_dev
    if index is None or not proc.nics:
        return None
    reach = {p.nic: p for p in nics.paths if p.gpu == index and p.path in ORDER}
    names = {n.device: n.name for n in nics if n.device is not None} | {n.name: n.name for n in nics}
    # `mlx5_0+mlx5_1:1/IB` is two ports that NCCL bonds.
    listed = [[names.get(part) for part in name.partition(":")[0].split("+")] for name in proc.nics]
    if any(part is None or part not in reach for parts in listed for part in parts):
        return None  # an adapter of the log that the matrix does not place
    able = {n.name for n in nics if n.state in (None, "active") and n.name in reach}
    near = min((reach[n] for n in able), key=_far, default=None)
    if near is None:
        return None
    vias = {via: pair for pair, ways in rank.transports.items() for via in ways if via.startswith("NET/")}
    used: dict[str, str | None] = {}
    for via, (a, b) in vias.items():
        at = _VIA.match(via)
        if at is None or int(at[1]) >= len(listed):
            return None
        used.update({part: f"ranks {a}-{b} via {via}" for part in listed[int(at[1])] if part is not None})
    if not used and nics.states_read:
        # No connection is in the log; an adapter that NCCL does not list it cannot use.
        used = {part: None for parts in listed for part in parts if part is not None}
    takes = min((reach[n] for n in used), key=_far, default=None)
    known = {part for parts in listed for part in parts}
    if takes is None or not _farther(takes.path, near.path):
        return None
    choices = {n for n in able if reach[n].path == near.path}
    is_listed = bool(choices & known)
    if not vias and is_listed:
        return None
    if is_listed and _by_another_gpu(index, takes.nic, nics, home, proc):
        return None
    if is_listed and near.nic not in known:
        near = reach[min(choices.intersection(n for parts in listed for n in parts if n))]
    return _Far(number, index, takes, near, is_listed, used[takes.nic], rank.at("transports").source, proc)


def _far(path: NicPath) -> int:
    return ORDER.index(path.path)


def _farther(used: str, near: str) -> bool:
    """PIX and PXB are both below a switch; beyond it, what crosses the sockets is farther than what does not."""
    return used not in NEAR and (near in NEAR or used == "SYS" and near != "SYS")


def _by_another_gpu(index: int, nic: str, nics: Nics, home: FactView, proc: NcclProc) -> bool:
    """May the traffic go over NVLink to a GPU beside this adapter (PXN)? The log shows the adapter, not whose."""
    version = tuple(int(n) for n in re.findall(r"\d+", proc.version or "")[:2])
    if proc.env.get("NCCL_PXN_DISABLE") == "1" or version and version < _PXN_FROM:
        return False
    pairs = home.get(Pairs)
    for path in nics.paths:
        if path.nic == nic and path.gpu != index and path.path in NEAR:
            pair = pairs.of(index, path.gpu) if pairs is not None else None
            if pair is None or pair.path is None or pair.path == "NVL":
                return True
    return False


def _finding(group: list[_Far], nccl: Nccl, nics: Nics, home: FactView) -> Finding:
    first = group[0]
    who = f"rank{'s' if len(group) > 1 else ''} {listing([f.rank for f in group])}"
    takes, near = _name(nics, first.takes.nic), _name(nics, first.near.nic)
    hca = first.proc.env.get("NCCL_IB_HCA")
    if not first.listed:
        setting = f" (NCCL_IB_HCA={hca})" if hca is not None else ""
        what = (
            f"NCCL leaves out the adapter nearest to the GPU of {who}{setting}: GPU{first.gpu} has {near} at {first.near.path}, and of those "
            f"it uses the nearest, {takes}, is {first.takes.path} away."
        )
    elif len(group) == 1:
        what = f"R{who[1:]} reaches other hosts over {takes} ({first.takes.path}) although its GPU{first.gpu} has {near} at {first.near.path}."
    else:
        what = (
            f"R{who[1:]} reach other hosts over far adapters although near ones are there: rank {first.rank} over {takes} ({first.takes.path}), "
            f"whose GPU{first.gpu} has {near} at {first.near.path}."
        )
    evidence: list[Evidence] = [first.near.at("path"), first.takes.at("path")]
    if first.way is not None:
        evidence.append(Evidence(first.source, f"connections of rank {first.rank}", first.way))
    seen = nccl.seen.get("nics") if len({p.nics for p in nccl.procs if p.nics}) == 1 else None
    where = (seen.source, seen.where) if seen is not None else (first.source, f"the process of rank {first.rank}")
    evidence.append(Evidence(*where, f"NET/IB : Using {', '.join(first.proc.nics[:8])}"))
    if hca is not None and ("NCCL_IB_HCA", hca) in nccl.settings:
        evidence.append(nccl.settings["NCCL_IB_HCA", hca])
    steps = [
        Step("See what NCCL takes the distances for", "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET NCCL_TOPO_DUMP_FILE=/tmp/topo.xml COMMAND"),
        Step("A container or virtual machine that shows no PCIe tree, NCCL_TOPO_FILE and NCCL_IB_HCA all lead to this", "env | grep -E 'NCCL_(TOPO|IB|NET|CROSS)'"),
    ]
    if not first.listed and hca is not None:
        steps = [Step("Let NCCL choose among all adapters of the job's network", "unset NCCL_IB_HCA", "reversible", f"NCCL_DEBUG=INFO then lists {near} after `NET/IB : Using`")]
    return Finding(
        NIC_FAR.slug, WARNING, "host" if len(group) > 1 else f"rank:{first.rank}", what, tuple(dict.fromkeys(evidence)), LIKELY,
        "traffic between hosts crosses the CPU" + (", and NCCL copies it through host memory" if "GDRDMA" not in (first.way or "") else ""), tuple(steps),
    )  # fmt: skip


def _name(nics: Nics, name: str) -> str:
    nic: Nic | None = next((n for n in nics if n.name == name), None)
    return nic.device or nic.name if nic is not None else name
