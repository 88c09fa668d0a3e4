"""More processors for a long text: its chunks are sifted by child processes, their answers used in the order of the text.

What a chunk holds depends on the chunk alone (gpudoctor.read.sift), so that it does not matter who finds it. A child that
dies or does not answer ends the team, never the reading: its chunk, and all that follow, are sifted here.
"""

from __future__ import annotations

import marshal
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpudoctor.read.sift import Sieve, Sifted

if TYPE_CHECKING:
    from mmap import mmap
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

AFTER = 16 << 20  # bytes read before children pay for their start
MEMBERS = 4  # at most: what only one process can do takes a quarter of the time
GATHERED = 8  # chunks handed over at once
_ROOM = 4 << 20  # bytes of a chunk that a child finds in memory; a larger one goes through its pipe
PATIENCE_S = 30.0  # a chunk takes milliseconds


class _Member(NamedTuple):
    process: BaseProcess
    line: Connection
    memory: mmap  # shared with the child: a pipe would wake both for every 64 KiB of a chunk


class Team:
    """Children that sift. Each has one chunk at a time, so that neither side ever waits to write while the other does."""

    def __init__(self, after: int = AFTER, members: int | None = None) -> None:
        self._left = after
        self._size = members if members is not None else min(MEMBERS, len(os.sched_getaffinity(0)))
        self._idle: deque[_Member] = deque()
        self._all: list[_Member] = []

    def ahead(self, chunks: Iterator[bytes], sieve: Sieve) -> Iterator[tuple[bytes, Sifted | None]]:
        """Each chunk with what it holds; None where nobody has looked yet."""
        at_work: deque[tuple[bytes, _Member]] = deque()
        try:
            for chunk in self._gathered(chunks):
                self._left -= len(chunk)
                if self._left < 0 and not self._all and self._size > 1:
                    self._begin(sieve)
                if self._all and not self._idle:
                    yield at_work[0][0], self._answer(at_work.popleft()[1])
                if not self._give(chunk, at_work):
                    while at_work:
                        yield at_work[0][0], self._answer(at_work.popleft()[1])
                    yield chunk, None
            while at_work:
                yield at_work[0][0], self._answer(at_work.popleft()[1])
        finally:
            if at_work:  # the reader stopped early: nobody will ask for these answers
                self.close()

    def _gathered(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Children get more at a time: what is said again within a chunk is handed back once."""
        held: list[bytes] = []
        for chunk in chunks:
            if self._all and chunk.endswith(b"\n"):
                held.append(chunk)
                if len(held) < GATHERED:
                    continue
                chunk = b""
            if held:
                yield b"".join(held)
                held.clear()
            if chunk:  # never behind whole lines: it may be the beginning of one
                yield chunk
        if held:
            yield b"".join(held)

    def _begin(self, sieve: Sieve) -> None:
        size, self._size = self._size, 0  # never twice
        if threading.active_count() > 1:
            return  # a child forked beside a running thread may find a lock that nobody will open
        try:
            from mmap import mmap
            from multiprocessing import get_context

            fork = get_context("fork")
            for _ in range(size):
                here, there = fork.Pipe()
                memory = mmap(-1, _ROOM)
                others = [here, *(member.line for member in self._all)]
                process = fork.Process(target=_sift, args=(there, others, memory, sieve), daemon=True)
                process.start()
                there.close()
                self._all.append(_Member(process, here, memory))
        except (OSError, ValueError, ImportError):  # no processes or no memory to be had
            self.close()
        self._idle.extend(self._all)

    def _give(self, chunk: bytes, at_work: deque[tuple[bytes, _Member]]) -> bool:
        if not self._idle:
            return False
        member = self._idle.popleft()
        try:
            if len(chunk) <= _ROOM:
                member.memory[: len(chunk)] = chunk
                member.line.send_bytes(b"%d" % len(chunk))
            else:
                member.line.send_bytes(b"")
                member.line.send_bytes(chunk)
        except OSError:
            self.close()
            return False
        at_work.append((chunk, member))
        return True

    def _answer(self, member: _Member) -> Sifted | None:
        try:
            if self._all and member.line.poll(PATIENCE_S):
                answer = Sifted(*marshal.loads(member.line.recv_bytes()))
                self._idle.append(member)
                return answer
        except (OSError, EOFError, ValueError, TypeError):
            pass
        self.close()
        return None

    def close(self) -> None:
        """End every child, whatever it does. Nothing is left behind."""
        self._idle.clear()
        self._size = 0
        while self._all:
            member = self._all.pop()
            member.line.close()
            member.process.kill()
            member.process.join()
            member.memory.close()


def _sift(line: Connection, others: list[Connection], memory: mmap, sieve: Sieve) -> None:
    """A child's life: until the other end is closed. An end that it inherited would keep its fellows from noticing that."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the reader ends its children itself
    for other in others:
        other.close()
    with suppress(Exception):  # what breaks here breaks again where the reader looks itself, and is told there
        while True:
            size = line.recv_bytes()
            chunk = memory[: int(size)] if size else line.recv_bytes()
            line.send_bytes(marshal.dumps(tuple(sieve.sift_alone(chunk))))
