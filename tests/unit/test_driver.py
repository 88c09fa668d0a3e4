import pytest

from gpudoctor.checkers.driver import DriverAnswers
from gpudoctor.discover import Plugins
from gpudoctor.engine import run
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.outcomes import Outcome, Outcomes
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import (
    Modules,
    Platform,
    PlatformEntry,
)
from gpudoctor.model import CannotTell, Evidence, Finding
from tests.builders import bus, granted, host
from tests.support import HERE, check

PROOF = Evidence("lsmod", "line 1", "Module")


def failing(words):
    return Driver(DriverEntry(failure=words, origin=HERE))


def ended(probe, status, **more):
    return Outcome(probe=probe, argv=("nvidia-smi", "-q", "-x"), status=status, origin=HERE, **more)


def driver_word(*facts, recorded=True):
    found = check(DriverAnswers(), *facts, recorded=recorded)
    return found[0] if found else None


@pytest.mark.parametrize(
    "words",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "Failed to initialize NVML: Unknown Error",
    ],
)
def test_the_drivers_own_words_are_an_error(words):
    alone = driver_word(failing(words))
    assert (alone.severity, alone.confidence) == ("error", "likely")
    assert words in alone.message
    beside_a_bus = driver_word(failing(words), bus())
    assert beside_a_bus.confidence == "certain"
    assert "2 NVIDIA GPUs are on the PCI bus" in beside_a_bus.message


def test_each_kind_of_failure_has_its_own_remedy():
    def commands(words):
        return " ".join(s.command or "" for s in driver_word(failing(words)).remediation)

    assert "modprobe nvidia" in commands("couldn't communicate with the NVIDIA driver")
    assert "reboot" in commands("Driver/library version mismatch")
    assert "docker restart" in commands("Failed to initialize NVML: Unknown Error")


def test_one_of_two_sources_is_enough():
    """nvidia-smi fails at once and NVML answers, or the reverse."""
    assert driver_word(failing("nvidia-smi broke"), *host().facts(), recorded=False) is None
    assert driver_word(Driver(DriverEntry(version="550.54.15", origin=HERE)), bus()) is None


def test_a_failure_beside_a_list_is_told_where_nobody_was_asked_live():
    """A container or WSL beside its host, before and after: synthetic."""
    found = driver_word(failing("Failed to initialize NVML: Unknown Error"), *host().facts())
    assert (found.severity, found.confidence) == ("warning", "likely")
    assert "Unknown Error" in found.message and "docker restart" in " ".join(s.command or "" for s in found.remediation)
    assert driver_word(*host().facts()) is None


def test_a_hang_is_a_warning_even_if_nvml_answers():
    said = driver_word(Outcomes((ended("smi-q-x", "timeout"), ended("nvml", "ok"))), *host().facts(), recorded=False)
    assert said.severity == "warning"
    stuck = driver_word(Outcomes((ended("smi-topo-m", "stuck"),)), bus(), recorded=False)
    assert stuck.severity == "warning"
    fine = driver_word(Outcomes((ended("smi-q-x", "ok"), ended("dmesg", "timeout"))), *host().facts(), recorded=False)
    assert fine is None


def test_a_hang_is_said_where_nothing_else_was_read():
    hung = FactStore(None, (Outcomes((ended("smi-q-x", "timeout"),)),), recorded=False)
    plugins = Plugins(checkers=(DriverAnswers(),), causes=DriverAnswers.causes, failures=())
    assert [f.severity for r in run(plugins, [hung]) for f in r.findings] == ["warning"]


def test_nouveau_holds_the_card():
    said = driver_word(bus(driver="nouveau"))
    assert said.severity == "error"
    assert "nouveau" in said.message
    assert "blacklist nouveau" in said.remediation[0].command


def test_an_lspci_alone_asked_no_driver():
    said = driver_word(bus(driver=None))
    assert isinstance(said, CannotTell)
    assert isinstance(driver_word(bus(driver="nvidia")), CannotTell)


def test_a_live_host_without_a_driver():
    absent = Outcomes((ended("smi-q-x", "absent"), ended("nvml", "exit", rc=4)))
    said = driver_word(absent, bus(driver=None), recorded=False)
    assert said.severity == "error"
    unloaded = driver_word(absent, bus(driver=None), Modules({}, PROOF), recorded=False)
    assert "module is not loaded" in unloaded.message


def test_a_whole_lsmod_without_nvidia_beside_gpus():
    assert driver_word(bus(driver=None), Modules({"ext4": ""}, PROOF)).severity == "error"
    assert isinstance(driver_word(bus(driver=None), Modules({"ext4": ""}, PROOF, complete=False)), CannotTell)
    assert isinstance(driver_word(bus(driver=None), Modules({"nvidia": ""}, PROOF)), CannotTell)


def test_no_gpu_on_the_bus_is_nothing_to_say():
    empty = PciTree(tuple(d for d in bus() if d.is_bridge), complete=True)
    said = driver_word(failing("couldn't communicate with the NVIDIA driver"), empty, recorded=False)
    assert isinstance(said, CannotTell)
    assert "no NVIDIA GPU" in said.reason


def test_cards_of_virtual_machines_are_not_ours():
    said = driver_word(failing("couldn't communicate"), bus(driver="vfio-pci"), recorded=False)
    assert isinstance(said, CannotTell)
    assert "vfio-pci" in said.reason


def test_a_container_without_gpus_accuses_no_driver():
    facts = (Outcomes((ended("smi-q-x", "absent"),)), bus(driver="nvidia"), granted())
    inside = driver_word(*facts, Platform(PlatformEntry(container="docker", origin=HERE)), recorded=False)
    assert isinstance(inside, CannotTell)
    outside = driver_word(*facts, Platform(PlatformEntry(container=None, vm=False, origin=HERE)), recorded=False)
    assert isinstance(outside, Finding)


def test_no_devices_were_found_and_no_driver_bound():
    none = Gpus((), attached=0)
    assert driver_word(none, bus(driver=None)).severity == "error"
    assert isinstance(driver_word(none), CannotTell)
    assert driver_word(none, bus(driver="nvidia")) is None, "gpu-missing says it"


def test_in_order():
    assert check(DriverAnswers(), *host().facts()) == []


def logged(*words, bdf=None, stale=False, kind="refused"):
    return KernelLog(tuple(KernelEvent(kind=kind, bdf=bdf, text=f"NVRM: {w}", stale=stale, origin=HERE) for w in words))


NONE = "None of the NVIDIA devices were initialized."


@pytest.mark.parametrize(
    ("words", "said", "step"),
    [
        ("The NVIDIA probe routine was not called for 3 device(s).", "another driver holds", "blacklist"),
        ("installed in this system is not supported by the", "does not support the GPU at 0000:01:00.0", "version that lists"),
        ("installed in this system requires use of the NVIDIA open kernel modules.", "open kernel modules", "open modules"),
        (NONE, "none of the cards", "modprobe nvidia"),
    ],
)
def test_what_the_module_says_when_it_takes_no_card(words, said, step):
    found = driver_word(logged(words, NONE, bdf="0000:01:00.0"))
    assert isinstance(found, Finding) and found.severity == "error" and said in found.message
    assert any(step in f"{s.step} {s.command}" for s in found.remediation)


def test_a_card_that_was_refused_before_and_works_now():
    assert isinstance(driver_word(logged(NONE, stale=True)), CannotTell)
    assert driver_word(Gpus(tuple(host().gpus.values()), complete=True), logged(NONE)) is None
    # That a card failed to start is gpu-missing's to say.
    both = KernelLog((*logged(NONE), *logged("BAR1 is 0M @ 0x0", bdf="0000:01:00.0", kind="rm-init-failed")))
    assert isinstance(driver_word(both), CannotTell)
