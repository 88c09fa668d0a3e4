"""Archives that nobody should have to trust: nothing is written, nothing outside is read, and what is refused is said."""

import gzip
import io
import os
import tarfile
import zipfile

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.topology import Pairs
from gpudoctor.ingest import take
from gpudoctor.read import source
from gpudoctor.read.source import Document, Folder, open_path
from tests.support import gpudoctor

TOPO = b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-15\t0\nGPU1\tSYS\t X \t16-31\t1\n"


def member(name, content=b"", **more):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info, content


def packed(path, *members, form=tarfile.PAX_FORMAT):
    raw = io.BytesIO()
    with tarfile.open(mode="w", fileobj=raw, format=form) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(gzip.compress(raw.getvalue()))
    return str(path)


def seen(path):
    """Names that are read, and what is said of the others."""
    found = list(open_path(path))
    return [d.name for d in found if isinstance(d, Document)], " | ".join(f"{x.fact}: {x.reason}" for x in found if isinstance(x, Loss))


GOOD = member("topo.txt", TOPO)


@pytest.mark.parametrize(
    "bad",
    [
        member("out.txt", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("in.txt", type=tarfile.SYMTYPE, linkname="topo.txt"),
        member("hard.txt", type=tarfile.LNKTYPE, linkname="../../etc/passwd"),
        member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        member("disk", type=tarfile.BLKTYPE, devmajor=8),
        member("pipe", type=tarfile.FIFOTYPE),
        member("/etc/cron.d/x", TOPO),
        member("../../x", TOPO),
        member("a/../../x", TOPO),
    ],
    ids=lambda m: m[0].name,
)
def test_what_leads_out_is_left_alone_and_said(tmp_path, bad):
    (tmp_path / "in").mkdir()
    names, said = seen(packed(tmp_path / "in" / "a.tar.gz", bad, GOOD))
    assert [os.path.basename(n) for n in names] == ["topo.txt"]
    assert bad[0].name in said and "left alone" in said
    assert os.listdir(tmp_path) == ["in"] and os.listdir(tmp_path / "in") == ["a.tar.gz"]


def test_the_good_beside_the_bad_is_judged(tmp_path):
    intake = take((), open_path(packed(tmp_path / "a.tar.gz", member("x", type=tarfile.SYMTYPE, linkname="/"), GOOD)))
    assert intake.stores[0].get(Pairs).of(0, 1).path == "SYS"
    assert any("left alone" in m.reason for m in intake.missing)


def test_of_two_files_of_one_name_the_first_counts(tmp_path):
    """Tools differ in which they show: what a person saw when unpacking must not differ from what was judged unsaid."""
    path = packed(tmp_path / "a.tar.gz", member("t.txt", TOPO), member("./t.txt", TOPO.replace(b"SYS", b"PIX")))
    assert take((), open_path(path)).stores[0].get(Pairs).of(0, 1).path == "SYS"
    assert "second file of this name" in seen(path)[1]


def test_a_sparse_file_is_refused(tmp_path):
    # As GNU tar writes it: 512 bytes of data, eight gigabytes of holes.
    info, content = member("holes.txt", TOPO.ljust(512))
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"00000000000\0" + b"00000001000\0"  # offset, length of the only piece
    header[483:495] = b"77777777777\0"  # its size when unpacked
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    good = io.BytesIO()
    with tarfile.open(mode="w", fileobj=good, format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(GOOD[0], io.BytesIO(GOOD[1]))
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(header) + content + good.getvalue()))
    names, said = seen(str(tmp_path / "a.tar.gz"))
    assert [os.path.basename(n) for n in names] == ["topo.txt"] and "sparse" in said


def test_many_zeros_in_a_small_archive(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "RATIO_FROM", 1 << 20)
    names, said = seen(packed(tmp_path / "a.tar.gz", GOOD, member("zeros", bytes(8 << 20)), member("late.txt", TOPO)))
    assert [os.path.basename(n) for n in names] == ["topo.txt"] and "times its size" in said


def test_a_log_that_packs_well_is_no_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "RATIO_FROM", 1 << 18)
    lines = b"".join(b"node%d:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM\n" % (n % 97, n * 7919 % 65536, n, n % 8, n % 24, n % 8, n % 8, n % 7, n % 7) for n in range(20_000))
    names, said = seen(packed(tmp_path / "a.tar.gz", member("job.log", lines)))
    assert len(names) == 1 and said == ""


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 3), ("MAX_ENTRIES", 4)])
def test_limits_end_the_reading_and_are_said(tmp_path, monkeypatch, limit, value):
    monkeypatch.setattr(source, limit, value)
    names, said = seen(packed(tmp_path / "a.tar.gz", *(member(f"{n}.txt", TOPO * 3) for n in range(9))))
    assert 0 < len(names) < 9 and "the rest was left out" in said


def test_ten_thousand_links_are_no_work(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAX_ENTRIES", 50)
    _, said = seen(packed(tmp_path / "a.tar.gz", *(member(f"l{n}", type=tarfile.SYMTYPE, linkname="/") for n in range(500))))
    assert said.count("left alone") == 50 and "the rest was left out" in said


NOISE = os.urandom(1 << 20).replace(b"\n", b" ") + b"\n"


@pytest.mark.parametrize("form", ["tar.gz", "zip", "gz in zip"])
def test_a_long_member_is_read_to_its_end_and_not_held(tmp_path, monkeypatch, form):
    """What matters of a job's log stands at its end."""
    monkeypatch.setattr(source, "MAX_HELD", 1 << 18)
    content = NOISE + TOPO
    if form == "tar.gz":
        path = packed(tmp_path / "a.tar.gz", member("first.txt", b"nothing\n"), member("t.txt", content))
    else:
        path = zipped(tmp_path / "a.zip", ("first.txt", b"nothing\n"), ("t.txt", gzip.compress(content) if form == "gz in zip" else content))
    names, said = seen(path)
    assert names == [f"{path}/first.txt", f"{path}/t.txt"] and said == ""
    long = next(s for s in open_path(path) if isinstance(s, Document) and s.name.endswith("t.txt") and "first" not in s.name)
    assert b"".join(long.chunks()) == content == b"".join(long.chunks())
    (told,) = take((), open_path(path)).stores
    assert [(p.a, p.b, p.path) for p in told.get(Pairs)] == [(0, 1, "SYS")]


@pytest.mark.parametrize("form", ["tar.gz", "zip"])
def test_a_long_member_that_is_damaged_is_said(tmp_path, monkeypatch, form):
    monkeypatch.setattr(source, "MAX_HELD", 1 << 18)
    content = TOPO + NOISE
    path = packed(tmp_path / "a.tar.gz", member("t.txt", content)) if form == "tar.gz" else zipped(tmp_path / "a.zip", ("t.txt", content))
    raw = bytearray((tmp_path / os.path.basename(path)).read_bytes())
    if form == "zip":
        raw[len(raw) // 2 : len(raw) // 2 + 64] = bytes(64)
    else:  # of which no sum is asked before its end
        del raw[len(raw) // 2 :]
    (tmp_path / os.path.basename(path)).write_bytes(raw)
    assert any("could not be read to its end" in m.reason or "damaged" in m.reason for m in take((), open_path(path)).missing)


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.95])
def test_a_cut_archive_gives_what_came_before(tmp_path, cut):
    path = packed(tmp_path / "a.tar.gz", GOOD, member("noise", os.urandom(1 << 16)))
    raw = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(raw[: int(len(raw) * cut)])
    names, said = seen(path)
    assert "topo.txt" in str(names) and "damaged" in said


def test_names_that_are_no_text_reach_no_terminal(tmp_path):
    path = packed(tmp_path / "a.tar.gz", member("a\udcff.txt", b"nothing\n"), member("/b\x1b[31m", TOPO), GOOD, form=tarfile.GNU_FORMAT)
    for form in ("text", "json"):
        done = gpudoctor("check", "--from", path, "--format", form, env={"PYTHONIOENCODING": "utf-8:strict"})
        assert done.returncode == 0 and b"Traceback" not in done.stderr
        assert b"\x1b" not in done.stdout and b"u001b" not in done.stdout


def test_a_manifest_in_an_archive_leads_nowhere(tmp_path):
    (tmp_path / "secret.out").write_bytes(TOPO)
    manifest = b'{"schema": 1, "probes": [{"id": "smi-topo-m", "file": "../../secret.out"}, {"id": "smi-q-x", "file": "/etc/passwd"}]}'
    folder = next(s for s in open_path(packed(tmp_path / "a.tar.gz", member("s/manifest.json", manifest))) if isinstance(s, Folder))
    intake = take((), [folder])
    assert intake.recognised == 0 and sum("outside the snapshot" in m.reason for m in intake.missing) == 2


def zipped(path, *members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return str(path)


def test_a_zip_is_read_as_a_folder_is(tmp_path):
    path = zipped(tmp_path / "logs.zip", ("node1/topo.txt", TOPO), ("node1/empty/", b""), ("packed.txt.gz", gzip.compress(TOPO)))
    names, lost = seen(path)
    assert names == [f"{path}/node1/topo.txt", f"{path}/packed.txt.gz"] and not lost
    (told,) = take((), open_path(path)).stores
    assert [(p.a, p.b, p.path) for p in told.get(Pairs)] == [(0, 1, "SYS")]


def test_what_a_zip_may_not_hold(tmp_path, monkeypatch):
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    path = zipped(tmp_path / "bad.zip", ("../out.txt", TOPO), ("/abs.txt", TOPO), (link, b"/etc/passwd"), ("good.txt", TOPO))
    names, lost = seen(path)
    assert names == [f"{path}/good.txt"] and lost.count("left alone") == 3
    monkeypatch.setattr(source, "RATIO_FROM", 1 << 20)
    names, lost = seen(zipped(tmp_path / "bomb.zip", ("good.txt", TOPO), ("zeros.txt", bytes(8 << 20)), ("more.txt", TOPO)))
    assert len(names) == 1 and "the rest was left out" in lost


def test_a_zip_that_is_cut_anywhere_breaks_nothing(tmp_path):
    whole = (tmp_path / "w.zip", zipped(tmp_path / "w.zip", ("topo.txt", TOPO)))[0].read_bytes()
    cut = tmp_path / "cut.zip"
    for end in range(4, len(whole)):
        cut.write_bytes(whole[:end])
        names, lost = seen(str(cut))
        assert not names and "damaged" in lost


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_packed_in_another_way_is_left_alone_and_said(tmp_path, method):
    path = str(tmp_path / "odd.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("odd.txt", TOPO, compress_type=method)
        archive.writestr("topo.txt", TOPO)
    names, said = seen(path)
    assert names == [f"{path}/topo.txt"] and f"odd.txt: packed in a way that is not read here (method {method})" in said


def test_a_packed_log_within_a_tar(tmp_path):
    path = packed(tmp_path / "a.tar.gz", member("topo.txt.gz", gzip.compress(TOPO)))
    (told,) = take((), open_path(path)).stores
    assert [(p.a, p.b, p.path) for p in told.get(Pairs)] == [(0, 1, "SYS")]


@pytest.mark.parametrize("way", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_with_any_byte_wrong_breaks_nothing(tmp_path, way):
    """Every way of packing has errors of its own, and zipfile lets them out."""
    path = tmp_path / "z.zip"
    with zipfile.ZipFile(path, "w", way) as archive:
        archive.writestr("topo.txt", TOPO)
    whole = path.read_bytes()
    for place in range(4, len(whole)):
        path.write_bytes(whole[:place] + bytes((whole[place] ^ 0xFF,)) + whole[place + 1 :])
        for found in open_path(str(path)):
            assert isinstance(found, Loss) or b"".join(found.chunks()) == TOPO


def test_a_member_of_a_zip_without_a_name(tmp_path):
    path = zipped(tmp_path / "z.zip", ("x", b"nothing\n"), ("topo.txt", TOPO))
    raw = (tmp_path / "z.zip").read_bytes()
    at = raw.rfind(b"PK\x01\x02", 0, raw.rfind(b"PK\x01\x02"))
    (tmp_path / "z.zip").write_bytes(raw[: at + 46].replace(b"x", b"x") + b"\0" + raw[at + 47 :])  # a name ends at a zero
    assert f"{path}/topo.txt" in seen(path)[0]


def test_the_entries_of_a_zip_have_a_limit_whatever_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAX_ENTRIES", 50)
    names, said = seen(zipped(tmp_path / "z.zip", *((f"../{n}.txt", b"") for n in range(500))))
    assert not names and said.count("left alone") == 50 and "the rest was left out" in said


def test_a_table_of_contents_of_any_size_is_not_asked_for(tmp_path, monkeypatch):
    from gpudoctor.read import zipped as reader

    monkeypatch.setattr(reader, "_AT_ONCE", 1 << 12)
    names, said = seen(zipped(tmp_path / "z.zip", *((f"{n}.txt", b"") for n in range(500))))
    assert not names and "a table of contents of more than" in said


def test_small_members_that_unpack_to_a_great_deal(tmp_path, monkeypatch):
    """What is packed within an archive unpacks as it is read, each member up to a limit and all of them up to another."""
    monkeypatch.setattr(source, "RATIO_FROM", 1 << 20)
    monkeypatch.setattr(source, "MAX_UNPACKED", 3 << 20)
    monkeypatch.setattr(source, "MAX_RATIO", 150)
    bombs = [(f"{n}.gz", gzip.compress(bytes(8 << 20) + b"%d" % n)) for n in range(6)]
    read = 0
    for found in open_path(zipped(tmp_path / "z.zip", *bombs)):
        for _ in range(2):  # asked again, as where two files are compared
            chunks = found.chunks()
            once = 0
            with pytest.raises(OSError, match="unpacks to more than the limits"):
                while True:
                    once += len(next(chunks))
        read += once
    assert 0 < read <= (3 << 20) + 6 * (1 << 14)
    names, said = seen(zipped(tmp_path / "good.zip", ("topo.gz", gzip.compress(TOPO))))
    assert len(names) == 1 and not said
