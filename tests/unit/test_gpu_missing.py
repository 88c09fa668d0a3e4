import pytest

from gpudoctor.checkers.gpu_missing import GpuMissing
from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.system import Grant, GrantEntry, Platform, PlatformEntry
from gpudoctor.model import CannotTell
from tests.builders import bus, granted, host
from tests.support import HERE, check, findings, parse


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


NVRM = "[   24.302465] NVRM: "


@pytest.mark.parametrize(
    ("log", "subject", "severity", "words"),
    [
        ("GPU6 _kgspLogRpcTimeout: ********************** GSP Timeout **********************", "gpu:6", "error", "GPU6: its system processor"),
        ("GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812 heartbeat 18 diff 6070 timeout 5200", "gpu:6", "warning", "no sign of life"),
        ("_kgspRpcRecvPoll: GSP RM heartbeat timed out", "host", "warning", "A GPU that the line does not name"),
        ("krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7", "host", "error", "does not answer the driver"),
        (
            "nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2827",
            "host", "error", "until it is reset",
        ),
        ("GPU5 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 78!", "gpu:5", "error", "has fallen off"),
        ("GPU5 nvCheckOkFailedNoLog: Check failed: GPU lost from the bus", "gpu:5", "error", "has fallen off"),
        ("_issueRpcAndWait: rpcRecvPoll timedout for fn 76!", "host", "error", "does not answer the driver"),
        ("nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.", "host", "error", "nvidia-uvm"),
        ("GPU3 nvCheckOkFailedNoLog: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from x @ y.c:1", "gpu:3", "error", "has fallen off"),
    ],
)  # fmt: skip
def test_the_driver_says_without_an_xid_that_a_gpu_stopped(log, subject, severity, words):
    found = missing(*parse("kernel-log", f"{NVRM}{log}\n"))
    assert list(found) == [subject]
    assert found[subject].severity == severity
    assert words in found[subject].message


@pytest.mark.parametrize(
    "log",
    [
        "GPU0 nvAssertFailedNoLog: Assertion failed: (status == NV_OK) || (status == NV_ERR_GPU_IN_FULLCHIP_RESET) @ rs_client.c:844",
        "nvAssertOkFailedNoLog: Assertion failed: Invalid state [NV_ERR_INVALID_STATE] (0x00000040) returned from status @ kernel_bif.c:1",
        "GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x0000001f for fn 10!",
        "GPU0 _kgspProcessRpcEvent: Attempted to process RPC event from GPU0: 0x101a during bootup without API lock",
    ],
)
def test_other_assertions_of_the_driver_are_no_lost_gpu(log):
    assert missing(*parse("kernel-log", f"{NVRM}{log}\n")) == {}


def test_a_sentence_on_a_lost_gpu_is_no_line_of_the_log():
    assert parse("kernel-log", "we saw NVRM: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] once a week\n") == []


def test_an_xid_says_it_once():
    said = "Xid (PCI:0000:41:00): 119, pid=1, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL)."
    log = f"{NVRM}{said}\n{NVRM}_kgspRpcRecvPoll: GSP RM heartbeat timed out\n"
    assert missing(*parse("kernel-log", log)) == {}
    gone = "[ 1.5] NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n[ 1.6] NVRM: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F)\n"
    assert list(missing(*parse("kernel-log", gone))) == ["gpu:0000:41:00.0"]


def test_gpus_that_answer_make_it_worth_knowing_only():
    log = parse("kernel-log", f"{NVRM}GPU0 _kgspLogRpcTimeout: ******* GSP Timeout *******\n")
    assert {f.severity for f in missing(*host().facts(), *log).values()} == {"note"}


@pytest.mark.parametrize("line", ["nvidia 0000:14:00.0: probe with driver nvidia failed with error -1", "nvidia: probe of 0000:14:00.0 failed with error -1"])
def test_a_card_that_the_driver_did_not_take(line):
    found = missing(*parse("kernel-log", f"[ 5.1] {line}\n"))
    assert {s: f.severity for s, f in found.items()} == {"gpu:0000:14:00.0": "error"}
    # The module says that it loads after it has tried every card; the reason beats the consequence, and another check may own it.
    loads = "[ 5.3] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    assert list(missing(*parse("kernel-log", f"[ 5.1] {line}\n{loads}"))) == ["gpu:0000:14:00.0"]
    assert "BARs" in missing(*parse("kernel-log", f"[ 5.0] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)\n[ 5.1] {line}\n"))["gpu:0000:14:00.0"].message
    assert missing(*parse("kernel-log", f"[ 5.0] NVRM: installed in this system is not supported by the NVIDIA 550 driver\n[ 5.1] {line}\n")) == {}
    assert missing(*host().facts(), *parse("kernel-log", f"[ 5.1] {line.replace('0000:14:00.0', host().bdf(0))}\n")) == {}


@pytest.mark.parametrize("line", ["nvme 0000:14:00.0: probe with driver nvme failed with error -1", "nvidia 0000:14:00.0: enabling device (0000 -> 0003)"])
def test_another_driver_or_a_card_that_was_taken(line):
    assert missing(*parse("kernel-log", f"[ 5.1] {line}\n")) == {}


def test_a_gpu_that_keeps_the_display_part_waiting():
    log = parse("kernel-log", "[ 9.1] nvidia-modeset: ERROR: GPU:2: Error while waiting for GPU progress: 0x0000ca7d:0 2:0:4048:4040\n")
    assert {s: f.severity for s, f in missing(*log).items()} == {"gpu:2": "warning"}
    assert missing(*parse("kernel-log", "[ 9.1] nvidia-modeset: ERROR: GPU:2: Idling display engine timed out\n")) == {}


@pytest.mark.parametrize(
    ("said", "severity", "command"),
    [
        ("Reset", "error", "gpu-reset"), ("GPU_RESET", "error", "gpu-reset"), ("Reboot", "error", "reboot"),
        ("Drain and Reset", "warning", "gpu-reset"), ("Drain P2P", "warning", "gpu-reset"), ("None", None, ""), ("N/A", None, ""),
    ],
)  # fmt: skip
def test_the_recovery_that_the_driver_asks_for(said, severity, command):
    text = f"==============NVSMI LOG==============\n\nDriver Version : 580.82.07\n\nAttached GPUs : 1\nGPU 00000000:1B:00.0\n    Product Name : NVIDIA B200\n    GPU Recovery Action : {said}\n    PCI\n        Bus Id : 00000000:1B:00.0\n"
    found = missing(*(f for f in parse("smi-q", text) if not isinstance(f, Loss)))
    assert [f.severity for f in found.values()] == ([severity] if severity else [])
    assert all(command in " ".join(s.command or "" for s in f.remediation) for f in found.values())
