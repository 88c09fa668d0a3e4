"""What NCCL chose for calls of which size: algorithm and protocol, from the lines of the subsystem TUNING."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gpudoctor.expect.opinion import amount
from gpudoctor.facts.nccl import Choice, NcclProc

_SHOWN = 6  # collectives in one line


def merged(procs: Iterable[NcclProc]) -> dict[Choice, tuple[int, int]]:
    """The smallest and the largest size of each choice in all processes."""
    out: dict[Choice, tuple[int, int]] = {}
    for proc in procs:
        for key, (low, high) in proc.choices.items():
            known = out.get(key, (low, high))
            out[key] = (min(low, known[0]), max(high, known[1]))
    return out


def rows(procs: Iterable[NcclProc]) -> list[dict[str, Any]] | None:
    """For the JSON."""
    found = merged(procs)
    return [
        {"collective": collective, "algorithm": algorithm, "protocol": protocol, "min_bytes": low, "max_bytes": high}
        for (collective, algorithm, protocol), (low, high) in found.items()
    ] or None


def line(procs: Iterable[NcclProc]) -> str:
    """`all_reduce: LL up to 64 KiB, LL128 up to 1 MiB, Simple above (Ring)`."""
    by_name: dict[str | None, list[tuple[int, int, str, str | None]]] = {}
    for (collective, algorithm, protocol), (low, high) in merged(procs).items():
        by_name.setdefault(collective, []).append((low, high, algorithm, protocol))
    told = [f"{_snake(name)}: {_ranges(sorted(kinds, key=lambda k: k[:2]))}" for name, kinds in by_name.items()]
    if not told:
        return ""
    return "NCCL chose for " + "; ".join(told[:_SHOWN]) + (f"; and for {len(told) - _SHOWN} more (--format json)" if len(told) > _SHOWN else "")


def _ranges(kinds: list[tuple[int, int, str, str | None]]) -> str:
    one = len({algorithm for _, _, algorithm, _ in kinds}) == 1
    names = [protocol or algorithm if one else f"{algorithm} {protocol or ''}".strip() for _, _, algorithm, protocol in kinds]
    apart = len(kinds) > 1 and all(a[1] < b[0] for a, b in zip(kinds, kinds[1:], strict=False))
    parts = []
    for place, (name, (low, high, _, _)) in enumerate(zip(names, kinds, strict=True)):
        if not apart:
            parts.append(f"{name} at {amount(low)}" + (f" to {amount(high)}" if high != low else ""))
        else:
            parts.append(f"{name} above" if place == len(kinds) - 1 else f"{name} up to {amount(high)}")
    return ", ".join(parts) + (f" ({kinds[0][2]})" if one and kinds[0][3] else "")


def _snake(name: str | None) -> str:
    return "any collective" if name is None else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
