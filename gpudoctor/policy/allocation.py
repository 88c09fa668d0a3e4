"""Which of the host's GPUs this job was given. Only these are judged: a neighbour's sick GPU must not hold this job back."""

from __future__ import annotations

import re

from gpudoctor.facts.gpu import Gpus
from gpudoctor.model import Finding
from gpudoctor.policy.outcome import Outcome
from gpudoctor.record import KeyedRecord

_SPAN = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


class Allocation(KeyedRecord):
    """ours None: every GPU that is visible here."""

    ours: frozenset[int] | None = None
    bdfs: frozenset[str] = frozenset()
    absent: tuple[str, ...] = ()  # given to the job, and not in the driver's list
    told_by: str = ""  # "SLURM_JOB_GPUS=2,3"

    def has(self, index: int | None) -> bool:
        return self.ours is None or index is None or index in self.ours

    def concerns(self, finding: Finding) -> bool:
        """A pair with a GPU of somebody else is no path of this job. What is no GPU's own (host, bridge, NIC) concerns all."""
        kind, _, rest = finding.subject.partition(":")
        if self.ours is None or kind not in ("gpu", "pair", "nvlink"):
            return True
        if kind == "gpu" and not rest.isdigit():
            return rest in self.bdfs or rest == "?"
        words = rest.split("-") if kind == "pair" else [rest.partition("/")[0]]
        return all(not w.isdigit() or int(w) in self.ours for w in words)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(rule="allocation", subject=f"gpu:{word}", wants=f"GPU {word} ({self.told_by})").judged(
                False, "not in the driver's list"
            )
            for word in self.absent
        )


def allocation(words: str | None, gpus: Gpus | None, variable: str = "SLURM_JOB_GPUS") -> Allocation:
    """`0,2-3` as Slurm writes it (numbers of the host), or UUIDs.

    Inside a job that sees its own GPUs only they are numbered anew from 0 while the variable keeps the host's numbers: where
    as many are visible as were given, they are these.
    """
    if not words or gpus is None:
        return Allocation()
    if any(g.mig_mode == "enabled" for g in gpus):
        # Slurm then counts the instances of all GPUs, and no number says on which GPU one is: all are judged.
        return Allocation(told_by=f"{variable}={words}")
    wanted = _wanted(words)
    listed = [g for g in gpus.listed if g.index is not None]
    # A driver that lists none did not answer: that is for the check to say, and no GPU is known to be absent.
    if not wanted or not listed or len(wanted) == len(listed):
        return Allocation(told_by=f"{variable}={words}" if wanted else "")
    ours: set[int] = set()
    absent = []
    for word in wanted:
        found = next((g.index for g in listed if word in (str(g.index), (g.uuid or "").lower())), None)
        if found is None:
            absent.append(word)
        else:
            ours.add(found)
    bdfs = frozenset(g.bdf for g in listed if g.index in ours and g.bdf)
    return Allocation(ours=frozenset(ours), bdfs=bdfs, absent=tuple(absent), told_by=f"{variable}={words}")


def _wanted(words: str) -> list[str]:
    out: list[str] = []
    for word in (w.strip() for w in words.split(",")):
        span = _SPAN.fullmatch(word)
        if span is not None:
            out += [str(n) for n in range(int(span[1]), min(int(span[2] or span[1]), int(span[1]) + 1024) + 1)]
        elif word:
            out.append(word.lower())
    return list(dict.fromkeys(out))
