"""One line of JSON from a child probe to values of known type: whatever it holds, nothing but `Unparsable` is raised."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from gpudoctor.read.section import Section, Unparsable
from gpudoctor.read.text import clean

SCHEMA = 1
_DIGITS = 24  # longer integers are no reading of anything, and slow to convert
_SHOWN = 4096
_LARGEST = 1 << 63


def document(section: Section, probe: str) -> dict[str, Any]:
    """The object that the probe printed; text around it (a warning of a library) is passed over."""
    head = f'{{"probe": "{probe}"'
    line = next((line for line in section if line.text.startswith(head)), None)
    if line is None:
        raise Unparsable(f"no line of {probe} JSON")
    try:
        # What runs into its line from behind is no part of it.
        found, _ = json.JSONDecoder(parse_int=_int, parse_constant=lambda _: None).raw_decode(line.text)
        if "\\ud" in line.text.lower():
            # Half a character (a name that is no UTF-8) could be written to no report.
            found = json.loads(
                json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"), parse_constant=lambda _: None
            )
    except (ValueError, RecursionError) as error:
        raise Unparsable(f"the JSON of {probe} is cut or damaged ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise Unparsable(f"the JSON of {probe} is no object")
    if whole(found.get("schema")) != SCHEMA:
        raise Unparsable(f"the JSON of {probe} has schema {text(found.get('schema')) or found.get('schema')!r:.40}, known is {SCHEMA}")
    return found


def _int(digits: str) -> int | None:
    return int(digits) if len(digits) <= _DIGITS else None


def text(value: Any) -> str | None:
    """A text without control characters and outer blanks; None for anything else and for an empty one."""
    if not isinstance(value, str):
        return None
    value = value[:_SHOWN]
    return (value if value.isprintable() else clean(value.replace("\n", " "))).strip() or None


def lines(value: Any) -> list[str]:
    """The lines of a text."""
    return [clean(part) for part in value.split("\n")] if isinstance(value, str) else []


def whole(value: Any, most: int = _LARGEST) -> int | None:
    """An integer from 0 to `most`, given as a number or as digits."""
    if isinstance(value, str) and value.isascii() and value.strip().isdigit() and len(value) <= _DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= most else None


def number(value: Any) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def flag(value: Any) -> bool | None:
    """A JSON boolean, or None."""
    return value if isinstance(value, bool) else None


def table(value: Any) -> dict[str, Any]:
    """A JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[Any]:
    """A JSON list, or an empty one."""
    return value if isinstance(value, list) else []


def tables(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list with their places."""
    for place, row in enumerate(rows(value)):
        if isinstance(row, dict):
            yield place, row
