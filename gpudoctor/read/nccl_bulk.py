"""NCCL's lines out of a stream of bytes, fast: a job may write gigabytes of which the same few facts are repeated.

Works on chunks of whole lines. Where few lines are NCCL's, each is cut out where `NCCL ` stands. Where most are
(the start of a large job), the channel number is taken out of every line first: 24 lines that say the same of 24
channels become one. What the lines mean is `gpudoctor.parsers.nccl_lines`' matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpudoctor.parsers.nccl_lines import SILENT, NcclLog
from gpudoctor.read.section import Line
from gpudoctor.read.text import clean

_DENSE = 1500  # NCCL lines in a chunk of about a megabyte, above which equal lines are first made one
_MARK = b"NCCL "
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_CHANNEL = b" Channel "
_INIT = b" - Init "
# A line that a terminal broke within its transport: `via SHM` and `/direct/direct` below it.
_SHORT_LINE = re.compile(rb"\n[\w/()]{1,30}\r?\n")
_FOLDED = re.compile(rb"( via (?:P2P|SHM|NET)[^\n]{0,40})\n(?!\d+\r?\n)([\w/()]{1,30})(\r?)\n")
_LEVELS = (b"INFO ", b"WARN ", b"ATTN ", b"DIAG ", b"CALL ", b"TRAC", b"ABOR", b"versi")


def is_nccl(text: str) -> bool:
    """A line that NCCL wrote itself, so that no other format need look at it."""
    at = text.find("NCCL ")
    return at >= 0 and text.startswith(("INFO ", "WARN ", "ATTN ", "DIAG ", "CALL ", "TRACE ", "ABORT "), at + 5)


class NcclBulk:
    """Takes NCCL's lines out of chunks. `newlines` is how many line ends it has seen."""

    def __init__(self, source: str, look: Callable[[bytes], bool]) -> None:
        """look: is there, in these lines that are not NCCL's, one that another format knows?"""
        self.look = look
        self.log = NcclLog(source)
        self.newlines = 0
        self._chunk = b""
        self._counted = (0, 0)  # a place in the chunk, and the line ends before it
        self._at: int | None = None  # of the line just handed on: its place, where it is known
        self._line = b""  # or the line itself
        self._alone: tuple[int, str] | None = None  # or, of a line that came by itself, number and text

    def take(self, chunk: bytes) -> list[tuple[int, int]]:
        """Read one chunk of whole lines; returns the stretches of it that are not NCCL's."""
        if b"\x1b" in chunk and _MARK in chunk:
            plain = _ESCAPES.sub(b"", chunk)
            self._read(plain)
            spans = [(0, len(chunk))]  # places in the plain text are not places in the chunk
        else:
            spans = self._read(chunk)
        self.newlines += chunk.count(b"\n")
        self._chunk = b""
        return spans

    def line(self, line: Line) -> None:
        """One line that came by itself: the last without its end, or one of a text with other line ends."""
        at = line.text.find("NCCL ")
        if at >= 0:
            raw = line.text.encode("utf-8", "replace")
            at = raw.find(_MARK)
            self._alone = (line.number, line.text.strip()[:2000])
            self.log.take(raw[:at], raw[at + 5 :] + (b"" if line.cut else b"\n"), self.where)
            self._alone = None

    def _read(self, chunk: bytes) -> list[tuple[int, int]]:
        if _SHORT_LINE.search(chunk) is not None and _MARK in chunk:
            chunk = _FOLDED.sub(rb"\1\2\3\n\n", chunk)  # as many lines and bytes as before
        parts = chunk.split(_MARK)
        self._chunk = chunk
        self._counted = (0, 0)
        if len(parts) == 1:
            return [(0, len(chunk))]
        if len(parts) > _DENSE:
            return self._dense(chunk)
        return self._sparse(parts)

    def _sparse(self, parts: list[bytes]) -> list[tuple[int, int]]:
        """A few NCCL lines among many others: parts are the text between the marks."""
        spans = []
        done = 0  # where the text not yet looked at begins
        at = len(parts[0])  # where the mark stands
        last = len(parts) - 1
        place = 1
        take, where = self.log.take, self.where
        while place <= last:
            before, message = parts[place - 1], parts[place]
            length = len(message)
            cut = before.rfind(b"\n") + 1
            end = message.find(b"\n") + 1
            while not end and place < last:  # a second mark in the same line
                place += 1
                message += _MARK + parts[place]
                length += len(_MARK) + len(parts[place])
                end = message.find(b"\n") + 1
            self._at = at
            if take(before[cut:], message[:end], where):
                start = at - len(before) + cut
                if start > done:
                    spans.append((done, start))
                done = at + len(_MARK) + (end or length)
            at += len(_MARK) + length
            place += 1
        if done < len(self._chunk):
            spans.append((done, len(self._chunk)))
        return spans

    def _dense(self, chunk: bytes) -> list[tuple[int, int]]:
        """Mostly NCCL lines: one of each, in the order of their first appearance."""
        rest: list[bytes] = []
        for segment in self._segments(chunk):
            parts = segment.split(_CHANNEL)
            # `00/0 : 0[0] -> 1[1] via …` without its number, of which every width ends before the first rank.
            lines = dict.fromkeys(_CHANNEL.join([parts[0], *[p[4:] for p in parts[1:]]]).split(b"\n"))
            take, where = self.log.take, self.where
            self._at = None
            for line in lines:
                before, mark, message = line.partition(_MARK)
                if message[:10] in SILENT:
                    continue
                if mark:
                    self._line = line
                    take(before, message + b"\n", where)
                elif line:
                    rest.append(line)
            for before, message in self._rings(parts):
                take(before, message, where)
        return self._others(chunk) if rest and self.look(b"\n".join(rest)) else []

    def _segments(self, chunk: bytes) -> list[bytes]:
        """Cut where a thread begins its next communicator: equal lines before and after speak of different ones."""
        marks: list[tuple[int, int, bytes, bytes]] = []
        at = chunk.find(_INIT)
        while at >= 0:
            start = chunk.rfind(b"\n", 0, at) + 1
            end = chunk.find(b"\n", at) + 1 or len(chunk)
            marks.append((start, end, chunk[at + len(_INIT) : at + len(_INIT) + 1], chunk[start : chunk.find(_MARK, start)]))
            at = chunk.find(_INIT, end)
        cuts = [0]
        last: dict[tuple[bytes, bytes], int] = {}
        for start, end, kind, who in marks:
            before = last.get((kind, who))
            if before is not None and before > cuts[-1]:
                # A start begins the new one; without starts (2.18.1 and older) an end closes the old one.
                cuts.append(start if kind == b"S" else before)
            last[kind, who] = end
        return [chunk[a:b] for a, b in zip(cuts, [*cuts[1:], len(chunk)], strict=True)]

    def _rings(self, parts: list[bytes]) -> list[tuple[bytes, bytes]]:
        """`Channel 00/24 : 0 1` says how many channels there are; that number goes where channels are made equal."""
        out = []
        for place, part in enumerate(parts[1:]):
            if part[:3] == b"00/" and b"[" not in part[:24]:
                before, mark, _ = parts[place][parts[place].rfind(b"\n") + 1 :].partition(_MARK)
                end = part.find(b"\n") + 1
                if mark and end:
                    out.append((before, b"INFO Channel " + part[:end]))
        return out

    def _others(self, chunk: bytes) -> list[tuple[int, int]]:
        """The stretches between NCCL's lines."""
        spans = []
        done = 0
        at = chunk.find(_MARK)
        while at >= 0:
            start = chunk.rfind(b"\n", 0, at) + 1
            end = chunk.find(b"\n", at) + 1 or len(chunk)
            if chunk.startswith(_LEVELS, at + 5):
                if start > done:
                    spans.append((done, start))
                done = end
            at = chunk.find(_MARK, end)
        if done < len(chunk):
            spans.append((done, len(chunk)))
        return spans

    def where(self) -> tuple[int, str]:
        """Number and text of the line just handed on; looked up only where somebody wants it as evidence."""
        if self._alone is not None:
            return self._alone
        chunk = self._chunk
        at = self._at if self._at is not None else self._find(self._line)
        if at is None:
            return 0, clean(self._line[:2000].decode("utf-8", "replace").strip())
        known, count = self._counted
        if at < known:
            known, count = 0, 0
        count += chunk.count(b"\n", known, at)
        self._counted = (at, count)
        start = chunk.rfind(b"\n", 0, at) + 1
        end = chunk.find(b"\n", at)
        raw = chunk[start : end if end >= 0 else len(chunk)][:2000]
        return self.newlines + count + 1, clean(raw.decode("utf-8", "replace").strip())

    def _find(self, line: bytes) -> int | None:
        """Where a line stands whose channel number was taken out. Lines are asked for in their order, so from the last on."""
        chunk = self._chunk
        head, channel, tail = line.partition(_CHANNEL)
        wanted = head + channel
        for begin in (self._counted[0], 0):
            at = chunk.find(wanted, begin)
            for _ in range(256):
                if at < 0:
                    break
                end = chunk.find(b"\n", at)
                if not channel or chunk.endswith(tail, at, end if end >= 0 else len(chunk)):
                    return at
                at = chunk.find(wanted, end) if end >= 0 else -1
        return None

    def joined(self) -> Iterator[object]:
        """What the lines said, as facts."""
        return self.log.facts()
