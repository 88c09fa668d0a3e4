"""Probes to captures: many child processes at once from one thread, none of which can hold the run up.

Output goes to unnamed files in memory, not to pipes: a grandchild that keeps a pipe open would make a finished command
look unfinished. Every child leads a session of its own, so that its whole group can be stopped.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from gpudoctor import shipped
from gpudoctor.collect.capture import Capture, Probe
from gpudoctor.collect.signals import guard_signals
from gpudoctor.collect.strays import none_left
from gpudoctor.collect.streams import allow_files, content, two_files

MAX_OUTPUT = 32 << 20  # bytes of one stream; the longest honest output (the kernel log of a large host) is under 16 MiB
KEPT = 1 << 16  # of an output that passed it: enough to see what it was
GRACE_S = 1.0  # between SIGTERM and SIGKILL, and between SIGKILL and giving up
_LOOK_S = 0.05  # how often the sizes are looked at; also bounds what a lost wake-up can cost
_BUSY_S = 0.004  # how often children are asked for where the kernel has no pidfd
# Searched after PATH: lspci is in sbin on some systems, nvidia-smi of WSL outside every default PATH.
_ALSO = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/wsl/lib")
_RUN, _TERM, _KILL = "running", "terminated", "killed"


def run(
    jobs: Sequence[tuple[Probe, float]],
    end: float | None = None,
    grace_s: float = GRACE_S,
    max_output: int = MAX_OUTPUT,
    meanwhile: Callable[[], None] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Capture, ...]:
    """Run every probe at once, each for at most its seconds, and none after `end` (time.monotonic) but for two graces.

    The captures come in the order of the jobs. meanwhile: work to do once all have started (they take no notice of us).
    """
    restore = guard_signals()
    try:
        with none_left():
            return _run(jobs, end, grace_s, max_output, meanwhile, _spoken_c(os.environ if environ is None else environ))
    finally:
        restore()


def _run(
    jobs: Sequence[tuple[Probe, float]],
    end: float | None,
    grace_s: float,
    max_output: int,
    meanwhile: Callable[[], None] | None,
    environment: dict[str, str],
) -> tuple[Capture, ...]:
    done: dict[int, Capture] = {}
    running: dict[int, _Child] = {}
    allow_files(len(jobs))
    try:
        for number, (probe, seconds) in enumerate(jobs):
            try:
                running[number] = _Child(probe, seconds, end, grace_s, max_output, environment)
            except _NotStarted as stop:
                done[number] = Capture(probe=probe, status=stop.status, err=stop.words.encode(), timeout_s=seconds)
        if meanwhile is not None:
            meanwhile()
        while running:
            _wait(running.values())
            for number, child in list(running.items()):
                capture = child.step()
                if capture is not None:
                    done[number] = capture
                    del running[number]
    except BaseException:
        _stop_all(running.values())
        raise
    return tuple(done[number] for number in range(len(jobs)))


class _NotStarted(Exception):
    def __init__(self, status: str, words: str = "") -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class _Child:
    """One running probe and how far we have gone in stopping it."""

    def __init__(
        self,
        probe: Probe,
        seconds: float,
        end: float | None,
        grace_s: float,
        max_output: int,
        environment: dict[str, str],
    ) -> None:
        self.probe = probe
        self.grace_s = grace_s
        self.max_output = max_output
        argv, program = _command(probe)
        try:
            self.files = two_files()
        except OSError as error:
            raise _NotStarted("unrunnable", f"no file for its output: {error.strerror or error}") from error
        self.began = time.monotonic()
        self.until = self.began + seconds if end is None else min(self.began + seconds, end)
        self.limit_s = max(0.0, self.until - self.began)
        try:
            self.process = subprocess.Popen(  # argv list, never a shell
                argv,
                executable=program,
                stdin=subprocess.DEVNULL,
                stdout=self.files[0],
                stderr=self.files[1],
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._close()
            raise _NotStarted("unrunnable", _why_not(error)) from error
        self.pidfd = _pidfd(self.process.pid)
        _limit(self.process.pid, max_output)
        self.state = _RUN
        self.stopped_as = ""

    def step(self) -> Capture | None:
        """Look at the child and do what is due; a capture once it has ended or was given up."""
        if _exited(self.process.pid):
            # Before it is reaped its number is still its own, so that the group's is too: strays die with their leader.
            self.signal(signal.SIGKILL)
            return self._capture(self.process.wait())
        now = time.monotonic()
        if self.state == _RUN and max(os.fstat(f).st_size for f in self.files) >= self.max_output:
            self.stopped_as = "oversize"
            self._kill(now)
        elif now >= self.until:
            if self.state == _KILL:
                return self._capture(None)
            if self.state == _RUN:
                self.stopped_as = "timeout"
                self.signal(signal.SIGTERM)
                self.state, self.until = _TERM, now + self.grace_s
            else:
                self._kill(now)
        return None

    def _kill(self, now: float) -> None:
        self.signal(signal.SIGKILL)
        self.state, self.until = _KILL, now + self.grace_s

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _capture(self, rc: int | None) -> Capture:
        seconds = time.monotonic() - self.began
        full = max(os.fstat(f).st_size for f in self.files) >= self.max_output
        if rc is None:
            status = "stuck"
            self.process.returncode = -signal.SIGKILL  # nobody is to wait for it, not even at the interpreter's end
        elif full or self.stopped_as == "oversize":
            status = "oversize"
        elif self.stopped_as:
            status = self.stopped_as
        else:
            status = "ok" if rc == 0 else "signal" if rc < 0 else "exit"
        kept = min(KEPT, self.max_output) if status == "oversize" else self.max_output
        out, err = (content(f, kept) for f in self.files)
        self._close()
        return Capture(
            probe=self.probe,
            status=status,
            rc=rc if status in ("ok", "exit", "signal") else None,
            out=out,
            err=err,
            seconds=round(seconds, 4),
            timeout_s=round(self.limit_s, 1),
        )

    def _close(self) -> None:
        for file in self.files:
            os.close(file)
        pidfd = getattr(self, "pidfd", None)
        if pidfd is not None:
            os.close(pidfd)


def _command(probe: Probe) -> tuple[list[str], str]:
    """The words to run and the program's path. A name without a slash is looked for as a shell would, but never here."""
    argv = list(probe.argv)
    if argv[0] == "{python}":
        python, name = sys.executable or "python3", argv[1].removeprefix("{probe}/").removesuffix(".py")
        argv[:2] = shipped.child(python, name, own=True)
    name = argv[0]
    if "/" in name:
        if not os.path.exists(name):
            raise _NotStarted("absent")
        return argv, name
    barred = ""
    # Relative entries are left out: root looking at a host from someone's folder must not run what lies there.
    for folder in (*(p for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if p.startswith("/")), *_ALSO):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return argv, path
            barred = barred or f"{path} is not executable"
        elif os.path.isdir(path):
            barred = barred or f"{path} is a directory"
    if barred:
        raise _NotStarted("unrunnable", barred)
    raise _NotStarted("absent")


def _spoken_c(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in the C locale: tools then print what their parsers know."""
    kept = {name: value for name, value in environ.items() if not name.startswith("LC_")}
    return {**kept, "LC_ALL": "C", "LANG": "C", "LANGUAGE": "C"}


def _why_not(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOENT:
        return "its interpreter or loader is not there"  # the file itself was found before
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # before Linux 5.3, or forbidden by a sandbox
        return None


def _limit(pid: int, max_output: int) -> None:
    """No core dumps, and no file beyond the limit: the kernel stops a flood between two of our looks."""
    import resource

    for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, max_output)):
        with suppress(AttributeError, OSError, ValueError):  # already gone, or not allowed: the looks remain
            resource.prlimit(pid, what, (most, most))


def _exited(pid: int) -> bool:
    """Has it ended? It stays unreaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _wait(children: Iterable[_Child]) -> None:
    """Until one has ended or something is due."""
    children = tuple(children)
    due = min(child.until for child in children) - time.monotonic()
    poller = select.poll()
    blind = False
    for child in children:
        if child.pidfd is None:
            blind = True
        else:
            poller.register(child.pidfd, select.POLLIN)
    poller.poll(max(0.0, min(due, _BUSY_S if blind else _LOOK_S)) * 1000)


def _stop_all(children: Iterable[_Child]) -> None:
    """We are leaving early (Ctrl-C): nobody stays behind, and nobody is waited for long."""
    left = list(children)
    for child in left:
        child.signal(signal.SIGKILL)
    until = time.monotonic() + 0.5
    while left and time.monotonic() < until:
        left = [child for child in left if child.process.poll() is None]
        time.sleep(_BUSY_S if left else 0)
    for child in left:
        child.process.returncode = -signal.SIGKILL
