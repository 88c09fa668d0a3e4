"""Peer-to-peer answers of the driver, pair by pair; and a consumer driver that grants what NVIDIA's does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.nvlink_view import Card, cards, computing, left_out
from gpudoctor.facts.bandwidth import PeerCopies
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import NvLinks, Pair, Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Evidence, Finding, Step
from gpudoctor.parts import NONE
from gpudoctor.record import replace

_SEEN = "nvidia-smi topo -p2p r; nvidia-smi topo -p2p w; p2pBandwidthLatencyTest; NCCL_RUN_DIAGNOSTICS=1 (2.31 and later)"
# What the driver's words mean, and what they do not.
_MEANING = {
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
}

UNSUPPORTED = Cause(
    "GD204",
    "p2p-unsupported",
    "The driver grants no peer access between two GPUs",
    "failed a run, or an NVLink pair: error; a part without peer to peer: note; else warning",
    "With peer access one GPU reads and writes another's memory directly; without it every byte is staged in host memory, which "
    "NCCL does over shared memory, at a fraction of the rate. The driver decides by itself, and its words are not to be taken "
    "literally: CNS comes for GeForce cards whatever the board, GNS means that this GPU has it switched off, TNS is old Intel "
    "hosts, NS is MIG, a hypervisor or an NVSwitch fabric that is not up, DR a registry key of the driver. GeForce cards of the "
    "40 and 50 series, and older ones without a bridge, never have it, and no BIOS setting changes that. The answer OK is no "
    "guarantee: the driver looks neither at ACS nor at the IOMMU. That a pair has no NVLink or atomics capability is normal.",
    _SEEN,
    "NVLink pair: look at the fabric and the links. DR: remove the registry key. Parts without it: nothing to do.",
)
PATCHED = Cause(
    "GD206",
    "p2p-patched",
    "A GeForce card reports peer access over PCIe, which NVIDIA's driver does not grant",
    "note",
    "NVIDIA's driver refuses peer access between GeForce cards of the 40 and 50 series. Where it answers OK the kernel module "
    "is a modified one. Such modules map the peer's BAR1; with the IOMMU translating or ACS redirecting, copies can be wrong "
    "without an error. A result check of a collective is worth its minute.",
    _SEEN,
    "Verify the data, and expect to rebuild the module at each driver update.",
)


class PeerToPeer(BaseChecker):
    """Read and write decide. A matrix whose capability is not named is judged with care."""

    name: ClassVar[str] = "p2p"
    any_of = (Pairs, PeerCopies)
    wants = (Gpus, NvLinks, Platform)
    causes = (UNSUPPORTED, PATCHED)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        pairs = facts.get(Pairs) or Pairs(())
        every = cards(facts.get(Gpus), facts.get(NvLinks), pairs)
        known, aside = computing(every), left_out(every)
        platform = facts.get(Platform)
        vm = platform is not None and platform.entry.vm is True
        answered = False
        if facts.get(PeerCopies) is not None:
            answered = any(copy.access is not None for copy in facts[PeerCopies])
            yield from _measured(facts, vm)
        for pair in pairs:
            if pair.a not in known or pair.b not in known:
                continue
            stated = [(n, w) for n, w in (("p2p_read", pair.p2p_read), ("p2p_write", pair.p2p_write)) if w is not None]
            answered = answered or bool(stated) or pair.p2p_unstated is not None
            a, b = known[pair.a], known[pair.b]
            if stated:
                yield from _stated(pair, stated, a, b, vm, aside)
            elif pair.p2p_unstated is not None:
                yield from _unstated(pair, a, b, vm, aside)
        if not answered and (pairs.pairs or facts.get(PeerCopies) is not None):
            for cause in self.causes:
                yield CannotTell(cause.slug, "the driver's peer-to-peer answers are not in the input; needed is nvidia-smi topo -p2p r")


def _stated(
    pair: Pair, stated: list[tuple[str, str]], a: Card, b: Card, vm: bool, aside: str
) -> Iterator[Finding | CannotTell]:
    bad = [(n, w) for n, w in stated if w in _MEANING]
    if bad:
        words = "; ".join(f"{n[4:]} {w} ({_MEANING[w]})" for n, w in bad)
        yield _refused(pair, bad[0][0], words, bad[0][1], a, b, vm, aside, CERTAIN)
    elif any(w == "U" for _, w in stated):
        yield CannotTell(UNSUPPORTED.slug, "the driver answers U, unknown", pair.subject)
    elif len(stated) == 2 and pair.path not in (None, "NVL") and any(_refuses(c) for c in (a, b)):
        yield _patched(pair, a, b, tuple(pair.at(n) for n, _ in stated))


def _measured(facts: FactView, vm: bool) -> Iterator[Finding]:
    """What CUDA itself says of pairs, as p2pBandwidthLatencyTest prints it."""
    from gpudoctor.checkers.peer_copies import granted, refusals

    words = "cudaDeviceCanAccessPeer says no"
    for pair, a, b, nvlink in refusals(facts):
        known = replace(pair, path="NVL") if nvlink else pair
        yield _refused(known, "p2p_unstated", words, "CUDA", a, b, vm, "", CERTAIN if pair.path == "NVL" or not nvlink else LIKELY)
    for one, a, b in granted(facts):
        if any(_refuses(card) for card in (a, b)):
            yield _patched(Pair(a=a.index, b=b.index), a, b, (one.copy.at("access"),))


def _patched(pair: Pair, a: Card, b: Card, evidence: tuple[Evidence, ...]) -> Finding:
    refused = next(card for card in (a, b) if _refuses(card))
    both = a.words if a.name == b.name else f"{a.words} and {b.words}"
    return Finding(
        PATCHED.slug,
        NOTE,
        pair.subject,
        f"GPU{pair.a} and GPU{pair.b} ({both}) have peer access over PCIe. NVIDIA's own driver refuses it to "
        f"{'this part' if a.name == b.name else refused.words}: the kernel module is a modified one.",
        evidence,
        remediation=(
            Step("Check that data arrives right: NCCL's tests compare every value", "gpudoctor bandwidth --gpus 2"),
            Step("With the IOMMU translating or ACS redirecting, copies can be wrong", "gpudoctor check --select acs,iommu"),
        ),
    )


def _unstated(pair: Pair, a: Card, b: Card, vm: bool, aside: str) -> Iterator[Finding | CannotTell]:
    """NS stands in every matrix of a capability that the pair merely lacks (NVLink, atomics)."""
    word = str(pair.p2p_unstated)
    if word in ("NS", "U"):
        yield CannotTell(
            UNSUPPORTED.slug,
            f"a peer-to-peer matrix says {word}, but not of which capability; needed is nvidia-smi topo -p2p r",
            pair.subject,
        )
    elif word in _MEANING:
        yield _refused(pair, "p2p_unstated", f"{word} ({_MEANING[word]})", word, a, b, vm, aside, POSSIBLE)


def _refuses(card: Card) -> bool:
    return card.part is not None and card.part.p2p_class == NONE


def _refused(
    pair: Pair, field: str, words: str, word: str, a: Card, b: Card, vm: bool, aside: str, confidence: str
) -> Finding:
    head = f"GPU{pair.a} and GPU{pair.b}: the driver grants no peer access, {words}."
    evidence = (pair.at(field),)
    cost = "each byte between the two goes through host memory"
    steps: tuple[Step, ...] = ()
    if a.mig or b.mig:
        message, severity = " MIG is on, and instances have no peer access.", NOTE
    elif pair.path == "NVL":
        message, severity, steps = " They are joined by NVLink, so they should have it.", ERROR, _nvlink_steps(word)
    elif any(c.part is not None and c.part.p2p is False for c in (a, b)):
        message, severity, steps = f" {_names(a, b)} have none over PCIe, whatever the slot or BIOS.", NOTE, _none_steps()
    else:
        message, severity, steps = _other(word, vm), WARNING, _other_steps(word, vm)
        unknown = list(dict.fromkeys(c.name for c in (a, b) if c.part is None))
        if None in unknown:
            message += " The part is not known; GeForce cards of the 40 and 50 series give this answer on every board."
        elif unknown:
            message += f" What {' and '.join(map(str, unknown))} may do is not in gpudoctor's table of parts."
    return Finding(UNSUPPORTED.slug, severity, pair.subject, head + message + aside, evidence, confidence, cost, steps)


def _names(a: Card, b: Card) -> str:
    return f"Two {a.words}" if a.name == b.name else f"{a.words} and {b.words}"


def _other(word: str, vm: bool) -> str:
    if word == "DR":
        return " A registry key of the nvidia module switched it off."
    if vm:
        return " In a virtual machine the hypervisor decides over it."
    if word == "TNS":
        return " The two hang from different I/O hubs of an older Intel host."
    return ""


def _nvlink_steps(word: str) -> tuple[Step, ...]:
    if word == "DR":
        return _regkey_steps()
    return (
        Step("See whether the links are up and the fabric is set up", "nvidia-smi nvlink -s; nvidia-smi -q | grep -A 3 Fabric"),
        Step("With NVSwitches, see that the Fabric Manager runs", "systemctl status nvidia-fabricmanager", verify="nvidia-smi topo -p2p r"),
    )


def _none_steps() -> tuple[Step, ...]:
    return (
        Step(
            "Nothing to repair. NCCL uses shared memory by itself; give containers enough of it",
            "df -h /dev/shm",
            verify="nvidia-smi topo -p2p r",
        ),
    )


def _regkey_steps() -> tuple[Step, ...]:
    return (
        Step("Find the key: look for P2P in the module's options", "grep -rn -i RegistryDwords /etc/modprobe.d /proc/driver/nvidia/params"),
        Step(
            "Remove it, then load the module anew when nothing uses a GPU, or reboot",
            "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia_peermem nvidia; sudo modprobe nvidia",
            "disruptive",
            "nvidia-smi topo -p2p r",
        ),
    )


def _other_steps(word: str, vm: bool) -> tuple[Step, ...]:
    if word == "DR":
        return _regkey_steps()
    look = Step("See both answers and the path", "nvidia-smi topo -m; nvidia-smi topo -p2p r; nvidia-smi topo -p2p w")
    if vm:
        return (look, Step("Ask whoever runs the hypervisor whether peer to peer is meant to work on this machine type"))
    return (
        look,
        Step(
            "Look for GPUs below a common PCIe switch, or on the same socket: there the driver grants it on more boards",
            "gpudoctor facts",
            verify="nvidia-smi topo -p2p r",
        ),
    )
