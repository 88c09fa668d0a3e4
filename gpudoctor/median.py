"""The median, without the library's module of statistics: that imports fractions, decimal and random, 5 ms of every start."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """The middle of the sorted values, of an even number the mean of the two. There must be one."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
