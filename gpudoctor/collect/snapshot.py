"""Snapshots from disk: a manifest and one file of raw output per probe, as a directory or as .tar.gz.

schema 1 (docs/snapshot.md): `{"schema", "tool": {"name", "version"}, "captured_at", "host", "origin", "probes": [{"id", "argv", "file", "err",
"status", "rc", "seconds", "timeout_s", "sha256", "bytes"}]}`. Only `file` must be there; keys are added, never
renamed, and what a newer schema adds is passed over.
"""

from __future__ import annotations

import importlib
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpudoctor.collect.capture import STATUSES, Capture, Probe, Snapshot
from gpudoctor.collect.probes import PROBES, by_id
from gpudoctor.facts.base import Loss
from gpudoctor.read.source import MANIFEST, MAX_MEMBER, Folder
from gpudoctor.read.text import clean
from gpudoctor.record import replace

SCHEMA = 1
MAX_MANIFEST = 1 << 20  # bytes; that of a host with every probe has 30 kB
MAX_HELD = 64 << 20  # bytes of all outputs of one snapshot; those of a large host have a fifth of it


def load(folder: Folder) -> Snapshot:
    """Whatever can be read of a snapshot; what cannot is among its losses. Never raises."""
    losses: list[Loss] = []
    manifest = _manifest(folder, losses)
    if manifest is None:
        return Snapshot(captures=tuple(_plain_files(folder, losses)), losses=tuple(losses))
    captures: list[Capture] = []
    taken = {MANIFEST}
    seen: set[str] = set()
    left = [MAX_HELD]
    entries = manifest.get("probes")
    if not isinstance(entries, list):
        losses.append(Loss(_at(folder, MANIFEST), "it lists no probes: the other files were read as plain text"))
        return _snapshot(manifest, tuple(_plain_files(folder, losses)), losses)
    for entry in entries:
        if isinstance(entry, dict) and entry.get("id") is None:
            entry = {**entry, "id": _id_of(entry)}
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            losses.append(Loss(_at(folder, MANIFEST), f"an entry without an id was passed over: {str(entry)[:80]}"))
            continue
        capture = _capture(folder, entry, losses, taken, left)
        if capture.probe.id in seen:
            losses.append(Loss(_at(folder, MANIFEST), f"two entries for the probe {capture.probe.id}: the first was read"))
            continue
        seen.add(capture.probe.id)
        captures.append(capture)
    # What people keep beside outputs (notes, reports, expectations) is no output and needs no word.
    spare = [n for n in folder.names if n not in taken and "/" not in n and not n.endswith((".json", ".md", ".err"))]
    if spare:
        shown = ", ".join(spare[:4]) + (f" and {len(spare) - 4} more" if len(spare) > 4 else "")
        losses.append(Loss(folder.name, f"not listed in {MANIFEST}, so not read: {shown} (give such a file its own --from)"))
    return _snapshot(manifest, tuple(captures), losses)


def listed(folder: Folder) -> set[str]:
    """The names of the files that its manifest lists, none of them outside it."""
    names: set[str] = set()
    entries = (_manifest(folder, []) or {}).get("probes")
    for entry in entries if isinstance(entries, list) else ():
        for key in ("file", "err"):
            if isinstance(entry, dict):
                _file(folder, entry.get(key), "", [], names, [0])
    return names


def _snapshot(manifest: Mapping[str, Any], captures: tuple[Capture, ...], losses: list[Loss]) -> Snapshot:
    return Snapshot(
        captures=captures,
        host=_text(manifest.get("host")),
        captured_at=_text(manifest.get("captured_at")),
        losses=tuple(losses),
    )


def _manifest(folder: Folder, losses: list[Loss]) -> dict[str, Any] | None:
    where = _at(folder, MANIFEST)
    try:
        content = folder.read(MANIFEST) or b""
        if len(content) > MAX_MANIFEST:
            raise ValueError(f"more than {MAX_MANIFEST >> 20} MiB")
        manifest = json.loads(content)
    except (ValueError, RecursionError, OSError) as error:
        losses.append(Loss(where, f"it is not whole ({error}): the other files were read as plain text"))
        return None
    if not isinstance(manifest, dict):
        losses.append(Loss(where, "it is no JSON object: the other files were read as plain text"))
        return None
    schema = manifest.get("schema")
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        losses.append(
            Loss(
                where,
                f"written in schema {schema}, newer than {SCHEMA}: what this version knows was read"
                if newer
                else f"its schema is {str(schema)[:40]!r}, not {SCHEMA}: read as well as can be",
            )
        )
    return manifest


def _capture(folder: Folder, entry: Mapping[str, Any], losses: list[Loss], taken: set[str], left: list[int]) -> Capture:
    probe = _probe(str(entry["id"]), entry.get("argv"))
    said = len(losses)
    out = _file(folder, entry.get("file"), probe.shown, losses, taken, left)
    whole = len(losses) == said
    err = _file(folder, entry.get("err"), f"{probe.shown} (standard error)", losses, taken, left)
    promised = entry.get("sha256")
    if out is not None and whole and isinstance(promised, str) and sha256(out) != promised.lower():
        losses.append(
            Loss(_at(folder, str(entry.get("file"))), "not as it was captured (its sha256 differs from the manifest's): read as it is")
        )
    rc = _number(entry.get("rc"))
    status = entry.get("status")
    if status not in STATUSES:
        if status is not None:
            losses.append(Loss(probe.shown, f"unknown status {str(status)[:40]!r} in {MANIFEST}"))
        status = ("ok" if rc == 0 else "exit") if rc is not None else "ok" if out is not None else "absent"
    if status == "ok" and out is None and entry.get("file"):
        status, err = "absent", err or b"its file is not in the snapshot"
    limit = entry.get("timeout_s")
    seconds = entry.get("seconds")
    return Capture(
        probe=probe,
        status=status,
        rc=int(rc) if rc is not None else None,
        out=out or b"",
        err=err or b"",
        seconds=float(seconds) if _number(seconds) is not None else 0.0,  # type: ignore[arg-type]
        timeout_s=float(limit) if _number(limit) is not None else None,  # type: ignore[arg-type]
    )


def sha256(content: bytes) -> str:
    """hashlib loads OpenSSL, which takes longer (5 ms) than all files of most snapshots with the interpreter's own."""
    for module in ("_sha2", "_sha256") if len(content) < 1 << 20 else ():  # since CPython 3.12, before it
        with suppress(ImportError):
            digest: str = importlib.import_module(module).sha256(content).hexdigest()
            return digest
    import hashlib

    return hashlib.sha256(content).hexdigest()


def _probe(probe_id: str, argv: object) -> Probe:
    """Today's probe of that id or command; anything else is read by recognising its text."""
    words = tuple(clean(str(w)[:200]) for w in argv) if isinstance(argv, list) else ()
    probe_id = clean(probe_id[:80])
    known = by_id(probe_id) or next((p for p in PROBES if p.argv == words), None)
    if known is None:
        return Probe(id=probe_id, argv=words, kind=None, shown=_shown(words) if words else probe_id)
    if words and words != known.argv and words[0] != "{python}":
        return replace(known, argv=words, shown=_shown(words))
    return known


def _shown(words: Sequence[str]) -> str:
    """A command as a person would type it. Known probes, which most are, bring theirs along."""
    import shlex

    return shlex.join(words)


def _id_of(entry: Mapping[str, Any]) -> str | None:
    """An entry that names no probe is known by its command, else by its file."""
    argv, file = entry.get("argv"), entry.get("file")
    if isinstance(argv, list) and argv and all(isinstance(w, str) for w in argv):
        return next((p.id for p in PROBES if p.argv == tuple(argv)), _shown(argv))
    return posixpath.splitext(file)[0] if isinstance(file, str) and file else None


def _file(folder: Folder, name: object, what: str, losses: list[Loss], taken: set[str], left: list[int]) -> bytes | None:
    """One output, as far as there is room for it. A name that leads out of the snapshot is never opened."""
    if name is None or name == "":
        return None
    if not isinstance(name, str) or "/" in name or "\\" in name or "\0" in name or name in (".", "..", MANIFEST):
        losses.append(Loss(what, f"{MANIFEST} names a file outside the snapshot ({str(name)[:80]!r}): not opened"))
        return None
    taken.add(name)
    try:
        content = folder.read(name)
    except OSError as error:
        losses.append(Loss(_at(folder, name), f"could not be read: {error.strerror or error}"))
        return None
    if content is None:
        losses.append(Loss(what, f"its file {name} is not in the snapshot"))
        return None
    return _fitting(content, _at(folder, name), losses, left)


def _fitting(content: bytes, where: str, losses: list[Loss], left: list[int]) -> bytes:
    """What there is room for."""
    most = min(MAX_MEMBER, left[0])
    left[0] -= min(len(content), most)
    if len(content) > most:
        from gpudoctor.read.amount import amount

        limits = f"a file of a snapshot may have {MAX_MEMBER >> 20} MiB, and all together {MAX_HELD >> 20}"
        losses.append(Loss(where, f"too long: only its first {amount(most)} were read ({limits})", unread=True))
    return content[:most]


def _plain_files(folder: Folder, losses: list[Loss]) -> Iterator[Capture]:
    """Without a manifest that can be read: every file as a text of unknown kind."""
    left = [MAX_HELD]
    for name in folder.names:
        with suppress(OSError):
            content = folder.read(name) if name != MANIFEST else None
            if content:
                content = _fitting(content, _at(folder, name), losses, left)
            if content:
                yield Capture(
                    probe=Probe(id=name, argv=(), kind=None, shown=posixpath.join(folder.name, name)),
                    status="ok",
                    rc=0,
                    out=content,
                )


def _at(folder: Folder, name: str) -> str:
    return posixpath.join(folder.name, name)


def _text(value: object) -> str | None:
    return clean(value[:255]).strip() or None if isinstance(value, str) else None


def _number(value: object) -> float | None:
    """A JSON number that is one: no boolean, nothing beyond what an exit status or a time can be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e9:
        return None
    return value
