"""What would settle a hang or a dead rank: outputs of the job itself, to be asked for before those of the host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudoctor import cpulist
from gpudoctor.facts.hang import FlightRecorder, Ras, Watchdog
from gpudoctor.facts.kernel import KernelLog, MemoryKills
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Software
from gpudoctor.model import ERROR, WARNING, Finding, Missing

_HANGS = frozenset(("collective-timeout", "rank-mismatch"))
_MOST = 1 << 16  # ranks
# Found in a virtual environment too: sudo has a PATH of its own.
_STACK = 'sudo "$(command -v py-spy || echo py-spy)" dump --pid PID'
_RAS_SINCE = (2, 24)  # NCCL's release notes
# PyTorch 2.9 gave the setting its new name; 2.13 still takes the old one (both stand in its library).
_BUFFER_SINCE = (2, 9)


def asked(stores: Iterable[FactStore], findings: Iterable[Finding], unbuilt: bool) -> Iterator[Missing]:
    """unbuilt: a communicator of which nothing shows that it came about."""
    said = [f for f in findings if f.severity in (ERROR, WARNING)]
    for store in stores:
        watchdog, comm, recorder = store.get(Watchdog), _largest(store), store.get(FlightRecorder)
        died = [f for f in said if f.slug == "peer-died"]
        gone = {f.subject for f in died}
        hung = [f for f in said if f.slug in _HANGS and (f.slug != "rank-mismatch" or watchdog is not None) and f.subject not in gone]
        if recorder is not None:
            yield from _other_dumps(recorder, watchdog)
        if not (hung or died or unbuilt) or comm is None and watchdog is None and recorder is None:
            continue
        suspects = sorted({int(f.subject[5:]) for f in (*hung, *died) if f.subject.startswith("rank:")})
        yield from _logs(store, comm, watchdog, suspects)
        if hung and watchdog is not None and watchdog.works and recorder is None:
            yield from _dumps(store, watchdog)
        if died:
            yield from _kernel(store, comm, died)
        if hung or unbuilt:
            yield from _service(store, comm)
        if hung and not died:
            who = f"rank {suspects[0]}" if len(suspects) == 1 else "the ranks that others wait for"
            stack = f'where the code of {who} stands while it hangs, PID its process on its host:  {_STACK}'
            yield Missing("a stack of the rank that did not come", "not in the input", stack, pressing=True)
        return


def _largest(store: FactStore) -> NcclComm | None:
    sized = [c for c in store.get(Nccl) or () if c.nranks is not None]
    return max(sized, key=lambda c: c.nranks or 0, default=None)


def _logs(store: FactStore, comm: NcclComm | None, watchdog: Watchdog | None, suspects: list[int]) -> Iterator[Missing]:
    """Of ranks that wrote nothing of what is here, those first that the others wait for."""
    world = comm.nranks if comm is not None else max((a.world for a in (watchdog.accused if watchdog is not None else ()) if a.world is not None), default=None)
    heard = {number for number, _, _ in comm.members()} if comm is not None else set()
    heard |= {w.rank for w in watchdog.works if w.rank is not None} if watchdog is not None else set()
    silent = [rank for rank in suspects if rank not in heard]
    if not silent and world is not None and world <= _MOST and not suspects:
        silent = sorted(set(range(world)) - heard)
    if silent:
        many = len(silent) > 1
        which = f"rank{'s' if many else ''} {_listed(silent)}"
        yield Missing(f"the log of {which}", "not in the input", f"the log{'s' if many else ''} of {which}, from the start to where {'each' if many else 'it'} stops", pressing=True)
    elif world is None and not suspects:
        yield Missing("the logs of the other ranks", "not in the input", "the logs of all ranks, each from its start to where it stops", pressing=True)


def _listed(ranks: list[int]) -> str:
    parts = cpulist.render(set(ranks)).split(",")
    return ",".join(parts) if len(parts) < 8 else f"{','.join(parts[:6])},… ({len(ranks)})"


def _other_dumps(recorder: FlightRecorder, watchdog: Watchdog | None) -> Iterator[Missing]:
    """Of ranks that the dumps' own lists of groups or the watchdog's lines name."""
    from gpudoctor.hang_dumps import jobs

    told = {w.rank for w in watchdog.works if w.rank is not None} if watchdog is not None else set()
    given = jobs(recorder)
    if any(d.rank is None for d in recorder.dumps):
        yield Missing("flight recorder dumps by rank", "not in the input", "PyTorch's flight recorder dumps of all ranks, each under the name it was written (nccl_trace_rank_N)", pressing=True)
        return
    lacking = {r for job in given for r in job.lacking} if len(given) > 1 else (told | given[0].members) - given[0].ranks
    if lacking:
        many = "s" if len(lacking) > 1 else ""
        yield Missing(f"the flight recorder of rank{many} {_listed(sorted(lacking))}", "not in the input", f"PyTorch's flight recorder dump{many} of rank{many} {_listed(sorted(lacking))}", pressing=True)
    elif not any(job.members for job in given) and len(recorder.dumps) < 2:
        yield Missing("the flight recorders of the other ranks", "not in the input", "PyTorch's flight recorder dumps of all other ranks", pressing=True)


def _dumps(store: FactStore, watchdog: Watchdog) -> Iterator[Missing]:
    software = store.get(Software)
    version = _number(software.versions.get("torch")) if software is not None else None
    name = "TORCH_FR_BUFFER_SIZE" if version is not None and version >= _BUFFER_SINCE else "TORCH_NCCL_TRACE_BUFFER_SIZE"
    if any(w.frames or w.told_by is not None for w in watchdog.works):
        hint = "PyTorch's flight recorder dumps of all ranks: /tmp/nccl_trace_rank_* on each host (or where TORCH_FR_DUMP_TEMP_FILE says)"
    else:
        hint = f"PyTorch's flight recorder dumps of all ranks, /tmp/nccl_trace_rank_*, of a run with {name}=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"
    yield Missing("PyTorch's flight recorder", "not in the input", hint, pressing=True)


def _service(store: FactStore, comm: NcclComm | None) -> Iterator[Missing]:
    """Where NCCL has the service, and nobody switched it off."""
    version = _number(comm.version) if comm is not None else None
    if Ras in store or comm is None or version is None or version < _RAS_SINCE or comm.env.get("NCCL_RAS_ENABLE") == "0":
        return
    yield Missing("NCCL's RAS service", "not asked", "gpudoctor check --ras     (on a host of the job, while it hangs)", pressing=True)


def _kernel(store: FactStore, comm: NcclComm | None, died: list[Finding]) -> Iterator[Missing]:
    """The system's own word on who ended the process; a log of another host says nothing of it."""
    seats = comm.by_rank() if comm is not None else {}
    hosts = dict.fromkeys(p.host for f in died if f.subject.startswith("rank:") and (p := seats.get(int(f.subject[5:]))) is not None and p.host)
    if KernelLog not in store and MemoryKills not in store or hosts and store.homes is not None:
        where = f"on {', '.join(list(hosts)[:4])}, where it ran" if hosts else "on the host of the rank that ended first"
        yield Missing("the kernel log of the dead rank's host", "not in the input", f"sudo dmesg -T     ({where})", pressing=True)


def _number(version: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", version or "")
    return (int(found[1]), int(found[2])) if found is not None else None
