"""An expression for lines whose digits were taken out: it matches at least what the given one matched before that."""

from __future__ import annotations

import re

# One thing an expression is made of, and how often it stands there.
_ATOM = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[:=]|.)(\{\d+(?:,\d*)?\}|[*+?]?)", re.S)
_DIGITS = re.compile(r"\\d|0-9|[0-9]-[0-9]|[0-9]")
_FEWEST = re.compile(r"\{\d+,?(\d*)\}")


def digitless(expression: str) -> str:
    """Of literals, classes, groups, alternatives, quantifiers and what must follow; ValueError where there is anything else.

    What may be a digit may be missing afterwards; what can be nothing but one is gone.
    """
    made = []
    for atom, often in _ATOM.findall(expression):
        if atom in ("^", "$") or atom == "(" or re.fullmatch(r"\\[bBA1-9DWS]", atom) and atom != r"\S":
            raise ValueError(f"{atom} in {expression}")
        if atom.startswith("[") and not atom.startswith("[^"):
            left = _DIGITS.sub("", atom)
            if left == atom and r"\w" not in atom:
                made.append(atom + often)
            elif left != "[]":
                made.append(left + _from_none(often))
        elif atom in (r"\w", r"\S", ".") or atom.startswith("[^"):
            made.append(atom + _from_none(often))
        elif atom != r"\d" and not atom.isdigit():
            made.append(atom + often)
    return "".join(made)


def _from_none(often: str) -> str:
    """The same quantifier beginning at none."""
    found = _FEWEST.fullmatch(often)
    if found is not None:
        most = found[1] if "," in often else often[1:-1]
        return f"{{0,{most}}}"
    return {"": "?", "+": "*"}.get(often, often)
