"""What one chunk of whole lines holds: NCCL's lines, and the places at which any other known output may begin.

It depends on the chunk alone, so that chunks can be sifted by several processes (gpudoctor.read.team); what a sieve
remembers of the chunks before only spares it from saying the same again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudoctor.read.nccl_cut import Cut, Cutter, Numbers, Others, spans, uncoloured
from gpudoctor.read.shapes import Shapes


class Sifted(NamedTuple):
    line_ends: int
    places: list[int]
    nccl: list[Cut]
    numbering: Numbers | Others  # of NCCL's lines

    def numbers(self) -> Numbers:
        return self.numbering if isinstance(self.numbering, Numbers) else self.numbering.numbers()


class Sieve:
    def __init__(self, telling: bytes) -> None:
        self._telling = re.compile(telling)
        self._shapes = Shapes(self._telling)
        self._cutter = Cutter()

    def sift(self, chunk: bytes) -> Sifted:
        """The next chunk of a text."""
        cuts, others, count, text = self._cutter.cut(uncoloured(chunk))
        shared = self._shared(chunk) if self._cutter.run_into else []
        if not others.texts:
            return Sifted(count, shared, cuts, others)
        foreign = b"".join(others.texts)
        lines, places, named = self._shapes.look(foreign)
        numbering: Numbers | Others = others
        if named:
            numbering = others.numbers()
            cuts += others.cuts(numbering)
            cuts.sort(key=lambda cut: numbering.of(cut[2]))
        if places and len(text) != len(chunk):  # colours were taken off
            places = self._shapes.look(chunk).places
        elif places and count:
            places = moved(places, spans(text))
        return Sifted(lines + count, sorted((*places, *shared)) if shared else places, cuts, numbering)

    def _shared(self, chunk: bytes) -> list[int]:
        """Lines in which something known stands before NCCL's own words: an error without its line end, say."""
        heads, self._cutter.run_into = self._cutter.run_into, []
        places = []
        at = 0  # they come in the order of the text
        for head in heads:
            place = chunk.find(head, at)
            if place >= 0:  # else colours stood in it
                at = place
                if (found := self._telling.search(head)) is not None:
                    places.append(place + found.start())
        return places

    def sift_alone(self, chunk: bytes) -> Sifted:
        """Any chunk of a text, whichever was sifted before."""
        self._cutter.forget()
        return self.sift(chunk)


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
