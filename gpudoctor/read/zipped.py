"""A .zip, as issue trackers and mailers make of several logs: nothing of it is written anywhere, and only what is short is held."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from functools import partial

from gpudoctor.facts.base import Loss
from gpudoctor.read import source
from gpudoctor.read.members import Member, constant
from gpudoctor.read.source import CHUNK, OutOfTime, Room, shown

# What everybody's zip makes. To unpack LZMA takes as much memory as the archive asks for.
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_AT_ONCE = 4 << 20  # bytes asked for in one go: the table of contents is, and each of its entries takes ten times its room


class _TooLong(zipfile.BadZipFile):
    """Of the archive's own words."""


class _Sparing(io.RawIOBase):
    """The archive, of which nobody can ask for a table of contents of any size. It is open only while somebody reads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._at = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, place: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = self._opened().seek(place, whence)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _AT_ONCE:
            raise _TooLong(f"a table of contents of more than {_AT_ONCE >> 20} MiB: unpack it, and give the folder")
        content = self._opened().read(-1 if size is None else size) or b""
        self._at += len(content)
        return content

    def release(self) -> None:
        """For now: it is opened again where it is asked for."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> io.FileIO:
        if self._file is None:
            self._file = io.FileIO(self._path)
            self._file.seek(self._at)
        return self._file


def members(path: str, called: str, room: Room) -> tuple[dict[str, Member], list[Loss]]:
    """By name, and what was left alone. No more is unpacked of a member than the archive says that it has."""
    held: dict[str, Member] = {}
    lost: list[Loss] = []
    packed = _Sparing(path)
    try:
        _walk(zipfile.ZipFile(packed), packed, max(source.RATIO_FROM, source.MAX_RATIO * os.path.getsize(path)), called, held, lost, room)
    except (OutOfTime, _TooLong) as error:
        lost.append(Loss(called, str(error), unread=True))
    except Exception as error:  # a hostile table of contents breaks zipfile in many ways, not all of them its own
        behind = "what came before was read, what follows is unknown" if held else "nothing of it is known"
        lost.append(Loss(called, f"the archive is damaged ({type(error).__name__}): {behind}", unread=True))
    finally:
        packed.release()
    return held, lost


def _walk(archive: zipfile.ZipFile, packed: _Sparing, most: int, called: str, held: dict[str, Member], lost: list[Loss], room: Room) -> None:
    total = 0
    for place, info in enumerate(archive.infolist()):
        if room.late():
            raise OutOfTime
        if info.filename.endswith("/"):
            continue
        name = os.path.normpath(info.filename)
        if len(held) >= source.MAX_FILES or place >= source.MAX_ENTRIES:
            lost.append(Loss(called, f"larger than the limits ({source.MAX_FILES} files, {source.MAX_ENTRIES} entries): the rest was left out; unpack it, and give its folders one by one", unread=True))
            return
        refused = _refused(info, name, name in held)
        if refused is not None:
            lost.append(Loss(f"{called}: {shown(info.filename)}", refused))
            continue
        if total + info.file_size > most:
            lost.append(Loss(called, f"unpacks to more than {source.MAX_RATIO} times its size, as no output does: the rest was left out", unread=True))
            return
        total += info.file_size
        chunks: Callable[[], Iterator[bytes]] = partial(_chunks, archive, packed, info)
        if info.file_size <= source.MAX_HELD:
            # What its sum does not match may be anything: of a short one that is known before it is judged.
            chunks = partial(_at_once, chunks)
            if info.file_size <= room.held:
                try:
                    content = b"".join(chunks())
                except OSError as error:
                    lost.append(Loss(f"{called}: {shown(info.filename)}", f"{error}: not read", unread=True))
                    continue
                room.held -= len(content)
                chunks = constant(content)
        held[name] = Member(info.file_size, chunks, info.CRC)


def _refused(info: zipfile.ZipInfo, name: str, known: bool) -> str | None:
    """Why a member is left alone."""
    if name.startswith(("/", "..")) or info.external_attr >> 16 & 0o170000 == 0o120000:
        return "not a plain file inside the archive: left alone"
    if known:
        return "a second file of this name: the first was read"
    if info.compress_type not in _PACKED:
        return f"packed in a way that is not read here (method {info.compress_type}): unpack it, and give what was in it"
    if info.flag_bits & 1:
        return "encrypted: not read; unpack it, and give what was in it"
    return None


def _chunks(archive: zipfile.ZipFile, packed: _Sparing, info: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with archive.open(info) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk
    except GeneratorExit:
        raise
    except Exception as error:  # what is damaged breaks zipfile in many ways
        raise OSError(f"damaged within the archive ({type(error).__name__})") from error
    finally:
        packed.release()


def _at_once(chunks: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    yield b"".join(chunks())
