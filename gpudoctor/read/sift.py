"""What one chunk of whole lines holds: NCCL's lines, and the places at which any other known output may begin.

It depends on the chunk alone, so that chunks can be sifted by several processes (gpudoctor.read.team); what a sieve
remembers of the chunks before only spares it from saying the same again.
"""

from __future__ import annotations

from typing import NamedTuple

from gpudoctor.pattern import lazy
from gpudoctor.read.alive import alive
from gpudoctor.read.nccl_cut import Cut, Cutter, cuts_of, other_cuts, spans
from gpudoctor.read.nccl_line import INFO, uncoloured
from gpudoctor.read.shapes import Looked, Shapes
from gpudoctor.read.table import Telling


class Sifted(NamedTuple):
    line_ends: int
    places: list[int]
    nccl: list[Cut]
    numbered: bool  # the cuts' places are numbers of lines, not places in the text


class Sieve:
    def __init__(self, telling: Telling) -> None:
        self._telling = lazy(telling.exact.encode())
        self._shapes = Shapes(self._telling, lazy(telling.bare.encode()), alive(telling).may_begin)
        self._cutter = Cutter()

    def sift(self, chunk: bytes) -> Sifted:
        """The next chunk of a text."""
        found = self._cutter.cut(uncoloured(chunk), self._shapes.dull)
        cuts, others = found.cuts, found.others
        lines = found.lines
        looked = Looked(lines, [], False)
        places = looked.places
        if others is None:
            looked = self._shapes.look(found.text)
            lines, places = looked.lines, looked.places
            more = other_cuts(found.text) if looked.named else ()
        else:
            if others:
                looked = self._shapes.look(b"\n".join((*others, b"")), found.lines)
                if looked.places and found.places is None:
                    places = moved(looked.places, spans(found.text))
                elif looked.places and found.places is not None:
                    places = moved(looked.places, [(at, at + len(line) + 1) for at, line in zip(found.places, others, strict=True)])
            more = cuts_of(others, found.numbers) if looked.named else ()
        if looked.named:
            cuts += more
            cuts.sort(key=_place)
        if self._cutter.run_into:
            places = sorted((*places, *self._shared(found.text)))
        if places and len(found.text) != len(chunk):  # colours were taken off, of which some may stand within words
            places = _same_lines(places, found.text, chunk)
        return Sifted(lines, places, cuts, others is not None)

    def pass_over(self, line: bytes) -> None:
        """Lines that differ from this one in digits only hold nothing, whatever words stand in them."""
        self._shapes.pass_over(line)

    def not_passed_over(self, chunk: bytes, places: list[int]) -> list[int]:
        """Of the places that another sieve found, which may not have heard of what is passed over."""

        def line(place: int) -> bytes:
            return chunk[chunk.rfind(b"\n", 0, place) + 1 : chunk.find(b"\n", place)]

        return [place for place in places if not self._shapes.is_passed_over(line(place))]

    def _shared(self, text: bytes) -> list[int]:
        """Lines in which something known stands before NCCL's own words: an error without its line end, say."""
        heads, self._cutter.run_into = self._cutter.run_into, []
        places = []
        at = 0  # they come in the order of the text
        for head in heads:
            if (found := self._telling.search(head)) is None:
                continue
            place = text.find(head + INFO, at)  # another line may begin with the same words
            if place < 0:  # what stood between two carriage returns
                place = text.find(head, at)
            if place < 0:  # the text was cut a second time
                place = text.find(head)
            if place >= 0:
                at = place + len(head)
                places.append(place + found.start())
        return places

    def sift_alone(self, chunk: bytes) -> Sifted:
        """Any chunk of a text, whichever was sifted before."""
        self._cutter.forget()
        return self.sift(chunk)


def _place(cut: Cut) -> int:
    return ~cut[2] if cut[2] < 0 else cut[2]


def _same_lines(places: list[int], text: bytes, other: bytes) -> list[int]:
    """Where the lines of these places begin in another text that has as many."""
    found = []
    done = at = 0
    for place in places:
        for _ in range(text.count(b"\n", done, place)):
            at = other.find(b"\n", at) + 1
        done = place
        found.append(at)
    return found


def moved(places: list[int], stretches: list[tuple[int, int]]) -> list[int]:
    """Places in the joined stretches as places in the whole."""
    found = []
    rest = iter(stretches)
    low, high = next(rest)
    before = 0  # length of the stretches before this one
    for place in places:
        while place - before >= high - low:
            before += high - low
            low, high = next(rest)
        found.append(low + place - before)
    return found
