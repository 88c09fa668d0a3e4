"""Faults of the system under gpudoctor: descriptors, memory, folders, streams, signals. The tools are well."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.faults.cells import BY_COMMAND, LONG_S, Command
from tests.faults.judge import manners
from tests.faults.run import WELL, Ended, run
from tests.faults.stage import Stage, bare
from tests.support import ROOT

Env = Mapping[str, str]
# How long an interpreter may take before its first line of ours: until then a signal meets Python alone.
MS = 1e-3


class System(NamedTuple):
    """One fault. `may`: the statuses it may end with; `why_not`: a reason why it cannot be made here."""

    id: str
    may: frozenset[int]
    env: Env = {}  # noqa: RUF012
    prepare: Callable[[], None] | None = None
    stdout: int | str = subprocess.PIPE
    during: Callable[[subprocess.Popen[bytes]], None] | None = None
    wrap: tuple[str, ...] = ()  # a program that starts it
    gone: bool = False  # its working folder is deleted
    why_not: str = ""
    loads: bool = True  # a json answer is still promised on status 0, 1, 3


def _limit(what: int, most: int, hard: bool = True) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (most, most if hard else resource.getrlimit(what)[1]))


def _close(*numbers: int) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


def _signal(number: int, seconds: float) -> Callable[[subprocess.Popen[bytes]], None]:
    def send(process: subprocess.Popen[bytes]) -> None:
        time.sleep(seconds)
        process.send_signal(number)

    return send


def _unshared() -> str:
    """Why no mount namespace can be had; nothing where it can."""
    if Path(sys.prefix).is_relative_to("/tmp") or ROOT.is_relative_to("/tmp"):
        return "gpudoctor itself lies under /tmp, which is to be covered"
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    done = subprocess.run(("unshare", "-m", "true"), capture_output=True)
    return "" if done.returncode == 0 else "a mount namespace needs root"


def _mounted(options: str, *places: str) -> tuple[str, ...]:
    """Run in a mount namespace with a tmpfs over these folders."""
    mounts = "; ".join(f"mount -t tmpfs {options} none {p} || exit 97" for p in places)
    return ("unshare", "-m", "/bin/sh", "-c", f'PATH=/usr/bin:/bin:/usr/sbin:/sbin; {mounts}; PATH=$OLD_PATH; exec "$@"', "sh")


CLEAN, ANY, NOT_0, LOOKED = frozenset((0,)), frozenset((0, 1, 3)), frozenset((1, 2, 3)), frozenset((0, 3))
WRITTEN = frozenset((2, 3))  # 3: as Nagios says it
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def faults(signals: int = 6) -> Iterator[System]:
    """All of them; `signals` instants of each signal, drawn from 0-1 s."""
    yield System("standard output closed", CLEAN, prepare=_close(1), stdout=subprocess.DEVNULL, loads=False)
    yield System("standard output on a full disk", WRITTEN, stdout="/dev/full", loads=False)
    yield System("standard error closed", CLEAN, prepare=_close(2))
    yield System("all three streams closed", CLEAN, prepare=_close(0, 1, 2), stdout=subprocess.DEVNULL, loads=False)
    yield System("HOME unset", CLEAN, env={"HOME": ""})
    yield System("PATH empty", NOT_0 | {0}, env={"PATH": ""})
    yield System("working folder deleted", CLEAN, gone=True)
    yield System("LC_ALL=C, UTF-8 mode off", CLEAN, env=ASCII)
    yield System("LC_ALL=POSIX", CLEAN, env={"LC_ALL": "POSIX"})
    yield System("a locale that does not exist", CLEAN, env={"LC_ALL": "xx_YY.nonsense", "LANG": "de_DE.UTF-8"})
    yield System("TMPDIR does not exist", CLEAN, env={"TMPDIR": "/no/such/folder"})
    why = _unshared()
    yield System("no folder for temporary files (read-only)", LOOKED, wrap=_mounted("-o ro", "/tmp", "/var/tmp", "/dev/shm"), env={"TMPDIR": "/tmp"}, why_not=why)
    yield System("temporary files on a full disk", LOOKED, wrap=_mounted("-o size=4k,nr_inodes=2", "/tmp", "/var/tmp", "/dev/shm"), env={"TMPDIR": "/tmp"}, why_not=why)
    yield System("/proc empty", ANY, wrap=_mounted("", "/proc"), why_not=why)
    yield System("24 descriptors", ANY, prepare=_limit(resource.RLIMIT_NOFILE, 24))
    yield System("8 descriptors", NOT_0 | {0}, prepare=_limit(resource.RLIMIT_NOFILE, 8), loads=False)
    yield System("24 descriptors, more on request", CLEAN, prepare=_limit(resource.RLIMIT_NOFILE, 24, hard=False))
    root = "processes of root are not limited" if os.getuid() == 0 else ""
    yield System("no more processes (RLIMIT_NPROC)", NOT_0, prepare=_limit(resource.RLIMIT_NPROC, 1), why_not=root)
    for mib in (64, 96, 160):
        yield System(f"{mib} MiB of address space", ANY | {2}, prepare=_limit(resource.RLIMIT_AS, mib << 20), loads=False)
    yield System("no file may grow (RLIMIT_FSIZE 0)", ANY | {2}, prepare=_limit(resource.RLIMIT_FSIZE, 0), loads=False)
    yield System("SIGCHLD ignored by the parent", CLEAN, prepare=lambda: _ignore(signal.SIGCHLD))
    yield System("SIGHUP ignored (nohup)", CLEAN, prepare=lambda: _ignore(signal.SIGHUP))
    draw = random.Random(20)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for _ in range(signals):
            at = draw.random()
            yield System(f"{number.name} after {at / MS:.0f} ms", ANY | {128 + number}, during=_signal(number, at), loads=False)


def _ignore(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)


def look(fault: System, command: Command) -> Ended:
    """One command under one fault."""
    place = Path(tempfile.mkdtemp(prefix="fault-", dir="/var/tmp" if not fault.wrap else None))
    try:
        # In a mount namespace the stage must lie outside what is covered.
        home = place
        if fault.wrap:
            shutil.rmtree(place)
            home = Path(tempfile.mkdtemp(prefix="fault-", dir=os.environ.get("FAULT_PLACE") or Path.home()))
        stage = Stage(home / "stage")
        env = bare({**stage.env(), **fault.env})
        cwd = home
        if fault.gone:
            cwd = home / "gone"
            cwd.mkdir()
        words = [w.format(bin=stage.bin, folder=home) for w in command.words]
        prepare = fault.prepare

        def ready() -> None:
            if fault.gone:
                os.rmdir(cwd)
            if prepare is not None:
                prepare()

        return run(
            (*words, "--timeout", f"{LONG_S:g}"),
            {**env, "OLD_PATH": env["PATH"]},
            LONG_S,
            (*(shutil.which(w) or w for w in fault.wrap[:1]), *fault.wrap[1:], *WELL),
            cwd=cwd,
            stdout=fault.stdout,
            prepare=ready,
            during=fault.during,
            tmp=stage.tmp,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if fault.wrap:
            shutil.rmtree(home, ignore_errors=True)


def wrong(fault: System, command: Command, ended: Ended) -> list[str]:
    """What it breaks. A signal that came before our first line met Python alone: its words are not ours."""
    if fault.during is not None and early(ended):
        return [*(["left behind"] if ended.left else [])]
    out = list(manners(ended))
    may = {3 if s == 2 and command.id.endswith("nagios") else s for s in fault.may}
    if command.id.endswith("nagios"):
        may |= {2} & set(fault.may) | ({2} if 1 in fault.may else set())
    if command.id.startswith("bandwidth"):
        may |= {2, 3}  # no folder to work in: said, and nothing was measured
    if ended.status is not None and ended.status not in may:
        words = ended.err.decode("utf-8", "replace").strip().splitlines()[-1:]
        out.append(f"status: {ended.status}, not {sorted(may)} {words}")
    if fault.loads and ended.status in (0, 1, 3) and BY_COMMAND[command.id].form == "json" and not ended.out.startswith(b"{"):
        out.append("no JSON")
    if b"gpudoctor broke" in ended.err:
        out.append(ended.err.decode("utf-8", "replace")[:200])
    return out


def early(ended: Ended) -> bool:
    """Did the signal end the interpreter before it had read a line of gpudoctor?"""
    if ended.status in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP) and not ended.err:
        return True
    return b"KeyboardInterrupt" in ended.err and b"gpudoctor/" not in ended.err.replace(sys.executable.encode(), b"")
