"""A .zip, as issue trackers and mailers make of several logs: nothing of it is written anywhere, and only what is short is held."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpudoctor.facts.base import Loss
from gpudoctor.read.text import clean

if TYPE_CHECKING:
    from gpudoctor.read.source import Content

# What everybody's zip makes. To unpack LZMA takes as much memory as the archive asks for.
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CHUNK = 1 << 18
_AT_ONCE = 4 << 20  # bytes asked for in one go: the table of contents is, and each of its entries takes ten times its room


class _Sparing(io.FileIO):
    """The archive, of which nobody can ask for a table of contents of any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _AT_ONCE:
            raise zipfile.BadZipFile(f"a table of contents of more than {_AT_ONCE >> 20} MiB")
        return super().read(-1 if size is None else size) or b""


def members(path: str, most: int, entries: int, of_one: int, of_all: int, unpacked: int) -> tuple[dict[str, Content], list[Loss]]:
    """Contents by name, of members of more than `of_one` bytes how to read them, and what was left alone.

    No more is unpacked of a member than the archive says that it has.
    """
    held: dict[str, Content] = {}
    lost: list[Loss] = []
    total = in_memory = 0
    try:
        with _Sparing(path) as packed, zipfile.ZipFile(packed) as archive:
            for place, info in enumerate(archive.infolist()):
                if info.filename.endswith("/"):
                    continue
                shown = f"{path}: {clean(info.filename)}"
                name = os.path.normpath(info.filename)
                if len(held) >= most or place >= entries or in_memory >= of_all or total + info.file_size > unpacked:
                    lost.append(Loss(path, f"larger than the limits ({most} files, {entries} entries, {min(of_all, unpacked) >> 20} MiB unpacked): the rest was left out"))
                    break
                if name.startswith(("/", "..")) or info.external_attr >> 16 & 0o170000 == 0o120000:
                    lost.append(Loss(shown, "not a plain file inside the archive: left alone"))
                elif name in held:
                    lost.append(Loss(shown, "a second file of this name: the first was read"))
                elif info.compress_type not in _PACKED:
                    lost.append(Loss(shown, f"packed in a way that is not read here (method {info.compress_type})"))
                elif info.flag_bits & 1:
                    lost.append(Loss(shown, "encrypted: not read"))
                elif info.file_size > of_one:
                    total += info.file_size
                    held[name] = partial(_streamed, path, place)
                else:
                    content, wrong = _content(archive, info)
                    if content is None:
                        lost.append(Loss(shown, f"damaged ({wrong})"))
                        continue
                    held[name] = content
                    total += len(content)
                    in_memory += len(content)
    except Exception as error:  # a hostile table of contents breaks zipfile in many ways, not all of them its own
        lost.append(Loss(path, f"the archive is damaged ({type(error).__name__})" + (": what came before was read" if held else "")))
    return held, lost


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[bytes | None, str]:
    """A member, or what went wrong while it was unpacked: what its sum does not match may be anything."""
    try:
        with archive.open(info) as stream:
            return stream.read(), ""
    except Exception as error:  # what is damaged breaks zipfile in many ways
        return None, type(error).__name__


def _streamed(path: str, place: int) -> Iterator[bytes]:
    """A long member, by its place, as it is read."""
    try:
        with _Sparing(path) as packed, zipfile.ZipFile(packed) as archive, archive.open(archive.infolist()[place]) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except GeneratorExit:
        raise
    except Exception as error:
        raise OSError(f"the archive is damaged ({type(error).__name__})") from error
