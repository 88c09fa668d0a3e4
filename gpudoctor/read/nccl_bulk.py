"""NCCL's lines read as they pass, and where each stands, for those that become evidence."""

from __future__ import annotations

from gpudoctor.parsers.nccl_lines import NcclLog
from gpudoctor.read.nccl_cut import Cut
from gpudoctor.read.nccl_line import INFO, MARK, uncoloured
from gpudoctor.read.nccl_silent import says_nothing
from gpudoctor.read.section import Line
from gpudoctor.read.sift import Sifted

_SHOWN = 2000  # bytes of a line


class NcclBulk:
    """Reads what `gpudoctor.read.sift` found in one chunk after the other."""

    def __init__(self, source: str) -> None:
        self.log = NcclLog(source)
        self._before = 0  # line ends before the chunk
        self._text = b""  # of the chunk, where the places of its lines are no numbers
        self._counted = (0, 0)  # a place in it, and the line ends before that
        self._now: Cut = (b"", b"", 0)  # the line just handed on

    def take(self, sifted: Sifted, chunk: bytes, before: int) -> None:
        """The lines of one chunk, which has so many line ends before it."""
        self._before = before
        self._text, self._counted = b"" if sifted.numbered else uncoloured(chunk), (0, 0)
        info, other, where = self.log.info, self.log.other, self.where
        for self._now in sifted.nccl:
            head, message, place = self._now
            if place >= 0:
                info(head, message, where)
            else:
                other(head, message, where)
        self._text = b""

    def line(self, line: Line) -> None:
        """One line that came by itself: the last without its end, or one of a text with other line ends."""
        raw = line.text.encode("utf-8", "replace") + (b"" if line.cut else b"\n")
        head, mark, message = raw.partition(MARK)
        if not mark:
            return
        self._before = line.number - 1
        if message.startswith(b"INFO "):
            self._now = (head, message[5:], 0)
            if message[5:].strip() and not says_nothing(message[5:]):
                self.log.info(head, message[5:], self.where)
        else:
            self._now = (head, message, ~0)
            self.log.other(head, message, self.where)

    def where(self) -> tuple[int, bytes]:
        """Number and beginning of the line just handed on; looked up only where somebody wants it as evidence."""
        head, message, place = self._now
        if place >= 0 and not self._text:
            return self._before + place + 1, (head + INFO + message)[:_SHOWN]
        number = at = ~place if place < 0 else place
        if self._text:
            begun, number = self._counted
            if at < begun:
                begun = number = 0
            number += self._text.count(b"\n", begun, at)
            self._counted = (at, number)
        raw = head + (INFO if place >= 0 else MARK) + message
        return self._before + number + 1, raw[:_SHOWN]
