"""A tar, plain or packed with gzip: nothing of it is written anywhere, and only what is short is held."""

from __future__ import annotations

import os
import tarfile
from functools import partial

from gpudoctor.facts.base import Loss
from gpudoctor.read import source
from gpudoctor.read.members import Member, constant
from gpudoctor.read.places import Places, Stream
from gpudoctor.read.source import OutOfTime, Room, shown

_DESCRIBED = 1 << 20  # bytes that may describe one member: its name, its attributes, where its holes are
_BLOCK = 512


def members(path: str, called: str, packed: bool, room: Room) -> tuple[dict[str, Member], list[Loss]]:
    """By name, and what was left alone."""
    held: dict[str, Member] = {}
    lost: list[Loss] = []
    try:
        _walk(Places(path, packed, room), os.path.getsize(path), called, held, lost, room)
    except OutOfTime as error:
        lost.append(Loss(called, str(error), unread=True))
    except Exception as error:  # a hostile archive breaks tarfile in many ways, not all of them its own
        told = str(error) if isinstance(error, OSError) and error.strerror is None else getattr(error, "strerror", None) or type(error).__name__
        behind = "what came before was read, what follows is unknown" if held else "nothing of it is known"
        lost.append(Loss(called, f"the archive is damaged ({told}): {behind}", unread=True))
    return held, lost


def _walk(places: Places, size: int, called: str, held: dict[str, Member], lost: list[Loss], room: Room) -> None:
    total = entries = 0
    most = max(source.RATIO_FROM, source.MAX_RATIO * size)
    with Stream(places) as stream:
        stream.left = _DESCRIBED
        tar = tarfile.TarFile(fileobj=stream)  # type: ignore[arg-type]
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # nobody asks for those before
            entries += 1
            if member.size < 0 or tar.offset <= member.offset:
                raise tarfile.ReadError("a member of less than nothing")
            if len(held) >= source.MAX_FILES or entries > source.MAX_ENTRIES:
                lost.append(Loss(called, f"larger than the limits ({source.MAX_FILES} files, {source.MAX_ENTRIES} entries): the rest was left out; unpack it, and give its folders one by one", unread=True))
                return
            if not member.isdir():
                name = os.path.normpath(member.name)
                refused = _refused(member, name in held)
                if refused:
                    lost.append(Loss(f"{called}: {shown(member.name)}", refused))
                elif total + member.size > most:
                    lost.append(Loss(called, f"unpacks to more than {source.MAX_RATIO} times its size, as no output does: the rest was left out", unread=True))
                    return
                else:
                    total += member.size
                    held[name] = _member(stream, places, member, room)
            stream.left = _DESCRIBED
        if len(stream.last) < _BLOCK or stream.last.strip(b"\0"):
            raise OSError("it ends without the mark of its end" if not stream.last else "a header that is none")


def _member(stream: Stream, places: Places, member: tarfile.TarInfo, room: Room) -> Member:
    at, size = member.offset_data, member.size
    if size > min(source.MAX_HELD, room.held):
        return Member(size, partial(places.chunks, at, size), stream.sum_of(at, size) if places.packed else None)
    stream.seek(at)
    stream.left = size
    content = stream.read(size)
    if len(content) < size:
        raise OSError("it ends in the middle of a member")
    room.held -= size
    return Member(size, constant(content))


def _refused(member: tarfile.TarInfo, known: bool) -> str | None:
    """Why a member is left alone. A link, a device or a way out of the archive is no output."""
    if not member.isfile() or os.path.normpath(member.name).startswith(("/", "..")):
        return "not a plain file inside the archive: left alone"
    if member.issparse():
        return "a sparse file, which may hold any number of zeros: left alone"
    return "a second file of this name: the first was read" if known else None
