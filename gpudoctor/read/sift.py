"""What one chunk of whole lines holds: NCCL's lines, and the places at which any other known output may begin.

It depends on the chunk alone, so that chunks can be sifted by several processes (gpudoctor.read.team).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudoctor.read.shapes import Shapes


class Sifted(NamedTuple):
    line_ends: int
    places: list[int]
    nccl: list[tuple[bytes, bytes, int]]  # see gpudoctor.read.nccl_cut


class Sieve:
    """Remembers only what makes it faster."""

    def __init__(self, telling: bytes) -> None:
        self._telling = re.compile(telling)
        self._shapes = Shapes(self._telling)

    def sift(self, chunk: bytes) -> Sifted:
        if b"NCCL " not in chunk:
            return Sifted(*self._shapes.places(chunk, [(0, len(chunk))]), [])
        from gpudoctor.read.nccl_cut import cut  # only where there is such a line

        cuts, spans = cut(chunk, lambda lines: self._telling.search(lines) is not None)
        places = self._shapes.places(chunk, spans)[1] if spans else []
        return Sifted(chunk.count(b"\n"), places, cuts)
