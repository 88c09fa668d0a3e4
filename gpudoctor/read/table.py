"""All known formats as one table, with their expressions compiled, and one expression that finds any of them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from gpudoctor.pattern import lazy
from gpudoctor.read.digitless import digitless
from gpudoctor.read.formats import OUTPUTS, Format
from gpudoctor.read.host_formats import HOST
from gpudoctor.read.log_formats import LOGS
from gpudoctor.read.tool_formats import TOOLS

FORMATS = (*OUTPUTS, *HOST, *TOOLS, *LOGS)


class Compiled(NamedTuple):
    format: Format
    starts: re.Pattern[str]
    belongs: re.Pattern[str] | None
    first: re.Pattern[str] | None
    until: re.Pattern[str] | None
    hint: re.Pattern[str] | None  # any of the hints

    def begins_in(self, text: str) -> bool:
        """To ask for its words is many times cheaper than the expression that they stand in."""
        if any(map(text.__contains__, self.format.tokens)) or self.hint is not None and self.hint.search(text) is not None:
            return self.starts.search(text) is not None
        return False


@lru_cache(maxsize=1)
def compiled() -> tuple[Compiled, ...]:
    """The table with its expressions, each compiled where it is first asked: a job's log needs few, a snapshot none."""

    def build(pattern: str | None) -> re.Pattern[str] | None:
        return lazy(pattern) if pattern else None

    return tuple(Compiled(f, lazy(f.starts), build(f.belongs), build(f.first), build(f.until), build("|".join(f.hints))) for f in FORMATS)


# Characters from common to rare in logs and prose; those not listed are the rarest.
_COMMON = " etaonisrlhdcum0123456789fpgy.,w:-_bvk/=[]()\"|TISAENPGLRCOMDFUB"
_LITERAL = re.compile(r"(?:[\w\t \"'#:@<>=/-](?![?*+{]))+")


class Telling(NamedTuple):
    """What finds the lines that may matter: as they stand, and when their digits were taken out (it then may find more)."""

    exact: str
    bare: str


def any_of(formats: tuple[Compiled, ...], more: tuple[str, ...] = ()) -> Telling:
    """One expression that finds every token and hint (and more), many times faster than one after the other."""
    tokens = [token for how in formats for token in how.format.tokens]
    hints = [*(hint for how in formats for hint in how.format.hints), *more]
    without = [re.sub("[0-9]", "", token) for token in tokens]
    return Telling(_any_of(tokens, hints), _any_of(without, [digitless(hint) for hint in hints]))


def _any_of(tokens: list[str], hints: list[str]) -> str:
    """It looks for the rarest character of each (`x` of `exitcode`) and only there at what stands around it, so that most of
    a foreign text is passed over without a try.
    """
    groups: dict[str, set[str]] = {}
    for literal, rest in [*((token, "") for token in tokens), *map(_parted, hints)]:
        at = _rarest(literal)
        before = f"(?<={re.escape(literal[: at + 1])})" if at else ""
        groups.setdefault(literal[at], set()).add(before + re.escape(literal[at + 1 :]) + rest)
    return "|".join(f"{re.escape(first)}(?:{'|'.join(sorted(rest))})" for first, rest in sorted(groups.items()))


def _parted(hint: str) -> tuple[str, str]:
    """The literal text at its beginning, and the rest."""
    literal = _LITERAL.match(hint)
    assert literal is not None, f"a hint must begin with a literal character: {hint}"
    return literal[0], hint[literal.end() :]


def _rarest(literal: str) -> int:
    return max(range(len(literal)), key=lambda n: _rarity(literal[n]))


def _rarity(character: str) -> int:
    place = _COMMON.find(character)
    return place if place >= 0 else len(_COMMON)


_LONG = 4096  # characters


class Starts:
    """Which format begins in a line. A log may hold a known word in every line, and each time another.

    telling: finds every token and hint of every format (any_of), by its rarest character.
    """

    def __init__(self, telling: re.Pattern[str]) -> None:
        self._telling = telling
        self.formats = compiled()
        # By that character and the next, where it is not the last: the words they stand in, where in them, and their format's
        # place in the table.
        self._of: dict[str, list[tuple[str, int, int]]] = {}
        for place, how in enumerate(self.formats):
            for literal in dict.fromkeys((*how.format.tokens, *(_parted(hint)[0] for hint in how.format.hints))):
                at = _rarest(literal)
                self._of.setdefault(literal[at : at + 2], []).append((literal, at, place))

    def find(self, text: str) -> Compiled | None:
        """The first in the order of the table, of those of which a word stands in the text."""
        if len(text) > _LONG:  # it may hold thousands of them
            return next((how for how in self.formats if how.begins_in(text)), None)
        return next((self.formats[place] for place in sorted(self.places(text)) if self.formats[place].begins_in(text)), None)

    def places(self, text: str, at: int = 0) -> set[int]:
        """The formats of which a word stands in the text from there on, by their place in the table."""
        places: set[int] = set()
        found = self._telling.search(text, at)
        while found is not None:  # one word may stand within another
            here = found.start()
            for key in (text[here : here + 2], text[here]):
                for literal, at, place in self._of.get(key, ()):
                    if here >= at and text.startswith(literal, here - at):
                        places.add(place)
            found = self._telling.search(text, here + 1)
        return places
