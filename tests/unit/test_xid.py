"""Xid and SXid: the table, the severities of the contract, one finding per device and number."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor import xids
from gpudoctor.checkers.xid import Xid
from gpudoctor.checkers.xid_remedy import steps
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.model import ERROR, NOTE, RISKS, WARNING, CannotTell
from tests.support import HERE, check, findings

BDF = "0000:41:00.0"


def event(code: int, kind: str = "xid", bdf: str | None = BDF, **more: Any) -> KernelEvent:
    return KernelEvent(kind=kind, code=code, bdf=bdf, origin=HERE, **more)


def log(*events: KernelEvent) -> KernelLog:
    return KernelLog(events)


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_a_programs_fault_is_a_note(code: int) -> None:
    assert findings(Xid(), log(event(code)))["xid", f"gpu:{BDF}"].severity == NOTE


@pytest.mark.parametrize("code", [48, 62, 64, 74, 79, 94, 95, 119, 136, 149])
def test_link_memory_hardware_and_fallen_off_are_errors(code: int) -> None:
    assert findings(Xid(), log(event(code)))["xid", f"gpu:{BDF}"].severity == ERROR


# 108 and 121 are no fault of the link, 137 is mostly a program's, by NVIDIA's catalogue.
@pytest.mark.parametrize("code", [8, 32, 38, 63, 69, 92, 108, 121, 137, 154, 999])
def test_the_rest_are_warnings(code: int) -> None:
    assert findings(Xid(), log(event(code)))["xid", f"gpu:{BDF}"].severity == WARNING


def test_before_the_last_driver_load_is_a_note_unless_it_came_again() -> None:
    old = findings(Xid(), log(event(79, stale=True)))["xid", f"gpu:{BDF}"]
    assert old.severity == NOTE and "before the last load of the driver" in old.message
    again = findings(Xid(), log(event(79, stale=True), event(79)))["xid", f"gpu:{BDF}"]
    assert again.severity == ERROR


def test_nvlink5_by_what_the_driver_calls_each_event() -> None:
    mild = event(145, fatal=False, link=12)
    assert findings(Xid(), log(mild, mild))["xid", f"gpu:{BDF}"].severity == WARNING
    worse = findings(Xid(), log(mild, event(145, fatal=True, link=3)))["xid", f"gpu:{BDF}"]
    assert worse.severity == ERROR
    assert "2 times (1 fatal; link 3, 12)" in worse.message


@pytest.mark.parametrize(
    ("code", "fatal", "severity"),
    [(20034, True, ERROR), (12028, False, WARNING), (20034, None, ERROR), (12028, None, WARNING), (10003, None, ERROR), (99999, None, WARNING)],
)
@pytest.mark.parametrize("kind", ["sxid", "nvswitch"])
def test_switch_errors(kind: str, code: int, fatal: bool | None, severity: str) -> None:
    finding = findings(Xid(), log(event(code, kind, "0000:86:00.0", fatal=fatal, link=33)))["xid", "pci:0000:86:00.0"]
    assert finding.severity == severity
    assert f"SXid {code}" in finding.message and "port 33" in finding.message


def test_repeats_are_one_finding_with_first_and_last_line() -> None:
    many = [KernelEvent(kind="xid", code=119, bdf=BDF, text=str(n), origin={"*": HERE["*"].__class__("t", f"line {n}", "x")}) for n in range(5)]
    (finding,) = findings(Xid(), log(*many)).values()
    assert "Xid 119, 5 times" in finding.message
    assert [e.where for e in finding.evidence] == ["line 0", "line 4"]


def test_devices_and_numbers_stay_apart() -> None:
    said = check(Xid(), log(event(13), event(79), event(79, bdf="0000:61:00.0"), event(79, bdf=None)))
    assert len(said) == 4
    assert {s.subject for s in said} == {f"gpu:{BDF}", "gpu:0000:61:00.0", "host"}


def test_the_gpus_name_and_the_drivers_wish_are_in_the_message() -> None:
    gpus = Gpus((Gpu(index=3, bdf=BDF, origin=HERE),))
    text = "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    finding = findings(Xid(), gpus, log(event(154, text=text)))["xid", f"gpu:{BDF}"]
    assert finding.message.startswith(f"GPU3 ({BDF}): Xid 154")
    assert "(GPU Reset Required)" in finding.message


def test_the_cause_that_only_a_later_line_names() -> None:
    follows = event(45, text="NVRM: Xid (PCI:0000:41:00): 45, pid=7, name=python3, Ch 00000001 caused by previous Xid 149")
    said = [f for f in check(Xid(), log(follows, follows)) if not isinstance(f, CannotTell)]
    assert [(f.severity, "Xid 149" in f.message, "named as the cause" in f.message) for f in said] == [
        (NOTE, False, False),
        (ERROR, True, True),
    ]
    # Its own line tells more; the mention adds nothing then, nor does a fault of a program.
    assert len(check(Xid(), log(follows, event(149)))) == 2
    program = event(45, text="Xid (PCI:0000:41:00): 45, Ch 1 caused by previous Xid 31")
    assert {f.severity for f in check(Xid(), log(program)) if not isinstance(f, CannotTell)} == {NOTE}
    old = event(45, text=follows.text, stale=True)
    assert {f.severity for f in check(Xid(), log(old)) if not isinstance(f, CannotTell)} == {NOTE}


def test_silence_of_an_excerpt_proves_nothing() -> None:
    load = KernelEvent(kind="driver-load", origin=HERE)
    (said,) = check(Xid(), log(load))
    assert isinstance(said, CannotTell)
    assert check(Xid(), log(load), recorded=False) == []


def test_every_row_of_the_table_has_steps() -> None:
    rows = xids._rows()
    assert len(rows) > 200
    for (kind, code), known in rows.items():
        made = steps(known.remedy, BDF, (1,))
        assert made and all(s.risk in RISKS for s in made), (kind, code)
        assert known.meaning and not known.meaning.endswith("."), (kind, code)
    assert all(xids.lookup("xid", n) is not xids.UNKNOWN for n in (13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, *range(144, 155)))
    assert steps(xids.UNKNOWN.remedy, None)


def test_a_reset_names_the_gpu() -> None:
    finding = findings(Xid(), log(event(119)))["xid", f"gpu:{BDF}"]
    assert any(s.command == f"sudo nvidia-smi --gpu-reset -i {BDF}" and s.risk == "disruptive" for s in finding.remediation)


def test_a_number_that_the_message_contradicts() -> None:
    """A monitor repeated the driver's message about a link under another number."""
    found = findings(Xid(), KernelLog((event(71, text="NVRM: Xid (PCI:0000:b9:00): 71, NVLink: fatal error detected on link 6"),)))
    (finding,) = found.values()
    assert finding.severity == "error" and "NVLink" in finding.message
    (plain,) = findings(Xid(), KernelLog((event(71, text="NVRM: Xid (PCI:0000:b9:00): 71, Ch 00000008"),))).values()
    assert plain.severity == "warning"
