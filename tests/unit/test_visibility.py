import pytest

from gpudoctor.checkers.visibility import Visibility
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Grant, GrantEntry, Platform, PlatformEntry, Setting, Settings
from gpudoctor.model import CannotTell, Evidence
from tests.builders import host
from tests.support import HERE, check, findings


def grant(**fields):
    return Grant(GrantEntry(origin=HERE, **fields))


def note(*facts, recorded=False):
    found = findings(Visibility(), *facts, recorded=recorded)
    return found.get(("gpu-not-visible", "host"))


def listed(count, bus=8):
    made = host(gpus=bus)
    for gpu in range(count, bus):
        del made.gpus[gpu]
    made.pairs = []
    return made


def test_a_pod_with_one_of_eight():
    said = note(*listed(1).add(grant(device_nodes=(0,), unopenable=())).facts())
    assert said.severity == "note"
    assert "1 of the 8" in said.message
    assert "0000:88:00.0" in said.message


def test_all_visible():
    assert check(Visibility(), *host(gpus=8).add(grant(device_nodes=tuple(range(8)), unopenable=())).facts()) == []


def test_a_lost_gpu_is_not_called_invisible():
    assert note(*listed(7).add(grant(device_nodes=tuple(range(8)), unopenable=())).facts()) is None


def test_cards_of_virtual_machines():
    made = listed(1, bus=2).set("0000:82:00.0", driver="vfio-pci")
    assert "vfio-pci" in note(*made.facts()).message


def test_a_container_that_was_given_none():
    made = host(gpus=2).without_driver().add(
        grant(device_nodes=(), unopenable=()), Platform(PlatformEntry(container="docker", origin=HERE))
    )
    assert "given none" in note(*made.facts()).message


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ("0,1", "GPU2 (0000:83:00.0), GPU3 (0000:84:00.0)"),
        ("3", "GPU0 (0000:81:00.0), GPU1 (0000:82:00.0), GPU2 (0000:83:00.0)"),
        ("0,9,1", "GPU1 (0000:82:00.0), GPU2 (0000:83:00.0), GPU3 (0000:84:00.0)"),  # CUDA stops at the unknown one
    ],
)
def test_cuda_visible_devices_names_what_it_hides(value, hidden):
    said = note(*host(gpus=4).add(grant(cuda_visible=value)).facts())
    assert f"hides {hidden} from" in said.message
    assert said.severity == "note"


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_hidden_all(value):
    assert "hides every GPU" in note(*host(gpus=2).add(grant(cuda_visible=value)).facts()).message


@pytest.mark.parametrize("value", ["0,1", "1,0", "MIG-12345678-0000"])
def test_nothing_hidden(value):
    assert note(*host(gpus=2).add(grant(cuda_visible=value)).facts()) is None


def test_uuids_may_be_abbreviated():
    gpus = Gpus(tuple(Gpu(index=i, uuid=f"GPU-{i}0000000-aaaa", origin=HERE) for i in range(2)))
    assert "hides GPU1 from" in note(gpus, grant(cuda_visible="GPU-0000")).message


def test_mixed_parts_may_be_numbered_otherwise():
    made = host(gpus=2).set_gpu(1, device_id="10de:2230").add(grant(cuda_visible="0"))
    said = note(*made.facts())
    assert said.confidence == "possible"
    assert "CUDA_DEVICE_ORDER" in said.message


def test_the_variable_in_a_pasted_environment():
    value = Setting(name="CUDA_VISIBLE_DEVICES", value="0", scope="environment", origin={"*": Evidence("env", "line 1", "…")})
    assert "hides GPU1" in note(*host(gpus=2).add(Settings((value,))).facts()).message
    alone = check(Visibility(), Settings((value,)))
    assert [type(s) for s in alone] == [CannotTell]


def test_a_bus_alone_tells_nothing():
    assert [type(s) for s in check(Visibility(), *host(gpus=2).without_driver().facts())] == [CannotTell]
