"""JSON of the `nvml` child probe to Gpus, Driver, NvLinks and Pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor import bdf as address
from gpudoctor.cpulist import from_words
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus, LinkSample
from gpudoctor.model import Evidence
from gpudoctor.parsers.nvml_links import MAX_GPUS, links, pairs
from gpudoctor.parsers.probe_json import document, number, rows, table, tables, text, whole
from gpudoctor.read.section import Section, Unparsable

# GT/s per lane by PCIe generation (PCI Express Base Specification 6.0).
_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
# Bytes per second and lane that are left of it after line coding (8b/10b, 128b/130b, FLIT mode).
_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
# Our choice: traffic of a fifth of what the link can carry as it is now. No reading of an idle link comes near it.
_BUSY_SHARE = 0.2
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
_FABRIC = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
_SUMMARY = {1: "healthy", 2: "unhealthy", 3: "limited capacity"}
# Bits of the fabric's health mask that are a fault when their pair reads 1 (nvml.h, nvmlGpuFabricInfo_v2_t).
_HEALTH = (
    (0, "degraded bandwidth"),
    (2, "route recovery in progress"),
    (4, "route unhealthy"),
    (6, "access timeout recovery"),
)
_CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
_REASONS = (
    (0x1, "idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clocks_setting"),
)
_MIB = 1 << 20


def parse(section: Section) -> Iterator[Fact | Loss]:
    said = document(section, "gpudoctor.nvml")
    if not isinstance(said.get("gpus"), list):
        raise Unparsable("no list of GPUs from NVML")
    listed = {}
    for place, about in tables(said["gpus"]):
        index = whole(about.get("index"), MAX_GPUS)
        if index is None or index in listed:
            yield Loss("a GPU from NVML", f"entry {place} of {section.source} has no index of its own")
            continue
        listed[index] = about
    for what in filter(None, map(text, rows(said.get("skipped"))[:MAX_GPUS])):
        yield Loss(f"NVML's answer on {what}", "the driver answers, but too slowly to ask it everything")
    gpus = tuple(_gpu(section, index, about) for index, about in listed.items())
    count = whole(said.get("count"), MAX_GPUS)
    yield Gpus(gpus, complete=count is not None and count == len(gpus), attached=count)
    yield Driver(_driver(section, said))
    found = links(section, listed)
    yield found
    yield pairs(section, said, listed, found)


def _driver(section: Section, said: dict[str, Any]) -> DriverEntry:
    cuda = whole(said.get("cuda_version"), 1_000_000)
    version = text(said.get("driver_version"))
    return DriverEntry(
        version=version,
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        origin={
            "*": section.spot("driver_version", version),
            "cuda_version": section.spot("cuda_version", cuda),
        },
    )


class _Reader:
    """Values of one GPU's object, each with its evidence noted as it is taken."""

    def __init__(self, section: Section, index: int, said: dict[str, Any]) -> None:
        self.said = said
        self._section = section
        self._place = f"gpus[{index}]"
        self.origin: dict[str, Evidence] = {"*": section.spot(self._place, text(said.get("bus_id")) or f"GPU {index}")}

    def note(self, field: str, key: str, shown: object = None) -> None:
        value = self.said.get(key) if shown is None else shown
        self.origin[field] = self._section.spot(f"{self._place}.{key}", text(value) or value)

    def count(self, field: str, key: str, most: int = 1 << 62) -> int | None:
        value = whole(self.said.get(key), most)
        if value is not None:
            self.note(field, key, value)
        return value

    def switch(self, field: str, key: str) -> bool | None:
        value = self.count(field, key, 1)
        return None if value is None else bool(value)

    def word(self, field: str, key: str) -> str | None:
        value = text(self.said.get(key))
        if value is not None:
            self.note(field, key)
        return value

    def named(self, field: str, key: str, names: dict[int, str]) -> str | None:
        value = self.count(field, key)
        return None if value is None else names.get(value)

    def share(self, field: str, key: str, divisor: int) -> int | None:
        value = self.count(field, key)
        return None if value is None else value // divisor

    def watts(self, field: str, key: str) -> float | None:
        value = self.count(field, key, 10_000_000)
        return value / 1000 if value else None


def _gpu(section: Section, index: int, said: dict[str, Any]) -> Gpu:
    at = _Reader(section, index, said)
    samples, speed, width = _samples(at)
    node, node_list = _memory_node(at)
    affinity = _words(said.get("cpu_affinity"))
    if affinity:
        at.note("cpu_affinity", "cpu_affinity", affinity)
    remapped = [whole(n) for n in rows(said.get("remapped_rows"))]
    remapped = remapped if len(remapped) == 4 else [None] * 4
    for field in ("remap_correctable", "remap_uncorrectable", "remap_pending", "remap_failed"):
        at.note(field, "remapped_rows")
    state, status, health = _fabric(at)
    c2c = at.count("c2c", "c2c_links", 1024)
    return Gpu(
        index=index,
        bdf=_bus_id(at.word("bdf", "bus_id")),
        uuid=at.word("uuid", "uuid"),
        name=at.word("name", "name"),
        device_id=_ids(at.count("device_id", "pci_device_id")),
        subsystem_id=_ids(at.count("subsystem_id", "pci_subsystem_id") or None),
        numa_node=node,
        numa_list=node_list,
        cpu_affinity=affinity,
        speed_gts=speed,
        max_speed_gts=_GTS.get(at.count("max_speed_gts", "pcie_max_generation") or 0),
        card_max_speed_gts=_GTS.get(at.count("card_max_speed_gts", "pcie_gpu_max_generation") or 0),
        width=width,
        max_width=_lanes(at.count("max_width", "pcie_max_width")),
        samples=samples or None,
        utilisation_pct=at.count("utilisation_pct", "utilisation_pct", 100),
        pstate=at.count("pstate", "performance_state", 15),
        fb_mib=at.share("fb_mib", "fb_bytes", _MIB),
        bar1_mib=at.share("bar1_mib", "bar1_bytes", _MIB),
        persistence=at.switch("persistence", "persistence"),
        display_active=at.switch("display_active", "display_active"),
        mig_mode=at.named("mig_mode", "mig_mode", {0: "disabled", 1: "enabled"}),
        virtualization=at.named("virtualization", "virtualization_mode", _VIRTUALIZATION),
        ecc_uncorrectable_volatile=at.count("ecc_uncorrectable_volatile", "ecc_uncorrected_volatile"),
        ecc_uncorrectable_aggregate=at.count("ecc_uncorrectable_aggregate", "ecc_uncorrected_aggregate"),
        remap_correctable=remapped[0],
        remap_uncorrectable=remapped[1],
        remap_pending=None if remapped[2] is None else remapped[2] > 0,
        remap_failed=None if remapped[3] is None else remapped[3] > 0,
        retired_single=at.count("retired_single", "retired_single_bit"),
        retired_double=at.count("retired_double", "retired_double_bit"),
        retired_pending=at.switch("retired_pending", "retired_pending"),
        throttle=_throttle(at),
        power_limit_w=at.watts("power_limit_w", "power_limit_mw"),
        power_default_w=at.watts("power_default_w", "power_default_mw"),
        replays=at.count("replays", "pcie_replays"),
        replay_rollovers=at.count("replay_rollovers", "pcie_replay_rollovers"),
        fabric_state=state,
        fabric_status=status,
        fabric_health=health,
        c2c=None if c2c is None else c2c > 0,
        error=at.word("error", "error"),
        origin=at.origin,
    )


def _bus_id(value: str | None) -> str | None:
    return address.normalise(value) if value and len(value) < 32 else None


def _ids(packed: int | None) -> str | None:
    """NVML packs device and vendor in one number, device first: 0x233510DE is 10de:2335."""
    if packed is None or packed >= 1 << 32:
        return None
    return f"{packed & 0xFFFF:04x}:{packed >> 16:04x}"


def _lanes(value: int | None) -> int | None:
    return value if value in _WIDTHS else None


def _words(value: Any) -> str | None:
    """NVML's affinity masks, 64 bits a word; an all-zero mask says nothing."""
    words = [whole(word, (1 << 64) - 1) for word in rows(value)]
    if not words or len(words) > 256:
        return None
    known = [word for word in words if word is not None]
    return from_words(known) or None if len(known) == len(words) else None


def _memory_node(at: _Reader) -> tuple[int | None, str | None]:
    """The CPU node beside the GPU. One bit is a node; several are what the driver says where it knows no single one."""
    nodes = _words(at.said.get("memory_affinity"))
    if nodes is None:
        return None, None
    field = "numa_node" if nodes.isdigit() else "numa_list"
    at.note(field, "memory_affinity", nodes)
    return (int(nodes), None) if nodes.isdigit() else (None, nodes)


def _samples(at: _Reader) -> tuple[tuple[LinkSample, ...], float | None, int | None]:
    """The readings, and of them the best: a link that was seen faster can go faster."""
    out: list[LinkSample] = []
    best: tuple[float, int] = (0.0, 0)
    before: dict[str, Any] = {}
    for place, said in tables(at.said.get("samples")):
        if place >= 16:
            break
        generation, width = whole(said.get("generation")) or 0, _lanes(whole(said.get("width")))
        speed = _GTS.get(generation)
        if speed is not None or width is not None:
            out.append(LinkSample(speed_gts=speed, width=width, busy=_busy(said, before, generation, width)))
        if (speed or 0.0, width or 0) > best:
            best = (speed or 0.0, width or 0)
            at.note("speed_gts", f"samples[{place}].generation", generation)
            at.note("width", f"samples[{place}].width", width)
        before = said
    shown = ", ".join(f"{s.speed_gts:g} GT/s x{s.width}{' busy' if s.busy else ''}" for s in out if s.speed_gts)
    at.note("samples", "samples", shown or "none")
    return tuple(out), best[0] or None, best[1] or None


def _busy(said: dict[str, Any], before: dict[str, Any], generation: int, width: int | None) -> bool | None:
    """Did the link carry much of what it can, by the bytes counted since the reading before?"""
    lane = _LANE_BYTES.get(generation)
    if lane is None or width is None:
        return None
    limit = _BUSY_SHARE * lane * width
    rates = [number(said.get(key)) for key in ("tx_kbs", "rx_kbs")]
    known = [rate * 1000 for rate in rates if rate is not None]
    now, then = number(said.get("at_s")), number(before.get("at_s"))
    if now is not None and then is not None and now - then > 0.001:
        for key in ("tx_bytes", "rx_bytes"):
            new, old = number(said.get(key)), number(before.get(key))
            if new is not None and old is not None and new >= old:
                known.append((new - old) / (now - then))
    # One direction is enough: a copy to the host leaves the other idle.
    return any(rate >= limit for rate in known) if known else None


def _throttle(at: _Reader) -> tuple[str, ...] | None:
    value = at.count("throttle", "clocks_event_reasons")
    if value is None:
        return None
    at.note("throttle", "clocks_event_reasons", f"{value:#x}")
    return tuple(name for bit, name in _REASONS if value & bit)


def _fabric(at: _Reader) -> tuple[str | None, str | None, str | None]:
    said = table(at.said.get("fabric"))
    level = whole(said.get("state"), 16)
    state = None if level is None else _FABRIC.get(level)
    if state is None:
        return None, None, None
    at.note("fabric_state", "fabric.state", state)
    if state == "not supported":
        return state, None, None
    code = whole(said.get("status"), 10_000)
    status = "success" if code == 0 else (text(said.get("status_text")) or f"error {code}").lower() if code else None
    at.note("fabric_status", "fabric.status", status)
    mask, summary = whole(said.get("health_mask"), 1 << 32), _SUMMARY.get(whole(said.get("health_summary"), 16) or 0)
    bad = [words for shift, words in _HEALTH if (mask or 0) >> shift & 3 == 1]
    bad += filter(None, [_CONFIGURATION.get((mask or 0) >> 8 & 0xF)])
    health = ", ".join(bad) or summary or ("healthy" if mask else None)
    at.note("fabric_health", "fabric.health_mask", f"{mask or 0:#x}")
    return state, status, health
