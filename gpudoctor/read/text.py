"""Raw bytes to clean lines: encodings, line ends, terminal escapes, and the prefixes launchers put before a line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count

from gpudoctor.pattern import lazy
from gpudoctor.read.compiled import present
from gpudoctor.read.section import Line

MAX_LINE = 1 << 16  # characters; the rest of a longer line is dropped (and the line marked cut)
MAX_JSON = 1 << 22  # the same for JSON in one line: a host with 500 PCI functions needs 200 kB, 2,000 calls of a flight recorder 3 MB
_EMPTIED = bytes(8)
_OF_NCCL = b"NCCL "
_OF_A_JOB = (b"NCCL", b"[rank", b"[Rank")
_ODD = b'\0"&`\\*^#\r'  # without which, and in ASCII, there is little to look for
_SAMPLE = 512  # bytes by which the encoding is told
LOOKED_AT = 1 << 16  # the same of the width at which a log's lines may have been broken

# CSI and OSC sequences, the choice of a character set (`tput sgr0` prints it too), other two-character escapes; then every
# control character but the tab.
_ESCAPE = lazy(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[@-Z\\-_])|\x9b[0-?]*[ -/]*[@-~]")
_CONTROL = lazy(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
# What of these has several bytes, before it is decoded.
_LEADS = (b"\xe2\x80", b"\xe2\x81", b"\xef\xbb\xbf", b"\xc2\xad", b"\xe3\x80\x80")
_SECOND = (0x80, 0x81, 0xBB, 0xAD)  # one of these bytes stands in each: a progress bar has none
_WIDTHLESS = lazy(rb"\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xa9])|\xef\xbb\xbf|\xc2\xad")
_WIDE = lazy(rb"\xe2(?:\x80[\x80-\x8a\xaf]|\x81\x9f)|\xe3\x80\x80")
_BLANK = lazy(r"[\xa0\u2000-\u200a\u202f\u205f\u3000]")
# How the JSON that is known begins, written by programs that sort its keys and by others.
_JSON = lazy(
    r'\s{0,8}(?:\[\s{0,8})?\{\s{0,8}"(?:probe": "gpudoctor\.|version"|nccl_version"|comm_lib_version"|entries"|pg_config"|pg_status"|nvbandwidth"'
    r'|collective_seq_id"|record_id"|communicators")'
)


def clean(text: str) -> str:
    """Remove terminal escapes, control, direction-override and zero-width characters; tabs stay, every blank is a plain one."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPE.sub("", text)
    # Nothing that is taken out or replaced is printable, the plain blank aside.
    return text if text.replace("\t", "").isprintable() else _BLANK.sub(" ", _CONTROL.sub("", text))


def encoding_of(head: bytes) -> str:
    """UTF-16 by its mark or by its zero bytes, else UTF-8 (undecodable bytes are replaced)."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    sample = head[:_SAMPLE]
    if len(sample) >= 8 and sample.count(0) * 3 >= len(sample):
        return "utf-16-le" if sample[1::2].count(0) > sample[::2].count(0) else "utf-16-be"
    return "utf-8"


def whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Re-cut chunks at line ends, so that no word is split between two. A line without end is passed on in pieces.

    A last line that names a transport waits for the one that follows: a terminal may have broken it in two.
    """
    held = rest = b""
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            text = b"".join((held, rest, memoryview(chunk)[:end]))  # copied once
            held, rest = b"", chunk[end:]
            last = text.rfind(b"\n", 0, -1) + 1
            if text.find(b" via ", last) >= 0 and len(text) - last < MAX_LINE:
                text, held = text[:last], text[last:]
            if text:
                yield text
            continue
        rest += chunk
        if len(rest) > MAX_LINE * 16:
            if held:
                yield held
                held = b""
            yield rest
            rest = b""
    if held:
        yield held
    if rest:
        yield rest


def _room(text: str) -> int:
    return MAX_JSON if _JSON.match(text) else MAX_LINE


class Passing:
    """Lets a reader be spared lines: `marks` are the places in a chunk of whole lines that it must see."""

    BEFORE = 8  # lines before a mark that are shown too: the prompt, the command, a sentence that names it

    def marks(self, chunk: bytes) -> Iterable[int]:
        raise NotImplementedError

    def busy(self) -> bool:
        """True while every next line matters."""
        raise NotImplementedError

    def ahead(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The chunks as they will be asked about, for a reader that prepares its answers."""
        return chunks

    def line_ends(self, chunk: bytes) -> int:
        """Line ends in the chunk whose marks were asked for last; a reader may know them already."""
        return chunk.count(b"\n")


def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    head = b""
    for chunk in chunks:  # a pipe gives a few bytes at a time, too few to tell by
        head += chunk
        # A log that was emptied while it is written begins with as many zeros as it had bytes.
        head = head.lstrip(b"\0") if head.startswith(_EMPTIED) else head
        if len(head) >= _SAMPLE:
            break
    encoding = encoding_of(head)
    if encoding == "utf-8":
        yield from chain((head,), chunks)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for chunk in chain((head,), chunks):
        yield decoder.decode(chunk).encode("utf-8", "replace")


def _unbroken(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """A job's log with whole lines, where a mailer or a terminal broke them."""
    head: list[bytes] = []
    size = 0
    of_a_job = False
    for chunk in chunks:
        head.append(chunk)
        size += len(chunk)
        of_a_job = of_a_job or any(mark in chunk for mark in _OF_A_JOB)
        if not of_a_job:
            yield from head
            head, size = [], 0
        elif size >= LOOKED_AT:
            break
    if of_a_job:
        from gpudoctor.read.refolded import refolded  # only where there is such a line

        yield from refolded(head, chunks)


def _without_hidden(chunk: bytes) -> bytes:
    """Web pages and word processors keep blanks from breaking, and mark where a word may break; zeros stand where a file was
    emptied. What looks for known words would not find them.
    """
    held = present(chunk, _ODD)
    if b"\xff" in held:
        chunk = chunk.replace(b"\xc2\xa0", b" ")
        if any(byte in chunk for byte in _SECOND) and any(lead in chunk for lead in _LEADS):
            chunk = _WIDTHLESS.sub(b"", _WIDE.sub(b" ", chunk))
    if b"\0" in held:
        chunk = chunk.replace(b"\0", b"")
    chunk = chunk.replace(b"&nbsp;", b" ") if b"&" in held else chunk
    if _OF_NCCL in chunk:
        from gpudoctor.read.wrapped import unwrapped  # only where there is such a line

        chunk = unwrapped(chunk, held)
    return chunk


def lines_of(chunks: Iterable[bytes], passing: Passing | None = None, sifted: Callable[[bytes], bytes] | None = None) -> Iterator[Line]:
    """Clean lines from a stream of byte chunks, never holding more than one chunk and one line.

    passing: asked for the places that matter; all other lines are counted and skipped, which is what makes half a
    gigabyte of unrelated output cheap.
    sifted: given every chunk of whole lines first, it makes those empty that nobody may read.
    """
    number = 0
    rest = b""
    before, shown = b"\n", 0  # the text before this chunk, some of it, and the number of the last line that was shown
    given = whole_lines(_as_utf8(iter(chunks)))
    whole = map(_without_hidden, _unbroken(map(sifted, given) if sifted is not None else given))
    for chunk in whole if passing is None else passing.ahead(whole):
        if not chunk.endswith(b"\n"):
            # A piece of a line that does not end yet: its head is kept, the middle forgotten.
            rest += chunk[: max(0, 4 * _room((rest or chunk)[:64].decode("latin-1")) + 4 - len(rest))]
            continue
        if rest:
            chunk, rest = rest + chunk, b""
        if passing is None:
            if len(chunk) <= MAX_LINE and _is_plain(chunk):
                # Most outputs: asked once of all lines what is else asked of each.
                yield from map(Line, count(number + 1), chunk.decode("ascii").split("\n")[:-1])
            else:
                for place, line in enumerate(chunk.split(b"\n")[:-1], 1):
                    yield from _whole(number + place, line)
            number += chunk.count(b"\n")
        else:
            for place, line in _shown(chunk, passing, before, number - shown):
                yield from _whole(number + place, line)
                shown = number + place
            number += passing.line_ends(chunk)
            before = chunk if len(chunk) > MAX_LINE else (before + chunk)[-2 * MAX_LINE :]
    if rest.strip(b"\r"):
        for place, line in _last(before, min(passing.BEFORE, number - shown)) if passing is not None else ():
            yield from _whole(number + place, line)
        *done, last = rest.strip(b"\r").replace(b"\r", b"\n").split(b"\n")
        for part in done:
            yield from _whole(number + 1, part)
        text = _decoded(last)
        yield Line(number + 1, clean(text[: _room(text)]), True)


def _is_plain(chunk: bytes) -> bool:
    """Is there nothing in it to decode, to remove or to break a line at but line feeds?"""
    return chunk.isascii() and chunk.translate(None, b"\t\n").decode("ascii").isprintable()


def _shown(chunk: bytes, passing: Passing, before: bytes, hidden: int) -> Iterator[tuple[int, bytes]]:
    """The lines to show, with their numbers in the chunk. The reader may become busy, or idle again, with any of them.

    before, hidden: what stands before the chunk, and how many lines at its end were not shown; they have numbers up to 0.
    """
    number = 1
    at = 0  # where the first line stands that was neither shown nor passed over, and its number
    for mark in passing.marks(chunk):
        begin = chunk.rfind(b"\n", 0, mark) + 1
        near = begin
        for more in range(passing.BEFORE, 0, -1):
            if near > at:
                near = chunk.rfind(b"\n", at, near - 1) + 1 or at
            elif number == 1:
                yield from _last(before, min(more, hidden))
                break
        hidden = 0
        while at <= begin:
            if at < near and not passing.busy():
                number += chunk.count(b"\n", at, near)
                at = near
            end = chunk.find(b"\n", at)
            yield number, chunk[at:end]
            number += 1
            at = end + 1
    while at < len(chunk) and passing.busy():
        end = chunk.find(b"\n", at)
        yield number, chunk[at:end]
        number += 1
        at = end + 1


def _last(text: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    """The last lines of a text, with numbers up to 0; its first line may be cut, and is none of them."""
    lines = text.rsplit(b"\n", count + 1)[1:-1]
    yield from enumerate(lines, 1 - len(lines))


def _decoded(raw: bytes) -> str:
    return raw[: 4 * MAX_JSON + 4].decode("utf-8", "replace")


def _whole(number: int, raw: bytes) -> Iterable[Line]:
    """One line that ended. A lone carriage return ends a line too (progress bars) but counts for none in an editor."""
    text = _decoded(raw)
    if "\r" in text:
        return [Line(number, clean(part[:MAX_LINE]), len(part) > MAX_LINE) for part in text.rstrip("\r").split("\r")]
    room = MAX_LINE if len(text) <= MAX_LINE else _room(text)
    return (Line(number, clean(text[:room]), len(text) > room),)


# Prefixes that nothing we parse begins with: they are taken off without asking.
_PLAIN = lazy(
    r"""^(?:
        (?:>\ ?)+                                             # mail and Markdown quotes
      | \ {0,8}\[\d+,\d+\]<std(?:out|err|diag)>:\ ?           # mpirun --tag-output, perhaps indented in a document
      | \[[\w.-]+:\d+,\d+\]<std(?:out|err)>:\ ?               # mpirun with host
      | \[(?:rank|default)\ ?\d+\]:\ ?                       # torchrun
      | \([^()]{0,60}\bpid=\d+[^()]{0,60}\)\ ?                # Ray, vLLM
      | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?:\ (?:std(?:out|err)\ [FP]\ )?(?=\s*\S)|\s*$) # Docker, kubectl, containerd
    )""",
    re.X,
)
_PLAIN_FIRST = frozenset(" >[(0123456789")
# Prefixes that can also be content (`0: `, `node07: `): taken off only where what follows begins a known output.
# (`Card: 01:00.0 VGA …` of a script is no host, nor is the name of an exception.)
_LABEL = lazy(r"^ {0,3}(?P<label>\d{1,5}|(?!(?i:card|gpu|device|slot|bus|bdf|pci|address|port):)[A-Za-z][\w.-]{0,62}(?<!Error)(?<!Exception)):(?:[ \t]|$)")

# `pdsh` and `clush` label with the host's name; a word that is no host name (Link:, Bus:) never precedes a known start.
HOSTLIKE = lazy(r"^[a-z][a-z0-9]*[a-z0-9.-]*\d[a-z0-9.-]*$", re.I)


def strip_prefixes(text: str) -> str:
    """Take off every plain prefix, repeatedly (`> [rank0]: …`)."""
    for _ in range(4):
        if text[:1] not in _PLAIN_FIRST:
            break
        found = _PLAIN.match(text)
        if not found:
            break
        text = text[found.end() :]
    return text


def label_of(text: str) -> tuple[str, str] | None:
    """`node07: GPU0 …` -> ("node07", "GPU0 …"); the caller decides whether it really is a label."""
    found = _LABEL.match(text)
    return (found["label"], text[found.end() :]) if found else None
