"""A .zip, as issue trackers and mailers make of several logs: read in memory, nothing of it is written anywhere."""

from __future__ import annotations

import os
import zipfile
import zlib

from gpudoctor.facts.base import Loss
from gpudoctor.read.text import clean

# What everybody's zip makes. To unpack LZMA takes as much memory as the archive asks for.
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def members(path: str, most: int, of_one: int, of_all: int, unpacked: int) -> tuple[dict[str, bytes], list[Loss]]:
    """Contents by name, and what was left alone. Sizes are counted as they come: what the archive says of them may be false."""
    held: dict[str, bytes] = {}
    lost: list[Loss] = []
    total = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.is_dir():
                    continue
                shown = f"{path}: {clean(info.filename)}"
                name = os.path.normpath(info.filename)
                if len(held) >= most or total >= min(of_all, unpacked):
                    lost.append(Loss(path, f"larger than the limits ({most} files, {min(of_all, unpacked) >> 20} MiB unpacked): the rest was left out"))
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
                    room = min(of_one, min(of_all, unpacked) - total)
                    try:
                        with archive.open(info) as stream:
                            content = stream.read(room + 1)
                    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
                        lost.append(Loss(shown, f"damaged ({type(error).__name__})"))
                        continue
                    held[name] = content[:room]
                    total += len(held[name])
                    if len(content) > room:
                        lost.append(Loss(shown, f"only the first {room >> 20} MiB were read"))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        lost.append(Loss(path, f"the archive is damaged ({type(error).__name__})" + (": what came before was read" if held else "")))
    return held, lost
