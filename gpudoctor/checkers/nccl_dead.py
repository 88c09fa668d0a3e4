"""What the input tells of the rank that a job lost: where its log ends, what the kernel and its launcher say of its process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpudoctor.checkers.job_logs import after, after_kill, by_itself, killed_by_kernel, stop_of
from gpudoctor.facts.hang import Death, LogEnds
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.model import Evidence, Step


class Witnesses(NamedTuple):
    """Who may know more of a dead rank than NCCL's log does."""

    ends: LogEnds | None
    kills: MemoryKills | None
    deaths: Iterable[Death]


class Told(NamedTuple):
    """steps: none where nobody knows anything."""

    words: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    steps: tuple[Step, ...]


def of_rank(rank: int, job: list[NcclComm], witnesses: Witnesses) -> Told:
    """The kernel's word counts before the launcher's, and that before the last line of a log."""
    nccl = Nccl(comms=tuple(job), procs=tuple(p for c in job for p in c.procs))
    stop = stop_of(rank, witnesses.ends, nccl)
    killed = killed_by_kernel(rank, nccl, witnesses.kills)
    exited = next((d for d in witnesses.deaths if d.rank == rank and not d.after and 0 < d.exitcode < 128), None)
    words = [f"Rank {rank} is the one without a complaint of its own{'.' if stop is not None else ': look at its log.'}"]
    words += [told.words for told in (stop, killed) if told is not None]
    evidence = [told.evidence for told in (killed, stop) if told is not None]
    if exited is not None:
        words.append(f"Its launcher says that it {exited.ended()}: it was not killed from outside.")
        evidence.append(exited.at("*"))
    steps: tuple[Step, ...] = ()
    if killed is not None:
        steps = after_kill(rank)
    elif exited is not None and (stop is None or not stop.troubled):
        steps = (by_itself(rank),)
    elif stop is not None:
        steps = after(rank, stop, next((p.host for c in job for n, p, _ in c.members() if n == rank and p.host), None))
    return Told(tuple(words), tuple(evidence), steps)
