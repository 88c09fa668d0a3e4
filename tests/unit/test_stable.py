"""What docs/versioning.md promises to scripts: the report's schema, and the names that have been given out."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest

from gpudoctor import shipped
from gpudoctor.discover import load
from gpudoctor.policy.cause import with_policy
from gpudoctor.report import jsonout
from tests.golden import HOSTS, names
from tests.support import report

SCHEMA = json.loads(shipped.text("report.schema.json"))
VALID = jsonschema.Draft202012Validator(SCHEMA)
GIVEN_OUT = [line.split() for line in Path(__file__).parent.parent.joinpath("stable_names.txt").read_text().splitlines()[1:]]


def golden(name):
    return json.loads((HOSTS / name / "golden" / "report.json").read_text())


def problems(value):
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}"[:200] for e in VALID.iter_errors(value)]


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema_version"] == {"const": jsonout.SCHEMA_VERSION}


@pytest.mark.parametrize("name", names())
def test_expected_reports_follow_it(name):
    assert problems(golden(name)) == []


def test_other_inputs_follow_it():
    """A log and a table of nccl-tests: the families that no recorded host has."""
    for folder in ("nccl-log", "nccl-tests", "torch-watchdog", "ras"):
        status, made = report("check", "--from", str(HOSTS.parent / "outputs" / folder))
        assert problems(made) == [], folder
        assert status == made["exit_code"]


def test_other_commands_follow_it():
    host = str(HOSTS / "h100x8-nvswitch-healthy")
    table = next((HOSTS.parent / "outputs" / "nccl-tests").glob("*.txt"))
    gate = {"env": {"GPUDOCTOR_PROBE_DIR": host}}
    for words, options in (
        (("facts", "--from", host), {}),
        (("bandwidth", "--from", str(table)), {}),
        (("gate", "--test", "--no-bandwidth", "--policy", "h100-sxm-x8"), gate),
    ):
        assert problems(report(*words, **options)[1]) == [], words


@pytest.mark.parametrize(
    "break_it",
    [
        lambda r: r.pop("missing"),
        lambda r: r.update(exit_code=2),
        lambda r: r["facts"]["gpus"][0].pop("pcie"),
        lambda r: r["facts"]["gpus"][0].update(index="0"),
        lambda r: r["facts"]["pairs"][0].update(path="X"),
        lambda r: r["results"][0].update(status="passed"),
        lambda r: r["diagnoses"][0]["remediation"][0].update(risk="some"),
        lambda r: r["diagnoses"][0].update(confidence="sure"),
    ],
)
def test_it_refuses_what_would_break_a_reader(break_it):
    made = copy.deepcopy(golden("a100x4-sxm-gpu2-nvlinks-down"))
    break_it(made)
    assert problems(made) != []


def test_fields_may_be_added():
    made = golden("a100x4-sxm-gpu2-nvlinks-down")
    made["new"] = made["facts"]["gpus"][0]["new"] = made["diagnoses"][0]["new"] = made["facts"]["new"] = [1]
    assert problems(made) == []


def test_no_name_that_was_given_out_is_gone():
    now = {(c.code, c.slug) for c in with_policy(load()).causes}
    assert {(code, slug) for code, slug in GIVEN_OUT} - now == set()
