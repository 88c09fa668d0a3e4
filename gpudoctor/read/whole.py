"""Documents that are one value and not lines of text: a pickle, or JSON written by a program. Told by their first bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from gpudoctor.facts.base import Loss
from gpudoctor.read.section import Section

MAX_WHOLE = 64 << 20  # bytes; a flight recorder of 20,000 entries with deep stacks has 30 MB
_HEAD = 1 << 16
# Protocol 2 and later begin with a mark; 0 and 1 with the opcodes of a dict or list and of putting it into the memo, or
# (no honest dump does) with the name of a function to call.
_PICKLE = re.compile(rb"\x80[\x02-\x05][^\x00-\x08]|\((?:[dl]p?\d*\n|[dl]q)|[\]}]q|c[A-Za-z_][\w.]*\n\w+\n[](})q\x85]")
_JSON = re.compile(rb"[\s\xef\xbb\xbf]*[{\[]\s*[\"{]")
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
    """The document as one section, or (None, its chunks) where it is text. Standard input is read only once."""
    stream = iter(chunks)
    held: list[bytes] = []
    size = 0
    for chunk in stream:
        held.append(chunk)
        size += len(chunk)
        if size >= 512:
            break
    kind = kind_of(b"".join(held))
    if kind is None:
        return None, chain(held, stream)
    for chunk in stream:
        held.append(chunk)
        size += len(chunk)
        if size > MAX_WHOLE:
            return Loss(name, f"a {kind.replace('-', ' ')} of more than {MAX_WHOLE >> 20} MiB: not read"), iter(())
    return Section(kind=kind, source=name, lines=(), content=b"".join(held)), iter(())
