"""NCCL's lines cut out of a chunk of whole lines, fast: a job may write gigabytes of which the same few facts are repeated.

The chunk is split where `NCCL INFO ` stands. A piece then holds the rest of one line, the lines that others wrote below it,
and the beginning of the next line, so that one step of a loop sees a whole line of NCCL's, and the lines of others are never
looked at one by one. 24 lines that say the same of 24 channels are handed on once: what a line of a connection says holds for
its process until that process names a communicator again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

# What stands before NCCL's name; behind it, with the line end; and which of the chunk's lines of level INFO it is, or for
# any other line (the message then begins with its level) ~number of the line in the chunk.
Cut = tuple[bytes, bytes, int]

MARK = b"NCCL "
INFO = b"NCCL INFO "
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
# A line that a terminal broke within its transport: `via SHM` and `/direct/direct` below it.
_MAX_SHORT = 33
_SHORT_LINE = re.compile(rb"\n[\w/()]{1,30}\r?\n")
_FOLDED = re.compile(rb"( via (?:P2P|SHM|NET)[^\n]{0,40})\n(?!\d+\r?\n)([\w/()]{1,30})(\r?)\n")
# What NCCL itself writes behind its name; a framework that speaks of NCCL writes something else.
OWN = (b"INFO ", b"WARN ", b"ATTN ", b"DIAG ", b"CALL ", b"TRACE", b"ABORT")
_OWN_TEXT = tuple(word.decode() for word in OWN)
# How lines begin that say nothing we keep: passed over before anything else is asked.
SILENT = frozenset(
    (
        b"Trees", b"Tree ", b"Conne", b"threa", b"P2P C", b"CC Of", b"TUNER", b"PROFI", b"ENV/P", b"[Prox", b"proxy", b"Check", b"TOPO/", b"Topol",
        b"Alloc", b"Loade", b"Initi", b"Assig", b"RAS c", b"Enabl", b"Comm ", b"Launc", b"Memor", b"GIN/P", b"RMA/P",
        b"AllRe", b"AllGa", b"Reduc", b"Broad", b"Send:", b"Recv:",
    )
)  # fmt: skip
# How lines begin that may name a communicator: what was said of connections before is another's.
NAMING = frozenset((b"comm ", b"ncclC", b"[Rank", b"rank "))
NUMBERED = len(b"Channel 00")  # what follows is the same for every channel
_PID = re.compile(rb":(\d+)(?::\d+)?(?: \[-?\d+\])? *$")
# `host:pid:tid [dev] file.cc:line ` right before NCCL's name.
_OWN_HEAD = re.compile(r"[^\s:]{1,64}:\d+:\d+ (?:\[-?\d+\] )?(?:\S{1,60}:\d+ )?$")
_RING = b"ring"  # told: who prints the ring of one channel prints that of each, and only the first says more than that
_HEAD = 1 << 14
_MANY = 30  # lines of level INFO in so many bytes
_LONG = 120  # bytes before NCCL's name: more than launchers put there, so that another writer's words may be among them
_MAX_TOLD = 100_000  # lines remembered; then all are forgotten, which costs only time


def is_nccl(text: str) -> bool:
    """A line that NCCL wrote itself, so that no other format need look at it."""
    at = text.find("NCCL ")
    return at >= 0 and text.startswith(_OWN_TEXT, at + 5)


def is_own(line: bytes) -> bool:
    """The same of a line that is not decoded yet."""
    at = line.find(MARK)
    return at >= 0 and line.startswith(OWN, at + 5)


def before_nccl(text: str) -> str | None:
    """The words of another writer into whose line NCCL's ran; None where only a launcher's prefix stands there."""
    at = text.find("NCCL ")
    if at <= _LONG:
        return None
    own = _OWN_HEAD.search(text, max(0, at - 160), at)
    return text[: own.start() if own is not None else at]


def uncoloured(chunk: bytes) -> bytes:
    return _ESCAPES.sub(b"", chunk) if b"\x1b" in chunk else chunk


def joined(text: bytes) -> bytes:
    """With broken transports in one line: as many bytes and line ends as before."""
    return _FOLDED.sub(rb"\1\2\3\n\n", text) if _SHORT_LINE.search(text) is not None else text


class Numbers(NamedTuple):
    """Which line of its chunk a cut is, counted from 0."""

    above: list[int]  # as in Others
    lines: list[int]  # how many lines of others stand above

    def of(self, place: int) -> int:
        return ~place if place < 0 else place + self.lines[bisect_right(self.above, place)]


class Others:
    """The lines that are not NCCL's of level INFO, in stretches."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []  # whole lines
        self.above: list[int] = []  # how many of NCCL's lines of level INFO stand above each

    def add(self, text: bytes, above: int) -> None:
        self.texts.append(text)
        self.above.append(above)

    def numbers(self) -> Numbers:
        return Numbers(self.above, [*accumulate((text.count(b"\n") for text in self.texts), initial=0)])

    def cuts(self, numbers: Numbers) -> Iterator[Cut]:
        """Lines in which NCCL's name stands, of other levels or a framework's."""
        for text, above, before in zip(self.texts, self.above, numbers.lines, strict=False):
            if MARK in text:
                for number, line in enumerate(text.split(b"\n"), above + before):
                    head, mark, message = line.partition(MARK)
                    if mark:
                        yield head, message + b"\n", ~number


class Cutting(NamedTuple):
    """What one chunk came to."""

    cuts: list[Cut]
    others: Others
    infos: int  # lines of level INFO
    text: bytes  # as it was cut


class Cutter:
    """Cuts one chunk after the other; remembers what was said of connections, so that it is handed on once."""

    def __init__(self) -> None:
        self._told: dict[bytes, set[bytes]] = {}  # by what stands before the mark
        self._threads: dict[bytes, list[set[bytes]]] = {}  # by process: what its threads have told
        self._room = _MAX_TOLD
        self._odd = False  # a mark stands in some line before the mark at which it was cut
        self.run_into: list[bytes] = []  # what stands before a line of NCCL's that begins far behind in its line

    def forget(self) -> None:
        """The next chunk does not follow the last one."""
        if self._room < _MAX_TOLD:
            for told in self._told.values():
                told.clear()
            self._room = _MAX_TOLD

    def cut(self, text: bytes) -> Cutting:
        # The beginning tells at once which way is the faster.
        way = self._many if text.count(INFO, 0, _HEAD) > _MANY else self._few
        found = way(text, look_for_broken=True)
        if found is None:
            self.forget()  # what was handed on is lost
            found = way(joined(text), look_for_broken=False)
            assert found is not None
        if self._odd:
            self._odd = False
            _cut_at_first_mark(found)
        if self._room < 0:
            self.forget()
        return found

    def _few(self, text: bytes, look_for_broken: bool) -> Cutting | None:
        """Where most lines are others'. None: a line may be broken, and must be joined before."""
        parts = text.split(INFO)
        cuts: list[Cut] = []
        others = Others()
        if len(parts) == 1:
            others.add(text, 0)
            return Cutting(cuts, others, 0, text)
        lead, end, head = parts[0].rpartition(b"\n")
        if end:
            others.add(lead + end, 0)
        known = self._told.get
        twice = b""  # a line in which the mark stands twice, as far as it was read
        number = -1
        rest = iter(parts)
        next(rest)
        for part in rest:
            tail, end, following = part.rpartition(b"\n")
            if not end:
                twice += part + INFO
                continue
            if twice:
                tail, twice = twice + tail, b""
            number += 1
            if b"\n" in tail:
                tail, _, foreign = tail.partition(b"\n")
                if look_for_broken and b" via " in tail and (len(foreign) < _MAX_SHORT or foreign.find(b"\n", 0, _MAX_SHORT) >= 0):
                    return None
                others.add(foreign + b"\n", number + 1)
            if tail[:5] not in SILENT:
                told = known(head)
                if told is None or tail[NUMBERED:] not in told:
                    self._new(cuts, told, head, tail, number)
            elif len(head) > _LONG:
                self.run_into.append(head)
            head = following
        return Cutting(cuts, others, number + 1, text)

    def _many(self, text: bytes, look_for_broken: bool) -> Cutting | None:
        """Where most are NCCL's, to look at line by line is faster."""
        cuts: list[Cut] = []
        others = Others()
        known = self._told.get
        strange = 0
        lines = text.split(b"\n")
        lines.pop()
        for number, line in enumerate(lines):
            head, mark, tail = line.partition(INFO)
            if mark:
                told = known(head)
                if told is None or tail[NUMBERED:] not in told:
                    self._new(cuts, told, head, tail, number - strange)
            else:
                if look_for_broken and len(line) < _MAX_SHORT and number and b" via " in lines[number - 1]:
                    return None
                others.add(line + b"\n", number - strange)
                strange += 1
        return Cutting(cuts, others, len(lines) - strange, text)

    def _new(self, cuts: list[Cut], told: set[bytes] | None, head: bytes, tail: bytes, number: int) -> None:
        """A line that was not told before."""
        if told is None:
            told = self._thread(head)
        word = tail[:5]
        if word == b"Chann":
            if b" via " in tail:
                told.add(tail[NUMBERED:])
                self._room -= 1
            elif not tail.startswith(b"Channel 00/") and _RING in told:  # the ring of ranks of one more channel
                return
            else:
                told.add(_RING)
        elif word in SILENT:
            return
        elif word in NAMING:
            self._named(head)
        cuts.append((head, tail + b"\n", number))

    def _thread(self, head: bytes) -> set[bytes]:
        """What a thread has told, by what stands before the mark."""
        if len(head) > _LONG:
            self.run_into.append(head)
        if MARK in head:
            self._odd = True
            return set()
        if len(self._told) > _MAX_TOLD:
            self._told.clear()
            self._threads.clear()
        told = self._told[head] = set()
        self._threads.setdefault(_process(head), []).append(told)
        return told

    def _named(self, head: bytes) -> None:
        """A process has named a communicator: what it says of connections from here on is of that."""
        for told in self._threads.get(_process(head), ()):
            told.clear()


def _cut_at_first_mark(found: Cutting) -> None:
    """NCCL's name may stand earlier in the line: two writers ran into one, or a framework repeats what NCCL said."""
    numbers = found.others.numbers()
    for at, (head, tail, place) in enumerate(found.cuts):
        if MARK in head:
            before, _, message = head.partition(MARK)
            found.cuts[at] = (before, message + INFO + tail, ~numbers.of(place))


def _process(head: bytes) -> bytes:
    """All that may be the same process has the same key: its number, for a name may have run into another line."""
    found = _PID.search(head)
    return found[1] if found is not None else b""


def spans(text: bytes) -> list[tuple[int, int]]:
    """The stretches between NCCL's lines of level INFO."""
    found = []
    done = 0
    at = text.find(INFO)
    while at >= 0:
        start = text.rfind(b"\n", 0, at) + 1
        if start > done:
            found.append((done, start))
        done = text.find(b"\n", at) + 1 or len(text)
        at = text.find(INFO, done)
    if done < len(text):
        found.append((done, len(text)))
    return found
