"""Base of all facts, and how two sources for one thing become one entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from gpudoctor.model import Evidence
from gpudoctor.record import EMPTY, KeyedRecord, Record, replace


class Contradiction(Record):
    """Two sources disagree; the first stays, and the report says so."""

    fact: str
    kept: Evidence
    other: Evidence


class Loss(Record):
    """Something in the input that could not be read (a cut line, a mangled row). Goes under `missing`."""

    fact: str
    reason: str
    # True: an input was left before its end, and what stands behind is not known. Where no fault was found, nothing is in order.
    unread: bool = False


class Entry(KeyedRecord):
    """One thing that was observed. `origin` says where each field was read; `*` stands for all not named."""

    origin: Mapping[str, Evidence] = EMPTY
    # Fields in which two sources may not differ. Values that change while one looks (speed, clocks) are left out.
    STABLE: ClassVar[tuple[str, ...]] = ()

    def at(self, name: str) -> Evidence:
        """Evidence for one field; an entry without any is a programming error."""
        found = self.origin.get(name) or self.origin.get("*")
        if found is None:
            return Evidence("unknown", name, str(getattr(self, name, "")))
        return found


class Fact(Record):
    """One family of facts. `label` is how a reader calls it, `hint` a command that shows it."""

    label: ClassVar[str] = ""
    hint: ClassVar[str | None] = None
    # True: only there where somebody gives it (a log, a measurement, --job). Its absence is not missing, and the checks
    # that need it are not counted among those that could have been made.
    on_request: ClassVar[bool] = False

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Any:
        """Several sources to one fact. The default keeps the first; a family of entries overrides it."""
        return parts[0]


E_ = TypeVar("E_", bound=Entry)


def merge_entry(kept: E_, other: E_, what: str, say: Callable[[Contradiction], None]) -> E_:
    """Fill what `kept` does not know from `other`; say where both know and differ in a stable field."""
    changes: dict[str, Any] = {}
    known, given = kept.__dict__, other.__dict__  # several times quicker than getattr, and this runs for every entry
    for name in kept._fields:
        theirs = given[name]
        if theirs is None or name == "origin":
            continue
        mine = known[name]
        if mine is None:
            changes[name] = theirs
        elif mine != theirs and name in kept.STABLE:
            say(
                Contradiction(
                    f"{what}: {name.replace('_', ' ')}", _valued(kept.at(name), mine), _valued(other.at(name), theirs)
                )
            )
    if not changes:
        return kept
    return replace(kept, **changes, origin={**kept.origin, **{name: other.at(name) for name in changes}})


def _valued(evidence: Evidence, value: object) -> Evidence:
    return Evidence(evidence.source, evidence.where, str(value))


def merge_keyed(
    entries: Iterable[E_],
    key: Callable[[E_], Any],
    what: Callable[[E_], str],
    say: Callable[[Contradiction], None],
) -> tuple[E_, ...]:
    """Entries with the same key become one; the order of first sight is kept."""
    out: dict[Any, E_] = {}
    for entry in entries:
        k = key(entry)
        out[k] = merge_entry(out[k], entry, what(entry), say) if k in out else entry
    return tuple(out.values())
