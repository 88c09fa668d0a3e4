"""How the program ends: by signals in order, and with its standard streams as they are, closed or full."""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any

_AGAIN_S = 0.01  # after an interrupt that got lost in a callback of the interpreter
_TIDY_S = 5.0  # a second Ctrl-C so soon does not keep the first from tidying up


class Left(KeyboardInterrupt):
    """A signal asks us to leave. Nobody catches it but main()."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


def status_of(error: BaseException | None) -> int:
    """The exit status of an interrupt, or of what it caused."""
    while error is not None and not isinstance(error, Left):
        error = error.__cause__
    return error.status if error is not None else 128 + signal.SIGINT


def leave_in_order() -> None:
    """From here on SIGINT, SIGTERM and SIGHUP unwind the stack, so that children and temporary files are seen to."""
    first: list[float] = []

    def leave(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if first and now - first[0] < _TIDY_S:
            return
        first[:] = [now]
        raise Left(number)

    def lost(what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, Left):
            sys.__unraisablehook__(what)
            return
        status = what.exc_value.status

        def again(number: int, frame: FrameType | None) -> None:
            raise Left(status - 128)

        signal.signal(signal.SIGALRM, again)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

    with suppress(ValueError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, leave)
        sys.unraisablehook = lost


def leave_no_more() -> None:
    """The status is settled: nothing is to interrupt the interpreter while it ends."""
    with suppress(ValueError):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def ready_streams() -> None:
    """A closed stream is as good as /dev/null; what the terminal's encoding lacks is escaped, as in JSON."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        for number in range(3):
            with suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        sys.stdin = sys.stdin or open(0, closefd=False)
        sys.stdout = sys.stdout or open(1, "w", closefd=False)
        sys.stderr = sys.stderr or open(2, "w", closefd=False)
    codecs.register_error("gpudoctor", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="gpudoctor")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)), error.end


def complain(words: str) -> None:
    """To standard error, which may be gone as well."""
    with suppress(OSError, ValueError):
        sys.stderr.write(words.encode("ascii", "backslashreplace").decode() + "\n")
        sys.stderr.flush()


def discard_output() -> None:
    """What could not be written is not tried once more when the interpreter ends."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def flushed() -> OSError | None:
    """Everything is written; or why not."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    return None


def where(error: BaseException) -> str:
    """Type, words, and the line that raised it."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno})" if trace is not None else ""
    return f"{type(error).__name__}: {error}{at}"
