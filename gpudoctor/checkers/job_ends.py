"""How a job ends other than by a time-out: processes that died, a start that not all came to, errors of the watchdog."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.checkers.job_causes import COLLECTIVE_TIMEOUT
from gpudoctor.checkers.job_logs import KILLED, after, after_kill, by_itself, killed_by_kernel, stop_of
from gpudoctor.checkers.job_stacks import of_rank
from gpudoctor.checkers.nccl_causes import CUDA_ERROR, NETWORK_ERROR, PEER_DIED
from gpudoctor.facts.hang import ABORT, KILL, SIGNALS, TERMINATE, Death, LogEnds, RankWork, Watchdog
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import short
from gpudoctor.hang import OF_A_GPU, error_slug, listing, world_of
from gpudoctor.model import CERTAIN, ERROR, LIKELY, POSSIBLE, CannotTell, Finding, Step
from gpudoctor.nccl_messages import classify

MAX_SUBJECTS = 8
MAX_EVIDENCE = 8


def deaths(watchdog: Watchdog, victims: frozenset[int], hung: bool, nccl: Nccl | None, ends: LogEnds | None = None, kills: MemoryKills | None = None) -> Iterator[Finding]:
    """What the launcher saw end. SIGABRT and SIGTERM are how a watchdog and a launcher stop the others, and a rank that
    waited ends because it waited."""
    others = [d for d in watchdog.deaths if d.rank is not None and d.rank not in victims and not d.after]
    # Half a minute after one process failed, the launcher kills those that hang in a collective with it.
    after = any(d.first and d.rank is not None and d.exitcode > 0 for d in watchdog.deaths)
    killed = [d for d in others if -d.exitcode in SIGNALS]
    ended = killed or any(d.after for d in watchdog.deaths)
    first = [d for d in others if d.first and (hung or ended) and d.exitcode not in (-ABORT, -TERMINATE)]
    killed = [d for d in killed if not (after and d.exitcode == -KILL)]
    chosen: dict[int | None, Death] = {}
    for death in first or killed:
        chosen.setdefault(death.rank, death)
    places = _places(nccl)
    ranks = all(_is_rank(d, places) for d in chosen.values())
    if len(chosen) > MAX_SUBJECTS or not ranks:
        yield _many([*chosen.values()], ranks)
    else:
        yield from (_dead(death, rank, nccl, ends, kills) for rank, death in chosen.items())


def _places(nccl: Nccl | None) -> dict[int, set[str]]:
    """The hosts of each rank in NCCL's log."""
    out: dict[int, set[str]] = {}
    for comm in nccl or ():
        if comm.nranks == world_of(nccl, None):
            for number, proc, _ in comm.members():
                if proc.host is not None:
                    out.setdefault(number, set()).add(short(proc.host))
    return out


def _is_rank(death: Death, places: dict[int, set[str]]) -> bool:
    """srun counts its tasks: where each of them starts the ranks of a node, task 1 is not rank 1, nor where rank 1 is."""
    hosts = places.get(death.rank if death.rank is not None else -1)
    return not hosts or death.host is None or "[" in death.host or short(death.host) in hosts


def _many(gone: list[Death], ranks: bool) -> Finding:
    """Too many to tell one by one, or tasks of a launcher that are no ranks."""
    numbers = [d.rank for d in gone if d.rank is not None]
    what = ("rank" if ranks else "task") + ("s" if len(numbers) > 1 else "")
    hosts = list(dict.fromkeys(d.host for d in gone if d.host is not None))
    where = f" on {', '.join(hosts[:MAX_SUBJECTS])}{f' and {len(hosts) - MAX_SUBJECTS} more' if len(hosts) > MAX_SUBJECTS else ''}" if hosts else ""
    how = {d.exitcode: d.ended(len(gone) > 1) for d in gone}
    evidence = list(dict.fromkeys(d.at("*") for d in gone))[:MAX_EVIDENCE]
    return Finding(
        PEER_DIED.slug, ERROR, "host",
        f"The process{'es' if len(gone) > 1 else ''} of {what} {listing(numbers)}{where} {' or '.join(how.values())}."
        + ("" if ranks else " These are tasks of the launcher, no ranks: NCCL's log has the ranks of these numbers on other hosts."),
        tuple(evidence), LIKELY, "The job ends.", _after_death(gone[0], f"{what} {listing(numbers)}"),
    )  # fmt: skip


def unexplained(watchdog: Watchdog, nccl: Nccl | None, ends: LogEnds | None = None, kills: MemoryKills | None = None) -> Iterator[Finding | CannotTell]:
    """A job that nothing else tells the end of: a process that aborted, or one of which only the process number is told.

    The launcher stops the others by SIGTERM, so a SIGABRT is the process's own. Without a word of NCCL's an abort may be any
    program's.
    """
    rank_at: dict[int, set[int]] = {}
    hosts: dict[int, set[str | None]] = {}
    for comm in nccl or ():
        for number, proc, _ in comm.members():
            if proc.pid is not None:
                rank_at.setdefault(proc.pid, set()).add(number)
                hosts.setdefault(proc.pid, set()).add(proc.host)
    ended = [d for d in watchdog.deaths if not d.after and (-d.exitcode in SIGNALS or d.exitcode == -ABORT)]
    places = _places(nccl)
    for death in sorted(ended, key=lambda d: (not d.first, d.rank is None)):
        ranks = rank_at.get(death.pid, set()) if death.pid is not None else set()
        if death.rank is None and death.host is not None and not any(
            h is not None and short(h) == short(death.host) for h in hosts.get(death.pid or 0, ())
        ):
            continue  # a handler of Open MPI's, in a program that NCCL's log does not know
        rank = death.rank if death.rank is not None else ranks.pop() if len(ranks) == 1 else None
        if not _is_rank(death, places):
            yield _many([death], False)
        elif nccl is None and death.exitcode == -ABORT:
            yield CannotTell(PEER_DIED.slug, f"{death.called(rank)} ended by SIGABRT; what it printed before that is not in the input")
        else:
            yield _dead(death, rank, nccl, ends, kills)
        return


def _dead(death: Death, rank: int | None, nccl: Nccl | None, ends: LogEnds | None, kills: MemoryKills | None) -> Finding:
    sure = death.first and -death.exitcode != ABORT
    stop = stop_of(rank, ends, nccl) if rank is not None else None
    steps = _after_death(death, death.called(rank))
    message = _died(death, rank)
    if stop is not None:
        message += f" {stop.words}"
        killed = [s for s in steps if s.command is not None and death.exitcode < 0]
        if 0 < death.exitcode < 128 and not stop.troubled and not stop.left:
            steps = (by_itself(rank or 0),)
        else:
            steps = (*killed, *(s for s in after(rank or 0, stop, death.host) if not killed or s.command is None))
    end = killed_by_kernel(rank, nccl, kills) if rank is not None and death.exitcode == -KILL else None
    if end is not None:
        message += f" {end.words}"
        steps = after_kill(rank or 0)
    return Finding(
        PEER_DIED.slug, ERROR, f"rank:{rank}" if rank is not None else "host", message,
        (death.at("*"), *((end.evidence,) if end is not None else ()), *((stop.evidence,) if stop is not None else ())), CERTAIN if sure else LIKELY, "The job ends.", steps,
    )  # fmt: skip


def _died(death: Death, rank: int | None) -> str:
    order = "; the launcher saw it end first" if death.first else ""
    who = death.called(rank)
    whose = f"Process {death.pid} of the job" if who.startswith("process") else f"The process of {who}"
    return f"{whose}{f' on {death.host}' if death.host else ''} {death.ended()}{order}. What other ranks say follows from it."


def _after_death(death: Death, who: str) -> tuple[Step, ...]:
    steps = [Step(f"Read the end of the log of {who}: the launcher shows only its exit code")]
    if death.exitcode == -9:
        steps.insert(0, Step("SIGKILL is mostly the kernel's memory killer; on that host", KILLED))
    elif death.exitcode == -7:
        steps.insert(0, Step("SIGBUS is mostly a /dev/shm that is full", "df -h /dev/shm"))
    else:
        steps.append(Step("Xids and memory errors of that host", "gpudoctor check"))
    return tuple(steps)


def unfinished_start(watchdog: Watchdog) -> Iterator[Finding]:
    """A store barrier at the start counts who came: the ranks that wait say so, the missing ones cannot."""
    waits = [a for a in watchdog.accused if a.kind == "waits" and a.world is not None and a.joined is not None]
    if not waits:
        return
    world, joined = waits[0].world or 0, max(a.joined or 0 for a in waits)
    if joined >= world:
        return
    came = {r for a in waits for r in a.ranks} | {w.rank for w in watchdog.works if w.rank is not None}
    missing = sorted(set(range(min(world, 1 << 16))) - came)
    message = f"{joined} of {world} ranks came to the start of the process group within its time."
    if len(missing) == world - joined <= MAX_SUBJECTS:
        for rank in missing:
            yield Finding(
                COLLECTIVE_TIMEOUT.slug, ERROR, f"rank:{rank}", f"{message} Rank {rank} did not.", (waits[0].at("*"),), LIKELY,
                "The job does not start.", _start_steps(f"rank {rank}"),
            )  # fmt: skip
        return
    yield Finding(
        COLLECTIVE_TIMEOUT.slug, ERROR, "host", f"{message} Which ones did not, the input does not show.", (waits[0].at("*"),), CERTAIN,
        "The job does not start.", _start_steps("the missing ranks"),
    )  # fmt: skip


def _start_steps(who: str) -> tuple[Step, ...]:
    return (
        Step(f"Read the log of {who} from its beginning: did the process start, and does it get the same MASTER_ADDR, WORLD_SIZE and RANK"),
        Step("Can its host reach the first one", 'nc -vz "$MASTER_ADDR" "$MASTER_PORT"'),
    )


def stuck(watchdog: Watchdog) -> Iterator[Finding]:
    """The watchdog's own thread stood still: a call into CUDA or NCCL that does not return, or Python's lock."""
    still = [w for w in watchdog.works if w.stuck]
    if not still:
        return
    ranks = sorted({w.rank for w in still if w.rank is not None})
    one = len(ranks) == 1
    whose = f"of rank {ranks[0]}" if one else f"of ranks {listing(ranks)}" if ranks else "of a rank"
    longest = max((w.stuck_seconds for w in still if w.stuck_seconds is not None), default=None)
    since = f" for {longest} s" if longest is not None else ""
    yield Finding(
        COLLECTIVE_TIMEOUT.slug, ERROR, f"rank:{ranks[0]}" if one else "host",
        f"PyTorch's watchdog {whose} made no progress{since}: a call into CUDA or NCCL does not return there, or "
        "Python's lock is held.",
        tuple(w.at("stuck") for w in still[:MAX_EVIDENCE]), POSSIBLE, "The job stands still until it is ended.",
        (
            of_rank(ranks[0] if one else None, True, native=True),
            Step("A GPU that does not answer blocks such calls too", "gpudoctor check"),
        ),
    )  # fmt: skip


def errors(watchdog: Watchdog, nccl: Nccl | None) -> Iterator[Finding | CannotTell]:
    """An error of NCCL or CUDA that ended the watchdog: where NCCL's own log names a cause, that is the better source."""
    failed = [w for w in watchdog.works if w.error is not None]
    if not failed or nccl is not None and any(m.slug for m in nccl.messages):
        return
    slugs = [error_slug(w) for w in failed]
    own = [w for w, slug in zip(failed, slugs, strict=True) if slug not in (None, PEER_DIED.slug)]
    if own:
        # An error of its own on one rank makes remote errors on the others.
        yield _failed(own[0], error_slug(own[0]) or CUDA_ERROR.slug, len(failed))
    elif PEER_DIED.slug in slugs:
        yield _lost([w for w, slug in zip(failed, slugs, strict=True) if slug is not None], watchdog, nccl)
    else:
        yield CannotTell(COLLECTIVE_TIMEOUT.slug, f"no time-out: the watchdog ended because of `{(failed[0].error or '')[:160]}`")


def _failed(work: RankWork, slug: str, ranks: int) -> Finding:
    who = f"rank {work.rank}" if work.rank is not None else "a rank"
    known = classify(work.last_error + "\n") if work.last_error else None
    steps: tuple[Step, ...] = (
        Step(f"Xids and the state of the GPU on the host of {who}", "gpudoctor check"),
        Step("CUDA reports an error late; to see the call that failed", "CUDA_LAUNCH_BLOCKING=1 NCCL_DEBUG=INFO", "reversible"),
    )
    of_gpu = classify(f"{work.last_error if known is not None and known[0].slug == slug else work.error}\n") if slug in OF_A_GPU else None
    if of_gpu is not None:
        steps = (Step(of_gpu[0].remedy), steps[0])
    if known is not None and known[0].slug == NETWORK_ERROR.slug:
        steps = (Step(known[0].remedy), Step("See the ports and their state on both hosts", "ibstat; ip -br addr"))
    return Finding(
        slug, ERROR, f"rank:{work.rank}" if work.rank is not None else "host",
        f"The watchdog of {who} ended because of an error, not of a time-out: {(work.last_error or work.error or '')[:200]}"
        + (f" ({ranks} ranks report one; this is the first)" if ranks > 1 else ""),
        (work.at("error"),), LIKELY, "The job ends.", steps,
    )  # fmt: skip


def _lost(gone: list[RankWork], watchdog: Watchdog, nccl: Nccl | None) -> Finding:
    told = {w.rank for w in gone if w.rank is not None}
    world = world_of(nccl, watchdog)
    silent = set(range(world)) - told - {w.rank for w in watchdog.works} if world is not None else set()
    named = len(silent) == 1
    return Finding(
        PEER_DIED.slug, ERROR, f"rank:{min(silent)}" if named else "host",
        f"NCCL on {'rank' if len(told) == 1 else 'ranks'} {listing(told) if told else '?'} lost another rank"
        + (f": rank {min(silent)} is the one that says nothing." if named else ". Which one went first, its own log shows."),
        tuple(w.at("error") for w in gone[:MAX_EVIDENCE]), LIKELY if named else POSSIBLE, "The job ends.",
        (
            Step("Find the log whose error has the earliest time; lines of connections that closed are consequences"),
            Step("Ask NCCL for its own words next time", "NCCL_DEBUG=INFO", "reversible"),
        ),
    )  # fmt: skip
