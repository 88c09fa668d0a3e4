"""Ranks that wait for others, in the words of Horovod's coordinator and of XLA (JAX, TensorFlow)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.hang import Accused
from gpudoctor.parsers.torch_blame import MAX_RANK
from gpudoctor.read.section import Line, Section

# Horovod's rank 0 counts who submitted a tensor: `NAME [missing ranks: 1, 3]` to 0.18, then `Stalled ranks:` and `1: [NAME, …`.
_MISSING = re.compile(r"(\S{1,400}) \[missing ranks: ?(\d[\d, ]{0,20000})\]")
_HEAD = re.compile(r"submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than (\d{1,9}) seconds")
_OF_RANK = re.compile(r"^\s*(\d{1,7}): ?\[([^\s,\]]{1,400})")
_LINES = 40  # below `Stalled ranks:`
# XLA's threads meet before they make a communicator. The first sentence may be followed by `Thread is unstuck!`.
_WAITS = re.compile(
    r"(?:waiting for|Termination timeout for) `(?:[^`]{0,200}?\brank (?P<rank>\d{1,7})\b)?[^`]{0,20000}`(?: for| of) (?P<seconds>\d{1,9}) seconds"
    r"(?: and may be stuck| exceeded)"
)
_CAME = re.compile(r"Expected (\d{1,7}) threads to join the rendezvous, but (?:not all of them|only (\d{1,7}))")


def stalls_by(section: Section, lines: tuple[Line, ...], place: int) -> Iterator[Accused]:
    """What a line says of ranks that others wait for, or that wait."""
    line = lines[place]
    origin = {"*": section.at(line)}
    if "missing ranks: " in line.text:
        for name, listed in _MISSING.findall(line.text):
            yield Accused(kind="stalled", ranks=tuple(sorted({int(n) for n in re.findall(r"\d{1,7}", listed) if int(n) < MAX_RANK})), op=_name(name), origin=origin)
    elif "Stalled ranks:" in line.text:
        for at in range(place + 1, min(place + _LINES, len(lines))):
            found = _OF_RANK.match(lines[at].text)
            if lines[at].number != lines[at - 1].number + 1:
                return
            if found is not None and int(found[1]) < MAX_RANK:
                yield Accused(kind="stalled", ranks=(int(found[1]),), op=_name(found[2]), origin={"*": section.at(lines[at])})
    elif "ready ranks: " in line.text and _HEAD.search(line.text) is not None:
        yield Accused(kind="stalled", ranks=(), origin=origin)
    elif "` for " in line.text or "` of " in line.text:
        waits = _WAITS.search(line.text)
        if waits is not None and not _went_on(lines[place + 1 :]):
            came = _CAME.search(line.text)
            yield Accused(
                kind="ended" if "exceeded" in waits[0] else "rendezvous",
                ranks=(int(waits["rank"]),) if waits["rank"] and int(waits["rank"]) < MAX_RANK else (),
                world=int(came[1]) if came is not None else None,
                joined=int(came[2]) if came is not None and came[2] else None,
                origin=origin,
            )


def _name(tensor: str) -> str:
    return tensor.removeprefix("ops:")[:120]


def _went_on(below: tuple[Line, ...]) -> bool:
    return any("is unstuck" in line.text for line in below)
