"""The tables of dcgmi (DCGM 2 to 4): diag, health -c, nvlink -s and -e, topo, discovery -l. Several may stand in one paste.

Each table is told by its heading; what its rows say goes into the facts that nvidia-smi's outputs give too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry
from gpudoctor.facts.outcomes import ToolTest, ToolTests
from gpudoctor.model import Evidence
from gpudoctor.parsers.dcgm_boxes import Discovery, Health, LinkErrors, LinkStates, Topology
from gpudoctor.parsers.dcgm_diag import Diag
from gpudoctor.parsers.dcgm_words import Heard
from gpudoctor.read.section import Line, Section, Unparsable

_LONGEST = 400  # characters; a table is 80 to 120 wide
_RULE = re.compile(r"^\s*[|+][-=]{3,}")
_PART = re.compile(r"^\s*[|+]-{3,}\s+\w[\w ]*\s+-{3,}")
_DIAG = re.compile(r"^\s*\|\s*Diagnostic\s+\|\s*Result\s*\|?\s*$")
_LINKS = re.compile(r"^\s*\|\s*NvLink Link Status\s*\|")
_ERRORS = re.compile(r"^\s*\|\s*(?:GPU ID: (\d{1,4})\s*\|\s*)?NVLINK Error Counts\s*\|?")
_TOPO = re.compile(r"^\s*\|\s*(?:(\S[^|]{0,60}?)\s*\|\s*)?Topology Information\s*\|?")
_DISCOVERY = re.compile(r"^\s*\|\s*GPU ID\s*\|\s*Device Information\s*\|?")
_HEALTH = re.compile(r"^\s*\|?\s*(?:Health Monitor Report|Group \d+\s*\|\s*Overall Health:|Overall Health:?\s)")
_ROW = re.compile(r"^\s*\|([^|]*)\|(.*)$")
_ALONE = re.compile(r"^\s*\|([^|]*)\|?\s*$")


def parse(section: Section) -> Iterator[Fact | Loss]:
    diags: list[Diag] = []
    healths: list[Health] = []
    others: list[LinkStates | LinkErrors | Topology | Discovery] = []
    now: Diag | Health | LinkStates | LinkErrors | Topology | Discovery | None = None
    for line in section:
        if len(line.text) > _LONGEST:
            continue
        begun = _begin(line, now)
        if begun is not None:
            _end(now)
            now = begun
            if isinstance(now, Diag):
                diags.append(now)
            elif isinstance(now, Health):
                healths.append(now)
            else:
                others.append(now)
        if isinstance(now, LinkStates):
            now.line(section, line)
        elif now is not None:
            _take(now, line)
    _end(now)
    tests = [test for diag in diags for test in diag.tests(section)] + [test for health in healths for test in health.tests(section)]
    facts: list[Fact | Loss] = [fact for other in others for fact in other.facts(section)]
    tests += [test for other in others if isinstance(other, Topology) for test in other.tests(section)]
    yield from _all(section, diags, healths, tests)
    yield from facts
    if not tests and not facts and not any(d.driver for d in diags):
        if now is not None and section.lines[-1].cut:
            yield Loss("a table of dcgmi", f"{section.source}, line {section.lines[-1].number}: cut off")
            return
        raise Unparsable(f"{section.source}: no row of a table of dcgmi")


def _all(section: Section, diags: list[Diag], healths: list[Health], tests: list[ToolTest]) -> Iterator[Fact | Loss]:
    heard = Heard()
    ids: dict[int, tuple[str, Evidence]] = {}
    for diag in diags:
        ids.update(diag.device_ids(section))
        if diag.driver is not None:
            version, where = diag.driver
            yield Driver(DriverEntry(version=version, origin={"*": section.at(where)}))
    for test in tests:
        for n, text in enumerate(test.messages):
            heard.take(text, test.at(f"messages.{n}"))
    if tests:
        yield ToolTests(tuple(tests))
    yield from heard.facts(ids)


def _begin(line: Line, now: object) -> Diag | Health | LinkStates | LinkErrors | Topology | Discovery | None:
    text = line.text
    if _DIAG.match(text):
        return Diag()
    if _LINKS.match(text) or not isinstance(now, LinkStates) and LinkStates.begins(text):
        return LinkStates()
    if found := _ERRORS.match(text):
        return LinkErrors(int(found[1]) if found[1] else None)
    if found := _TOPO.match(text):
        return Topology(found[1])
    if _DISCOVERY.match(text):
        return Discovery()
    if _HEALTH.match(text) and not isinstance(now, Health):
        return Health()
    if now is None and (_PART.match(text) or _ROW.match(text)):
        return Diag()  # an excerpt from below its heading
    return None


def _end(now: Diag | Health | LinkStates | LinkErrors | Topology | Discovery | None) -> None:
    if isinstance(now, (Diag, Health, Topology)):
        now.end()


def _take(now: Diag | Health | LinkErrors | Topology | Discovery, line: Line) -> None:
    if _RULE.match(line.text) or _PART.match(line.text):
        now.section()
        return
    found = _ROW.match(line.text)
    if found is not None and found[2].strip():
        cell = found[2].rstrip()
        cell = cell[:-1] if cell.endswith("|") else cell
        now.row(found[1] if isinstance(now, Health) else found[1].strip(), cell[1:] if cell.startswith(" ") else cell, line)
    elif not line.cut and (alone := _ALONE.match(line.text)):
        now.row(alone[1] if isinstance(now, Health) else alone[1].strip(), "", line)
