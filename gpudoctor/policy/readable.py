"""`require_readable`: the names a policy gives to sources, and whether they were read."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.base import Fact
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import FabricManager, Iommu, Limits, Modules, Numa, Platform, Settings, Shm
from gpudoctor.facts.topology import Nics, NvLinks, Pairs
from gpudoctor.policy.outcome import Outcome

FACTS: dict[str, type[Fact]] = {
    "gpus": Gpus, "pairs": Pairs, "nvlinks": NvLinks, "pci": PciTree, "acs": PciTree, "nics": Nics, "numa": Numa,
    "kernel-log": KernelLog, "driver": Driver, "fabric-manager": FabricManager, "settings": Settings, "shm": Shm,
    "limits": Limits, "iommu": Iommu, "modules": Modules, "platform": Platform,
}  # fmt: skip
_ROOT = "sudo lspci -vv -D"


def judge(names: tuple[str, ...], store: FactStore) -> Iterator[Outcome]:
    for name in names:
        kind = FACTS[name]
        reason, hint = None, kind.hint
        if kind not in store:
            reason = store.why_missing(kind)
        elif name == "acs":
            reason, hint = _no_acs(store), _ROOT
        elif name == "nics" and not _states(store):
            reason, hint = "the ports' states were not read", "ibstat"
        ask = Outcome(rule=f"require_readable {name}", wants=f"{name} readable")
        yield ask.unread(reason, hint) if reason else ask.judged(True, "read")


def _no_acs(store: FactStore) -> str | None:
    """Without root the capability lines of a bridge are not there to be read."""
    tree = store.get(PciTree)
    bridges = [d for d in tree or () if d.is_bridge and not d.virtual]
    unread = [d for d in bridges if d.acs is None]
    if tree is not None and not bridges:
        return "no bridge of the machine is visible here (in a virtual machine the host has them)"
    if tree is None or not unread:
        return None
    return f"the ACS bits of {len(unread)} of {len(bridges)} bridges were not read (root only)"


def _states(store: FactStore) -> bool:
    nics = store.get(Nics)
    return nics is not None and (nics.states_read or not nics.nics)
