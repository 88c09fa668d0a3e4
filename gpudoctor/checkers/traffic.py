"""Which links carry traffic between GPUs: decides whether a slow PCIe link costs a job or only host copies.

A checker that asks here lists Gpus, Pairs and PciTree among what it needs or wants.
"""

from __future__ import annotations

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.parts import Part, find


def between_gpus(gpu: Gpu, facts: FactView) -> bool | None:
    """Does this GPU's PCIe link carry traffic between GPUs?

    False: it has NVLink to every peer, or no peer. True: a peer is reached over PCIe (through host memory counts: both
    copies pass this link). None: the input does not say.
    """
    gpus, pairs = facts.get(Gpus), facts.get(Pairs)
    count = _count(facts)
    if count <= 1:
        alone = gpus is not None and gpus.complete and (gpus.attached or 1) == 1 and not (pairs and pairs.pairs)
        return False if alone else None
    paths = [p for p in pairs or () if p.path is not None and not p.pcie_only]
    if gpu.index is not None:
        paths = [p for p in paths if gpu.index in (p.a, p.b)]
        if any(p.path != "NVL" for p in paths):
            return True
        if len(paths) >= count - 1:
            return False
    elif paths:
        if all(p.path == "NVL" for p in paths):
            return False
        if all(p.path != "NVL" for p in paths):
            return True
    if paths:
        return None
    part = part_of(gpu)
    if part is None or (part.nvlink and not part.required):
        return None  # a bridge may be there or not
    return not part.nvlink


def _count(facts: FactView) -> int:
    gpus, tree = facts.get(Gpus), facts.get(PciTree)
    listed = max(len(gpus), gpus.attached or 0) if gpus is not None else 0
    return max(listed, sum(1 for d in tree.gpus() if d.bdf) if tree is not None else 0)


def carries(word: bool | None) -> str:
    """The answer of `between_gpus` as a clause for a reader."""
    if word is None:
        return "whether traffic between GPUs takes this link is not in the input"
    return "traffic between GPUs takes this link" if word else "only copies to and from the host take this link"


def pcie_peer(pair: Pair, gpus: Gpus | None) -> bool | None:
    """Do these two reach each other's memory directly over PCIe? None where neither driver nor part tells."""
    if pair.path == "NVL":
        return False
    said = [w for w in (pair.p2p_read, pair.p2p_write) if w is not None]
    if said:
        return all(w == "OK" for w in said)
    both = [gpus.by_index(i) if gpus is not None else None for i in (pair.a, pair.b)]
    answers = [can_peer(g) if g is not None else None for g in both]
    if False in answers:
        return False
    return True if all(answers) else None


def part_of(gpu: Gpu) -> Part | None:
    """The part's entry in the table of parts; None where it is not listed."""
    return find(gpu.device_id, gpu.name)


def can_peer(gpu: Gpu) -> bool | None:
    """Does the driver let this part do peer to peer over PCIe?"""
    part = part_of(gpu)
    return None if part is None else part.p2p
