"""Which words must stand in a text for an expression to match: to ask for them is many times cheaper than the expression."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

_SHORTEST = 4  # characters of a word that is worth asking for


@cache
def required(pattern: str) -> tuple[str, ...] | None:
    """Words of which one stands in every text that matches; None where that cannot be told, or is not worth asking."""
    if "(?i" in pattern or "(?x" in pattern:
        return None
    while pattern.startswith("(?:") and _end_of_group(pattern, 0) == len(pattern):
        pattern = pattern[3:-1]
    words = [max(_words(branch), key=len, default="") for branch in _branches(pattern)]
    return tuple(dict.fromkeys(words)) if all(len(word) >= _SHORTEST for word in words) else None


def _branches(pattern: str) -> Iterator[str]:
    """Parted by the bars that stand in no group."""
    begin = at = 0
    while at < len(pattern):
        if pattern[at] == "|":
            yield pattern[begin:at]
            begin = at = at + 1
        else:
            at = _end_of_atom(pattern, at)
    yield pattern[begin:]


def _words(branch: str) -> Iterator[str]:
    """Runs of plain characters; one that may be absent, or come several times, ends them."""
    word = ""
    at = 0
    while at < len(branch):
        end = _end_of_atom(branch, at)
        atom = branch[at:end]
        plain = atom if len(atom) == 1 and atom not in ".^$" else atom[1:] if len(atom) == 2 and atom[0] == "\\" and not atom[1].isalnum() else ""
        repeated = branch[end : end + 1] in ("?", "*", "+", "{") and end < len(branch)
        if plain and not repeated:
            word += plain
        else:
            yield word
            word = ""
        at = end
        if repeated:
            at = branch.index("}", at) + 1 if branch[at] == "{" else at + 1
            at += branch[at : at + 1] in ("?", "+")
    yield word


def _end_of_atom(pattern: str, at: int) -> int:
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        return _end_of_class(pattern, at)
    return _end_of_group(pattern, at) if pattern[at] == "(" else at + 1


def _end_of_class(pattern: str, at: int) -> int:
    at += 2 if pattern[at + 1] == "^" else 1
    at += pattern[at] == "]"  # the first stands for itself
    while pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _end_of_group(pattern: str, at: int) -> int:
    at += 1
    while pattern[at] != ")":
        at = _end_of_atom(pattern, at)
    return at + 1
