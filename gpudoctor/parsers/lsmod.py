"""`lsmod` to Modules. Only the header proves that the list is whole; `lsmod | grep nvidia` proves no absence."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Modules
from gpudoctor.read.section import Line, Section, Unparsable

_ROW = re.compile(r"^\s*([a-z][a-z0-9_]*)\s+\d+\s+-?\d+", re.I)
_HEADER = re.compile(r"^\s*Module\s+Size\s+Used by")


def parse(section: Section) -> Iterator[Fact | Loss]:
    loaded: dict[str, str] = {}
    first: Line | None = None
    header = False
    for line in section:
        row = _ROW.match(line.text)
        if _HEADER.match(line.text):
            header = True
        elif row:
            loaded[row[1]] = ""
            # What matters most is where the driver stands; the evidence points there.
            if first is None or row[1] == "nvidia":
                first = line
    if first is None:
        raise Unparsable(f"{section.source}: no module in what looks like lsmod")
    cut = section.lines[-1].cut
    if cut and header:
        yield Loss("a part of lsmod", f"{section.source}: cut off at line {section.lines[-1].number}")
    yield Modules(loaded, section.at(first), complete=header and not cut)
