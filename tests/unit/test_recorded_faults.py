"""Logs of real faults over two GPUs: each is named, the healthy ones are left alone."""

import pytest

from tests.gpu.test_real_faults import EXPECTED
from tests.support import FIXTURES, report

LOGS = FIXTURES / "outputs" / "job-log"


def test_every_recorded_log_has_its_truth():
    assert {p.stem for p in LOGS.glob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_named(name):
    expected, cause = EXPECTED[name]
    status, got = report("check", "--from", str(LOGS / f"{name}.log"))
    loud = {d["cause"] for d in got["diagnoses"] if d["severity"] != "note"}
    assert expected is None or status == expected
    if cause is None:
        assert not loud
    else:
        # The first diagnosis is the root; what it explains is no diagnosis of its own.
        assert got["diagnoses"][0]["cause"] == cause, loud


@pytest.mark.parametrize("name", ["rank-absent", "rank-left-out"])
def test_the_suspect_is_the_rank_that_did_not_come(name):
    _, got = report("check", "--from", str(LOGS / f"{name}.log"))
    assert got["diagnoses"][0]["subject"] == "rank:1"
