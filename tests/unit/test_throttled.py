import pytest

from gpudoctor.checkers.throttled import Throttled
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.model import CannotTell
from tests.support import FIXTURES, HERE, check, findings, parse


def gpu(index, **fields):
    usual = {"device_id": "10de:2330", "throttle": ("idle",), "power_limit_w": 700.0, "power_default_w": 700.0}
    return Gpu(index=index, bdf=f"0000:4{index}:00.0", origin=HERE, **{**usual, **fields})


def said(*gpus):
    return {s: f for (_, s), f in findings(Throttled(), Gpus(gpus)).items()}


@pytest.mark.parametrize("reasons", [("hw_thermal",), ("hw_power_brake",), ("hw_slowdown",), ("hw_slowdown", "hw_thermal")])
def test_hardware_slowdowns_are_warnings(reasons):
    found = check(Throttled(), Gpus((gpu(0), gpu(1, throttle=reasons))))
    assert [(f.subject, f.severity) for f in found] == [("gpu:0000:41:00.0", "warning")]


def test_each_names_its_own_remedy():
    def texts(reason):
        return " ".join(s.step for s in said(gpu(0, throttle=(reason,)))["gpu:0000:40:00.0"].remediation)

    assert "Airflow" in texts("hw_thermal") and "Power:" not in texts("hw_thermal")
    assert "Power:" in texts("hw_power_brake") and "Airflow" not in texts("hw_power_brake")


@pytest.mark.parametrize("reason", ["sw_power_cap", "sw_thermal"])
def test_software_caps_are_notes(reason):
    assert said(gpu(0, throttle=(reason,)))["gpu:0000:40:00.0"].severity == "note"


@pytest.mark.parametrize("reasons", [(), ("idle",), ("applications_clocks_setting",), None])
def test_nothing_holds_it_down(reasons):
    assert check(Throttled(), Gpus((gpu(0, throttle=reasons), gpu(1, throttle=reasons)))) == []


def test_limit_under_the_peers():
    found = said(gpu(0), gpu(1, power_limit_w=500.0), gpu(2))
    assert {s: f.severity for s, f in found.items()} == {"gpu:0000:41:00.0": "warning"}
    assert found["gpu:0000:41:00.0"].remediation[0].command == "sudo nvidia-smi -i 0000:41:00.0 -pl 700"


def test_one_watt_is_no_difference():
    assert said(gpu(0), gpu(1, power_limit_w=699.0)) == {}


@pytest.mark.parametrize("other", [{"device_id": "10de:2684"}, {"power_default_w": 500.0, "power_limit_w": 500.0}])
def test_other_parts_are_no_peers(other):
    assert said(gpu(0), gpu(1, **{"power_limit_w": 450.0, "power_default_w": 450.0, **other})) == {}


def test_all_lowered_alike_is_a_note():
    found = said(gpu(0, power_limit_w=500.0), gpu(1, power_limit_w=500.0))
    assert {f.severity for f in found.values()} == {"note"} and len(found) == 2


def test_not_in_the_input():
    bare = Gpus((Gpu(index=0, origin=HERE),))
    assert [type(s) for s in check(Throttled(), bare)] == [CannotTell]


@pytest.mark.parametrize("kind", ["smi-qx", "smi-q"])
def test_the_evidence_is_the_line_of_the_reason(kind):
    """SW Power Cap is active too, and stands above it."""
    (gpus,) = (f for f in parse(kind, (FIXTURES / "outputs" / kind / "v100-418.txt").read_text()) if isinstance(f, Gpus))
    found = [f for f in check(Throttled(), gpus) if f.severity == "warning"]
    shown = [" ".join(f"{e.where} {e.value}" for e in f.evidence).lower().replace("_", " ") for f in found]
    assert shown and all("hw thermal slowdown" in line for line in shown)


def test_a_single_reason_of_a_list_that_breaks_off() -> None:
    brake = Gpus((Gpu(hw_power_brake=True, hw_slowdown=True, origin=HERE),), False)
    (found,) = findings(Throttled(), brake).values()
    assert (found.severity, found.subject) == ("warning", "gpu:?") and "power brake" in found.message
    assert "None" not in str(found.remediation)
    assert findings(Throttled(), Gpus((Gpu(index=0, hw_power_brake=False, hw_thermal=False, origin=HERE),), False)) == {}
