"""One run of gpudoctor as a real process: how it ended, after how long, and what it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT

MARK = "FAULT_CELL"
CAP_S = 60.0  # beyond its --timeout: it hangs. Far over the promised grace, because machines of tests are slow
GONE_S = 1.0  # what is killed needs a moment to be gone
_numbers = count()

WELL = (sys.executable, "-m", "gpudoctor")


class Ended(NamedTuple):
    """`status` None: it had to be killed."""

    status: int | None
    out: bytes
    err: bytes
    seconds: float
    left: tuple[str, ...]  # processes
    files: tuple[str, ...]  # in its folder for temporary files


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    program: Sequence[str] = WELL,
    cwd: Path | str = ROOT,
    stdout: int | str = subprocess.PIPE,
    prepare: Callable[[], None] | None = None,
    during: Callable[[subprocess.Popen[bytes]], None] | None = None,
    tmp: Path | None = None,
) -> Ended:
    """Run it. stdout: a path is opened for writing. during: called once it has been started."""
    mark = f"{os.getpid()}-{next(_numbers)}"
    began = time.monotonic()
    target = open(stdout, "wb") if isinstance(stdout, str) else None
    try:
        process = subprocess.Popen(
            [*program, *words],
            env={**env, MARK: mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=target if target is not None else stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=prepare,
        )
    finally:
        if target is not None:
            target.close()
    held: list[bytes] = [b"", b""]
    readers = [threading.Thread(target=_drain, args=(s, held, n)) for n, s in enumerate((process.stdout, process.stderr)) if s]
    for reader in readers:
        reader.start()
    if during is not None:
        during(process)
    status: int | None = None
    with suppress(subprocess.TimeoutExpired):
        status = process.wait(timeout_s + CAP_S)
    seconds = time.monotonic() - began
    if status is None:
        process.kill()
        process.wait()
    left = remaining(mark)
    for reader in readers:
        reader.join()
    files = tuple(sorted(p.name for p in tmp.iterdir())) if tmp is not None else ()
    return Ended(status, held[0], held[1], seconds, left, files)


def _drain(stream: object, held: list[bytes], number: int) -> None:
    """All of it, but only so much is kept."""
    while part := os.read(stream.fileno(), 1 << 16):  # type: ignore[attr-defined]
        if len(held[number]) < 8 << 20:
            held[number] += part
    stream.close()  # type: ignore[attr-defined]


def remaining(mark: str) -> tuple[str, ...]:
    """Processes of that run that live on, by the mark in their environment. They are ended here."""
    until = time.monotonic() + GONE_S
    while (found := marked(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return tuple(found.values())


def marked(mark: str) -> dict[int, str]:
    """pid -> command line."""
    wanted = f"{MARK}={mark}\0".encode()
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environ = Path("/proc", name, "environ").read_bytes()
                if wanted in environ + b"\0":
                    words = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(name)] = words.decode("utf-8", "replace").strip()
            except OSError:
                continue
    return found
