"""Children that cannot outlive us, a folder that does not stay behind, and the shared memory that a killed NCCL leaves."""

from __future__ import annotations

import ctypes
import glob
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from gpudoctor.collect.strays import none_left

_PR_SET_PDEATHSIG = 1
_GRACE_S = 2.0  # after SIGKILL: a process inside the driver may take a moment, one that hangs there is given up
_SHM = "/dev/shm/nccl-*"
MOST_OUTPUT = 32 << 20  # bytes of one stream: a table of nccl-tests is some KiB
_LOOK_S = 0.2  # how often it is looked whether the program still runs, and how much it wrote to standard error


class Child:
    """One process and all it starts: its own session, killed when we end, output in files of ours."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], stdin: bool = False, folder: str = ".") -> None:
        """OSError where it cannot be started."""
        libc = ctypes.CDLL(None)
        parent = os.getpid()

        def tie() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        self.taken = 0
        self.flooded = False
        self.err = tempfile.TemporaryFile(dir=folder)
        self.process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.err,
            env=dict(env),
            start_new_session=True,
            preexec_fn=tie,  # survives the exec: a program that is not ours dies with us as well
        )

    def send(self, data: bytes) -> None:
        """BrokenPipeError where it has gone."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, until: float) -> bytes | None:
        """What comes next on its output; b"" at its end, None where `until` (time.monotonic) passed first.

        The end of the program is the end of its output, whoever else holds the pipe. More than it may print ends it too:
        `flooded`.
        """
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return None
            over = self.process.poll() is not None  # before the look at the pipe: what it wrote at last is there then
            if max(self.taken, os.fstat(self.err.fileno()).st_size) > MOST_OUTPUT:
                self.flooded = True
                return b""
            if select.select([descriptor], [], [], 0 if over else min(left, _LOOK_S))[0]:
                part = os.read(descriptor, 1 << 16)
                self.taken += len(part)
                return part
            if over:
                return b""

    def errors(self, most: int = 1 << 16) -> str:
        """The end of what it wrote to standard error."""
        size = os.fstat(self.err.fileno()).st_size
        return os.pread(self.err.fileno(), most, max(0, size - most)).decode("utf-8", "replace")

    def wait(self, seconds: float) -> int | None:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> bool:
        """End the whole group. False where the kernel does not let it go (a driver call that hangs)."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        gone = self.wait(_GRACE_S) is not None
        if not gone:
            self.process.returncode = -signal.SIGKILL  # nobody is to wait for it at the interpreter's end
        deadline = time.monotonic() + _GRACE_S
        while gone and _group_lives(self.process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self.err.close()
        return gone


def _group_lives(group: int) -> bool:
    """Orphans of the group that their new parent has not reaped yet count as gone once they are zombies."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError), open(path, encoding="utf-8", errors="replace") as stream:
            rest = stream.read().rpartition(")")[2].split()
            if int(rest[2]) == group and rest[0] not in ("Z", "X"):
                return True
    return False


@contextmanager
def room() -> Iterator[str]:
    """A folder for sockets, logs and stores, removed at the end; and with it the shared memory that appeared meanwhile.

    SIGTERM and SIGHUP leave through here, as Ctrl-C does.
    """
    before = set(glob.glob(_SHM))
    restore = _leave_on_signals()
    try:
        with none_left(), _folder() as folder:
            yield folder
    finally:
        remove_shm(set(glob.glob(_SHM)) - before)
        restore()


@contextmanager
def _folder() -> Iterator[str]:
    try:
        folder = tempfile.mkdtemp(prefix="gpudoctor-")
    except OSError:  # no folder for temporary files that can be written
        folder = tempfile.mkdtemp(prefix="gpudoctor-", dir="/dev/shm")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_shm(paths: set[str]) -> None:
    """Segments of ours that nobody has open or mapped: NCCL unlinks them itself unless it is killed before."""
    ours = {p for p in paths if _owner(p) == os.getuid()}
    if not ours:
        return
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with suppress(OSError), open(maps, encoding="utf-8", errors="replace") as stream:
            text = stream.read()
            ours -= {p for p in ours if p in text}
    for path in ours:
        with suppress(OSError):
            os.unlink(path)


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _leave_on_signals() -> Callable[[], None]:
    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {}
    with suppress(ValueError):  # not in the main thread
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, leave)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
