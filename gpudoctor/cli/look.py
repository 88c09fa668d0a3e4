"""What `check`, `facts` and their like share: the look at a host, or at what was recorded of one."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import click

from gpudoctor.cli.progress import Progress
from gpudoctor.ingest import Intake, LeftEarly, take
from gpudoctor.model import Missing
from gpudoctor.record import KeyedRecord, replace

if TYPE_CHECKING:
    from gpudoctor.collect.capture import Snapshot
    from gpudoctor.read.source import Source

PROBE_DIR = "GPUDOCTOR_PROBE_DIR"


class Look(KeyedRecord):
    """What was read, from where, and how long it took."""

    intake: Intake
    source: dict[str, object]
    seconds: float
    timed_out: bool
    notes: tuple[str, ...]
    unanswered: tuple[Missing, ...] = ()  # what was asked for by name and gave nothing: without it nothing is healthy


def snapshot_of_host(job: bool, timeout: float) -> tuple[Snapshot, bool]:
    """This host, or the recorded one that stands in for it; True where --timeout cut the look short."""
    from gpudoctor.collect.collector import collect, replay

    recorded = os.environ.get(PROBE_DIR)
    if not recorded:
        return collect(job=job, deadline_s=timeout, meanwhile=_get_ready)
    try:
        return replay(recorded, job=job), False
    except OSError as error:
        raise click.UsageError(f"{PROBE_DIR}={recorded}: {error.strerror or error}") from error


def _get_ready() -> None:
    """Import what the answers need while the probes are still at work: on a sound host this costs no time at all."""
    import gpudoctor.judge  # noqa: F401
    from gpudoctor.collect.probes import PROBES
    from gpudoctor.read.section import parser_module

    for kind in {p.kind for p in PROBES if p.kind and not p.optional}:
        with suppress(ImportError):  # said where the section is parsed
            importlib.import_module(parser_module(kind))


def look(paths: tuple[str, ...], live: bool, job: bool, timeout: float, ras: str | None = None) -> Look:
    """Read everything that was asked for. Raises click.UsageError for a path that cannot be opened."""
    from gpudoctor.read.source import Unreadable, open_all

    started = time.monotonic()
    beside = _beside_the_job() if live or not paths else ()
    progress = Progress(paths)
    clock = _Clock(started, timeout, progress)
    snapshots = []
    notes: list[str] = []
    sources: Iterable[Source] = open_all(paths, clock.late)
    try:
        if live or not paths:
            sources = list(sources)  # a path that cannot be opened is said before the probes run
            snapshot, clock.over = snapshot_of_host(job, timeout)
            if snapshot.replayed_from:
                notes.append(f"every probe was answered from {snapshot.replayed_from} ({PROBE_DIR}), not from this host")
            snapshots.append(snapshot)
        unanswered: list[Missing] = []
        if ras is not None:
            sources = chain(sources, _ask_ras(ras, started + timeout - time.monotonic(), unanswered))
        intake = take(snapshots, clock.watch(sources))
        if intake.copies:
            from gpudoctor.read.same import told

            notes.append(told([*intake.copies]))
        if ras is not None and not unanswered:
            unanswered += _unread_ras(ras, intake)
    except Unreadable as error:
        raise click.UsageError(f"cannot read {error}") from error
    finally:
        progress.clear()
    source: dict[str, object] = {"kind": "live" if snapshots else "recorded", "paths": list(paths)}
    if beside:
        intake = replace(intake, missing=(*beside, *intake.missing))
    captured = next((s.captured_at for s in snapshots if s.captured_at), intake.captured_at)
    if captured:
        source["captured_at"] = captured
    return Look(
        intake=intake, source=source, seconds=time.monotonic() - started, timed_out=clock.over, notes=tuple(notes),
        unanswered=tuple(unanswered),
    )  # fmt: skip


def _beside_the_job() -> tuple[Missing, ...]:
    """What a look in a prolog or an init container cannot see of the job itself."""
    from gpudoctor.collect.stage import unseen

    try:
        return unseen(os.environ)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _ask_ras(where: str, left_s: float, unanswered: list[Missing]) -> list[Source]:
    """What NCCL's RAS service answers, as documents; no answer is something missing, never a sign of health."""
    from gpudoctor.collect import ras
    from gpudoctor.parsers.ras_json import differs
    from gpudoctor.read.source import Document

    try:
        answers, silent = ras.look(where, max(0.1, left_s), differs)
    except ValueError as error:
        raise click.UsageError(f"--ras: {error}") from error
    if silent is not None:
        unanswered.append(Missing(f"NCCL's RAS service at {where}", silent, needed=True))
    return [Document(name=name, chunks=partial(_once, answer)) for name, answer in answers]


def _unread_ras(where: str, intake: Intake) -> Iterator[Missing]:
    """It answered, and nothing of the answer could be read: as good as none."""
    from gpudoctor.facts.hang import Ras

    if not any(Ras in store for store in intake.stores):
        yield Missing(f"NCCL's RAS service at {where}", "its answer was cut, or is none of NCCL's: ask once more", needed=True)


def _once(content: bytes) -> Iterator[bytes]:
    yield content


class _Clock:
    """Ends the reading of sources at a moment; `over` says that it did."""

    def __init__(self, began: float, limit: float, progress: Progress) -> None:
        self.limit = limit
        self.until = began + limit
        self.progress = progress
        self.over = False

    def watch(self, sources: Iterable[Source]) -> Iterator[Source]:
        from gpudoctor.facts.base import Loss
        from gpudoctor.read.source import Document

        left: list[str] = []  # of which nothing was read
        for source in sources:
            if isinstance(source, Loss):
                yield source
            elif self.late():
                left.append(source.name)
            elif isinstance(source, Document):
                yield replace(source, chunks=partial(self._chunks, source.name, source.chunks))
            else:
                yield source
        if left:
            names = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
            yield Loss(names, f"not begun: what came before ran past --timeout {self.limit:g}", unread=True)

    def _chunks(self, name: str, chunks: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
        self.progress.begin(name)
        began = time.monotonic()
        read = 0
        for chunk in chunks():
            if self.late():
                raise LeftEarly(self._told(name, read, time.monotonic() - began))
            if chunk:
                read += len(chunk)
                self.progress.read(len(chunk))
                yield chunk

    def _told(self, name: str, read: int, seconds: float) -> str:
        """How far it was read, and how to go on."""
        from shlex import quote

        from gpudoctor.cli.progress import size_of
        from gpudoctor.read.amount import amount

        if not read:
            return f"ran past --timeout {self.limit:g} before anything of it came: what it holds is unknown"
        size = size_of(name)
        told = f"ran past --timeout {self.limit:g} after {amount(read)}"
        if size is None or size <= read:
            return f"{told} of it: what follows is unknown. Give it more time (--timeout {10 * self.limit:g}), or its end alone"
        need = self.limit + 1.5 * seconds * (size - read) / read
        need = float(f"{need * 1.05:.1g}") if need > 10 * self.limit else float(f"{need * 1.05:.2g}")
        return (
            f"{told} of {amount(size)} ({100 * read // size} %): what follows is unknown. It takes about --timeout {max(need, self.limit + 1):.0f}; "
            f"or give its end alone:  tail -c {read // 2} {quote(name)} | gpudoctor check --from -"
        )

    def late(self) -> bool:
        self.over = self.over or time.monotonic() > self.until
        return self.over
