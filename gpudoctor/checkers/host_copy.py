"""GD803 host-copy-slow: pinned copies between host and GPU under what the PCIe link, or the other GPUs, give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from gpudoctor import pcie
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.bandwidth import HostCopies, HostCopy
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.median import median
from gpudoctor.model import CERTAIN, ERROR, WARNING, CannotTell, Cause, Finding, Gain, Step, Threshold

_PACKETS = "healthy links reach 78 to 87 % of the rate after line coding (Gen3 12.3, Gen5 55 GB/s); below is our choice"
WARN = Threshold("of the link's or the peers' rate: below is a warning", 0.70, "share", _PACKETS, "2026-11")
FAIL = Threshold("of the link's or the peers' rate: below is an error", 0.50, "share", _PACKETS, "2026-11")
HOST_COPY_SLOW = Cause(
    "GD803",
    "host-copy-slow",
    "Copies between host memory and a GPU are slow",
    "under 70 % of what the link or the peers give: warning; under 50 %: error",
    "A copy from pinned memory keeps the PCIe link busy, so its rate shows what the link really carries. It is held against "
    "generation times lanes of both ends, and against the other GPUs of the same part. Two GPUs that copy at once behind one narrow "
    "bridge share it. Memory on the other socket costs some of the rate, pageable memory far more: only pinned copies are judged. "
    "GPUs with NVLink-C2C do not copy over PCIe and are held against each other only.",
    "gpudoctor bandwidth, nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce",
    "Look at generation and lanes under load, the slot and the bridges above; bind the process to the GPU's NUMA node.",
    (WARN, FAIL),
)
_WAYS = (("to_device_gbs", "host to device"), ("from_device_gbs", "device to host"))


class HostCopySlow(BaseChecker):
    """Each GPU's copies against its link and against its peers."""

    name: ClassVar[str] = "host-copy"
    needs = (HostCopies,)
    wants = (Gpus, PciTree)
    causes = (HOST_COPY_SLOW,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus, tree = facts.get(Gpus), facts.get(PciTree)
        copies = _best(facts[HostCopies])
        for copy in copies:
            gpu = _gpu(copy, gpus)
            link, words = _link(copy, gpu, tree)
            worst: tuple[float, float, float, str, str] | None = None
            judged = False
            for field, way in _WAYS:
                rate: float | None = getattr(copy, field)
                if rate is None:
                    continue
                peers = _peers(copy, copies, field, gpus)
                for expected, by in ((link, words), (peers, "the other GPUs of this part")):
                    if expected:
                        judged = True
                        if worst is None or rate / expected < worst[0]:
                            worst = (rate / expected, rate, expected, way, by)
            if not judged:
                yield CannotTell(HOST_COPY_SLOW.slug, "neither its PCIe link's generation and lanes nor a peer of the same part is known", _subject(copy, gpu))
            elif worst is not None and worst[0] < WARN.value:
                yield _finding(copy, gpu, worst)


def _best(copies: Iterable[HostCopy]) -> tuple[HostCopy, ...]:
    """One a GPU, its fastest: what the link did once it can do, and a slower run had something else in its way."""
    out: dict[str, HostCopy] = {}
    for copy in copies:
        known = out.get(copy.subject)
        if known is None or _fastest(copy) > _fastest(known):
            out[copy.subject] = copy
    return tuple(out.values())


def _fastest(copy: HostCopy) -> float:
    return max((rate for rate in (copy.to_device_gbs, copy.from_device_gbs) if rate is not None), default=0.0)


def _gpu(copy: HostCopy, gpus: Gpus | None) -> Gpu | None:
    if gpus is None:
        return None
    return gpus.by_bdf(copy.bdf) or (gpus.by_index(copy.gpu) if copy.bdf is None and copy.gpu is not None else None)


def _subject(copy: HostCopy, gpu: Gpu | None) -> str:
    return gpu.subject if gpu is not None else copy.subject


def _link(copy: HostCopy, gpu: Gpu | None, tree: PciTree | None) -> tuple[float | None, str]:
    """What the link could carry by both its ends, else by what it ran at during the copy."""
    if gpu is not None and gpu.c2c:
        return None, ""
    speeds = [gpu.max_speed_gts if gpu is not None else None]
    widths = [gpu.max_width if gpu is not None else None]
    for port in tree.ancestors(gpu.bdf)[:1] if tree is not None and gpu is not None else ():
        if not port.virtual:
            speeds.append(port.max_speed_gts)
            widths.append(port.max_width)
    speed = min((s for s in speeds if s is not None), default=copy.speed_gts)
    width = min((w for w in widths if w is not None), default=copy.width)
    return pcie.gbs(speed, width), f"PCIe {pcie.name(speed, width)}"


def _peers(copy: HostCopy, copies: tuple[HostCopy, ...], field: str, gpus: Gpus | None) -> float | None:
    """The median of the other GPUs of the same part; None without one."""
    part = _part(copy, gpus)
    rates = [getattr(c, field) for c in copies if c is not copy and part is not None and _part(c, gpus) == part]
    known = [r for r in rates if r is not None]
    return median(known) if known else None


def _part(copy: HostCopy, gpus: Gpus | None) -> str | None:
    gpu = _gpu(copy, gpus)
    return (gpu.device_id or gpu.name if gpu is not None else None) or copy.name


def _near(gpu: Gpu | None) -> str:
    """What binds a command to the GPU's node; nothing where the node is not known."""
    return f"numactl --cpunodebind={gpu.numa_node} " if gpu is not None and gpu.numa_node is not None else ""


def _finding(copy: HostCopy, gpu: Gpu | None, worst: tuple[float, float, float, str, str]) -> Finding:
    share, rate, expected, way, by = worst
    subject = _subject(copy, gpu)
    who = gpu.label if gpu is not None else subject.replace(":", " ", 1)
    index = gpu.index if gpu is not None else copy.gpu
    pick = f" -i {index}" if index is not None else ""
    trained = f" The link ran at {pcie.name(copy.speed_gts, copy.width)} meanwhile." if copy.speed_gts or copy.width else ""
    field = "to_device_gbs" if way.startswith("host") else "from_device_gbs"
    width = (gpu.at("max_width"),) if gpu is not None and gpu.max_width else ()
    return Finding(
        HOST_COPY_SLOW.slug,
        ERROR if share < FAIL.value else WARNING,
        subject,
        f"Pinned copies {way} of {who} run at {rate:.3g} GB/s, {100 * share:.0f} % of the {expected:.3g} GB/s of {by}.{trained}",
        (copy.at(field), *width),
        CERTAIN,
        f"{pcie.amount(rate)} of {pcie.amount(expected)} GB/s",
        (
            Step("See generation and lanes while a copy runs, and what slows the clocks", f"nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max --format=csv{pick}"),
            Step("Let gpudoctor look at slot, bridges and NUMA node", "gpudoctor check --select pcie-width,pcie-speed,slot-width,slot-speed,pcie-upstream,chipset-slot,iommu,throttled"),
            Step("Measure again from the GPU's own NUMA node, with nothing else running", f"{_near(gpu)}gpudoctor bandwidth", verify="nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce"),
        ),
        Gain(round(rate, 1), round(expected, 1), "GB/s"),
    )  # fmt: skip
