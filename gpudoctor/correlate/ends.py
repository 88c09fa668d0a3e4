"""A job of which the input shows the end and not the reason: neither a fault that could be named, nor a pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudoctor.facts.hang import Death, Watchdog
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactStore
from gpudoctor.model import ERROR, WARNING, Finding, Missing

_ABORT, _TERMINATE = 6, 15  # the second is how a launcher stops the others


def unexplained(stores: Iterable[FactStore], findings: Iterable[Finding]) -> Iterator[Missing]:
    """Says of the first process that ended in an error how it ended, where nothing was found and NCCL's log is not there to judge.

    Where it is, and is in order, an exception of the program's own is no fault of the communication.
    """
    if any(f.severity in (ERROR, WARNING) for f in findings):
        return
    for store in stores:
        watchdog = store.get(Watchdog) if Nccl not in store else None
        ended = [d for d in watchdog.deaths if d.exitcode not in (0, -_TERMINATE) and not d.after] if watchdog is not None else []
        if ended:
            death = min(ended, key=lambda d: not d.first)
            evidence = death.at("*")
            yield Missing(
                "why the job ended",
                f"{_who(death)} {_how(death.exitcode)} ({evidence.source}, {evidence.where}), and nothing in the input says why: "
                "what it printed before that would tell",
                needed=True,
            )
            return


def _who(death: Death) -> str:
    if death.rank is not None:
        return f"rank {death.rank}"
    return f"local rank {death.local}" if death.local is not None else f"process {death.pid}" if death.pid is not None else "a process"


def _how(exitcode: int) -> str:
    return f"ended with exit status {exitcode}" if exitcode > 0 else "ended by SIGABRT" if exitcode == -_ABORT else f"ended by signal {-exitcode}"
