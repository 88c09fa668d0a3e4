import pytest

from gpudoctor.checkers.vm_topology import VmTopology
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.model import CannotTell
from tests.builders import host
from tests.support import HERE, check, findings, report


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


@pytest.mark.parametrize(("name", "told"), [("GRID A100-40C", True), ("NVIDIA L40S-48Q", True), ("NVIDIA A100-SXM4-40GB", False), ("NVIDIA A100 80GB PCIe", False)])
def test_the_name_of_a_vgpu_tells_a_guest(name, told):
    assert (note(Gpus((Gpu(index=0, name=name, origin=HERE),))) is not None) is told
    # The host's own word about the card comes before its name.
    assert note(Gpus((Gpu(index=0, name=name, virtualization="none", origin=HERE),))) is None


def test_wsl():
    said = note(Platform(PlatformEntry(vm=True, wsl=True, origin=HERE)), Gpus((Gpu(index=0, origin=HERE),)))
    assert "WSL2" in said.message


def test_a_machine_without_gpus():
    assert [type(s) for s in check(VmTopology(), Platform(PlatformEntry(vm=True, origin=HERE)))] == [CannotTell]


def test_wsl_is_told_by_its_kernel_and_gets_remedies_that_can_be_done_there() -> None:
    """Synthetic: what is printed where Windows keeps the GPU to itself, beside what `uname -a` prints."""
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"

    def commands(kernel: str) -> str:
        code, result = report("check", "--from", "-", stdin=(failed + kernel).encode())
        assert code == 1
        return " ".join(s.get("command") or "" for d in result["diagnoses"] for s in d["remediation"])

    inside = commands("Linux DESKTOP 5.15.167.4-microsoft-standard-WSL2 #1 SMP\n")
    assert "wsl.exe --shutdown" in inside and "modprobe" not in inside and "nvidia-topologyd" not in inside
    assert "modprobe" in commands("Linux node07 5.15.0-105-generic #115-Ubuntu SMP\n")
    # In PyTorch's report it stands in the middle of other lines.
    told = "PyTorch version: 2.2.1\nPython platform: Linux-5.15.133.1-microsoft-standard-WSL2-x86_64-with-glibc2.35\nIs CUDA available: True\n"
    assert "wsl.exe" in commands(told)


def test_a_kernels_name_alone_is_nothing_to_judge() -> None:
    assert report("check", "--from", "-", stdin=b"Linux version 5.15.167.4-microsoft-standard-WSL2 (gcc 11)\n")[0] == 3
