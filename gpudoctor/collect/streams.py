"""Where a child's output goes: files without a name, in memory where the kernel has such."""

from __future__ import annotations

import os
from contextlib import suppress


def _unnamed_file() -> int:
    """A file without a name that children cannot fill a disk with; a full or read-only /tmp does not matter."""
    try:
        return os.memfd_create("gpudoctor", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # old kernels, some sandboxes, a Python built without it
        import tempfile

        with tempfile.TemporaryFile() as stream:
            return os.dup(stream.fileno())


def two_files() -> tuple[int, int]:
    """Two files without a name, for what a child prints and complains of. Raises OSError where no more can be had."""
    first = None
    try:
        first = _unnamed_file()
        return first, _unnamed_file()
    except OSError:  # no descriptor left, and no folder for temporary files either
        if first is not None:
            os.close(first)
        raise


def allow_files(jobs: int) -> None:
    """Two files and a pidfd for each; a shell that allows fewer may be asked for as many as the system does."""
    import resource

    with suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 4 * jobs + 64
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def content(file: int, most: int) -> bytes:
    """What a child wrote, up to `most` bytes."""
    parts = []
    offset = 0
    while offset < most and (part := os.pread(file, min(1 << 20, most - offset), offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
