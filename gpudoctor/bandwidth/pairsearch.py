"""After a miss of more than two GPUs: which pair or GPU is the slow one, in as few runs as show it.

First the pairs that follow each other in a ring, each GPU in one of them at a time, then those across it. As soon as one
stands out from its like, both of its GPUs are measured with others: that tells the GPU from the link.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gpudoctor.bandwidth import plan
from gpudoctor.bandwidth.work import Engine, Measured, Progress, Work
from gpudoctor.expect.peers import Blame, Key, Seat, blames, kinds_of, seat_of, slow_of
from gpudoctor.facts.bandwidth import CPU, PairRate
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.topology import Pairs
from gpudoctor.record import replace

MOST_S = 60.0  # for the whole search
LEAST_S = 5.0  # left: too little for another run
ROUND_S = 4.0  # for the sizes of one round


class PairSearch:
    """Runs the rounds. Afterwards `parts` has what was measured, `blamed` what stands out."""

    def __init__(
        self, engine: Engine, work: Work, gpus: Gpus | None, pairs: Pairs | None, progress: Progress, proof: bool
    ) -> None:
        sizes = plan.PAIR if work.backend == "nccl" else work.sizes[-2:]
        self.work = replace(
            work,
            sizes=tuple(s for s in sizes if s <= max(work.sizes)) or work.sizes[-1:],
            repeats=1, rounds=10, seconds=ROUND_S, host_copies=False, proof=proof, until=min(work.until, time.monotonic() + MOST_S),
        )  # fmt: skip
        self.engine = engine
        self.gpus = gpus
        self.pairs = pairs
        self.progress = progress
        self.parts: list[Measured] = []
        self.blamed: tuple[Blame, ...] = ()
        self.ended: str | None = None  # why not every pair was measured

    def run(self) -> None:
        for matching in plan.matchings(len(self.work.targets)):
            new = [pair for pair in matching if self._key(pair) not in self._measured()]
            if not self._measure(new):
                break
            slow = self._slow()
            # Once more with others, and by itself again: what slowed it may have been passing.
            if slow and not self._measure([*self._crossings(slow), *(self._ranks(key) for key in slow)]):
                break
            if self._blames():
                break
        self.blamed = tuple(self._blames())

    @property
    def rates(self) -> tuple[PairRate, ...]:
        """The best of each pair."""
        best: dict[Key, PairRate] = {}
        for rate in (r for part in self.parts for r in part.pairs if r.what.endswith("busbw")):
            known = best.get((rate.a, rate.b))
            best[rate.a, rate.b] = rate if known is None or rate.gbs > known.gbs else known
        found = list(best.values())
        if self.work.backend == "nccl":
            return tuple(found)
        # Processes on CPUs are of no part. After a miss they may be compared; without one, their noise would be taken for faults.
        return tuple(replace(rate, a_name=CPU, b_name=CPU) for rate in found)

    def words(self) -> str:
        """For the report."""
        count = len(self.work.targets)
        rates = [rate.gbs for rate in self.rates]
        if not rates:
            return f"no pair could be measured by itself: {self.ended or 'no run gave a level'}"
        text = f"{len(self._measured())} of {count * (count - 1) // 2} pairs were measured by themselves, {min(rates):.4g} to {max(rates):.4g} GB/s"
        if self.ended is not None:
            text += f" ({self.ended})"
        return text if self.blamed else f"{text}: none stands out from its like, so it is no single pair or GPU"

    def as_json(self) -> dict[str, Any]:
        """How much was looked at, and what stands out: the indices of a GPU, or of the two of a pair."""
        count = len(self.work.targets)
        return {
            "measured": len(self._measured()),
            "of": count * (count - 1) // 2,
            "slow": [[b.gpu] if b.gpu is not None else list(b.keys[0]) for b in self.blamed],
            "ended": self.ended,
        }

    def _seats(self) -> list[Seat]:
        return [seat_of(rate, self.gpus, self.pairs) for rate in self.rates]

    def _measured(self) -> set[Key]:
        return {(rate.a, rate.b) for rate in self.rates}

    def _blames(self) -> list[Blame]:
        return [blame for same in kinds_of(self._seats()) for blame in blames(same)]

    def _ranks(self, key: Key) -> Key:
        a, b = sorted(rank for rank, target in enumerate(self.work.targets) if target.index in key)
        return a, b

    def _key(self, pair: Key) -> Key:
        a, b = sorted(self.work.targets[rank].index for rank in pair)
        return a, b

    def _slow(self) -> list[Key]:
        return [key for same in kinds_of(self._seats()) for key in slow_of(same)]

    def _crossings(self, slow: Sequence[Key]) -> list[Key]:
        """Both GPUs of each slow pair with a partner that is not suspect, over the same kind of path where there is one."""
        suspects = {index for key in slow for index in key}
        ranks = {target.index: rank for rank, target in enumerate(self.work.targets)}
        good = [index for index in ranks if index not in suspects]
        out: list[Key] = []
        for key in slow:
            free = list(good)
            for end in key:
                partners = free or good
                if not partners:
                    continue
                partner = min(partners, key=lambda i: (not self._alike(key, (end, i)), i))  # noqa: B023
                if partner in free:
                    free.remove(partner)
                pair = (min(ranks[end], ranks[partner]), max(ranks[end], ranks[partner]))
                if pair not in out and self._key(pair) not in self._measured():
                    out.append(pair)
        return out

    def _alike(self, one: Key, other: Key) -> bool:
        if self.pairs is None:
            return True
        a, b = self.pairs.of(*one), self.pairs.of(*other)
        return a is not None and b is not None and (a.path, a.nvlinks) == (b.path, b.nvlinks)

    def _measure(self, pairs: Sequence[Key]) -> bool:
        """False where the search has to end."""
        if not pairs:
            return True
        if self.work.until - time.monotonic() < LEAST_S:
            self.ended = "no time was left for the others"
            return False
        rounds = plan.rounds(pairs, self.work.targets, self.pairs)
        names = ", ".join("-".join(str(i) for i in self._key(pair)) for pair in pairs)
        measured = self.engine.run(
            replace(self.work, pairs=rounds), lambda stage, share: self.progress(f"trying pairs {names}", share)
        )
        self.parts.append(measured)
        failed = measured.stopped or (
            measured.run.failures[0].text if measured.run is not None and measured.run.failures else None
        )
        if failed is not None:
            self.ended = f"the pairs {names}: {failed}"
        return failed is None
