"""What DCGM's sentences say, as the facts that other sources give of the same thing.

Messages are those of dcgm_errors.h, releases 2.1 to 4.6. Tables break them in the middle of a word, so they are matched
without any blank. DCGM numbers GPUs as NVML does, which is nvidia-smi's order unless a GPU was detached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.bandwidth import HostCopies, HostCopy
from gpudoctor.facts.base import Fact
from gpudoctor.facts.gpu import Gpu, Gpus, LinkSample
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.topology import NvLink, NvLinkGpu, NvLinks
from gpudoctor.model import Evidence
from gpudoctor.pattern import lazy

_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
_MOST = 1024  # numbers of GPUs, links and lanes
_RETIRED = re.compile(r"(\d{1,6})ormoreretiredpageshavebeendetectedinGPU(\d{1,4})\D")
# Sentences about the GPU that the row names, or that they name themselves.
_GPU = r"GPU(?P<gpu>\d{1,4})"
_LINK_DOWN = lazy(r"GPU(?P<gpu>\d{1,4})'sNvLinklink(?P<link>\d{1,3})iscurrentlydown")
_XID = lazy(r"DetectedXID(?P<code>\d{1,5})forGPU(?P<gpu>\d{1,4})(?!\d)|GPUhadanuncontainederror\(XID(?P<contained>\d{1,5})\)")
_SXID = lazy(r"DetectedfatalNvSwitchSXID(?P<code>\d{1,6})(?!\d)")
_LINK_ERRORS = lazy(
    r"(?:Detected)?(?P<n>\d{1,18}(?:\.\d+)?)(?P<what>\w{1,80})NvLinkerrors(?:foundoccuringpersecond)?onGPU(?P<gpu>\d{1,4})"
    r"(?P<rest>'sNVLink(?:whichexceeds|\(shouldbe0\))|,exceedingthelimit)"
)
_BANDWIDTH = lazy(r"BandwidthofGPU(?P<gpu>\d{1,4})indirection(?P<way>d2h|h2d)of(?P<rate>\d{1,6}\.\d\d)didnotexceedminimum")
_WIDTH = lazy(r"GPU(?P<gpu>\d{1,4})isrunningatPCIlinkwidth(?P<n>\d{1,3})X,whichisbelowtheminimumallowedlink(?:generation|width)of(?P<least>\d{1,3})\(")
_GENERATION = lazy(r"GPU(?P<gpu>\d{1,4})isrunningatPCIlinkgeneration(?P<n>\d),whichisbelowtheminimumallowedlinkgenerationof(?P<least>\d)\(")
_REPLAYS = lazy(r"Detectedmorethan\d{1,6}PCIereplaysperminuteforGPU(?P<gpu>\d{1,4}):(?P<n>\d{1,12})(?!\d)")
# -> what is then known of the GPU; the number where the sentence has one.
_STATES: tuple[tuple[re.Pattern[str] | Any, str, Any], ...] = (
    (lazy(rf"Detected(?P<n>\d{{1,12}})volatiledouble-bitECCerror\(s\)in{_GPU}"), "ecc_uncorrectable_volatile", int),
    (lazy(rf"Detected(?P<n>\d{{1,12}})\w{{0,16}}dbe\w{{0,24}}for{_GPU}", re.I), "ecc_uncorrectable_volatile", int),
    (lazy(rf"{_GPU}ha[sd]uncorrectablememoryerrorsandrowremappingfailed"), "remap_failed", True),
    (lazy(rf"{_GPU}ha[sd](?:uncorrectable)?memoryerrorsandrowremappingsarepending"), "remap_pending", True),
    (lazy(rf"{_GPU}ha[sd]uncorrectablememoryerrorsand(?P<n>\d{{1,6}})rowswereremapped"), "remap_uncorrectable", int),
    (lazy(rf"{_GPU}exceededuncorrectablerowremaplimitwith(?P<n>\d{{1,6}})remappedrows"), "remap_uncorrectable", int),
    (lazy(r"ApendingretiredpagehasbeendetectedinGPU(?P<gpu>\d{1,4})"), "retired_pending", True),
    (lazy(r"PendingpageretirementstogetherwithaDBEweredetectedonGPU(?P<gpu>\d{1,4})"), "retired_pending", True),
    (lazy(rf"AcorruptInfoROMhasbeendetectedin{_GPU}"), "inforom_corrupted", True),
    (lazy(rf"(?:Thermalviolationstotaling|therewerethermalviolationstotaling)[\d.]{{1,16}}(?:seconds|samples)[\w.]{{0,60}}?for(?:the)?{_GPU}", re.I), "throttle", ("dcgm_thermal",)),
    (lazy(rf"Detectedclock(?:throttling|sevent)duetothermalviolationin{_GPU}"), "throttle", ("dcgm_thermal",)),
    (lazy(rf"Detectedclock(?:throttling|sevent)duetopowerviolationin{_GPU}"), "throttle", ("sw_power_cap",)),
    (lazy(rf"{_GPU}hasfallenoffthebus"), "error", "GPU has fallen off the bus"),
)  # fmt: skip


def squeezed(text: str) -> str:
    return "".join(text.split())


class Heard:
    """What the messages of one output say, gathered."""

    def __init__(self) -> None:
        self.gpus: dict[int, dict[str, Any]] = {}
        self.events: list[KernelEvent] = []
        self.down: dict[tuple[int, int], Evidence] = {}
        self.link_errors: dict[int, tuple[str, Evidence]] = {}
        self.copies: dict[int, dict[str, Any]] = {}

    def take(self, text: str, spot: Evidence) -> None:
        said = squeezed(text)
        for found in _LINK_DOWN.finditer(said):
            self.down.setdefault((int(found["gpu"]), int(found["link"])), spot)
        for found in _XID.finditer(said):
            gpu = int(found["gpu"]) if found["gpu"] else None
            code = int(found["code"] or found["contained"])
            self.events.append(KernelEvent(kind="xid", code=code, gpu=gpu, text=text.strip(), origin={"*": spot}))
        for found in _SXID.finditer(said):
            self.events.append(KernelEvent(kind="sxid", code=int(found["code"]), fatal=True, text=text.strip(), origin={"*": spot}))
        for found in _LINK_ERRORS.finditer(said):
            self.link_errors.setdefault(int(found["gpu"]), (" ".join(text.split()), spot))
        for found in _BANDWIDTH.finditer(said):
            field = "to_device_gbs" if found["way"] == "h2d" else "from_device_gbs"
            copy = self.copies.setdefault(int(found["gpu"]), {"origin": {"*": spot}})
            copy.setdefault(field, float(found["rate"]))
            copy["origin"].setdefault(field, spot)
        for found in _WIDTH.finditer(said):
            self._know(int(found["gpu"]), spot, width=int(found["n"]), max_width=int(found["least"]))
        for found in _GENERATION.finditer(said):
            now, least = _GTS.get(int(found["n"])), _GTS.get(int(found["least"]))
            if now is not None and least is not None:
                # It is read at full clocks, right after copies over the link.
                self._know(int(found["gpu"]), spot, speed_gts=now, max_speed_gts=least, samples=(LinkSample(speed_gts=now, width=None, busy=True),))
        for found in _REPLAYS.finditer(said):
            self._know(int(found["gpu"]), spot, replays=int(found["n"]), replays_before=0)
        for found in _RETIRED.finditer(said + "."):
            self._know(int(found[2]), spot, retired_single=int(found[1]), retired_double=0)
        for pattern, field, value in _STATES:
            for found in pattern.finditer(said):
                known = int(found["n"]) if value is int else value
                self._know(int(found["gpu"]), spot, **{field: known})

    def _know(self, gpu: int, spot: Evidence, **values: Any) -> None:
        known = self.gpus.setdefault(gpu, {"origin": {"*": spot}})
        for field, value in values.items():
            if field not in known:
                known[field] = value
                known["origin"][field] = spot

    def facts(self, device_ids: dict[int, tuple[str, Evidence]]) -> Iterator[Fact]:
        """device_ids: PCI device ids by GPU with where they stand, as far as the output tells."""
        for gpu, (device, spot) in device_ids.items():
            self.gpus.setdefault(gpu, {"origin": {"*": spot}})
            self._know(gpu, spot, device_id=device)
        entries = [Gpu(index=i, **values) for i, values in sorted(self.gpus.items()) if i < _MOST]
        if entries:
            yield Gpus(tuple(entries), complete=False)
        if self.down or self.link_errors:
            links = tuple(NvLink(gpu=g, link=n, active=False, origin={"*": spot}) for (g, n), spot in sorted(self.down.items()) if g < _MOST)
            about = [
                NvLinkGpu(gpu=g, elided=True, complaint=self.link_errors.get(g, (None,))[0], origin={"*": self._spot(g)})
                for g in sorted({*(g for g, _ in self.down), *self.link_errors})
            ]
            yield NvLinks(links, tuple(about))
        if self.copies:
            yield HostCopies(tuple(HostCopy(gpu=g, **values) for g, values in sorted(self.copies.items())))
        if self.events:
            yield KernelLog(tuple(self.events))

    def _spot(self, gpu: int) -> Evidence:
        if gpu in self.link_errors:
            return self.link_errors[gpu][1]
        return next(spot for (g, _), spot in self.down.items() if g == gpu)
