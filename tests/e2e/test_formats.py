"""Every format as a CI server, a collector and a monitoring server get it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import FIXTURES, ROOT, gpudoctor

SICK = str(FIXTURES / "hosts" / "a100x4-sxm-gpu2-nvlinks-down")
WELL = str(FIXTURES / "hosts" / "h100x8-nvswitch-healthy")
WARNED = str(FIXTURES / "hosts" / "l40sx2-acs-redirect")


def test_several_files_at_once_and_one_line_on_stdout(tmp_path):
    words = [w for name in ("junit.xml", "gpudoctor.prom", "r.json") for w in ("-o", str(tmp_path / name))]
    done = gpudoctor("check", "--from", SICK, *words)
    assert done.returncode == 1 and done.stdout.count(b"\n") == 1 and done.stdout.startswith(b"FAULT ")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    assert suite.attrib["failures"] == "1" and suite.attrib["hostname"] == "node07"
    samples = [s for f in text_string_to_metric_families((tmp_path / "gpudoctor.prom").read_text()) for s in f.samples]
    assert [s.value for s in samples if s.name == "gpudoctor_exit_status"] == [1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gpudoctor.prom", "junit.xml", "r.json"]


@pytest.mark.parametrize(
    ("host", "status", "word"), [(WELL, 0, b"OK"), (WARNED, 1, b"WARNING"), (SICK, 2, b"CRITICAL")]
)
def test_nagios_statuses(host, status, word):
    done = gpudoctor("check", "--from", host, "--format", "nagios")
    assert (
        done.returncode == status
        and done.stdout.startswith(b"GPUDOCTOR " + word + b" - ")
        and done.stdout.count(b"\n") == 1
    )


@pytest.mark.parametrize("words", [("--format", "nagios"), ("--format=nagios",)])
@pytest.mark.parametrize("wrong", [("--select", "nvlink-dwn"), ("--from", "/nonexistent"), ("--nonsense",)])
def test_wrong_usage_is_3_for_nagios_alone(words, wrong):
    done = gpudoctor("check", *wrong, *words)
    assert done.returncode == 3 and done.stdout.startswith(b"GPUDOCTOR UNKNOWN - not run: ") and done.stderr
    assert gpudoctor("check", *wrong).returncode == 2


def test_nothing_known_is_unknown_in_each(tmp_path):
    done = gpudoctor(
        "check", "--from", "-", "--format", "nagios", "-o", str(tmp_path / "j.xml"), stdin=b"nothing known\n"
    )
    assert done.returncode == 3 and done.stdout.startswith(b"GPUDOCTOR UNKNOWN - could not tell: ")
    assert ElementTree.parse(tmp_path / "j.xml").find("testsuite/testcase[@name='verdict']/error") is not None


def test_the_catalogue_comes_in_the_envelope_too() -> None:
    for words, own in ((("checks",), "checks"), (("explain", "acs"), "explain"), (("explain", "Duplicate GPU detected"), "explain")):
        done = gpudoctor(*words, "--format", "json")
        said = json.loads(done.stdout)
        assert done.returncode == said["exit_code"] == 0 and said["verdict"] == "pass"
        assert {"schema_version", "tool", "source", "facts", "results", "diagnoses", "missing", own} <= said.keys()


def test_metrics_stay_readable_where_the_terminal_has_no_unicode(tmp_path: Path) -> None:
    """An escape that the format does not know costs a collector the whole file."""
    text = (FIXTURES / "hosts" / "a100x2-pcie-no-bridge" / "smi-q-x.out").read_text().replace("NVIDIA A100", "NVIDIA \N{GRINNING FACE} A100")
    path = tmp_path / "q.txt"
    path.write_text(text, encoding="utf-8")
    done = gpudoctor("check", "--from", str(path), "--format", "prometheus", env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert b'name="NVIDIA ? A100' in done.stdout and b"\\u" not in done.stdout


def test_what_lies_where_a_report_is_begun_is_not_written_through(tmp_path: Path) -> None:
    """In a folder of everybody's, somebody may have put a link there; in a container each run has the same process number."""
    other = tmp_path / "other"
    other.write_text("kept")
    code = (
        "import os, sys; os.symlink(sys.argv[2], f'{sys.argv[1]}.{os.getpid()}.tmp');"
        "from gpudoctor.cli.output import replace_file; replace_file(sys.argv[1], 'new')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "r.json"), str(other)], check=True, cwd=ROOT)
    assert other.read_text() == "kept" and (tmp_path / "r.json").read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "r.json"]
