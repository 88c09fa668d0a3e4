"""Processes that a child started and that left its process group, so that stopping the group does not reach them.

While the children run we are their subreaper: whoever loses its parent becomes ours, and can be found and ended. Out of
reach stay processes of another user (setuid programs), those in a system call that cannot be interrupted, and everything
when we are killed ourselves (SIGKILL).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_depth = 0  # a look at the host may be part of a measurement: the outer one keeps what the inner one has no need for
_MOST_S = 0.5  # killed ones are gone within milliseconds; each generation takes one look


@contextmanager
def none_left() -> Iterator[set[int]]:
    """At its end everybody is ended who became our child meanwhile, but those in the set it yields.

    Only where ours is the one thread: with others, a new child may be theirs.
    """
    if _threads() > 1 or not _adopt(True):
        yield set()
        return
    known = set(_children())
    try:
        yield known
    finally:
        _end(known)
        _adopt(False)


def _threads() -> int:
    threading: Any = sys.modules.get("threading")
    return threading.active_count() if threading is not None else 1


def _adopt(wanted: bool) -> bool:
    global _depth
    try:
        import ctypes

        _depth += 1 if wanted else -1
        done: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(_depth > 0), 0, 0, 0)
        return done == 0
    except (ImportError, OSError, AttributeError):  # a Python without it, a C library without prctl
        return False


def _end(known: set[int]) -> None:
    """Their own children become ours when they go, so it is looked again until nobody is left."""
    until = time.monotonic() + _MOST_S
    while left := [pid for pid in _children() if pid not in known]:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > until:
            return
        time.sleep(0.001)


def _children() -> list[int]:
    """Our children, zombies too."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as stream:
            return [int(word) for word in stream.read().split()]
    except (OSError, ValueError):  # a kernel without CONFIG_PROC_CHILDREN, or without /proc
        return list(_by_parent())


def _by_parent() -> Iterator[int]:
    mine = os.getpid()
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stream:
                if int(stream.read().rpartition(b")")[2].split()[1]) == mine:
                    yield int(name)
