"""Two sides to a comparison: family by family, then one cause to one block. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudoctor.diff import cards, events, fabric, findings, host, links
from gpudoctor.diff.group import grouped
from gpudoctor.diff.match import Seats, hosts, mode_of, seats_of
from gpudoctor.diff.model import Comparison, Notes, Side
from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.base import Fact
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Aspm, Modules, Numa, Platform, Settings, Software
from gpudoctor.facts.topology import Nics, NvLinks, Pairs
from gpudoctor.model import Diagnosis, Missing
from gpudoctor.record import replace

# Families that need the GPUs matched first.
_SEATED: dict[type[Fact], Callable[[Seats, Any, Any, Notes], None]] = {
    Gpus: cards.compare,
    Pairs: fabric.pairs,
    NvLinks: fabric.nvlinks,
    Nics: events.nics,
    KernelLog: events.xids,
}
_PLAIN: dict[type[Fact], Callable[[Any, Any, Notes], None]] = {
    Settings: host.settings,
    Modules: host.modules,
    Software: host.software,
    Numa: host.numa,
    Aspm: host.policy,
    Nccl: events.nccl,
    Bandwidth: events.bandwidth,
}
COMPARED: tuple[type[Fact], ...] = (*_SEATED, PciTree, *host.FIELDS, *_PLAIN)


def compare(a: Side, b: Side, mode: str | None = None) -> Comparison:
    """What is different in B. Everything that only one of the two shows is said to be missing, never taken as equal."""
    how, why = mode_of(a, b, mode)
    changes = []
    varying = []
    compared: dict[str, None] = {}
    missing: list[Missing] = []
    same = True
    for one, other in hosts(a, b):
        notes = Notes(how)
        if one is None or other is None:
            name = (one or other).host  # type: ignore[union-attr]
            notes.only("the host", "B" if one is None else "A", name or "unnamed")
            missing += notes.missing()
            same = False
            continue
        if _recording(one) == _recording(other) and a.results == b.results:  # equal to the last reading: nothing can have changed, idle or not
            compared.update(dict.fromkeys(k.label for k in COMPARED if k in one))
            continue
        same = False
        seats = seats_of(one.get(Gpus), other.get(Gpus), how)
        _facts(one, other, seats, notes)
        found = findings.compare(a, b, one.host, other.host, seats, notes)
        said = {**_said(a, one.host), **_said(b, other.host)}
        several = len(a.stores) > 1 or len(b.stores) > 1
        blocks = grouped(notes.changes, found, seats, said)
        changes += [replace(c, host=other.host) for c in blocks] if several else blocks
        varying += notes.varying
        compared.update(dict.fromkeys(notes.compared))
        missing += notes.missing()
    if not compared and not missing:
        missing.append(Missing("the comparison", "nothing that can be compared was read on both sides", needed=True))
    return Comparison(
        mode=how, why_mode=why, changes=tuple(changes), varying=tuple(varying), missing=tuple(dict.fromkeys(missing)),
        compared=tuple(compared), same=same and bool(compared),
    )  # fmt: skip


def _recording(store: FactStore) -> dict[type[Fact], Fact | None]:
    return {kind: store.get(kind) for kind in COMPARED}


def _facts(one: FactStore, other: FactStore, seats: Seats, notes: Notes) -> None:
    for kind in COMPARED:
        ours, theirs = one.get(kind), other.get(kind)
        if ours is None and theirs is None:
            continue
        if ours is None or theirs is None:
            lacking, side = (one, "B") if ours is None else (other, "A")
            notes.only(kind.label, side, why=lacking.missing.get(kind))
            continue
        notes.compared.append(kind.label)
        if kind in _SEATED:
            _SEATED[kind](seats, ours, theirs, notes)
        elif kind in _PLAIN:
            _PLAIN[kind](ours, theirs, notes)
        elif kind in host.FIELDS:
            host.single(kind, ours, theirs, notes)
    links.compare(seats, one.get(PciTree), other.get(PciTree), notes)
    before, after = one.get(Platform), other.get(Platform)
    if before is not None and after is not None:
        host.cmdline(before, after, notes)
        host.rebooted(before, after, notes)


def _said(side: Side, name: str | None) -> dict[tuple[str, str], Diagnosis]:
    """(slug, subject) of everything that a diagnosis explains -> that diagnosis."""
    out: dict[tuple[str, str], Diagnosis] = {}
    for diagnosis in side.diagnoses:
        if diagnosis.finding.host in (None, name):
            for effect in (*diagnosis.explains, *diagnosis.alike):
                out[effect.slug, effect.subject] = diagnosis
    return out


