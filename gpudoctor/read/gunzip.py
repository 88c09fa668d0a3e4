"""gzip, unpacked step by step: in bounded room, from several members, and with words for what is damaged or cut."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zlib import _Decompress

CHUNK = 1 << 18  # bytes unpacked at a time
MAGIC = b"\x1f\x8b"
CUT = "its compressed data end in the middle of it (a cut copy, or one still being written)"
DAMAGED = "its compressed data are damaged from there on"
_WITH_HEADER = 31  # zlib's word for a gzip member


class Gunzip:
    """What is between two steps. midway: more has to come, or it was cut."""

    def __init__(self) -> None:
        self._unpacker: _Decompress | None = None  # None: between two members
        self._damaged = False  # all that came before has been given

    @property
    def midway(self) -> bool:
        return self._unpacker is not None

    def step(self, packed: bytes) -> tuple[bytes, bytes]:
        """What the packed bytes give, at most a chunk of it, and what is left of them. OSError where they are damaged."""
        if self._unpacker is None:
            packed = packed.lstrip(b"\0")  # tapes and disks are filled up with them
            if not packed:
                return b"", b""
            self._unpacker = zlib.decompressobj(_WITH_HEADER)
        unpacker = self._unpacker
        before = unpacker.copy()
        try:
            if self._damaged:
                raise OSError(DAMAGED)
            text = unpacker.decompress(packed, CHUNK)
        except zlib.error as error:  # with all that it would have given in this step
            self._damaged = True
            if text := _sound(before, packed):
                return text, packed
            raise OSError(DAMAGED) from error
        if unpacker.eof:
            self._unpacker = None
            return text, unpacker.unused_data
        return text, unpacker.unconsumed_tail

    def rest(self) -> Iterator[bytes]:
        """What a stream that was cut holds in its last bytes."""
        while self._unpacker is not None and (text := self._unpacker.decompress(b"", CHUNK)):
            yield text

    def copy(self) -> Gunzip:
        """The same place once more."""
        other = Gunzip()
        other._unpacker = self._unpacker.copy() if self._unpacker is not None else None
        other._damaged = self._damaged
        return other


def _sound(unpacker: _Decompress, packed: bytes) -> bytes:
    """What stands before damage."""
    text: list[bytes] = []
    step = CHUNK
    while step and packed and not unpacker.eof:
        trial = unpacker.copy()
        try:
            text.append(trial.decompress(packed, step))
        except zlib.error:
            step //= 2
            continue
        if not text[-1]:
            break
        unpacker, packed = trial, trial.unconsumed_tail
    return b"".join(text)


def head_of(packed: bytes, most: int) -> bytes:
    """The first bytes of what it unpacks to, as far as they can be told."""
    gunzip, text = Gunzip(), b""
    try:
        while packed and len(text) < most:
            more, packed = gunzip.step(packed)
            text += more
    except OSError:
        pass
    return text[:most]
