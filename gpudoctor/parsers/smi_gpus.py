"""Readings of `nvidia-smi -q`, in order, to Gpu, Gpus and Driver.

A value that nvidia-smi words as absent (`N/A`, `[Not Supported]`) is None; sums are made only where every part was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.model import Evidence
from gpudoctor.parsers.smi_fields import bare, count, known_field, whole

MAX_GPUS = 512  # more than any host has; a hostile file must not make joining quadratic in its length

# The driver's words for a GPU that does not answer any more.
_LOST = ("gpu is lost", "gpu requires reset", "gpu has fallen off the bus")
# Single sensors of a sound GPU say these too (a notebook's power limit), so they count only on what every GPU knows.
_SICK = frozenset({"err!", "unknown error"})
_VITAL = frozenset({"product_name", "product name", "uuid", "gpu uuid", "performance_state", "performance state"})
_ABSENT = _SICK | {
    "", "n/a", "not supported", "not found", "not available", "unknown", "insufficient permissions",
    "requested functionality has been deprecated",
}  # fmt: skip

_OF_FABRIC = frozenset({("fabric_state", "Not Supported"), ("fabric_status", "Unknown Error")})


class Reading(NamedTuple):
    """One value with the names above it, outermost first, lower case."""

    path: tuple[str, ...]
    value: str
    evidence: Evidence


# Groups of which one field is made, by how their name begins.
_THROTTLE = ("clocks_event_reasons", "clocks_throttle_reasons", "clocks event reasons", "clocks throttle reasons")
_REASONS = {
    "gpu_idle": "idle",
    "idle": "idle",
    "user_defined_clocks": "applications_clocks_setting",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_power_brake_slowdown": "hw_power_brake",
    "sw_thermal_slowdown": "sw_thermal",
    "display_clock_setting": "display_clocks_setting",
}
GROUPS = frozenset((*_THROTTLE, "volatile", "aggregate", "health"))
SINGLE_REASONS = ("hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal")  # each a field of its own
_LAST_REASON = "display_clocks_setting"
_UNCORRECTABLE = ("sram_uncorrectable", "sram uncorrectable", "dram_uncorrectable", "dram uncorrectable")


class GpuReadings:
    """Everything read of one GPU, in the order it stood there."""

    def __init__(self, bdf: str | None, evidence: Evidence) -> None:
        self.values: dict[str, Any] = {} if bdf is None else {"bdf": bdf}
        self.origin: dict[str, Evidence] = {"*": evidence}
        self._ecc: dict[str, list[Reading]] = {"volatile": [], "aggregate": []}
        self._throttle: dict[str, Reading] = {}
        self._throttle_whole = False
        self._health: dict[str, Reading] = {}
        self._closed: set[str] = set()

    def add(self, path: tuple[str, ...], value: str, at: Callable[[], Evidence], cut: bool = False) -> None:
        """Take one value; the first reading of a field stays. cut: the input may end in the middle of this value."""
        value = bare(value)
        if cut and not whole(path, value):
            return
        low = value.lower()
        lost = any(words in low for words in _LOST)
        if lost or (low in _SICK and path[-1] in _VITAL):
            self._set("error", value, at())
        known = known_field(path)
        # "Not Supported" is a state of the fabric and "Unknown Error" how its registration ended, the absence of a value everywhere else.
        if lost or low in _ABSENT and not (known is not None and (known[0], value) in _OF_FABRIC):
            return
        if known is not None:
            if known[0] not in self.values:
                self._set(known[0], known[1](value), at())
        elif not GROUPS.isdisjoint(path):
            self._group(Reading(path, value, at()))

    def close(self, group: str) -> None:
        """A branch ended in the input: what is added up over it can no longer grow."""
        self._closed.add(group)
        if group in _THROTTLE:
            self._throttle_whole = True

    def _set(self, field: str, value: Any, evidence: Evidence) -> None:
        if value is not None and field not in self.values:
            self.values[field] = value
            self.origin[field] = evidence

    def _group(self, reading: Reading) -> None:
        above, leaf = reading.path[:-1], reading.path[-1]
        for era in ("volatile", "aggregate"):
            if era in above:
                self._ecc[era].append(reading)
                return
        if any(group in above for group in _THROTTLE):
            reason = leaf.replace(" ", "_").removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_")
            reason = _REASONS.get(reason, reason)
            self._throttle.setdefault(reason, reading)
            self._throttle_whole = self._throttle_whole or reason == _LAST_REASON
        elif "health" in above and "fabric" in above:
            self._health.setdefault(leaf.replace(" ", "_"), reading)

    def build(self, index: int | None) -> Gpu:
        for era, readings in self._ecc.items():
            self._sum_ecc(era, readings)
        for name in SINGLE_REASONS:
            single = self._throttle.get(name)
            if single is not None and single.value.lower() in ("active", "not active"):
                self._set(name, single.value.lower() == "active", single.evidence)
        if self._throttle_whole and self._throttle:
            active = {name: r for name, r in self._throttle.items() if r.value.lower() == "active"}
            shown = next(iter(active.values()), next(iter(self._throttle.values())))
            self._set("throttle", tuple(active), shown.evidence)
            for name, reading in active.items():  # each reason stands on a line of its own
                self.origin[f"throttle.{name}"] = reading.evidence
        self._judge_health()
        if index is not None:
            self._set("index", index, self.origin["*"])
        return Gpu(**self.values, origin=self.origin)

    def _sum_ecc(self, era: str, readings: list[Reading]) -> None:
        """Volta and before list double-bit errors per structure with a total; later parts SRAM and DRAM apart."""
        total = next((r for r in readings if r.path[-2:] in (("double_bit", "total"), ("double bit", "total"))), None)
        parts = [r for r in readings if r.path[-1].startswith(_UNCORRECTABLE)]
        # DRAM comes last, so with it every part is there.
        whole = era in self._closed or any(r.path[-1].startswith("dram") for r in parts)
        if total is not None:
            self._set(f"ecc_uncorrectable_{era}", count(total.value), total.evidence)
        elif parts and whole:
            numbers = [(count(r.value) or 0, r) for r in parts]
            worst = max(numbers, key=lambda pair: pair[0])[1]
            self._set(f"ecc_uncorrectable_{era}", sum(n for n, _ in numbers), worst.evidence)

    def _judge_health(self) -> None:
        """Drivers up to 570 have no summary, only the single answers."""
        summary = self._health.get("summary")
        if summary is not None:
            self._set("fabric_health", summary.value.lower(), summary.evidence)
            return
        if not self._health or "health" not in self._closed:
            return
        sound = ("full", "false", "none", "no", "healthy")
        bad = [
            r
            for name, r in self._health.items()
            # A flag's value is a word: what is none came from somewhere else, and is no fault.
            if name != "partition_assigned" and r.value.lower() not in sound and r.value.replace(" ", "").isalpha()
        ]
        if bad:
            words = ", ".join(f"{r.path[-1].replace('_', ' ')}: {r.value}".lower() for r in bad)
            self._set("fabric_health", words, bad[0].evidence)
        elif "bandwidth" in self._health:
            self._set("fabric_health", "healthy", self._health["bandwidth"].evidence)


def facts(
    gpus: list[GpuReadings],
    driver: dict[str, Any],
    driver_origin: dict[str, Evidence],
    attached: int | None,
    cut: bool,
) -> Iterator[Fact | Loss]:
    """The facts of one output. An index is a place in the list, so it needs the whole list."""
    if driver:
        yield Driver(DriverEntry(**driver, origin=driver_origin))
    if len(gpus) > MAX_GPUS:
        yield Loss("the list of GPUs", f"more than {MAX_GPUS} GPUs: the rest was left out")
        gpus = gpus[:MAX_GPUS]
    listed = attached is not None and attached == len(gpus)
    if attached is not None and not listed:
        yield Loss("the list of GPUs", f"nvidia-smi counts {attached}, {len(gpus)} are shown here")
    if gpus or attached is not None:
        yield Gpus(
            tuple(gpu.build(place if listed else None) for place, gpu in enumerate(gpus)),
            complete=listed and not cut,
            attached=attached,
        )
