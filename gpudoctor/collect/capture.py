"""One probe and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from gpudoctor.facts.base import Loss
from gpudoctor.facts.outcomes import Outcome, Outcomes
from gpudoctor.model import Evidence
from gpudoctor.read.section import Section
from gpudoctor.read.text import clean, lines_of
from gpudoctor.record import KeyedRecord

MAX_LINES = 500_000  # of one probe's output: what is longer is a flood, and must not cost minutes and gigabytes
# How a probe can end. `ok` is exit status 0; `exit` any other; `stuck` could not even be killed.
STATUSES = ("ok", "exit", "signal", "timeout", "stuck", "absent", "unrunnable", "oversize")


class Probe(KeyedRecord):
    """A command that looks and never changes anything."""

    id: str  # stable: file names and old snapshots use it
    argv: tuple[str, ...]  # `{python} {probe}/NAME.py` stands for a child program, run by this interpreter
    kind: str | None  # format of its output (read/table.py); None: an output to be recognised by what it is
    shown: str  # the command as a person would type it, used as the evidence's source
    timeout_s: float = 30.0
    driver: bool = False  # talks to the NVIDIA driver: the first of these may wait for it to load
    needed: bool = False  # one of the three sources a live check cannot do without
    optional: bool = False  # run on request only (--job)


class Capture(KeyedRecord):
    """The outcome of one probe, raw."""

    probe: Probe
    status: str
    rc: int | None = None
    out: bytes = b""
    err: bytes = b""
    seconds: float = 0.0
    timeout_s: float | None = None


class Snapshot(KeyedRecord):
    """All captures of one host: in memory for a live look, from a directory for a recorded one."""

    captures: tuple[Capture, ...]
    host: str | None = None
    captured_at: str | None = None
    live: bool = False
    replayed_from: str | None = None  # GPUDOCTOR_PROBE_DIR
    losses: tuple[Loss, ...] = ()

    def of(self, probe_id: str) -> Capture | None:
        return next((c for c in self.captures if c.probe.id == probe_id), None)


def sections_of(snapshot: Snapshot) -> Iterator[Section]:
    """Each capture that printed something and has a format becomes a section."""
    for capture in snapshot.captures:
        kind = capture.probe.kind
        if not capture.out or capture.status == "oversize":  # a flood is no answer
            continue
        if kind is None:
            from gpudoctor.read.recognise import Recogniser

            yield from Recogniser(capture.probe.shown, snapshot.host).run([capture.out])
            continue
        lines = tuple(islice(lines_of([capture.out]), MAX_LINES))
        if lines and lines[-1].cut and capture.out[-1:] != b"\n":
            # A probe that was stopped may have printed half a value: its unfinished last line is dropped.
            lines = lines[:-1]
        if lines:
            yield Section(
                kind=kind,
                source=capture.probe.shown,
                lines=lines,
                host=snapshot.host,
                command=capture.probe.shown,
                live=True,
            )


def outcomes_of(captures: Iterable[Capture]) -> Outcomes:
    """How the probes ended, as a fact that checkers can read."""
    return Outcomes(
        tuple(
            Outcome(
                probe=c.probe.id,
                argv=c.probe.argv,
                status=c.status,
                rc=c.rc,
                seconds=c.seconds,
                stderr=clean(c.err[:2000].decode("utf-8", "replace").replace("\n", " ")).strip(),
                timeout_s=c.timeout_s,
                origin={"*": Evidence(c.probe.shown, "exit status", ended(c))},
            )
            for c in captures
        )
    )


def ended(capture: Capture) -> str:
    """How it ended, in words."""
    limit = capture.timeout_s or capture.probe.timeout_s
    err = clean((capture.err or capture.out)[-300:].decode("utf-8", "replace").replace("\n", " ")).strip()
    return {
        "ok": "exit status 0" if capture.out else "printed nothing, exit status 0" + (f": {err}" if err else ""),
        "exit": f"exit status {capture.rc}" + (f": {err}" if err else ""),
        "signal": f"ended by signal {abs(capture.rc or 0)}",
        "timeout": f"no answer in {limit:g} s, stopped",
        "stuck": f"no answer in {limit:g} s and could not be stopped (a process in an uninterruptible system call)",
        "absent": err or "not installed",
        "unrunnable": f"could not be started: {err}" if err else "could not be started",
        "oversize": "stopped: its output passed the size limit",
    }[capture.status]
