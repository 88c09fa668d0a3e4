"""`py-spy dump` to Stacks: where the main thread of each process stood."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.hang import Frame, Stack, Stacks
from gpudoctor.read.section import Line, Section, Unparsable

_PROCESS = re.compile(r"^\s*Process (\d{1,9}): (.{1,400}?)\s*$")
_THREAD = re.compile(r"^\s*Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:active|idle)[^)]{0,30}\)(?:: \"(.{0,80})\")?\s*$")
_FRAME = re.compile(r"^\s+(\S.{0,160}?) \((\S.{0,300}?):(\d{1,7})\)\s*$")
_NATIVE = re.compile(r"^\s+\S.{0,300} \((\S{1,300}\.so\S{0,20}|\S{1,300})\)\s*$")


def parse(section: Section) -> Iterator[Fact | Loss]:
    process: tuple[int, str] | None = None
    head: Line | None = None
    frames: list[Frame] = []
    out: list[Stack] = []

    def ended() -> None:
        if head is not None and frames:
            pid, command = process or (None, None)
            out.append(Stack(source=section.source, pid=pid, command=command, frames=tuple(frames), origin={"*": section.at(head, f"{frames[0]}")}))

    for line in section:
        began, thread = _PROCESS.match(line.text), _THREAD.match(line.text)
        if began is not None or thread is not None:
            ended()
            head, frames = None, []
            if began is not None:
                process = (int(began[1]), began[2])
            elif thread is not None and thread[1] == "MainThread":
                head = line
            continue
        found = _FRAME.match(line.text) if head is not None and not line.cut else None
        if found is not None:
            frames.append(Frame(found[1], found[2], int(found[3])))
        elif head is not None and _NATIVE.match(line.text) is None:
            ended()
            head, frames = None, []
    ended()
    if not out:
        raise Unparsable(f"{section.source}: the head of a process's stack without a whole frame")
    yield Stacks(tuple(out))
