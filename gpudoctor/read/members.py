"""What an archive's members are: snapshots, outputs, and logs that are packed once more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice

from gpudoctor.facts.base import Loss
from gpudoctor.read import pipe, source
from gpudoctor.read.source import CHUNK, MANIFEST, Content, Document, Folder, Source, shown


def sources(path: str, held: Mapping[str, Content], lost: Iterable[Loss]) -> Iterator[Source]:
    """What an archive holds: snapshots, and every file beside them."""
    yield from lost
    held = dict(held)
    manifests = sorted((n for n in held if os.path.basename(n) == MANIFEST), key=lambda n: n.count("/"))
    for manifest in manifests:
        base = os.path.dirname(manifest)
        inside = {n[len(base) + 1 if base else 0 :]: held.pop(n) for n in list(held) if not base or n.startswith(base + "/")}
        if not inside:
            continue
        yield Folder(name=os.path.join(path, shown(base)) if base else path, names=tuple(sorted(inside)), read=partial(_of_folder, inside))
    room = [source.MAX_UNPACKED]  # for what is packed once more, of all members
    for name in sorted(held):
        content = held[name]
        if not isinstance(content, bytes):
            yield Document(name=f"{path}/{shown(name)}", chunks=partial(_unpacked, content), again=True)
            continue
        if content[:2] != b"\x1f\x8b":
            yield Document(name=f"{path}/{shown(name)}", chunks=_constant(content), again=True)
            continue
        member = _Packed(content, room)
        yield Document(name=f"{path}/{shown(name)}", chunks=member.chunks, again=True)
        if member.ended_early:  # it was read by now
            yield Loss(f"{path}/{shown(name)}", f"unpacks to more than the limits: only the first {member.read >> 20} MiB were read")


def _of_folder(inside: Mapping[str, Content], name: str) -> bytes | None:
    content = inside.get(name)
    if content is None or isinstance(content, bytes):
        return content
    try:
        return b"".join(islice(content(), source.MAX_MEMBER // CHUNK))
    except OSError:
        return None


def _unpacked(stream: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """A long member, which may be packed itself."""
    return pipe.unpacked(stream(), source.MAX_UNPACKED)


def _constant(content: bytes) -> Callable[[], Iterator[bytes]]:
    def chunks() -> Iterator[bytes]:
        for start in range(0, len(content), CHUNK):
            yield content[start : start + CHUNK]

    return chunks


class _Packed:
    """A packed member, unpacked each time it is asked for. Thousands that unpack to a gigabyte each fit into a few kilobytes.

    room: what is left for all of them, in one place; what is read once more takes nothing of it.
    """

    def __init__(self, content: bytes, room: list[int]) -> None:
        self._chunks = _constant(content)
        self._most = min(source.MAX_ARCHIVE, max(source.RATIO_FROM, source.MAX_RATIO * len(content)))
        self._room = room
        self.read = 0
        self.ended_early = False

    def chunks(self) -> Iterator[bytes]:
        passed = 0
        for chunk in pipe.unpacked(self._chunks(), self._most + CHUNK):
            if passed + len(chunk) > min(self._most, self.read + self._room[0]):
                self.ended_early = True
                return
            passed += len(chunk)
            self._room[0] -= max(0, passed - self.read)
            self.read = max(self.read, passed)
            yield chunk
