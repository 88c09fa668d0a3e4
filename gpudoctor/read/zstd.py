"""Logs compressed with zstd, as a stream: Python's own reader (3.14), the `zstandard` package, or the zstd program."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from gpudoctor.read.gunzip import CUT, DAMAGED
from gpudoctor.read.pipe import RATIO

_CHUNK = 1 << 20
_PATIENCE_S = 10.0  # it has closed its output by then
_FRAME, _SKIPPED = 0xFD2FB528, 0x184D2A50


def readable() -> bool:
    """Is there anything that can unpack it?"""
    return _module("compression.zstd") is not None or _module("zstandard") is not None or shutil.which("zstd") is not None


def chunks(path: str, limit: int) -> Iterator[bytes]:
    """The unpacked bytes. OSError where they are damaged, cut, or more than `limit` and RATIO times what is packed; what came
    before is good."""
    most = max(limit, RATIO * os.path.getsize(path))
    total = 0
    for chunk in _unpacked(path):
        total += len(chunk)
        yield chunk
        if total > most:
            raise OSError(f"it unpacks to more than {RATIO} times its size, as no log does")
    if not _is_whole(path):
        raise OSError(CUT)


def _unpacked(path: str) -> Iterator[bytes]:
    own, package = _module("compression.zstd"), _module("zstandard")
    if own is None and package is None:
        yield from _by_program(path)
        return
    try:
        with open(path, "rb") as raw:
            if own is not None:
                stream = own.ZstdFile(raw)
            else:
                stream = package.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
            while chunk := stream.read(_CHUNK):
                yield chunk
    except EOFError as error:
        raise OSError(CUT) from error
    except (ValueError, RuntimeError) as error:
        raise OSError(DAMAGED) from error
    except Exception as error:  # both libraries have an error class of their own
        if type(error).__name__ != "ZstdError":
            raise
        raise OSError(DAMAGED) from error


def _by_program(path: str) -> Iterator[bytes]:
    """`zstd -dc`: an argument list and no shell; the file is its standard input, so that no name is taken for an option."""
    import subprocess

    with (
        open(path, "rb") as raw,
        subprocess.Popen(("zstd", "-q", "-d", "-c"), stdin=raw, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program,
    ):
        assert program.stdout is not None
        try:
            while chunk := program.stdout.read(_CHUNK):
                yield chunk
            failed = program.wait(_PATIENCE_S) != 0
        except subprocess.TimeoutExpired:
            failed = True
        finally:
            program.kill()
    if failed:
        raise OSError(DAMAGED if _is_whole(path) else CUT)


def _is_whole(path: str) -> bool:
    """Does the file end where a frame of it does? (RFC 8878, section 3.1)"""
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        while head := file.read(5):
            magic = int.from_bytes(head[:4], "little")
            if len(head) < 5:
                return False
            if magic & ~15 == _SKIPPED:  # what other programs keep there
                file.seek(int.from_bytes(head[4:] + file.read(3), "little"), os.SEEK_CUR)
            elif magic != _FRAME:
                return True  # not its frame, and so not its end
            else:
                about = head[4]
                single = about >> 5 & 1
                file.seek((0 if single else 1) + (0, 1, 2, 4)[about & 3] + ((1 if single else 0), 2, 4, 8)[about >> 6], os.SEEK_CUR)
                while len(block := file.read(3)) == 3:
                    said = int.from_bytes(block, "little")
                    file.seek(1 if said >> 1 & 3 == 1 else said >> 3, os.SEEK_CUR)  # one byte that is repeated, or all
                    if said & 1:
                        break
                else:
                    return False
                file.seek(about & 4, os.SEEK_CUR)  # its sum
            if file.tell() > end:
                return False
    return True


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
