"""Passing over text that repeats itself: a log's lines differ mostly in their numbers.

Lines are compared with every digit made equal. A shape that was searched once, and held nothing that any format begins
with, is not searched again. Searching is what costs: an expression of hundreds of words runs at a tenth of the speed at
which lines can be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SHAPES = 20_000  # remembered at most; then all are forgotten
_TOO_NEW = 8  # one line in so many is of a new shape: a text that does not repeat itself, so it is searched as it is
_PAUSE = 32  # chunks, after which it is tried again
_EQUAL = [bytes.maketrans(b"0123456789", digit * 10) for digit in (b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9")]


class Shapes:
    """Finds the places in chunks of whole lines at which an expression matches."""

    def __init__(self, telling: re.Pattern[bytes]) -> None:
        self.telling = telling
        self._dull: set[bytes] = set()
        self._pause = 0

    def places(self, chunk: bytes, spans: list[tuple[int, int]]) -> tuple[int, list[int]]:
        """How many lines end within the spans, and one place for each telling line. Spans are of whole lines."""
        if len(spans) == 1 and spans[0] == (0, len(chunk)):
            return self._told(chunk)
        text = b"".join([chunk[a:b] for a, b in spans])
        lines, places = self._told(text)
        return lines, list(_moved(places, spans)) if places else places

    def _told(self, text: bytes) -> tuple[int, list[int]]:
        if self._pause:
            self._pause -= 1
            return text.count(b"\n"), self._searched(text)
        shapes = text.translate(_EQUAL[0]).split(b"\n")
        lines = len(shapes) - 1
        new = set(shapes) - self._dull
        if not new:
            return lines, []
        if len(new) * _TOO_NEW > lines + 4096:
            self._pause = _PAUSE
            return lines, self._searched(text)
        samples = dict(zip(shapes, text.split(b"\n"), strict=True))
        told = frozenset(shape for shape in new if not self._is_dull(shape, samples[shape]))
        if len(self._dull) > _SHAPES:
            self._dull.clear()
        return lines, list(self._within(text, shapes, told)) if told else []

    def _is_dull(self, shape: bytes, line: bytes) -> bool:
        """No line of this shape can match: not as it stands, nor with any other digit all over. NCCL's own are read elsewhere."""
        search = self.telling.search
        if b" NCCL INFO " not in shape and (search(line) is not None or any(search(shape.translate(t)) is not None for t in _EQUAL)):
            return False
        self._dull.add(shape)
        return True

    def _within(self, text: bytes, shapes: list[bytes], told: frozenset[bytes]) -> Iterator[int]:
        at = 0
        for shape in shapes:
            if shape in told:
                found = self.telling.search(text, at, at + len(shape))
                if found is not None:
                    yield found.start()
            at += len(shape) + 1

    def _searched(self, text: bytes) -> list[int]:
        places = []
        at = 0
        while (found := self.telling.search(text, at)) is not None:
            places.append(found.start())
            at = text.find(b"\n", found.end()) + 1 or len(text)
        return places


def _moved(places: list[int], spans: list[tuple[int, int]]) -> Iterator[int]:
    """Places in the joined spans as places in the whole."""
    rest = iter(spans)
    low, high = next(rest)
    before = 0  # length of the spans before this one
    for place in places:
        while place - before >= high - low:
            before += high - low
            low, high = next(rest)
        yield low + place - before
