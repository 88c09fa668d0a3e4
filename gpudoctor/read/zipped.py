"""A .zip, as issue trackers and mailers make of several logs: read in memory, nothing of it is written anywhere."""

from __future__ import annotations

import io
import os
import zipfile

from gpudoctor.facts.base import Loss
from gpudoctor.read.text import clean

# What everybody's zip makes. To unpack LZMA takes as much memory as the archive asks for.
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_AT_ONCE = 4 << 20  # bytes asked for in one go: the table of contents is, and each of its entries takes ten times its room


class _Sparing(io.FileIO):
    """The archive, of which nobody can ask for a table of contents of any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _AT_ONCE:
            raise zipfile.BadZipFile(f"a table of contents of more than {_AT_ONCE >> 20} MiB")
        return super().read(-1 if size is None else size) or b""


def members(path: str, most: int, entries: int, of_one: int, of_all: int) -> tuple[dict[str, bytes], list[Loss]]:
    """Contents by name, and what was left alone. Sizes are counted as they come: what the archive says of them may be false."""
    held: dict[str, bytes] = {}
    lost: list[Loss] = []
    total = 0
    try:
        with _Sparing(path) as packed, zipfile.ZipFile(packed) as archive:
            for place, info in enumerate(archive.infolist()):
                if info.filename.endswith("/"):
                    continue
                shown = f"{path}: {clean(info.filename)}"
                name = os.path.normpath(info.filename)
                if len(held) >= most or place >= entries or total >= of_all:
                    lost.append(Loss(path, f"larger than the limits ({most} files, {entries} entries, {of_all >> 20} MiB unpacked): the rest was left out"))
                    break
                if name.startswith(("/", "..")) or info.external_attr >> 16 & 0o170000 == 0o120000:
                    lost.append(Loss(shown, "not a plain file inside the archive: left alone"))
                elif name in held:
                    lost.append(Loss(shown, "a second file of this name: the first was read"))
                elif info.compress_type not in _PACKED:
                    lost.append(Loss(shown, f"packed in a way that is not read here (method {info.compress_type})"))
                elif info.flag_bits & 1:
                    lost.append(Loss(shown, "encrypted: not read"))
                else:
                    room = min(of_one, of_all - total)
                    content, wrong = _content(archive, info, room + 1)
                    if content is None:
                        lost.append(Loss(shown, f"damaged ({wrong})"))
                        continue
                    held[name] = content[:room]
                    total += len(held[name])
                    if len(content) > room:
                        lost.append(Loss(shown, f"only the first {room >> 20} MiB were read"))
    except Exception as error:  # a hostile table of contents breaks zipfile in many ways, not all of them its own
        lost.append(Loss(path, f"the archive is damaged ({type(error).__name__})" + (": what came before was read" if held else "")))
    return held, lost


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> tuple[bytes | None, str]:
    """A member's first bytes, or what went wrong while they were unpacked: what its sum does not match may be anything."""
    content = bytearray()
    try:
        with archive.open(info) as stream:
            while len(content) < most and (chunk := stream.read(min(1 << 18, most - len(content)))):
                content += chunk
    except Exception as error:  # what is damaged breaks zipfile in many ways
        return None, type(error).__name__
    return bytes(content), ""
