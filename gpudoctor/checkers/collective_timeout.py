"""Collectives that did not end, from PyTorch's watchdog and flight recorder: who waited, and who did not come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.ecc_remap import ECC_REMAP
from gpudoctor.checkers.job_causes import COLLECTIVE_TIMEOUT
from gpudoctor.checkers.nccl_causes import CUDA_ERROR, NETWORK_ERROR, PEER_DIED, RANK_MISMATCH
from gpudoctor.checkers.nvlink_errors import ERRORS as NVLINK_ERRORS
from gpudoctor.checkers.version_mismatch import VERSION_MISMATCH
from gpudoctor.facts.hang import FlightRecorder, LogEnds, Stacks, Watchdog
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.launch import Launches, StartFailures
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactView
from gpudoctor.model import CannotTell, Finding


class CollectiveTimeout(BaseChecker):
    """Names the rank that did not come, never one that waited."""

    name: ClassVar[str] = "collective-timeout"
    any_of = (Watchdog, FlightRecorder, StartFailures, Stacks)
    wants = (Nccl, LogEnds, Launches, MemoryKills)
    causes = (COLLECTIVE_TIMEOUT, RANK_MISMATCH, PEER_DIED, NETWORK_ERROR, CUDA_ERROR, ECC_REMAP, NVLINK_ERRORS, VERSION_MISMATCH)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        log = facts.get(Nccl)
        if Stacks in facts:
            from gpudoctor.checkers.job_stood import stood

            yield from stood(facts[Stacks], log)
        if StartFailures in facts and (log is None or not log.of_a_run) and FlightRecorder not in facts:
            from gpudoctor.checkers.job_starts import never_started

            yield from never_started(facts[StartFailures], Launches in facts, Watchdog not in facts)
        if Watchdog not in facts and FlightRecorder not in facts:
            return
        # Loaded where there is a job to judge: most runs look at a host alone, and need only know what could be said.
        from gpudoctor.checkers.job_ends import deaths, errors, stuck, unexplained, unfinished_start
        from gpudoctor.checkers.job_hangs import findings, known_of
        from gpudoctor.checkers.job_reports import differing, heard, named
        from gpudoctor.hang import hangs, world_of

        watchdog, recorder, nccl = facts.get(Watchdog), facts.get(FlightRecorder), facts.get(Nccl)
        known = known_of(watchdog, recorder, nccl, facts.get(LogEnds))
        found = hangs(watchdog, recorder, world_of(nccl, watchdog))
        for hang in found:
            yield from findings(hang, found, known)
        if watchdog is None:
            return
        said: list[Finding | CannotTell] = [
            *deaths(watchdog, frozenset(r for h in found for r in h.waiting), bool(found), nccl, known.ends, facts.get(MemoryKills)),
            *unfinished_start(watchdog),
            *differing(watchdog),
        ]
        if not found:
            said += named(watchdog)
            said += stuck(watchdog)
            said += errors(watchdog, nccl)
            if not any(isinstance(s, Finding) for s in said):
                said += heard(watchdog)
        if not found and not any(isinstance(s, Finding) for s in said) and not any(m.slug for m in (nccl.messages if nccl is not None else ())):
            said += unexplained(watchdog, nccl, known.ends, facts.get(MemoryKills))
        yield from said
