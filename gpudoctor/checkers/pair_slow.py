"""GD802 pair-slow: one pair, or all pairs of one GPU, slower than the others of the same part and path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.expect.group import group_of
from gpudoctor.expect.seats import Around
from gpudoctor.facts.bandwidth import Bandwidth, PairRate, PairRates
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import Pairs
from gpudoctor.median import median
from gpudoctor.model import CERTAIN, ERROR, LIKELY, WARNING, CannotTell, Cause, Evidence, Finding, Gain, Step, Threshold
from gpudoctor.record import KeyedRecord

_OURS = "our choice: repeated runs of one pair differ by up to 5 %"
WARN = Threshold("slower than the peers' median: warning", 0.15, "share", _OURS, "2026-11")
FAIL = Threshold("slower than the peers' median: error", 0.30, "share", _OURS, "2026-11")
PAIR_SLOW = Cause(
    "GD802",
    "pair-slow",
    "A pair of GPUs is slower than its peers",
    "15 % slower: warning; 30 % slower: error",
    "Pairs of the same part on the same kind of path must be alike: the others are the best measure there is for one of them. A ring "
    "runs at the speed of its slowest pair, so one slow pair slows the whole job. Where every pair of one GPU is slow and the rest are "
    "not, the GPU or its slot is meant. Pairs of different parts or on different paths are never compared.",
    "gpudoctor bandwidth --pairs, nvbandwidth -t device_to_device_memcpy_read_ce, nvidia-smi topo -m",
    "Look at the links of the slow pair: NVLink states and errors, PCIe generation and lanes under load, other work on these GPUs.",
    (WARN, FAIL),
)


class _Seat(KeyedRecord):
    """One measured pair with what it may be compared by."""

    rate: PairRate
    kind: tuple[str, ...] | None  # what was measured, parts, path; None: path or part not known
    path: str | None
    known: tuple[Gpu | None, Gpu | None]


class PairSlow(BaseChecker):
    """Compares pairs with each other; needs three of a kind, or two that differ by much."""

    name: ClassVar[str] = "pair-slow"
    any_of = (PairRates, Bandwidth)
    wants = (Gpus, Pairs)
    causes = (PAIR_SLOW,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus, pairs = facts.get(Gpus), facts.get(Pairs)
        rates = [*(facts.get(PairRates) or ()), *_from_runs(facts.get(Bandwidth), Around(gpus=gpus, pairs=pairs))]
        seats = [_seat(rate, gpus, pairs) for rate in rates]
        if not seats:
            yield CannotTell(PAIR_SLOW.slug, "no pair was measured alone (gpudoctor bandwidth --pairs)")
            return
        kinds = list(dict.fromkeys(s.kind for s in seats if s.kind is not None))
        for kind in kinds:
            same = [s for s in seats if s.kind == kind]
            if len(same) > 1:
                yield from _compare(same)
        if not any(sum(s.kind == k for s in seats) > 1 for k in kinds):
            why = "their paths or parts are not in the input" if len(kinds) == 0 else "no two pairs of the same part and path were measured"
            yield CannotTell(PAIR_SLOW.slug, f"{len(seats)} measured pair{'s' if len(seats) > 1 else ''} cannot be compared: {why}")


def _from_runs(measured: Bandwidth | None, around: Around) -> list[PairRate]:
    """Runs over two GPUs of one host are pairs too."""
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


def _seat(rate: PairRate, gpus: Gpus | None, pairs: Pairs | None) -> _Seat:
    found = tuple(
        (gpus.by_bdf(address) or gpus.by_index(index)) if gpus is not None else None
        for index, address in ((rate.a, rate.a_bdf), (rate.b, rate.b_bdf))
    )
    names = [
        (gpu.device_id or gpu.name if gpu is not None else None) or given
        for gpu, given in zip(found, (rate.a_name, rate.b_name), strict=True)
    ]
    indices = [g.index for g in found if g is not None and g.index is not None]
    pair = pairs.of(indices[0], indices[1]) if pairs is not None and len(indices) == 2 else None
    path = (
        None
        if pair is None or pair.path is None or pair.pcie_only
        else f"NV{pair.nvlinks}"
        if pair.path == "NVL"
        else pair.path
    )
    kind = (rate.what, *sorted(n for n in names if n), path) if path is not None and all(names) else None
    return _Seat(rate=rate, kind=kind, path=path, known=(found[0], found[1]))


def _compare(same: list[_Seat]) -> Iterator[Finding]:
    best: dict[tuple[int, int], _Seat] = {}
    for seat in same:  # the same pair measured twice counts with its better run
        key = (min(seat.rate.a, seat.rate.b), max(seat.rate.a, seat.rate.b))
        if key not in best or seat.rate.gbs > best[key].rate.gbs:
            best[key] = seat
    slow: dict[tuple[int, int], float] = {}
    for key, seat in best.items():
        others = [s.rate.gbs for k, s in best.items() if k != key]
        peers = median(others) if others else 0.0
        if peers > 0 and seat.rate.gbs < (1 - WARN.value) * peers:
            slow[key] = peers
    blamed = _one_gpu(list(best), list(slow))
    if blamed is not None:
        keys = [k for k in slow if blamed in k]
        worst = min(keys, key=lambda k: best[k].rate.gbs / slow[k])
        yield _finding(best[worst], slow[worst], len(best), blamed, [best[k].rate.at("gbs") for k in keys])
        return
    for key, peers in slow.items():
        yield _finding(best[key], peers, len(best), None, [best[key].rate.at("gbs")])


def _one_gpu(pairs: list[tuple[int, int]], slow: list[tuple[int, int]]) -> int | None:
    """The GPU all whose pairs are slow while no other pair is."""
    if len(slow) < 2:
        return None
    shared = set(slow[0]).intersection(*slow[1:])
    return next((gpu for gpu in shared if all(pair in slow for pair in pairs if gpu in pair)), None)


def _finding(seat: _Seat, peers: float, count: int, blamed: int | None, evidence: list[Evidence]) -> Finding:
    rate = seat.rate
    share = rate.gbs / peers
    gpu = next((g for g in seat.known if g is not None and g.index == blamed), None) if blamed is not None else None
    subject = (gpu.subject if gpu is not None else f"gpu:{blamed}") if blamed is not None else f"pair:{min(rate.a, rate.b)}-{max(rate.a, rate.b)}"
    who = f"Every measured pair of GPU{blamed} is slower than the rest, the slowest with" if blamed is not None else f"GPU{rate.a} and GPU{rate.b} reach"
    a, b = rate.a, rate.b
    links = (
        Step("Look at its NVLinks: a state, a count or an error that the others do not have", f"nvidia-smi nvlink -s -i {a}; nvidia-smi nvlink -e -i {a}; nvidia-smi nvlink -s -i {b}; nvidia-smi nvlink -e -i {b}")
        if (seat.path or "").startswith("NV")
        else Step("Look at the PCIe links while the measurement runs: generation and lanes", f"nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.width.current,clocks_event_reasons.active --format=csv -i {a},{b}")
    )  # fmt: skip
    return Finding(
        PAIR_SLOW.slug,
        ERROR if share < 1 - FAIL.value else WARNING,
        subject,
        f"{who} {rate.gbs:.3g} GB/s ({rate.what}, {seat.path}), {100 * (1 - share):.0f} % less than the {peers:.3g} GB/s of "
        f"the {count - 1} other pair{'s' if count > 2 else ''} of the same part and path.",
        tuple(evidence[:4]),
        CERTAIN if count > 2 else LIKELY,
        f"{rate.gbs:.3g} of {peers:.3g} GB/s; a ring through this pair runs at its speed",
        (
            Step("Make sure that nothing else runs on these GPUs, and measure again", f"nvidia-smi pmon -c 1 -i {a},{b}", verify="gpudoctor bandwidth --pairs"),
            links,
            Step("Let gpudoctor look at the host", "gpudoctor check"),
        ),
        Gain(round(rate.gbs, 1), round(peers, 1), "GB/s"),
    )
