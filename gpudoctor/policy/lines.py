"""Where in a TOML file a key stands. tomllib gives values without places, and a message without a line is a search."""

from __future__ import annotations

import re

Path = tuple["str | int", ...]  # ("accept", 1, "until"): key names, and numbers in arrays of tables

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'))*)\s*="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'""")


def places(text: str) -> dict[Path, int]:
    """Path of every key and table -> its line. The text must be valid TOML; what is inside an inline table is not found."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    at, line = 0, 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        row = text[at:end]
        key = _KEY.match(row)
        header = None if key else _HEADER.fullmatch(row)
        if header is not None:
            table = _names(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            found.setdefault(table, line)
        elif key is not None:
            found.setdefault((*table, *_names(key[1])), line)
            after = _value_end(text, at + key.end())
            line += text.count("\n", at, after)
            end = text.find("\n", after)
            end = len(text) if end < 0 else end
        at, line = end + 1, line + 1
    return found


def line_of(found: dict[Path, int], path: Path) -> int | None:
    """The line of a key, else of the nearest thing around it."""
    while path:
        if path in found:
            return found[path]
        path = path[:-1]
    return None


def _names(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _value_end(text: str, at: int) -> int:
    """Where a value that begins at `at` ends: strings and brackets may go over several lines."""
    depth = 0
    while at < len(text):
        mark = text[at]
        if mark == "\n" and depth == 0:
            return at
        if mark == "#":
            at = text.find("\n", at)
            if at < 0:
                return len(text)
            continue
        if mark in "\"'":
            at = _string_end(text, at)
            continue
        depth += (mark in "[{") - (mark in "]}")
        at += 1
    return len(text)


def _string_end(text: str, at: int) -> int:
    quote = text[at]
    ends = quote * 3 if text.startswith(quote * 3, at) else quote
    at += len(ends)
    while at < len(text):
        if quote == '"' and text[at] == "\\":
            at += 2
        elif text.startswith(ends, at):
            return at + len(ends)
        elif ends == quote and text[at] == "\n":
            return at  # cannot be in valid TOML; never run past the line
        else:
            at += 1
    return len(text)
