"""A long text sifted by child processes: the same answers, whatever becomes of the children."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from gpudoctor.parsers.nccl_log import parse
from gpudoctor.read.recognise import Recogniser
from gpudoctor.read.sift import Sieve, Sifted
from gpudoctor.read.table import Telling
from gpudoctor.read.team import Team
from gpudoctor.read.text import MAX_LINE
from tests.nccl_logs import job, training
from tests.support import FIXTURES

TEXT = "\n".join(
    [
        *training(job(8, channels=4), every=4),
        *(FIXTURES / "outputs" / "nccl-log" / "h200x2-2.28.9-small-shm.txt").read_text().splitlines(),
        "root@node07:~# nvidia-smi topo -m",
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity",
        "GPU0\t X \tNV18\t0-47\t0",
        "GPU1\tNV18\t X \t0-47\t0",
        *job(8, comm=2),
        "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.",
        "",
    ]
).encode()
SIZE = 2000  # bytes of a chunk


def chunks() -> Iterator[bytes]:
    for at in range(0, len(TEXT), SIZE):
        yield TEXT[at : at + SIZE]


def read(team: Team | None, pieces: Iterator[bytes] | None = None) -> list[str]:
    found = []
    for section in Recogniser("log.txt", team=team).run(pieces or chunks()):
        found += [repr(f) for f in parse(section)] if section.kind == "nccl-log" else [repr(section.lines) + repr(section.command)]
    assert len(found) >= 3
    return found


@pytest.fixture(autouse=True, params=[0, None], ids=["shapes", "searched"])
def first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way of passing over what others write."""
    if request.param is not None:
        monkeypatch.setattr("gpudoctor.read.shapes.FIRST", request.param)


@pytest.fixture
def team() -> Iterator[Team]:
    made = Team(after=5000, members=2)
    yield made
    made.close()
    assert not made._all


def test_the_same_answers(team: Team) -> None:
    assert read(team) == read(None)
    assert len(team._all) == 2  # and it did begin
    assert read(team) == read(None)


@pytest.mark.parametrize("last", ["the last line", "x" * (MAX_LINE * 16 + 1), "x" * (MAX_LINE * 33)], ids=["short", "long", "longer"])
def test_lines_before_one_without_an_end(team: Team, last: str) -> None:
    """A log that is still being written: what stands before its last line is no piece of that."""
    text = TEXT + b"".join(b"NVRM: Xid (PCI:0000:42:00): %d, pid=1, name=x\n" % n for n in range(1, 800)) + last.encode()
    chunks = [text[at : at + SIZE] for at in range(0, len(text), SIZE)]
    assert read(team, iter(chunks)) == read(None, iter(chunks))
    assert len(team._all) == 2


def test_a_short_text_has_no_children() -> None:
    team = Team(after=len(TEXT) + 1, members=2)
    assert read(team) == read(None) and not team._all


def test_one_processor_has_no_children() -> None:
    team = Team(after=0, members=1)
    assert read(team) == read(None) and not team._all


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_that_dies_or_hangs_costs_nothing_but_time(number: signal.Signals, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.read.team.PATIENCE_S", 0.2)
    monkeypatch.setattr("gpudoctor.read.text.LOOKED_AT", SIZE)  # else the whole text is looked at before its first chunk is handed on

    def pieces() -> Iterator[bytes]:
        for count, chunk in enumerate(chunks()):
            if count == 8:
                assert team._all
                os.kill(team._all[0].process.pid, number)
            yield chunk

    assert read(team, pieces()) == read(None)
    assert not team._all  # gone, and not begun again


def test_a_child_that_answers_nonsense_is_not_believed(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sieve, "sift", _nonsense)  # in the children only: the reader has its own
    sieve = Sieve(Telling("GPU0", "GPU"))
    assert all(sifted is None for _, sifted in team.ahead(chunks(), sieve))
    assert not team._all


def _nonsense(sieve: Sieve, chunk: bytes) -> Sifted:
    raise RuntimeError("broken")


def test_a_reader_that_stops_leaves_no_child(team: Team) -> None:
    ahead = team.ahead(chunks(), Sieve(Telling("GPU0", "GPU")))
    for _ in range(6):
        next(ahead)
    assert team._all
    ahead.close()
    assert not team._all
