"""Reading what comes through a pipe: once only, and from one that may be held open by somebody who never writes."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import IO, NamedTuple

IDLE_S = 0.2
_AGAIN_S = 0.01
CHUNK = 1 << 18
RATIO = 300  # unpacked bytes per packed one: logs reach a tenth of it
_GZIP = b"\x1f\x8b"


def is_pipe(path: str) -> bool:
    """A named pipe, what the shell makes of `<(command)`, or a device: opened twice, the second reader lacks what the first took."""
    try:
        mode = os.stat(path).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
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
        except BlockingIOError:  # another reader was quicker, or it only says that there is something (/proc/kmsg)
            time.sleep(_AGAIN_S)
            yield b""
            continue
        if not chunk:
            return
        yield chunk


def unpacked(chunks: Iterator[bytes], limit: int | None = None) -> Iterator[bytes]:
    """What a pipe gives, unpacked as it comes where it is gzip. OSError where that is damaged, cut, or unpacks without end: to
    more than `limit` bytes and RATIO times what came.
    """
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
    from gpudoctor.read.gunzip import CUT, Gunzip

    gunzip = Gunzip()
    came = gave = 0
    for packed in chain((head,), chunks):
        came += len(packed)
        if not packed:
            yield b""
        while packed:
            text, packed = gunzip.step(packed)
            gave += len(text)
            if text:
                yield text
            if limit is not None and gave > max(limit, RATIO * came):
                raise OSError(f"it unpacks to more than {RATIO} times its size, as no log does")
    yield from gunzip.rest()
    if gunzip.midway:
        raise OSError(CUT)


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


class Kept(NamedTuple):
    """A pipe that gives an archive, as a file without a name that goes with this process."""

    path: str
    file: IO[bytes]


def kept(head: bytes, chunks: Iterator[bytes], most: int, late: Callable[[], bool]) -> Kept:
    """All of it, and nothing else of it is written anywhere. OSError where there is no room for it, or no time."""
    import tempfile

    file = tempfile.TemporaryFile(prefix="gpudoctor-", buffering=0)
    size = 0
    for chunk in chain((head,), chunks):
        if late():
            raise OSError("there was no time to read to its end")
        size += len(chunk)
        if size > most:
            raise OSError(f"more than {most >> 30} GiB of an archive come through the pipe: save it, and give the file")
        rest = memoryview(chunk)
        while rest:
            rest = rest[file.write(rest) :]
    return Kept(f"/proc/self/fd/{file.fileno()}", file)
