"""GD501 throttled: clocks held down by heat, power supply or a power limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.model import CERTAIN, LIKELY, NOTE, WARNING, CannotTell, Cause, Evidence, Finding, Step, Threshold

THROTTLED = Cause(
    "GD501",
    "throttled",
    "A GPU's clocks are held down",
    "warning: hardware thermal or power brake, power limit under the peers'; note: software power cap",
    "Every rank waits for the slowest one, so one GPU that runs hot or on less power slows all of them. The hardware "
    "slowdowns "
    "(heat, or the power brake that the server's power supply pulls) cut clocks to a half or less. A software power "
    "cap is how a GPU "
    "keeps to its limit under full load and is normal; an idle GPU is idle. Limits are compared only between GPUs of "
    "one part.",
    "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE while the job runs",
    "Heat: airflow, fans, dust, neighbouring cards. Power brake: power supplies and their redundancy, power cables. "
    "Limit: set it as on the peers.",
    (
        Threshold(
            "difference of power limits that counts",
            2,
            "% of the highest peer's",
            "our choice: limits are set in whole watts; smaller differences are rounding",
            "2026-11",
        ),
    ),
)

_TOLERANCE = 1 - THROTTLED.thresholds[0].value / 100
_HARD = {
    "hw_thermal": ("the hardware slows it down because it is too hot (HW Thermal Slowdown)", "heat"),
    "hw_power_brake": ("the server's power brake is pulled (HW Power Brake Slowdown)", "power"),
    "hw_slowdown": (
        "the hardware slows it down (HW Slowdown: heat, power brake or a power supply out of its limits)",
        "both",
    ),
}
_TESTED = {"dcgm_thermal": ("heat slowed it down while DCGM tested it", "heat")}
_SOFT = {
    "sw_thermal": "the driver lowers its clocks to keep the temperature (SW Thermal Slowdown)",
    "sw_power_cap": "it works at its power limit (SW Power Cap), as GPUs under full load do",
}


_SINGLE = ("hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal")  # fields of their own, known also from a part of the list


class Throttled(BaseChecker):
    """Active reasons first, then limits against the peers of the same part."""

    name: ClassVar[str] = "throttled"
    needs = (Gpus,)
    causes = (THROTTLED,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus = facts[Gpus]
        if not any(g.throttle is not None or g.power_limit_w is not None or any(getattr(g, n) is not None for n in _SINGLE) for g in gpus):
            yield CannotTell(
                THROTTLED.slug, "neither clock event reasons nor power limits are in the input (nvidia-smi -q)"
            )
            return
        for gpu in gpus:
            yield from _reasons(gpu)
            yield from _limit(gpu, [g for g in gpus if g is not gpu and _same_part(g, gpu)])


def _same_part(a: Gpu, b: Gpu) -> bool:
    """One part, and of one variant: boards of one id may differ in their default limit."""
    same = a.device_id == b.device_id if a.device_id and b.device_id else a.name is not None and a.name == b.name
    return same and (a.power_default_w is None or b.power_default_w is None or a.power_default_w == b.power_default_w)


def _reasons(gpu: Gpu) -> Iterator[Finding]:
    active = set(gpu.throttle or ()) | {name for name in _SINGLE if getattr(gpu, name)}
    # HW Slowdown is the roof over thermal and brake: said only where neither is named.
    hard: list[str] = [r for r in ("hw_thermal", "hw_power_brake") if r in active]
    if not hard:
        hard = [r for r in ("hw_slowdown", *_TESTED) if r in active][:1]
    for reason in hard:
        words, kind = (_HARD | _TESTED)[reason]
        yield Finding(
            THROTTLED.slug,
            WARNING,
            gpu.subject,
            f"{gpu.opening}: {words}.",
            (_shown(gpu, reason),),
            CERTAIN,
            "clocks at a half or less; every other rank waits for this GPU",
            _cool(gpu, kind),
        )
    if not hard:
        for soft in (r for r in _SOFT if r in active):
            yield Finding(THROTTLED.slug, NOTE, gpu.subject, f"{gpu.opening}: {_SOFT[soft]}.", (_shown(gpu, soft),))


def _shown(gpu: Gpu, reason: str) -> Evidence:
    """The reason's own line, where the output gives each one; a mask has one value for all."""
    return gpu.origin.get(f"throttle.{reason}") or gpu.origin.get(reason) or gpu.at("throttle")


def _cool(gpu: Gpu, kind: str) -> tuple[Step, ...]:
    which = gpu.option
    verify = f"nvidia-smi -i {which} -q -d PERFORMANCE"
    steps = [
        Step(
            "Watch it under load, beside its peers",
            "nvidia-smi --query-gpu=index,temperature.gpu,power.draw,clocks.sm,clocks_event_reasons.active "
            "--format=csv -l 1",
        )
    ]
    if kind in ("heat", "both"):
        steps.append(
            Step(
                "Airflow: fans, dust, blanking plates, a hot neighbour, the room",
                "ipmitool sdr type fan; ipmitool sdr type temperature",
                "hardware",
                verify,
            )
        )
    if kind in ("power", "both"):
        steps.append(
            Step(
                "Power: a failed supply or lost redundancy, overloaded feed, power cables of the card",
                "ipmitool sdr type 'Power Supply'; ipmitool sel list | tail -20",
                "hardware",
                verify,
            )
        )
    return tuple(steps)


def _limit(gpu: Gpu, peers: list[Gpu]) -> Iterator[Finding]:
    limit = gpu.power_limit_w
    if limit is None:
        return
    higher = max((p for p in peers if p.power_limit_w is not None), key=lambda p: p.power_limit_w or 0, default=None)
    which = gpu.option
    verify = f"nvidia-smi -i {which} -q -d POWER"
    if higher is not None and limit < (higher.power_limit_w or 0) * _TOLERANCE:
        yield Finding(
            THROTTLED.slug,
            WARNING,
            gpu.subject,
            f"{gpu.opening} has a power limit of {limit:g} W, {higher.label} of the same part {higher.power_limit_w:g} "
            "W.",
            (gpu.at("power_limit_w"), higher.at("power_limit_w")),
            CERTAIN,
            "under full load its clocks are lower than the peers', and every rank waits for the slowest",
            (
                Step(
                    "Set it as on the peers",
                    f"sudo nvidia-smi -i {which} -pl {higher.power_limit_w:g}",
                    "reversible",
                    verify,
                ),
            ),
        )
    elif gpu.power_default_w is not None and limit < gpu.power_default_w * _TOLERANCE:
        yield Finding(
            THROTTLED.slug,
            NOTE,
            gpu.subject,
            f"{gpu.opening} has a power limit of {limit:g} W; its default is {gpu.power_default_w:g} W. Somebody set "
            "that, perhaps for good reason.",
            (gpu.at("power_limit_w"), gpu.at("power_default_w")),
            LIKELY,
            remediation=(
                Step(
                    "Only if nobody wants the lower limit: set the default",
                    f"sudo nvidia-smi -i {which} -pl {gpu.power_default_w:g}",
                    "reversible",
                    verify,
                ),
            ),
        )
