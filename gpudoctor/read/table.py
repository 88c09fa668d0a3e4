"""All known formats as one table, with their expressions compiled, and one expression that finds any of them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from gpudoctor.pattern import lazy
from gpudoctor.read.digitless import digitless
from gpudoctor.read.formats import OUTPUTS, Format
from gpudoctor.read.log_formats import LOGS
from gpudoctor.read.tool_formats import TOOLS

FORMATS = (*OUTPUTS, *TOOLS, *LOGS)


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
    wanted = [(token, "") for token in tokens]
    for hint in hints:
        literal = _LITERAL.match(hint)
        assert literal is not None, f"a hint must begin with a literal character: {hint}"
        wanted.append((literal[0], hint[literal.end() :]))
    groups: dict[str, set[str]] = {}
    for literal_text, rest in wanted:
        at = max(range(len(literal_text)), key=lambda n: _rarity(literal_text[n]))
        before = f"(?<={re.escape(literal_text[: at + 1])})" if at else ""
        groups.setdefault(literal_text[at], set()).add(before + re.escape(literal_text[at + 1 :]) + rest)
    return "|".join(f"{re.escape(first)}(?:{'|'.join(sorted(rest))})" for first, rest in sorted(groups.items()))


def _rarity(character: str) -> int:
    place = _COMMON.find(character)
    return place if place >= 0 else len(_COMMON)
