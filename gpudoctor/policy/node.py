"""The node's GPUs as a policy counts them: a container sees some of them, and numbers these anew from 0."""

from __future__ import annotations

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.presence import absent, comparable
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Grant, Platform
from gpudoctor.record import KeyedRecord


class Node(KeyedRecord):
    """`order`: the addresses of all its GPUs, as nvidia-smi of the node numbers them; empty where nothing is hidden here."""

    here: int = 0
    hidden: int = 0  # GPUs of the node that this container or cgroup was not given
    order: tuple[str, ...] = ()
    indices: frozenset[int] = frozenset()  # those of the driver's list
    whole: bool = False

    def index(self, gpu: Gpu) -> int | None:
        """The GPU's index on the node."""
        if not self.order or gpu.index is None:
            return gpu.index
        return self.order.index(gpu.bdf) if gpu.bdf in self.order else None

    def lacks(self, index: int) -> bool:
        """Is it sure that the node has no GPU of this index?"""
        return self.whole and (index >= len(self.order) if self.order else index not in self.indices)


def node(store: FactStore, gpus: Gpus) -> Node:
    tree, grant, platform = store.get(PciTree), store.get(Grant), store.get(Platform)
    here = len(gpus.listed)
    indices = frozenset(g.index for g in gpus.listed if g.index is not None)
    whole = gpus.complete and len(indices) == here > 0
    if tree is None or not comparable(gpus, tree, store.recorded):
        return Node(here=here, indices=indices, whole=whole)
    rest = [
        a
        for a in absent(gpus, tree, grant.entry if grant else None, platform.entry if platform else None)
        if a.device.driver == "nvidia"
    ]
    hidden = sum(not a.lost for a in rest)
    addresses = sorted(bdf for bdf in (*(g.bdf for g in gpus.listed), *(a.device.bdf for a in rest)) if bdf is not None)
    return Node(here=here, hidden=hidden, order=tuple(addresses) if hidden else (), indices=indices, whole=whole)
