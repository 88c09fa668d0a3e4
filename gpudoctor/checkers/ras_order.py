"""Ranks that have called other collectives than the rest, by NCCL's RAS counters.

Ranks that run one program are at different places of one order: whoever is behind in one operation is ahead in none. Fewer of
one and more of another is another order, however the job moved while it was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpudoctor.checkers.nccl_causes import RANK_MISMATCH
from gpudoctor.facts.hang import RasComm, RasRank
from gpudoctor.model import ERROR, LIKELY, Finding, Step

MAX_SUBJECTS = 8


class Odd(NamedTuple):
    """A rank, and by operation its count and that of the others."""

    rank: RasRank
    counts: Mapping[str, tuple[int, int]]


def odd_ones(comm: RasComm) -> list[Odd]:
    """Ranks whose counts no order can bring together with those of the rest."""
    own: dict[RasRank, dict[str, int]] = {}
    rest: dict[str, int] = {}  # of ranks that a text answer only counts
    for counts in comm.counts:
        for rank in counts.named:
            own.setdefault(rank, {})[counts.operation] = counts.upto
        if counts.ranks > len(counts.named):
            rest[counts.operation] = max(counts.upto, rest.get(counts.operation, 0))
    usual = rest or dict(Counter(tuple(sorted(told.items())) for told in own.values()).most_common(1)[0][0]) if own else {}
    out = []
    for rank, told in own.items():
        differs = {o: (n, usual[o]) for o, n in told.items() if n != usual.get(o, n)}
        if any(n < of_rest for n, of_rest in differs.values()) and any(n > of_rest for n, of_rest in differs.values()):
            out.append(Odd(rank, differs))
    return out


def order(comm: RasComm, who: str) -> Iterator[Finding]:
    """who: the communicator, in words."""
    odd = odd_ones(comm)
    total = max((sum(c.ranks for c in comm.counts if c.operation == o) for o in {c.operation for c in comm.counts}), default=0)
    if not odd:
        return
    if len(odd) * 2 < total and len(odd) <= MAX_SUBJECTS:
        for each in odd:
            yield _finding(f"rank:{each.rank.rank}", f"Rank {each.rank.rank} has called other collectives than the other ranks of {who}: {_counts(each)}.", comm, each.rank)
        return
    yield _finding("host", f"The ranks of {who} have not called the same collectives: rank {odd[0].rank.rank} {_counts(odd[0])}.", comm, None)


def _counts(odd: Odd) -> str:
    return ", ".join(f"{operation} {n} times where the others are at {rest}" for operation, (n, rest) in sorted(odd.counts.items()))


def _finding(subject: str, message: str, comm: RasComm, rank: RasRank | None) -> Finding:
    from gpudoctor.checkers.job_stacks import of_process  # which only a job needs

    return Finding(
        RANK_MISMATCH.slug, ERROR, subject, message + " Ranks of one program that are at different places of it cannot differ so: they call in another order.",
        (comm.at("*"),), LIKELY, "They wait for each other for ever.",
        (
            Step("Find the branch, batch or parameter in which the ranks differ; PyTorch checks every call with", "TORCH_DISTRIBUTED_DEBUG=DETAIL", "reversible"),
            of_process(rank.pid if rank is not None else None, f"rank {rank.rank}" if rank is not None else "each rank", rank.host if rank is not None else None),
        ),
    )  # fmt: skip
