"""Entry points to checkers. Built-in ones and those of other packages come through the same door."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.base import Fact
from gpudoctor.model import Cause
from gpudoctor.record import KeyedRecord, Record

GROUP = "gpudoctor.checkers"
_CODE = re.compile(r"^[A-Z]{2,4}\d{3,4}$")
_SLUG = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*$")


class Failure(KeyedRecord):
    """A plugin that cannot be used, and why."""

    name: str
    reason: str


class Plugins(KeyedRecord):
    """The checkers that can be used, what they may say, and what could not be loaded."""

    checkers: tuple[BaseChecker, ...]
    causes: tuple[Cause, ...]  # the catalogue, by code
    failures: tuple[Failure, ...]


class EntryPoint(Record):
    """`name = module:attribute` of one installed package."""

    name: str
    value: str

    def load(self) -> type[BaseChecker]:
        module, _, attribute = self.value.partition(":")
        found: type[BaseChecker] = getattr(importlib.import_module(module), attribute)
        return found


def find() -> list[EntryPoint]:
    """Sorted, so that every run looks alike; our own first, so that no package takes a code or slug of ours.

    Read from the metadata files themselves: importlib.metadata costs 20 ms of a start of 150 (it imports email, zipfile
    and socket), and a directory on the path is all that pip leaves. Archives are left to it, but for gpudoctor.pyz.
    """
    texts: dict[str, str] = {}  # a package that is there twice counts once, as it does for an import
    for folder in dict.fromkeys(sys.path):
        found = dict(_archived(folder) if os.path.isfile(folder) else _metadata(folder or "."))
        if not found and os.path.isfile(folder):
            return _by_library()
        texts = {**found, **texts}
    points = {point for text in texts.values() for point in _points(text)}
    return _sorted(points)


def _sorted(points: Iterable[EntryPoint]) -> list[EntryPoint]:
    return sorted(points, key=lambda e: (not e.value.startswith("gpudoctor."), e.name, e.value))


def _by_library() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    points = {EntryPoint(e.name, e.value) for e in entry_points(group=GROUP)}
    return _sorted(points)


def _metadata(folder: str) -> Iterator[tuple[str, str]]:
    """The entry_points.txt of every package installed in one directory of the path, by the package's name."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as stream:
                    yield _package(name), stream.read()
            except (OSError, UnicodeDecodeError):
                continue  # most packages have none


def _archived(archive: str) -> Iterator[tuple[str, str]]:
    """The same of an archive that something was imported from. To read its directory a second time would take 40 ms."""
    importer: Any = sys.path_importer_cache.get(archive)
    for path in getattr(importer, "_files", None) or ():
        name, _, rest = path.partition("/")
        if name.endswith(".dist-info") and rest == "entry_points.txt":
            with suppress(OSError, UnicodeDecodeError):
                yield _package(name), importer.get_data(os.path.join(archive, path)).decode("utf-8")


def _package(folder: str) -> str:
    """`name` of name-1.0.dist-info and of name.egg-info."""
    return folder.rpartition(".")[0].partition("-")[0].lower()


def _points(text: str) -> Iterator[EntryPoint]:
    """The lines of our group. An extra in brackets (`module:name [extra]`) is legal and says nothing here."""
    inside = False
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.partition("[")[0].strip())


def load(points: Iterable[EntryPoint] | None = None) -> Plugins:
    """Import and vet every checker. Nothing a plugin does at import can end the run."""
    checkers: list[BaseChecker] = []
    failures: list[Failure] = []
    causes: dict[str, Cause] = {}
    codes: dict[str, str] = {}
    for point in find() if points is None else points:
        try:
            checker = point.load()()
            problem = _problem(checker, causes, codes)
        except (Exception, SystemExit) as error:  # a plugin may raise anything while it is imported
            problem = f"{type(error).__name__}: {error}"
        if problem:
            failures.append(Failure(name=point.name, reason=problem))
            continue
        checkers.append(checker)
        for cause in checker.causes:
            causes.setdefault(cause.slug, cause)
            codes[cause.code] = cause.slug
    return Plugins(
        checkers=tuple(checkers), causes=tuple(sorted(causes.values(), key=lambda c: c.code)), failures=tuple(failures)
    )


def _problem(checker: BaseChecker, causes: dict[str, Cause], codes: dict[str, str]) -> str | None:
    """What makes a checker unusable, or None."""
    if not isinstance(checker, BaseChecker):
        return "is no gpudoctor.checkers.base.BaseChecker"
    if not checker.causes:
        return "lists no causes"
    for kind in (*checker.needs, *checker.wants, *checker.any_of):
        if not (isinstance(kind, type) and issubclass(kind, Fact)):
            return f"needs {kind!r}, which is no fact"
    for cause in checker.causes:
        if not isinstance(cause, Cause) or not _CODE.match(cause.code) or not _SLUG.match(cause.slug):
            return f"has a cause without a proper code and slug: {cause!r}"
        if codes.get(cause.code, cause.slug) != cause.slug:
            return f"code {cause.code} already stands for {codes[cause.code]}"
        known = causes.get(cause.slug)
        if known is not None and known.code != cause.code:
            return f"slug {cause.slug} already has the code {known.code}"
    return None
