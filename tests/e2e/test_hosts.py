"""Every bundled host against what is known of it (expect.json) and against its golden report."""

import json

import pytest

from tests import golden
from tests.support import report

NAMES = golden.names()


@pytest.mark.parametrize("name", NAMES)
def test_says_what_is_known_and_nothing_worse(name):
    expect = json.loads((golden.HOSTS / name / "expect.json").read_text())
    status, got = report("check", "--from", str(golden.HOSTS / name))
    assert status == expect["exit"]
    causes = {(d["cause"], d["severity"], d["subject"]) for d in got["diagnoses"] if d["severity"] != "note"}
    assert causes == {tuple(c) for c in expect["causes"]}
    said = {f["slug"] for r in got["results"] for f in r["findings"]}
    assert set(expect.get("notes", [])) <= said
    explained = {d["cause"]: set(d["explains"]) for d in got["diagnoses"]}
    for cause, effects in expect.get("explains", {}).items():
        assert set(effects) <= explained[cause]
    assert not said & set(expect.get("never", []))


@pytest.mark.parametrize("name", NAMES)
def test_report_is_the_golden_one(name):
    """`make golden` rewrites them after a change that was meant."""
    for file, content in golden.produce(name).items():
        assert (golden.HOSTS / name / "golden" / file).read_text() == content, file


@pytest.mark.parametrize("name", golden.OUTPUTS)
def test_report_of_one_output_is_the_golden_one(name):
    for file, content in golden.of_output(name).items():
        assert (golden.GOLDEN / file).read_text() == content, file


@pytest.mark.parametrize("name", NAMES)
def test_the_text_fits_a_terminal(name):
    for line in golden.produce(name)["report.txt"].splitlines():
        # Commands stay whole to be copied: they stand alone under their step, or behind Verify.
        assert len(line) <= 80 or line.startswith(" " * 9), line


def test_the_catalogue_page_is_current():
    assert (golden.ROOT / "CHECKS.md").read_text() == golden.catalogue()


def test_the_session_in_the_readme_is_what_the_program_prints():
    """`python -m tests.golden --readme` rewrites it. The head names the time of one run, so it is left out."""
    shown, real = golden.in_readme().split("\n\n", 1), golden.session().split("\n\n", 1)
    assert shown[1] == real[1]
