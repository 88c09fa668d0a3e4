"""Raw bytes to clean lines: encodings, line ends, terminal escapes, and the prefixes launchers put before a line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator

from gpudoctor.read.section import Line

MAX_LINE = 1 << 16  # characters; the rest of a longer line is dropped (and the line marked cut)
MAX_JSON = 1 << 22  # the same for the one line that a child probe prints: a host with 500 PCI functions needs 200 kB

# CSI and OSC sequences, other two-character escapes; then every control character but the tab.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\x9b[0-?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> str:
    """Remove terminal escapes, control and direction-override characters; tabs stay."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPE.sub("", text)
    return text if text.isascii() and text.isprintable() else _CONTROL.sub("", text)


def encoding_of(head: bytes) -> str:
    """UTF-16 by its mark or by its zero bytes, else UTF-8 (undecodable bytes are replaced)."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    sample = head[:512]
    if len(sample) >= 8 and sample.count(0) * 3 >= len(sample):
        return "utf-16-le" if sample[1::2].count(0) > sample[::2].count(0) else "utf-16-be"
    return "utf-8"


def whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Re-cut chunks at line ends, so that no word is split between two. A line without end is passed on in pieces."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if end == 0 and len(rest) > MAX_LINE * 16:
            end = len(rest)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _room(text: str) -> int:
    return MAX_JSON if text.startswith('{"probe": "gpudoctor.') else MAX_LINE


def lines_of(chunks: Iterable[bytes], wanted: Callable[[bytes], bool] | None = None) -> Iterator[Line]:
    """Clean lines from a stream of byte chunks, never holding more than one chunk and one line.

    wanted: asked once a chunk of whole lines; where it says no, the lines are counted and skipped (this is what makes
    half a gigabyte of unrelated output cheap). Only asked for UTF-8, where a word's bytes are the word.
    """
    decoder = None
    number = 0
    rest = ""
    skip = False
    for chunk in whole_lines(chunks):
        if decoder is None:
            encoding = encoding_of(chunk)
            decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            skip = wanted is not None and encoding == "utf-8"
        if skip and not rest and wanted is not None and chunk.endswith(b"\n") and not wanted(chunk):
            number += chunk.count(b"\n")
            continue
        rest += decoder.decode(chunk)
        # A lone carriage return ends a line too (progress bars); one at the end may be half of \r\n.
        whole = rest.replace("\r\n", "\n")
        keep = ""
        if whole.endswith("\r"):
            whole, keep = whole[:-1], "\r"
        parts = whole.replace("\r", "\n").split("\n")
        rest = parts.pop() + keep
        for part in parts:
            number += 1
            yield Line(number, clean(part[: _room(part)]), len(part) > _room(part))
        if len(rest) > _room(rest) * 4:  # a line that does not end: keep its head, forget the middle
            rest = rest[: _room(rest)] + rest[-2:]
    if decoder is not None:
        rest += decoder.decode(b"", final=True)
    if rest.strip("\r"):
        yield Line(number + 1, clean(rest[: _room(rest)]), True)


# Prefixes that nothing we parse begins with: they are taken off without asking.
_PLAIN = re.compile(
    r"""^(?:
        (?:>\ ?)+                                             # mail and Markdown quotes
      | \[\d+,\d+\]<std(?:out|err|diag)>:\ ?                  # mpirun --tag-output
      | \[[\w.-]+:\d+,\d+\]<std(?:out|err)>:\ ?               # mpirun with host
      | \[(?:rank|default)(?P<rank>\d+)\]:\ ?                 # torchrun
      | \([\w.]*Worker[\w\s.-]*pid=\d+(?:,\s*ip=[\d.]+)?\)\ ? # Ray, vLLM
      | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\ (?=\s*\S) # Docker, kubectl --timestamps
    )""",
    re.X,
)
# Prefixes that can also be content (`0: `, `node07: `): taken off only where what follows begins a known output.
_LABEL = re.compile(r"^ {0,3}(?P<label>\d{1,5}|[A-Za-z][\w.-]{0,62}):[ \t]")


def strip_prefixes(text: str) -> str:
    """Take off every plain prefix, repeatedly (`> [rank0]: …`)."""
    for _ in range(4):
        found = _PLAIN.match(text)
        if not found:
            break
        text = text[found.end() :]
    return text


def label_of(text: str) -> tuple[str, str] | None:
    """`node07: GPU0 …` -> ("node07", "GPU0 …"); the caller decides whether it really is a label."""
    found = _LABEL.match(text)
    return (found["label"], text[found.end() :]) if found else None
