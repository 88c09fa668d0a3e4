import pytest

from gpudoctor.checkers.gpu_missing import GpuMissing
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.system import Grant, GrantEntry, Platform, PlatformEntry
from gpudoctor.model import CannotTell
from tests.builders import bus, granted, host
from tests.support import HERE, check, findings


def unknown(said, slug):
    return [s.reason for s in said if isinstance(s, CannotTell) and s.slug == slug]


def missing(*facts, recorded=True):
    return {s: f for (slug, s), f in findings(GpuMissing(), *facts, recorded=recorded).items() if slug == "gpu-missing"}


def with_lost(gpu=1, count=2):
    """A host whose driver no longer lists one GPU that the bus still shows."""
    made = host(gpus=count)
    gone = made.bdf(gpu)
    del made.gpus[gpu]
    made.pairs = []
    return made, gone


def test_all_there():
    assert check(GpuMissing(), *host().facts()) == []


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
    assert unknown(check(GpuMissing(), *made.facts()), "gpu-missing")
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


def test_memory_windows_that_are_not_mapped_need_firmware_and_no_power_cycle():
    text = "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:0c:00.0)"
    log = KernelLog((KernelEvent(kind="rm-init-failed", bdf="0000:0c:00.0", text=text, origin=HERE),))
    found = missing(log)["gpu:0000:0c:00.0"]
    assert "not mapped" in found.message and "Above 4G" in found.remediation[0].step
    assert not any("poweroff" in (s.command or "") for s in found.remediation)


def test_a_laptop_switches_its_gpu_off():
    (found,) = missing(bus(count=1, all_ones=True, name="NVIDIA Corporation GM107M [GeForce GTX 950M]")).values()
    assert (found.severity, found.confidence) == ("note", "possible")
    (found,) = missing(bus(count=1, all_ones=True, name="NVIDIA Corporation GA100 [A100 PCIe 80GB]")).values()
    assert found.severity == "error"
