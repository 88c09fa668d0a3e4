"""This host to a snapshot in memory: every probe at once; or the same answered from a recorded directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from gpudoctor.collect.capture import Capture, Probe, Snapshot
from gpudoctor.collect.probes import PROBES
from gpudoctor.collect.runner import GRACE_S, run

SLOW_DRIVER_S = 60.0  # loading the driver and waking its GPUs takes tens of seconds on boards with eight of them
_YOUNG_S = 300.0
_PERSISTENCE = "/run/nvidia-persistenced/socket"


def collect(job: bool, deadline_s: float, meanwhile: Callable[[], None] | None = None) -> tuple[Snapshot, bool]:
    """Look at this host. True with it when the deadline, not a probe's own limit, stopped a probe.

    meanwhile: work to do while the probes run.
    """
    began = time.monotonic()
    grace = min(GRACE_S, deadline_s * 0.1)
    # A probe that ignores SIGTERM takes two graces to be given up; what is left then is for the report.
    end = began + max(0.0, deadline_s - 2 * grace - min(0.5, deadline_s * 0.05))
    driver_s = SLOW_DRIVER_S if _driver_may_load() else 0.0
    wanted = [(p, max(p.timeout_s, driver_s) if p.driver else p.timeout_s) for p in PROBES if job or not p.optional]
    # The interpreters first: they take longest.
    order = sorted(wanted, key=lambda job: job[0].argv[0] != "{python}")
    captures = {c.probe.id: c for c in run(order, end, grace, meanwhile=meanwhile)}
    late = any(
        captures[p.id].status in ("timeout", "stuck") and (captures[p.id].timeout_s or s) < s - 0.05 for p, s in wanted
    )
    snapshot = Snapshot(
        captures=tuple(captures[p.id] for p, _ in wanted), host=host_label(), captured_at=now(), live=True
    )
    return snapshot, late


def replay(path: str, job: bool) -> Snapshot:
    """Every probe answered from a recorded host (a directory or .tar.gz). OSError where that is no snapshot."""
    from gpudoctor.collect.snapshot import load
    from gpudoctor.read.source import Folder, Unreadable, open_path

    try:
        folder = next((s for s in open_path(path) if isinstance(s, Folder)), None)
    except Unreadable as error:
        raise OSError(str(error)) from error
    if folder is None:
        raise OSError("it holds no manifest.json, so it is no recorded host")
    recorded = load(folder)
    asked = [p for p in PROBES if job or not p.optional]
    captures = [recorded.of(p.id) or _not_recorded(p, path) for p in asked]
    known = {p.id for p in PROBES}
    captures.extend(c for c in recorded.captures if c.probe.id not in known)
    return Snapshot(
        captures=tuple(captures),
        host=recorded.host,
        captured_at=recorded.captured_at,
        live=True,
        replayed_from=path,
        losses=recorded.losses,
    )


def _not_recorded(probe: Probe, path: str) -> Capture:
    return Capture(probe=probe, status="absent", err=f"not recorded in {path}".encode())


def _driver_may_load() -> bool:
    """Nobody keeps the driver loaded, or the host has just come up: the first question may take long."""
    if not os.path.exists(_PERSISTENCE):
        return True
    try:
        with open("/proc/uptime", encoding="ascii") as stream:
            return float(stream.read().split()[0]) < _YOUNG_S
    except (OSError, ValueError, IndexError):
        return True


def host_label() -> str | None:
    """This host's name without its domain."""
    return os.uname().nodename.split(".")[0] or None


def now() -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
