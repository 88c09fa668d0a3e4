"""The text that NCCL's RAS service answers to STATUS and VERBOSE STATUS (NCCL 2.24 and later) to Ras.

A section holds the telling lines of one document, of several answers perhaps: each begins with NCCL's version or the
job's summary. RAS lists ranks by name only where they are few; otherwise it gives their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.hang import Ras, RasAnswer, RasComm, RasCounts, RasPeer, RasRank
from gpudoctor.model import Evidence
from gpudoctor.read.section import Line, Section, Unparsable
from gpudoctor.record import replace

_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)\S* compiled with CUDA")
_START = re.compile(r"NCCL version (?:2\.[2-9]\d|[3-9])\S* compiled with CUDA|^\s*Job summary\s*$")
_GROUP = re.compile(
    r"^\s*(\d+) +\d+ +\d+ +[\d-]+ +(\d+) +\d+ +(NOCOMM|INIT|RUNNING|FINALIZE|ABORT) +([A-Z]+(?:[, |]+[A-Z]+)*)\s*$"
)
_COMM = re.compile(r"^\s*#(\d+)-\d+ \(([0-9a-f]{6,16})\) (MISMATCH|INCOMPLETE|ERROR)\s*$")
_DIFFERENT = re.compile(r"^\s*Communicator ranks have different (?:(\w+) operation counts|(collective) operation counts|(status))\s*$")
_MANY = re.compile(r"^\s*(\d+) ranks have (?:launched up to operation (\d+)|(not launched) any operations|status ([A-Z]+))\s*$")
_RANK = re.compile(
    r"^\s*Rank (\d+)(?: has (?:launched up to operation (\d+)|(not launched) any operations|status ([A-Z]+)))? -- "
    r"(?:GPU (\S+) managed by process (\d+) on node (\S+)|\[process information not found\])\s*$"
)
_LOST = re.compile(r"^\s*Missing communicator data from (\d+) (job process|rank)")
_DEAD = re.compile(r"^\s*(\d+) job process\w* (?:is|are) considered dead")
_PEER = re.compile(r"^\s*Process (\d+) on node (\S+) managing GPUs? (\S.*?)\s*$")
_TIMEOUTS = re.compile(r"^\s*Encountered (\d+) communication timeout")
MAX_COMMS = 20_000


class _Reader:
    """One answer as it is read, line by line."""

    def __init__(self, section: Section, line: Line) -> None:
        self.section = section
        self.began = line
        self.version: str | None = None
        self.groups: list[RasComm] = []
        self.sizes: dict[str, int] = {}  # ranks of a communicator, by its group in the table
        self.comms: list[RasComm] = []
        self.peers: list[RasPeer] = []
        self.lost: int | None = None
        self.dead: int | None = None
        self.timeouts: int | None = None
        self.peer_state: str | None = None
        self.kind: str | None = None  # of the communicator's lines: MISMATCH, …
        self.operation: str | None = None  # or "status"
        self.status: tuple[str, int] | None = None

    def answer(self) -> RasAnswer:
        return RasAnswer(
            source=self.section.source,
            nccl_version=self.version,
            timeouts=self.timeouts,
            comms=tuple(self.comms[:MAX_COMMS]),
            groups=tuple(self.groups),
            peers=tuple(self.peers),
            lost=self.lost,
            dead=self.dead,
            origin={"*": self.section.at(self.began)},
        )

    def read(self, line: Line) -> bool:
        """True where the line is one of RAS's."""
        for pattern, take in (
            (_GROUP, self._group), (_COMM, self._comm), (_DIFFERENT, self._different), (_MANY, self._many), (_RANK, self._rank),
            (_LOST, self._lost), (_DEAD, self._dead), (_PEER, self._peer), (_TIMEOUTS, self._timed),
        ):  # fmt: skip
            found = pattern.match(line.text)
            if found is not None:
                take(found, line)
                return True
        version = _VERSION.search(line.text)
        if version is not None:
            self.version = version[1]
        return version is not None

    def _at(self, line: Line) -> dict[str, Evidence]:
        return {"*": self.section.at(line)}

    def _group(self, found: re.Match[str], line: Line) -> None:
        if not line.cut:
            self.sizes[found[1]] = int(found[2])
            self.groups.append(RasComm(size=int(found[2]), status=found[3], errors=found[4], origin=self._at(line)))

    def _comm(self, found: re.Match[str], line: Line) -> None:
        self.kind, self.operation, self.peer_state = found[3], None, None
        for place, comm in enumerate(self.comms):
            if comm.id == found[2]:
                self.comms.append(self.comms.pop(place))
                return
        # The row of its group; one of no ranks is of communicators that are being taken down.
        self.comms.append(RasComm(id=found[2], size=self.sizes.get(found[1]) or None, errors=found[3], origin=self._at(line)))

    def _change(self, **changes: Any) -> None:
        if self.comms:
            self.comms[-1] = replace(self.comms[-1], **changes)

    def _different(self, found: re.Match[str], line: Line) -> None:
        self.operation = found[1] or found[2] or "status"

    def _many(self, found: re.Match[str], line: Line) -> None:
        if self.comms and self.operation not in (None, "status") and found[4] is None and not line.cut:
            count = 0 if found[3] else int(found[2])
            self._change(counts=(*self.comms[-1].counts, RasCounts(str(self.operation), count, int(found[1]), ())))
        self.status = (found[4], int(found[1])) if found[4] else None

    def _rank(self, found: re.Match[str], line: Line) -> None:
        if not self.comms:
            return
        who = RasRank(
            int(found[1]), found[7], int(found[6]) if found[6] else None, found[5], None
        )
        comm = self.comms[-1]
        if self.kind == "INCOMPLETE":
            self._change(missing=(*comm.missing, replace(who, why="no data")))
        elif self.kind == "ERROR":
            self._change(failed=(*comm.failed, replace(who, why="error")))
        elif found[4] or self.operation == "status":
            status = found[4] or (self.status[0] if self.status else None)
            if status is not None:
                self._change(failed=(*comm.failed, replace(who, why=f"status {status}")))
        elif self.operation is not None:
            if found[2] or found[3]:
                count = 0 if found[3] else int(found[2])
                self._change(counts=(*comm.counts, RasCounts(self.operation, count, 1, (who,))))
            elif comm.counts:
                *others, last = comm.counts
                self._change(counts=(*others, replace(last, named=(*last.named, who))))

    def _lost(self, found: re.Match[str], line: Line) -> None:
        if found[2] == "job process":
            self.lost, self.peer_state = int(found[1]), "incomplete"

    def _dead(self, found: re.Match[str], line: Line) -> None:
        self.dead, self.peer_state = int(found[1]), "dead"

    def _peer(self, found: re.Match[str], line: Line) -> None:
        if self.peer_state is not None and not line.cut:
            self.peers.append(
                RasPeer(state=self.peer_state, pid=int(found[1]), host=found[2], gpus=found[3], origin=self._at(line))
            )

    def _timed(self, found: re.Match[str], line: Line) -> None:
        self.timeouts = int(found[1])


def parse(section: Section) -> Iterator[Fact | Loss]:
    answers: list[RasAnswer] = []
    reader: _Reader | None = None
    told = False
    for line in section:
        fresh = _START.search(line.text) is not None and (reader is None or told)
        if fresh or reader is None:
            if reader is not None:
                answers.append(reader.answer())
            reader, told = _Reader(section, line), False
        read = reader.read(line)
        told = told or read and _VERSION.search(line.text) is None
    if reader is not None and told:
        answers.append(reader.answer())
    if not answers:
        raise Unparsable(f"{section.source}: the head of a RAS answer without its table")
    yield Ras(tuple(answers))
