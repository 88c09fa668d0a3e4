"""What `--from` takes: a snapshot directory or its .tar.gz, a folder, any text file, a pipe, or standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import IO

from gpudoctor.facts.base import Loss
from gpudoctor.read.text import clean
from gpudoctor.record import KeyedRecord

CHUNK = 1 << 18  # bytes read at a time: what is made of them stays in a processor's cache
MAX_FILES = 10_000  # in one folder or archive: two logs for each rank of a job of 4,096, and more
MAX_DEPTH = 6
MAX_MEMBER = 32 << 20  # bytes of one file of a snapshot, which is held
MAX_HELD = 16 << 20  # the same of an archive's member, while there is room; others are unpacked as they are read
MAX_KEPT = 8 << 30  # bytes of an archive that comes through a pipe
MAX_ENTRIES = 2 * MAX_FILES  # of one archive, whatever they are
MAX_RATIO = 300  # unpacked bytes per packed one, beyond RATIO_FROM: logs reach a tenth of it
RATIO_FROM = 64 << 20
MAX_UNPACKED = 4 << 30  # the same of one compressed log, which is streamed and never held
HEAD = 512  # bytes by which the kind of a file is told
GZIP, ZSTD, ZIP, USTAR = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"PK\x03\x04", b"PK\x05\x06"), b"ustar"
_OTHERS = {b"\xfd7zXZ\0": "xz", b"BZh91AY&SY": "bzip2", b"\x04\x22\x4d\x18": "lz4"}
MANIFEST = "manifest.json"


class Unreadable(Exception):
    """A path that cannot be opened at all: a usage error, since nothing was given to judge."""


class Document(KeyedRecord):
    """A text to be recognised. `chunks` opens it anew each time it is called."""

    name: str
    chunks: Callable[[], Iterator[bytes]]
    again: bool = False  # may it be opened more than once? What comes through a pipe may not
    file: tuple[int, int] | None = None  # of a plain file: device and inode
    mark: Callable[[], int | None] | None = None  # once it was read: equal for equal bytes, where it is known without reading them again


class Folder(KeyedRecord):
    """A snapshot's files, by name, before its manifest is read. `read` gives a file's bytes (None: no such file)."""

    name: str
    names: tuple[str, ...]
    read: Callable[[str], bytes | None]


Source = Document | Folder | Loss


class OutOfTime(OSError):
    """Nobody waits for the rest."""

    def __init__(self) -> None:
        super().__init__("there was no time to read to its end: what was not reached is unknown")


class Room:
    """What all archives of a run may hold together; and their time."""

    def __init__(self, late: Callable[[], bool] = lambda: False, held: int = 48 << 20, states: int = 512) -> None:
        self.late = late
        self.held = held  # bytes of members
        self.states = states  # of unpackers, each about 50 kB
        self.files: list[IO[bytes]] = []  # what came through pipes


def open_path(path: str, room: Room | None = None) -> Iterator[Source]:
    """Everything one `--from` argument holds. Raises Unreadable when the path itself cannot be opened.

    Of what comes through a pipe some chunks are empty: nothing came for a while.
    """
    room = room or Room()
    if path == "-":
        yield from _piped("standard input", _standard_input(), room)
        return
    if os.path.isdir(path):
        yield from _directory(path, room)
        return
    from gpudoctor.read import pipe  # a snapshot, which is a directory, is read without it

    if pipe.is_pipe(path):
        yield from _piped(path, pipe.chunks(path), room)
        return
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(number)
            with suppress(BlockingIOError):  # of /proc and its like, as long as there is nothing
                head = b""
                head = os.read(number, HEAD)
        finally:
            os.close(number)
    except (OSError, ValueError) as error:
        raise Unreadable(f"{shown(path) or 'a file without a name'}: {getattr(error, 'strerror', None) or error}") from error
    kind = _archive_kind(head)
    if kind is not None:
        yield from _archive(kind, path, path, room)
        return
    file = (status.st_dev, status.st_ino)
    if head[:2] == GZIP:
        yield Document(name=path, chunks=lambda: pipe.unpacked(pipe.chunks(path), MAX_UNPACKED), again=True, file=file)
    elif head[:4] == ZSTD:
        from gpudoctor.read import zstd

        if zstd.readable():
            yield Document(name=path, chunks=lambda: zstd.chunks(path, MAX_UNPACKED), again=True, file=file)
        else:
            yield Loss(path, "compressed with zstd, which nothing here can unpack: install zstd or the Python package zstandard")
    elif (packed := _packed_otherwise(path, head)) is not None:
        yield packed
    else:
        yield Document(name=path, chunks=lambda: pipe.chunks(path), again=True, file=file)


def _packed_otherwise(called: str, head: bytes) -> Loss | None:
    """Compressed as few logs are: unpacked by its own program it is read as any other text."""
    tool = next((tool for magic, tool in _OTHERS.items() if head.startswith(magic)), None)
    return Loss(called, f"compressed with {tool}, which is not unpacked here: `{tool} -dc FILE | gpudoctor check --from -` reads it") if tool is not None else None


def _standard_input() -> Iterator[bytes]:
    from gpudoctor.read import pipe

    try:
        return pipe.chunks(sys.stdin.fileno())
    except (OSError, ValueError):  # closed, or no real one
        return iter(partial(sys.stdin.buffer.read, CHUNK), b"")


def _piped(called: str, chunks: Iterator[bytes], room: Room) -> Iterator[Source]:
    """An archive is kept in a file without a name while it is read; all else is read as it comes."""
    from gpudoctor.read import pipe

    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= HEAD or room.late():
            break
    kind = _archive_kind(head)
    if (packed := _packed_otherwise(called, head)) is not None:
        yield packed
        return
    if kind is None:
        yield Document(name=called, chunks=lambda: pipe.unpacked(chain((head,), chunks), MAX_UNPACKED))
        return
    try:
        kept = pipe.kept(head, chunks, MAX_KEPT, room.late)
    except OSError as error:
        yield Loss(called, f"an archive that could not be kept while it is read: {error.strerror or error}; save it, and give the file", unread=True)
        return
    room.files.append(kept.file)
    yield from _archive(kind, kept.path, called, room)


def _archive_kind(head: bytes) -> str | None:
    if head[:4] in ZIP:
        return "zip"
    if head[:2] == GZIP:
        from gpudoctor.read.gunzip import head_of

        return "tar.gz" if head_of(head, HEAD)[257:262] == USTAR else None
    return "tar" if head[257:262] == USTAR else None


def _archive(kind: str, path: str, called: str, room: Room) -> Iterator[Source]:
    from gpudoctor.read.members import sources

    if kind == "zip":
        from gpudoctor.read import zipped

        found = zipped.members(path, called, room)
    else:
        from gpudoctor.read import tarred

        found = tarred.members(path, called, kind == "tar.gz", room)
    yield from sources(called, *found)


def beginning(chunks: Iterable[bytes]) -> bytes:
    """Of a snapshot's file: one byte more than may be held says that there is more."""
    taken = b""
    for chunk in chunks:
        taken += chunk
        if len(taken) > MAX_MEMBER:
            break
    return taken[: MAX_MEMBER + 1]


def _directory(path: str, room: Room) -> Iterator[Source]:
    """A snapshot if it has a manifest, else every file in it. Links are not followed: they may lead anywhere."""
    files: list[str] = []
    closed: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=closed.append, followlinks=False):
        folders.sort()
        if folder[len(path.rstrip(os.sep)) :].count(os.sep) >= MAX_DEPTH and folders:
            yield Loss(folder, f"more than {MAX_DEPTH} folders deep: what is in its folders was left out", unread=True)
            folders.clear()
        files.extend(os.path.relpath(os.path.join(folder, name), path) for name in sorted(names))
        if len(files) > MAX_FILES:
            yield Loss(path, f"more than {MAX_FILES} files: only the first {MAX_FILES} were read", unread=True)
            files = files[:MAX_FILES]
            break
    for error in closed:
        yield Loss(str(error.filename), f"a folder that cannot be read: {error.strerror}")

    def read(name: str) -> bytes | None:
        whole = os.path.join(path, name)
        if name not in known or os.path.islink(whole) or not os.path.isfile(whole):
            return None
        with open(whole, "rb") as stream:
            return stream.read(MAX_MEMBER + 1)

    def lists_probes(name: str) -> bool:
        with suppress(OSError):
            return b'"probes"' in (read(name) or b"")
        return False

    known = frozenset(files)
    if MANIFEST in known:
        yield Folder(name=path, names=tuple(files), read=read)
        return
    # Snapshots of several hosts in one folder, beside the logs of their job; another tool's manifest is none.
    for manifest in [n for n in files if os.path.basename(n) == MANIFEST and lists_probes(n)]:
        base = os.path.dirname(manifest) + os.sep
        inside = [n for n in files if n.startswith(base)]
        if inside:
            names_inside = tuple(n[len(base) :] for n in inside)
            yield Folder(name=os.path.join(path, base[:-1]), names=names_inside, read=_below(read, base))
            files = [n for n in files if not n.startswith(base)]
    for name in files:
        whole = os.path.join(path, name)
        if os.path.islink(whole) or not os.path.isfile(whole):
            yield Loss(whole, "not a plain file: left alone")
            continue
        try:
            yield from open_path(whole, room)
        except Unreadable as error:
            yield Loss(whole, str(error).removeprefix(f"{shown(whole)}: "))


def _below(read: Callable[[str], bytes | None], base: str) -> Callable[[str], bytes | None]:
    return lambda name: read(base + name)


def shown(name: str) -> str:
    """A file's name for a reader: bytes that are no UTF-8 and escapes may stand in it."""
    return clean(name.encode("utf-8", "replace").decode())


def open_all(paths: Iterable[str], late: Callable[[], bool] = lambda: False) -> Iterator[Source]:
    """Everything that the `--from` arguments hold. Raises Unreadable for one that cannot be opened.

    late: is there no time left? What is asked before there is anything to read must not take longer either.
    """
    room = Room(late)
    for path in paths:
        yield from open_path(path, room)
