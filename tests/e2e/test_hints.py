"""What a person types at first, and what the program says to it: one line that can be used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpudoctor.cli.probe import NAMES
from gpudoctor.collect.probes import PROBES
from gpudoctor.model import SEVERITIES
from tests.support import FIXTURES, gpudoctor

HOST = FIXTURES / "hosts" / "h100x8-nvswitch-healthy"
VM = FIXTURES / "hosts" / "h200x2-vm"


@pytest.mark.parametrize("command", ["check", "facts", "bandwidth"])
def test_a_file_without_from_is_wrong_usage_and_told_how(command: str, tmp_path: Path) -> None:
    done = gpudoctor(command, "my log.txt", "b.txt", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == b""
    last = done.stderr.decode().strip().splitlines()[-1]
    assert last.endswith(f"{command} --from 'my log.txt' --from b.txt")


def test_a_file_in_the_place_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("x")
    done = gpudoctor("report.txt", cwd=tmp_path)
    assert done.returncode == 2 and b"gpudoctor check --from report.txt" in done.stderr
    other = gpudoctor("chek", cwd=tmp_path)
    assert other.returncode == 2 and b"did you mean check?" in other.stderr and b"--from" not in other.stderr


def test_an_option_that_is_none_is_no_file() -> None:
    done = gpudoctor("check", "--", "--frm")
    assert done.returncode == 2 and b"--from" not in done.stderr


def test_what_reports_cite_can_be_typed() -> None:
    """Evidence names `gpudoctor probe pci`: it prints what was read there."""
    children = [p for p in PROBES if p.shown.startswith("gpudoctor probe ")]
    assert [p.shown.split()[-1] for p in sorted(children, key=lambda p: NAMES.index(p.id))] == list(NAMES)
    recorded = {"GPUDOCTOR_PROBE_DIR": str(HOST)}
    done = gpudoctor("probe", "pci", env=recorded)
    assert done.returncode == 0 and done.stdout == (HOST / "pci.out").read_bytes()
    assert json.loads(gpudoctor("probe", "system").stdout)["probe"] == "gpudoctor.system"
    none = gpudoctor("probe", "job", env=recorded)
    assert none.returncode == 3 and none.stdout == b"" and b"gpudoctor probe job: " in none.stderr
    assert gpudoctor("probe", "cpu").returncode == 2


def test_the_table_of_checks_shows_the_severity_its_help_promises() -> None:
    assert b"how severe" in gpudoctor("checks", "--help").stdout
    rows = [line.split() for line in gpudoctor("checks").stdout.decode().splitlines() if re.match(r"GD\d{3} ", line)]
    severities = {slug: severity for _, slug, severity, *_ in rows}
    assert severities["nvlink-down"] == "error" and severities["throttled"] == "warning" and severities["mig"] == "note"
    assert set(severities.values()) <= {*SEVERITIES, "-"}


def test_a_page_says_why_checks_were_not_made_as_the_text_does(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    text = " ".join(gpudoctor("check", "--from", str(VM)).stdout.decode().split())
    said = re.search(r"Checks not made: (.*?) \(-vv", text)
    page = gpudoctor("check", "--from", str(VM), "--format", "html").stdout.decode()
    assert said is not None and f"Checks not made: {said[1]}." in page
