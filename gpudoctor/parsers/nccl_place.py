"""Where a line of NCCL's stands, kept as it was read and made evidence where somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.model import Evidence
from gpudoctor.read.text import clean

Place = tuple[int, bytes]  # number of a line and how it begins


def evidence(source: str, place: Place) -> Evidence:
    """A line of NCCL's as evidence; that of its version counts as none."""
    number, raw = place
    return Evidence(source, f"line {number}" if number else "version line", clean(raw.decode("utf-8", "replace").strip())[:240])


class Origin(Mapping[str, Evidence]):
    """One line as the origin of all fields, made evidence where somebody asks: a log may hold a hundred thousand ranks."""

    __slots__ = ("_place", "_source")

    def __init__(self, source: str, place: Place) -> None:
        self._source = source
        self._place = place

    def __getitem__(self, name: str) -> Evidence:
        if name != "*":
            raise KeyError(name)
        return evidence(self._source, self._place)

    def __iter__(self) -> Iterator[str]:
        yield "*"

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return repr(dict(self))
