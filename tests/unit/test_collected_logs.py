"""NCCL's log as collectors of logs, notebooks, pages and tables hand it on: read as NCCL wrote it. Synthetic."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable

import pytest

from gpudoctor.facts.nccl import Nccl
from gpudoctor.model import Report
from gpudoctor.read import wrapped
from gpudoctor.read.compiled import present
from gpudoctor.read.wrapped import unwrapped
from tests.support import FIXTURES
from tests.unit.test_homes import report

HEAD = "node07:101:201 [1] NCCL INFO "
LINES = (
    HEAD + "NCCL version 2.28.9+cuda13.0",
    HEAD + "NCCL_P2P_LEVEL set by environment to PHB",
    HEAD + "ncclCommInitRank comm 0x51 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0x7 - Init START",
    HEAD + "Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM/read",
    HEAD + "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer",
    "node07:101:201 [1] misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 10.0.0.2<38007> failed : Connection refused",
)


def docker(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-03-01T12:00:00.6Z"})


def structured(line: str) -> str:
    return json.dumps({"level": "info", "ts": 1.5, "message": line}, separators=(",", ":"))


def notebook(line: str) -> str:
    return "      " + json.dumps(line + "\n") + ","


def each(wear: Callable[[str], str]) -> Callable[[tuple[str, ...]], str]:
    return lambda lines: "".join(wear(line) + "\n" for line in lines)


WORN = {
    "docker": each(docker),
    "structured": each(structured),
    "notebook": each(notebook),
    "one string": lambda lines: json.dumps({"text": "\n".join(lines) + "\n"}),
    "code": each(lambda line: f"`{line}`"),
    "list of code": each(lambda line: f"- `{line}`"),
    "table": each(lambda line: f"| {line} |"),
    "source of a page": each(html.escape),
    "python's repr": lambda lines: "stderr: b'" + "\\n".join(lines) + "\\n'\n",
}


def told(text: str) -> tuple[Report, tuple[object, ...]]:
    judged = report(text)
    (comm,) = [c for c in judged.hosts[0].get(Nccl) or () if c.nranks]
    return judged, (comm.version, comm.nranks, comm.channels, comm.env, [(t.a, t.b, t.via) for t in comm.transports], [m.text for m in comm.messages])


@pytest.mark.parametrize("worn", WORN.values(), ids=list(WORN))
def test_a_log_is_read_as_nccl_wrote_it(worn: Callable[[tuple[str, ...]], str]) -> None:
    plain, facts = told("\n".join(LINES) + "\n")
    judged, read = told(worn(LINES))
    assert read == facts and judged.exit_code == plain.exit_code == 1
    assert [d.finding.slug for d in judged.diagnoses] == [d.finding.slug for d in plain.diagnoses] and judged.diagnoses[0].finding.slug == "network-error"
    healthy, _ = told(worn(LINES[:-1]))
    assert healthy.exit_code == 0 and not any(d.finding.severity == "error" for d in healthy.diagnoses)


@pytest.mark.parametrize("wear", [docker, structured, notebook])
def test_a_line_keeps_its_number(wear: Callable[[str], str]) -> None:
    judged, _ = told(each(wear)(LINES))
    assert judged.diagnoses[0].finding.evidence[0].where == "line 6"


WRITTEN = [line for path in sorted((FIXTURES / "outputs" / "nccl-log").glob("h200x2-*.txt")) for line in path.read_text().splitlines() if "NCCL " in line]


@pytest.mark.parametrize("end", ["\n", "\r\n", "", " &lt;1&gt;\n", "**\n", ", 2026-03-01T12:00:00Z\n"])
@pytest.mark.parametrize("before", ["", "2026-03-01 12:00:00,123 | ", "**", "[\x1b[1m"])
def test_simple_lines_of_json_are_read_at_once_and_as_the_others(before, end, monkeypatch):
    assert len(WRITTEN) > 300
    text = "".join(json.dumps({"log": before + line + end, "stream": "stdout", "n": 1.5}, separators=(",", ":")) + "\n" for line in WRITTEN).encode()
    at_once = unwrapped(text, present(text, b'"&*\\'))
    monkeypatch.setattr(wrapped, "_SIMPLE", re.compile(rb"(?!)()"))
    assert unwrapped(text, present(text, b'"&*\\')) == at_once
    assert at_once.count(b"\n") == len(WRITTEN) and b'"log":' not in at_once
