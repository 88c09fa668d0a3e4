"""What the driver says of each GPU (nvidia-smi, NVML), and of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from gpudoctor.facts.base import Contradiction, Entry, Fact, merge_entry
from gpudoctor.record import KeyedRecord, replace


class LinkSample(KeyedRecord):
    """One reading of a GPU's PCIe link. `busy` is True only where traffic was proven at that moment."""

    speed_gts: float | None
    width: int | None
    busy: bool | None = None


class Gpu(Entry):
    """One GPU. `index` is nvidia-smi's; None where a source names only the address (lspci) or shows a part of the list."""

    STABLE: ClassVar[tuple[str, ...]] = ("bdf", "device_id", "numa_node", "max_width", "mig_mode")

    index: int | None = None
    bdf: str | None = None
    uuid: str | None = None
    name: str | None = None
    device_id: str | None = None  # "10de:2335"
    subsystem_id: str | None = None
    numa_node: int | None = None  # a CPU node; -1 is None
    numa_list: str | None = None  # the column as printed when it is a list (GB200: memory nodes of GPUs)
    cpu_affinity: str | None = None  # list text as printed, "0-51,104-155"
    # The card's own link as the driver reports it. GT/s per lane: 2.5 5 8 16 32 64 are Gen1 to Gen6.
    speed_gts: float | None = None
    max_speed_gts: float | None = None  # of card and slot together
    card_max_speed_gts: float | None = None
    slot_max_speed_gts: float | None = None
    width: int | None = None
    max_width: int | None = None
    samples: tuple[LinkSample, ...] | None = None
    utilisation_pct: int | None = None
    pstate: int | None = None
    fb_mib: int | None = None
    bar1_mib: int | None = None
    persistence: bool | None = None
    display_active: bool | None = None
    mig_mode: str | None = None  # "enabled", "disabled"
    virtualization: str | None = None  # "passthrough", "vgpu", "host-vgpu", "none", as nvidia-smi says, lower case
    # Memory health. None is "not supported or not shown", 0 is a reading.
    ecc_uncorrectable_volatile: int | None = None
    ecc_uncorrectable_aggregate: int | None = None
    remap_correctable: int | None = None
    remap_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_single: int | None = None
    retired_double: int | None = None
    retired_pending: bool | None = None
    inforom_corrupted: bool | None = None
    # Active clock event (throttle) reasons: hw_thermal, hw_power_brake, hw_slowdown, sw_thermal, sw_power_cap, idle, …
    throttle: tuple[str, ...] | None = None
    # The weightier of them one by one: an excerpt may show a reason and break off before the list ends.
    hw_slowdown: bool | None = None
    hw_thermal: bool | None = None
    hw_power_brake: bool | None = None
    sw_thermal: bool | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    replays: int | None = None
    replay_rollovers: int | None = None
    replays_before: int | None = None  # an earlier reading of the same look
    fabric_state: str | None = None  # "completed", "in progress", "not started", "not supported", lower case
    fabric_status: str | None = None  # "success", or an error's words
    fabric_health: str | None = None
    c2c: bool | None = None  # NVLink-C2C to a Grace CPU: PCIe is then not the path to the host
    recovery_action: str | None = None  # what the driver asks for: "reset", "reboot", "drain and reset"; None: nothing
    error: str | None = None  # the driver's words when the GPU does not answer ("GPU is lost", "Unable to determine …")

    @property
    def subject(self) -> str:
        """`gpu:0000:41:00.0`, `gpu:3` where only the index is known, `gpu:?` where an excerpt does not name the GPU."""
        return f"gpu:{self.bdf or ('?' if self.index is None else self.index)}"

    @property
    def unnamed(self) -> bool:
        """An excerpt gives values of some GPU: not known which, perhaps one that other outputs name."""
        return self.bdf is None and self.index is None

    @property
    def option(self) -> str:
        """For `nvidia-smi -i`; a stand-in to fill in where an excerpt does not name the GPU."""
        return self.bdf or ("GPU-ADDRESS" if self.index is None else str(self.index))

    @property
    def label(self) -> str:
        """For a reader: `GPU3 (0000:41:00.0)`."""
        if self.index is None:
            return "a GPU that the excerpt does not name" if self.bdf is None else f"the GPU at {self.bdf}"
        return f"GPU{self.index} ({self.bdf})" if self.bdf else f"GPU{self.index}"

    @property
    def opening(self) -> str:
        """The label as a sentence begins with it."""
        return self.label[0].upper() + self.label[1:]


def _join(gpus: list[Gpu], say: Callable[[Contradiction], None]) -> list[Gpu]:
    """One entry per GPU: the same address, UUID or index is the same GPU."""
    out: list[Gpu] = []
    for gpu in gpus:
        for place, known in enumerate(out):
            same = [
                (a, b)
                for a, b in ((known.bdf, gpu.bdf), (known.uuid, gpu.uuid), (known.index, gpu.index))
                if a is not None and b is not None
            ]
            # The strongest key both have decides: two lists may number differently, an address is an address.
            if same and same[0][0] == same[0][1]:
                if gpu.name and known.name and known.name.endswith("..."):
                    known = replace(known, name=None)  # as the plain table shortens it
                out[place] = merge_entry(known, gpu, known.label, say)
                break
        else:
            out.append(gpu)
    return out


class Gpus(Fact):
    """The GPUs the driver lists. `complete` is False when the source was cut or elided, so absence proves nothing."""

    label: ClassVar[str] = "the list of GPUs"
    hint: ClassVar[str | None] = "nvidia-smi -q -x"

    gpus: tuple[Gpu, ...]
    complete: bool = True
    attached: int | None = None  # "Attached GPUs": the driver's own count

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self.gpus)

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def listed(self) -> tuple[Gpu, ...]:
        """Those the driver itself names: a list that only the bus gave has neither index nor UUID."""
        return tuple(g for g in self.gpus if g.index is not None or g.uuid is not None)

    def by_index(self, index: int) -> Gpu | None:
        return next((g for g in self.gpus if g.index == index), None)

    def by_bdf(self, bdf: str | None) -> Gpu | None:
        return next((g for g in self.gpus if bdf is not None and g.bdf == bdf), None)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Gpus:
        gpus = [g for part in parts for g in part.gpus]
        # Twice: a source that has both index and address may come after two that have one each.
        joined = _join(_join(gpus, say), say)
        joined.sort(key=lambda g: (g.index is None, g.index or 0, g.bdf or ""))
        attached = next((p.attached for p in parts if p.attached is not None), None)
        return Gpus(tuple(joined), any(p.complete for p in parts), attached)

    def with_gpus(self, gpus: tuple[Gpu, ...]) -> Gpus:
        return replace(self, gpus=gpus)


class DriverEntry(Entry):
    """Versions of the driver's parts; `failure` where it gave none."""

    STABLE: ClassVar[tuple[str, ...]] = ("version", "cuda_version")

    version: str | None = None  # user space: nvidia-smi, libnvidia-ml
    module_version: str | None = None  # /proc/driver/nvidia/version or /sys/module/nvidia/version
    cuda_version: str | None = None  # the newest CUDA this driver serves
    open_module: bool | None = None
    failure: str | None = None  # nvidia-smi's or NVML's words when the driver did not answer


class Driver(Fact):
    """Driver, kernel module and CUDA versions, and the driver's own words when it does not answer."""

    label: ClassVar[str] = "the driver's version"
    hint: ClassVar[str | None] = "nvidia-smi -q -x"

    entry: DriverEntry

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Driver:
        entry = parts[0].entry
        for part in parts[1:]:
            entry = merge_entry(entry, part.entry, "driver", say)
        return Driver(entry)
