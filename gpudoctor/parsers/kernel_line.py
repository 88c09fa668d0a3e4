"""One line of a kernel log as an event."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor import bdf
from gpudoctor.facts.kernel import KernelEvent
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section

# What stands before a message: quotes and bars of a mail or table, then a stamp.
LOG_LINE = lazy(r"^[\s>|]{0,20}(?:\S.*(?:kernel:|\s:|[\]\d])\s+)?$")


def event(
    section: Section, line: Line, kind: str, found: re.Match[str], address: str | None, **more: Any
) -> KernelEvent:
    """`text` is the message without what stands before it, so that one line in two logs is seen to be one."""
    text = line.text[found.start() :].strip()
    return KernelEvent(
        kind=kind,
        bdf=bdf.normalise(address) if address else None,
        text=text.rstrip("0123456789") if line.cut else text,  # a number at the end of a cut line may go on
        origin={"*": section.at(line)},
        **more,
    )
