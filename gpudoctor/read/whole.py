"""Documents that begin with one value and not with lines of text: a pickle, or JSON written by a program, told by their
first bytes. Behind the JSON other text may follow (`cat dump.json job.log`), which is read line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from gpudoctor.facts.base import Loss
from gpudoctor.read.formats import JSON_LINE
from gpudoctor.read.section import Section

MAX_WHOLE = 64 << 20  # bytes; a flight recorder of 20,000 entries with deep stacks has 30 MB
_HEAD = 1 << 16
# Protocol 2 and later begin with a mark; 0 and 1 with the opcodes of a dict or list and of putting it into the memo, or
# (no honest dump does) with the name of a function to call.
_PICKLE = re.compile(rb"\x80[\x02-\x05][^\x00-\x08]|\((?:[dl]p?\d*\n|[dl]q)|[\]}]q|c[A-Za-z_][\w.]*\n\w+\n[](})q\x85]")
_JSON = re.compile(rb"[\s\xef\xbb\xbf]*[{\[]\s*[\"{]")
_WORD = 16  # characters; a number, a `false`, an escape
_JSON_LINE = re.compile(JSON_LINE)
_KINDS = (
    ("flight-recorder", re.compile(rb'"(?:pg_config|pg_status|nccl_comm_state|record_id|collective_seq_id|profiling_name)"\s*:')),
    ("ras-json", re.compile(rb'^[\s\xef\xbb\xbf]*\{\s*"nccl_version"\s*:')),
)


def kind_of(head: bytes) -> str | None:
    """The format of a whole document, from its beginning; None: a text to be looked at line by line."""
    if _PICKLE.match(head):
        return "flight-recorder"
    if not _JSON.match(head):
        return None
    return next((kind for kind, telling in _KINDS if telling.search(head, 0, _HEAD)), None)


def whole(name: str, chunks: Iterable[bytes]) -> tuple[Section | Loss | None, Iterator[bytes]]:
    """What the document begins with, as one section, and the text behind it; (None, its chunks) where it is all text.

    Standard input is read only once. Line ends stand for the lines of the section, so that those behind it keep their numbers.
    """
    stream = iter(chunks)
    held = b""
    for chunk in stream:
        held += chunk
        if len(held) >= _HEAD or len(held) >= 512 and (kind_of(held) or not _JSON.match(held)):
            break
    kind = kind_of(held)
    if kind is None:
        return None, chain((held,), stream)
    is_json = _JSON.match(held) is not None
    parts = [held]
    size = len(held)
    look_at = 0
    for chunk in chain((b"",), stream):
        parts.append(chunk)
        size += len(chunk)
        if is_json and size >= look_at:
            parts = [b"".join(parts)]
            end = _end_of_json(parts[0])
            if end is not None:
                return _parted(name, parts[0], end, stream)
            look_at = 2 * size  # all looks together cost about twice what the last does
        if size > MAX_WHOLE:
            return Loss(name, f"a {kind.replace('-', ' ')} of more than {MAX_WHOLE >> 20} MiB: not read", unread=True), iter(())
    content = b"".join(parts)
    end = _end_of_json(content) if is_json else None
    if end is not None:
        return _parted(name, content, end, stream)
    return Section(kind=kind, source=name, lines=(), content=content), iter(())


def _parted(name: str, content: bytes, end: int, stream: Iterator[bytes]) -> tuple[Section | None, Iterator[bytes]]:
    kind = kind_of(content[:end])
    if kind is None:  # the words that tell it stand behind the first value
        return None, chain((content,), stream)
    section = Section(kind=kind, source=name, lines=(), content=content[:end])
    return section, chain((b"\n" * content.count(b"\n", 0, end) + content[end:],), stream)


def _other_line(text: str, at: int) -> int | None:
    """Where the first line begins, from the one at this place on, that no program wrote as part of JSON."""
    for line in text[at:].splitlines(keepends=True):
        if line.strip() and not _JSON_LINE.match(line):
            return at
        at += len(line)
    return None


def _end_of_json(content: bytes) -> int | None:
    """Where other text begins behind the JSON, be it whole or broken off; None: it has not ended yet."""
    text = content.decode("utf-8", "surrogateescape")
    begin = len(text) - len(text.lstrip("\ufeff \t\r\n"))
    try:
        end = json.JSONDecoder().raw_decode(text, begin)[1]
    except (json.JSONDecodeError, RecursionError) as error:
        if isinstance(error, RecursionError):
            stopped = begin
        elif error.msg.startswith("Unterminated string") or error.pos >= len(text) - _WORD:
            return None  # what merely stops does so in a string or in its last word
        else:
            stopped = error.pos
        other = _other_line(text, text.rfind("\n", 0, stopped) + 1)
        if other is None:
            return None
        end = other
    return len(text[:end].encode("utf-8", "surrogateescape"))
