"""NCCL's lines cut out of a chunk of whole lines, fast: a job may write gigabytes of which the same few facts are repeated.

Where most lines are others', only the places at which `NCCL INFO ` stands are looked at. 24 lines that say the same of 24
channels are handed on once: what a line of a connection says holds for its process until that process names a communicator
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from gpudoctor.read.compiled import forget, memory, walk
from gpudoctor.read.nccl_line import INFO, LONG, MARK, MAX_SHORT, joined
from gpudoctor.read.nccl_silent import CALLS, CHOSE, FAR, OPCOUNT, QUIET, SILENT, WARNS, W, tells

# What stands before NCCL's name; behind it, with the line end; and its place in the chunk (see Cutting), or ~place for a
# line of any other level than INFO (the message then begins with its level).
Cut = tuple[bytes, bytes, int]
Dull = tuple[set[bytes], set[bytes]]

# How lines begin that may name a communicator: what was said of connections before is another's.
NAMING = frozenset((b"comm ", b"ncclC", b"[Rank", b"rank "))
NUMBERED = len(b"Channel 00")  # what follows is the same for every channel
_LEVEL = len(INFO)
_CR = 13
_PID = re.compile(rb"[\w.-]{0,2}:\d+(?=(?::\d+)?(?: \[-?\d+\])? *$)")
# A rank's neighbours, and the GPUs of a channel in the order of its ring.
_OF_RINGS = frozenset((b"Ring ", *(b"%2d : " % channel for channel in range(64))))
_RING = b"ring"  # told: who prints the ring of one channel prints that of each, and only the first says more than that
_ASKED = _OF_RINGS | CALLS | {b"Chann"}  # more is asked of lines that begin so before they are handed on
_HEAD = 1 << 14  # bytes by which it is told whether most lines are NCCL's
_WORTH = 1 << 17  # bytes of a chunk in which so much is told again that its tables cost less than they spare
_MAX_CHOICES = 4096  # that a thread remembers word by word
_MAX_TOLD = 100_000  # lines remembered; then all are forgotten, which costs only time


class Cutting(NamedTuple):
    """What one chunk came to."""

    cuts: list[Cut]
    # The lines that are not NCCL's of level INFO, and which of the chunk's lines each is; None where nobody gathered them,
    # because they are most of the chunk. The place of a cut is then where its line begins, else the line's number.
    others: list[bytes] | None
    numbers: list[int]
    lines: int  # in the chunk, where they were counted
    text: bytes  # as it was cut
    # Where each of the others begins, where those that hold nothing were left out; None where they are all of them.
    places: list[int] | None = None


class Cutter:
    """Cuts one chunk after the other; remembers what was said of connections, so that it is handed on once."""

    def __init__(self) -> None:
        self._told: dict[bytes, set[bytes]] = {}  # by what stands before the mark
        self._fellows: dict[bytes, list[set[bytes]]] = {}  # the same: what all threads of its process have told
        self._processes: dict[bytes, list[set[bytes]]] = {}  # the same by process
        self._memory: object = None  # of the compiled walk: must forget what the sets forget
        self._room = _MAX_TOLD
        self._sizes: dict[tuple[bytes, bytes, bytes], tuple[int, int]] = {}  # the smallest and the largest call of each choice told
        self._called: set[bytes] = set()  # what stands before the mark of threads of which a call was told
        self._odd = False  # a mark stands in some line before the mark at which it was cut
        self.run_into: list[bytes] = []  # what stands before a line of NCCL's that begins far behind in its line, or behind its name

    def forget(self) -> None:
        """The next chunk does not follow the last one."""
        if self._room < _MAX_TOLD:
            for told in self._told.values():
                told.clear()
            self._room = _MAX_TOLD
            self._sizes.clear()
            self._forget_walk()
        self._called.clear()

    def _forget_walk(self) -> None:
        if self._memory is not None:
            forget(self._memory)

    def cut(self, text: bytes, dull: Dull = (set(), set())) -> Cutting:
        """dull: the shapes of lines that hold nothing, without digits and with every digit 0 (gpudoctor.read.shapes)."""
        if walk is not None:
            way = partial(self._compiled, dull)
        else:
            # The beginning tells at once which way is the faster.
            way = self._many if 2 * text.count(INFO, 0, _HEAD) > text.count(b"\n", 0, _HEAD) else self._few
        found = way(text, look_for_broken=True)
        if found is None:
            self.forget()  # what was handed on is lost
            found = way(joined(text), look_for_broken=False)
            assert found is not None
        if self._odd:
            self._odd = False
            _cut_at_first_mark(found.cuts)
        if self._room < 0:
            self.forget()
        return found

    def _compiled(self, dull: Dull, text: bytes, look_for_broken: bool) -> Cutting | None:
        """As _many does, without the lines that hold nothing."""
        if self._memory is None and len(text) > _WORTH:
            self._memory = memory()
        cuts: list[Cut] = []
        sets = (self._told, self._fellows, QUIET, SILENT, _ASKED, NAMING, *dull)
        calls = (self._thread, self._new, self._heard)
        others, numbers, places, lines, added = walk(self._memory, text, look_for_broken, cuts, *sets, *calls, self.run_into, LONG)
        self._room -= added
        return Cutting(cuts, others, numbers, lines, text, places) if others is not None else None

    def _few(self, text: bytes, look_for_broken: bool) -> Cutting | None:
        """Where most lines are others'. None: a line may be broken, and must be joined before."""
        cuts: list[Cut] = []
        find, rfind = text.find, text.rfind
        known = self._told.get
        end = 0  # of the last line
        at = find(INFO)
        while at >= 0:
            start = rfind(b"\n", end, at) + 1
            end = find(b"\n", at)
            head, tail = text[start:at], text[at + _LEVEL : end]
            if tail[:5] not in QUIET or self._heard(head, tail):
                told = known(head)
                if told is None or tail[NUMBERED:] not in told:
                    if look_for_broken and tail.find(b" via ") >= 0 and find(b"\n", end + 1, end + 1 + MAX_SHORT) >= 0:
                        return None
                    self._new(cuts, told, head, tail, start)
            elif len(head) > LONG or MARK in head:
                self.run_into.append(head)
            at = find(INFO, end)
        return Cutting(cuts, None, [], 0, text)

    def _many(self, text: bytes, look_for_broken: bool) -> Cutting | None:
        """Where most are NCCL's, to look at line by line is faster."""
        cuts: list[Cut] = []
        others: list[bytes] = []
        numbers: list[int] = []
        known = self._told.get
        lines = text.split(b"\n")
        lines.pop()
        for number, line in enumerate(lines):
            head, mark, tail = line.partition(INFO)
            if not mark:
                if look_for_broken and len(line) < MAX_SHORT and number and b" via " in lines[number - 1]:
                    return None
                others.append(line)
                numbers.append(number)
                continue
            told = known(head)
            if told is None or tail[NUMBERED:] not in told:
                if tail[:5] not in QUIET or self._heard(head, tail):
                    self._new(cuts, told, head, tail, number)
                elif len(head) > LONG or MARK in head:
                    self.run_into.append(head)
        return Cutting(cuts, others, numbers, len(lines), text)

    def _heard(self, head: bytes, tail: bytes) -> bool:
        """Does a line that begins like those that are passed over tell something new?"""
        if W in tail and WARNS in tail:
            return True
        if tail[:5] in SILENT:
            return False
        if tail.find(OPCOUNT, 0, FAR) > 0:
            return head not in self._called
        told = self._told.get(head)
        return not (told and tail[: tail.find(b"{")] in told) and tells(tail)

    def _new(self, cuts: list[Cut], told: set[bytes] | None, head: bytes, tail: bytes, place: int) -> None:
        """A line that was not told before."""
        word = tail[:5]
        if _CR in tail and (end := tail.find(b"\r", 0, -1)) >= 0:  # a progress bar ran into it
            if tail.find(MARK, end) >= 0:
                self._several(cuts, tail, place)
                return
            tail = tail[:end]
        if told is None:
            told = self._thread(head)
        if W in tail and WARNS in tail:
            pass
        elif word == b"Chann":
            if tail.find(b" via ") >= 0:
                told.add(tail[NUMBERED:])
                self._room -= 1
            elif not tail.startswith(b"Channel 00/") and _RING in told:  # the ring of ranks of one more channel
                return
            else:
                told.add(_RING)
                self._room -= 1
        elif word in NAMING:
            # What the process says of connections from here on is of that communicator.
            for told in self._fellows.get(head, ()):
                told.clear()
        elif word in _OF_RINGS and tail.find(b" via ") < 0:
            if _RING in told:
                return
            told.add(_RING)
            self._room -= 1
        elif (word in CALLS or word[:1].isdigit()) and tail.find(CHOSE) > 0:
            if self._within(told, head, tail[: tail.find(b"{")]):  # before the channels, which differ from call to call
                return
        elif word in CALLS and tail.find(OPCOUNT, 0, FAR) > 0:
            self._called.add(head)
        cuts.append((head, tail + b"\n", place))

    def _several(self, cuts: list[Cut], line: bytes, place: int) -> None:
        """Messages that stand in one line, parted by carriage returns."""
        for text in line.split(b"\r"):
            head, mark, tail = text.partition(INFO)
            if not mark:
                head, mark, message = text.partition(MARK)
                if mark:
                    cuts.append((head, message + b"\n", ~place))
                else:
                    self.run_into.append(text)
            elif tail[:5] not in QUIET or self._heard(head, tail):
                self._new(cuts, self._told.get(head), head, tail, place)

    def _within(self, told: set[bytes], head: bytes, chosen: bytes) -> bool:
        """Was this choice told, or the same of a smaller and of a larger call? A job may call with a million sizes."""
        if chosen in told:
            return True
        if len(told) < _MAX_CHOICES:
            told.add(chosen)
            self._room -= 1
        what, _, kind = chosen.partition(CHOSE)
        name, _, size = what.rpartition(b" ")
        if len(size) > 18 or not size.isdigit():
            return False
        key, count = (head, name, kind.partition(b" time ")[0]), int(size)
        low, high = self._sizes.get(key, (count + 1, count))
        self._sizes[key] = (min(low, count), max(high, count))
        return low <= count <= high

    def _thread(self, head: bytes) -> set[bytes]:
        """What a thread has told, by what stands before the mark."""
        if len(head) > LONG or MARK in head:
            self.run_into.append(head)
        if MARK in head:
            self._odd = True
            return set()
        if len(self._told) > _MAX_TOLD:
            self._told.clear()
            self._fellows.clear()
            self._processes.clear()
            self._sizes.clear()
            self._called.clear()
            self._forget_walk()
        told = self._told[head] = set()
        fellows = self._fellows[head] = self._processes.setdefault(_process(head), [])
        fellows.append(told)
        return told


def _cut_at_first_mark(cuts: list[Cut]) -> None:
    """NCCL's name may stand earlier in the line: two writers ran into one, or a framework repeats what NCCL said."""
    for at, (head, tail, place) in enumerate(cuts):
        if MARK in head:
            before, _, message = head.partition(MARK)
            cuts[at] = (before, message + INFO + tail, ~place)


def cuts_of(lines: list[bytes], numbers: list[int]) -> Iterator[Cut]:
    """Of lines that are not NCCL's of level INFO those in which its name stands: of other levels, or a framework's."""
    for line, number in zip(lines, numbers, strict=True):
        head, mark, message = line.partition(MARK)
        if mark:
            yield head, message + b"\n", ~number


def other_cuts(text: bytes) -> Iterator[Cut]:
    """The same from a whole text, with the place at which each line begins."""
    end = 0
    at = text.find(MARK)
    while at >= 0:
        start = text.rfind(b"\n", end, at) + 1
        end = text.find(b"\n", at)
        if text.find(INFO, at, end) < 0:
            yield text[start:at], text[at + len(MARK) : end + 1], ~start
        at = text.find(MARK, end)


def _process(head: bytes) -> bytes:
    """All that may be the same process has the same key: its number and the end of its host's name, for the beginning may
    have run into another line. By the number alone every container of a job would be the same process.
    """
    found = _PID.search(head)
    return found[0] if found is not None else b""


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
