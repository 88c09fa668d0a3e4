"""An input that was left before its end is judged as far as it was read; that the rest is unknown is said, and nothing is in order then."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudoctor.collect import snapshot
from gpudoctor.facts.base import Loss
from gpudoctor.facts.hang import LogEnds
from gpudoctor.facts.topology import Pairs
from gpudoctor.ingest import Intake, take
from gpudoctor.read import pipe, source
from gpudoctor.read.amount import amount
from gpudoctor.read.source import Document, Room, open_all, open_path
from tests.support import FIXTURES, gpudoctor, report

TOPO = b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-15\t0\nGPU1\tSYS\t X \t16-31\t1\n"
LONG = TOPO + b"\n" + random.Random(7).randbytes(1 << 18).hex().encode() + b"\n"
SICK = (FIXTURES / "outputs" / "job-log" / "killed-over-sockets.log").read_bytes()
WITH_ZSTD = pytest.mark.skipif(shutil.which("zstd") is None, reason="the zstd program is not installed")


def path_of(intake: Intake) -> str | None:
    """What the matrix in the input says, and whether anything of the input was left unread."""
    return intake.stores[0].get(Pairs).of(0, 1).path


def compressed(kind: str, content: bytes) -> bytes:
    return gzip.compress(content) if kind == "gz" else subprocess.run(["zstd", "-qc"], input=content, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("kind", ["gz", pytest.param("zst", marks=WITH_ZSTD)])
def test_a_cut_or_damaged_log_gives_what_came_before_and_damage_is_no_pass(kind: str, tmp_path: Path) -> None:
    packed = compressed(kind, LONG)
    log = tmp_path / f"log.{kind}"
    for content, words in ((packed[: len(packed) // 2], "in the middle of it"), (packed[: len(packed) // 2] + b"\xff" * 64 + packed[len(packed) // 2 + 64 :], "damaged")):
        log.write_bytes(content)
        intake = take((), open_path(str(log)))
        (missing,) = intake.missing
        # A cut copy is judged by what is there, as a cut text is; behind damage stands what was there to be read.
        assert intake.unread == (() if "middle" in words else (missing,))
        assert words in missing.reason and "were read, and what follows is unknown" in missing.reason and missing.fact == str(log)
        if kind == "gz" or words != "damaged":  # of a block that is damaged zstd gives nothing
            assert path_of(intake) == "SYS"
    log.write_bytes(packed)
    whole = take((), open_path(str(log)))
    assert path_of(whole) == "SYS" and not whole.unread and not whole.missing


def test_of_a_cut_log_a_fault_is_one_and_without_a_fault_it_is_judged_and_the_cut_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log.gz"
    noise = os.urandom(1 << 16).hex().encode()
    for content, whole, cut in ((LONG, 0, 0), (SICK + noise, 1, 1)):
        packed = gzip.compress(content)
        log.write_bytes(packed)
        assert report("check", "--from", str(log))[0] == whole
        log.write_bytes(packed[:-1000])
        status, said = report("check", "--from", str(log))
        assert status == cut and any("what follows is unknown" in m["reason"] for m in said["missing"])
        assert report("facts", "--from", str(log))[0] == 0


def test_several_members_and_what_fills_them_up_are_no_damage(tmp_path: Path) -> None:
    log = tmp_path / "log.gz"
    log.write_bytes(gzip.compress(TOPO) + gzip.compress(b"\n" + LONG) + bytes(5000))
    intake = take((), open_path(str(log)))
    assert path_of(intake) == "SYS" and not intake.missing


def test_what_unpacks_without_end_is_left_and_a_long_log_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(bytes(8 << 20))
    with pytest.raises(OSError, match="300 times its size"):
        assert sum(map(len, pipe.unpacked(iter((bomb,)), 1 << 20))) < 4 << 20
    log = b"".join(b"%d node7 step %d of 90000: loss %d\n" % (n, n, n * 7919 % 65537) for n in range(60_000))
    assert b"".join(pipe.unpacked(iter((gzip.compress(log),)), 1 << 20)) == log


def test_a_file_that_fails_in_the_middle_keeps_what_was_read(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield SICK
        raise OSError(5, "Input/output error")

    (store,), unread = (intake := take((), [Document(name="job.log", chunks=failing)])).stores, intake.unread
    whole = take((), [Document(name="job.log", chunks=lambda: iter((SICK,)))])
    assert intake.recognised == whole.recognised and LogEnds in whole.stores[0] and LogEnds not in store  # nobody saw how it ends
    assert "Input/output error" in unread[0].reason and amount(len(SICK)) in unread[0].reason and not whole.unread
    assert store.host == whole.stores[0].host


def test_a_file_that_vanishes_before_it_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(TOPO)
    found = list(open_path(str(log)))
    log.unlink()
    (missing,) = take((), found).unread
    assert "No such file" in missing.reason and "nothing of it is known" in missing.reason


@pytest.mark.parametrize("form", ["directory", "zip", "tar.gz"])
def test_a_file_of_a_snapshot_that_is_too_long_is_said(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_MEMBER", 2000)
    monkeypatch.setattr(snapshot, "MAX_MEMBER", 2000)
    manifest = b'{"schema": 1, "probes": [{"id": "smi-topo-m", "file": "topo.out"}, {"id": "dmesg", "file": "dmesg.out"}]}'
    files = {"manifest.json": manifest, "topo.out": TOPO, "dmesg.out": b"[    1.0] usb 1-1: new device\n" * 100}
    path = tmp_path / f"s.{form}"
    if form == "directory":
        path.mkdir()
        for name, content in files.items():
            (path / name).write_bytes(content)
    elif form == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(path, "w:gz") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    intake = take((), open_path(str(path)))
    (missing,) = intake.unread
    assert path_of(intake) == "SYS" and "dmesg.out" in missing.fact and "only its first 2 kB were read" in missing.reason
    monkeypatch.setattr(source, "MAX_MEMBER", 3000)
    monkeypatch.setattr(snapshot, "MAX_MEMBER", 3000)
    assert not take((), open_path(str(path))).unread


@pytest.mark.parametrize("form", ["tar", "tar.gz", "zip"])
def test_an_archive_through_standard_input(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"logs.{form}"
    if form == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("node1/topo.txt", TOPO)
    else:
        with tarfile.open(path, "w:gz" if form.endswith("gz") else "w") as tar:
            info = tarfile.TarInfo("node1/topo.txt")
            info.size = len(TOPO)
            tar.addfile(info, io.BytesIO(TOPO))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = gpudoctor("facts", "--from", "-", "--format", "json", stdin=path.read_bytes(), env={"TMPDIR": str(scratch)})
    assert done.returncode == 0 and b'"SYS"' in done.stdout and not os.listdir(scratch)
    cut = gpudoctor("check", "--from", "-", stdin=path.read_bytes()[: 600 if form == "tar" else -40], env={"TMPDIR": str(scratch)})
    assert cut.returncode == 3 and b"Traceback" not in cut.stderr and (b"damaged" in cut.stdout or b"end" in cut.stdout)
    nowhere = gpudoctor("check", "--from", "-", stdin=path.read_bytes(), env={"TMPDIR": "/proc"}, cwd=Path("/proc"))
    assert nowhere.returncode in (0, 3) and b"Traceback" not in nowhere.stderr  # where /tmp is there, it does


def test_a_pipe_that_gives_an_archive_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="save it"):
        pipe.kept(b"PK", iter(lambda: bytes(1 << 16), b""), 1 << 20, lambda: False)
    with pytest.raises(OSError, match="no time"):
        pipe.kept(b"PK", iter(lambda: b"", None), 1 << 20, lambda: True)

    def none(**_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", none)
    with pytest.raises(OSError, match="temporary"):
        pipe.kept(b"PK", iter(()), 1 << 20, lambda: False)


def tarred(path: Path, *headers: bytes) -> str:
    path.write_bytes(gzip.compress(b"".join(headers) + bytes(1024)))
    return str(path)


def header(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", size: int | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


@pytest.mark.parametrize(
    "hostile",
    [
        [header("g", b"g", b"20 comment=%08d\n" % n) for n in range(2000)],  # each asks for the next one
        [header("././@LongLink", b"L", b"a" * 600) for n in range(2000)],
        [header("x", b"x", b"9" * (3 << 20))],
        [header("x", b"x", b"", size=8 << 30)],
        [header("t2.txt", content=TOPO)[:512].replace(b"t2", b"t3") + TOPO.ljust(512, b"\0")],  # its sum is wrong
        [header("t2.txt", content=TOPO)[:200]],
    ],
    ids=["global", "names", "long", "longer", "sum", "cut"],
)  # fmt: skip
def test_a_tar_that_is_damaged_on_purpose(hostile: list[bytes], tmp_path: Path) -> None:
    intake = take((), open_path(tarred(tmp_path / "a.tar.gz", header("t.txt", content=TOPO), *hostile)))
    assert path_of(intake) == "SYS" and any("damaged" in m.reason for m in intake.unread)
    assert not take((), open_path(tarred(tmp_path / "a.tar.gz", header("t.txt", content=TOPO)))).unread


def test_a_tar_without_the_mark_of_its_end_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(header("t.txt", content=TOPO))
    assert "without the mark of its end" in take((), open_path(str(path))).unread[0].reason


@pytest.mark.parametrize("packed", [True, False])
def test_members_of_a_tar_in_any_order_are_read_as_they_are(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a packed one the unpacker's state is kept here and there, and thinned out where there is no room for more."""
    monkeypatch.setattr(source, "MAX_HELD", 1000)
    monkeypatch.setattr("gpudoctor.read.places._APART", 1 << 16)
    monkeypatch.setattr("gpudoctor.read.places._MOST", 5)
    contents = {f"{(n * 7) % 40:02}.log": os.urandom(997 * n).hex().encode() for n in range(40)}
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w:gz" if packed else "w") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    found = [d for d in open_all([str(path)]) if isinstance(d, Document)]
    assert [d.name[-6:] for d in found] == sorted(contents)
    for document in (*found, *reversed(found)):
        assert b"".join(document.chunks()) == contents[document.name[-6:]]


def test_what_all_archives_hold_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "z.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for n in range(10):
            archive.writestr(f"{n}.txt", b"%d" % n * 1000)
    room = Room(held=3500)
    assert len([d for d in open_path(str(path), room) if isinstance(d, Document)]) == 10
    assert room.held == 500


def test_no_time_to_look_into_an_archive(tmp_path: Path) -> None:
    path = tarred(tmp_path / "a.tar.gz", header("t.txt", content=TOPO))
    found = list(open_all([path], late=lambda: True))
    assert all(isinstance(f, Loss) and f.unread and "no time" in f.reason for f in found) and found


def test_folders_that_are_too_deep_or_closed_are_said(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    (deep / "topo.txt").write_bytes(TOPO)
    (tmp_path / "topo.txt").write_bytes(TOPO)
    os.symlink("..", tmp_path / "a" / "loop")
    (missing,) = take((), open_path(str(tmp_path))).unread
    assert "folders deep" in missing.reason and missing.fact.endswith("a/b/c/d/e/f")


def test_what_says_that_there_is_something_and_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/kmsg does: whoever reads must get the word in between, or the clock is never looked at."""
    path = tmp_path / "log"
    path.write_bytes(TOPO)

    def busy(*_: object) -> bytes:
        raise BlockingIOError

    with monkeypatch.context() as patched:
        patched.setattr(pipe.os, "read", busy)
        reading = pipe.chunks(str(path))
        assert [next(reading) for _ in range(3)] == [b"", b"", b""]
    assert b"".join(reading) == TOPO


def test_a_file_of_a_folder_that_cannot_be_opened_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_bytes(TOPO)
    opened = os.open

    def closed(path: str, *more: int) -> int:
        if str(path).endswith("a.txt"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *more)

    monkeypatch.setattr(source.os, "open", closed)
    (lost,) = open_path(str(tmp_path))
    assert isinstance(lost, Loss) and (lost.fact, lost.reason) == (str(tmp_path / "a.txt"), "Permission denied")


def test_amounts() -> None:
    assert [amount(n) for n in (0, 1, 999, 1000, 999_499, 999_900, 12_345_678, 7_250_000_000, 3_000_000_000_000_000)] == [
        "0 bytes", "1 byte", "999 bytes", "1 kB", "999 kB", "1 MB", "12.3 MB", "7.25 GB", "3e+03 TB",
    ]  # fmt: skip


def test_what_stands_right_before_the_damage_is_kept() -> None:
    packed = gzip.compress(LONG, 1)
    at = len(packed) // 2
    damaged = packed[:at] + b"\xff" * 64 + packed[at + 64 :]
    whole = zlib.decompressobj(31).decompress(packed[:at])  # what the sound bytes can give
    got = []
    with pytest.raises(OSError, match="damaged"):
        for text in pipe.unpacked(iter((damaged,)), 1 << 20):
            got.append(text)
    assert b"".join(got)[: len(whole) - 1024] == whole[:-1024]


@pytest.mark.parametrize(("tool", "pack"), [("xz", lzma.compress), ("bzip2", bz2.compress)])
def test_what_is_compressed_as_few_logs_are_is_told_with_the_command_that_helps(tool: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(pack(SICK))
    with open(log, "rb") as piped:
        through = subprocess.run([sys.executable, "-m", "gpudoctor", "check", "--format", "json", "--from", "-"], stdin=piped, stdout=subprocess.PIPE)
    for status, said in (report("check", "--from", str(log)), (through.returncode, json.loads(through.stdout))):
        assert status == 3 and any(f"{tool} -dc" in m["reason"] for m in said["missing"])
    log.write_bytes(b"BZh is no sign of it\n" + SICK)
    assert report("check", "--from", str(log))[0] == 1
