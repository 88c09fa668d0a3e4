"""What an archive's members are: snapshots, outputs, and logs that are packed once more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from gpudoctor.facts.base import Loss
from gpudoctor.read import pipe, source
from gpudoctor.read.source import CHUNK, MANIFEST, Document, Folder, Source, shown


class Member(NamedTuple):
    """A file of an archive: its size, and how to read it."""

    size: int
    chunks: Callable[[], Iterator[bytes]]
    mark: int | None = None  # CRC-32 of its bytes


def sources(called: str, held: Mapping[str, Member], lost: Iterable[Loss]) -> Iterator[Source]:
    """What an archive holds: snapshots, and every file beside them."""
    yield from lost
    held = dict(held)
    manifests = sorted((n for n in held if os.path.basename(n) == MANIFEST), key=lambda n: n.count("/"))
    for manifest in manifests:
        base = os.path.dirname(manifest)
        inside = {n[len(base) + 1 if base else 0 :]: held.pop(n) for n in list(held) if not base or n.startswith(base + "/")}
        if not inside:
            continue
        yield Folder(name=os.path.join(called, shown(base)) if base else called, names=tuple(sorted(inside)), read=partial(_of_folder, inside))
    # For what is packed once more, of all members.
    room = [max(source.MAX_UNPACKED, source.MAX_RATIO // 3 * sum(m.size for m in held.values()))]
    for name in sorted(held):
        member = _Unpacked(held[name], room)
        yield Document(name=f"{called}/{shown(name)}", chunks=member.chunks, again=True, mark=member.mark)


def _of_folder(inside: Mapping[str, Member], name: str) -> bytes | None:
    if (member := inside.get(name)) is None:
        return None
    return source.beginning(member.chunks())


def constant(content: bytes) -> Callable[[], Iterator[bytes]]:
    """Bytes that are held, as a member's are read."""

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(content), CHUNK):
            yield content[start : start + CHUNK]

    return chunks


class _Unpacked:
    """A member, which may be packed itself, unpacked each time it is asked for. Thousands that unpack to a gigabyte each fit
    into a few kilobytes.

    room: what all of them may have beyond their own size, in one place; what is read once more takes nothing of it.
    """

    def __init__(self, member: Member, room: list[int]) -> None:
        self._member = member
        self._room = room
        self._most = max(source.RATIO_FROM, source.MAX_RATIO * member.size)
        self._read = member.size
        self._packed = False

    def mark(self) -> int | None:
        """Of what was packed once more, the same bytes may be packed in another way."""
        return None if self._packed else self._member.mark

    def chunks(self) -> Iterator[bytes]:
        passed = 0
        for chunk in pipe.unpacked(self._sniffed()):
            passed += len(chunk)
            if passed > max(self._member.size, min(self._most, self._read + self._room[0])):
                raise OSError("it unpacks to more than the limits")
            self._room[0] -= max(0, passed - self._read)
            self._read = max(self._read, passed)
            yield chunk

    def _sniffed(self) -> Iterator[bytes]:
        chunks = self._member.chunks()
        head = next(chunks, b"")
        self._packed = head[:1] == source.GZIP[:1]  # or so it may be
        yield head
        yield from chunks
