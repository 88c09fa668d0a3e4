"""Faulty GPU memory by counters and by the kernel log."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.checkers.ecc_remap import EccRemap
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.model import ERROR, NOTE, WARNING, CannotTell, Finding
from tests.support import HERE, check

BDF = "0000:41:00.0"
HEALTHY: dict[str, Any] = {
    "ecc_uncorrectable_volatile": 0, "ecc_uncorrectable_aggregate": 0, "remap_correctable": 2, "remap_uncorrectable": 0,
    "remap_pending": False, "remap_failed": False,
}  # fmt: skip


def gpus(**fields: Any) -> Gpus:
    return Gpus((Gpu(index=0, bdf=BDF, origin=HERE, **fields),))


def log(*codes: int, stale: bool = False) -> KernelLog:
    return KernelLog(tuple(KernelEvent(kind="xid", code=c, bdf=BDF, stale=stale, origin=HERE) for c in codes))


def finding(*facts: Any) -> Finding | None:
    found = [s for s in check(EccRemap(), *facts) if isinstance(s, Finding)]
    assert len(found) <= 1
    return found[0] if found else None


def test_healthy_counters_say_nothing() -> None:
    assert check(EccRemap(), gpus(**HEALTHY)) == []
    assert check(EccRemap(), gpus(retired_single=3, retired_double=0, retired_pending=False)) == []


@pytest.mark.parametrize(
    ("fields", "severity", "words"),
    [
        ({"remap_failed": True}, ERROR, "could not be replaced"),
        ({"ecc_uncorrectable_volatile": 1}, ERROR, "1 uncorrectable memory error since"),
        ({"remap_pending": True}, WARNING, "waits for a reset"),
        ({"remap_pending": True, "remap_uncorrectable": 1}, WARNING, "waits for a reset"),
        ({"remap_uncorrectable": 3}, NOTE, "after uncorrectable errors: 3"),
        ({"ecc_uncorrectable_aggregate": 7}, None, ""),  # repaired long ago
        ({"inforom_corrupted": True}, NOTE, "infoROM"),
    ],
)
def test_counters(fields: dict[str, Any], severity: str | None, words: str) -> None:
    found = finding(gpus(**{**HEALTHY, **fields}))
    if severity is None:
        assert found is None
        return
    assert found is not None and found.subject == f"gpu:{BDF}"
    assert found.severity == severity and words in found.message and "GPU0" in found.message


@pytest.mark.parametrize(
    ("single", "double", "pending", "severity"),
    [(2, 61, True, WARNING), (58, 2, False, WARNING), (59, 0, False, None), (6, 0, True, WARNING), (0, 5, False, NOTE)],
)
def test_retired_pages(single: int, double: int, pending: bool, severity: str | None) -> None:
    found = finding(gpus(retired_single=single, retired_double=double, retired_pending=pending))
    assert (found.severity if found else None) == severity


@pytest.mark.parametrize(
    ("code", "severity"), [(63, WARNING), (92, WARNING), (160, WARNING), (64, ERROR), (48, ERROR), (94, ERROR), (95, ERROR), (171, ERROR)]
)
def test_the_kernel_log_alone(code: int, severity: str) -> None:
    said = check(EccRemap(), log(code))
    found = next(s for s in said if isinstance(s, Finding))
    assert (found.severity, found.subject) == (severity, f"gpu:{BDF}")
    assert f"Xid {code}" in found.message
    assert any(isinstance(s, CannotTell) for s in said)  # no counters at hand


def test_other_xids_are_not_its_business() -> None:
    assert finding(log(13, 31, 43, 74, 79, 119)) is None


@pytest.mark.parametrize("code", [63, 64, 48])
def test_history_is_a_note(code: int) -> None:
    old = finding(log(code, stale=True))
    assert old is not None and old.severity == NOTE
    reset = finding(gpus(**HEALTHY), log(code))  # counters read now: repaired, none since the reset
    assert reset is not None and reset.severity == NOTE and "before the last reset" in reset.message


def test_log_and_counters_make_one_finding_of_the_worst() -> None:
    found = finding(gpus(**{**HEALTHY, "remap_pending": True, "ecc_uncorrectable_volatile": 2}), log(48, 63))
    assert found is not None and found.severity == ERROR
    assert "2 uncorrectable memory errors" in found.message and "Xid 63" in found.message


def test_without_counters_it_cannot_tell() -> None:
    (said,) = check(EccRemap(), gpus())
    assert isinstance(said, CannotTell) and "1 of 1" in said.reason
