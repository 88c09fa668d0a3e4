"""Laying out text for a terminal: wrapping, glyphs with ASCII stand-ins, colour that only adds."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudoctor.model import ERROR, NOTE, WARNING
from gpudoctor.read.text import clean
from gpudoctor.record import KeyedRecord

WIDTH = 80
LABEL = 9  # columns of "  What   "
_GLUE = "\ue000"  # a blank at which no line is broken: a private character, which no input keeps and no blank rule touches
_AMOUNT = re.compile(r"(?<=\d) (?=(?:%|[GM]B/s|[KMGT]iB|GT/s)(?![\w/]))")  # 9 % and 20 GB/s stay on one line
_ASCII = {"✗": "x", "·": "-", "✓": "+", "…": "...", "×": "x", "–": "-", "≥": ">=", "≤": "<=", "→": "->", "µ": "u"}
_COLOURS = {ERROR: "31;1", WARNING: "33;1", NOTE: "36", "fail": "31;1", "unknown": "33;1", "pass": "32;1", "dim": "2", "bold": "1"}
MARK = {ERROR: "✗", WARNING: "!", NOTE: "·"}


class Style(KeyedRecord):
    """How to write: the same words in every style."""

    colour: bool = False
    unicode: bool = True
    width: int = WIDTH

    def paint(self, text: str, role: str) -> str:
        return f"\x1b[{_COLOURS[role]}m{text}\x1b[0m" if self.colour else text

    def plain(self, text: str) -> str:
        """Free of control characters, and of what the locale cannot show."""
        text = _GLUE.join(map(clean, text.split(_GLUE)))
        if not self.unicode:
            for glyph, word in _ASCII.items():
                text = text.replace(glyph, word)
            text = "".join(c if c.isascii() or c == _GLUE else "?" for c in text)
        return text


def labelled(label: str, text: str, style: Style) -> list[str]:
    """`  What   All 12 links …` with the following lines under the first."""
    return hanging(f"  {label:<{LABEL - 2}}", " " * LABEL, text, style)


def hanging(first: str, rest: str, text: str, style: Style) -> list[str]:
    """Words wrapped at the width; a word that is longer (a command, a path) stays whole, so that it can be copied."""
    import textwrap  # not needed for JSON

    lines = textwrap.wrap(
        _AMOUNT.sub(_GLUE, style.plain(text)),
        width=style.width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines] or [first.rstrip()]


def listed(items: Iterable[str], style: Style) -> str:
    """`a b · c d`, to be wrapped between the items and never inside one."""
    return style.plain(" · ").join(style.plain(item).replace(" ", _GLUE) for item in items)


def justified(left: str, right: str, style: Style) -> str:
    """Left and right on one line, the right one at the margin."""
    return left + " " * max(2, style.width - len(left) - len(right)) + right


def spans(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> `0-2,5`."""
    from gpudoctor.cpulist import render

    return render(set(numbers))


def counted(number: int, word: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number} {word}" + ("" if number == 1 else "s")
