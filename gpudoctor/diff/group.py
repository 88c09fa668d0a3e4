"""One cause, one block: which change explains which, and what matters first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from gpudoctor.correlate.causes import ENDS_A_RUN
from gpudoctor.diff.match import Seats
from gpudoctor.diff.model import BETTER, WORSE, Change
from gpudoctor.model import Diagnosis, severity_rank
from gpudoctor.record import replace


class Explains(NamedTuple):
    """A kind of change, the kinds and slugs it accounts for, and how near they must be."""

    cause: str
    kinds: tuple[str, ...]
    slugs: tuple[str, ...]
    scope: Literal["host", "near"]


_PATHS = ("no-nvlink-path", "path-phb", "path-node", "path-sys")
# First come, first served: what stands higher is the deeper cause.
TABLE: tuple[Explains, ...] = (
    Explains("gpu-gone", ("gpu-index", "grant"), ("numa-unknown", "gpu-not-visible", "xid"), "host"),
    Explains("gpu-gone", ("xid", "gpu-error", "pair-path", "nvlinks", "nvlink"), ("gpu-missing", "nvlink-down"), "near"),
    Explains("gpu-new", ("gpu-index", "grant"), ("gpu-not-visible",), "host"),
    Explains("gpu-card", ("pcie-limit", "memory", "bar1", "power", "pcie-link", "p2p"), ("small-bar", "slot-speed", "slot-width"), "near"),
    Explains("gpu-moved", ("numa", "pcie-place"), ("numa-mismatch", "numa-unknown", "slot-width", "slot-speed", "chipset-slot"), "near"),
    Explains("mig", ("pair-path", "p2p"), ("mig", "p2p-unsupported", *_PATHS), "near"),
    Explains("fabric-manager", ("fabric", "nvlinks", "nvlink", "pair-path", "p2p"), ("fabric", "nvlink-down", "p2p-unsupported", *_PATHS), "host"),
    Explains("fabric", ("nvlinks", "nvlink", "pair-path", "p2p"), ("fabric", "nvlink-down", "p2p-unsupported", *_PATHS), "near"),
    # Where one GPU lost all of its links, those of its peers that led to it are dark too.
    Explains("nvlinks", ("nvlink",), (), "host"),
    Explains("nvlinks", ("pair-path", "p2p", "nvlink-errors", "xid"), ("nvlink-down", "nvlink-errors", "p2p-unsupported", *_PATHS), "near"),
    Explains("nvlink", ("pair-path", "p2p", "nvlink-errors", "xid"), ("nvlink-down", "nvlink-errors", "p2p-unsupported", *_PATHS), "near"),
    Explains("pair-path", (), ("nvlink-down", "p2p-unsupported", *_PATHS), "near"),
    Explains("pcie-place", ("numa", "acs", "aspm", "pcie-link", "pcie-limit", "nic-path"), ("chipset-slot", "slot-width", "slot-speed", "pcie-upstream", *_PATHS), "near"),
    Explains("pcie-link", ("pcie-bridge", "pcie-limit"), ("pcie-width", "pcie-speed", "slot-width", "slot-speed", "pcie-upstream", "host-copy-slow"), "near"),
    Explains("pcie-limit", (), ("slot-width", "slot-speed", "pcie-width", "pcie-speed"), "near"),
    Explains("pcie-bridge", (), ("pcie-upstream",), "host"),
    Explains("acs", (), ("acs",), "near"),
    Explains("aspm", (), ("aspm",), "host"),
    Explains("cmdline", ("iommu", "acs", "aspm"), ("iommu",), "host"),
    Explains("iommu", (), ("iommu",), "host"),
    Explains("kernel", ("cmdline",), (), "host"),
    Explains("driver", ("driver-module", "cuda"), ("version-mismatch", "driver-unavailable"), "host"),
    Explains("driver-module", (), ("version-mismatch",), "host"),
    Explains("software", (), ("version-mismatch",), "host"),
    Explains("setting", ("transport", "nccl"), ("p2p-disabled-env", "nccl-env", "p2p-not-used", "shm", "socket-fallback", "gdr-off"), "host"),
    Explains("module", ("platform",), ("gdr-off",), "host"),
    Explains("shm", (), ("shm",), "host"),
    Explains("memlock", (), ("memlock",), "host"),
    Explains("p2p", (), ("p2p-unsupported", "p2p-not-used"), "near"),
    Explains("xid", (), ("xid",), "near"),
    Explains("memory", ("xid",), ("ecc-remap", "xid"), "near"),
    Explains("nvlink-errors", (), ("nvlink-errors",), "near"),
    Explains("pcie-errors", (), ("pcie-errors",), "near"),
    Explains("nic-state", ("nic-rate",), ("nic-link",), "near"),
    Explains("nic-rate", (), ("nic-link",), "near"),
    Explains("nic-gone", ("nic-path",), ("nic-link", "nic-far"), "host"),
    Explains("nic-path", (), ("nic-far",), "near"),
    Explains("numa", ("affinity",), ("numa-mismatch", "numa-unknown"), "near"),
    Explains("grant", (), ("gpu-not-visible",), "host"),
    Explains("power", (), ("throttled",), "near"),
    Explains("bar1", (), ("small-bar",), "near"),
    Explains("bandwidth", (), ("busbw-low",), "host"),
    Explains("transport", (), ("p2p-not-used", "socket-fallback", "gdr-off"), "host"),
)  # fmt: skip
# Of changes that weigh the same: what breaks, then what slows, then what is only different.
_ORDER = tuple(dict.fromkeys(e.cause for e in TABLE))


def grouped(facts: Iterable[Change], findings: Iterable[Change], seats: Seats, said: Mapping[tuple[str, str], Diagnosis]) -> list[Change]:
    """Every change once: as a block of its own or as the effect of one. said: (slug, subject) -> what explains it."""
    rest = [*facts, *_under_their_causes(findings, said)]
    reach = {id(c): _reach(c, seats) for c in rest}
    held: dict[int, list[Change]] = {}
    taken: set[int] = set()
    for row in TABLE:
        causes = [c for c in rest if c.kind == row.cause]
        fits = [e for e in rest if id(e) not in taken and (e.slug in row.slugs if e.kind == "finding" else e.kind in row.kinds)]
        near: dict[str, list[Change]] = {}
        for effect in fits if causes and row.scope == "near" else ():
            for name in reach[id(effect)]:
                near.setdefault(name, []).append(effect)
        for cause in causes if fits else ():
            by_id = {id(e): e for name in reach[id(cause)] for e in near.get(name, ())}
            for effect in fits if row.scope == "host" else by_id.values():
                if effect is not cause and id(effect) not in taken and id(effect) not in held and _agree(cause, effect):
                    held.setdefault(id(cause), []).append(effect)
                    taken.add(id(effect))
            if row.scope == "host":
                fits = [e for e in fits if id(e) not in taken]
    roots = [_with(c, held, set()) for c in rest if id(c) not in taken]
    return sorted(_alike(roots), key=_weight)


def _agree(cause: Change, effect: Change) -> bool:
    """What gets better does not explain what gets worse."""
    return {cause.direction, effect.direction} != {WORSE, BETTER}


def _reach(change: Change, seats: Seats) -> frozenset[str]:
    """Every name of every GPU that a subject concerns."""
    out = set(change.about)
    for subject in change.about:
        kind, _, rest = subject.partition(":")
        numbers = rest.split("/")[0].split("-") if kind in ("gpu", "pair", "nvlink") else []
        for number in numbers:
            if number.isdigit() and len(number) < 6:
                out.update((f"gpu:{number}", seats.subject(int(number))))
    return frozenset(out - {"host"})


def _under_their_causes(findings: Iterable[Change], said: Mapping[tuple[str, str], Diagnosis]) -> list[Change]:
    """A finding that the diagnosis of its own side explains by another goes under that one."""
    findings = list(findings)
    roots: dict[tuple[str | None, str], Change] = {(f.slug, f.subject): f for f in findings}
    under: dict[tuple[str | None, str], list[Change]] = {}
    for finding in findings:
        diagnosis = said.get((finding.slug or "", finding.subject))
        root = (diagnosis.finding.slug, diagnosis.finding.subject) if diagnosis is not None else None
        if root is not None and root in roots and roots[root] is not finding:
            under.setdefault(root, []).append(finding)
    hidden = {id(f) for found in under.values() for f in found}
    return [replace(f, effects=tuple(under.get((f.slug, f.subject), ()))) for f in findings if id(f) not in hidden]


def _with(change: Change, held: Mapping[int, list[Change]], above: set[int]) -> Change:
    """With its effects, and theirs, in one level. A cause weighs as much as the heaviest of them that goes the same way."""
    effects: list[Change] = list(change.effects)
    for effect in held.get(id(change), ()):
        whole = _with(effect, held, above)
        effects += [replace(whole, effects=()), *whole.effects]
    heavy = [e.severity for e in effects if e.direction == change.direction or change.direction == "changed"]
    severity = min((change.severity, *heavy), key=severity_rank)
    turned = {e.direction for e in effects if e.kind == "finding"} - {"changed"}
    direction = turned.pop() if change.direction == "changed" and len(turned) == 1 else change.direction
    return replace(change, effects=tuple(effects), severity=severity, direction=direction)


def _alike(changes: list[Change]) -> list[Change]:
    """The same change of many GPUs, links or devices reads better once."""
    groups: dict[tuple[str | None, ...], list[Change]] = {}
    for change in changes:
        # Of versions and settings each has a name of its own.
        own = change.message if change.subject == "host" or change.kind in ("gpu-gone", "gpu-new", "gpu-index") else None
        key = (change.kind, change.slug, change.severity, change.direction, change.before, change.after, change.host, own)
        groups.setdefault(key, []).append(change)
    out = []
    for found in groups.values():
        first = found[0]
        rest = [e for c in found[1:] for e in (replace(c, effects=()), *c.effects)]
        out.append(replace(first, effects=(*first.effects, *rest)) if rest else first)
    return out


def _weight(change: Change) -> tuple[object, ...]:
    ends = change.slug in ENDS_A_RUN or change.kind == "gpu-gone"
    order = _ORDER.index(change.kind) if change.kind in _ORDER else len(_ORDER)
    way = (WORSE, "changed", BETTER).index(change.direction)
    return (way == 2, severity_rank(change.severity), way, not ends, order, -change.extent, change.host or "", change.subject, change.message)
