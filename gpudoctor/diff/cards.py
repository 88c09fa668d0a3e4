"""The GPUs themselves: there or gone, which card, what state its memory and its modes are in."""

from __future__ import annotations

from typing import NamedTuple

from gpudoctor.diff.fabric import grew
from gpudoctor.diff.match import Seat, Seats
from gpudoctor.diff.model import BETTER, OTHER, TIME, WORSE, Notes, spots
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.model import ERROR, NOTE, WARNING


class Field(NamedTuple):
    """One value of a GPU. up: what it means when it grows or turns from no to yes; sound: the value that is no trouble."""

    name: str
    words: str
    kind: str
    up: str = OTHER
    worse: str = NOTE  # severity of a change for the worse
    unit: str = ""
    sound: str | None = None
    empty: str | None = None  # what None stands for, where it is an answer


_FIELDS = (
    Field("remap_failed", "row remap failure", "memory", WORSE, ERROR),
    Field("remap_pending", "row remap pending", "memory", WORSE, WARNING),
    Field("remap_uncorrectable", "rows remapped after uncorrectable errors", "memory", WORSE, WARNING),
    Field("remap_correctable", "rows remapped after correctable errors", "memory", WORSE, NOTE),
    Field("ecc_uncorrectable_volatile", "uncorrectable ECC errors since the last reset", "memory", WORSE, ERROR),
    Field("ecc_uncorrectable_aggregate", "uncorrectable ECC errors in all", "memory", WORSE, WARNING),
    Field("retired_double", "pages retired after double-bit errors", "memory", WORSE, WARNING),
    Field("retired_single", "pages retired after single-bit errors", "memory", WORSE, NOTE),
    Field("retired_pending", "page retirement pending", "memory", WORSE, WARNING),
    Field("inforom_corrupted", "infoROM corrupted", "memory", WORSE, WARNING),
    Field("fabric_state", "fabric state", "fabric", worse=ERROR, sound="completed"),
    Field("fabric_status", "fabric status", "fabric", worse=ERROR, sound="success"),
    Field("fabric_health", "fabric health", "fabric", worse=WARNING, sound="healthy"),
    Field("error", "the driver's answer", "gpu-error", worse=ERROR, sound="in order", empty="in order"),
    Field("recovery_action", "recovery that the driver asks for", "gpu-error", worse=WARNING, sound="none", empty="none"),
    Field("mig_mode", "MIG", "mig", worse=WARNING, sound="disabled"),
    Field("power_limit_w", "power limit", "power", BETTER, WARNING, " W"),
    Field("bar1_mib", "BAR1", "bar1", BETTER, WARNING, " MiB"),
    Field("fb_mib", "memory", "gpu-card", BETTER, NOTE, " MiB"),
    Field("numa_node", "NUMA node", "numa", worse=WARNING),
    Field("numa_list", "NUMA nodes", "numa", worse=WARNING),
    Field("cpu_affinity", "CPU affinity", "numa"),
    Field("persistence", "persistence mode", "persistence", BETTER),
    Field("virtualization", "virtualization mode", "platform"),
    Field("c2c", "NVLink-C2C", "gpu-card"),
)  # fmt: skip


def compare(seats: Seats, a: Gpus, b: Gpus, notes: Notes) -> None:
    """GPU by GPU: which are gone or new, and what each says of itself now and then."""
    for seat in seats.seats:
        if seat.both is None:
            _alone(seat, a, b, notes)
            continue
        one, other = seat.both
        _which(one, other, notes)
        for field in _FIELDS:
            _field(field, one, other, notes)
        _replays(one, other, notes)


def _alone(seat: Seat, a: Gpus, b: Gpus, notes: Notes) -> None:
    """A GPU that a cut list does not show is not gone."""
    gone = seat.b is None
    gpu, whole = seat.gpu, (b if gone else a).complete
    if not whole:
        notes.lack("the GPU", f"the list of {'B' if gone else 'A'} is not whole", gpu.label)
        return
    name = f" ({gpu.name})" if gpu.name else ""
    words = "is gone" if notes.mode == TIME else "is only in A"
    if not gone:
        words = "is new" if notes.mode == TIME else "is only in B"
    notes.change(
        "gpu-gone" if gone else "gpu-new", gpu.subject, f"{gpu.opening}{name} {words}", direction=WORSE if gone else BETTER,
        severity=ERROR if gone else NOTE, before=gpu.label if gone else None, after=None if gone else gpu.label,
        # A number that A gave means another GPU in B.
        about=() if gone and gpu.bdf else (f"gpu:{gpu.index}",), evidence=spots("bdf", seat.a, seat.b),
    )  # fmt: skip


def _which(one: Gpu, other: Gpu, notes: Notes) -> None:
    about = (f"gpu:{other.index}",)
    named = bool(one.name and other.name and one.name != other.name and not one.name.endswith("...") and not other.name.endswith("..."))
    if named or one.device_id and other.device_id and one.device_id != other.device_id:
        before, after = (g.name if named else g.device_id for g in (one, other))
        notes.change(
            "gpu-card", other.subject, f"{other.opening} is another card: {notes.turn(before, after)}", before=before, after=after, about=about,
            severity=WARNING, evidence=spots("name" if named else "device_id", one, other),
        )  # fmt: skip
    if notes.mode == TIME and one.bdf and other.bdf and one.bdf != other.bdf:
        notes.change(
            "gpu-moved", other.subject, f"GPU{other.index} has another address: {one.bdf} -> {other.bdf}", before=one.bdf,
            after=other.bdf, about=about, evidence=spots("bdf", one, other),
        )  # fmt: skip
    elif one.bdf and other.bdf and one.bdf != other.bdf:
        notes.vary("gpu-address", other.subject, f"GPU{other.index} is at {one.bdf} in A and {other.bdf} in B")
    if one.index is not None and other.index is not None and one.index != other.index:
        words = f"The GPU at {other.bdf} was GPU{one.index}, now GPU{other.index}"
        if notes.mode != TIME:
            words = f"The GPU at {other.bdf} is GPU{one.index} on A and GPU{other.index} on B"
        notes.change(
            "gpu-index", other.subject, words, before=f"GPU{one.index}",
            after=f"GPU{other.index}", about=about, evidence=spots("index", one, other),
        )  # fmt: skip
    real = [g.uuid for g in (one, other) if g.uuid is not None and "00000000-0000-0000-0000-" not in g.uuid]
    if notes.mode == TIME and len(real) == 2 and real[0] != real[1]:
        notes.change(
            "gpu-card", other.subject, f"{other.opening} is another card of the same kind: its UUID changed", before=real[0], after=real[1],
            about=about, evidence=spots("uuid", one, other),
        )  # fmt: skip


def _field(field: Field, one: Gpu, other: Gpu, notes: Notes) -> None:
    before, after = (getattr(g, field.name) for g in (one, other))
    if field.empty is not None:
        before, after = before or field.empty, after or field.empty
    if not notes.both(f"the {field.words}" if not field.words.startswith("the ") else field.words, other.label, before, after):
        return
    if before == after:
        return
    direction = field.up if isinstance(before, (int, float)) and after > before else _opposite(field.up) if isinstance(before, (int, float)) else OTHER
    if field.sound is not None:
        direction = BETTER if after == field.sound else WORSE if before == field.sound else OTHER
    shown = [f"{_word(v)}{field.unit}" for v in (before, after)]
    notes.change(
        field.kind, other.subject, f"{other.opening}: {field.words} {notes.turn(*shown)}", before=shown[0], after=shown[1],
        direction=direction, severity=field.worse if direction == WORSE or field.kind == "numa" and field.name != "cpu_affinity" else NOTE,
        about=(f"gpu:{other.index}",), evidence=spots(field.name, one, other),
    )  # fmt: skip


def _replays(one: Gpu, other: Gpu, notes: Notes) -> None:
    if one.replays is None or other.replays is None or one.replays == other.replays:
        return
    words = f"{other.opening}: PCIe replays {notes.turn(one.replays, other.replays)}"
    low, high = sorted((one.replays, other.replays))
    if grew(low, high) and high >= 100:
        worse = other.replays > one.replays
        notes.change(
            "pcie-errors", other.subject, words, before=str(one.replays), after=str(other.replays),
            direction=WORSE if worse else BETTER, severity=WARNING if worse else NOTE,
            about=(f"gpu:{other.index}",), evidence=spots("replays", one, other),
        )  # fmt: skip
    else:
        notes.vary("counter", other.subject, words)


def _opposite(direction: str) -> str:
    return {WORSE: BETTER, BETTER: WORSE}.get(direction, OTHER)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
