"""Passing over text that repeats itself: a log's lines differ mostly in their numbers.

Lines are compared with every digit made equal. A shape that was searched once, and held nothing that any format begins
with, is not searched again. Searching is what costs: an expression of hundreds of words runs at a tenth of the speed at
which lines can be told apart. NCCL's own lines are read elsewhere (gpudoctor.read.nccl_cut); here it is only told that there
are some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.read.nccl_cut import MARK, is_own

_SHAPES = 20_000  # remembered at most; then all are forgotten
_TOO_NEW = 8  # one line in so many is of a new shape: a text that does not repeat itself, so it is searched as it is
_PAUSE = 32  # chunks, after which it is tried again
_EQUAL = [bytes.maketrans(b"0123456789", digit * 10) for digit in (b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9")]


class Looked(NamedTuple):
    lines: int  # that end in the text
    places: list[int]  # one for each telling line
    named: bool  # NCCL's name stands in some line


class Shapes:
    """Finds the lines in a text of whole lines that an expression matches."""

    def __init__(self, telling: re.Pattern[bytes]) -> None:
        self.telling = telling
        self._dull: set[bytes] = set()
        self._pause = 0

    def look(self, text: bytes) -> Looked:
        if self._pause:
            self._pause -= 1
            return Looked(text.count(b"\n"), self._searched(text), MARK in text)
        shapes = text.translate(_EQUAL[0]).split(b"\n")
        lines = len(shapes) - 1
        new = set(shapes) - self._dull
        if not new:
            return Looked(lines, [], False)
        named = any(MARK in shape for shape in new)
        if len(new) * _TOO_NEW > lines + 4096:
            self._pause = _PAUSE
            return Looked(lines, self._searched(text), named)
        samples = dict(zip(shapes, text.split(b"\n"), strict=True))
        told = frozenset(shape for shape in new if not self._is_dull(shape, samples[shape]))
        if len(self._dull) > _SHAPES:
            self._dull.clear()
        return Looked(lines, list(self._within(text, shapes, told)) if told else [], named)

    def _is_dull(self, shape: bytes, line: bytes) -> bool:
        """No line of this shape can match: not as it stands, nor with any other digit all over."""
        named = MARK in shape
        if named and is_own(shape):
            return True
        search = self.telling.search
        if search(line) is not None or any(search(shape.translate(t)) is not None for t in _EQUAL):
            return False
        if not named:  # or it would be passed over where it comes again
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
            end = text.find(b"\n", found.end()) + 1 or len(text)
            if not is_own(text[text.rfind(b"\n", 0, found.start()) + 1 : end]):
                places.append(found.start())
            at = end
        return places
