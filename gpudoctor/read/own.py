"""gpudoctor's own reports among what is given: they quote outputs and are none, so nothing in them may be read as facts.

Their lines are made empty before anything else looks at the text, and so those behind them keep their numbers. NCCL's lines
are read in passing, wherever they stand: that is why this comes before the recogniser and is no format of it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudoctor.facts.base import Loss
from gpudoctor.pattern import lazy
from gpudoctor.read.formats import JSON_LINE
from gpudoctor.read.text import clean

_NAME = b"gpudoctor"
# What stands in a report of which the head was left out; asked of a text's beginning only.
_HEADLESS = (b"Pairs   GPU", b" checks", b"GPUDOCTOR ")
_WORDS = rb"(?:FAULT|WARNING|UNKNOWN|HEALTHY|NO FAULT|UNJUDGED)"
# Quote marks, a timestamp, a label of a launcher or of `grep`.
_WORN = rb"(?:[ \t>|*#]{0,40}|\[?\d{4}-\d\d-\d\d[T ][\d:.,]{5,20}(?:Z|[+-][\d:]{4,6})?\]?[ \t]+|[\w./-]{1,60}(?:\[\d+\])?:[ \t]+)"
_BEGINS = lazy(
    rb"^(?P<worn>" + _WORN + rb")(?:"
    rb"(?P<text>gpudoctor \d+\.\d+[\w.+-]* (?:\xc2\xb7(?=\s)|-(?=[ \n\r].{0,600}?^" + _WORDS + rb" {1,5}\S)))"
    # The verdict by itself (-q), or above what was left of the report.
    rb"|(?P<verdict>" + _WORDS + rb" [^\n]{0,2000}(?:\n {9}(?! )[^\n]{0,200}){0,4}?(?<!\d)\d{1,4} of \d{1,4}\s{1,70}checks\s{1,70}made\b)"
    rb"|(?P<pairs>Pairs   GPU\d+ +GPU\d+[ GPU\d]*\r?\n.{0,60}?  GPU\d+ +[^\n]{0,200}(?:\xc2\xb7|-)(?=[\s]))"
    rb'|(?P<json>\{\s{0,40}"schema_version"\s{0,4}:\s{0,4}\d{1,4}\s{0,4},\s{0,40}"tool"\s{0,4}:\s{0,4}\{\s{0,40}"name"\s{0,4}:\s{0,4}"gpudoctor")'
    rb'|(?P<html><meta name="generator" content="gpudoctor">)'
    rb'|(?P<junit><testsuite package="gpudoctor")'
    rb"|(?P<prometheus># HELP gpudoctor_info )"
    rb"|(?P<nagios>GPUDOCTOR (?:OK|WARNING|CRITICAL|UNKNOWN) - ))",
    re.M | re.S,
)
# First lines of a report's paragraphs; all others are indented, and none of them stands below an empty line.
_KNOWN = lazy(
    r"gpudoctor \d|  (?:What to expect|Training slow\?)   |(?:FAULT|WARNING|UNKNOWN|HEALTHY|NO FAULT|UNJUDGED) |[✗!·x-] [a-z0-9-]+  |Note: |Worth knowing|Host \S+$|Checks$|Pairs, "
    r"|(?:Pairs|NUMA|PCIe|NICs|NCCL|DCGM|Hang)  |(?:plateau|expected|reached|not judged)  |[a-z_]+ [·-] "
    r"|(?:Checks not made|Not looked at|Could not judge|Not read|Not recognised|Known are): |To settle what is open, these|Once the driver answers again, "
    r"|or all at once, private details|and \d+ more "
)
_NO_TEXT = lazy(r"\t|\s+GPU\d+\s+GPU\d|\s+\[ *\d+\.\d+\] ")  # indented, and none of a report's all the same
_ENDS = {"html": lazy(rb"</html>"), "junit": lazy(rb"</testsuite>"), "nagios": lazy(rb"")}
_IN_JSON = lazy(JSON_LINE)
_OF_PROMETHEUS = lazy(r"(?:# (?:HELP|TYPE) )?gpudoctor_")
_VERDICT = {
    "html": lazy(rb"<title>(.{1,200}?)(?: \xc2\xb7 |</title>)"),
    "junit": lazy(rb'name="verdict" value="(\w{1,20})"'),
    "json": lazy(rb'"verdict"\s*:\s*"(\w{1,20})"'),
    "prometheus": lazy(rb'gpudoctor_verdict\{verdict="(\w{1,20})"\} 1'),
    "nagios": lazy(rb"(GPUDOCTOR [^|\r\n]{1,300})"),
}
_TEXT_VERDICT = lazy(r"(?:FAULT|WARNING|UNKNOWN|HEALTHY|NO FAULT|UNJUDGED) ")
_SHOWN = 200  # characters of a verdict
_MOST = 100  # reports that are told of
_LONGEST = 1 << 14  # bytes of a line that are looked at
_DIGITS = str.maketrans("123456789", "000000000")


_NO_FAULT = ("HEALTHY", "NO FAULT", "WARNING")  # verdicts that give status 0


class OwnReport(NamedTuple):
    verdict: list[str]
    passing: bool  # a verdict alone, or metrics: a job's log may hold them, and they quote no output


class OwnReports:
    """Takes them out of one text, chunk by chunk."""

    def __init__(self) -> None:
        self.found: list[OwnReport] = []
        self._kind = ""  # of the report that is open
        self._worn = ""  # how long what stands before its lines is
        self._blank = False  # its last line was
        self._within = False  # the chunk before ended within a line of it
        self._heading = False  # lines of its verdict follow
        self._lines = 0  # of it so far
        self._words: list[str] = []  # of its verdict
        self._first = True

    def without(self, chunk: bytes) -> bytes:
        """The chunk, which begins with a line or goes on with one that did not end, with the lines of reports made empty."""
        looked = _NAME in chunk or self._first and any(words in chunk for words in _HEADLESS)
        self._first = False
        if not looked and not self._kind:
            return chunk
        out: list[bytes] = []
        at = 0
        while at < len(chunk):
            if self._kind:
                at = self._go_on(chunk, at, out)
            found = _BEGINS.search(chunk, at) if looked and at < len(chunk) else None
            if found is None:
                out.append(chunk[at:])
                break
            out.append(chunk[at : found.start()])
            at = found.start()
            self._begin(found)
        return b"".join(out)

    def losses(self, source: str, beside: bool) -> list[Loss]:
        """What is said of those that were found. beside: real outputs stand in the same text."""
        return [
            Loss(
                f"what the report in {source} was made from",
                "it is gpudoctor's own report"
                + (f" (its verdict: `{' '.join(' '.join(report.verdict).split())[:_SHOWN]}`)" if report.verdict else "")
                + ", which quotes outputs and is none: nothing in it was judged. Give the outputs that it was made from: --from the snapshot or log",
                # A job's log whose prolog looked at its node first, and found no fault, is judged by the rest of it.
                unread=not (beside and (report.passing or " ".join(report.verdict).startswith(_NO_FAULT))),
            )
            for report in self.found
        ]

    def _begin(self, found: re.Match[bytes]) -> None:
        kind = found.lastgroup or ""
        self._kind = kind if kind in _VERDICT else "text"
        self._worn = _text(found["worn"])
        self._blank = self._within = self._heading = False
        self._lines = 0
        if len(self.found) < _MOST:
            self.found.append(OwnReport([], kind in ("verdict", "nagios", "prometheus")))
        self._words = self.found[-1].verdict

    def _go_on(self, chunk: bytes, at: int, out: list[bytes]) -> int:
        """Where the report that is open ends in the chunk: at the chunk's end, where it may go on in the next."""
        while at < len(chunk):
            end = chunk.find(b"\n", at) + 1 or len(chunk)
            raw = chunk[at:end]
            if not self._within and self._over(raw):
                self._kind = ""
                return at
            self._within = not raw.endswith(b"\n")
            out.append(b"" if self._within else b"\n")
            at = end
            told = _VERDICT[self._kind].search(raw) if self._kind in _VERDICT and not self._words else None
            if told is not None:
                self._words.append(_text(told[1]))
            if not self._within:
                self._lines += 1
                if self._last(raw):
                    self._kind = ""
                    return at
        return at

    def _over(self, raw: bytes) -> bool:
        """Does the line stand behind the report? Never so of its first."""
        line = self._bare(_text(raw))
        if self._kind == "text":
            return self._no_text(line)
        if not self._lines or not (line or "").strip():
            return False
        if self._kind == "json":
            return line is None or _IN_JSON.match(line) is None
        return self._kind == "prometheus" and (line is None or _OF_PROMETHEUS.match(line) is None)

    def _no_text(self, line: str | None) -> bool:
        if line is not None and not line.strip():
            self._blank, self._heading = True, False
            return False
        indented = line is not None and line.startswith("  ")
        if line is None or self._lines and (_NO_TEXT.match(line) if indented and not self._blank else not _KNOWN.match(line)):
            return True
        self._heading = self._heading if indented else not self._words and _TEXT_VERDICT.match(line) is not None
        if self._heading:
            self._words.append(line)
        self._blank = False
        return False

    def _bare(self, text: str) -> str | None:
        """The line without what its report wears; None: it does not wear it. An empty line need not."""
        worn = len(self._worn)
        if text[:worn].translate(_DIGITS) == self._worn.translate(_DIGITS):
            return text[worn:]
        return "" if text.rstrip().translate(_DIGITS) in ("", self._worn.rstrip().translate(_DIGITS)) else None

    def _last(self, raw: bytes) -> bool:
        if self._kind == "json":
            end = raw.rstrip()
            return end.endswith(b"}") and (self._lines == 1 or self._bare(_text(end)) == "}")
        return self._kind in _ENDS and _ENDS[self._kind].search(raw) is not None


def _text(raw: bytes) -> str:
    return clean(raw[:_LONGEST].decode("utf-8", "replace").rstrip("\r\n"))
