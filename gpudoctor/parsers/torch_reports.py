"""What PyTorch finds by comparing ranks: its wrapper of process groups, and its analysis of flight recorders (torchfrtrace)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.hang import Accused
from gpudoctor.parsers.torch_blame import MAX_RANK
from gpudoctor.read.section import Line, Section

# TORCH_DISTRIBUTED_DEBUG=DETAIL: two ranks and the call of each. Older releases print only the second one's operation.
_PRINT = r"CollectiveFingerPrint\((?:SequenceNumber=(\d{1,18})(?:,\s?)?)?OpType=(\w{1,40})(?=[,)])(?:,\s?TensorShape=\[([\d, ]{0,400})\])?"
_DIFFER = re.compile(
    r"Detected mismatch between collectives on ranks\.\s{1,3}Rank (\d{1,7}) is running (?:inconsistent )?collective:\s{0,3}" + _PRINT
)
_OTHER = re.compile(r"but\s{1,3}Rank (\d{1,7}) is running collective:\s{0,3}(?:" + _PRINT + r"|([A-Z_]{3,40})\.)")
# torchfrtrace: one block for the first collective of a group that does not fit; the ranks stand in it or in its first line.
_HEAD = re.compile(
    r"(?P<absent>Not all ranks joining collective)(?:[,:] sequence number: (?P<seq>\d{1,18})\s*$| (?P<old>\d{1,18}) at entry \d|(?= for group ))"
    r"|^\s*Collective (?P<early>\d{1,18}) at entry \d{1,18} errors\s*$|Collective sequence number: (?P<bad>\d{1,18}) has errors\s*$|Input/output mismatch in the collective sequence number: (?P<sizes>\d{1,18})\s*$"
)
_FIELD = re.compile(r"^\s*(group info|collective|world size|expected ranks|error msg|error message): (\S.{0,20000}?)\s*$")
_ABSENT = re.compile(r"[Mm]issing ranks(?:: | are )\{(\d[\d, ]{0,100000})\}")
_GROUP = re.compile(r" for group (\S{1,160}) collective (\S{1,60})")
_CULPRIT = re.compile(r"Culprit rank (\d{1,7}); Error type: ([A-Z]+(?:_[A-Z]+)+)\b")
_BLOCK = 14  # lines of one block above its stack
_LINES = 10  # over how many lines a terminal or a writer may break the sentence


def reports_by(section: Section, lines: tuple[Line, ...], place: int) -> Iterator[Accused]:
    """What a report that begins in this line says of the ranks."""
    text = lines[place].text
    if "mismatch between collectives" in text:
        yield from _calls(section, lines, place)
    elif "ranks joining collective" in text or "ollective sequence number: " in text or " at entry " in text:
        yield from _analysis(section, lines, place)


def _together(lines: tuple[Line, ...], place: int) -> Iterator[str]:
    """The line with more and more of those below it."""
    text = lines[place].text
    yield text
    for at in range(place + 1, min(place + _LINES, len(lines))):
        if lines[at].number != lines[at - 1].number + 1 or len(text) > 6000:
            return
        text = f"{text.rstrip()} {lines[at].text.strip()}"
        yield text


def _calls(section: Section, lines: tuple[Line, ...], place: int) -> Iterator[Accused]:
    first = other = None
    for text in _together(lines, place):
        first = first or _DIFFER.search(text)
        other = _OTHER.search(text)
        if first is not None and other is not None:
            break
    for found in (first, other):
        if found is not None and int(found[1]) < MAX_RANK:
            operation = found[3] or (found[5] if found.re is _OTHER else None)
            yield Accused(
                kind="calls",
                ranks=(int(found[1]),),
                seq=int(found[2]) if found[2] else None,
                op=operation,
                sizes=found[4] or None,
                origin={"*": section.at(lines[place])},
            )


def _analysis(section: Section, lines: tuple[Line, ...], place: int) -> Iterator[Accused]:
    head = _HEAD.search(lines[place].text)
    if head is None or lines[place].cut:
        return
    said: dict[str, str] = {}
    absent = _ABSENT.search(lines[place].text)
    for at in range(place + 1, min(place + _BLOCK, len(lines))):
        if lines[at].number != lines[at - 1].number + 1 or _HEAD.search(lines[at].text) or "stack trace" in lines[at].text:
            break
        absent = absent or _ABSENT.search(lines[at].text)
        field = None if lines[at].cut else _FIELD.match(lines[at].text)
        if field is not None:
            said.setdefault(field[1], field[2])
    inline = _GROUP.search(lines[place].text)
    number = head["seq"] or head["old"] or head["early"] or head["bad"] or head["sizes"]
    world = next((w for w in (said.get("world size"), said.get("expected ranks")) if w is not None and w.isdigit()), None)
    culprits = _CULPRIT.findall(said.get("error msg") or said.get("error message", ""))
    if head["absent"]:
        kind, ranks = "absent", absent[1].split(",") if absent is not None else []
    elif culprits and all(state == "COLLECTIVE_STATE_MISMATCH" for _, state in culprits):
        kind, ranks = "unfinished", [rank for rank, _ in culprits]
    else:
        kind, ranks = "odd", [rank for rank, _ in culprits]
    yield Accused(
        kind=kind,
        ranks=tuple(sorted({n for r in ranks if (n := int(r)) < MAX_RANK})),
        seq=int(number) if number else None,
        world=int(world) if world is not None and int(world) <= MAX_RANK else None,
        op=(inline[2] if inline else said.get("collective", "")).removeprefix("nccl:") or None,
        group=inline[1] if inline else said.get("group info"),
        origin={"*": section.at(lines[place])},
    )
