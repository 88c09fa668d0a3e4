"""Snapshots of other schemas: what an old or a future program wrote is read as well as can be, and what that means is said."""

from __future__ import annotations

import json
import shutil

import pytest

from gpudoctor.discover import load
from gpudoctor.ingest import take
from gpudoctor.judge import judge
from gpudoctor.read.source import open_path
from gpudoctor.report.jsonout import envelope
from tests.golden import HOSTS

HOST = HOSTS / "h200x2-vm"
MANIFEST = json.loads((HOST / "manifest.json").read_text())
PROBES = MANIFEST["probes"]


def read(path):
    got = envelope(judge(take((), open_path(str(path))), load(), {}))
    found = {(f["slug"], f["severity"], f["subject"]) for r in got["results"] for f in r["findings"]}
    return {"facts": got["facts"], "found": found, "verdict": got["verdict"]}, " | ".join(f"{m['fact']}: {m['reason']}" for m in got["missing"])


def written(folder, manifest):
    shutil.copytree(HOST, folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def only(*keys):
    return [{k: p[k] for k in keys if k in p} for p in PROBES]


def without(*keys, **more):
    return {**{k: v for k, v in MANIFEST.items() if k not in keys}, **more}


OLD = {
    "no schema": without("schema"),
    "schema 0": without("tool", "redaction", "origin", schema=0, probes=only("id", "argv", "file", "status", "rc")),
    "the least": {"probes": only("id", "file")},
    "commands and files": {"schema": 0, "host": "old", "probes": only("argv", "file")},
    "a number in words": without(schema="1"),
    "no number": without(schema=None),
    "a fraction": without(schema=0.5),
}  # fmt: skip
NEW = {
    "a key more": without(schema=2, fleet={"x": [1]}),
    "keys in entries": without(schema=2, probes=[{**p, "attempts": 2, "compressed": False, "env": {"A": "b"}} for p in PROBES]),
    "a status more": without(schema=2, probes=[{**p, "status": "fine" if p["status"] == "ok" else p["status"]} for p in PROBES]),
    "probes more": without(schema=2, probes=[*PROBES, {"id": "dcgm", "argv": ["dcgmi", "diag"], "file": None, "status": "absent"}]),
    "entries of another kind": without(schema=2, probes=[*PROBES, ["smi-topo-m", "x"], 7, {"group": "links", "probes": []}]),
    "values of another kind": without(schema=2, captured_at=1796000000, host={"name": "x"}, tool="gpudoctor 9", probes=PROBES),
    "far ahead": without(schema=10**6),
}  # fmt: skip


@pytest.mark.parametrize("name", [*OLD, *NEW])
def test_the_facts_and_findings_are_those_of_today(name, tmp_path):
    today, said = read(HOST)
    assert today["facts"]["gpus"] and "schema" not in said
    got, said = read(written(tmp_path / "s", {**OLD, **NEW}[name]))
    assert got == today
    assert ("newer than 1" in said) is (name in NEW) and ("read as well as can be" in said) is (name in OLD)


def test_a_layout_that_nobody_here_knows_is_read_by_recognising_its_files(tmp_path):
    """Outputs stay what they are, however a later manifest lists them."""
    folder = written(tmp_path / "s", without("probes", schema=3, outputs={p["id"]: {"path": p["file"]} for p in PROBES}))
    got, said = read(folder)
    today, _ = read(HOST)
    assert "newer than 1" in said and "lists no probes" in said
    for family in ("gpus", "nvlinks"):
        assert got["facts"][family] == today["facts"][family], family
    # Without its command a matrix of peer to peer does not say of what: the path is all that is certain.
    assert [(p["path"], p["nvlinks"]) for p in got["facts"]["pairs"]] == [("NVL", 18)]


def test_an_entry_that_names_nothing_is_said(tmp_path):
    _, said = read(written(tmp_path / "s", without(probes=[*PROBES, {"status": "ok"}])))
    assert "an entry without an id was passed over" in said


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_answers_of_child_programs_of_another_schema(tmp_path, version):
    """Each names a schema of its own; an unknown one must end nothing, and gives no value that is not in it."""
    folder = written(tmp_path / "s", MANIFEST)
    for name in ("nvml", "pci", "system", "job"):
        tree = json.loads((folder / f"{name}.json").read_text())
        (folder / f"{name}.json").write_text(json.dumps({**tree, "schema": version, "unknown": {"deep": [1, None]}}) + "\n")
    got, _ = read(folder)
    today, _ = read(HOST)
    assert got["facts"]["pairs"] == today["facts"]["pairs"] and len(got["facts"]["gpus"]) == 2
