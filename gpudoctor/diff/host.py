"""The host around the GPUs: versions, settings, limits, NUMA, IOMMU, what is granted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpudoctor.diff.model import BETTER, NODES, OTHER, TIME, WORSE, Notes, spots
from gpudoctor.facts.base import Entry
from gpudoctor.facts.gpu import Driver
from gpudoctor.facts.system import (
    Aspm,
    Cpu,
    FabricManager,
    Grant,
    Iommu,
    Limits,
    Modules,
    Numa,
    OwnAffinity,
    Platform,
    Settings,
    Shm,
    Software,
)
from gpudoctor.model import ERROR, NOTE, WARNING, Evidence


class Field(NamedTuple):
    """One value of a fact that has one entry."""

    name: str
    words: str
    kind: str
    up: str = OTHER  # what growth, or no -> yes, means
    worse: str = WARNING
    bytes: bool = False


# What is not here changes by itself (free memory, uptime) or is known from the others.
FIELDS: dict[type[Any], tuple[Field, ...]] = {
    Driver: (
        Field("version", "driver", "driver"),
        Field("module_version", "kernel module of the driver", "driver-module"),
        Field("cuda_version", "newest CUDA that the driver serves", "cuda"),
        Field("open_module", "open kernel module", "driver-module"),
    ),
    Platform: (
        Field("kernel", "kernel", "kernel"),
        Field("vm", "in a virtual machine", "platform"),
        Field("hypervisor", "hypervisor", "platform"),
        Field("container", "container", "platform"),
        Field("wsl", "in WSL", "platform"),
    ),
    Cpu: (Field("model_name", "processor", "cpu"), Field("sockets", "sockets", "cpu"), Field("online", "CPUs online", "cpu")),
    OwnAffinity: (Field("cpus", "CPUs that this process may use", "affinity"), Field("mems", "memory nodes that this process may use", "affinity")),
    Shm: (
        Field("size_bytes", "/dev/shm", "shm", BETTER, bytes=True),
        Field("writable", "/dev/shm writable", "shm", BETTER, ERROR),
        Field("mounted", "/dev/shm is a mount", "shm", BETTER),
        Field("noexec", "/dev/shm noexec", "shm"),
    ),
    Limits: (
        Field("memlock_unlimited", "locked memory unlimited", "memlock", BETTER),
        Field("memlock_bytes", "locked-memory limit", "memlock", BETTER, bytes=True),
        Field("stack_unlimited", "stack unlimited", "memlock"),
    ),
    Iommu: (Field("mode", "IOMMU", "iommu"), Field("translating", "IOMMU translates", "iommu", WORSE)),
    FabricManager: (
        Field("active", "Fabric Manager running", "fabric-manager", BETTER, ERROR),
        Field("installed", "Fabric Manager installed", "fabric-manager", BETTER, ERROR),
        Field("version", "Fabric Manager", "fabric-manager"),
        Field("switches", "NVSwitches", "fabric-manager", BETTER, ERROR),
    ),
    Grant: (
        Field("cuda_visible", "CUDA_VISIBLE_DEVICES", "grant"),
        Field("nvidia_visible", "NVIDIA_VISIBLE_DEVICES", "grant"),
        Field("slurm_gpus", "GPUs that Slurm granted", "grant"),
        Field("device_nodes", "GPU device nodes", "grant"),
        Field("unopenable", "GPU device nodes that may not be opened", "grant"),
    ),
}  # fmt: skip
# An entry's None is an answer: nobody limits it, or it is not there.
_NONE = {"cuda_visible": "not set", "nvidia_visible": "not set", "slurm_gpus": "none", "container": "none", "hypervisor": "none"}
# Variables that tell a process who it is: another process has others.
_WHO = re.compile(
    r"(?:RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|NCCL_HOSTID|NCCL_COMM_ID|NCCL_DEBUG_FILE|GROUP_\w+|ROLE_\w+|LOCAL_WORLD_SIZE"
    r"|(?:SLURM|PMI|PMIX|OMPI_COMM_WORLD|TORCHELASTIC)_\w+|GPUDOCTOR_\w+)$"
)  # fmt: skip

_PLACE = re.compile(r"(?:BOOT_IMAGE|root|rootflags|initrd|resume|ip|nfsroot|hostname|console|crashkernel|systemd\.machine_id|rd\.[\w.]+)=|(?:ro|rw|quiet|splash|--)$")


def single(kind: type[Any], a: Any, b: Any, notes: Notes) -> None:
    """A fact of one entry, field by field."""
    for field in FIELDS[kind]:
        _field(field, a.entry, b.entry, notes)


def _field(field: Field, one: Entry, other: Entry, notes: Notes) -> None:
    before, after = getattr(one, field.name), getattr(other, field.name)
    if field.name in _NONE:
        before, after = (_NONE[field.name] if v is None else v for v in (before, after))
    if field.name == "memlock_bytes" and any(getattr(e, "memlock_unlimited", None) for e in (one, other)):
        return  # said by that field
    if not notes.both(f"the {field.words}", "", before, after) or before == after:
        return
    numbers = isinstance(before, (int, float)) and isinstance(after, (int, float))
    up = bool(numbers and after > before)
    direction = field.up if up else {WORSE: BETTER, BETTER: WORSE}.get(field.up, OTHER) if numbers else OTHER
    shown = [_shown(v, field) for v in (before, after)]
    notes.change(
        field.kind, "host", f"{field.words}: {notes.turn(*shown)}", before=shown[0], after=shown[1], direction=direction,
        severity=field.worse if direction == WORSE else NOTE, evidence=spots(field.name, one, other),
    )  # fmt: skip


def _shown(value: object, field: Field) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and field.bytes:
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size:
                return f"{value / size:.4g} {unit}"
        return f"{value} B"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "empty"


def settings(a: Settings, b: Settings, notes: Notes) -> None:
    """NCCL's variables, each where it was set."""
    ours, theirs = ({(s.name, s.scope): s for s in side} for side in (a, b))
    for key in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(key), theirs.get(key)
        if one is not None and other is not None and one.value == other.value:
            continue
        name, scope = key
        where = "" if scope == "environment" else f" in {scope}"
        if other is None:
            words = f"{name}={one.value}{where} {'is no longer set' if notes.mode == TIME else 'is set on A only'}" if one else ""
        elif one is None:
            words = f"{name}={other.value}{where} {'was set' if notes.mode == TIME else 'is set on B only'}"
        else:
            words = f"{name}{where}: {notes.turn(one.value, other.value)}"
        if _WHO.match(name) or notes.mode == NODES and name.startswith("NVIDIA_"):
            notes.vary("setting", "host", words)
            continue
        notes.change(
            "setting", "host", words, before=one.value if one else None, after=other.value if other else None,
            about=(f"setting:{name}",), evidence=spots("value", one, other),
        )  # fmt: skip


def policy(a: Aspm, b: Aspm, notes: Notes) -> None:
    """The kernel's ASPM policy."""
    if a.policy != b.policy:
        notes.change(
            "aspm", "host", f"the kernel's ASPM policy: {notes.turn(a.policy, b.policy)}", before=a.policy, after=b.policy,
            evidence=_from(a.origin, b.origin),
        )  # fmt: skip


def modules(a: Modules, b: Modules, notes: Notes) -> None:
    """Kernel modules that came or went. A list that is not whole proves no absence."""
    for name in sorted(a.loaded.keys() | b.loaded.keys()):
        one, other = a.loaded.get(name), b.loaded.get(name)
        if one is None or other is None:
            if not (a if one is None else b).complete:
                notes.only("the kernel module", "B" if one is None else "A", name)
                continue
            words = ("no longer loaded", "loaded now") if notes.mode == TIME else ("loaded on A only", "loaded on B only")
            notes.change(
                "module", "host", f"kernel module {name} is {words[one is None]}",
                direction=BETTER if one is None else WORSE, before=None if one is None else "loaded", after=None if other is None else "loaded",
                evidence=_from(a.origin, b.origin),
            )  # fmt: skip
        elif one and other and one != other:
            kind = "driver-module" if name.startswith("nvidia") else "module"
            notes.change(kind, "host", f"kernel module {name}: {notes.turn(one, other)}", before=one, after=other, evidence=_from(a.origin, b.origin))


def software(a: Software, b: Software, notes: Notes) -> None:
    """Versions of installed pieces."""
    ours, theirs = a.versions, b.versions
    for name in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(name), theirs.get(name)
        if one != other:
            notes.change(
                "software", "host", f"{_called(name)}: {notes.turn(one or 'not found', other or 'not found')}", before=one, after=other,
                evidence=_from(a.origin, b.origin),
            )  # fmt: skip


def _called(name: str) -> str:
    return {"nccl": "NCCL", "torch": "PyTorch", "cudnn": "cuDNN"}.get(name, name)


def numa(a: Numa, b: Numa, notes: Notes) -> None:
    """The CPUs of each node."""
    ours: Mapping[int, Any] = {n.id: n for n in a}
    theirs: Mapping[int, Any] = {n.id: n for n in b}
    for node in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(node), theirs.get(node)
        before, after = (None if n is None else f"CPUs {n.cpus or 'none'}" for n in (one, other))
        if one is not None and other is not None and (one.cpus is None or other.cpus is None):
            notes.both("the CPUs of NUMA nodes", str(node), one.cpus, other.cpus)
        elif before != after:
            notes.change(
                "numa", "host", f"NUMA node {node}: {notes.turn(before or 'not there', after or 'not there')}", before=before, after=after,
                severity=WARNING, evidence=spots("cpus", one, other),
            )  # fmt: skip


def _from(a: Evidence | None, b: Evidence | None) -> tuple[tuple[str, Evidence], ...]:
    return tuple((side, spot) for side, spot in (("A", a), ("B", b)) if spot is not None)


def cmdline(a: Platform, b: Platform, notes: Notes) -> None:
    """Word by word: what names a disk, an address or the kernel's own file is another's on another host, and follows an update."""
    one, other = a.entry.cmdline, b.entry.cmdline
    if not notes.both("the kernel command line", "", one, other):
        return
    before, after = ([w for w in str(line).split() if not _PLACE.match(w)] for line in (one, other))
    gone, new = (tuple(dict.fromkeys(w for w in x if w not in y)) for x, y in ((before, after), (after, before)))
    said = [f"{', '.join(words)} {verb}" for words, verb in zip((new, gone), ("was added", "was removed") if notes.mode == TIME else ("on B only", "on A only"), strict=True) if words]
    if said:
        notes.change(
            "cmdline", "host", f"kernel command line: {'; '.join(said)}", before=" ".join(gone) or None, after=" ".join(new) or None,
            evidence=spots("cmdline", a.entry, b.entry),
        )  # fmt: skip


def rebooted(a: Platform, b: Platform, notes: Notes) -> None:
    """A host that was started in between: said, and no fault."""
    before, after = a.entry.uptime_s, b.entry.uptime_s
    if notes.mode == TIME and before is not None and after is not None and after < before:
        notes.vary("reboot", "host", f"up for {after / 3600:.1f} h, before it was {before / 3600:.1f} h: the host was started anew")
