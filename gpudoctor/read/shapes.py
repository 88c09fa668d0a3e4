"""Passing over text that repeats itself: a log's lines differ mostly in their numbers.

Lines are compared without their digits. A shape that was searched once, and can hold nothing that any format begins with, is
not searched again. Searching is what costs: an expression of hundreds of words runs at a tenth of the speed at which lines can
be told apart. Lines of a shape that can hold something (`checkpoint 12 saved`: `int 12` is how a row of a table goes on) are
compared again with every digit made equal. NCCL's own lines are read elsewhere (gpudoctor.read.nccl_cut); here it is only told
that there are some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpudoctor.read.nccl_line import INFO, MARK, is_own

_SHAPES = 20_000  # remembered at most; then all are forgotten
_TOO_NEW = 8  # one line in so many is of a new shape: a text that does not repeat itself, so it is searched as it is
FIRST = 1 << 17  # bytes that are searched as they are: less than it costs to make what tells shapes apart
_PAUSE = 32  # chunks, after which it is tried again
_DIGITS = b"0123456789"
_EQUAL = [bytes.maketrans(_DIGITS, b"%d" % digit * 10) for digit in range(10)]


class Looked(NamedTuple):
    lines: int  # that end in the text
    places: list[int]  # one for each telling line
    named: bool  # NCCL's name stands in some line that is not of its level INFO


def _always(line: bytes, at: int) -> bool:
    return True


class Shapes:
    """Finds the lines in a text of whole lines that an expression matches.

    bare: matches what telling matches when the digits are taken out of it (gpudoctor.read.digitless), and may match more.
    may_begin: of a line that matches, whether it matters (gpudoctor.read.alive).
    """

    def __init__(self, telling: re.Pattern[bytes], bare: re.Pattern[bytes], may_begin: Callable[[bytes, int], bool] = _always) -> None:
        self.telling = telling
        self._may_begin = may_begin
        self._bare = bare
        self._dull: set[bytes] = set()  # without digits
        self._dull_numbered: set[bytes] = set()  # with every digit 0
        self._pause = 0
        self._begun = 0  # bytes

    @property
    def dull(self) -> tuple[set[bytes], set[bytes]]:
        """Shapes in which nothing can begin: without digits, and with every digit 0."""
        return self._dull, self._dull_numbered

    def look(self, text: bytes, of: int = 0) -> Looked:
        """of: the lines of which these are left, where those of a dull shape were passed over before."""
        if self._pause or self._begun < FIRST:
            self._pause = max(0, self._pause - 1)
            self._begun += len(text)
            return Looked(text.count(b"\n"), self._searched(text), text.count(MARK) > text.count(INFO))
        letters = text.translate(None, _DIGITS)
        if letters.count(INFO) != text.count(INFO):  # a digit stood within the words by which NCCL's lines are told
            return Looked(text.count(b"\n"), self._searched(text), True)
        shapes = letters.split(b"\n")
        lines = len(shapes) - 1
        new = set(shapes) - self._dull
        if not new:
            return Looked(lines, [], False)
        if len(self._dull) > _SHAPES:
            self._dull.clear()
        named = any(MARK in shape and INFO not in shape for shape in new)
        if len(new) * _TOO_NEW > max(lines, of) + 4096:
            self._pause = _PAUSE
            return Looked(lines, self._searched(text), named)
        telling = frozenset(shape for shape in new if not self._is_dull(shape))
        return Looked(lines, list(self._within(text, telling)) if telling else [], named)

    def pass_over(self, line: bytes) -> None:
        """As if no line matched that differs from this one in digits only."""
        shape = line.translate(_EQUAL[0])
        self._dull_numbered.update((shape, shape + b"\r"))

    def is_passed_over(self, line: bytes) -> bool:
        return line.translate(_EQUAL[0]) in self._dull_numbered

    def _is_dull(self, shape: bytes) -> bool:
        """No line of this shape can match."""
        if INFO in shape and is_own(shape):
            self._dull.add(shape)
            return True
        if self._bare.search(shape) is not None:
            return False
        if MARK not in shape:  # or it would be passed over where it comes again
            self._dull.add(shape)
        return True

    def _within(self, text: bytes, telling: frozenset[bytes]) -> Iterator[int]:
        """Places in lines of these shapes."""
        shapes = text.translate(_EQUAL[0]).split(b"\n")
        new = set(shapes) - self._dull_numbered
        if len(self._dull_numbered) > _SHAPES:
            self._dull_numbered.clear()
        doubtful = [shape for shape in new if shape.translate(None, _DIGITS) in telling]
        samples = dict(zip(shapes, text.split(b"\n"), strict=True)) if doubtful else {}
        found = {shape for shape in doubtful if self._may_match(shape, samples[shape])}
        self._dull_numbered |= new - found
        at = 0
        for shape in shapes if found else ():
            if shape in found:
                match = self.telling.search(text, at, at + len(shape))
                if match is not None:
                    yield match.start()
            at += len(shape) + 1

    def _may_match(self, shape: bytes, line: bytes) -> bool:
        """As it stands, or with some other digit all over."""
        search = self.telling.search
        if is_own(shape):
            return False
        return search(line) is not None or any(search(shape.translate(digits)) is not None for digits in _EQUAL)

    def _searched(self, text: bytes) -> list[int]:
        places = []
        at = 0
        while (found := self.telling.search(text, at)) is not None:
            end = text.find(b"\n", found.end())
            at = end + 1 or len(text)
            begin = text.rfind(b"\n", 0, found.start()) + 1
            line = text[begin : end if end >= 0 else at]
            if not is_own(line) and not self.is_passed_over(line) and self._may_begin(line, found.start() - begin):
                places.append(found.start())
        return places
