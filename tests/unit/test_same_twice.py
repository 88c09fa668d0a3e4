"""The same file given twice, or its content under two names, is read once and said so; what only looks alike is not."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.cli.look import look
from gpudoctor.facts.hang import Ras
from gpudoctor.facts.nccl import Nccl
from gpudoctor.read.same import Seen, told
from gpudoctor.read.source import Document
from tests.support import FIXTURES, gpudoctor, report

LOG = FIXTURES / "outputs" / "job-log" / "killed-over-sockets.log"
# Of NCCL 2.28.9 with two ranks.
ANSWER = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          2            1          2        2

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         2         2         2   RUNNING      OK

Errors
======

Warnings
========
"""
SNAPSHOT = FIXTURES / "hosts" / "h200x2-vm"


def look_at(*paths: Path):
    return look(tuple(map(str, paths)), live=False, job=False, timeout=60)


def ranks(seen) -> int:
    return sum(len(c.ranks) for store in seen.intake.stores for c in store.get(Nccl) or ())


def copies(tmp_path: Path) -> dict[str, Path]:
    a, packed, tar, folder = tmp_path / "a.log", tmp_path / "b.log.gz", tmp_path / "c.tar.gz", tmp_path / "d"
    shutil.copy(LOG, a)
    packed.write_bytes(gzip.compress(LOG.read_bytes()))
    with tarfile.open(tar, "w:gz") as out:
        out.add(LOG, "logs/rank0.log")
    folder.mkdir()
    os.link(a, folder / "linked.log")
    return {"itself": LOG, "a copy": a, "packed": packed, "in an archive": tar, "in a folder": folder}


@pytest.mark.parametrize("kind", ["itself", "a copy", "packed", "in an archive", "in a folder"])
def test_ranks_are_counted_once(kind: str, tmp_path: Path) -> None:
    alone, both = look_at(LOG), look_at(LOG, copies(tmp_path)[kind])
    assert ranks(both) == ranks(alone) == 2
    (note,) = both.notes
    assert note.startswith("read once") and note.count("killed-over-sockets.log") >= 1 and not both.intake.unknown


def test_it_is_said_once_however_many_there_are(tmp_path: Path) -> None:
    (note,) = look_at(LOG, *copies(tmp_path).values()).notes
    assert "and 2 more" in note
    status, said = report("check", "--from", str(LOG), "--from", str(LOG))
    assert said["notes"] == [told([(str(LOG), str(LOG))])] and status == report("check", "--from", str(LOG))[0]


def test_other_bytes_of_the_same_size_are_another_file(tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(LOG.read_bytes().replace(b"0xcaf2166da7c07948", b"0xcaf2166da7c07949"))
    seen = look_at(LOG, other)
    assert other.stat().st_size == LOG.stat().st_size and not seen.notes and ranks(seen) == 4


def test_files_of_one_size_are_not_compared_each_with_each() -> None:
    opened = 0

    def document(number: int, piece: int) -> Document:
        content = b"%06d" % number * 2000

        def chunks() -> Iterator[bytes]:
            nonlocal opened
            opened += 1
            yield from (content[at : at + piece] for at in range(0, len(content), piece))

        return Document(name=f"{number} in {piece}", chunks=chunks, again=True)

    seen = Seen()
    assert not any(seen.content(document(number, 1000), 12_000) for number in range(100))
    assert opened < 300
    assert seen.content(document(42, 7), 12_000) == "42 in 1000"


def test_a_snapshot_and_its_archive(tmp_path: Path) -> None:
    packed, changed = tmp_path / "s.tar.gz", tmp_path / "changed"
    with tarfile.open(packed, "w:gz") as out:
        out.add(SNAPSHOT, "s")
    shutil.copytree(SNAPSHOT, changed)
    assert len(look_at(SNAPSHOT, packed).notes) == 1
    with (changed / "dmesg.out").open("a") as stream:
        stream.write("\n")
    assert not look_at(SNAPSHOT, changed).notes


def test_two_equal_answers_of_the_ras_service_are_two(tmp_path: Path) -> None:
    """Nothing in the text form of the answer tells the time, and that nothing moved is what is asked."""
    for name in ("first.txt", "second.txt"):
        (tmp_path / name).write_text(ANSWER)
    both = look_at(tmp_path / "first.txt", tmp_path / "second.txt")
    assert not both.notes and len(next(s for s in both.intake.stores if Ras in s).get(Ras).answers) == 2
    twice = look_at(tmp_path / "first.txt", tmp_path / "first.txt")
    assert len(twice.notes) == 1 and len(next(s for s in twice.intake.stores if Ras in s).get(Ras).answers) == 1


def test_what_comes_through_a_pipe_is_not_read_again() -> None:
    done = gpudoctor("check", "--from", "-", "--from", str(LOG), stdin=LOG.read_bytes(), timeout=30)
    assert done.returncode == 1 and b"peer-died" in done.stdout


def test_empty_files_are_no_copies(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    assert not look_at(tmp_path / "a.txt", tmp_path / "b.txt").notes


def test_many_files_of_one_size_are_not_compared_each_with_each() -> None:
    """Logs of hundreds of ranks may differ in their last byte alone."""
    asked: list[int] = []

    def document(number: int, content: bytes) -> Document:
        return Document(name=f"{number}", chunks=lambda: (asked.append(number), iter((content,)))[1], again=True)

    seen = Seen()
    of = [b"same beginning %3d" % n for n in range(100)]
    assert [seen.content(document(n, of[n]), 18) for n in range(100)] == [None] * 100
    assert len(asked) == 100
    assert [seen.content(document(200 + n, of[n]), 18) for n in (0, 99)] == ["0", "99"]


def test_a_copy_takes_no_room_for_the_ends_of_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for a log and a part of another: with copies of the first the other one's end is kept as without."""
    from gpudoctor import ingest
    from gpudoctor.facts.hang import LogEnds
    from gpudoctor.read.source import open_all

    first, other = tmp_path / "a.log", tmp_path / "z.log"
    first.write_text("".join(LOG.read_text().splitlines(keepends=True)) + "step\n" * 4000)
    other.write_text(first.read_text().replace("step", "pets"))
    copies = [Path(shutil.copy(first, tmp_path / f"copy{n}.log")) for n in range(3)]
    monkeypatch.setattr(ingest, "_ENDS", 3 * first.stat().st_size // 2)

    def ends(*files: Path) -> dict[str, int]:
        stores = ingest.take((), open_all([str(f) for f in files])).stores
        return {Path(e.source).name: len(e.lines) for s in stores for e in (s.get(LogEnds) or LogEnds()).ends}

    assert ends(first, *copies, other) == ends(first, other) and len(ends(first, other)) == 2
