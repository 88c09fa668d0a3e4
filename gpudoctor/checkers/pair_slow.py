"""GD802 pair-slow: one pair, or all pairs of one GPU, slower than the others of the same part and path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import pcie
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.expect.peers import FAIL, WARN, Seat, blames, kinds_of, seat_of, slow_of
from gpudoctor.facts.bandwidth import CPU, STAGED, Bandwidth, PairRate, PairRates
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.model import (
    CERTAIN,
    ERROR,
    LIKELY,
    WARNING,
    CannotTell,
    Cause,
    Evidence,
    Finding,
    Gain,
    Step,
    severity_rank,
)

PAIR_SLOW = Cause(
    "GD802",
    "pair-slow",
    "A pair of GPUs is slower than its peers",
    "15 % slower: warning; 30 % slower: error",
    "Pairs of the same part on the same kind of path must be alike: the others are the best measure there is for one of them. A ring "
    "runs at the speed of its slowest pair, so one slow pair slows the whole job. Where every pair of one GPU is slow and the rest are "
    "not, the GPU or its slot is meant. Pairs of different parts or on different paths are never compared.",
    "gpudoctor bandwidth --pairs, nvbandwidth -t device_to_device_memcpy_read_ce, p2pBandwidthLatencyTest; nvidia-smi topo -m",
    "Look at the links of the slow pair: NVLink states and errors, PCIe generation and lanes under load, other work on these GPUs.",
    (WARN, FAIL),
)


class PairSlow(BaseChecker):
    """Compares pairs with each other; needs three of a kind, or two that differ by much."""

    name: ClassVar[str] = "pair-slow"
    any_of = (PairRates, Bandwidth)
    wants = (Gpus, Pairs, NvLinks)
    causes = (PAIR_SLOW,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus, pairs = facts.get(Gpus), facts.get(Pairs)
        rates = [*(facts.get(PairRates) or ()), *_from_runs(facts.get(Bandwidth), gpus, pairs)]
        seats = [seat_of(rate, gpus, pairs) for rate in rates]
        if not seats:
            yield CannotTell(PAIR_SLOW.slug, "no pair was measured alone (gpudoctor bandwidth --pairs)")
            return
        kinds = kinds_of(seats)
        worst: dict[str, Finding] = {}  # by subject: one measured in several ways is one slow pair
        for same in kinds:
            for found in _compare(same, facts.get(NvLinks)) if len(same) > 1 else ():
                known = worst.get(found.subject)
                if known is None or severity_rank(found.severity) < severity_rank(known.severity):
                    worst[found.subject] = found
        yield from worst.values()
        if not any(len(same) > 1 for same in kinds):
            why = "their paths or parts are not in the input" if not kinds else "no two pairs of the same part and path were measured"
            yield CannotTell(PAIR_SLOW.slug, f"{len(seats)} measured pair{'s' if len(seats) > 1 else ''} cannot be compared: {why}")


def _from_runs(measured: Bandwidth | None, gpus: Gpus | None, pairs: Pairs | None) -> list[PairRate]:
    """Runs over two GPUs of one host are pairs too."""
    from gpudoctor.expect.group import group_of  # loaded where something was measured
    from gpudoctor.expect.seats import Around

    around = Around(gpus=gpus, pairs=pairs)
    out = []
    for run in measured or ():
        level = run.plateau_busbw_gbs
        group = group_of(run, around) if run.nranks == 2 and level is not None else None
        indices = sorted(g.index for g in group.gpus if g.index is not None) if group is not None else []
        if len(indices) == 2 and level is not None and run.level()[-1].size >= 64 << 20:
            out.append(
                PairRate(
                    a=indices[0],
                    b=indices[1],
                    gbs=level,
                    what=f"{run.engine} {run.collective} busbw",
                    origin={"*": run.at("rows")},
                )
            )
    return out


def _compare(same: list[Seat], links: NvLinks | None) -> Iterator[Finding]:
    seats = {seat.key: seat for seat in same}
    slow = slow_of(same)
    for blame in blames(same):
        if blame.gpu is None and same[0].rate.what == STAGED:
            continue  # two GPUs behind one switch share its link to the host: slow, and no fault
        worst = min(blame.keys, key=lambda k: seats[k].rate.gbs / slow[k])
        spots = [seats[k].rate.at("gbs") for k in blame.keys]
        yield _finding(seats[worst], slow[worst], len(seats) - len(blame.keys), blame.gpu, spots, links)


def _finding(
    seat: Seat, peers: float, others: int, blamed: int | None, evidence: list[Evidence], nvlinks: NvLinks | None
) -> Finding:
    rate = seat.rate
    share = rate.gbs / peers
    cpu = seat.path == CPU
    noun = "rank " if cpu else "GPU"
    gpu = next((g for g in seat.known if g is not None and g.index == blamed), None) if blamed is not None else None
    subject = f"pair:{seat.key[0]}-{seat.key[1]}"
    who = f"{noun[0].upper()}{noun[1:]}{rate.a} and {noun}{rate.b} reach"
    if blamed is not None:
        subject = gpu.subject if gpu is not None else f"{'rank' if cpu else 'gpu'}:{blamed}"
        who = f"Every measured pair of {noun}{blamed} is slower than the rest, the slowest with"
    meant = [g for g in seat.known if g is not None and (blamed is None or g is gpu)]
    links = "; ".join(words for g in meant if (words := _link(g, nvlinks)))
    return Finding(
        PAIR_SLOW.slug,
        ERROR if share < 1 - FAIL.value else WARNING,
        subject,
        f"{who} {rate.gbs:.3g} GB/s ({rate.what}, {seat.path}), {100 * (1 - share):.0f} % less than the {peers:.3g} GB/s of "
        f"the {others} other pair{'s' if others != 1 else ''} of the same part and path."
        + (f" Links as read on this host: {links}." if links else ""),
        tuple(evidence[:4]),
        CERTAIN if others > 1 else LIKELY,
        f"{rate.gbs:.3g} of {peers:.3g} GB/s; a ring through {'this rank' if cpu else 'this GPU' if blamed is not None else 'this pair'} runs at its speed",
        _steps(seat, blamed),
        Gain(round(rate.gbs, 1), round(peers, 1), "GB/s"),
    )


def _link(gpu: Gpu, nvlinks: NvLinks | None) -> str:
    """`GPU1 Gen4 x4 of x16, 17 of 18 NVLinks up`."""
    width = gpu.width or gpu.max_width
    pci = pcie.name(gpu.max_speed_gts, width) + (f" of x{gpu.max_width}" if width and gpu.max_width and width < gpu.max_width else "")
    own = [n for n in nvlinks or () if n.gpu == gpu.index and n.active is not None]
    words = [w for w in (pci, f"{sum(bool(n.active) for n in own)} of {len(own)} NVLinks up" if own else "") if w]
    return f"GPU{gpu.index} {', '.join(words)}" if words else ""


def _steps(seat: Seat, blamed: int | None) -> tuple[Step, ...]:
    a, b = seat.rate.a, seat.rate.b
    meant = (a, b) if blamed is None else (blamed,)
    if seat.path == CPU:
        return (Step("See what else runs on the CPUs, and measure again", "uptime; nproc", verify="gpudoctor bandwidth --backend gloo --pairs"),)
    links = (
        Step(f"Look at {'its' if blamed is not None else 'their'} NVLinks: a state, a count or an error that the others do not have", "; ".join(f"nvidia-smi nvlink -s -i {i}; nvidia-smi nvlink -e -i {i}" for i in meant))
        if (seat.path or "").startswith("NV")
        else Step("Look at the PCIe links while the measurement runs: generation and lanes", f"nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.width.current,clocks_event_reasons.active --format=csv -i {a},{b}")
    )  # fmt: skip
    return (
        Step("Make sure that nothing else runs on these GPUs, and measure again", f"nvidia-smi pmon -c 1 -i {a},{b}", verify="gpudoctor bandwidth --pairs"),
        links,
        Step("Let gpudoctor look at the host", "gpudoctor check"),
    )  # fmt: skip
