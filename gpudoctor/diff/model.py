"""What a comparison is made of: two sides, and the changes between them. Pure data."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.base import Entry
from gpudoctor.facts.store import FactStore
from gpudoctor.model import NOTE, CheckResult, Diagnosis, Evidence, Missing
from gpudoctor.record import KeyedRecord

WORSE, BETTER, OTHER = "worse", "better", "changed"  # what a change does to the host's communication
TIME, NODES = "time", "nodes"  # one host at two moments, or two hosts
SIDES = ("A", "B")


class Side(KeyedRecord):
    """One of the two: what was read of it, and what the checks said."""

    path: str
    stores: tuple[FactStore, ...]
    results: tuple[CheckResult, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    missing: tuple[Missing, ...] = ()
    captured_at: str | None = None
    saved: bool = False  # a JSON report: it holds less than the outputs that it was made of


class Change(KeyedRecord):
    """One thing that is not as it was. `effects`: what this change explains, so that one cause is one block."""

    kind: str  # stable word: pcie-link, pair-path, nvlink, driver, setting, finding, …
    subject: str  # as in findings, in the numbers of B where both have one
    message: str
    direction: str = OTHER
    severity: str = NOTE
    before: str | None = None
    after: str | None = None
    evidence: tuple[tuple[str, Evidence], ...] = ()  # ("A" or "B", where it was read)
    about: frozenset[str] = frozenset()  # every subject that it concerns: what may explain it, and what it may explain
    slug: str | None = None  # of a finding
    effects: tuple[Change, ...] = ()
    extent: int = 1  # of how many parts (links) it speaks
    host: str | None = None


class Comparison(KeyedRecord):
    """All that two sides differ in, most important first."""

    mode: str
    why_mode: str
    changes: tuple[Change, ...] = ()
    varying: tuple[Change, ...] = ()  # differs by nature: counters, idle links, addresses of another host
    missing: tuple[Missing, ...] = ()  # could not be compared
    compared: tuple[str, ...] = ()  # labels of the families of facts that both sides have
    same: bool = False  # the two are one and the same recording


class Notes:
    """What is found while two hosts are gone through."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.changes: list[Change] = []
        self.varying: list[Change] = []
        self.compared: list[str] = []
        self._lacking: dict[tuple[str, str, bool], list[str]] = {}

    def change(self, kind: str, subject: str, message: str, **more: object) -> None:
        about = frozenset((subject, *more.pop("about", ())))  # type: ignore[misc]
        self.changes.append(Change(kind=kind, subject=subject, message=message, about=about, **more))  # type: ignore[arg-type]

    def turn(self, before: object, after: object) -> str:
        """A value at two moments, or on two nodes: neither node was like the other before."""
        return f"{before} -> {after}" if self.mode == TIME else f"{before} on A, {after} on B"

    def vary(self, kind: str, subject: str, message: str) -> None:
        self.varying.append(Change(kind=kind, subject=subject, message=message))

    def lack(self, what: str, reason: str, who: str = "", open_: bool = True) -> None:
        """It could not be compared. What is lacking of several things for one reason is said once.

        open_ False: both sides read the same, which just proves less than it might; the verdict does not hang on it.
        """
        found = self._lacking.setdefault((what, reason, open_), [])
        if who and who not in found:
            found.append(who)

    def only(self, what: str, side: str, who: str = "", why: str | None = None) -> None:
        """Read on one side only."""
        other = SIDES[1 - SIDES.index(side)]
        self.lack(what, f"read only in {side}, not in {other}" + (f" ({why})" if why else ""), who)

    def missing(self) -> tuple[Missing, ...]:
        """What one failed probe leaves open of the same things is one entry, not twenty."""
        alike: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
        for (what, reason, open_), who in self._lacking.items():
            alike.setdefault((reason, open_, tuple(who)), []).append(what)
        return tuple(
            Missing(f"{_few(what, 6)} of {_few(who)}" if who else _few(what, 6), reason, needed=open_)
            for (reason, open_, who), what in alike.items()
        )

    def both(self, what: str, who: str, a: object, b: object) -> bool:
        """Are both values known? One alone is said; none is nothing to compare."""
        if (a is None) != (b is None):
            self.only(what, "A" if b is None else "B", who)
        return a is not None and b is not None


def spots(name: str, a: Entry | None, b: Entry | None) -> tuple[tuple[str, Evidence], ...]:
    """Where one field was read on each side."""
    return tuple((side, entry.at(name)) for side, entry in zip(SIDES, (a, b), strict=True) if entry is not None)


def _few(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


