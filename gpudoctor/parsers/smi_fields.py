"""The fields of `nvidia-smi -q`: where each stands in the text and in the XML, and how its value is read.

Both forms are the same tree under two vocabularies, and both renamed branches over the years (418 to 580): a field is
found by the last words of its path (`pcie_gen/current_link_gen`, `pcie generation/current`), so that an excerpt whose
outer headings are lost still reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudoctor.bdf import normalise
from gpudoctor.pattern import lazy

# GT/s per lane by PCIe generation (PCI Express Base Specification 6.0, 1.2).
GEN_GTS = {"1": 2.5, "2": 5.0, "3": 8.0, "4": 16.0, "5": 32.0, "6": 64.0}
_NUMBER = lazy(r"^(\d{1,12})(?:\.\d+)?\b")
_WATTS = lazy(r"^(\d{1,6}(?:\.\d+)?) W$")
_MIB = lazy(r"^(\d{1,12}) (?:MiB|MB)$")
_UNIT = lazy(r"^\d{1,2}x$|^\d[\d.]* (?:W|MiB|%)$")
_ID = lazy(r"^(?:0x)?([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})$")
_UUID = lazy(r"^GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
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
    return {"pass-through": "passthrough", "host vgpu": "host-vgpu", "host vsga": "host-vsga"}.get(
        value.lower(), value.lower()
    )


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
            (
                "pending_retirement",
                "pending_blacklist",
                "retired pages/pending page blacklist",
                "retired pages/pending",
            ),
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
        ("replays", count, ("replay_counter", "replays since reset")),
        ("replay_rollovers", count, ("replay_rollover_counter", "replay number rollovers")),
        ("fabric_state", _word, ("fabric/state",)),
        ("fabric_status", _word, ("fabric/status",)),
        ("c2c", _flag, ("c2c_mode", "gpu c2c mode", "c2c mode")),
        ("recovery_action", _recovery, ("gpu_recovery_action", "gpu recovery action")),
    )
    for path in paths
}


def known_field(path: tuple[str, ...]) -> tuple[str, Convert] | None:
    """Field and conversion for a path, by its last two names or its last."""
    return next((FIELDS[path[-n:]] for n in (2, 1) if path[-n:] in FIELDS), None)


def whole(path: tuple[str, ...], value: str) -> bool:
    """Is a value at the very end of the input whole? A unit behind a number proves it, or a field of two words only."""
    known = known_field(path)
    return known is not None and (known[1] in (_flag, _switch) and _flag(value) is not None or bool(_UNIT.match(value)))
