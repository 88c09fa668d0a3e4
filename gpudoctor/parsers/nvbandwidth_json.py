"""nvbandwidth's JSON (`-j`, since 0.5; the devices are in it since 0.6 or later) to HostCopies and PairRates.

    {"nvbandwidth": {"GPU Device list": ["0: NVIDIA H200 (00000000:06:00): (node07)", …],
        "testcases": [{"bandwidth_description": "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
            "bandwidth_matrix": [["N/A", "396.01"], ["395.87", "N/A"]], "name": "device_to_device_memcpy_read_ce", "status": "Passed"}]}}

Cells are strings. A bidirectional test between GPUs has three matrices, one below the other: each way, and both together.
Tests are decoded one by one, so that of a document which stops those are read that are whole.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from gpudoctor import bdf
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.parsers.nvbandwidth import Devices, Matrix, facts_of
from gpudoctor.read.section import Section, Unparsable

_DECODER = json.JSONDecoder()
_TESTS = re.compile(r'"testcases"\s*:\s*\[\s*')
_LIST = re.compile(r'"GPU Device list"\s*:\s*(?=\[)')
_NEXT = re.compile(r"\s*,\s*")
_DEVICE = re.compile(r"^\s*(\d{1,4}): (\S.{0,200}?)\s*\(([0-9a-fA-F:.]{5,20})\)")
_UNIT = "(GB/s)"
_MOST = 4096  # tests; rows and columns of a matrix


def parse(section: Section) -> Iterator[Fact | Loss]:
    text = section.text
    tests, whole = _tests(text)
    if tests is None:
        raise Unparsable(f"{section.source}: JSON of nvbandwidth without tests")
    if not whole:
        yield Loss("the end of nvbandwidth's JSON", f"{section.source}: it stops after {len(tests)} of its tests")
    matrices = []
    for test in tests[:_MOST]:
        name, status = test.get("name"), test.get("status")
        if not isinstance(name, str) or status != "Passed":
            continue  # waived: it does not apply here (one GPU, no peer to peer)
        if _UNIT not in str(test.get("bandwidth_description")):
            continue  # latencies
        matrix = _matrix(section, name, test.get("bandwidth_matrix"))
        if matrix is None:
            yield Loss(f"the matrix of {name[:80]}", f"{section.source}: not rows of numbers")
        else:
            matrices.append(matrix)
    yield from facts_of(matrices, _devices(text))


def _tests(text: str) -> tuple[list[dict[str, Any]] | None, bool]:
    """(the tests that are whole, is the list); None where the document has no list of tests."""
    found = _TESTS.search(text)
    if found is None:
        return None, False
    at = found.end()
    out: list[dict[str, Any]] = []
    while at < len(text) and text[at] != "]":
        try:
            test, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return out, False
        if isinstance(test, dict):
            out.append(test)
        comma = _NEXT.match(text, at)
        at = comma.end() if comma is not None else len(text) - len(text[at:].lstrip())
        if comma is None:
            break
    return out, text[at : at + 1] == "]"


def _devices(text: str) -> Devices:
    found = _LIST.search(text)
    try:
        listed = _DECODER.raw_decode(text, found.end())[0] if found is not None else []
    except (ValueError, RecursionError):
        return {}
    devices: dict[int, tuple[str, str | None]] = {}
    for entry in listed if isinstance(listed, list) else ():
        match = _DEVICE.match(entry) if isinstance(entry, str) else None
        if match is not None:
            devices[int(match[1])] = (match[2], bdf.normalise(match[3]))
    return devices


def _matrix(section: Section, name: str, rows: object) -> Matrix | None:
    if not isinstance(rows, list) or not rows or not all(isinstance(r, list) and len(r) == len(rows[0]) for r in rows):
        return None
    width = len(rows[0])
    if not 0 < width <= _MOST or len(rows) > 3 * width:
        return None
    if "bidirectional" in name and len(rows) == 3 * width:
        rows = rows[2 * width :]  # the one of both ways
    matrix = Matrix(name)
    for low, row in enumerate(rows):
        for high, cell in enumerate(row):
            if cell == "N/A":
                continue
            rate = _rate(cell)
            if rate is None:
                return None
            matrix.cells[low, high] = (rate, section.spot(name, f"row {low}, column {high}: {rate:g} GB/s"))
    return matrix


def _rate(cell: object) -> float | None:
    """Strings in every release; a number is taken too."""
    if isinstance(cell, bool) or not isinstance(cell, (str, int, float)):
        return None
    try:
        rate = float(cell)
    except (ValueError, OverflowError):
        return None
    return rate if math.isfinite(rate) and rate >= 0 else None
