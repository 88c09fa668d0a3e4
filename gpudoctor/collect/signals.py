"""Signals while children run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any


def guard_signals() -> Callable[[], None]:
    """SIGTERM and SIGHUP end us through the clean-up; an inherited `ignore SIGCHLD` would hide every exit status."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    wanted: dict[int, Any] = {
        number: leave for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL
    }
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        wanted[signal.SIGCHLD] = signal.SIG_DFL
    before: dict[int, Any] = {}
    with suppress(ValueError):  # not in the main thread: a program that embeds us keeps its handlers
        for number, handler in wanted.items():
            before[number] = signal.signal(number, handler)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
