"""One row of an nccl-tests table to numbers, and the number of ranks that its two bandwidths tell.

    size  count  type [redop [root]]  time algbw busbw wrong  time algbw busbw wrong  [#iters] [date time]

Before nccl-tests 2.13 redop and root stood there only where they mattered and the fourth figure was the largest deviation
(`error`, as 2e-07; in 2017 and 2018 `res`, with times in milliseconds); since then it is the number of wrong elements, `N/A` where results were not compared. `-I` adds four
columns to each half. Widths vary, so a row is read by its words, held against the header where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil, floor

from gpudoctor.facts.bandwidth import SHARE, TWICE, BandwidthRow
from gpudoctor.read.section import Line

ROW = re.compile(r"^\s*\d+\s+\d+\s+(?:u?int(?:8|32|64)?|char|half|float|double|bfloat16|f8e[45]m[23]|fp8_e[45]m[23])\s+\S")
_NUMBER = re.compile(r"^[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf)$", re.I)
_STAMP = re.compile(r"^(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d(?:\.\d+)?)$")
# Words behind type and redop, for a row whose header is lost -> (has root, words of a half, has #iters). Nine words are
# `root` and two halves: no version prints #iters without root.
_SHAPES = {8: (False, 4, False), 9: (True, 4, False), 10: (True, 4, True), 16: (False, 8, False), 17: (True, 8, False)}


class Layout:
    """Which columns the header promises."""

    def __init__(self, words: list[str]) -> None:
        self.redop = "redop" in words or "op" in words
        self.root = "root" in words
        self.half = 8 if "i_min" in words else 4
        self.iters = "#iters" in words
        self.deviation = "error" in words or "res" in words
        self.unit = 1e3 if "res" in words else 1.0  # microseconds in the unit of time


def header(text: str) -> Layout | None:
    """`#  size  count  type … time algbw busbw #wrong …`"""
    words = text.replace("#", " #").replace("# ", " ").split()
    if ("size" in words[:2] or words[:2] == ["bytes", "N"]) and words.count("algbw") == 2 and words.count("busbw") == 2:
        return Layout(words)
    return None


def read(line: Line, layout: Layout | None) -> BandwidthRow | None:
    """The row, or None where it is not whole or does not fit. Of a cut line only what a later word proves."""
    words = line.text.split()
    rest = words[3:]
    redop = rest.pop(0) if rest and not _NUMBER.match(rest[0]) and rest[0] != "N/A" else None
    if line.cut:
        # The last word may have lost its end; how many words are still to come must be known.
        if layout is None:
            return None
        if rest and not line.text[-1:].isspace():
            rest.pop()
    while rest and _STAMP.match(rest[-1]):
        rest.pop()
    shape = _shape(rest, layout, redop, line.cut)
    if shape is None:
        return None
    root, half, only_in = shape
    figures = rest[1:] if root else rest
    out = [] if only_in else figures[:half]
    inside = figures[:half] if only_in else figures[half : 2 * half]
    if len(out) < 3 and not only_in:
        return None
    # Since 2.13 both redop and root stand in every row.
    new = root and redop is not None
    first, second = _half(out, layout, new), _half(inside, layout, new)
    if first is None or second is None:
        return None
    size = int(words[0])
    unit = layout.unit if layout is not None else 1.0
    if layout is None and not all(_plausible(size, time, rate) for time, rate, *_ in (first, second)):
        return None
    return BandwidthRow(
        size=size,
        type=words[2],
        redop=redop,
        time_out_us=first[0] * unit if first[0] is not None else None,
        algbw_out_gbs=first[1],
        busbw_out_gbs=first[2],
        wrong_out=first[3],
        error_out=first[4],
        time_in_us=second[0] * unit if second[0] is not None else None,
        algbw_in_gbs=second[1],
        busbw_in_gbs=second[2],
        wrong_in=second[3],
        error_in=second[4],
        line=line.number,
    )


def _shape(rest: list[str], layout: Layout | None, redop: str | None, cut: bool) -> tuple[bool, int, bool] | None:
    """(has root, words of a half, only the in-place half)."""
    if layout is None:
        found = _SHAPES.get(len(rest))
        return (found[0], found[1], False) if found is not None else None
    whole = layout.root + 2 * layout.half + layout.iters
    if len(rest) == whole or cut and len(rest) < whole:
        return layout.root, layout.half, False
    if len(rest) == whole - layout.half and not cut:
        return layout.root, layout.half, True
    # An old header with redop, and a column of root that only the rows have, or the reverse: trust the count of words.
    found = _SHAPES.get(len(rest))
    return (found[0], found[1], False) if found is not None and not cut else None


_Half = tuple[float | None, float | None, float | None, int | None, float | None]


def _half(words: list[str], layout: Layout | None, new: bool) -> _Half | None:
    """time, algbw, busbw, wrong, error; None where a word is no number. A half that is not there has no values."""
    values: list[float | None] = []
    for word in words[:4]:
        if word == "N/A":
            values.append(None)
        elif _NUMBER.match(word):
            number = float(word)
            values.append(number if number == number and abs(number) != float("inf") else None)
        else:
            return None
    # A half of which a cut left less than the three figures says nothing.
    time, algbw, busbw = values[:3] if len(values) >= 3 else (None, None, None)
    last = values[3] if len(values) > 3 else None
    deviation = layout.deviation if layout is not None else not new and len(words) > 3 and not words[3].isdigit()
    if last is None:
        return time, algbw, busbw, None, None
    return (time, algbw, busbw, None, last) if deviation else (time, algbw, busbw, int(last), None)


def _plausible(size: int, time_us: float | None, algbw: float | None) -> bool:
    """Is algbw about size / time? Guards rows without header; nccl-tests before 2.9 counted all_gather by (n-1)/n."""
    if time_us is None or algbw is None:
        return True
    if time_us <= 0:
        return size == 0
    expected = size / time_us / 1e3
    return expected < 0.05 and algbw < 0.1 or 0.4 * expected <= algbw + 0.01 and algbw <= 2.5 * expected + 0.01


def ranks(rows: Iterable[BandwidthRow], collective: str | None) -> tuple[int, int] | None:
    """The fewest and the most ranks for which busbw / algbw of these rows fits; None where they do not tell.

    all_reduce has 2(n-1)/n, more than 1 from three ranks on, so a larger ratio can be nothing else. Below 1 all that
    have such a ratio share (n-1)/n. A ratio of 1 is an all_reduce over two, or any broadcast, reduce or sendrecv.
    """
    low, high = 0.0, 2.0
    seen = False
    for row in rows:
        for algbw, busbw in ((row.algbw_out_gbs, row.busbw_out_gbs), (row.algbw_in_gbs, row.busbw_in_gbs)):
            if algbw is None or busbw is None or algbw < 1:
                continue
            seen = True
            low = max(low, (busbw - _rounding(busbw)) / (algbw + _rounding(algbw)))
            high = min(high, (busbw + _rounding(busbw)) / (algbw - _rounding(algbw)))
    if not seen or low > high:
        return None
    if high < 1e-3:
        return 1, 1
    if collective in TWICE or collective is None and low > 1:
        return _between(2 / (2 - low), 2 / (2 - high) if high < 2 else float("inf"))
    if (collective in SHARE or collective is None) and high < 1:
        return _between(1 / (1 - low), 1 / (1 - high))
    return None


def _rounding(value: float) -> float:
    """Half of the last digit printed: two decimals, fewer as numbers grow (getFloatStr with width 6)."""
    return 0.0051 if value < 1000 else 0.051 if value < 10_000 else 0.51


def _between(low: float, high: float) -> tuple[int, int] | None:
    first = max(1, ceil(low - 1e-9))
    last = floor(high + 1e-9) if high < 1e6 else 1_000_000
    return (first, last) if first <= last else None
