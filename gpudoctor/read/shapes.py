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

    def places(self, chunk: bytes, spans: list[tuple[int, int]]) -> Iterator[int]:
        """One place for each telling line within the spans."""
        if self._pause:
            self._pause -= 1
            yield from self._searched(chunk, spans)
            return
        shapes = chunk.translate(_EQUAL[0]).split(b"\n")
        new = set(shapes) - self._dull
        if not new:
            return
        if len(new) * _TOO_NEW > len(shapes) + 4096:
            self._pause = _PAUSE
            yield from self._searched(chunk, spans)
            return
        samples = dict(zip(shapes, chunk.split(b"\n"), strict=True))
        told = frozenset(shape for shape in new if not self._is_dull(shape, samples[shape]))
        if len(self._dull) > _SHAPES:
            self._dull.clear()
        if told:
            at = 0
            begins = []
            for shape in shapes:
                if shape in told:
                    begins.append(at)
                at += len(shape) + 1
            yield from self._within(chunk, begins, spans)

    def _is_dull(self, shape: bytes, line: bytes) -> bool:
        """No line of this shape can match: not as it stands, nor with any other digit all over. NCCL's own are read elsewhere."""
        search = self.telling.search
        if b" NCCL INFO " not in shape and (search(line) is not None or any(search(shape.translate(t)) is not None for t in _EQUAL)):
            return False
        self._dull.add(shape)
        return True

    def _within(self, chunk: bytes, begins: list[int], spans: list[tuple[int, int]]) -> Iterator[int]:
        where = iter(spans)
        low, high = next(where, (0, 0))
        for begin in begins:
            while begin >= high:
                low, high = next(where, (len(chunk) + 1, len(chunk) + 2))
            end = chunk.find(b"\n", begin)
            if begin >= low:
                found = self.telling.search(chunk, begin, end if end >= 0 else len(chunk))
                if found is not None:
                    yield found.start()

    def _searched(self, chunk: bytes, spans: list[tuple[int, int]]) -> Iterator[int]:
        for at, end in spans:
            while at < end:
                found = self.telling.search(chunk, at, end)
                if found is None:
                    break
                yield found.start()
                at = chunk.find(b"\n", found.end(), end) + 1 or end
