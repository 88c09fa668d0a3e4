"""What `check`, `facts` and their like share: the options that say where facts come from, and the look itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpudoctor.ingest import Intake, take
from gpudoctor.record import KeyedRecord

C = TypeVar("C", bound=Callable[..., Any])
PROBE_DIR = "GPUDOCTOR_PROBE_DIR"


class Look(KeyedRecord):
    """What was read, from where, and how long it took."""

    intake: Intake
    source: dict[str, object]
    seconds: float
    timed_out: bool
    notes: tuple[str, ...]


def source_options(command: C) -> C:
    """--from, --live, --job, --timeout."""
    for option in (
        click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="SECONDS", help="Limit for the whole command."),
        click.option("--job", is_flag=True, help="Also look at the GPU processes now running."),
        click.option("--live", is_flag=True, help="With --from: look at this host too, and join both."),
        click.option("--from", "paths", multiple=True, metavar="PATH", help="Judge what was recorded: a snapshot, a folder, any text file, or - for standard input. Repeatable."),
    ):
        command = option(command)
    return command


def look(paths: tuple[str, ...], live: bool, job: bool, timeout: float) -> Look:
    """Read everything that was asked for. Raises click.UsageError for a path that cannot be opened."""
    started = time.monotonic()
    snapshots = []
    notes: list[str] = []
    timed_out = False
    if live or not paths:
        from gpudoctor.collect.collector import collect, replay

        recorded = os.environ.get(PROBE_DIR)
        if recorded:
            try:
                snapshot = replay(recorded, job=job)
            except OSError as error:
                raise click.UsageError(f"{PROBE_DIR}={recorded}: {error.strerror or error}") from error
            notes.append(f"every probe was answered from {recorded} ({PROBE_DIR}), not from this host")
        else:
            snapshot, timed_out = collect(job=job, deadline_s=timeout)
        snapshots.append(snapshot)
    try:
        from gpudoctor.read.source import Unreadable, open_all

        intake = take(snapshots, open_all(paths))
    except Unreadable as error:
        raise click.UsageError(f"cannot read {error}") from error
    source: dict[str, object] = {"kind": "live" if snapshots else "recorded", "paths": list(paths)}
    captured = next((s.captured_at for s in snapshots if s.captured_at), None)
    if captured:
        source["captured_at"] = captured
    return Look(
        intake=intake, source=source, seconds=time.monotonic() - started, timed_out=timed_out, notes=tuple(notes)
    )
