"""How far the reading of large inputs is: one line on the terminal, gone when it is done."""

from __future__ import annotations

import os
import sys
import time

SILENT_S = 1.0  # what is done sooner needs no line
EVERY_S = 0.5


class Progress:
    """Counts bytes; writes only to a terminal."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._total = _size(paths) if self._shown else None
        self._began = time.monotonic()
        self._next = self._began + SILENT_S
        self._bytes = 0
        self._width = 0
        self._name = ""

    def begin(self, name: str) -> None:
        """What is read from now on."""
        self._name = name

    def read(self, size: int) -> None:
        """So many bytes more have been read."""
        if not self._shown:
            return
        self._bytes += size
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._write(line(self._bytes, now - self._began, self._total, self._name)[: _columns() - 1])

    def clear(self) -> None:
        if self._width:
            self._write("")
            self._width = 0

    def _write(self, text: str) -> None:
        """Over the line before it, with blanks: not every terminal knows how to clear one."""
        try:
            sys.stderr.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
            sys.stderr.flush()
        except (OSError, ValueError):  # the terminal went away
            self._shown = False
        self._width = len(text)


def line(size: int, seconds: float, total: int | None, name: str = "") -> str:
    """`read 1.25 GB of 3.05 GB (41 %), 180 MB/s: job.log`"""
    from gpudoctor.read.amount import amount
    from gpudoctor.read.text import clean

    share = f" of {amount(max(total, size))} ({min(100, 100 * size // total)} %)" if total else ""
    where = f": {clean(os.path.basename(name)).encode('ascii', 'replace').decode()}" if name else ""
    return f"read {amount(size)}{share}, {size / 1e6 / seconds:.0f} MB/s{where}"


def size_of(path: str) -> int | None:
    """Bytes of a file that is read as it is; None of all else."""
    return _size((path,))


def _columns() -> int:
    """Of the terminal: a longer line would wrap, and could not be written over."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _size(paths: tuple[str, ...]) -> int | None:
    """Bytes in all; None where they cannot be told before they are unpacked or have come."""
    total = 0
    for path in paths:
        try:
            if not os.path.isfile(path):
                return None
            with open(path, "rb") as stream:
                head = stream.read(4)
            if head == b"\x28\xb5\x2f\xfd" or head[:2] in (b"\x1f\x8b", b"PK"):
                return None
            total += os.path.getsize(path)
        except (OSError, ValueError):
            return None
    return total
