import pytest

from gpudoctor.checkers.fabric import Fabric
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.facts.system import FabricManager, FabricManagerEntry, Platform, PlatformEntry
from gpudoctor.model import CannotTell
from tests.support import HERE, check, findings

H100 = "NVIDIA H100 80GB HBM3"


def gpus(n=1, name=H100, **more):
    return Gpus(tuple(Gpu(index=i, name=name, origin=HERE, **more) for i in range(n)))


def manager(**more):
    return FabricManager(FabricManagerEntry(origin=HERE, **more))


def platform(**more):
    return Platform(PlatformEntry(origin=HERE, **more))


def said(*facts):
    return {s: (f.severity, f.confidence) for (_, s), f in findings(Fabric(), *facts).items()}


@pytest.mark.parametrize("state", ["in progress", "not started"])
def test_registration_not_completed(state):
    assert said(gpus(fabric_state=state)) == {"gpu:0": ("error", "certain")}
    assert said(gpus(fabric_state=state), platform(uptime_s=60.0)) == {"gpu:0": ("error", "likely")}
    assert said(gpus(fabric_state=state, name="NVIDIA Z9")) == {"gpu:0": ("error", "certain")}


def test_healthy_and_unsupported():
    assert check(Fabric(), gpus(fabric_state="completed", fabric_status="success", fabric_health="healthy")) == []
    assert check(Fabric(), gpus(fabric_state="not supported")) == []
    assert check(Fabric(), gpus(name="NVIDIA H100 PCIe", fabric_state="in progress")) == []
    assert check(Fabric(), gpus(name="NVIDIA GeForce RTX 4090")) == []


def test_registration_ended_with_an_error():
    assert said(gpus(fabric_state="completed", fabric_status="insufficient resources")) == {"gpu:0": ("error", "certain")}


@pytest.mark.parametrize(
    ("health", "severity"),
    [
        ("unhealthy", "error"),
        ("route unhealthy", "error"),
        ("insufficient NVLinks", "error"),
        ("degraded bandwidth", "warning"),
        ("bandwidth: degraded", "warning"),
        ("limited capacity", "warning"),
        ("route recovery in progress", "warning"),
        ("degraded bandwidth, route unhealthy", "error"),
    ],
)
def test_health(health, severity):
    facts = gpus(fabric_state="completed", fabric_status="success", fabric_health=health)
    assert said(facts) == {"gpu:0": (severity, "certain")}


def test_service_not_running_where_switches_are():
    assert said(manager(active=False, state="failed", switches=4)) == {"host": ("error", "certain")}
    assert said(manager(active=False, installed=False, switches=6)) == {"host": ("error", "certain")}
    assert check(Fabric(), manager(active=True, state="active (running)", switches=4)) == []
    # A failed service on a host without switches hurts nobody.
    assert check(Fabric(), manager(active=False, state="failed", switches=0), gpus(2, "NVIDIA L40S")) == []


def test_service_not_running_beside_eight_sxm_gpus():
    down = manager(active=False, state="failed")
    assert said(down, gpus(8, "NVIDIA A100-SXM4-80GB")) == {"host": ("error", "likely")}
    assert check(Fabric(), down, gpus(8, fabric_state="completed", fabric_status="success")) == []
    # Four may be joined directly, eight V100 are without registration and without the service too.
    assert said(down, gpus(4, "NVIDIA A100-SXM4-80GB")) == {}
    assert said(down, gpus(8, "Tesla V100-SXM2-32GB")) == {}


def test_virtual_machine_whose_manager_runs_outside():
    vm = platform(vm=True)
    done = gpus(8, fabric_state="completed", fabric_status="success")
    assert check(Fabric(), vm, manager(active=False, installed=False, switches=0), done) == []
    assert check(Fabric(), vm, done) == []
    down = manager(active=False, state="failed", switches=4)
    assert check(Fabric(), vm, down, done) == []
    assert said(vm, down, gpus(8)) == {"host": ("error", "likely")}


def test_version_unlike_the_drivers():
    driver = Driver(DriverEntry(version="580.95.05", origin=HERE))
    other = manager(active=True, version="570.86.15", switches=4)
    assert said(driver, other) == {"host": ("error", "certain")}
    assert check(Fabric(), driver, manager(active=True, version="580.95.05", switches=4)) == []
    assert check(Fabric(), driver, manager(active=True, version="570.86.15", switches=0), gpus(1, "NVIDIA L4")) == []


def test_nothing_known_of_a_switched_board():
    assert [type(x) for x in check(Fabric(), gpus(8, "NVIDIA A100-SXM4-80GB"))] == [CannotTell]
    assert check(Fabric(), gpus(8, "NVIDIA L40S")) == []
