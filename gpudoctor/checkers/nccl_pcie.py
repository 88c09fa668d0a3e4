"""NCCL's view of a GPU's PCIe link against the link that trained.

NCCL reads what card and slot could do (its topology dump until 2.30.7, and its plans after it), so a link that trained
lower is overrated: rings are planned over it and too much is expected of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor import pcie
from gpudoctor.checkers.pcie_link import SPEED, WIDTH
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.nccl import Nccl, bdf_of
from gpudoctor.facts.store import FactView
from gpudoctor.model import LIKELY, NOTE, POSSIBLE, WARNING, Evidence, Finding, Step
from gpudoctor.record import replace

# GB/s that NCCL counts for one lane, by GT/s (graph/topo.cc: 60, 120, 240, … over 80).
_PER_LANE = {2.5: 0.1875, 5.0: 0.375, 8.0: 0.75, 16.0: 1.5, 32.0: 3.0, 64.0: 6.0}
_SAME = 0.99  # printed with one digit


def overrated(nccl: Nccl, facts: FactView) -> Iterator[Finding]:
    """Each GPU once, of whichever host."""
    told: set[tuple[FactView, str]] = set()
    for proc in nccl.procs:
        home = facts.on(proc.host)
        gpus = home.get(Gpus)
        for bus, assumed in proc.pcie.items() if gpus is not None else ():
            gpu = gpus.by_bdf(bdf_of(bus)) if gpus is not None else None
            if gpu is None or (home, gpu.label) in told:
                continue
            told.add((home, gpu.label))
            spot = proc.at("pcie") if facts.several else nccl.seen.get(f"pcie {bus}") or proc.at("pcie")
            for found in _of(gpu, assumed, spot):
                yield replace(found, host=home.host) if facts.several else found


def _of(gpu: Gpu, assumed: float, spot: Evidence) -> Iterator[Finding]:
    now = _counted(gpu.speed_gts, gpu.width)
    best = _counted(gpu.max_speed_gts or gpu.speed_gts, gpu.width)
    if now is None or best is None or now >= assumed * _SAME:
        return
    subject = f"gpu:{gpu.bdf}" if gpu.bdf else f"gpu:{gpu.index}"
    link = pcie.name(gpu.speed_gts, gpu.width)
    if best < assumed * _SAME:
        known = gpu.max_width is not None and gpu.width is not None and gpu.width < gpu.max_width
        yield Finding(
            WIDTH.slug, NOTE if known else WARNING, subject,
            f"NCCL assumes {assumed:g} GB/s for the PCIe link of {gpu.label}, which is what card and slot could do, but the link trained at {link}: "
            f"at most {best:g} GB/s by the same count. Its plan and the bandwidth that it expects are too high for this GPU.",
            (spot, gpu.at("width")), LIKELY, None if known else f"at most {best:g} instead of {assumed:g} GB/s",
            (Step("Reseat the card and look at the slot's wiring and bifurcation", f"sudo lspci -vv -s {gpu.bdf or 'BDF'} | grep -E 'LnkCap|LnkSta'"),),
        )  # fmt: skip
    else:
        yield Finding(
            SPEED.slug, NOTE, subject,
            f"NCCL assumes {assumed:g} GB/s for the PCIe link of {gpu.label}; when it was read the link stood at {link}, {now:g} GB/s by the same count. "
            "An idle link slows down; read it under load.",
            (spot, gpu.at("speed_gts")), POSSIBLE,
        )  # fmt: skip


def _counted(speed_gts: float | None, width: int | None) -> float | None:
    lane = _PER_LANE.get(speed_gts) if speed_gts is not None else None
    return lane * width if lane is not None and width else None
