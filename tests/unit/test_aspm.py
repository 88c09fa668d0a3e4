"""aspm on built hosts."""

from __future__ import annotations

import pytest

from gpudoctor.checkers.aspm import AspmEnabled
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Aspm
from gpudoctor.model import CannotTell
from tests.builders import host
from tests.support import HERE, check, findings


def aer(bdf: str, count: int, stale: bool = False) -> KernelLog:
    return KernelLog(tuple(
        KernelEvent(kind="aer", bdf=bdf, severity="correctable", text=f"line {n}", stale=stale, origin=HERE) for n in range(count)
    ))  # fmt: skip


def test_capability_alone_is_nothing() -> None:
    made = host()
    made.every_bridge(aspm_supported=("L0s", "L1")).set(made.bdf(0), aspm_supported=("L1",))
    assert check(AspmEnabled(), *made.facts()) == []


def test_one_note_per_gpu_names_the_bridges() -> None:
    made = host(2, 1)
    made.set(made.uplink(0), aspm_enabled=("L1",)).set(made.bdf(1), aspm_enabled=("L0s", "L1"))
    made.add(Aspm("powersave", HERE["*"]))
    found = findings(AspmEnabled(), *made.facts())
    assert {k: f.severity for k, f in found.items()} == {("aspm", "gpu:0000:81:00.0"): "note", ("aspm", "gpu:0000:82:00.0"): "note"}
    assert made.uplink(0) in found["aspm", "gpu:0000:81:00.0"].message
    assert "the GPU itself" in found["aspm", "gpu:0000:82:00.0"].message
    assert "powersave" in found["aspm", "gpu:0000:82:00.0"].message


@pytest.mark.parametrize(
    ("count", "stale", "severity"), [(0, False, "note"), (1, False, "note"), (2, False, "warning"), (5, True, "note")]
)
def test_repeated_link_errors_make_it_a_warning(count: int, stale: bool, severity: str) -> None:
    made = host(1)
    made.set(made.port(0), aspm_enabled=("L1",)).add(aer(made.port(0), count, stale))
    (found,) = findings(AspmEnabled(), *made.facts()).values()
    assert found.severity == severity


def test_errors_elsewhere_do_not_count() -> None:
    made = host(1)
    made.set(made.port(0), aspm_enabled=("L1",)).add(aer("0000:77:00.0", 9))
    (found,) = findings(AspmEnabled(), *made.facts()).values()
    assert found.severity == "note"


def test_bridges_of_no_gpu_do_not_matter() -> None:
    made = host(1)
    made.devices["0000:00:1d.0"] = PciDevice(bdf="0000:00:1d.0", class_code="060400", aspm_enabled=("L1",), origin=HERE)
    assert check(AspmEnabled(), *made.facts()) == []


def test_blocks_without_address() -> None:
    gpu = PciDevice(driver="nvidia", aspm_enabled=("L1",), origin=HERE)
    (found,) = findings(AspmEnabled(), PciTree((gpu,))).values()
    assert (found.subject, found.severity, found.confidence) == ("gpu:?", "note", "possible")
    bare = PciDevice(aspm_enabled=("L1",), origin=HERE)
    (found,) = findings(AspmEnabled(), PciTree((bare,))).values()
    assert (found.subject, found.severity, found.confidence) == ("host", "note", "possible")
    off = PciDevice(driver="nvidia", aspm_enabled=(), origin=HERE)
    assert check(AspmEnabled(), PciTree((off,))) == []


def test_unread_registers_cannot_be_told() -> None:
    made = host(1)
    for bdf in list(made.devices):
        made.set(bdf, aspm_enabled=None)
    (said,) = check(AspmEnabled(), *made.facts())
    assert isinstance(said, CannotTell)
    for bdf in list(made.devices):
        made.set(bdf, access_denied=True)
    (said,) = check(AspmEnabled(), *made.facts())
    assert isinstance(said, CannotTell)
    assert "root" in said.reason


def test_the_remedy_does_not_repeat_the_myth() -> None:
    made = host(1)
    made.set(made.port(0), aspm_enabled=("L1",))
    (found,) = findings(AspmEnabled(), *made.facts()).values()
    assert "parameters/policy" in (found.remediation[0].command or "")
    assert not any("pcie_aspm=off" in (s.command or "") for s in found.remediation)
