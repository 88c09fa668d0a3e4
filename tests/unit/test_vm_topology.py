import pytest

from gpudoctor.checkers.vm_topology import VmTopology
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.model import CannotTell
from tests.builders import host
from tests.support import HERE, check, findings


def guest():
    """Two GPUs on the root bus of a virtual machine."""
    made = host().platform(vm=True, hypervisor="kvm")
    for gpu in (0, 1):
        port = made.port(gpu)
        made.set(made.bdf(gpu), parent=None)
        del made.devices[port]
    return made


def note(*facts):
    return findings(VmTopology(), *facts).get(("vm-topology", "host"))


def test_no_bridge_above():
    said = note(*guest().facts())
    assert (said.severity, said.confidence) == ("note", "certain")
    assert "(kvm)" in said.message and "no bridge" in said.message


def test_emulated_bridges():
    said = note(*host().platform(vm=True).every_bridge(virtual=True).facts())
    assert "emulated" in said.message
    by_id = note(*host().platform(vm=True).every_bridge(virtual=None, device_id="1b36:000c").facts())
    assert "emulated" in by_id.message


def test_real_bridges_are_a_real_tree():
    assert check(VmTopology(), *host().platform(vm=True).every_bridge(virtual=False).facts()) == []
    switch = host().platform(vm=True).every_bridge(virtual=None, device_id="1000:c030")
    assert check(VmTopology(), *switch.facts()) == []


def test_bare_metal():
    assert check(VmTopology(), *host().platform(vm=False).facts()) == []


@pytest.mark.parametrize("mode", ["pass-through", "passthrough", "vgpu"])
def test_the_gpu_says_it_is_in_a_guest(mode):
    said = note(Gpus((Gpu(index=0, virtualization=mode, origin=HERE),)))
    assert said.confidence == "likely"


@pytest.mark.parametrize("mode", ["none", "host-vgpu", "host vgpu", "n/a", None])
def test_the_gpu_of_a_host(mode):
    said = check(VmTopology(), Gpus((Gpu(index=0, virtualization=mode, origin=HERE),)))
    assert [type(s) for s in said] == [CannotTell]


def test_wsl():
    said = note(Platform(PlatformEntry(vm=True, wsl=True, origin=HERE)), Gpus((Gpu(index=0, origin=HERE),)))
    assert "WSL2" in said.message


def test_a_machine_without_gpus():
    assert [type(s) for s in check(VmTopology(), Platform(PlatformEntry(vm=True, origin=HERE)))] == [CannotTell]
