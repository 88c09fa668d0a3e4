"""Path class of every pair: crossing a host bridge, the bridges of a node, or the socket link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import NOTE, CannotTell, Cause, Finding

_WORDS = {
    "PHB": ("path-phb", "crosses a PCIe host bridge (the CPU)"),
    "NODE": ("path-node", "crosses the host bridges of one NUMA node"),
    "SYS": ("path-sys", "crosses the link between CPU sockets"),
}


class PairPath(BaseChecker):
    """Says where a pair's traffic goes when it does not stay on NVLink or below one PCIe switch."""

    name: ClassVar[str] = "pair-path"
    needs = (Pairs,)
    causes = (
        Cause("GD201", "path-phb", "A pair's traffic crosses the CPU's host bridge", "note", "…", "nvidia-smi topo -m", "…"),
        Cause("GD202", "path-node", "A pair's traffic crosses the host bridges of a NUMA node", "note", "…", "nvidia-smi topo -m", "…"),
        Cause("GD203", "path-sys", "A pair's traffic crosses the socket link", "note", "…", "nvidia-smi topo -m", "…"),
    )

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        for pair in facts[Pairs]:
            if pair.path in _WORDS and not pair.pcie_only:
                slug, words = _WORDS[pair.path]
                yield Finding(slug, NOTE, pair.subject, f"GPU{pair.a} and GPU{pair.b}: traffic {words}.", (pair.at("path"),))
