"""A section while it is being filled: which lines it holds, which wait for it to go on, and where JSON ends."""

from __future__ import annotations

import re

from gpudoctor.read.section import Line
from gpudoctor.read.table import Compiled

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Block:
    """Lines of one known output, from where it begins."""

    def __init__(self, how: Compiled, host: str | None, command: str | None) -> None:
        self.how = how
        self.host = host
        self.command = command
        self.lines: list[Line] = []
        self.strange = 0
        self.counted = False  # its label is the number of the line, which grows
        self.pending: list[Line] = []  # blank or strange lines, kept only if the block goes on
        self._depth = 0  # of brackets, in JSON

    def add(self, line: Line) -> None:
        self.lines += self.pending
        self.pending = []
        self.strange = 0
        self.lines.append(line)

    def wait(self, line: Line) -> None:
        self.pending.append(line)

    def goes_on(self, text: str) -> bool:
        """Does the line belong to the block? A fresh start of the same format opens a new block if it says so."""
        how = self.how
        if how.belongs is None or not how.belongs.search(text):
            return False
        return how.format.joins or not (how.first is not None and how.first.search(text))

    def ends(self, text: str) -> bool:
        """Is the line just added the last one of the block?"""
        if self.how.format.balanced:
            if len(self.lines) == 1 and text.lstrip()[:1] not in ("{", "["):
                self._depth = 1  # it begins inside
            bare = _STRING.sub("", text)
            self._depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
            return self._depth <= 0
        return self.how.until is not None and self.how.until.search(text) is not None
