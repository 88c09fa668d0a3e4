"""Readings of `nvidia-smi -q` in either form (text or XML) to Gpu, Gpus and Driver.

Both forms are the same tree under two vocabularies, and both renamed branches over the years (418 to 580): a field is
found by the last words of its path (`pcie_gen/current_link_gen`, `pcie generation/current`), so that an excerpt whose
outer headings are lost still reads. A value that nvidia-smi words as absent (`N/A`, `[Not Supported]`) is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gpudoctor.bdf import normalise
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.model import Evidence

MAX_GPUS = 512  # more than any host has; a hostile file must not make joining quadratic in its length

# GT/s per lane by PCIe generation (PCI Express Base Specification 6.0, 1.2).
GEN_GTS = {"1": 2.5, "2": 5.0, "3": 8.0, "4": 16.0, "5": 32.0, "6": 64.0}
_NUMBER = re.compile(r"^(\d{1,12})(?:\.\d+)?\b")
_WATTS = re.compile(r"^(\d{1,6}(?:\.\d+)?) W$")
_MIB = re.compile(r"^(\d{1,12}) (?:MiB|MB)$")
_UNIT = re.compile(r"^\d{1,2}x$|^\d[\d.]* (?:W|MiB|%)$")
_ID = re.compile(r"^(?:0x)?([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})$")
_UUID = re.compile(r"^GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
# The driver's words for a GPU that does not answer any more.
_LOST = re.compile(r"GPU is lost|GPU requires reset|GPU has fallen off the bus", re.I)
# Single sensors of a sound GPU say these too (a notebook's power limit), so they count only on what every GPU knows.
_SICK = re.compile(r"^(?:ERR!|Unknown Error)$", re.I)
_VITAL = frozenset({"product_name", "product name", "uuid", "gpu uuid", "performance_state", "performance state"})
_ABSENT = re.compile(
    r"^(?:N/A|Not Supported|Not Found|Not Available|Unknown|Unknown Error|ERR!|Insufficient Permissions"
    r"|Requested functionality has been deprecated|.*GPU is lost.*|.*GPU requires reset.*|)$",
    re.I,
)


class Reading(NamedTuple):
    """One value with the names above it, outermost first, lower case."""

    path: tuple[str, ...]
    value: str
    evidence: Evidence


def bare(value: str) -> str:
    """`[N/A]` -> `N/A`; inner spaces to one."""
    text = " ".join(value.split())
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def count(value: str) -> int | None:
    """`3`, `0 %` -> the number before the unit."""
    found = _NUMBER.match(value)
    return int(found[1]) if found else None


def _flag(value: str) -> bool | None:
    return {"yes": True, "enabled": True, "no": False, "disabled": False}.get(value.lower())


def _generation(value: str) -> float | None:
    return GEN_GTS.get(value)


def _width(value: str) -> int | None:
    """`16x`; a link that is down has width 0, which is no width."""
    lanes = value[:-1] if value.endswith("x") else value
    return int(lanes) if lanes in ("1", "2", "4", "8", "12", "16", "32") else None


def _mib(value: str) -> int | None:
    found = _MIB.match(value)
    return int(found[1]) if found else None


def _watts(value: str) -> float | None:
    found = _WATTS.match(value)
    return float(found[1]) if found else None


def _percent(value: str) -> int | None:
    return count(value) if value.endswith("%") else None


def _pstate(value: str) -> int | None:
    return int(value[1:]) if value[:1] == "P" and value[1:].isdigit() and int(value[1:]) <= 15 else None


def _pci_id(value: str) -> str | None:
    """nvidia-smi prints device and vendor as one number, device first: `0x233510DE` -> `10de:2335`."""
    found = _ID.match(value)
    return f"{found[2]}:{found[1]}".lower() if found else None


def _device_id(value: str) -> str | None:
    """Every GPU here is NVIDIA's: another vendor is a paste whose ids were blotted out."""
    found = _pci_id(value)
    return found if found is not None and found.startswith("10de:") else None


def _uuid(value: str) -> str | None:
    return value if _UUID.match(value) else None


def _word(value: str) -> str:
    return value.lower()


def _switch(value: str) -> str | None:
    return value.lower() if value.lower() in ("enabled", "disabled") else None


def _virtualization(value: str) -> str:
    return {"pass-through": "passthrough", "host vgpu": "host-vgpu", "host vsga": "host-vsga"}.get(value.lower(), value.lower())


def _recovery(value: str) -> str | None:
    """`None` says that nothing is asked for."""
    return None if value.lower() == "none" else value.lower()


Convert = Callable[[str], Any]

# End of the path -> field. XML names and text names never collide: the ones have underscores, the others spaces.
FIELDS: dict[tuple[str, ...], tuple[str, Convert]] = {
    tuple(path.split("/")): (field, convert)
    for field, convert, paths in (
        ("name", str, ("product_name", "product name")),
        ("uuid", _uuid, ("uuid", "gpu uuid")),
        ("bdf", normalise, ("pci_bus_id", "pci/bus id")),
        ("device_id", _device_id, ("pci_device_id", "pci/device id")),
        ("subsystem_id", _pci_id, ("pci_sub_system_id", "pci/sub system id")),
        ("speed_gts", _generation, ("current_link_gen", "pcie generation/current")),
        ("max_speed_gts", _generation, ("max_link_gen", "pcie generation/max")),
        ("card_max_speed_gts", _generation, ("max_device_link_gen", "pcie generation/device max")),
        ("slot_max_speed_gts", _generation, ("max_host_link_gen", "pcie generation/host max")),
        ("width", _width, ("current_link_width", "link width/current")),
        ("max_width", _width, ("max_link_width", "link width/max")),
        ("utilisation_pct", _percent, ("utilization/gpu_util", "utilization/gpu")),
        ("pstate", _pstate, ("performance_state", "performance state")),
        ("fb_mib", _mib, ("fb_memory_usage/total", "fb memory usage/total")),
        ("bar1_mib", _mib, ("bar1_memory_usage/total", "bar1 memory usage/total")),
        ("persistence", _flag, ("persistence_mode", "persistence mode")),
        ("display_active", _flag, ("display_active", "display active")),
        ("mig_mode", _switch, ("mig_mode/current_mig", "mig mode/current")),
        ("virtualization", _virtualization, ("virtualization_mode", "gpu virtualization mode/virtualization mode")),
        ("remap_correctable", count, ("remapped_row_corr", "remapped rows/correctable error")),
        ("remap_uncorrectable", count, ("remapped_row_unc", "remapped rows/uncorrectable error")),
        ("remap_pending", _flag, ("remapped_row_pending", "remapped rows/pending")),
        ("remap_failed", _flag, ("remapped_row_failure", "remapped rows/remapping failure occurred")),
        ("retired_single", count, ("multiple_single_bit_retirement/retired_count", "retired pages/single bit ecc")),
        ("retired_double", count, ("double_bit_retirement/retired_count", "retired pages/double bit ecc")),
        # `blacklist` until 460, `retirement` beside it since; text kept the old words and some builds changed them.
        (
            "retired_pending",
            _flag,
            ("pending_retirement", "pending_blacklist", "retired pages/pending page blacklist", "retired pages/pending"),
        ),
        # `power_readings` until 525; the module readings of Grace boards have the same leaves and are not the GPU's.
        (
            "power_limit_w",
            _watts,
            (
                "power_readings/power_limit",
                "gpu_power_readings/power_limit",
                "gpu_power_readings/current_power_limit",
                "power readings/power limit",
                "gpu power readings/power limit",
                "gpu power readings/current power limit",
            ),
        ),
        (
            "power_default_w",
            _watts,
            (
                "power_readings/default_power_limit",
                "gpu_power_readings/default_power_limit",
                "power readings/default power limit",
                "gpu power readings/default power limit",
            ),
        ),
        (
            "power_max_w",
            _watts,
            (
                "power_readings/max_power_limit",
                "gpu_power_readings/max_power_limit",
                "power readings/max power limit",
                "gpu power readings/max power limit",
            ),
        ),
        ("replays", count, ("replay_counter", "replays since reset")),
        ("replay_rollovers", count, ("replay_rollover_counter", "replay number rollovers")),
        ("fabric_state", _word, ("fabric/state",)),
        ("fabric_status", _word, ("fabric/status",)),
        ("c2c", _flag, ("c2c_mode", "gpu c2c mode", "c2c mode")),
        ("recovery_action", _recovery, ("gpu_recovery_action", "gpu recovery action")),
    )
    for path in paths
}
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
_GROUPS = frozenset((*_THROTTLE, "volatile", "aggregate", "health"))
_LAST_REASON = "display_clocks_setting"
_UNCORRECTABLE = ("sram_uncorrectable", "sram uncorrectable", "dram_uncorrectable", "dram uncorrectable")


def _known(path: tuple[str, ...]) -> tuple[str, Convert] | None:
    return next((FIELDS[path[-n:]] for n in (2, 1) if path[-n:] in FIELDS), None)


def _whole(path: tuple[str, ...], value: str) -> bool:
    """Is a value at the very end of the input whole? A unit behind a number proves it, or a field of two words only."""
    known = _known(path)
    return known is not None and (known[1] in (_flag, _switch) and _flag(value) is not None or bool(_UNIT.match(value)))


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
        if cut and not _whole(path, value):
            return
        if _LOST.search(value) or (_SICK.match(value) and path[-1] in _VITAL):
            self._set("error", value, at())
        known = _known(path)
        # "Not Supported" is a state of the fabric, the absence of a value everywhere else.
        if _ABSENT.match(value) and not (known is not None and known[0] == "fabric_state" and value == "Not Supported"):
            return
        if known is not None:
            if known[0] not in self.values:
                self._set(known[0], known[1](value), at())
        elif not _GROUPS.isdisjoint(path):
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
            reason = re.sub(r"^clocks_(?:event|throttle)_reason_", "", leaf.replace(" ", "_"))
            reason = _REASONS.get(reason, reason)
            self._throttle.setdefault(reason, reading)
            self._throttle_whole = self._throttle_whole or reason == _LAST_REASON
        elif "health" in above and "fabric" in above:
            self._health.setdefault(leaf.replace(" ", "_"), reading)

    def build(self, index: int | None) -> Gpu:
        for era, readings in self._ecc.items():
            self._sum_ecc(era, readings)
        if self._throttle_whole and self._throttle:
            active = {name: r for name, r in self._throttle.items() if r.value.lower() == "active"}
            shown = next(iter(active.values()), next(iter(self._throttle.values())))
            self._set("throttle", tuple(active), shown.evidence)
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
            r for name, r in self._health.items() if name != "partition_assigned" and r.value.lower() not in sound
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
