"""NVLink error counters: growing between two readings, saturated, or over a limit that others use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.nvlink_view import Card, cards
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import NvLink, NvLinkGpu, NvLinks
from gpudoctor.model import (
    CERTAIN,
    ERROR,
    LIKELY,
    POSSIBLE,
    WARNING,
    CannotTell,
    Cause,
    Evidence,
    Finding,
    Step,
    Threshold,
)

_DCGM = "NVIDIA DCGM, common/DcgmGPUHardwareLimits.h and modules/health/DcgmHealthWatch.cpp"
_GCM = "facebookresearch/gcm, check-dcgmi nvlink, default thresholds"
_REGISTERS = "NVIDIA open-gpu-kernel-modules 595.45.04, lr10 and ls10 dev_minion_ip_addendum.h (SRCOVF)"

GROWTH = Threshold("growth of any counter between two readings", 1, "errors", _DCGM, "2026-07-06")
RETRIES = Threshold("replays or recoveries of one link, from a single reading, more than", 0, "errors", _GCM, "2026")
CRC_RATE = Threshold("CRC errors of one link, where the time is known", 100, "per second", _DCGM, "2026-07-06")
CRC_ODD = Threshold(
    "CRC errors of one link, time unknown, while the median link has under a hundredth of it", 1000, "errors",
    "our choice: ten seconds at DCGM's limit",
    "2026",
)
# A source counter that stops at its end reads as this for ever: 8 bits for sent replays, 16 for received ones; the
# accumulated registers have 31 bits, the driver's own totals 32.
FULL = (0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)

ERRORS = Cause(
    "GD402",
    "nvlink-errors",
    "NVLink error counters show a bad link",
    "warning; saturated, or recovery failing: error",
    "A link checks every packet: a CRC error is a packet that arrived damaged, a replay is one that was sent again, a recovery "
    "is the link trained anew while it was in use. Single CRC errors are part of a fast serial link and are repaired without "
    "anybody noticing; NVIDIA's DCGM takes them as a fault from 100 a second. Replays and recoveries stop the link for a moment, "
    "and with it every GPU that waits in the same collective. What counts is growth: counters start at the driver's load, so "
    "a single reading has no time to it. The two ends count for themselves; errors that stay after the GPUs were swapped belong "
    "to the board.",
    "nvidia-smi nvlink -e, twice under load",
    "Read again under load; if it grows, reset the GPU, then look for the end at fault by swapping.",
    (GROWTH, RETRIES, CRC_RATE, CRC_ODD),
)
_NAMES = ("replay", "recovery", "crc")


class NvLinkErrors(BaseChecker):
    """One finding per link, with every counter that speaks against it."""

    name: ClassVar[str] = "nvlink-errors"
    needs = (NvLinks,)
    wants = (Gpus, Platform)
    causes = (ERRORS,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        links = facts[NvLinks]
        complaints = [about for about in links.gpus if about.complaint is not None]
        for about in complaints:
            yield _complaint(about, cards(facts.get(Gpus), links)[about.gpu])
        counted = [x for x in links if any(_value(x, n) is not None for n in (*_NAMES, "recovery_failed"))]
        known = cards(facts.get(Gpus), links)
        if not counted:
            if complaints:
                return
            if known and all(_without(card, links) for card in known.values()):
                return  # no NVLink on any of these parts: nothing to count
            yield CannotTell(ERRORS.slug, "the input has no NVLink error counters; needed is nvidia-smi nvlink -e")
            return
        platform = facts.get(Platform)
        uptime = platform.entry.uptime_s if platform is not None and not facts.recorded else None
        crcs = sorted(x.crc for x in counted if x.crc is not None)
        median = crcs[(len(crcs) - 1) // 2] if len(crcs) > 1 else 0
        for link in counted:
            yield from _judge(link, known[link.gpu], uptime, median)


def _complaint(about: NvLinkGpu, card: Card) -> Finding:
    """DCGM takes 100 CRC errors a second, and any replay or recovery, as a fault of the GPU's links. It names no link."""
    words = about.complaint or ""
    return Finding(
        ERRORS.slug,
        ERROR if "recovery" in words.lower() else WARNING,
        card.subject,
        f"{card.label}: DCGM says: {words[:300]}",
        (about.at("complaint"),),
        LIKELY,
        remediation=_steps(about.gpu),
    )


def _without(card: Card, links: NvLinks) -> bool:
    """No NVLink on this part, or none that could count: every one inactive, as on a card without a bridge."""
    rows = links.of(card.index)
    about = links.about(card.index)
    if rows:
        return all(x.active is False for x in rows)
    return (about is not None and bool(about.no_nvlink or about.all_inactive)) or (
        card.part is not None and not card.part.nvlink
    )


def _value(link: NvLink, name: str) -> int | None:
    value = getattr(link, name)
    return value if isinstance(value, int) else None


def _judge(link: NvLink, card: Card, uptime_s: float | None, median_crc: int) -> Iterator[Finding | CannotTell]:
    bad: list[str] = []
    evidence: list[Evidence] = []
    severity, confidence = WARNING, CERTAIN
    if link.recovery_failed:
        severity = ERROR
        bad.append(f"{link.recovery_failed} failed recoveries")
        evidence.append(link.at("recovery_failed"))
    before = link.errors_before or (None, None, None)
    static = False
    for name, earlier in zip(_NAMES, before, strict=True):
        now = _value(link, name)
        if not now:
            continue
        if now in FULL and (name == "replay" or now >= 0xFFFF):
            severity = ERROR
            bad.append(f"the {_word(name)} counter is at its end ({now})")
        elif earlier is not None and now > earlier:
            bad.append(f"{_word(name)} errors grew from {earlier} to {now} between two readings")
        elif earlier is None and name != "crc":
            static = True
            bad.append(f"{now} {_word(name)} errors")
        elif earlier is None and uptime_s and now / uptime_s >= CRC_RATE.value:
            bad.append(f"{now} CRC errors, {now / uptime_s:.0f} a second since the host started")
        elif earlier is None and not uptime_s and now >= CRC_ODD.value and median_crc < now / 100:
            static = True
            bad.append(f"{now} CRC errors where most links have {median_crc or 'none'}")
        else:
            continue
        evidence.append(link.at(name))
    if not bad:
        if link.crc and link.crc >= CRC_ODD.value and link.errors_before is None and not uptime_s:
            yield CannotTell(ERRORS.slug, f"{link.crc} CRC errors since an unknown time; needed is a second reading", link.subject)
        return
    if severity == WARNING and static:
        confidence = LIKELY if len(bad) > 1 else POSSIBLE
    yield Finding(
        ERRORS.slug,
        severity,
        link.subject,
        f"{card.label}, NVLink {link.link}: {'; '.join(bad)}." + (" Whether it still grows, one reading cannot say." if static else ""),
        tuple(evidence),
        confidence,
        remediation=_steps(link.gpu),
    )


def _word(name: str) -> str:
    return "CRC" if name == "crc" else name


def _steps(gpu: int) -> tuple[Step, ...]:
    read = f"nvidia-smi nvlink -e -i {gpu}"
    return (
        Step("Read the counters twice, some minutes apart, while a job runs: only growth is a fault", read),
        Step("Find the far end of the link; its counters belong to the same wire", f"nvidia-smi nvlink -R -i {gpu}"),
        Step(
            "If they grow, drain the host and reset the GPU (behind NVSwitches all GPUs together): the link trains again",
            f"sudo nvidia-smi --gpu-reset -i {gpu}",
            "disruptive",
            read,
        ),
        Step(
            "If they grow again, swap the GPU: errors that stay with the slot are the board's. On a bridged card reseat the bridge first",
            None,
            "hardware",
            read,
        ),
    )
