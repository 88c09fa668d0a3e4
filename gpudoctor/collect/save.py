"""Snapshots to disk, as a directory or as .tar.gz; snapshot.py says what is in one and reads it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress

import gpudoctor
from gpudoctor.collect.capture import Snapshot
from gpudoctor.collect.snapshot import SCHEMA, listed, sha256
from gpudoctor.read.source import MANIFEST, Folder

ARCHIVES = (".tar.gz", ".tgz")


class NotASnapshot(Exception):
    """The place to write to holds something else, which must not be overwritten."""


def save(snapshot: Snapshot, path: str) -> None:
    """Write it; the same snapshot gives the same bytes. Redact before (redact.py): this writes what it is given."""
    check_place(path)
    files = contents(snapshot)
    if is_archive(path):
        _save_archive(files, path, f"gpudoctor-{_file_name(snapshot.host or 'host')}")
    else:
        _save_directory(files, path)


def is_archive(path: str) -> bool:
    """Does the name ask for one file in place of a directory?"""
    return path.lower().endswith(ARCHIVES)


def check_place(path: str) -> None:
    """NotASnapshot where writing to `path` would overwrite something that is none."""
    if is_archive(path):
        if os.path.isdir(path):
            raise NotASnapshot(f"{path} is a directory")
    elif os.path.isdir(path):
        if os.listdir(path) and not os.path.isfile(os.path.join(path, MANIFEST)):
            raise NotASnapshot(f"{path} is not empty and no snapshot: choose another directory")
    elif os.path.lexists(path):
        raise NotASnapshot(f"{path} is a file; name a directory, or a file ending in .tar.gz")


def contents(snapshot: Snapshot) -> dict[str, bytes]:
    """File name -> bytes, the manifest first."""
    entries = []
    files: dict[str, bytes] = {}
    for capture in snapshot.captures:
        probe = capture.probe
        base = _file_name(probe.id)
        ending = "json" if (probe.kind or "").endswith("-json") else "xml" if probe.kind == "smi-qx" else "out"
        file = f"{base}.{ending}" if capture.out or capture.status == "ok" else None
        err = f"{base}.err" if capture.err else None
        if file:
            files[file] = capture.out
        if err:
            files[err] = capture.err
        entries.append(
            {
                "id": probe.id,
                "argv": list(probe.argv),
                "file": file,
                "err": err,
                "status": capture.status,
                "rc": capture.rc,
                "seconds": capture.seconds,
                "timeout_s": capture.timeout_s,
                "sha256": sha256(capture.out) if file else None,
                "bytes": len(capture.out) if file else 0,
            }
        )
    manifest = {
        "schema": SCHEMA,
        "tool": {"name": "gpudoctor", "version": gpudoctor.__version__},
        "captured_at": snapshot.captured_at,
        "host": snapshot.host,
        "origin": "captured",
        "redaction": "private details are replaced by stand-ins",
        "probes": entries,
    }
    return {MANIFEST: json.dumps(manifest, indent=1).encode() + b"\n", **files}


def _file_name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in text).lstrip(".") or "_"


def _save_directory(files: Mapping[str, bytes], path: str) -> None:
    """Over an older snapshot only what its manifest lists is replaced. The manifest is last: without it, it is none."""
    os.makedirs(path, exist_ok=True)
    manifest = os.path.join(path, MANIFEST)
    if os.path.exists(manifest):
        from gpudoctor.read.source import open_path

        old = next((s for s in open_path(path) if isinstance(s, Folder)), None)
        ours = listed(old) if old is not None else set()
        for name in (MANIFEST, *sorted(ours)):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(path, name))
    for name, content in reversed(list(files.items())):
        whole = os.path.join(path, name)
        with suppress(FileNotFoundError):  # never write through a link that somebody left there
            os.unlink(whole)
        with open(whole, "xb") as stream:
            stream.write(content)


def _save_archive(files: Mapping[str, bytes], path: str, folder: str) -> None:
    """Written beside and renamed, so that nobody finds half an archive."""
    import gzip
    import tarfile

    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as zipped:
        with tarfile.open(mode="w", fileobj=zipped, format=tarfile.USTAR_FORMAT) as tar:
            for name in sorted(files):
                member = tarfile.TarInfo(f"{folder}/{name}")  # owner 0, time 0: the same snapshot gives the same bytes
                member.size = len(files[name])
                member.mode = 0o644
                tar.addfile(member, io.BytesIO(files[name]))
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "wb") as stream:
            stream.write(packed.getvalue())
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            os.unlink(beside)
        raise
