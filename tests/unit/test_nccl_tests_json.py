"""The JSON that nccl-tests writes, and what is made of it."""

import pytest

from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.system import Settings
from gpudoctor.parsers import nccl_tests_json
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

OUTPUTS = FIXTURES / "outputs"


JSON = (OUTPUTS / "nccl-tests-json" / "h200x2-nvlink.json").read_text()


def json_run(text):
    (section,) = [s for s in recognise(text) if s.kind == "nccl-tests-json"]
    facts = list(nccl_tests_json.parse(section))
    return next(f for f in facts if isinstance(f, Bandwidth)).runs[0], facts


def test_json():
    run, _ = json_run(JSON)
    assert (run.program, run.collective, run.nranks, len(run.rows), run.completed, run.wrong) == ("all_reduce_perf", "all_reduce", 2, 6, True, False)
    assert (run.nccl_version, run.average_busbw_gbs, run.rows[-1].busbw_in_gbs) == ("2.28.9", 215.277928, 328.779371)
    assert [(m.rank, m.device, m.host) for m in run.members] == [(0, 0, "vm"), (1, 1, "vm")]


def test_json_laid_out_by_another_tool():
    import json

    run, _ = json_run(json.dumps(json.loads(JSON), indent=2) + "\n")
    assert (run.nranks, len(run.rows), run.completed, run.average_busbw_gbs) == (2, 6, True, 215.277928)


def test_json_environment_holds_no_secret():
    text = JSON.replace('"NCCL_DEBUG=INFO"', '"NCCL_DEBUG=INFO","AWS_SECRET_ACCESS_KEY=abc","NCCL_P2P_DISABLE=1","NCCL_AUTH_TOKEN=xyz"')
    run, facts = json_run(text)
    settings = next(f for f in facts if isinstance(f, Settings))
    assert {s.name for s in settings} == {"NCCL_DEBUG", "NCCL_P2P_DISABLE", "NCCL_AUTH_TOKEN", "NCCL_NVLS_ENABLE", "NVIDIA_VISIBLE_DEVICES"}
    assert "abc" not in repr(facts) and "xyz" not in repr(facts)
    assert run.settings["NCCL_P2P_DISABLE"] == "1"


def test_json_wrong_values_and_error():
    run, _ = json_run(JSON.replace('"count":0,"okay":"true"', '"count":4,"okay":"false"'))
    assert run.wrong is True
    start = JSON[: JSON.index('"out_of_bounds"')] + '"errors":["unhandled system error"],"end_time":"x"}'
    run, _ = json_run(start)
    assert (run.completed, run.failures[0].text, run.wrong) == (False, "unhandled system error", False)


@pytest.mark.parametrize("text", ['{"version":3,"start_time":"2026"}', '{"version":3,"start_time":"x","config":[1],"results":7}'])
def test_json_that_is_none(text):
    with pytest.raises(Unparsable):
        parse("nccl-tests-json", text)
