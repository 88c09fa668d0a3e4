"""Reading what comes through a pipe: once only, and from one that may be held open by somebody who never writes."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Iterator
from itertools import chain

IDLE_S = 0.2
CHUNK = 1 << 18
_GZIP = b"\x1f\x8b"
_WITH_HEADER = 31  # zlib's word for a gzip member


def is_pipe(path: str) -> bool:
    """A named pipe, or what the shell makes of `<(command)`: opened twice, the second reader lacks what the first took."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


def chunks(path_or_number: str | int) -> Iterator[bytes]:
    """Everything until the last writer has closed it. Empty ones say that nothing came for a while: see to the clock."""
    if isinstance(path_or_number, int):
        yield from _of(path_or_number)
        return
    # Else opening itself waits for a writer, for ever.
    number = os.open(path_or_number, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield from _of(number)
    finally:
        os.close(number)


def _of(number: int) -> Iterator[bytes]:
    waiting = select.poll()
    waiting.register(number, select.POLLIN)
    while True:
        if not waiting.poll(IDLE_S * 1000):
            yield b""
            continue
        try:
            chunk = os.read(number, CHUNK)
        except BlockingIOError:
            continue  # another reader was quicker
        if not chunk:
            return
        yield chunk


def unpacked(chunks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """What a pipe gives, unpacked as it comes where it is gzip, at most `limit` bytes; what is damaged or cut ends it."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= len(_GZIP):
            break
        yield b""
    if not head.startswith(_GZIP):
        if head:
            yield head
        yield from chunks
        return
    import zlib

    reader, total = zlib.decompressobj(_WITH_HEADER), 0
    for chunk in chain((head,), chunks):
        if not chunk:
            yield b""
        while chunk:
            try:
                text = reader.decompress(chunk, CHUNK)
            except zlib.error:
                return
            total += len(text)
            if text:
                yield text
            if total >= limit:
                return
            chunk = reader.unused_data or reader.unconsumed_tail
            if reader.eof:  # another member may follow
                reader = zlib.decompressobj(_WITH_HEADER)


def whole(path: str, most: int, wait_s: float) -> bytes:
    """At most so many bytes of a file or pipe. TimeoutError where a pipe gave no end in that time."""
    if not is_pipe(path):
        with open(path, "rb") as stream:
            return stream.read(most)
    until = time.monotonic() + wait_s
    taken = b""
    for chunk in chunks(path):
        taken += chunk
        if len(taken) >= most:
            break
        if time.monotonic() > until:
            raise TimeoutError(f"a pipe that was not closed within {wait_s:g} s")
    return taken[:most]
