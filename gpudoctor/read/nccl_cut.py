"""NCCL's lines cut out of a chunk of whole lines, fast: a job may write gigabytes of which the same few facts are repeated.

Where few lines are NCCL's, each is cut out where `NCCL ` stands. Where most are (the start of a large job), the channel
number is taken out of every line first: 24 lines that say the same of 24 channels become one. Nothing here remembers
anything, so that chunks can be looked at in any order and by several processes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# Before the mark, behind it with its line end, and where the mark stands (-1: to be looked for, the channel is taken out).
Cut = tuple[bytes, bytes, int]
Span = tuple[int, int]

MARK = b"NCCL "
CHANNEL = b" Channel "
_FIRST = b" Channel 00/"
_DENSE = 1500  # NCCL lines in a chunk of about a megabyte, above which equal lines are first made one
_HEAD = 1 << 16
_DENSE_HEAD = 100  # the same in the head of a chunk
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_INIT = b" - Init "
# A line that a terminal broke within its transport: `via SHM` and `/direct/direct` below it.
_MAX_SHORT = 33
_SHORT_LINE = re.compile(rb"\n[\w/()]{1,30}\r?\n")
_FOLDED = re.compile(rb"( via (?:P2P|SHM|NET)[^\n]{0,40})\n(?!\d+\r?\n)([\w/()]{1,30})(\r?)\n")
# What NCCL itself writes behind its name; a framework that speaks of NCCL writes something else.
_OWN = frozenset((b"INFO ", b"WARN ", b"ATTN ", b"DIAG ", b"CALL ", b"TRACE", b"ABORT"))
# How lines begin that say nothing we keep: passed over before anything else is asked.
SILENT = frozenset(
    b"INFO " + word
    for word in (
        b"Trees", b"Tree ", b"Conne", b"threa", b"P2P C", b"CC Of", b"TUNER", b"PROFI", b"ENV/P", b"[Prox", b"proxy", b"Check", b"TOPO/", b"Topol",
        b"Alloc", b"Loade", b"Initi", b"Assig", b"RAS c", b"Enabl", b"Comm ", b"Launc", b"Memor", b"GIN/P", b"RMA/P",
        b"AllRe", b"AllGa", b"Reduc", b"Broad", b"Send:", b"Recv:",
    )
)  # fmt: skip


def is_nccl(text: str) -> bool:
    """A line that NCCL wrote itself, so that no other format need look at it."""
    at = text.find("NCCL ")
    return at >= 0 and text.startswith(("INFO ", "WARN ", "ATTN ", "DIAG ", "CALL ", "TRACE ", "ABORT "), at + 5)


def uncoloured(chunk: bytes) -> bytes:
    return _ESCAPES.sub(b"", chunk) if b"\x1b" in chunk else chunk


def joined(text: bytes) -> bytes:
    """With broken transports in one line: as many bytes and line ends as before."""
    return _FOLDED.sub(rb"\1\2\3\n\n", text) if _SHORT_LINE.search(text) is not None else text


def cut(chunk: bytes, look: Callable[[bytes], bool]) -> tuple[list[Cut], list[Span]]:
    """NCCL's lines, and the stretches of the chunk that are not NCCL's.

    look: is there, in these lines that are not NCCL's, one that another format knows?
    """
    if b"\x1b" in chunk:
        return _cut(uncoloured(chunk), look)[0], [(0, len(chunk))]  # places in the plain text are not places in the chunk
    return _cut(chunk, look)


def _cut(text: bytes, look: Callable[[bytes], bool]) -> tuple[list[Cut], list[Span]]:
    # Of a long chunk the head tells at once; a wrong guess costs only time.
    if len(text) < 4 * _HEAD or text.count(MARK, 0, _HEAD) < _DENSE_HEAD:
        parts = text.split(MARK)
        if len(parts) <= _DENSE:
            found = _sparse(text, parts)
            if found is None:
                text = joined(text)
                found = _sparse(text, text.split(MARK), folded=True)
            assert found is not None
            return found
    cuts, rest = _dense(text)
    if any(len(line) < _MAX_SHORT for line in rest):
        text = joined(text)
        cuts, rest = _dense(text)
    return cuts, _others(text) if rest and look(b"\n".join(rest)) else []


def _sparse(chunk: bytes, parts: list[bytes], folded: bool = False) -> tuple[list[Cut], list[Span]] | None:
    """A few NCCL lines among many others: parts are the text between the marks. None: a line may be broken."""
    cuts: list[Cut] = []
    spans: list[Span] = []
    done = 0  # where the text not yet looked at begins
    at = len(parts[0])  # where the mark stands
    before = parts[0]
    rest = iter(parts)
    next(rest)
    for part in rest:
        message = part
        end = part.find(b"\n") + 1
        while not end:  # a second mark in the same line, or the end of the chunk
            more = next(rest, None)
            if more is None:
                end = len(message)
                break
            message += MARK + more
            end = message.find(b"\n") + 1
        start = before.rfind(b"\n") + 1
        if message[:5] in _OWN:
            low = at - len(before) + start
            if low > done:
                spans.append((done, low))
            done = at + 5 + end
            if message[:10] not in SILENT:
                if not folded and message.find(b"\n", end, end + _MAX_SHORT) >= 0 and b" via " in message[:end]:
                    return None
                cuts.append((before[start:], message[:end], at))
        else:
            cuts.append((before[start:], message[:end], at))
        at += 5 + len(message)
        before = message
    if done < len(chunk):
        spans.append((done, len(chunk)))
    return cuts, spans


def _dense(chunk: bytes) -> tuple[list[Cut], list[bytes]]:
    """Mostly NCCL lines: one of each, in the order of their first appearance; and what is not NCCL's."""
    cuts: list[Cut] = []
    rest: list[bytes] = []
    for segment in _segments(chunk):
        parts = segment.split(CHANNEL)
        # `00/0 : 0[0] -> 1[1] via …` without its number, of which every width ends before the first rank.
        stripped = [part[4:] for part in parts]
        stripped[0] = parts[0]
        for line in dict.fromkeys(CHANNEL.join(stripped).split(b"\n")):
            before, mark, message = line.partition(MARK)
            if message[:10] in SILENT:
                continue
            if mark:
                cuts.append((before, message + b"\n", -1))
            elif line:
                rest.append(line)
        cuts += _rings(segment)
    return cuts, rest


def _segments(chunk: bytes) -> list[bytes]:
    """Cut where a thread begins its next communicator: equal lines before and after speak of different ones."""
    cuts = [0]
    last: dict[tuple[bytes, bytes], int] = {}
    at = chunk.find(_INIT)
    while at >= 0:
        start = chunk.rfind(b"\n", 0, at) + 1
        end = chunk.find(b"\n", at) + 1 or len(chunk)
        kind = chunk[at + len(_INIT) : at + len(_INIT) + 1]
        who = chunk[start : chunk.find(MARK, start)]
        before = last.get((kind, who))
        if before is not None and before > cuts[-1]:
            # A start begins the new one; without starts (2.18.1 and older) an end closes the old one.
            cuts.append(start if kind == b"S" else before)
        last[kind, who] = end
        at = chunk.find(_INIT, end)
    return [chunk[a:b] for a, b in zip(cuts, [*cuts[1:], len(chunk)], strict=True)]


def _rings(segment: bytes) -> Iterator[Cut]:
    """`Channel 00/24 : 0 1` says how many channels there are; that number goes where channels are made equal."""
    at = segment.find(_FIRST)
    while at >= 0:
        end = segment.find(b"\n", at) + 1
        if end and segment.find(b"[", at, at + 34) < 0:
            before, mark, message = segment[segment.rfind(b"\n", 0, at) + 1 : end].partition(MARK)
            if mark and message.startswith(b"INFO Channel 00/"):
                yield before, message, -1
        at = segment.find(_FIRST, at + len(_FIRST))


def _others(chunk: bytes) -> list[Span]:
    """The stretches between NCCL's lines."""
    spans = []
    done = 0
    at = chunk.find(MARK)
    while at >= 0:
        end = chunk.find(b"\n", at) + 1 or len(chunk)
        if chunk[at + 5 : at + 10] in _OWN or chunk.startswith(b"version", at + 5):
            start = chunk.rfind(b"\n", 0, at) + 1
            if start > done:
                spans.append((done, start))
            done = end
        at = chunk.find(MARK, end)
    if done < len(chunk):
        spans.append((done, len(chunk)))
    return spans
