"""NCCL's complaints by family: one table for the reader of logs, for the checkers and for `explain`."""

from __future__ import annotations

import re
import sys
from functools import cache, lru_cache

from gpudoctor import shipped
from gpudoctor.record import KeyedRecord
from gpudoctor.required import required

# How near a line is to the cause. The first line of the lowest tier is the root, the rest follows from it.
NAMES_IT, GENERAL, PEER, ECHO, DOES_WITHOUT, HARMLESS = 0, 1, 2, 3, 8, 9


class Family(KeyedRecord):
    """Messages that mean the same thing, in the words of every version that prints them."""

    id: str
    pattern: str  # regular expression, searched in the message; its named groups become fields
    tier: int
    versions: str
    meaning: str
    remedy: str
    slug: str | None = None
    file: str | None = None  # regular expression that NCCL's source file must match
    example: str = ""
    ends_if_last: bool = False  # NCCL may go on after it: an end where its process says next that a call failed

    def matches(self, text: str, file: str | None) -> re.Match[str] | None:
        if self.file is not None and not (file and re.search(self.file, file)):
            return None
        words = required(self.pattern)
        if words is not None and not any(map(text.__contains__, words)):
            return None
        return _compiled(self.pattern).search(text)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """In order: the first that matches a line takes it."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    table = tomllib.loads(shipped.text("nccl-messages.toml"))
    return tuple(Family(id=name, **entry) for name, entry in table.items())


@lru_cache(maxsize=1)
def ending() -> frozenset[str]:
    """Families that end a run only where nothing but the result of a call follows."""
    return frozenset(f.id for f in families() if f.ends_if_last)


def family(name: str) -> Family | None:
    """The family of this name."""
    return next((f for f in families() if f.id == name), None)


def classify(text: str, file: str | None = None) -> tuple[Family, dict[str, str]] | None:
    """The family of one message and what its words name; None for a message of no known family.

    A text that does not end in a line end may be cut: what stands at its very end is not taken for whole.
    """
    return _first(families(), text, file)


def classify_again(text: str, file: str | None, before: Family | None) -> tuple[Family, dict[str, str]] | None:
    """The same for a text that differs from an earlier one in its digits only, each for one: which was of that family, or of none.

    A switch that fails leaves a hundred thousand messages that name other ports.
    """
    return _first(_told_by_digits(before.id if before is not None else None), text, file)


def _first(entries: tuple[Family, ...], text: str, file: str | None) -> tuple[Family, dict[str, str]] | None:
    for entry in entries:
        found = entry.matches(text, file)
        if found is not None:
            fields = found.groupdict()
            return entry, {k: v for k, v in fields.items() if v is not None and found.end(k) < len(text)}
    return None


_EACH_FOR_ONE = re.compile(r"\{\d*,?\d*\}|0-9")  # how often, and any digit
_BY_DIGITS = re.compile(r"[0-9]|\(\?P=")


@cache
def _told_by_digits(before: str | None) -> tuple[Family, ...]:
    """Of the families up to this one those that ask which digit stands somewhere, and itself."""
    entries: list[Family] = []
    for entry in families():
        if entry.id == before:
            return (*entries, entry)
        if _BY_DIGITS.search(_EACH_FOR_ONE.sub("", entry.pattern)) is not None:
            entries.append(entry)
    return tuple(entries)
