"""What many tests share: sections from text, facts into one checker, the program as a user runs it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.join import join
from gpudoctor.facts.store import FactStore, FactView
from gpudoctor.model import CannotTell, Evidence, Finding
from gpudoctor.read.recognise import Recogniser
from gpudoctor.read.section import Line, Section, parser_module
from gpudoctor.read.text import lines_of

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
HERE = {"*": Evidence("test", "line 1", "as built")}  # origin of facts that a test makes up


def section(kind: str, text: str, command: str | None = None) -> Section:
    """One section holding the whole text, as a snapshot's probe gives it."""
    return Section(kind=kind, source="test.txt", lines=tuple(lines_of([text.encode()])), command=command)


def parse(kind: str, text: str, command: str | None = None) -> list[Fact | Loss]:
    """What the parser of one format makes of a text."""
    return list(importlib.import_module(parser_module(kind)).parse(section(kind, text, command)))


def recognise(text: str | bytes) -> list[Section]:
    """Any text cut into sections, as `--from FILE` does."""
    return list(Recogniser("test.txt").run([text if isinstance(text, bytes) else text.encode()]))


def store(*facts: Fact | Loss, recorded: bool = True) -> FactStore:
    return join(FactStore(None, facts, recorded=recorded))


def check(checker: Any, *facts: Fact, recorded: bool = True) -> list[Finding | CannotTell]:
    """What one checker says of these facts; its needs must be met."""
    made = store(*facts, recorded=recorded)
    for kind in checker.needs:
        assert kind in made, f"{checker.name} needs {kind.__name__}"
    declared = frozenset((*checker.needs, *checker.any_of, *checker.wants))
    return list(checker.check(FactView(made, declared)))


def findings(checker: Any, *facts: Fact, recorded: bool = True) -> dict[tuple[str, str], Finding]:
    """(slug, subject) -> finding."""
    return {(f.slug, f.subject): f for f in check(checker, *facts, recorded=recorded) if isinstance(f, Finding)}


def gpudoctor(
    *words: str, env: dict[str, str] | None = None, stdin: bytes | None = None, timeout: float = 60, cwd: Path | None = None
) -> Any:
    """The program as a user runs it. Returns CompletedProcess with text output."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "GPUDOCTOR_", "CUDA_"))}
    return subprocess.run(
        [sys.executable, "-m", "gpudoctor", *words],
        capture_output=True,
        input=stdin,
        env={**base, "PYTHONPATH": str(ROOT), **(env or {})},
        timeout=timeout,
        cwd=cwd,
    )


def report(*words: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of one run."""
    done = gpudoctor(*words, "--format", "json", **options)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


def slugs(result: dict[str, Any], *severities: str) -> set[str]:
    """Slugs said in a JSON report, of the given severities (default: all)."""
    return {
        f["slug"]
        for r in result["results"]
        for f in r["findings"]
        if not severities or f["severity"] in severities
    }


__all__ = ["HERE", "Line", "FIXTURES", "ROOT", "check", "findings", "gpudoctor", "parse", "recognise", "report", "section", "slugs", "store"]
