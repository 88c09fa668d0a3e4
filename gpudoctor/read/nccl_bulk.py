"""NCCL's lines read as they pass, and where each stands, for those that become evidence."""

from __future__ import annotations

from gpudoctor.parsers.nccl_lines import NcclLog
from gpudoctor.read.nccl_cut import CHANNEL, MARK, Cut, joined, uncoloured
from gpudoctor.read.section import Line
from gpudoctor.read.text import clean

_NOTHING: Cut = (b"", b"", -1)


class NcclBulk:
    """Reads what `gpudoctor.read.nccl_cut` found in one chunk after the other."""

    def __init__(self, source: str) -> None:
        self.log = NcclLog(source)
        self._before = 0  # line ends before the chunk
        self._chunk = b""
        self._text: bytes | None = None  # the chunk as its lines were cut out of it; made where somebody asks
        self._counted = (0, 0)  # a place in that text, and the line ends before it
        self._now = _NOTHING  # the line just handed on
        self._alone: tuple[int, str] | None = None  # or, of a line that came by itself, number and text

    def take(self, chunk: bytes, cuts: list[Cut], before: int) -> None:
        """The lines of one chunk, which has so many line ends before it."""
        self._chunk, self._before = chunk, before
        self._text, self._counted = None, (0, 0)
        take, where = self.log.take, self.where
        for self._now in cuts:
            head, message, _ = self._now
            take(head, message, where)
        self._chunk, self._text, self._now = b"", None, _NOTHING

    def line(self, line: Line) -> None:
        """One line that came by itself: the last without its end, or one of a text with other line ends."""
        if "NCCL " in line.text:
            raw = line.text.encode("utf-8", "replace")
            at = raw.find(MARK)
            self._alone = (line.number, line.text.strip()[:2000])
            self.log.take(raw[:at], raw[at + len(MARK) :] + (b"" if line.cut else b"\n"), self.where)
            self._alone = None

    def where(self) -> tuple[int, str]:
        """Number and text of the line just handed on; looked up only where somebody wants it as evidence."""
        if self._alone is not None:
            return self._alone
        text = self._text
        if text is None:
            text = self._text = uncoloured(self._chunk)
        at = self._place(text)
        if at is None:  # its transport was broken, and joined before it was cut out
            text = self._text = joined(text)
            at = self._place(text)
        if at is None:
            return 0, _shown(self._line())
        known, count = self._counted
        if at < known:
            known, count = 0, 0
        count += text.count(b"\n", known, at)
        self._counted = (at, count)
        start = text.rfind(b"\n", 0, at) + 1
        end = text.find(b"\n", at)
        return self._before + count + 1, _shown(text[start : end if end >= 0 else len(text)])

    def _line(self) -> bytes:
        head, message, _ = self._now
        return head + MARK + message.removesuffix(b"\n")

    def _place(self, text: bytes) -> int | None:
        """Where the line stands. Lines are asked for in their order, so one without its channel is sought from the last on."""
        _, message, place = self._now
        if place >= 0:
            return place if text.startswith(message, place + len(MARK)) else None
        head, channel, tail = self._line().partition(CHANNEL)
        wanted = head + channel
        for begin in (self._counted[0], 0):
            at = text.find(wanted, begin)
            for _ in range(256):
                if at < 0:
                    break
                end = text.find(b"\n", at)
                if not channel or text.endswith(tail, at, end if end >= 0 else len(text)):
                    return at
                at = text.find(wanted, end) if end >= 0 else -1
        return None


def _shown(raw: bytes) -> str:
    return clean(raw[:2000].decode("utf-8", "replace").strip())
