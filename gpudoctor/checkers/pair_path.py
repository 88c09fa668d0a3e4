"""Path class of every pair: crossing a host bridge, the bridges of a node, or the socket link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import pcie
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.nvlink_view import Card, cards, computing, left_out
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import NvLinks, Pair, Pairs
from gpudoctor.model import NOTE, CannotTell, Cause, Finding, Step, Threshold

_SEEN = "nvidia-smi topo -m"
_BEST = (
    "For GPUs without NVLink this is a property of the board, not a fault: which slots share a switch or a socket is "
    "wired. Moving cards helps only where the board has slots that are nearer to each other."
)

PHB = Cause(
    "GD201",
    "path-phb",
    "A pair's traffic crosses the CPU's host bridge",
    "note",
    "Both GPUs hang from the same CPU, on different ports of it, so that every byte between them passes the CPU's PCIe host "
    "bridge. Peer-to-peer copies work there on current server CPUs, at most at the rate of the slower of the two PCIe links; "
    "where the driver or NCCL does not use peer to peer, each byte goes through host memory instead. NCCL 2.23 and newer "
    "uses peer to peer over this path only on AMD with at most two GPUs, unless NCCL_P2P_LEVEL says otherwise. " + _BEST,
    _SEEN,
    "Nothing to repair. NCCL_P2P_LEVEL=PHB makes NCCL use peer to peer here, where the driver allows it: measure both.",
)
NODE = Cause(
    "GD202",
    "path-node",
    "A pair's traffic crosses several host bridges of one NUMA node",
    "note",
    "The two GPUs hang from different PCIe host bridges of one NUMA node, so their traffic crosses the interconnect between "
    "those bridges inside one CPU. NCCL has no such class: it treats this path as PHB. It costs somewhat more latency than "
    "one bridge, and the bridges share the CPU's inner fabric with memory traffic. " + _BEST,
    _SEEN,
    "Nothing to repair. NCCL_P2P_LEVEL=PHB makes NCCL use peer to peer here, where the driver allows it: measure both.",
)
SYS = Cause(
    "GD203",
    "path-sys",
    "A pair's traffic crosses the link between CPU sockets",
    "note",
    "The GPUs belong to different sockets or NUMA nodes, so their traffic crosses the link between them (UPI, Infinity Fabric) "
    "and shares it with everything else. NCCL plans with the figures below for that link, whatever the GPUs' own PCIe rate. "
    "On an AMD CPU set to several NUMA nodes per socket (NPS2, NPS4), or an Intel one with sub-NUMA clustering, GPUs of one "
    "socket show as SYS too. " + _BEST,
    _SEEN,
    "Nothing to repair. Keep a job of few GPUs on one socket; with all GPUs in a job, NCCL crosses the link once each way.",
    tuple(
        Threshold(f"NCCL's planning rate, {cpu}", rate, "GB/s", "NCCL 2.30.7, src/graph/topo.h", "2026-06")
        for cpu, rate in (
            ("Intel Broadwell and older", 6),
            ("Intel Skylake and newer", 10),
            ("Intel Sapphire Rapids", 22),
            ("Intel Emerald Rapids and newer", 40),
            ("AMD", 16),
            ("ARM", 6),
        )
    ),
)
_CAUSES = {"PHB": PHB, "NODE": NODE, "SYS": SYS}
_WORDS = {
    "PHB": "goes through the CPU's PCIe host bridge",
    "NODE": "goes through several PCIe host bridges of one NUMA node",
    "SYS": "crosses the link between CPU sockets or NUMA nodes",
}


class PairPath(BaseChecker):
    """Says where a pair's traffic goes when it does not stay on NVLink or below one PCIe switch."""

    name: ClassVar[str] = "pair-path"
    needs = (Pairs,)
    wants = (Gpus, NvLinks)
    causes = (PHB, NODE, SYS)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        known = cards(facts.get(Gpus), facts.get(NvLinks), facts[Pairs])
        judged = computing(known)
        aside = left_out(known)
        for pair in facts[Pairs]:
            if pair.a not in judged or pair.b not in judged:
                continue
            a, b = judged[pair.a], judged[pair.b]
            if pair.path is None or (pair.pcie_only and _may_have_nvlink(a, b)):
                yield from _unknown(pair)
            elif pair.path in _CAUSES:
                yield _finding(pair, a, b, aside)


def _may_have_nvlink(a: Card, b: Card) -> bool:
    """Only a part known to be without NVLink has its true path in a PCIe-only matrix."""
    return all(c.part is None or c.part.nvlink for c in (a, b))


def _unknown(pair: Pair) -> Iterator[CannotTell]:
    if pair.path is None:
        reason = "the input gives no path for this pair; needed is nvidia-smi topo -m"
    elif pair.path not in _CAUSES:
        return
    else:
        reason = f"{pair.path} is the PCIe path alone; NVLink does not show in this source. Needed is nvidia-smi topo -m"
    for cause in _CAUSES.values():
        yield CannotTell(cause.slug, reason, pair.subject)


def _finding(pair: Pair, a: Card, b: Card, aside: str) -> Finding:
    path = str(pair.path)
    cause = _CAUSES[path]
    nvlink = [c for c in (a, b) if c.part is not None and c.part.nvlink]
    message = f"GPU{pair.a} and GPU{pair.b}: traffic {_WORDS[path]}."
    if not nvlink and a.part is not None and b.part is not None:
        message += " These parts have no NVLink, so PCIe is what there is."
    steps: tuple[Step, ...] = ()
    if not nvlink:
        steps = (
            Step(
                "Nothing to repair. Measure once, and keep the figure as this host's baseline",
                "gpudoctor bandwidth --gpus 2",
                verify="nvidia-smi topo -m",
            ),
        )
    return Finding(
        cause.slug, NOTE, pair.subject, message + aside, (pair.at("path"),), cost=_cost(path, a, b), remediation=steps
    )


def _cost(path: str, a: Card, b: Card) -> str | None:
    """The slower of the two links bounds the pair; the socket link may bound it lower."""
    rates = [
        pcie.gbs(c.gpu.max_speed_gts, c.gpu.max_width) for c in (a, b) if c.gpu is not None
    ]
    known = [r for r in rates if r is not None]
    if len(known) < 2:
        return None
    bound = f"at most {pcie.amount(min(known))} GB/s each way, the rate of the slower PCIe link"
    return f"{bound}; the socket link often gives less" if path == "SYS" else bound
