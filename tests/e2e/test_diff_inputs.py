"""`gpudoctor diff` over reports, any text, and what nobody should have to read."""

from __future__ import annotations

import gzip
import json

import pytest
from click.testing import CliRunner

from gpudoctor.cli.main import cli
from tests.diffs import diff, messages, run
from tests.golden import HOSTS

H200 = HOSTS / "h200x2-vm"


def test_reports_of_check_and_facts(tmp_path):
    for name in ("h100x8-nvswitch-healthy", "h100x8-one-nvlink-down"):
        for command in ("check", "facts"):
            done = CliRunner().invoke(cli, [command, "--from", str(HOSTS / name), "--format", "json"])
            (tmp_path / f"{name}.{command}.json").write_text(done.stdout)
    well, sick = (f"{tmp_path}/{n}" for n in ("h100x8-nvswitch-healthy", "h100x8-one-nvlink-down"))
    for a, b in ((f"{well}.check.json", f"{sick}.check.json"), (f"{well}.facts.json", f"{sick}.facts.json"), (f"{well}.check.json", HOSTS / "h100x8-one-nvlink-down")):
        status, got = diff(a, b)
        assert status == 1 and messages(got)[0] == "NVLink 7 of GPU 5 went down", messages(got)
        assert all(e["value"] for e in got["diff"]["changes"][0]["evidence"])
    status, got = diff(f"{well}.check.json", HOSTS / "h100x8-nvswitch-healthy")
    assert (status, messages(got)) == (0, []) and any("holds no versions" in n for n in got["notes"])
    assert diff(f"{well}.check.json", f"{well}.check.json")[0] == 0
    status, got = diff(f"{well}.check.json", f"{well}.facts.json")
    assert status == 3 and "what the checks say" in got["missing"][0]["fact"]


def test_any_text_file(tmp_path):
    topo = (H200 / "smi-topo-m.out").read_text()
    (tmp_path / "a.txt").write_text(topo)
    (tmp_path / "b.txt").write_text(topo.replace("NV18", "PHB "))
    assert messages(diff(tmp_path / "a.txt", tmp_path / "b.txt")[1])[0] == "pair 0-1: NVL -> PHB"
    status, got = diff(tmp_path / "a.txt", H200)
    assert status == 3 and not messages(got) and any("read only in B" in m["reason"] for m in got["missing"])


@pytest.mark.parametrize("place", [0, 1])
def test_nothing_recognised_in_one_of_the_two(tmp_path, place):
    (tmp_path / "x.txt").write_text("nothing that anybody knows\n")
    paths = [str(H200), str(tmp_path / "x.txt")]
    done = run(*(paths[::-1] if place else paths))
    assert done.exit_code == 3 and "UNKNOWN" in done.stdout
    assert run(tmp_path / "x.txt", tmp_path / "x.txt").exit_code == 3


HOSTILE = [
    b"{", b'{"tool": {"name": "gpudoctor"}, "facts": 7}', b'{"tool": {"name": "gpudoctor"}, "facts": {}}', b"[" * 100_000,
    b'{"a":' * 50_000, b'{"tool": {"name": "gpudoctor"}, "facts": {"gpus": [1, null, {"index": -1, "bdf": [], "pcie": 3}], "pairs": {"a": 1}, "xid": [{"count": 1e400}]}}',
    b'{"tool": {"name": "gpudoctor"}, "schema_version": 9, "facts": {"gpus": [{"index": true, "pcie": {"width": "16"}}]}, "results": [{"slug": "acs", "status": [1], "findings": [{"severity": "fatal"}]}], "diagnoses": [{"cause": "acs", "severity": "error", "subjects": [[]]}]}',
    b"\x1f\x8b\x08broken", b"\xff\xfe\x00", b"", gzip.compress(b"nothing"),
    json.dumps({"tool": {"name": "gpudoctor"}, "facts": {"gpus": [{"index": 10**30, "bdf": "0000:41:00.0", "name": "x" * 10**6, "pcie": {"speed_gts": 1e308, "width": 2**80}}], "xid": [{"code": 79, "count": 2**60, "bdf": "0000:41:00.0"}], "pci": [{"bdf": "0000:41:00.0", "parent": "0000:41:00.0"}]}}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_input_ends_nothing(tmp_path, number):
    (tmp_path / "x.json").write_bytes(HOSTILE[number])
    for words in ((tmp_path / "x.json", H200), (H200, tmp_path / "x.json"), (tmp_path / "x.json", tmp_path / "x.json")):
        assert run(*words).exit_code in (0, 1, 3)
    assert run(H200, tmp_path / "x.json").exit_code != 0


def test_escapes_in_a_report_reach_no_terminal(tmp_path):
    tree = {
        "tool": {"name": "gpudoctor"}, "schema_version": 1,
        "facts": {"gpus": [{"index": 0, "bdf": "0000:41:00.0", "name": "A\x1b[31m100\x1b]0;owned\x07", "pcie": {}}]},
        "results": [{"code": "GD1", "slug": "acs", "status": "found", "findings": [{"severity": "error", "subject": "pci:\x1b[2J", "message": "m\x1b[0m", "evidence": [{"source": "\x9b1m", "where": "", "value": "\x1b"}]}]}],
    }  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(tree))
    tree["facts"]["gpus"][0]["name"] = "B\x1b[31m"
    (tmp_path / "b.json").write_text(json.dumps({**tree, "results": []}))
    for words in ((), ("-v",), ("--format", "json")):
        shown = run(tmp_path / "a.json", tmp_path / "b.json", *words).stdout
        assert not {"\x1b", "\x9b", "\x07"} & set(shown) and "\\u001b" not in shown
