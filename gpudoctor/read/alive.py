"""Lines that hold a known word and in which nothing begins all the same, whatever they wear: they need not be looked at one by one.

A log may have a known word in every line, and other text in each (`GPU3 worker took item to-2991375e82`). What a paste wears stands
before an output's line, so that an output can only begin in a line of which some end matches: an expression without what ties
it to a line's beginning is asked once. Lines with signs that are taken off within a line are never passed over here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpudoctor.pattern import lazy
from gpudoctor.read.prompts import PROGRAMS
from gpudoctor.read.table import Starts, Telling

_MOST = 600  # characters
_ODD = b"\\<>&|*`@$#+"  # is taken off within a line, or stands before a command that somebody typed
_SPENT = re.compile(rb"\[\d{0,2}m")
# Programs that are named on a line of their own; or behind a mark that needs no blank.
_GLUED = re.compile(rf"[\]:).,/;%-](?:{'|'.join(PROGRAMS)})")
_NAMES = frozenset(PROGRAMS)
_ATOM = re.compile(r"\(\?<!|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.S)
_ANYTHING = re.compile(r"\.[*+{]")  # asked from every place of a line, it would take long


class Alive:
    """Asked of single lines."""

    def __init__(self, starts: Starts) -> None:
        self._starts = starts
        self._anywhere = [None if _ANYTHING.search(how.format.starts) else lazy(anywhere(how.format.starts)) for how in starts.formats]

    def may_begin(self, line: bytes, at: int = 0) -> bool:
        """False: nothing does. at: where the first known word stands, or before it."""
        if len(line) > _MOST or _is_odd(line):
            return True
        text = line.decode("ascii")
        places = self._starts.places(text, at)
        for place in places:
            expression = self._anywhere[place]
            if expression is None or expression.search(text) is not None:
                return True
        return not places or not _NAMES.isdisjoint(text.split()) or _GLUED.search(text) is not None


def _is_odd(line: bytes) -> bool:
    """Is there something in it that is taken off, or NCCL's name?"""
    if not line.isascii() or b"NCCL " in line or len(line.translate(None, _ODD)) != len(line):
        return True
    if not line.replace(b"\t", b"").decode("ascii").isprintable() or b"topo -p2p" in line:
        return True
    return b"[" in line and _SPENT.search(line) is not None or line.lstrip(b" \tub")[:1] in (b'"', b"'")


@lru_cache(maxsize=1)
def alive(telling: Telling) -> Alive:
    """Made once: a folder may have thousands of files."""
    return Alive(Starts(lazy(telling.exact)))


def anywhere(expression: str) -> str:
    """What matches wherever in a line the given expression matches the rest of it, and may match more."""
    expression = expression.replace(r"^\s*", "^")  # blanks before a place make another place of none
    made: list[str] = []
    depth = 0  # of parentheses within what must not stand before
    for found in _ATOM.finditer(expression):
        atom = found[0]
        if depth:
            depth += (atom[0] == "(") - (atom == ")")
        elif atom == "(?<!":
            depth = 1
        elif atom not in ("^", r"\b", r"\B", r"\A"):
            made.append(atom)
    return "".join(made)
