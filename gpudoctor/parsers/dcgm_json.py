"""`dcgmi diag -r N -j`: the same tests as the table, of releases 2 to 4.

    {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Integration", "tests": [
        {"name": "PCIe", "results": [{"gpu_id": "0", "status": "Fail", "warnings": [{"error_id": 6, "warning": "GPU 0 …"}]}]}]}]}}

Release 4 has entity_group and entity_id for gpu_id, and a test_summary that repeats the worst. Categories are decoded one
by one, so that of a document which stops those are read that are whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry
from gpudoctor.facts.outcomes import ToolTest, ToolTests
from gpudoctor.model import Evidence
from gpudoctor.parsers.dcgm_diag import entry
from gpudoctor.parsers.dcgm_words import Heard
from gpudoctor.parsers.probe_json import rows, table, text, whole
from gpudoctor.read.section import Section, Unparsable

_DECODER = json.JSONDecoder()
_CATEGORIES = re.compile(r'"test_categories"\s*:\s*\[\s*')
_NEXT = re.compile(r"\s*,\s*")
_DRIVER = re.compile(r'"Driver Version Detected"\s*:\s*"(\d{3}\.\d{1,4}(?:\.\d{1,4})?)"')
_IDS = re.compile(r'"GPU Device IDs"\s*:\s*(\[[^\]]{0,4000}\])')
_ID = re.compile(r'"device_id"\s*:\s*"([0-9a-fA-F]{4})"')
_STATUS = {"pass": "pass", "fail": "fail", "warn": "warn", "skip": "skip", "skipped": "skip", "not run": "not run"}
_MOST = 4096  # tests, GPUs of a result


def parse(section: Section) -> Iterator[Fact | Loss]:
    content = section.content.decode("utf-8", "replace") if section.content else section.text
    tests: list[ToolTest] = []
    seen = False
    for found in _CATEGORIES.finditer(content):
        seen = True
        categories, complete = _decoded(content, found.end())
        if not complete:
            yield Loss("the end of DCGM's JSON", f"{section.source}: it stops after {len(categories)} of its categories")
        for category in categories:
            for test in rows(table(category).get("tests")):
                tests += _of(section, table(test))
    if not seen or not tests and complete:
        raise Unparsable(f"{section.source}: JSON of DCGM without tests")
    if version := _DRIVER.search(content):
        yield Driver(DriverEntry(version=version[1], origin={"*": section.spot("Driver Version Detected", version[1])}))
    heard = Heard()
    for entry_ in tests[:_MOST]:
        for n, message in enumerate(entry_.messages):
            heard.take(message, entry_.at(f"messages.{n}"))
    if tests:
        yield ToolTests(tuple(tests[:_MOST]))
    yield from heard.facts(_device_ids(section, content, tests))


def _decoded(content: str, at: int) -> tuple[list[Any], bool]:
    """(the items of a list that are whole, is the list)."""
    out: list[Any] = []
    while at < len(content) and content[at] != "]":
        try:
            item, at = _DECODER.raw_decode(content, at)
        except (ValueError, RecursionError):
            return out, False
        out.append(item)
        comma = _NEXT.match(content, at)
        at = comma.end() if comma is not None else len(content) - len(content[at:].lstrip())
        if comma is None:
            break
    return out, content[at : at + 1] == "]"


def _of(section: Section, test: dict[str, Any]) -> Iterator[ToolTest]:
    name = text(test.get("name"))
    if name is None:
        return
    name = name[:80]
    results = [table(r) for r in rows(test.get("results"))]
    summary = table(test.get("test_summary"))
    told: set[str] = set()
    for place, result in enumerate(results[:_MOST]):
        where = f"{name}, results[{place}]"
        status = _STATUS.get(str(result.get("status")).strip().lower())
        if status is None:
            continue
        messages = [m for m in _messages(result) if not (m in told and status == "pass")]
        told.update(messages)
        for gpu in _gpus(result):
            yield _entry(section, name, gpu, status, where, messages)
    # Errors of no GPU stand in the summary alone.
    status = _STATUS.get(str(summary.get("status")).strip().lower())
    left = [m for m in _messages(summary) if m not in told]
    if status is not None and (left or not results):
        yield _entry(section, name, None, status, f"{name}, test_summary", left)


def _entry(section: Section, name: str, gpu: int | None, status: str, where: str, messages: list[str]) -> ToolTest:
    spots: list[tuple[str, Evidence]] = [(m, section.spot(f"{where}, warnings[{n}]", m)) for n, m in enumerate(messages)]
    return entry(name, gpu, status, section.spot(where, status), spots)


def _messages(result: dict[str, Any]) -> list[str]:
    """Release 2 has plain texts, release 3 and later objects, and of its software tests `warnings` twice by mistake."""
    given = result.get("warnings")
    out = []
    for item in rows(given) if isinstance(given, list) else [given]:
        words = text(item) or text(table(item).get("warning")) or text(table(item).get("warnings"))
        if words is not None:
            out.append(words)
    return list(dict.fromkeys(out))


def _gpus(result: dict[str, Any]) -> list[int | None]:
    if "entity_id" in result:
        return [whole(result["entity_id"], _MOST)] if str(result.get("entity_group")).upper() == "GPU" else [None]
    given = result.get("gpu_id", result.get("gpu_ids"))
    numbers = [whole(part, _MOST) for part in given.split(",")[:_MOST]] if isinstance(given, str) else [whole(given, _MOST)]
    known: list[int | None] = [n for n in numbers if n is not None]
    return known or [None]


def _device_ids(section: Section, content: str, tests: list[ToolTest]) -> dict[int, tuple[str, Evidence]]:
    """GPU -> PCI device id, where all are of one kind."""
    found = _IDS.search(content)
    try:
        ids = {str(i).lower() for i in json.loads(found[1])} if found else set()
    except (ValueError, RecursionError):
        return {}
    ids |= {i.lower() for i in _ID.findall(content)}
    gpus = sorted({t.gpu for t in tests if t.gpu is not None})
    one = next(iter(ids)) if len(ids) == 1 else ""
    return dict.fromkeys(gpus, (f"10de:{one}", section.spot("device ids", one))) if len(one) == 4 else {}
