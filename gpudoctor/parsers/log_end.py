"""The last lines of a job's log, as they stand: where a rank stopped is often all that is known of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.hang import LogEnd, LogEnds
from gpudoctor.read.section import Section
from gpudoctor.read.text import lines_of

_SHOWN = 240  # characters of a line
_LINES = 2048  # a line of few characters, or of none, takes far more room than it has bytes


def parse(section: Section) -> Iterator[Fact | Loss]:
    """`read` holds how many line ends the whole log has; the content begins anywhere in a line, which is dropped."""
    ends = section.read
    if not isinstance(ends, int):
        return
    begun = ends - section.content.count(b"\n")
    told = ((line.number + begun, line.text[:_SHOWN]) for line in islice(lines_of((section.content,)), 1 if begun else 0, None))
    lines = deque((line for line in told if line[1].strip()), maxlen=_LINES)
    if lines:
        yield LogEnds((LogEnd(source=section.source, lines=tuple(lines)),))
