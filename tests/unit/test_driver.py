import pytest

from gpudoctor.checkers.driver import DriverAnswers
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.system import (
    Grant,
    GrantEntry,
    Modules,
    Outcome,
    Outcomes,
    Platform,
    PlatformEntry,
)
from gpudoctor.model import CannotTell, Evidence, Finding
from tests.builders import host
from tests.support import HERE, check, findings

PROOF = Evidence("lsmod", "line 1", "Module")


def failing(words):
    return Driver(DriverEntry(failure=words, origin=HERE))


def ended(probe, status, **more):
    return Outcome(probe=probe, argv=("nvidia-smi", "-q", "-x"), status=status, origin=HERE, **more)


def granted(*minors, unopenable=()):
    return Grant(GrantEntry(device_nodes=minors, unopenable=unopenable, origin=HERE))


def bus(count=2, **fields):
    """Only the bus, with a driver bound (or not) to every GPU."""
    made = host(gpus=count)
    for gpu in range(count):
        made.set(made.bdf(gpu), **fields)
    return PciTree(tuple(made.devices.values()), complete=True)


def unknown(said, slug):
    return [s.reason for s in said if isinstance(s, CannotTell) and s.slug == slug]


def driver_word(*facts, recorded=True):
    found = [s for s in check(DriverAnswers(), *facts, recorded=recorded) if s.slug == "driver-unavailable"]
    return found[0] if found else None


# --- driver-unavailable


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


def test_a_hang_is_a_warning_even_if_nvml_answers():
    said = driver_word(Outcomes((ended("smi-q-x", "timeout"), ended("nvml", "ok"))), *host().facts(), recorded=False)
    assert said.severity == "warning"
    stuck = driver_word(Outcomes((ended("smi-topo-m", "stuck"),)), bus(), recorded=False)
    assert stuck.severity == "warning"
    fine = driver_word(Outcomes((ended("smi-q-x", "ok"), ended("dmesg", "timeout"))), *host().facts(), recorded=False)
    assert fine is None


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


# --- gpu-missing


def missing(*facts, recorded=True):
    return {s: f for (slug, s), f in findings(DriverAnswers(), *facts, recorded=recorded).items() if slug == "gpu-missing"}


def with_lost(gpu=1, count=2):
    """A host whose driver no longer lists one GPU that the bus still shows."""
    made = host(gpus=count)
    gone = made.bdf(gpu)
    del made.gpus[gpu]
    made.pairs = []
    return made, gone


def test_all_there():
    assert check(DriverAnswers(), *host().facts()) == []


def test_bound_to_the_driver_and_not_listed():
    made, gone = with_lost()
    found = missing(*made.facts())
    assert list(found) == [f"gpu:{gone}"]
    assert found[f"gpu:{gone}"].severity == "error"
    assert found[f"gpu:{gone}"].confidence == "likely"


def test_granted_and_not_listed_is_certain():
    made, gone = with_lost()
    found = missing(*made.add(granted(0, 1)).facts())
    assert found[f"gpu:{gone}"].confidence == "certain"


@pytest.mark.parametrize(
    "why",
    [
        granted(0),
        granted(0, 1, unopenable=(1,)),
        Platform(PlatformEntry(container="kubernetes", origin=HERE)),
        Grant(GrantEntry(nvidia_visible="0", origin=HERE)),
    ],
)
def test_not_given_to_this_process_is_not_missing(why):
    made, _ = with_lost()
    assert missing(*made.add(why).facts(), recorded=False) == {}


@pytest.mark.parametrize("driver", ["vfio-pci", None])
def test_not_bound_to_the_driver_is_not_missing(driver):
    made, gone = with_lost()
    assert missing(*made.set(gone, driver=driver).facts()) == {}


def test_cut_lists_prove_no_absence():
    made, _ = with_lost()
    made.complete = False
    assert missing(*made.facts()) == {}
    assert unknown(check(DriverAnswers(), *made.facts()), "gpu-missing")
    listed, _ = with_lost()
    shown = [Gpus(f.gpus, attached=2) if isinstance(f, Gpus) else f for f in listed.facts()]
    assert missing(*shown) == {}, "the author printed one of two blocks"


def test_a_live_list_shorter_than_its_own_count():
    made = host(gpus=2)
    facts = [Gpus(f.gpus, attached=3) if isinstance(f, Gpus) else f for f in made.facts()]
    assert list(missing(*facts, recorded=False)) == ["host"]
    assert missing(*facts, recorded=True) == {}


def test_the_driver_says_it_is_lost():
    lost = Gpus((Gpu(index=0, bdf="0000:81:00.0", origin=HERE), Gpu(bdf="0000:41:00.0", error="GPU is lost", origin=HERE)), complete=False)
    assert missing(lost)["gpu:0000:41:00.0"].severity == "error"


def event(kind, bdf="0000:82:00.0", **more):
    return KernelLog((KernelEvent(kind=kind, bdf=bdf, text="…", origin=HERE, **more),))


@pytest.mark.parametrize("log", [event("xid", code=79), event("fell-off"), event("rm-init-failed")])
def test_the_kernel_log_saw_it_go(log):
    assert list(missing(log)) == ["gpu:0000:82:00.0"]
    assert missing(log, *host().facts()) == {}, "it answers now"


@pytest.mark.parametrize("log", [event("xid", code=79, stale=True), event("xid", code=63), event("xid", code=154)])
def test_other_events_are_no_loss(log):
    assert missing(log) == {}


def test_registers_that_read_all_ones():
    tree = bus(count=1, all_ones=True)
    assert list(missing(tree)) == ["gpu:0000:81:00.0"]
    assert missing(bus(count=1, all_ones=True, runtime_status="suspended")) == {}
    assert missing(bus(count=1, all_ones=None)) == {}


def test_no_devices_were_found():
    found = missing(Gpus((), attached=0), bus(driver="nvidia"))
    assert sorted(found) == ["gpu:0000:81:00.0", "gpu:0000:82:00.0"]
    assert missing(Gpus((), attached=0), bus(driver="vfio-pci")) == {}
