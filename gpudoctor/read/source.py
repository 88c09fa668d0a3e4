"""What `--from` takes: a snapshot directory or its .tar.gz, a folder, any text file, a pipe, or standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from gpudoctor.facts.base import Loss
from gpudoctor.read.text import clean
from gpudoctor.record import KeyedRecord

if TYPE_CHECKING:
    from tarfile import TarInfo

CHUNK = 1 << 18  # bytes read at a time: what is made of them stays in a processor's cache
MAX_FILES = 2000  # in one folder or archive
MAX_DEPTH = 6
MAX_MEMBER = 32 << 20  # bytes of one member of a tar that is held; a larger one is unpacked as it is read
MAX_ZIPPED = 1 << 20  # the same of a zip, in which a member is found without unpacking those before it
MAX_ARCHIVE = 1 << 30  # bytes unpacked in all: a small archive may hold a great many zeros
MAX_ENTRIES = 10 * MAX_FILES  # of one archive, whatever they are
MAX_RATIO = 300  # unpacked bytes per packed one, beyond RATIO_FROM: logs reach a tenth of it
RATIO_FROM = 64 << 20
MAX_UNPACKED = 4 << 30  # bytes of one compressed log, which is streamed and never held
MANIFEST = "manifest.json"


class Unreadable(Exception):
    """A path that cannot be opened at all: a usage error, since nothing was given to judge."""


class Document(KeyedRecord):
    """A text to be recognised. `chunks` opens it anew each time it is called."""

    name: str
    chunks: Callable[[], Iterator[bytes]]
    again: bool = False  # may it be opened more than once? What comes through a pipe may not
    file: tuple[int, int] | None = None  # of a plain file: device and inode


class Folder(KeyedRecord):
    """A snapshot's files, by name, before its manifest is read. `read` gives a file's bytes (None: no such file)."""

    name: str
    names: tuple[str, ...]
    read: Callable[[str], bytes | None]


Source = Document | Folder | Loss
# Of an archive's member: what is in it, or for a long one how to read it.
Content = bytes | Callable[[], Iterator[bytes]]


def open_path(path: str) -> Iterator[Source]:
    """Everything one `--from` argument holds. Raises Unreadable when the path itself cannot be opened.

    Of what comes through a pipe some chunks are empty: nothing came for a while.
    """
    if path == "-":
        yield Document(name="standard input", chunks=_standard_input)
        return
    if os.path.isdir(path):
        yield from _directory(path)
        return
    from gpudoctor.read import pipe  # a snapshot, which is a directory, is read without it

    if pipe.is_pipe(path):
        yield Document(name=path, chunks=lambda: pipe.unpacked(pipe.chunks(path), MAX_UNPACKED))
        return
    try:
        with open(path, "rb") as stream:
            head = stream.read(512)
            status = os.fstat(stream.fileno())
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from error
    file = (status.st_dev, status.st_ino)
    if head[:2] == b"\x1f\x8b":
        if _is_tar(path):
            yield from _archive(path)
            return
        yield Document(name=path, chunks=lambda: _gzip(path), again=True, file=file)
    elif head[257:262] == b"ustar":
        yield from _archive(path)
    elif head[:4] == b"PK\x03\x04":
        from gpudoctor.read.members import sources
        from gpudoctor.read.zipped import members

        yield from sources(path, *members(path, MAX_FILES, MAX_ENTRIES, MAX_ZIPPED, MAX_ARCHIVE, max(RATIO_FROM, MAX_RATIO * status.st_size)))
    elif head[:4] == b"\x28\xb5\x2f\xfd":
        from gpudoctor.read import zstd

        if zstd.readable():
            yield Document(name=path, chunks=lambda: zstd.chunks(path, MAX_UNPACKED), again=True, file=file)
        else:
            yield Loss(path, "compressed with zstd, which nothing here can unpack: install zstd or the Python package zstandard")
    else:
        yield Document(name=path, chunks=lambda: _file(path), again=True, file=file)


def _standard_input() -> Iterator[bytes]:
    from gpudoctor.read import pipe

    try:
        chunks = pipe.chunks(sys.stdin.fileno())
    except (OSError, ValueError):  # closed, or no real one
        chunks = _chunks(sys.stdin.buffer)
    return pipe.unpacked(chunks, MAX_UNPACKED)


def _chunks(stream: object) -> Iterator[bytes]:
    read = getattr(stream, "read1", None) or stream.read  # type: ignore[attr-defined]
    while chunk := read(CHUNK):
        yield chunk


def _file(path: str) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        yield from _chunks(stream)


def _gzip(path: str) -> Iterator[bytes]:
    import gzip
    import zlib

    total = 0
    with gzip.open(path, "rb") as stream:
        while total < MAX_UNPACKED:
            try:
                chunk = stream.read(CHUNK)
            except (EOFError, OSError, zlib.error):
                # A log still being written, or a cut copy: what was unpacked so far is good.
                return
            if not chunk:
                return
            total += len(chunk)
            yield chunk


def _is_tar(path: str) -> bool:
    import gzip
    import zlib

    try:
        with gzip.open(path, "rb") as stream:
            return stream.read(262)[257:262] == b"ustar"
    except (EOFError, OSError, zlib.error):
        return False


def _directory(path: str) -> Iterator[Source]:
    """A snapshot if it has a manifest, else every file in it. Links are not followed: they may lead anywhere."""
    files: list[str] = []
    for folder, folders, names in os.walk(path, followlinks=False):
        folders.sort()
        if folder[len(path) :].count(os.sep) >= MAX_DEPTH:
            folders.clear()
        files.extend(os.path.relpath(os.path.join(folder, name), path) for name in sorted(names))
        if len(files) > MAX_FILES:
            yield Loss(path, f"more than {MAX_FILES} files: only the first {MAX_FILES} were read")
            files = files[:MAX_FILES]
            break

    def read(name: str) -> bytes | None:
        whole = os.path.join(path, name)
        if name not in known or os.path.islink(whole) or not os.path.isfile(whole):
            return None
        with open(whole, "rb") as stream:
            return stream.read(MAX_MEMBER)

    known = frozenset(files)
    if MANIFEST in known:
        yield Folder(name=path, names=tuple(files), read=read)
        return
    # Snapshots of several hosts in one folder, beside the logs of their job; another tool's manifest is none.
    for manifest in [n for n in files if os.path.basename(n) == MANIFEST and b'"probes"' in (read(n) or b"")]:
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
            yield from open_path(whole)
        except Unreadable as error:
            yield Loss(whole, str(error))


def _below(read: Callable[[str], bytes | None], base: str) -> Callable[[str], bytes | None]:
    return lambda name: read(base + name)


def _archive(path: str) -> Iterator[Source]:
    """A tar, read in memory and never unpacked to disk: no member can be written anywhere."""
    import tarfile
    import zlib

    held: dict[str, Content] = {}
    total = in_memory = entries = 0
    try:
        packed = max(1, os.path.getsize(path))
        with tarfile.open(path, "r|*") as tar:
            for member in tar:
                entries += 1
                if len(held) >= MAX_FILES or entries > MAX_ENTRIES or in_memory >= MAX_ARCHIVE:
                    yield Loss(path, f"larger than the limits ({MAX_FILES} files, {MAX_ENTRIES} entries, {MAX_ARCHIVE >> 20} MiB): the rest was left out")
                    break
                if member.isdir():
                    continue
                name = os.path.normpath(member.name)
                refused = _refused(member, name, held)
                if refused:
                    yield Loss(f"{path}: {shown(member.name)}", refused)
                    continue
                if max(RATIO_FROM, MAX_RATIO * packed) < total + member.size:
                    yield Loss(path, f"unpacks to more than {MAX_RATIO} times its size, as no output does: the rest was left out")
                    break
                total += member.size
                content = tar.extractfile(member) if member.size <= MAX_MEMBER else None
                held[name] = content.read() if content is not None else partial(_streamed, path, entries)
                in_memory += member.size if content is not None else 0
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        yield Loss(path, f"the archive is damaged ({type(error).__name__}): what came before was read")
    from gpudoctor.read.members import sources

    yield from sources(path, held, [])


def _streamed(path: str, entry: int) -> Iterator[bytes]:
    """One member of a tar, by its place in it."""
    import tarfile
    import zlib

    try:
        with tarfile.open(path, "r|*") as tar:
            content = tar.extractfile(next(islice(tar, entry - 1, None)))
            if content is not None:
                yield from _chunks(content)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise OSError(f"the archive is damaged ({type(error).__name__})") from error


def _refused(member: TarInfo, name: str, held: Mapping[str, Content]) -> str | None:
    """Why a member is left alone. A link, a device or a way out of the archive is no output."""
    if not member.isfile() or name.startswith(("/", "..")):
        return "not a plain file inside the archive: left alone"
    if member.issparse():
        return "a sparse file, which may hold any number of zeros: left alone"
    return "a second file of this name: the first was read" if name in held else None


def shown(name: str) -> str:
    """A member's name for a reader: bytes that are no UTF-8 and escapes may stand in it."""
    return clean(name.encode("utf-8", "replace").decode())


def open_all(paths: Iterable[str]) -> Iterator[Source]:
    """Everything that the `--from` arguments hold. Raises Unreadable for one that cannot be opened."""
    for path in paths:
        yield from open_path(path)
