"""A job of which the input shows the end and not the reason, or a start and not that it came about: neither a fault that could be named, nor a pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudoctor import cpulist
from gpudoctor.facts.hang import TERMINATE, Watchdog
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.facts.store import FactStore
from gpudoctor.model import ERROR, UNBUILT, WARNING, Finding, Missing

_MOST = 100_000  # ranks


def unexplained(stores: Iterable[FactStore], findings: Iterable[Finding]) -> Iterator[Missing]:
    """Says of the first process that ended in an error how it ended, where nothing was found and NCCL's log is not there to judge.

    Where it is, and is in order, an exception of the program's own is no fault of the communication.
    """
    if any(f.severity in (ERROR, WARNING) for f in findings):
        return
    for store in stores:
        comms = store.get(Nccl) or ()
        for comm in comms:
            # A line that was cut shows its rank and not to which communicator it belongs.
            absent = _waiting(comm) - {r.rank for c in comms if c.comm_id is None and c.nranks == comm.nranks for r in c.ranks if r.rank is not None}
            if absent:
                # Of a job whose other ranks mostly write elsewhere, or were left out of a paste, little can be said.
                begun = (comm.nranks or 0) - len(absent)
                yield Missing(
                    UNBUILT,
                    f"{begun} of its {comm.nranks} ranks began ({comm.source}) and the log ends there; "
                    f"rank{'s' if len(absent) > 1 else ''} {cpulist.render(absent)} never appear{'s' if len(absent) == 1 else ''} in it: "
                    "if the job hangs, look there first (is the process alive, and what did it print?)",
                    needed=begun > len(absent),
                )
                return
        watchdog = store.get(Watchdog) if not any(_came_about(comm) for comm in comms) else None
        # SIGTERM is how a launcher stops the others.
        ended = [d for d in watchdog.deaths if d.exitcode not in (0, -TERMINATE) and not d.after] if watchdog is not None else []
        if ended:
            death = min(ended, key=lambda d: not d.first)
            evidence = death.at("*")
            yield Missing(
                "why the job ended",
                f"{death.called()} {death.ended()} ({evidence.source}, {evidence.where}), and nothing in the input says why: "
                "what it printed before that would tell",
                needed=True,
            )
            return


def _came_about(comm: NcclComm) -> bool:
    """Something that NCCL says only once its ranks have met."""
    return bool(comm.transports or comm.counts or comm.channels is not None or any(r.completed or r.nnodes is not None for r in comm.ranks))


def _waiting(comm: NcclComm) -> set[int]:
    """Ranks that those shown wait for, as far as the log goes: it shows nothing that comes once all are there."""
    begun = comm.ranks and all(r.started and not r.completed and r.ended is None and r.nnodes is None for r in comm.ranks)
    if not begun or _came_about(comm) or comm.nranks is None or comm.nranks > _MOST:
        return set()
    return set(range(comm.nranks)) - {r.rank for r in comm.ranks if r.rank is not None}
