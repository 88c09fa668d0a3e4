"""Logs compressed with zstd, as a stream: Python's own reader (3.14), the `zstandard` package, or the zstd program."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from typing import Any

_CHUNK = 1 << 20


def readable() -> bool:
    """Is there anything that can unpack it?"""
    return _module("compression.zstd") is not None or _module("zstandard") is not None or shutil.which("zstd") is not None


def chunks(path: str, limit: int) -> Iterator[bytes]:
    """The unpacked bytes, at most `limit`. What is damaged or cut ends the stream: what came before is good."""
    total = 0
    for chunk in _unpacked(path):
        total += len(chunk)
        yield chunk
        if total >= limit:
            return


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
    except (EOFError, ValueError, RuntimeError):
        return
    except Exception as error:  # both libraries have an error class of their own
        if type(error).__name__ != "ZstdError":
            raise


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
        finally:
            program.kill()


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
