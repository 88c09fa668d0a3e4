"""`nvidia-smi --query-gpu=… --format=csv` to Gpus and Driver.

Only with its header, or with the echoed command that asked for `noheader`: else the columns would be a guess. Any choice
and order of columns is read; repeated rows of one GPU (`-l`) become its samples. Rows that name no GPU are counted where
the command asked for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus, LinkSample
from gpudoctor.parsers.smi_failure import failures
from gpudoctor.parsers.smi_fields import FIELDS, bare
from gpudoctor.read.section import Line, Section, Unparsable

_ASKED = re.compile(r"--query-(?:gpu|remapped-rows|retired-pages)[= ][\"']?([a-z][\w.]*(?:,[a-z][\w.]*)*)")
# With these the rows are not all GPUs in their order, each once.
_CHOSEN = re.compile(r"\s(?:-i|--id|-l|--loop|-lms|--loop-ms)(?:[\s=\d]|$)")
_COLUMN = re.compile(r"^([a-z][a-z0-9_.]*)(?: \[([^\]]*)\])?$")
# Column -> the name that `-q -x` has for the same reading, whose conversion then serves both.
_AS_XML: dict[str, tuple[str, ...]] = {
    "name": ("product_name",), "gpu_name": ("product_name",), "uuid": ("uuid",), "gpu_uuid": ("uuid",),
    "pci.bus_id": ("pci_bus_id",), "gpu_bus_id": ("pci_bus_id",),
    "pci.device_id": ("pci_device_id",), "pci.sub_device_id": ("pci_sub_system_id",),
    "pcie.link.gen.current": ("current_link_gen",), "pcie.link.gen.gpucurrent": ("current_link_gen",),
    "pcie.link.gen.max": ("max_link_gen",), "pcie.link.gen.gpumax": ("max_device_link_gen",),
    "pcie.link.gen.hostmax": ("max_host_link_gen",),
    "pcie.link.width.current": ("current_link_width",), "pcie.link.width.max": ("max_link_width",),
    "pstate": ("performance_state",), "persistence_mode": ("persistence_mode",), "display_active": ("display_active",),
    "mig.mode.current": ("mig_mode", "current_mig"), "fabric.state": ("fabric", "state"), "fabric.status": ("fabric", "status"),
    "memory.total": ("fb_memory_usage", "total"), "utilization.gpu": ("utilization", "gpu_util"),
    "power.limit": ("power_readings", "power_limit"), "enforced.power.limit": ("power_readings", "power_limit"),
    "power.default_limit": ("power_readings", "default_power_limit"), "power.max_limit": ("power_readings", "max_power_limit"),
    "retired_pages.single_bit_ecc.count": ("multiple_single_bit_retirement", "retired_count"),
    "retired_pages.double_bit.count": ("double_bit_retirement", "retired_count"),
    "retired_pages.sbe": ("multiple_single_bit_retirement", "retired_count"),
    "retired_pages.dbe": ("double_bit_retirement", "retired_count"),
    "retired_pages.pending": ("pending_retirement",),
    "remapped_rows.correctable": ("remapped_row_corr",), "remapped_rows.uncorrectable": ("remapped_row_unc",),
    "remapped_rows.pending": ("remapped_row_pending",), "remapped_rows.failure": ("remapped_row_failure",),
}  # fmt: skip
_COUNTS = {
    "index": "index",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrectable_volatile",
    "ecc.errors.uncorrected.aggregate.total": "ecc_uncorrectable_aggregate",
}
# Bits of nvmlClocksEventReason* (nvml.h), as `clocks_event_reasons.active` prints them.
_REASONS = {
    0x1: "idle", 0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_clocks_setting",
}  # fmt: skip
_REASON_COLUMNS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
_LOST = re.compile(r"GPU is lost|GPU requires reset|fallen off the bus", re.I)


def parse(section: Section) -> Iterator[Fact | Loss]:
    yield from failures(section)
    lines = [line for line in section if line.text.strip()]
    if not lines:
        raise Unparsable(f"{section.source}: an empty table")
    command = section.command or ""
    typed = "--query-gpu" in lines[0].text
    if typed:  # the section begins with the command that asked for no header
        command = lines.pop(0).text
        if not lines:
            raise Unparsable(f"{section.source}: no row below the command that asks nvidia-smi for them")
    columns = [_COLUMN.match(c.strip()) for c in lines[0].text.split(",")]
    asked = _ASKED.search(command)
    if not lines[0].cut and all(columns) and not typed:
        names = [(c[1], c[2]) for c in columns if c]
        del lines[0]
    elif asked and "noheader" in command:
        names = [(name, None) for name in asked[1].split(",")]
    else:
        raise Unparsable(f"{section.source}: rows of nvidia-smi without a readable header; the command above them or `--format=csv` names the columns")
    rows: list[dict[str, Any]] = []
    for line in lines:
        cells = [cell.strip() for cell in line.text.split(",")]
        if line.cut:
            cells = cells[:-1]  # the last value may go on
        elif len(cells) != len(names):
            yield Loss("a row of nvidia-smi's table", f"{len(cells)} of {len(names)} columns ({section.source}, line {line.number})")
            continue
        if cells:
            rows.append(_row(section, line, names, cells))
    if typed and not _CHOSEN.search(command) and not any({"bdf", "uuid", "index"} & r.keys() for r in rows):
        for place, row in enumerate(rows):  # nvidia-smi lists every GPU in the order of its index
            row["index"] = place
    version = next((r["driver"] for r in rows if r.get("driver")), None)
    if version:
        yield Driver(DriverEntry(version=version[0], origin={"*": version[1]}))
    gpus = _gathered([{k: v for k, v in r.items() if k != "driver"} for r in rows])
    if gpus:
        # `-i` or a cut may leave GPUs out, and the header does not say.
        yield Gpus(gpus, complete=False, attached=_attached(rows))


def _attached(rows: list[dict[str, Any]]) -> int | None:
    return next((r["count"] for r in rows if r.get("count")), None)


def _row(section: Section, line: Line, names: list[tuple[str, str | None]], cells: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"origin": {"*": section.at(line)}}
    for (name, unit), cell in zip(names, cells, strict=False):
        value = bare(cell)
        if unit and re.match(r"^[\d.]+$", value):
            value = f"{value} {unit}"  # `nounits` moves the unit into the header
        if _LOST.search(value):
            found["error"] = value
        elif name == "driver_version" and value[:1].isdigit():
            found["driver"] = (value, section.at(line))
        elif name in _COUNTS and value.isdigit():
            found[_COUNTS[name]] = int(value)
        elif name == "count" and value.isdigit():
            found["count"] = int(value)
        elif name in _REASON_COLUMNS and re.match(r"^0x[0-9A-Fa-f]+$", value):
            found["throttle"] = tuple(word for bit, word in _REASONS.items() if int(value, 16) & bit)
        elif (name, value) == ("fabric.status", "Unknown Error") or name in _AS_XML and not value.lower().startswith(
            ("n/a", "not ", "unknown", "err!", "insufficient", "requested")
        ):
            field, convert = FIELDS[_AS_XML[name]]
            found[field] = convert(value)
    return {k: v for k, v in found.items() if v is not None}


def _gathered(rows: list[dict[str, Any]]) -> tuple[Gpu, ...]:
    """Rows of one GPU become one entry: the first row's values, all rows' links as samples."""
    by_key: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        key = next((row[k] for k in ("bdf", "uuid", "index") if k in row), None)
        if key is not None:
            by_key.setdefault(key, []).append(row)
    gpus = []
    for seen in by_key.values():
        values = {k: v for k, v in seen[0].items() if k != "count"}
        lost = next((r for r in seen if "error" in r), None)
        if lost is not None:  # it was there when the loop began
            values["error"] = lost["error"]
            values["origin"] = {**values["origin"], "error": lost["origin"]["*"]}
        if len(seen) > 1 and "width" in values:
            values["samples"] = tuple(LinkSample(speed_gts=r.get("speed_gts"), width=r.get("width")) for r in seen)
        gpus.append(Gpu(**values))
    return tuple(gpus)
