"""Linux CPU and node lists (`0-3,8`) to sets and back."""

from __future__ import annotations

import re

_SHAPE = re.compile(r"^\d+(-\d+(:\d+/\d+)?)?(,\d+(-\d+(:\d+/\d+)?)?)*$")
_LIMIT = 1 << 16  # larger than any kernel's NR_CPUS; stops a hostile 0-99999999999


def parse(text: str | None) -> frozenset[int] | None:
    """`0-2,5` -> {0, 1, 2, 5}; None for N/A, an empty text or anything malformed. Strides (`0-7:2/4`) are read too."""
    if text is None or not _SHAPE.match(text.strip()):
        return None
    out: set[int] = set()
    for part in text.strip().split(","):
        span, _, stride = part.partition(":")
        low, _, high = span.partition("-")
        first, last = int(low), int(high or low)
        if last < first or last >= _LIMIT:
            return None
        if stride:
            used, group = (int(n) for n in stride.split("/"))
            if not 0 < used <= group:
                return None
            out.update(n for n in range(first, last + 1) if (n - first) % group < used)
        else:
            out.update(range(first, last + 1))
    return frozenset(out)


def render(cpus: frozenset[int] | set[int]) -> str:
    """{0, 1, 2, 5} -> `0-2,5`."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in spans)


def from_words(words: list[int], bits: int = 64) -> str:
    """NVML's mask words, least significant first -> list text."""
    return render({word * bits + bit for word, value in enumerate(words) for bit in range(bits) if value >> bit & 1})
