"""Which of the host's GPUs this job was given. Only these are judged: a neighbour's sick GPU must not hold this job back."""

from __future__ import annotations

import re

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.model import Finding
from gpudoctor.policy.outcome import Outcome
from gpudoctor.record import KeyedRecord

_SPAN = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_UUID = re.compile(r"gpu-[0-9a-f-]+")
_SHORT_UUID = len("gpu-") + 4  # the beginning of one that CUDA takes for the whole
_MOST = 1024  # GPUs of one node


class Allocation(KeyedRecord):
    """ours None: every GPU that is visible here."""

    ours: frozenset[int] | None = None
    bdfs: frozenset[str] = frozenset()
    # GPUs of the node that do not answer, and after which the driver may have numbered the others anew.
    shifting: frozenset[str] = frozenset()
    absent: tuple[str, ...] = ()  # given to the job, and not in the driver's list
    unread: tuple[str, ...] = ()  # words that name no GPU
    told_by: str = ""  # "SLURM_JOB_GPUS=2,3"

    def has(self, index: int | None) -> bool:
        return self.ours is None or index is None or index in self.ours

    def concerns(self, finding: Finding) -> bool:
        """A pair with a GPU of somebody else is no path of this job. What is no GPU's own (host, bridge, NIC) concerns all."""
        kind, _, rest = finding.subject.partition(":")
        if self.ours is None or kind not in ("gpu", "pair", "nvlink"):
            return True
        if kind == "gpu" and not rest.isdigit():
            return rest in self.bdfs or rest in self.shifting or rest == "?"
        words = rest.split("-") if kind == "pair" else [rest.partition("/")[0]]
        return all(not w.isdigit() or int(w) in self.ours for w in words)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(rule="allocation", subject=f"gpu:{word}", wants=f"GPU {word} ({self.told_by})").judged(
                False, "not in the driver's list"
            )
            for word in self.absent
        ) + tuple(
            Outcome(rule="allocation").unread(f"{self.told_by}: {word} is neither a GPU's number nor its UUID", "scontrol show job -d")
            for word in self.unread[:1]
        )


def allocation(
    words: str | None, gpus: Gpus | None, variable: str = "SLURM_JOB_GPUS", tree: PciTree | None = None
) -> Allocation:
    """`0,2-3` as Slurm writes it (numbers of the host), or UUIDs.

    Inside a job that sees its own GPUs only they are numbered anew from 0 while the variable keeps the host's numbers: where
    as many are visible as were given, they are these.
    """
    if not (words or "").strip(", ") or gpus is None:
        return Allocation()
    if any(g.mig_mode == "enabled" for g in gpus):
        # Slurm then counts the instances of all GPUs, and no number says on which GPU one is: all are judged.
        return Allocation(told_by=f"{variable}={words}")
    told_by = f"{variable}={words}"
    wanted, unread = _wanted(words or "")
    listed = [g for g in gpus.listed if g.index is not None]
    # A driver that lists none did not answer: that is for the check to say, and no GPU is known to be absent.
    if not listed or len(wanted) + len(unread) == len(listed):
        return Allocation(told_by=told_by if wanted else "")
    if unread or not wanted:
        return Allocation(unread=tuple(unread), told_by=told_by)
    ours: set[int] = set()
    absent = []
    for word in wanted:
        found = next((g.index for g in listed if _is(g, word)), None)
        if found is None:
            absent.append(word)
        else:
            ours.add(found)
    bdfs = frozenset(g.bdf for g in listed if g.index in ours and g.bdf)
    return Allocation(
        ours=frozenset(ours), bdfs=bdfs, absent=tuple(absent), told_by=told_by, shifting=_shifting(listed, bdfs, tree)
    )


def _is(gpu: Gpu, word: str) -> bool:
    uuid = (gpu.uuid or "").lower()
    return word in (str(gpu.index), uuid) or len(word) >= _SHORT_UUID and uuid.startswith(word)


def _shifting(listed: list[Gpu], ours: frozenset[str], tree: PciTree | None) -> frozenset[str]:
    """A GPU that does not answer may be counted or not. Without a gap in the numbers all behind it are in doubt."""
    if tree is None or {g.index for g in listed} != set(range(len(listed))):
        return frozenset()
    known = {g.bdf for g in listed}
    return frozenset(d.bdf for d in tree.gpus() if d.bdf and d.bdf not in known and any(d.bdf < own for own in ours))


def _wanted(words: str) -> tuple[list[str], list[str]]:
    """Numbers and UUIDs, and what is neither."""
    out: list[str] = []
    unread: list[str] = []
    for word in (w.strip().lower() for w in words.split(",")):
        span = _SPAN.fullmatch(word)
        first, last = (int(span[1]), int(span[2] or span[1])) if span is not None else (0, -1)
        if first <= last < first + _MOST:
            out += [str(n) for n in range(first, last + 1)]
        elif _UUID.fullmatch(word):
            out.append(word)
        elif word:
            unread.append(word)
    return list(dict.fromkeys(out)), unread
