"""Every format as a CI server, a collector and a monitoring server get it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import FIXTURES, gpudoctor

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
