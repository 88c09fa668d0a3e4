"""A job of which the input shows the end and not the reason, or a start and not that it came about: neither a fault that could be named, nor a pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpudoctor import cpulist
from gpudoctor.facts.hang import TERMINATE, FlightRecorder, LogEnd, LogEnds, Watchdog
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.launch import Launches, StartFailure, StartFailures
from gpudoctor.facts.nccl import Nccl, NcclComm, NcclMessage, NcclProc, NcclRank
from gpudoctor.facts.store import FactStore
from gpudoctor.model import ERROR, UNBUILT, WARNING, Evidence, Finding, Missing

_MOST = 100_000  # ranks
# A framework's words for results of NCCL's behind which too much may stand to name one of it.
_NAMELESS = {
    "result-unknown": "the program got a result of NCCL's that it has no name for, as where it was built with another release of NCCL than it loads, "
    "or where a call is made before the last one is done",
    "torch-usage": "NCCL refused the call: mostly two ranks share a GPU, no network interface was found, or the ranks disagree",
}


def unexplained(stores: Iterable[FactStore], findings: Iterable[Finding]) -> Iterator[Missing]:
    """Says of the first process that ended in an error how it ended, where nothing was found and NCCL's log is not there to judge.

    Where it is, and is in order, an exception of the program's own is no fault of the communication.
    """
    findings = list(findings)
    if any(f.severity == ERROR for f in findings):
        return
    stores = list(stores)
    warned = any(f.severity == WARNING for f in findings)
    told = _first(_ALWAYS, stores) or (None if warned else _first(_IN_ORDER, stores))
    if told is not None:
        yield told


def _first(questions: Sequence[Question], stores: Iterable[FactStore]) -> Missing | None:
    """One on which the verdict hangs goes before one that is only worth a word."""
    told = [said for store in stores for ask in questions if (said := ask(store)) is not None]
    return next((said for said in told if said.needed), told[0] if told else None)


def _killed(store: FactStore) -> Missing | None:
    """The kernel ended a process for want of memory: was it of a job?"""
    kills = store.get(MemoryKills)
    if kills is None or not kills.kills or not store.only(MemoryKills):
        return None
    spot = kills.kills[0].at("*")
    return Missing("whether it was of a job", f"the kernel ended process {kills.kills[0].pid} ({kills.kills[0].name}) for want of memory ({spot.source}, {spot.where}): the job's log would tell", needed=True)


def _no_start(store: FactStore) -> Missing | None:
    """A launcher that failed. A job whose NCCL spoke did start: what its launcher said was of another attempt."""
    starts, nccl = store.get(StartFailures), store.get(Nccl)
    failed = starts.first if starts is not None and (nccl is None or not nccl.of_a_run) else None
    if starts is None or failed is None:
        return None
    bare = not starts.of_a_job and Launches not in store  # ssh alone: somebody may have gathered outputs
    return _not_reached(failed, store.only(StartFailures, LogEnds)) if bare else _not_started(failed)


def _recorded(store: FactStore) -> Missing | None:
    """Flight recorder dumps of some of the ranks."""
    if FlightRecorder not in store:
        return None
    from gpudoctor.correlate.recorded import unsettled

    return unsettled(store)


def _unbuilt(store: FactStore) -> Missing | None:
    """A communicator that began, of which the log does not show that all its ranks came."""
    comms = store.get(Nccl) or ()
    for comm in comms:
        # A line that was cut shows its rank and not to which communicator it belongs.
        absent = _waiting(comm) - {r.rank for c in comms if c.comm_id is None and c.nranks == comm.nranks for r in c.ranks if r.rank is not None}
        if absent:
            # Where most of the ranks write elsewhere, or were left out of a paste, little can be said. A job of two of which
            # one began and its log ends there waits for the other, or has only just begun: neither is a pass.
            begun = (comm.nranks or 0) - len(absent)
            return Missing(
                UNBUILT,
                f"{begun} of its {comm.nranks} ranks began ({comm.source}) and the log ends there; "
                f"rank{'s' if len(absent) > 1 else ''} {cpulist.render(absent)} never appear{'s' if len(absent) == 1 else ''} in it: "
                "if the job hangs, look there first (is the process alive, and what did it print?)",
                needed=begun >= len(absent),
            )
    return None


def _nameless(store: FactStore) -> Missing | None:
    """A result of NCCL's that names no cause."""
    for comm in store.get(Nccl) or ():
        nameless = next((m for m in comm.messages if m.family in _NAMELESS), None)
        if nameless is not None and comm.failure is None:
            spot = nameless.at("*")
            own = next((m for m in comm.messages if m.level == "WARN"), None)
            told = f"NCCL's own words are `{own.text[:160]}` ({own.source}:{own.line})" if own is not None else "NCCL's own words would tell: NCCL_DEBUG=WARN"
            return Missing(
                "why NCCL failed",
                f"`{nameless.text[:200]}` ({spot.source}, {spot.where}): {_NAMELESS[nameless.family]}. {told}",
                needed=True,
            )
    return None


def _foreign(store: FactStore) -> Missing | None:
    """A call of another vendor's runtime that failed."""
    for comm in store.get(Nccl) or ():
        message = next((m for m in comm.messages if m.family in ("hip", "hip-file")), None)
        if message is None:
            continue
        from gpudoctor.nccl_messages import family  # only where there is such a message

        if (known := family(message.family)) is not None:
            return Missing("why RCCL failed", f"`{message.text[:200]}` ({message.source}, line {message.line}): {known.meaning} {known.remedy}", needed=True)
    return None


# Complaints that come of a failure before them and never of a process that merely ended.
_OF_A_FAILURE = (
    "Proxy Call to rank",
    "[Service thread] Error encountered progressing",
    "Failed to execute operation",
    "communicator encountered a fatal error",
    "Unable to connect",
    "Socket recv failed while polling",
    "ncclCommSetAsyncError: error comm",
    "Attempt to use communicator before the previous operation",
    "Mismatched response size for opId",
)


def _followed(store: FactStore) -> Missing | None:
    """A complaint that follows from another, which is not there."""
    messages = [m for comm in store.get(Nccl) or () for m in comm.messages if m.level == "WARN"]
    echo = next((m for m in messages if m.family == "follow-up" and any(words in m.text for words in _OF_A_FAILURE)), None)
    if echo is None:
        return None
    from gpudoctor.nccl_messages import DOES_WITHOUT  # only where there is such a message

    if any(m.slug is not None and m.tier < DOES_WITHOUT for m in messages):
        return None
    return Missing(
        "why NCCL failed",
        f"`{echo.text[:160]}` ({echo.source}, line {echo.line}) follows from a failure that is not in the input: NCCL's first complaint, on this rank or on "
        "the one it names, tells it (NCCL_DEBUG=WARN on every rank)",
        needed=True,
    )


def _refused(store: FactStore) -> Missing | None:
    """A communicator that failed to begin, for a reason that is not there."""
    comms = [c for c in store.get(Nccl) or () if c.failure is None]
    # Without SHARP NCCL goes on, whatever the calls gave back that should have set it up.
    if any(m.family == "collnet-fallback" for comm in comms for m in comm.messages):
        return None
    for comm in comms:
        proc, told = next(((p, r.failed) for _, p, r in comm.seats if r.failed and not r.completed and not _retried(comm, p, r, store)), (None, None))
        if proc is None or told is None:
            proc = next((p for p in comm.procs if p.failed_start and not any(map(_made, p.ranks))), None)
            told = (proc.failed_start or "", proc.at("failed_start")) if proc is not None else None
        if proc is not None and told is not None:
            return _refusal(told[0], told[1], next((m for c in comms for m in c.messages if m.level == "WARN" and m.process == (proc.source, proc.host, proc.pid)), None))
    return None


def _refusal(result: str, spot: Evidence, said: NcclMessage | None) -> Missing:
    return Missing(
        "why NCCL's start failed",
        f"`{result}` ({spot.source}, {spot.where}): the call that makes a communicator failed, and "
        + (f"what NCCL said before is not known here, or was cut: `{said.text[:160]}` ({said.source}:{said.line})" if said is not None else "NCCL's own words are not in the input: NCCL_DEBUG=WARN shows them"),
        needed=True,
    )


def _retried(failed: NcclComm, proc: NcclProc, rank: NcclRank, store: FactStore) -> bool:
    """Was the same communicator made later: this process as the same rank of as many, and of no other processes?"""
    for comm in store.get(Nccl) or ():
        for number, other, made in comm.seats:
            if (other.source, other.host, other.pid) == (proc.source, proc.host, proc.pid) and number == rank.rank and comm.nranks == failed.nranks:
                if made.order > rank.order and _made(made) and not _of_others(failed, comm):
                    return True
    return False


def _of_others(a: NcclComm, b: NcclComm) -> bool:
    """Are their members known, and not the same?"""
    seats = [{(number, proc.host, proc.pid) for number, proc, _ in comm.seats} for comm in (a, b)]
    return len(seats[0]) == a.nranks and len(seats[1]) == b.nranks and seats[0] != seats[1]


def _crashed(store: FactStore) -> Missing | None:
    """A log of NCCL's, in order, that ends in a crash."""
    ends = (store.get(LogEnds) or LogEnds()).ends if store.get(Nccl) else ()
    crash = next((told for end in ends for told in _crash_in(end)), None)
    if crash is None:
        return None
    return Missing(
        "why the job ended",
        f"the log has {crash}: what NCCL says before is in order, and nothing says what crashed: a core dump (coredumpctl info), "
        "or the same run with PYTHONFAULTHANDLER=1 and NCCL_DEBUG=INFO would tell",
        needed=True,
    )


def _not_summed(store: FactStore) -> Missing | None:
    """A program's own check of an all-reduce over ones, as vLLM's script makes it, that failed."""
    ends = (store.get(LogEnds) or LogEnds()).ends if store.get(Nccl) else ()
    told = next((told for end in ends for told in _sum_in(end)), None)
    if told is None:
        return None
    return Missing(
        "why the program's check of its all-reduce failed",
        f"the log has {told}. A value that is one rank's own means that nothing was summed, as with vLLM's test script where it is of another release "
        "than the library; any other one is wrong data. `all_reduce_perf -c 1` over the same GPUs, or vLLM's present script, tells which",
        needed=True,
    )


def _ended(store: FactStore) -> Missing | None:
    """A process that its launcher saw end, in a job whose communication is not shown to have come about."""
    watchdog = store.get(Watchdog) if not any(_came_about(comm) for comm in store.get(Nccl) or ()) else None
    # SIGTERM is how a launcher stops the others.
    ended = [d for d in watchdog.deaths if d.exitcode not in (0, -TERMINATE) and not d.after] if watchdog is not None else []
    if not ended:
        return None
    death = min(ended, key=lambda d: not d.first)
    evidence = death.at("*")
    return Missing(
        "why the job ended",
        f"{death.called()} {death.ended()} ({evidence.source}, {evidence.where}), and nothing in the input says why: "
        "what it printed before that would tell",
        needed=True,
    )


def _complains(store: FactStore) -> Missing | None:
    """What PyTorch's process group says, where no communicator is seen to have come about."""
    watchdog = store.get(Watchdog)
    if watchdog is None or any(_came_about(comm) for comm in store.get(Nccl) or ()):
        return None
    from gpudoctor.correlate.torch_lines import complaint

    return complaint(watchdog)


Question = Callable[[FactStore], "Missing | None"]
_ALWAYS: tuple[Question, ...] = (_killed, _no_start, _recorded, _foreign, _not_summed, _refused, _nameless, _followed)
_IN_ORDER: tuple[Question, ...] = (_unbuilt, _crashed, _ended, _complains)  # where nothing was even warned of


def _made(rank: NcclRank) -> bool:
    return rank.completed or bool(rank.transports)


# As the shell, the C++ runtime and Slurm say it at the end of a log; a program speaks of such things in other words.
_CRASH = re.compile(
    r"(?:^|[\]:>|] )(?:Segmentation fault|Bus error|Illegal instruction|Aborted|Killed)(?: +\(core dumped\))?\s*$"
    r"|: line \d+: +\d+ (?:Segmentation fault|Bus error|Illegal instruction|Aborted|Killed)\b"
    r"|(?:^|[\]:>|] )terminate called (?:after throwing an instance of|without an active exception)"
    r"|slurmstepd: error: .{0,80}oom[-_]kill event|(?:slurmstepd|srun): error: .{0,120} DUE TO NODE FAILURE"
)
# UCX, which is in every process of many MPIs, says it above its own list of calls.
_CAUGHT = re.compile(r"\bCaught signal (?:4|6|7|8|11) \([A-Z]")
_LAST = 5  # lines in which it stands: a shell says it after all else


def _crash_in(end: LogEnd) -> Iterator[str]:
    last = len(end.lines) - _LAST
    for place, (number, line) in enumerate(end.lines):
        if "Caught signal " in line and _CAUGHT.search(line) or place >= last and _CRASH.search(line):
            yield f"`{line.strip()[:160]}` ({end.source}, line {number})"


_SUM = re.compile(r"AssertionError: Expected \d{1,6}, got (?:-?\d[\d.e+-]{0,24}|-?inf|nan)\s*$")


def _sum_in(end: LogEnd) -> Iterator[str]:
    asked = any("assert value == world_size" in line for _, line in end.lines)
    for number, line in end.lines if asked else ():
        if _SUM.search(line) is not None:
            yield f"`{line.strip()[:160]}` ({end.source}, line {number})"


def _came_about(comm: NcclComm) -> bool:
    """Something that NCCL says only once its ranks have met."""
    return bool(comm.transports or comm.counts or comm.channels is not None or any(r.completed or r.nnodes is not None for r in comm.ranks))


# By kind: what it means, and what to do.
_STARTS = {
    "no-name": "the name of that host is not known here: a wrong host file, no DNS entry, or a pod that is not up yet (getent hosts NAME)",
    "no-login": "ssh to a host of the job asks or refuses: keys and known hosts must let the user in without a question (ssh -o BatchMode=yes HOST true)",
    "no-daemon": "Open MPI is not found on that host by a shell without login: the same installation in the same place everywhere, then mpirun --prefix DIR, or its bin in PATH of such shells",
    "no-program": "the program is not there, or not executable, on that host: build it in a directory that all hosts share, or copy it",
    "no-slots": "the host file, -H list or allocation counts fewer slots than ranks were asked for: give each host its GPUs as slots (-H node1:8,node2:8), or ask for fewer ranks",
    "as-root": "mpirun refuses root: start it as a user, or with --allow-run-as-root in a container",
    "no-pmi": "this Open MPI cannot be started by srun directly: use mpirun within the allocation, or a build with PMI (srun --mpi=list shows what Slurm has)",
    "refused": "Slurm did not start it: compare what was asked for with what there is (sinfo -N -l; scontrol show job ID)",
    "daemon-lost": "the daemon on that host ended, or the connection to it did: look at that host (is it up, was the daemon killed), then at the network between the two",
    "daemon-failed": "mpirun could not start its daemon on a host: the lines above it (ssh, shell, libraries) say why; else the daemons cannot connect back (--mca oob_tcp_if_include IFACE, firewall)",
    "port-taken": "another process listens on that port, mostly another job on this host or one that was left over: take another --master-port, or see who it is (ss -ltnp)",
    "closed": "the rendezvous was closed before this node came: another node finished or failed first; its log tells why",
}  # fmt: skip


def _not_reached(failure: StartFailure, alone: bool) -> Missing:
    spot = failure.at("*")
    return Missing(f"what {failure.peer or 'a host'} would tell", f"ssh says `{failure.words}` ({spot.source}, {spot.where})", needed=alone)


def _not_started(failure: StartFailure) -> Missing:
    spot = failure.at("*")
    port = f" (port {failure.port})" if failure.port is not None else ""
    return Missing(
        "why the job did not start", f"{failure.who} says `{failure.words}`{port} ({spot.source}, {spot.where}): {_STARTS.get(failure.kind, 'see there')}",
        needed=True,
    )  # fmt: skip


def _waiting(comm: NcclComm) -> set[int]:
    """Ranks that those shown wait for, as far as the log goes: it shows nothing that comes once all are there."""
    begun = comm.ranks and all(r.started and not r.completed and r.ended is None and r.failed is None and r.nnodes is None for r in comm.ranks)
    if not begun or _came_about(comm) or comm.nranks is None or comm.nranks > _MOST:
        return set()
    return set(range(comm.nranks)) - {r.rank for r in comm.ranks if r.rank is not None}
