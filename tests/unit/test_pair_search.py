"""The search for a slow pair or GPU, over an engine whose rates are a function of the two GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from gpudoctor.bandwidth import plan
from gpudoctor.bandwidth.pairsearch import PairSearch
from gpudoctor.bandwidth.work import Measured, Progress, Target, Work
from gpudoctor.facts.bandwidth import BandwidthRun, Failure, PairRate
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import Pair, Pairs
from tests.support import HERE

MIB = 1 << 20


class FakeEngine:
    """Not an engine: gives each pair the rate that a function says. 0 is a failed run."""

    name = "fake"

    def __init__(self, rate: Callable[[int, int], float]) -> None:
        self.rate = rate
        self.works: list[Work] = []

    def start(self, until: float) -> None: ...

    def close(self) -> None: ...

    def run(self, work: Work, progress: Progress) -> Measured:
        self.works.append(work)
        rates, failures = [], []
        for low, high in (pair for some in work.pairs for pair in some):
            a, b = sorted((work.targets[low].index, work.targets[high].index))
            rate = self.rate(a, b)
            if rate:
                rates.append(PairRate(a=a, b=b, gbs=rate, what="all_reduce busbw", a_name="X", b_name="X", origin=HERE))
            else:
                failures.append(Failure(kind="timeout", text="the run hung and was stopped"))
        run = BandwidthRun(failures=tuple(failures), origin=HERE) if failures else None
        return Measured(pairs=tuple(rates), run=run)


def all_pairs(count: int, path: str = "NVL") -> Pairs:
    return Pairs(tuple(Pair(a=a, b=b, path=path, nvlinks=18 if path == "NVL" else None, origin=HERE) for a in range(count) for b in range(a + 1, count)))


def search(rate: Callable[[int, int], float], count: int = 8, pairs: Pairs | None = None, seconds: float = 600.0, indices: tuple[int, ...] = ()) -> tuple[PairSearch, FakeEngine]:
    engine = FakeEngine(rate)
    targets = tuple(Target(index=i, name="X") for i in indices or range(count))
    work = Work(collective="all_reduce", targets=targets, sizes=(8, 64 * MIB, 256 * MIB, 1 << 30), until=time.monotonic() + seconds)
    gpus = Gpus(tuple(Gpu(index=i, name="X", origin=HERE) for i in range(10)))
    found = PairSearch(engine, work, gpus, pairs or all_pairs(10), lambda what, share: None, proof=True)
    found.run()
    return found, engine


def names(found: PairSearch) -> list[int | tuple[int, int]]:
    return [b.gpu if b.gpu is not None else b.keys[0] for b in found.blamed]


@pytest.mark.parametrize("slow", range(8))
def test_a_slow_gpu_of_eight_takes_two_runs(slow: int) -> None:
    found, engine = search(lambda a, b: 40.0 if slow in (a, b) else 100.0)
    assert names(found) == [slow] and len(engine.works) == 2
    assert found.as_json() == {"measured": 6, "of": 28, "slow": [[slow]], "ended": None}


def test_two_slow_gpus_are_both_found() -> None:
    found, engine = search(lambda a, b: 40.0 if {a, b} & {1, 6} else 100.0)
    assert sorted(n for n in names(found) if isinstance(n, int)) == [1, 6] and len(engine.works) == 2


@pytest.mark.parametrize("pair", [(a, b) for a in range(8) for b in range(a + 1, 8)])
def test_a_slow_pair_is_found_wherever_it_is_and_no_gpu_is_blamed(pair: tuple[int, int]) -> None:
    found, engine = search(lambda a, b: 40.0 if (a, b) == pair else 100.0)
    assert names(found) == [pair] and len(engine.works) <= len(plan.matchings(8)) + 1


def test_alike_pairs_blame_nobody_and_the_range_is_said() -> None:
    found, engine = search(lambda a, b: 100.0 + a + b)
    assert names(found) == [] and len(engine.works) == len(plan.matchings(8))
    assert found.words() == "28 of 28 pairs were measured by themselves, 101 to 113 GB/s: none stands out from its like, so it is no single pair or GPU"


def test_pairs_over_nvlink_are_measured_together_and_others_alone() -> None:
    _, nvlink = search(lambda a, b: 40.0 if 3 in (a, b) else 100.0)
    assert [len(some) for some in nvlink.works[0].pairs] == [4]
    _, pcie = search(lambda a, b: 40.0 if 3 in (a, b) else 100.0, pairs=all_pairs(8, "PHB"))
    assert [len(some) for some in pcie.works[0].pairs] == [1, 1, 1, 1]


def test_only_like_paths_are_compared() -> None:
    bridged = Pairs(tuple(Pair(a=a, b=b, path="NVL" if b == a + 1 and a % 2 == 0 else "SYS", nvlinks=4, origin=HERE) for a in range(4) for b in range(a + 1, 4)))
    healthy, _ = search(lambda a, b: 48.0 if b == a + 1 and a % 2 == 0 else 12.0, 4, bridged)
    assert names(healthy) == []
    # Over the socket link GPU3 is slow; its bridge is not.
    sick, _ = search(lambda a, b: 48.0 if b == a + 1 and a % 2 == 0 else 3.0 if 3 in (a, b) else 12.0, 4, bridged)
    assert names(sick) == [3]


def test_indices_are_those_of_the_gpus_and_not_of_the_ranks() -> None:
    found, _ = search(lambda a, b: 40.0 if 7 in (a, b) else 100.0, indices=(2, 9, 7, 4))
    assert names(found) == [7]


def test_peer_to_peer_of_pairs_across_the_ring_is_proven_first() -> None:
    _, engine = search(lambda a, b: 100.0)
    assert all(work.proof and work.until <= time.monotonic() + 61 for work in engine.works)


def test_a_pair_that_fails_ends_the_search_and_is_named() -> None:
    found, engine = search(lambda a, b: 0.0 if (a, b) == (1, 2) else 100.0)
    assert len(engine.works) == 2 and names(found) == []
    assert "the pairs 1-2, 3-4, 5-6, 0-7: the run hung and was stopped" in found.words()


def test_what_was_slow_once_and_not_again_is_passed_over_and_the_search_goes_on() -> None:
    seen: list[tuple[int, int]] = []

    def rate(a: int, b: int) -> float:
        seen.append((a, b))
        passing = (a, b) == (0, 1) and seen.count((0, 1)) == 1
        return 30.0 if passing or (a, b) == (1, 6) else 100.0

    found, _ = search(rate)
    assert names(found) == [(1, 6)] and seen.count((0, 1)) == 2


def test_without_time_nothing_is_run() -> None:
    found, engine = search(lambda a, b: 100.0, seconds=2.0)
    assert engine.works == [] and "no time was left" in found.words()
