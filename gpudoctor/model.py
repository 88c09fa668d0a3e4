"""What flows from checkers to reports: evidence, findings, results, diagnoses. Pure data, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpudoctor.record import Record

# Plain strings instead of enums: they are what the JSON promises, and they cost nothing to define.
ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)  # most severe first
CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
CONFIDENCES = (CERTAIN, LIKELY, POSSIBLE)
# What a remedy does to a running system; `hardware` needs hands on the machine.
RISKS = ("none", "reversible", "disruptive", "hardware")
OK, FOUND, SKIPPED, BROKEN = "ok", "found", "skipped", "error"  # status of one result


def severity_rank(severity: str) -> int:
    """0 for error, 1 for warning, 2 for note: sorts the worst first."""
    return SEVERITIES.index(severity)


class Evidence(NamedTuple):
    """Where a value was read. Every field of every entry has one, thousands on a large host: so it is a plain tuple.

    source: the probe's command or the file as the user named it.
    where: a place in it that can be looked up: `line 12`, or a sysfs path.
    value: the text as it stood there, control characters removed.
    """

    source: str
    where: str
    value: str


class Threshold(Record):
    """A limit a checker applies; shown by `explain` so that nobody has to guess it."""

    name: str
    value: float
    unit: str
    source: str
    date: str


class Cause(Record):
    """One entry of the catalogue: a stable slug with its code and what a reader wants to know of it."""

    code: str  # GDnnn, never reused
    slug: str
    title: str
    severity: str  # the rule in words, as in "error; a hang alone: warning"
    reasoning: str
    evidence: str  # which outputs settle it
    remedy: str
    thresholds: tuple[Threshold, ...] = ()


class Step(Record):
    """One step of a remedy. gpudoctor prints commands and never runs them."""

    step: str
    command: str | None = None
    risk: str = "none"
    verify: str | None = None


class Gain(Record):
    """What the fix is worth, where it can be said in numbers."""

    before: float
    after: float
    unit: str


class Finding(Record):
    """One fact that is not as it should be. `subject` is as the contract lists them (`gpu:BDF`, `pair:0-1`, …)."""

    slug: str
    severity: str
    subject: str
    message: str
    evidence: tuple[Evidence, ...]
    confidence: str = CERTAIN
    cost: str | None = None  # in words, for the reader: "at most 7.9 of 31.5 GB/s each way"
    remediation: tuple[Step, ...] = ()
    gain: Gain | None = None
    # Set by the engine when the input names more than one host; by a checker of a job's log that names the host it speaks of.
    host: str | None = None
    # The runs of the input that it is about, by where their output begins; empty: all of them. What one run was told
    # explains nothing of another.
    runs: tuple[Evidence, ...] = ()


class CannotTell(Record):
    """A checker ran, but this subject could not be judged. Never counts as healthy."""

    slug: str
    reason: str
    subject: str = "host"


class CheckResult(Record):
    """One per code, whatever number of checkers say it."""

    code: str
    slug: str
    status: str  # OK, FOUND, SKIPPED, BROKEN
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    # False: skipped only because nobody gave what it judges (a log, a measurement); not counted as a check left unmade.
    offered: bool = True


class Diagnosis(Record):
    """A root cause with the findings it explains."""

    finding: Finding  # the root
    explains: tuple[Finding, ...] = ()
    # Findings that say the same of other subjects, folded in so that a reader sees them once.
    alike: tuple[Finding, ...] = ()


NOTHING_KNOWN = "a known output"  # the fact that is missing when no source was recognised at all
UNBUILT = "whether the communicator came about"  # of a log that ends while ranks still wait for others
NO_GPU = "an NVIDIA GPU"  # a live look at a host that has none


class Missing(Record):
    """What could not be read, why, and what would help."""

    fact: str
    reason: str
    hint: str | None = None  # a command that would give it
    # A source without which a live check cannot be called healthy (contract: exit status 3).
    needed: bool = False
    pressing: bool = False  # to be asked for before all others: `hint` is what to give, in words or as a command


class Report(Record):
    """Everything a formatter needs."""

    source: Mapping[str, object]
    hosts: tuple[object, ...]  # facts.store.FactStore, one per host
    results: tuple[CheckResult, ...]
    diagnoses: tuple[Diagnosis, ...]
    missing: tuple[Missing, ...]
    verdict: str  # pass, fail, unknown
    exit_code: int
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # said in the head: replayed host, timed out, …
    unknown_input: tuple[str, ...] = ()  # files in which nothing was recognised
    fail_on: str = ERROR  # findings from this severity on make the verdict "fail"
