"""Flight recorder dumps in which no rank is seen to wait: healthy only where all of them are there and have come equally far."""

from __future__ import annotations

from gpudoctor import cpulist
from gpudoctor.facts.hang import Call, Dump, FlightRecorder
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactStore
from gpudoctor.hang_dumps import Job, jobs, open_calls, own_frame, uneven
from gpudoctor.model import Missing

_MOST = 1 << 16  # ranks
_SHOWN = 4  # dumps that a sentence describes
FACT = "what the other ranks called"


def unsettled(store: FactStore) -> Missing | None:
    """What keeps the dumps from being a pass; of several jobs the first that has it."""
    recorder = store.get(FlightRecorder)
    world = max((c.nranks for c in store.get(Nccl) or () if c.nranks is not None), default=0)
    found = (_of_job(job, world) for job in jobs(recorder)) if recorder is not None else ()
    return next((told for told in found if told is not None), None)


def _of_job(job: Job, world: int) -> Missing | None:
    """world: ranks of NCCL's log, for dumps that have no lists of their own (torch before 2.3)."""
    if not job.members and 0 < world <= _MOST:
        job = job._replace(members=frozenset(range(world)))
    nameless = [d for d in job.dumps if d.rank is None]
    if nameless:
        names = ", ".join(d.source for d in nameless[:_SHOWN])
        return Missing(
            "whose flight recorder it is",
            f"neither {names} nor its name tells the rank{_of_world(job)}: {_shown(job)}. Name each file after its rank (nccl_trace_rank_N) and give those of all ranks",
            needed=True,
        )
    if job.lacking or not job.members:
        which = f"the dump of rank{'s' if len(job.lacking) > 1 else ''} {_listed(job.lacking)}" if job.lacking else "the dumps of all others"
        return Missing(
            FACT,
            f"the input has the flight recorder of {_ranks(job)}{_of_world(job)} ({_sources(job)}): {_shown(job)}. "
            f"A rank that others wait for looks like this, and so does one of a job that runs: {which} would tell",
            needed=True,
        )
    odd = uneven(job)
    if odd is not None:
        name, by_count = odd
        said = ", ".join(f"rank{'s' if len(r) > 1 else ''} {_listed(r)} {n}" for n, r in sorted(by_count.items())[:_SHOWN])
        return Missing(
            "whether the ranks came equally far",
            f"by their flight recorders they have not called the same number of collectives of {name} ({said}), and no call is open: either the dumps "
            "are of different moments, or those that are ahead gave up. Dumps of one moment, while the job hangs, would tell",
            needed=True,
        )
    left = [d for d in job.dumps if open_calls(d)]
    if left:
        return Missing("whether the job hangs", f"{_shown(job._replace(dumps=tuple(left)))}, and no other rank's dump shows for whom it waits", needed=True)
    return None


def _ranks(job: Job) -> str:
    known = sorted(job.ranks)
    return f"rank{'s' if len(known) > 1 else ''} {_listed(known)}"


def _of_world(job: Job) -> str:
    alone = " alone" if len(job.dumps) == 1 else ""
    return f"{alone}, of {len(job.members)} ranks" if job.members else alone


def _sources(job: Job) -> str:
    names = [d.source for d in job.dumps]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _listed(ranks: list[int] | tuple[int, ...]) -> str:
    parts = cpulist.render(set(ranks)).split(",")
    return ",".join(parts) if len(parts) < 8 else f"{','.join(parts[:6])},… ({len(ranks)})"


def _shown(job: Job) -> str:
    said = [_words(d) for d in job.dumps[:_SHOWN]]
    more = len(job.dumps) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "")


def _words(dump: Dump) -> str:
    """How far it came, by its last call, and whether something is open."""
    who = f"rank {dump.rank}" if dump.rank is not None else "it"
    waits = open_calls(dump)
    if waits:
        first = waits[0]
        return f"{who} has called {_call(first.op, first.seq)}{_group(dump, first.group)}{_where(first)}, which is not done"
    last = max(dump.calls, key=lambda c: (c.created_ns or 0, c.seq), default=None)
    if last is None:
        return f"{who} has called nothing that was recorded"
    return f"{who} has called {_call(last.op, last.seq)}{_group(dump, last.group)} last{_where(last)}, and all that it called is done"


def _where(call: Call) -> str:
    frame = own_frame(call.frames)
    return f" (in {frame})" if frame is not None else ""


def _call(op: str | None, seq: int) -> str:
    return (op or "a collective") + (f" #{seq}" if seq else "")


def _group(dump: Dump, group: str) -> str:
    status = dump.groups.get(group)
    return f" of {status.name if status is not None and status.name else f'group {group}'}"
