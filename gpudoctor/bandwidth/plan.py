"""What to measure: sizes, GPUs, pairs. Pure: words of the command line and facts in, a plan out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpudoctor.bandwidth.work import Target
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Grant
from gpudoctor.facts.topology import Pairs

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
# Latency, the rise, and three sizes for the level; 1 GiB is where NCCL's own estimate can be compared.
QUICK = (8, 1 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20, 1 << 30)
FULL = tuple(1 << power for power in range(3, 33))
GLOO = (8, 1 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20)
SHORT = (64 << 20, 256 << 20, 1 << 30)  # of a variation: the level alone
PAIR = (64 << 20, 256 << 20)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_UUID = re.compile(r"^(?:GPU|MIG)-", re.I)
_SIZE = re.compile(r"^(\d+)([KMG]?)(?:i?B?)$", re.I)
MOST_SIZES = 200


class Unusable(Exception):
    """Words that make no plan: wrong usage."""


class NotHere(Exception):
    """GPUs that were asked for are not to be had on this host."""


def size(word: str) -> int:
    """`256M` -> bytes; Unusable for anything else."""
    found = _SIZE.match(word.strip())
    if found is None or not int(found[1]):
        raise Unusable(f"{word!r} is no size: 8, 64K, 256M, 1G")
    return int(found[1]) * _UNITS[found[2].upper()]


def sizes(words: str) -> tuple[int, ...]:
    """`8:1G` (doubling), `8:1G:4` (by a factor), `1M,64M,1G`."""
    if ":" not in words:
        return tuple(sorted({size(word) for word in words.split(",")}))
    parts = words.split(":")
    if len(parts) > 3:
        raise Unusable(f"{words!r}: at most FROM:TO:FACTOR")
    low, high = size(parts[0]), size(parts[1])
    factor = int(parts[2]) if len(parts) == 3 and parts[2].isdigit() else 2 if len(parts) == 2 else 0
    if factor < 2 or low > high:
        raise Unusable(f"{words!r}: FROM must not be above TO, and the factor is a whole number from 2 on")
    out: list[int] = []
    while low <= high and len(out) < MOST_SIZES:
        out.append(low)
        low *= factor
    return tuple(out)


def check(words: str) -> None:
    """Can these be GPUs of some host? Unusable, with what to write instead, before any host is looked at."""
    named = [word.strip() for word in words.split(",") if word.strip()]
    if words == "all" or words.isdigit() and int(words):
        return
    if words.isdigit() or not named:
        raise Unusable(f"--gpus {words}: names no GPU; write how many (2), all, or which: indices or UUIDs with commas (0,3)")
    for word in named:
        if not word.isdigit() and not _UUID.match(word):
            low, dash, high = word.partition("-")
            whole = f"; a range is written out: {','.join(map(str, range(int(low), int(high) + 1)))}" if dash and low.isdigit() and high.isdigit() and int(low) < int(high) <= int(low) + 63 else ""
            raise Unusable(f"--gpus {words}: {word!r} is no index of nvidia-smi and no UUID (nvidia-smi -L lists both){whole}")
    twice = next((word for at, word in enumerate(named) if word.lower() in (w.lower() for w in named[:at])), None)
    if twice is not None:
        raise Unusable(f"--gpus {words}: names GPU {twice} twice")


def targets(words: str, gpus: Gpus, grant: Grant | None) -> tuple[Target, ...]:
    """`2` (the first two), `all`, `0,3` (nvidia-smi's indices), UUIDs or their beginnings. A comma makes a list: `0,` is GPU 0."""
    check(words)
    usable = granted(gpus, grant)
    if words == "all":
        chosen = usable
    elif words.isdigit():
        count = int(words)
        if count > len(usable):
            raise NotHere(_too_few(count, usable, gpus))
        chosen = usable[:count]
    else:
        chosen = [_named(word.strip(), usable, gpus) for word in words.split(",") if word.strip()]
    if len({id(g) for g in chosen}) < len(chosen):
        raise Unusable(f"--gpus {words}: an index and a UUID in it are the same GPU")
    return tuple(
        Target(index=g.index if g.index is not None else at, uuid=g.uuid, bdf=g.bdf, name=g.name)
        for at, g in enumerate(chosen)
    )


def granted(gpus: Gpus, grant: Grant | None) -> list[Gpu]:
    """The GPUs this process may use: a container shows no others, Slurm and CUDA_VISIBLE_DEVICES narrow the choice."""
    listed = [g for g in gpus.listed if g.error is None]
    words = grant.entry.cuda_visible if grant is not None else None
    if words is None:
        return listed
    out: list[Gpu] = []
    for word in (w.strip() for w in words.split(",")):
        found = next((g for g in listed if _is(g, word)), None)
        if found is None:
            break  # CUDA ends the list at the first word that it does not know
        out.append(found)
    return sorted(out, key=lambda g: g.index or 0)


def _is(gpu: Gpu, word: str) -> bool:
    if word.isdigit():
        return gpu.index == int(word)
    return bool(word) and gpu.uuid is not None and gpu.uuid.lower().startswith(word.lower())


def _named(word: str, usable: list[Gpu], gpus: Gpus) -> Gpu:
    found = [g for g in usable if _is(g, word)]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise Unusable(f"--gpus {word}: fits {len(found)} GPUs, write more of the UUID")
    if any(_is(g, word) for g in gpus.listed):
        raise NotHere(f"GPU {word} is not among those granted to this process: CUDA_VISIBLE_DEVICES leaves it {_these(usable)}")
    raise NotHere(f"GPU {word} is not on this host, which has {_these(gpus.listed)}")


def _these(gpus: Sequence[Gpu]) -> str:
    indices = sorted(g.index for g in gpus if g.index is not None)
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"GPU {indices[0]} to {indices[-1]}"
    return f"GPU {' and '.join(map(str, indices))}" if indices else "none"


def _too_few(count: int, usable: list[Gpu], gpus: Gpus) -> str:
    text = f"{count} GPUs were asked for, {len(usable)} {'is' if len(usable) == 1 else 'are'} usable here"
    if len(gpus.listed) > len(usable):
        text += f" (the driver lists {len(gpus.listed)}; CUDA_VISIBLE_DEVICES or an error leaves the others out)"
    return f"{text}: --gpus all takes those there are"


def rounds_of_pairs(chosen: tuple[Target, ...], pairs: Pairs | None) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Every pair of ranks once, in rounds."""
    every = [(low, high) for low in range(len(chosen)) for high in range(low + 1, len(chosen))]
    return rounds(every, chosen, pairs)


def rounds(
    some: Sequence[tuple[int, int]], chosen: tuple[Target, ...], pairs: Pairs | None
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """These pairs of ranks, in rounds. Only pairs that share no link are measured together: those joined by NVLink.

    Through a PCIe bridge, a host bridge or the socket link two pairs may take the same way, and each would look slow.
    """
    alone: list[tuple[int, int]] = []
    linked: list[tuple[int, int]] = []
    for low, high in some:
        pair = pairs.of(chosen[low].index, chosen[high].index) if pairs is not None else None
        (linked if pair is not None and pair.path == "NVL" else alone).append((low, high))
    return (*_disjoint(linked), *((pair,) for pair in alone))


def matchings(count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Every pair of so many ranks once, each rank at most once in a matching; neighbours of the ring first."""
    ring = [(at, at + 1) for at in range(0, count - 1, 2)] + [(at, at + 1) for at in range(1, count - 1, 2)]
    ring += [(0, count - 1)] if count > 2 else []
    across = [(low, low + step) for step in range(2, count - 1) for low in range(count - step)]
    return tuple(_disjoint([*ring, *across]))


def _disjoint(pairs: Iterable[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    rounds: list[list[tuple[int, int]]] = []
    for pair in pairs:
        for some in rounds:
            if not any(set(pair) & set(other) for other in some):
                some.append(pair)
                break
        else:
            rounds.append([pair])
    return [tuple(some) for some in rounds]
