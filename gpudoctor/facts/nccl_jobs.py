"""Logs to jobs: which files tell of one run."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.nccl import Nccl, NcclComm, Spots


def jobs_of(comms: Iterable[NcclComm]) -> dict[str, str]:
    """Each log in which a communicator is named -> its job, called by one of its logs.

    A job's logs share a communicator or a process. A log that names no communicator (a launcher's, a process that ended
    early) can be of any job and is left out.
    """
    above: dict[object, object] = {}

    def top(key: object) -> object:
        above.setdefault(key, key)
        while above[key] != key:
            above[key] = key = above[above[key]]
        return key

    logs: dict[str, None] = {}
    for comm in comms:
        if comm.nranks is None or not comm.procs:
            continue
        first = comm.procs[0].source
        for proc in comm.procs:
            logs[proc.source] = None
            above[top(proc.source)] = top(first)
            if proc.host is not None and proc.pid is not None:
                above[top((proc.host, proc.pid))] = top(first)
    names: dict[object, str] = {}
    return {log: names.setdefault(top(log), log) for log in logs}


def spots_of(jobs: dict[str, str], parts: Iterable[Nccl]) -> dict[str, Spots]:
    """By log, the evidence that its job's logs hold; nothing where all are of one job, whose evidence is all there is."""
    if len(set(jobs.values())) < 2:
        return {}
    spots = {job: Spots({}, {}) for job in jobs.values()}
    for part in parts:
        for key, spot in part.settings.items():
            if spot.source in jobs:
                spots[jobs[spot.source]].settings.setdefault(key, spot)
        for kind, spot in part.seen.items():
            if spot.source in jobs:
                spots[jobs[spot.source]].seen.setdefault(kind, spot)
    return {log: spots[job] for log, job in jobs.items()}
