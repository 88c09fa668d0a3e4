"""Reading what comes through a pipe: once only, and from one that may be held open by somebody who never writes."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Iterator

IDLE_S = 0.2
CHUNK = 1 << 18


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
