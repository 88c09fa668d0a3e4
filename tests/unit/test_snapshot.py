"""Snapshots: what is saved is loaded again, and a spoilt one loses only what is spoilt."""

import gzip
import hashlib
import io
import json
import os
import tarfile

import pytest

from gpudoctor.collect.capture import Capture, Probe, Snapshot, sections_of
from gpudoctor.collect.collector import replay
from gpudoctor.collect.probes import PROBES, by_id
from gpudoctor.collect.save import NotASnapshot, contents, save
from gpudoctor.collect.snapshot import load
from gpudoctor.facts.topology import Pairs
from gpudoctor.ingest import take
from gpudoctor.read.source import Folder, open_path

TOPO = b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-15\t0\nGPU1\tSYS\t X \t16-31\t1\n"


def capture(probe_id, out=b"", status="ok", rc=0, **more):
    return Capture(probe=by_id(probe_id), status=status, rc=rc, out=out, **more)


def snapshot(*captures, host="node07"):
    return Snapshot(captures=captures, host=host, captured_at="2026-01-01T00:00:00Z")


FULL = snapshot(
    capture("smi-topo-m", TOPO, seconds=0.07, timeout_s=30.0),
    capture("smi-q-x", b"NVIDIA-SMI has failed\n", "exit", 9, err=b"oops\n"),
    capture("nvml", b'{"probe": "gpudoctor.nvml"', "timeout", None, timeout_s=7.5),
    capture("lspci", b"", "absent", None),
    capture("dmesg", bytes(range(256)), "signal", -11),
    capture("pci", b"", "ok", 0),
    capture("system", b"", "stuck", None),
)


def written(folder, manifest, **files):
    """A snapshot made by hand."""
    folder.mkdir(exist_ok=True)
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    (folder / "manifest.json").write_text(text)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return str(folder)


def loaded(path):
    folder = next(s for s in open_path(str(path)) if isinstance(s, Folder))
    return load(folder)


def said(snapshot):
    return " | ".join(f"{loss.fact}: {loss.reason}" for loss in snapshot.losses)


def entry(**changes):
    return {"id": "smi-topo-m", "argv": ["nvidia-smi", "topo", "-m"], "file": "t.out", "status": "ok", "rc": 0, **changes}


# --- there and back


@pytest.mark.parametrize("name", ["snap", "snap.tar.gz", "snap.tgz"])
def test_saved_and_loaded_is_the_same(tmp_path, name):
    save(FULL, str(tmp_path / name))
    got = loaded(tmp_path / name)
    assert got == FULL
    assert got.losses == ()


def test_manifest_is_as_promised(tmp_path):
    save(FULL, str(tmp_path / "s"))
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert manifest["schema"] == 1 and manifest["host"] == "node07" and manifest["captured_at"]
    assert manifest["tool"]["name"] == "gpudoctor"
    for probe in manifest["probes"]:
        assert set(probe) >= {"id", "argv", "file", "status", "rc", "seconds", "sha256", "bytes"}
        if probe["file"]:
            content = (tmp_path / "s" / probe["file"]).read_bytes()
            assert probe["bytes"] == len(content)
            assert probe["sha256"] == hashlib.sha256(content).hexdigest()


def test_an_archive_has_the_same_bytes_each_time(tmp_path, monkeypatch):
    save(FULL, str(tmp_path / "a.tar.gz"))
    monkeypatch.setattr("time.time", lambda: 1.0)
    save(FULL, str(tmp_path / "b.tar.gz"))
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        members = tar.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 0)}
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert os.listdir(tmp_path) and not [n for n in os.listdir(tmp_path) if n.endswith(".tmp")]


def test_names_of_odd_probes_stay_inside(tmp_path):
    odd = snapshot(Capture(probe=Probe(id="../../x y", argv=(), kind=None, shown="x"), status="ok", rc=0, out=b"a\n"))
    assert all("/" not in name and not name.startswith(".") for name in contents(odd))
    save(odd, str(tmp_path / "s"))
    assert loaded(tmp_path / "s").captures[0].out == b"a\n"


# --- where to write


def test_a_folder_of_other_things_is_not_written_into(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(NotASnapshot):
        save(FULL, str(tmp_path))
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_a_file_is_not_replaced_by_a_directory(tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(NotASnapshot):
        save(FULL, str(tmp_path / "f"))
    (tmp_path / "d.tar.gz").mkdir()
    with pytest.raises(NotASnapshot):
        save(FULL, str(tmp_path / "d.tar.gz"))


def test_an_older_snapshot_is_replaced_and_what_lies_beside_it_kept(tmp_path):
    save(FULL, str(tmp_path / "s"))
    (tmp_path / "s" / "notes.md").write_text("mine")
    save(snapshot(capture("smi-topo-m", TOPO)), str(tmp_path / "s"))
    assert sorted(os.listdir(tmp_path / "s")) == ["manifest.json", "notes.md", "smi-topo-m.out"]


def test_never_written_through_a_link(tmp_path):
    (tmp_path / "victim").write_text("untouched")
    target = written(tmp_path / "s", {"schema": 1, "probes": []})
    os.symlink(tmp_path / "victim", os.path.join(target, "smi-topo-m.out"))
    save(FULL, target)
    assert (tmp_path / "victim").read_text() == "untouched"


# --- spoilt ones


@pytest.mark.parametrize("name", ["../secret.out", "/etc/hostname", "sub/t.out", "..", "manifest.json", "a\\b", 7, ["x"]])
def test_a_manifest_that_points_outside_opens_nothing(tmp_path, name):
    (tmp_path / "secret.out").write_bytes(TOPO)
    (tmp_path / "s" / "sub").mkdir(parents=True)
    (tmp_path / "s" / "sub" / "t.out").write_bytes(TOPO)
    got = loaded(written(tmp_path / "s", {"schema": 1, "probes": [entry(file=name)]}))
    assert got.captures[0].out == b""
    assert "outside the snapshot" in said(got)


def test_a_link_in_a_snapshot_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(TOPO)
    path = written(tmp_path / "s", {"schema": 1, "probes": [entry()]})
    os.symlink(tmp_path / "secret", os.path.join(path, "t.out"))
    assert loaded(path).captures[0].out == b""


def test_a_changed_file_is_read_and_said(tmp_path):
    path = written(tmp_path / "s", {"schema": 1, "probes": [entry(sha256="0" * 64)]}, t__out=TOPO)
    got = loaded(path)
    assert got.captures[0].out == TOPO
    assert "t.out" in said(got) and "sha256" in said(got)


def test_a_missing_file_is_said_and_is_no_healthy_answer(tmp_path):
    got = loaded(written(tmp_path / "s", {"schema": 1, "probes": [entry()]}))
    assert "t.out is not in the snapshot" in said(got)
    assert got.captures[0].status == "absent"


def test_a_newer_schema_is_read_as_far_as_known(tmp_path):
    manifest = {"schema": 7, "probes": [entry(colour="green")], "fleet": {"x": 1}}
    got = loaded(written(tmp_path / "s", manifest, t__out=TOPO))
    assert "schema 7" in said(got) and got.captures[0].out == TOPO


def test_an_old_manifest_with_little_in_it_is_read(tmp_path):
    path = written(tmp_path / "s", {"probes": [{"id": "smi-topo-m", "file": "t.out"}]}, t__out=TOPO)
    got = loaded(path)
    assert (got.captures[0].status, got.captures[0].probe) == ("ok", by_id("smi-topo-m"))


def test_a_probe_known_by_its_command_only(tmp_path):
    path = written(tmp_path / "s", {"schema": 1, "probes": [entry(id="nvidia-smi.topo-m")]}, t__out=TOPO)
    assert loaded(path).captures[0].probe == by_id("smi-topo-m")


def test_another_command_under_a_known_id_is_named_as_it_was_run(tmp_path):
    path = written(tmp_path / "s", {"schema": 1, "probes": [entry(argv=["nvidia-smi", "topo", "-mp"])]}, t__out=TOPO)
    probe = loaded(path).captures[0].probe
    assert (probe.kind, probe.shown, probe.needed) == ("smi-topo", "nvidia-smi topo -mp", True)


def test_an_unknown_probe_is_recognised_by_its_text(tmp_path):
    path = written(tmp_path / "s", {"schema": 1, "probes": [entry(id="new", argv=["new-tool"])]}, t__out=TOPO)
    got = loaded(path)
    assert [s.kind for s in sections_of(got)] == ["smi-topo"]
    store = take(sources=open_path(path)).stores[0]
    assert store.get(Pairs).of(0, 1).path == "SYS"
    assert store.get(Pairs).of(0, 1).at("path").source == "new-tool"


def test_an_unknown_probe_in_which_nothing_is_known_is_said(tmp_path):
    path = written(tmp_path / "s", {"schema": 1, "probes": [entry(id="new", argv=["new-tool"])]}, t__out=b"hello\n")
    assert take(sources=open_path(path)).unknown == ("new-tool",)


def test_an_endless_output_is_read_to_a_limit_and_that_is_said(monkeypatch):
    monkeypatch.setattr("gpudoctor.collect.capture.MAX_LINES", 3)
    intake = take([snapshot(capture("smi-topo-m", TOPO + b"GPU2\n" * 9))])
    assert intake.stores[0].get(Pairs).of(0, 1).path == "SYS"
    assert any("only these were read" in m.reason for m in intake.missing)


@pytest.mark.parametrize("manifest", ['{"schema": 1, "probes": [{"id": "smi', "[]", "", "null", '"x"', '{"schema": 1}', "[" * 100000])
def test_a_broken_manifest_leaves_the_files_readable(tmp_path, manifest):
    path = written(tmp_path / "s", manifest, t__out=TOPO)
    got = loaded(path)
    assert "manifest.json" in said(got)
    store = take(sources=open_path(path)).stores[0]
    assert store.get(Pairs).of(0, 1).path == "SYS"
    assert store.recorded  # nobody can say that this was a whole look


@pytest.mark.parametrize(
    "bad",
    [
        "text", 7, None, [], {}, {"id": 3}, {"id": ["a"]},
        entry(rc="nine"), entry(rc=1e400), entry(rc=True), entry(seconds="x"), entry(seconds=[1]), entry(status="fine"),
        entry(status=["ok"]), entry(argv="nvidia-smi"), entry(argv=[1, None]), entry(sha256=4), entry(timeout_s={}), entry(err="../x"),
    ],
)  # fmt: skip
def test_a_bad_entry_ends_nothing(tmp_path, bad):
    good = entry(id="smi-topo-p2p-r", argv=["nvidia-smi", "topo", "-p2p", "r"], file="p.out")
    got = loaded(written(tmp_path / "s", {"schema": 1, "probes": [bad, good]}, t__out=TOPO, p__out=b"x\n"))
    assert got.of("smi-topo-p2p-r").out == b"x\n"
    take(sources=open_path(str(tmp_path / "s")))


def test_escapes_in_a_manifest_do_not_reach_a_terminal(tmp_path):
    manifest = {"schema": 1, "host": "a\x1b[31mb", "probes": [entry(id="n\x1b[2J", argv=["x\x1b]0;y\x07"])]}
    got = loaded(written(tmp_path / "s", manifest, t__out=TOPO))
    assert got.host == "ab" and "\x1b" not in got.captures[0].probe.id + got.captures[0].probe.shown


def test_the_same_probe_twice_counts_once(tmp_path):
    got = loaded(written(tmp_path / "s", {"schema": 1, "probes": [entry(), entry(file="u.out")]}, t__out=TOPO, u__out=b"x\n"))
    assert [c.out for c in got.captures] == [TOPO]
    assert "two entries" in said(got)


def test_a_log_laid_beside_is_named_and_notes_are_not(tmp_path):
    path = written(tmp_path / "s", {"schema": 1, "probes": [entry()]}, t__out=TOPO, nccl__log=b"x", expect__json=b"{}")
    assert "nccl.log" in said(loaded(path)) and "expect.json" not in said(loaded(path))


def test_all_probes_absent_is_a_snapshot(tmp_path):
    save(snapshot(*(Capture(probe=p, status="absent") for p in PROBES)), str(tmp_path / "s"))
    got = loaded(tmp_path / "s")
    assert got.losses == () and {c.status for c in got.captures} == {"absent"}


def test_two_snapshots_in_one_archive_stay_two_hosts(tmp_path):
    packed = io.BytesIO()
    with tarfile.open(mode="w", fileobj=packed) as tar:
        for host in ("a1", "b2"):
            for name, content in contents(snapshot(capture("smi-topo-m", TOPO), host=host)).items():
                member = tarfile.TarInfo(f"./{host}/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    (tmp_path / "two.tar.gz").write_bytes(gzip.compress(packed.getvalue()))
    assert {s.host for s in take(sources=open_path(str(tmp_path / "two.tar.gz"))).stores} == {"a1", "b2"}


# --- replay


def test_replay_answers_every_probe(tmp_path):
    save(FULL, str(tmp_path / "s.tar.gz"))
    got = replay(str(tmp_path / "s.tar.gz"), job=False)
    assert got.live and got.replayed_from == str(tmp_path / "s.tar.gz") and got.host == "node07"
    assert [c.probe.id for c in got.captures] == [p.id for p in PROBES if not p.optional]
    assert got.of("smi-topo-m").out == TOPO
    unrecorded = got.of("smi-nvlink-s")
    assert unrecorded.status == "absent" and b"not recorded" in unrecorded.err
    assert replay(str(tmp_path / "s.tar.gz"), job=True).of("job") is not None


def test_replay_of_no_snapshot_is_refused(tmp_path):
    with pytest.raises(OSError, match=r"manifest\.json"):
        replay(str(tmp_path), job=False)
    with pytest.raises(OSError, match="nowhere"):
        replay(str(tmp_path / "nowhere"), job=False)
