"""AER, replays and slow-link messages, only where they concern a GPU's path."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.checkers.pcie_errors import PcieErrors
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.model import NOTE, POSSIBLE, WARNING, CannotTell, Finding
from tests.support import HERE, check, findings, parse

GPU, PORT, DISK = "0000:41:00.0", "0000:40:01.1", "0000:81:00.0"


def tree(**gpu: Any) -> PciTree:
    return PciTree(
        (
            PciDevice(bdf=PORT, class_code="060400", origin=HERE),
            PciDevice(bdf=GPU, class_code="030200", device_id="10de:2330", parent=PORT, origin=HERE, **gpu),
            PciDevice(bdf=DISK, class_code="010800", origin=HERE),
        ),
        complete=True,
    )


def aer(bdf: str | None, count: int = 1, severity: str = "correctable", driver: str | None = None) -> KernelLog:
    return KernelLog(tuple(KernelEvent(kind="aer", bdf=bdf, severity=severity, driver=driver, origin=HERE) for _ in range(count)))


@pytest.mark.parametrize(("count", "severity"), [(1, NOTE), (9, NOTE), (10, WARNING)])
def test_corrected_errors_of_a_gpu(count: int, severity: str) -> None:
    found = findings(PcieErrors(), tree(), aer(GPU, count))["pcie-errors", f"gpu:{GPU}"]
    assert found.severity == severity and f"{count} corrected" in found.message


@pytest.mark.parametrize("severity", ["nonfatal", "fatal"])
def test_uncorrected_errors_are_a_warning(severity: str) -> None:
    assert findings(PcieErrors(), tree(), aer(GPU, severity=severity))["pcie-errors", f"gpu:{GPU}"].severity == WARNING


def test_the_bridge_above_counts_and_a_drive_does_not() -> None:
    assert findings(PcieErrors(), tree(), aer(PORT, 12))["pcie-errors", f"pci:{PORT}"].severity == WARNING
    assert findings(PcieErrors(), tree(), aer(DISK, 50, driver="nvme")) == {}


def test_without_a_tree_the_driver_in_the_line_tells() -> None:
    assert findings(PcieErrors(), aer(GPU, 12, driver="nvidia"))["pcie-errors", f"gpu:{GPU}"].severity == WARNING
    port = findings(PcieErrors(), aer(PORT, 12, driver="pcieport"))["pcie-errors", f"pci:{PORT}"]
    assert (port.severity, port.confidence) == (NOTE, POSSIBLE)
    assert findings(PcieErrors(), aer(DISK, 12, driver="nvme")) == {}
    assert findings(PcieErrors(), aer(DISK, 12, driver="mlx5_core")) == {}


def test_slow_at_boot_is_worth_a_note() -> None:
    text = (
        f"pci {GPU}: 16.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x8 link at {PORT} "
        "(capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"
    )
    event = KernelEvent(kind="bandwidth-limited", bdf=GPU, driver="pci", bridge=PORT, text=text, origin=HERE)
    found = findings(PcieErrors(), tree(), KernelLog((event,)))["pcie-errors", f"gpu:{GPU}"]
    assert found.severity == NOTE and "x8 at 2.5 GT/s of x16 at 16.0 GT/s" in found.message and PORT in found.message
    other = KernelEvent(kind="bandwidth-limited", bdf=DISK, driver="pci", text=text, origin=HERE)
    assert findings(PcieErrors(), tree(), KernelLog((other,))) == {}


def test_counts_since_boot() -> None:
    zero = {"correctable": 0, "nonfatal": 0, "fatal": 0}
    assert check(PcieErrors(), tree(aer=zero)) == []
    some = findings(PcieErrors(), tree(aer={**zero, "correctable": 7}))["pcie-errors", f"gpu:{GPU}"]
    assert some.severity == NOTE and "7 correctable" in some.message
    same = findings(PcieErrors(), tree(aer={**zero, "correctable": 7}, aer_before={**zero, "correctable": 7}))
    assert same["pcie-errors", f"gpu:{GPU}"].severity == NOTE
    more = findings(PcieErrors(), tree(aer={**zero, "correctable": 7}, aer_before=zero))
    assert more["pcie-errors", f"gpu:{GPU}"].severity == WARNING


def replays(count: int, uptime_s: float | None = None, **more: Any) -> Finding | None:
    facts: list[Any] = [Gpus((Gpu(index=0, bdf=GPU, replays=count, origin=HERE, **more),))]
    if uptime_s is not None:
        facts.append(Platform(PlatformEntry(uptime_s=uptime_s, origin=HERE)))
    return findings(PcieErrors(), *facts).get(("pcie-errors", f"gpu:{GPU}"))


def test_replays() -> None:
    assert replays(0) is None
    gen3: dict[str, Any] = {"max_speed_gts": 8.0, "max_width": 16}
    gen5: dict[str, Any] = {"max_speed_gts": 32.0, "max_width": 16}
    few, slow, fast, grown = replays(5), replays(80, 600.0, **gen3), replays(81, 600.0, **gen3), replays(5, replays_before=4)
    assert few is not None and few.severity == NOTE
    assert slow is not None and slow.severity == NOTE  # 8 a minute is the limit itself
    assert fast is not None and fast.severity == WARNING and "limit 8" in fast.message
    assert grown is not None and grown.severity == WARNING
    wide, unknown = replays(311, 600.0, **gen5), replays(100_000, 600.0)
    assert wide is not None and wide.severity == WARNING and "limit 31" in wide.message
    assert unknown is not None and unknown.severity == NOTE  # no limit without the link's rate
    rolled = replays(0, replay_rollovers=2)
    assert rolled is not None and "trained anew" in rolled.message


def test_what_it_cannot_tell() -> None:
    (nothing,) = check(PcieErrors(), tree())
    assert isinstance(nothing, CannotTell)
    quiet = KernelLog((KernelEvent(kind="driver-load", origin=HERE),))
    (excerpt,) = check(PcieErrors(), tree(), quiet)
    assert isinstance(excerpt, CannotTell)
    assert check(PcieErrors(), tree(), quiet, recorded=False) == []


def test_an_error_that_nvidias_driver_was_told_of_is_the_gpus() -> None:
    log = KernelLog((KernelEvent(kind="aer", bdf=GPU, driver="nvidia", origin=HERE),))
    found = findings(PcieErrors(), log)["pcie-errors", f"gpu:{GPU}"]
    assert found.severity == WARNING and "1 uncorrected" in found.message


def test_an_uncorrected_error_points_at_the_counters_of_its_kind() -> None:
    found = findings(PcieErrors(), tree(), aer(GPU, severity="fatal"))["pcie-errors", f"gpu:{GPU}"]
    assert "aer_dev_fatal" in (found.remediation[0].command or "") and "aer_dev_correctable" not in str(found.remediation)
    assert "lost" in (found.cost or "")


def test_corrected_errors_point_at_the_counter_of_corrected_ones() -> None:
    found = findings(PcieErrors(), tree(), aer(GPU, 12))["pcie-errors", f"gpu:{GPU}"]
    assert "aer_dev_correctable" in (found.remediation[0].command or "") and "fatal" not in str(found.remediation)


def test_reports_that_the_kernel_held_back_count() -> None:
    line = f"[ 280.4] nvidia {GPU}: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)\n"
    received = f"[ 280.4] pcieport {PORT}: AER: Correctable error message received from {GPU}\n"
    log = f"[ 280.3] aer_ratelimit: {{}} callbacks suppressed\n{received}{line}"
    found = findings(PcieErrors(), *parse("kernel-log", log.format(30)))["pcie-errors", f"gpu:{GPU}"]
    assert found.severity == WARNING and "1 corrected PCIe error report, and the kernel held back 30 more." in found.message
    assert findings(PcieErrors(), *parse("kernel-log", log.format(3)))["pcie-errors", f"gpu:{GPU}"].severity == NOTE
    # The count is of the device whose report follows.
    other = log.format(30).replace(f"nvidia {GPU}", f"nvme {DISK}").replace(f"from {GPU}", f"from {DISK}") + line
    assert findings(PcieErrors(), *parse("kernel-log", other))["pcie-errors", f"gpu:{GPU}"].severity == NOTE
