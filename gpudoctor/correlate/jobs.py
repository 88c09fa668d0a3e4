"""Of which job a finding tells, where logs of several are given together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gpudoctor.correlate.causes import HOSTS_TOO, OF_A_JOB, SETTINGS
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.nccl_jobs import jobs_of
from gpudoctor.facts.store import FactStore
from gpudoctor.model import Finding

_NOBODY: frozenset[str] = frozenset()


def of_findings(stores: Iterable[FactStore]) -> Callable[[Finding], frozenset[str]] | None:
    """The jobs whose logs show a finding, none where it may be of the host or of any; None where no two jobs are told apart."""
    comms = [comm for store in stores for comm in store.get(Nccl) or ()]
    jobs = jobs_of(comms)
    if len(set(jobs.values())) < 2:
        return None
    having: dict[tuple[str, str], set[str]] = {}
    for proc in {id(p): p for comm in comms for p in comm.procs if p.source in jobs}.values():
        for setting in proc.env.items():
            having.setdefault(setting, set()).add(proc.source)

    def of(finding: Finding) -> frozenset[str]:
        sources = {evidence.source for evidence in finding.evidence}
        if finding.slug not in OF_A_JOB or finding.slug in HOSTS_TOO and not sources <= jobs.keys():
            return _NOBODY
        if finding.slug in SETTINGS:
            sources.update(*(logs for (name, value), logs in having.items() if _named(name, value, finding.message)))
        return frozenset(jobs[source] for source in sources if source in jobs)

    return of


def _named(name: str, value: str, message: str) -> bool:
    return f"{name}={value}" in message and bool(re.search(rf"\b{re.escape(name)}={re.escape(value)}(?![\w.-])", message))
