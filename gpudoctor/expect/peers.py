"""Pairs of GPUs held against each other: which of them are slow, and which GPU or link that blames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpudoctor.facts.bandwidth import CPU, STAGED, PairRate
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import Pairs
from gpudoctor.median import median
from gpudoctor.model import Threshold
from gpudoctor.parts import find
from gpudoctor.record import KeyedRecord

Key = tuple[int, int]  # two GPUs, the lower first
ALIKE = 0.5  # of the largest loss: so much every pair of a GPU must lose before the GPU is blamed

_OURS = "our choice: repeated runs of one pair differ by up to 5 %"
WARN = Threshold("slower than the peers' median: warning", 0.15, "share", _OURS, "2026-11")
ON_CPUS = Threshold("slower than the peers' median, of processes on CPUs: warning", 0.50, "share", "our choice: they disturb each other", "2026-11")
FAIL = Threshold("slower than the peers' median: error", 0.30, "share", _OURS, "2026-11")


class Seat(KeyedRecord):
    """One measured pair with what it may be compared by."""

    rate: PairRate
    kind: tuple[str, ...] | None  # what was measured, parts, path; None: path or part not known
    path: str | None
    known: tuple[Gpu | None, Gpu | None]

    @property
    def key(self) -> Key:
        return (min(self.rate.a, self.rate.b), max(self.rate.a, self.rate.b))


class Blame(KeyedRecord):
    """One GPU whose pairs are all slow, or (gpu None) one slow pair."""

    gpu: int | None
    keys: tuple[Key, ...]


def seat_of(rate: PairRate, gpus: Gpus | None, pairs: Pairs | None) -> Seat:
    """Where a measured pair sits: its GPUs, their parts and the path between them, as far as the facts tell."""
    found = tuple(
        (gpus.by_bdf(address) or gpus.by_index(index)) if gpus is not None else None
        for index, address in ((rate.a, rate.a_bdf), (rate.b, rate.b_bdf))
    )
    names = [
        (gpu.device_id or gpu.name if gpu is not None else None) or given
        for gpu, given in zip(found, (rate.a_name, rate.b_name), strict=True)
    ]
    path = rate.path or _path(found, pairs)
    if path is None and pairs is None and rate.what != STAGED and all(
        _meshed(gpu, given) for gpu, given in zip(found, (rate.a_name, rate.b_name), strict=True)
    ):
        path = "NVLink"
    kind = (rate.what, *sorted(n for n in names if n), path) if path is not None and all(names) else None
    return Seat(rate=rate, kind=kind, path=path, known=(found[0], found[1]))


def _meshed(gpu: Gpu | None, name: str | None) -> bool:
    """On SXM boards since A100 every pair has the same links, through switches or directly; a V100 cube mesh mixes."""
    part = find(gpu.device_id if gpu is not None else None, (gpu.name if gpu is not None else None) or name)
    return part is not None and part.required and (part.nvlink_gen or 0) >= 3


def _path(found: tuple[Gpu | None, ...], pairs: Pairs | None) -> str | None:
    indices = [g.index for g in found if g is not None and g.index is not None]
    pair = pairs.of(indices[0], indices[1]) if pairs is not None and len(indices) == 2 else None
    if pair is None or pair.path is None or pair.pcie_only:
        return None
    return f"NV{pair.nvlinks}" if pair.path == "NVL" else pair.path


def kinds_of(seats: Iterable[Seat]) -> list[list[Seat]]:
    """Seats that may be compared with each other; of a pair measured twice the better run."""
    kinds: dict[tuple[str, ...], dict[Key, Seat]] = {}
    for seat in seats:
        if seat.kind is not None:
            same = kinds.setdefault(seat.kind, {})
            if seat.key not in same or seat.rate.gbs > same[seat.key].rate.gbs:
                same[seat.key] = seat
    return [list(same.values()) for same in kinds.values()]


def slow_of(same: list[Seat]) -> dict[Key, float]:
    """The slow ones of a kind, with what the others reach."""
    slow = {}
    for seat in same:
        others = [s.rate.gbs for s in same if s is not seat]
        peers = median(others) if others else 0.0
        bar = ON_CPUS.value if seat.path == CPU else WARN.value
        if peers > 0 and seat.rate.gbs < (1 - bar) * peers:
            slow[seat.key] = peers
    return slow


def blames(same: list[Seat]) -> list[Blame]:
    """Each GPU that has two slow pairs or more, alike in that, and no other; then the pairs that none of these explains."""
    peers = slow_of(same)
    loss = {s.key: 1 - s.rate.gbs / peers[s.key] if s.key in peers else 0.0 for s in same}
    left = [key for key in loss if loss[key]]
    out = []
    while whole := [gpu for gpu in sorted({g for key in left for g in key}) if _meant(gpu, loss, left)]:
        worst = max(whole, key=lambda g: sum(g in key for key in left))
        keys = tuple(k for k in left if worst in k)
        out.append(Blame(gpu=worst, keys=keys))
        left = [k for k in left if k not in keys]
    return [*out, *(Blame(gpu=None, keys=(key,)) for key in left)]


def _meant(gpu: int, loss: Mapping[Key, float], left: Sequence[Key]) -> bool:
    """Is it this GPU, and not one link of it? Then every pair of it loses about as much as its worst."""
    own = [loss[key] for key in loss if gpu in key]
    return sum(gpu in key for key in left) > 1 and min(own) >= ALIKE * max(own)
