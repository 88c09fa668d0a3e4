"""A flight recorder's JSON pasted among other text, and dumps that are not of one kind. Synthetic."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.facts.hang import Dump, FlightRecorder
from gpudoctor.ingest import Intake, take
from gpudoctor.read.source import Document
from tests.made_jobs import Job

JOB = Job(ranks=4, nodes=1, behind=(3,))
TALK = "The job hangs after some hours on all our machines, here is what the recorder of rank 0 says.\n\n"


def intake(*texts: str, names: tuple[str, ...] = ()) -> Intake:
    return take((), [Document(name=names[n] if names else f"issue{n}.md", chunks=lambda t=t: iter([t.encode()])) for n, t in enumerate(texts)])


def dumps(found: Intake) -> list[Dump]:
    return [d for s in found.stores if (r := s.get(FlightRecorder)) is not None for d in r.dumps]


def laid_out(dump: dict[str, Any], how: str) -> str:
    if how == "one line":
        return json.dumps(dump)
    return json.dumps(dump, indent=2, sort_keys=how == "sorted")


@pytest.mark.parametrize("how", ["one line", "laid out", "sorted"])
@pytest.mark.parametrize("quote", ["", "> "])
def test_pasted_json_is_the_same_dump(how: str, quote: str) -> None:
    body = f"$ cat /tmp/nccl_trace_rank_0\n```json\n{laid_out(JOB.dump(0), how)}\n```\n\nAny ideas?\n"
    text = TALK + "".join(quote + line + "\n" for line in body.splitlines())
    (whole,) = dumps(intake(json.dumps(JOB.dump(0)), names=("nccl_trace_rank_0",)))
    (pasted,) = dumps(intake(text))
    assert pasted.groups == whole.groups and pasted.rank == 0
    assert [(c.seq, c.op, c.state, c.sizes_in) for c in pasted.calls] == [(c.seq, c.op, c.state, c.sizes_in) for c in whole.calls]


def test_two_dumps_in_one_text() -> None:
    text = TALK + "".join(f"$ cat nccl_trace_rank_{r}\n```\n{json.dumps(JOB.dump(r), indent=1)}\n```\n" for r in (0, 3))
    assert [d.rank for d in dumps(intake(text))] == [0, 3]


def test_a_cut_paste_is_said_and_not_guessed() -> None:
    whole = TALK + json.dumps(JOB.dump(0), indent=1)
    found = intake(whole[: len(whole) - 400])
    assert not dumps(found) and any("cut or damaged" in m.reason for m in found.missing)


def test_other_json_is_none() -> None:
    found = intake(TALK + '```json\n{\n  "name": "tool",\n  "version": "2.1",\n  "license": "MIT"\n}\n```\n')
    assert not dumps(found) and not any("recorder" in m.fact + m.reason for m in found.missing)


def test_dumps_of_different_formats_are_named() -> None:
    names = tuple(f"nccl_trace_rank_{r}" for r in range(4))
    old = {**JOB.dump(3), "version": "2.4"}
    found = intake(*(json.dumps(d) for d in (JOB.dump(0), JOB.dump(1), JOB.dump(2), old)), names=names)
    (said,) = [m for m in found.missing if "format version" in m.fact]
    assert "2.4 of rank 3" in said.reason and "2.10 of rank 0, rank 1, rank 2" in said.reason
    same = intake(*(json.dumps(JOB.dump(r)) for r in range(4)), names=names)
    assert not any("version" in m.fact for m in same.missing)
