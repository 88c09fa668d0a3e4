"""A section: consecutive lines of one known output, and what a parser makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.model import Evidence
from gpudoctor.record import KeyedRecord

_SHOWN = 240  # characters of a line that evidence keeps


class Line(NamedTuple):
    """number counts from 1 in the file; `cut` marks a last line without its newline (may end in mid-value)."""

    number: int
    text: str
    cut: bool = False


class Unparsable(Exception):
    """A section that turned out not to be what it looked like; the message becomes a loss."""


class Section(KeyedRecord):
    kind: str  # format name, see read/table.py
    source: str  # the file as the user named it, or the probe's command
    lines: tuple[Line, ...]
    host: str | None = None
    command: str | None = None  # the command echoed above the output, or the probe's own
    live: bool = False  # a probe of this very host
    read: object | None = None  # where lines are read as they pass and never kept: what they came to
    content: bytes = b""  # the whole document, where it is no text or has no lines worth the name

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines) + "\n"

    def at(self, line: Line, value: str | None = None) -> Evidence:
        """Evidence that points to one line."""
        return Evidence(self.source, f"line {line.number}", (line.text.strip() if value is None else value)[:_SHOWN])

    def spot(self, where: str, value: object) -> Evidence:
        """Evidence that points to a named place (a JSON key, a sysfs path)."""
        return Evidence(self.source, where, str(value)[:_SHOWN])


def parser_module(kind: str) -> str:
    """`smi-topo` -> `gpudoctor.parsers.smi_topo`: one file per format, imported when such a section turns up."""
    return "gpudoctor.parsers." + kind.replace("-", "_")
