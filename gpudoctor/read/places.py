"""A file that is read from any place in it, be it plain or packed with gzip, in bounded room.

Of a packed one the unpacker's state is kept every so many bytes (about 50 kB each), so that a member of an archive is read
without unpacking all that stands before it once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from zlib import crc32

from gpudoctor.read.gunzip import CHUNK, CUT, Gunzip
from gpudoctor.read.source import OutOfTime, Room

_PACKED = 1 << 14  # bytes read at a time: what is left of them is kept with each state
_APART = 1 << 20  # unpacked bytes between two states, at least
_MOST = 256  # states of one file


class Places:
    """Where reading may begin. The file is open only while somebody reads."""

    def __init__(self, path: str, packed: bool, room: Room) -> None:
        self.path = path
        self.packed = packed
        self.room = room
        self._apart = _APART
        self._states: list[tuple[int, int, Gunzip]] = []  # place in the text, in the file, and the unpacker there

    def before(self, place: int) -> tuple[int, int, Gunzip]:
        """The last state at or before a place in the text."""
        if not self.packed:
            return place, place, Gunzip()
        best = max((s for s in self._states if s[0] <= place), key=lambda s: s[0], default=None)
        return (best[0], best[1], best[2].copy()) if best is not None else (0, 0, Gunzip())

    def keep(self, text: int, file: int, gunzip: Gunzip) -> None:
        """Perhaps: they are as far apart as there is room for."""
        if text - (self._states[-1][0] if self._states else 0) < self._apart:
            return
        if len(self._states) >= _MOST or self.room.states <= 0:
            if len(self._states) < 2:
                return
            before = len(self._states)
            self._states = self._states[1::2]
            self.room.states += before - len(self._states)
            self._apart *= 2
            return
        self.room.states -= 1
        self._states.append((text, file, gunzip.copy()))

    def chunks(self, place: int, size: int) -> Iterator[bytes]:
        """So many bytes from there on; OSError where they end before."""
        with Stream(self, place) as stream:
            while size > 0:
                chunk = stream.some(min(size, CHUNK))
                if not chunk:
                    raise OSError("the archive ends in the middle of it")
                size -= len(chunk)
                yield chunk


class Stream:
    """The text from a place on, as a file for `tarfile`: read, seek and tell.

    left: bytes that may still be read. What describes a member takes as much memory as it asks for, else.
    """

    def __init__(self, places: Places, place: int = 0) -> None:
        self._places = places
        self._file = open(places.path, "rb", buffering=0)
        self.left = 1 << 62
        self.last = b""  # what was read last
        self._begin(place)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def _begin(self, place: int) -> None:
        self._at, file, self._gunzip = self._places.before(place)  # place of the first byte of `_text`
        self._file.seek(file)
        self._read = file
        self._rest = self._text = b""
        self.seek(place)

    def tell(self) -> int:
        return self._at

    def seek(self, place: int, whence: int = 0) -> int:
        if place < 0 or whence:
            raise OSError("a place before the archive's beginning")
        if place < self._at:
            self._begin(place)
        elif not self._places.packed:
            self._file.seek(place)
            self._at = place
        while self._at < place and (self._text or self._more()):
            step = min(place - self._at, len(self._text))
            self._text = self._text[step:]
            self._at += step
        return self._at

    def sum_of(self, place: int, size: int) -> int:
        """CRC-32 of so many bytes, which are unpacked here in any case."""
        self.seek(place)
        found = 0
        while size > 0:
            part = self.some(min(size, CHUNK))
            if not part:
                raise OSError("it ends in the middle of a member")
            found = crc32(part, found)
            size -= len(part)
        return found

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise OSError("what describes a member is longer than any name")
        self.left -= size
        parts = []
        while size > 0 and (part := self.some(size)):
            parts.append(part)
            size -= len(part)
        self.last = b"".join(parts)
        return self.last

    def some(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        if not self._places.packed:
            part = self._file.read(size) or b""
        else:
            if not self._text and not self._more():
                return b""
            part, self._text = self._text[:size], self._text[size:]
        self._at += len(part)
        return part

    def _more(self) -> bool:
        """Unpacks the next piece, where there is one."""
        while not self._text:
            if self._places.room.late():
                raise OutOfTime
            if not self._rest:
                self._rest = self._file.read(_PACKED) or b""
                self._read += len(self._rest)
                if not self._rest:
                    if self._gunzip.midway:
                        raise OSError(CUT)
                    return False
            self._text, self._rest = self._gunzip.step(self._rest)
            if self._text:
                self._places.keep(self._at + len(self._text), self._read - len(self._rest), self._gunzip)
        return True
