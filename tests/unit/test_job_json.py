"""Running GPU processes, as the job child prints them, to facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.system import Jobs
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

TEXT = (FIXTURES / "outputs/job-json/three-processes.txt").read_text()


def jobs(text: str) -> Any:
    return next(f for f in parse("job-json", text) if isinstance(f, Jobs))


def told(*processes: Any, **more: Any) -> str:
    return json.dumps({"probe": "gpudoctor.job", "schema": 1, "processes": list(processes), **more})


def test_what_may_be_read_is_there_and_the_rest_says_why_not() -> None:
    first, second, third = jobs(TEXT)
    assert (first.pid, first.gpus, first.gpu_bdf, first.cpus, first.mems) == (4711, ("0000:41:00.0",), "0000:41:00.0", "96-191", "0-1")
    assert first.environment == {"NCCL_DEBUG": "INFO", "LOCAL_RANK": "0"} and first.container == "docker"
    assert (first.shm.size_bytes, first.shm.free_bytes) == (67108864, 1048576)
    assert first.at("cpus").where == "/proc/4711/status, Cpus_allowed_list"
    assert (second.environment, second.shm, second.container) == (None, None, None)
    assert "may not read" in second.unreadable
    # Open nodes name every GPU a process can see: two of them are no GPU of its own.
    assert (third.gpus, third.gpu_bdf, third.container) == (("0000:41:00.0", "0000:c1:00.0"), None, None)
    assert third.at("gpus").where == "/proc/4713/fd"


def test_nvmls_list_goes_before_open_files() -> None:
    found = jobs(told({"pid": 1, "nvml_gpus": ["00000000:41:00.0"], "open_minors": [0, 1]}, minors={"0": "0000:41:00.0", "1": "0000:c1:00.0"}))
    assert found.processes[0].gpus == ("0000:41:00.0",)


def test_no_process_is_an_answer() -> None:
    assert jobs(told()).processes == ()


def test_what_was_not_seen_is_said() -> None:
    losses = [f.reason for f in parse("job-json", told({"pid": 1}, {"pid": 1}, {"pid": -4}, nvml_problem="NVML: Unknown Error", more=3)) if isinstance(f, Loss)]
    assert len(losses) == 4 and "NVML: Unknown Error" in losses[2] and losses[3].startswith("3 beyond")


def test_a_root_of_its_own_is_a_container_of_unknown_kind() -> None:
    assert jobs(told({"pid": 1, "container": {"kind": None, "own_root": True}})).processes[0].container == "container"


def test_without_a_list_it_is_refused() -> None:
    with pytest.raises(Unparsable, match="no list of GPU processes"):
        parse("job-json", '{"probe": "gpudoctor.job", "schema": 1}')


def test_a_pasted_line_is_recognised() -> None:
    assert [s.kind for s in recognise(TEXT)] == ["job-json"]
