"""What a look beside the job says that it did not see of it."""

from __future__ import annotations

import pytest

from gpudoctor.collect.stage import ENVIRONMENT, LIMITS, SHM, STAGES, unseen
from tests.support import FIXTURES, gpudoctor, report

WELL = str(FIXTURES / "hosts" / "h100x8-nvswitch-healthy")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"GPUDOCTOR_STAGE": ""},
        {"GPUDOCTOR_STAGE": " "},
        {"SLURM_SCRIPT_CONTEXT": "prolog_task"},  # runs as the user in the job's own step
        {"SLURM_SCRIPT_CONTEXT": "something_new"},
        {"SLURM_JOB_ID": "4711"},  # a job, not its prolog
    ],
)
def test_a_look_by_hand_or_in_the_job_lacks_nothing(environment: dict[str, str]) -> None:
    assert unseen(environment) == ()


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_names_what_is_the_jobs_own_and_how_it_is_known(stage: str) -> None:
    missing = unseen({"GPUDOCTOR_STAGE": stage})
    assert [m.fact for m in missing] == [SHM, ENVIRONMENT, LIMITS]
    assert all(f"GPUDOCTOR_STAGE={stage}" in m.reason and not m.needed and m.hint is None for m in missing)


def test_slurm_says_itself_that_it_is_a_prolog() -> None:
    before, after = (unseen({"SLURM_SCRIPT_CONTEXT": f"{word}_slurmd"}) for word in ("prolog", "epilog"))
    assert "before the job" in before[0].reason and "after the job" in after[0].reason
    assert "SLURM_SCRIPT_CONTEXT=prolog_slurmd" in before[0].reason
    (controller,) = unseen({"SLURM_SCRIPT_CONTEXT": "prolog_slurmctld"})
    assert controller.fact == "the job's node" and "controller" in controller.reason


def test_what_the_manifest_says_beats_what_slurm_says() -> None:
    assert "init container" in unseen({"GPUDOCTOR_STAGE": "init", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"})[0].reason


def test_a_misspelt_stage_is_wrong_usage_and_not_left_out() -> None:
    with pytest.raises(ValueError, match="known are init, prolog"):
        unseen({"GPUDOCTOR_STAGE": "int"})
    done = gpudoctor("check", "-q", env={"GPUDOCTOR_STAGE": "int", "GPUDOCTOR_PROBE_DIR": WELL})
    assert done.returncode == 2 and not done.stdout and b"GPUDOCTOR_STAGE=int: known are init" in done.stderr


def test_the_report_says_it_and_the_status_stays() -> None:
    plain, staged = (report("check", env={"GPUDOCTOR_PROBE_DIR": WELL, **more}) for more in ({}, {"GPUDOCTOR_STAGE": "init"}))
    assert plain[0] == staged[0] == 0 and plain[1]["verdict"] == staged[1]["verdict"] == "pass"
    added = [m for m in staged[1]["missing"] if m not in plain[1]["missing"]]
    assert [m["fact"] for m in added] == [SHM, ENVIRONMENT, LIMITS]
    text = " ".join(gpudoctor("check", env={"GPUDOCTOR_PROBE_DIR": WELL, "GPUDOCTOR_STAGE": "init"}).stdout.decode().split())
    assert "Not read: the job's /dev/shm; the job's environment" in text and "an init container" in text


def test_the_gate_says_it_too() -> None:
    environment = {"GPUDOCTOR_PROBE_DIR": WELL, "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}
    status, page = report("gate", "--test", env=environment)
    assert status == 0 and SHM in [m["fact"] for m in page["missing"]]
    assert gpudoctor("gate", "--test", env=environment).stdout.count(b"\n") == 1


def test_a_recorded_host_was_not_looked_at_here() -> None:
    status, page = report("check", "--from", WELL, env={"GPUDOCTOR_STAGE": "init"})
    assert status == 0 and SHM not in [m["fact"] for m in page["missing"]]
