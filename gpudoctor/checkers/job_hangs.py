"""A collective that did not end: what to say of the ranks that waited, and of the one that did not come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gpudoctor.checkers.job_causes import COLLECTIVE_TIMEOUT
from gpudoctor.checkers.job_logs import Stop, stop_of
from gpudoctor.checkers.job_stacks import of_rank
from gpudoctor.checkers.nccl_causes import RANK_MISMATCH
from gpudoctor.facts.hang import FlightRecorder, LogEnds, Watchdog
from gpudoctor.facts.nccl import Nccl, NcclProc, NcclRank
from gpudoctor.hang import AHEAD, ALL_IN, BEHIND, EARLIER, MISMATCH, NOT_STARTED, SILENT, Hang, collective, listing
from gpudoctor.hang_dumps import own_frame
from gpudoctor.model import ERROR, NOTE, Evidence, Finding, Step
from gpudoctor.record import replace

MAX_SUBJECTS = 8  # suspects with a finding of their own; beyond, one finding names them together
MAX_EVIDENCE = 8


class Known(NamedTuple):
    """What the input tells of the job beside the hang itself."""

    nccl: Nccl | None
    ends: LogEnds | None
    dumps: bool
    over: bool  # a watchdog spoke, and so ended the processes
    dead: frozenset[int]  # ranks that a launcher saw end before it ended the others
    processes: Mapping[int, NcclProc]
    seats: Mapping[int, NcclRank]


def known_of(watchdog: Watchdog | None, recorder: FlightRecorder | None, nccl: Nccl | None, ends: LogEnds | None) -> Known:
    """Ranks are those of the largest communicator of NCCL's log."""
    comm = max((c for c in nccl or () if c.nranks is not None), key=lambda c: c.nranks or 0, default=None)
    members = list(comm.members()) if comm is not None else []
    dead = frozenset(d.rank for d in (watchdog.deaths if watchdog is not None else ()) if d.rank is not None and not d.after)
    over = watchdog is not None and any(w.timed_out or w.signalled or w.told_by is not None for w in watchdog.works)
    return Known(nccl, ends, recorder is not None, over, dead, {n: p for n, p, _ in members}, {n: r for n, _, r in members})


def findings(hang: Hang, found: tuple[Hang, ...], known: Known) -> Iterator[Finding]:
    slug = RANK_MISMATCH.slug if hang.kind == MISMATCH else COLLECTIVE_TIMEOUT.slug
    message = _what(hang, found, known) + _host_of_all(hang, known.processes)
    if hang.because and not _crossed(hang, found):
        # Who waits elsewhere is a victim: the hang there is told by itself, and this one is what it leads to.
        yield Finding(COLLECTIVE_TIMEOUT.slug, NOTE, "host", message, _evidence(hang, hang.suspects), hang.confidence)
        return
    cost = "The job stands still" + (" until the watchdog ends it." if hang.timed_out else ".")
    if hang.suspects and len(hang.suspects) <= MAX_SUBJECTS and hang.overall:
        for rank in hang.suspects:
            ended = (e for v in hang.views.values() for e in v.evidence)
            stop = stop_of(rank, known.ends, known.nccl, ended) if hang.kind in (BEHIND, SILENT) else None
            evidence = _evidence(hang, (rank,))
            yield Finding(
                slug,
                ERROR,
                f"rank:{rank}",
                message + _stood(hang, rank) + (f" {stop.words}" if stop is not None else ""),
                (stop.evidence, *evidence) if stop is not None and stop.troubled else evidence,
                hang.confidence,
                cost,
                _steps(hang, rank, known, stop),
            )
        return
    yield Finding(
        slug,
        ERROR,
        "host",
        message,
        _evidence(hang, hang.suspects),
        hang.confidence,
        cost,
        _steps(hang, None, known, None),
    )


def _ranks(ranks: Iterable[int], hang: Hang) -> str:
    """`Rank 3`, `Ranks 0-2,5`; where they are numbered within the group, it says so."""
    numbers = sorted(ranks)
    words = f"Rank{'s' if len(numbers) > 1 else ''} {listing(numbers)}"
    return words if hang.overall else f"{words} of group {hang.group_name or hang.group}"


def _what(hang: Hang, found: tuple[Hang, ...], known: Known) -> str:
    """The suspect first: a reader scans for it."""
    what = collective(hang)
    waited = f" {hang.waited_ms / 1000:.0f} s" if hang.waited_ms is not None else ""
    one = len(hang.suspects) == 1
    suspects = _ranks(hang.suspects, hang) if hang.suspects else ""
    waiters = _ranks(hang.waiting, hang) if hang.waiting else "Ranks"
    where = f", in which {_small(waiters)} waited{waited}"
    if hang.because:
        names = " and ".join(hang.because)
        tail = (
            "and those there wait for this one: the ranks call the collectives of their groups in different order."
            if _crossed(hang, found)
            else "so the cause is there."
        )
        return f"{suspects} did not come to {what}{where}, but wait{'s' if one else ''} in group {names}, {tail}"
    if hang.kind == BEHIND:
        last = {hang.views[r].enqueued for r in hang.suspects if r in hang.views} - {None}
        upto = f": the last that {'it' if one else 'they'} called is #{last.pop()}" if len(last) == 1 else ""
        return f"{suspects} never called {what}{where}{upto}."
    if hang.kind == AHEAD:
        return f"{suspects} waited{waited} in {_own(hang)}, which the other ranks never called: a call that only some ranks make."
    if hang.kind == MISMATCH:
        order = " The same calls come in another order." if hang.swapped else ""
        return f"The ranks do not call the same: {_calls(hang)}.{order} They wait for each other for ever."
    if hang.kind == EARLIER:
        return f"{suspects} still wait{'s' if one else ''} in {_own(hang)}, which the others have finished; those wait in {what}."
    if hang.kind == NOT_STARTED:
        return (
            f"All ranks called {what}, and it runs on all but {_small(suspects)}: there the GPU has not begun it, because earlier work "
            "in its stream does not end."
        )
    if hang.kind == SILENT and known.dumps and not known.over:
        return (
            f"{waiters} wait{'s' if len(hang.waiting) == 1 else ''} in {what}, and of {_small(suspects)} the input has no dump: "
            f"{'it' if one else 'they'} did not come, or wait{'s' if one else ''} there too."
        )
    if hang.kind == SILENT:
        return f"{suspects} said nothing at all about {what}{where}."
    if hang.kind == ALL_IN:
        return (
            f"All {len(hang.waiting)} ranks called {what} and none finished it{f' in{waited}' if waited else ''}: no rank is missing, so "
            "the way between the GPUs, or a GPU itself, stands still."
        )
    return f"{waiters} waited{waited} in {what}. Nothing in the input shows which rank did not come: the lines of the others are needed."


def _crossed(hang: Hang, found: tuple[Hang, ...]) -> bool:
    """Do those for whom its suspects wait, wait here?"""
    return any(hang.group in h.because for h in found if h.group in hang.because)


def _own(hang: Hang) -> str:
    """The collective in which the suspects wait themselves, where it is another than that of the rest."""
    views = [hang.views[r] for r in hang.suspects if r in hang.views]
    view = next((v for v in views if v.signature is not None), views[0] if views else None)
    if view is None or view.waits_in is None or view.waits_in == hang.seq:
        return collective(hang)
    return collective(replace(hang, seq=view.waits_in, op=view.signature.op if view.signature is not None else None))


def _small(words: str) -> str:
    return words[:1].lower() + words[1:]


def _calls(hang: Hang) -> str:
    """`ranks 0-2 all_reduce of 4194304, rank 3 all_reduce of 1024`."""
    by_call: dict[str, list[int]] = {}
    for rank, view in hang.views.items():
        if view.signature is not None and view.waits_in == hang.seq:
            words = (view.signature.op or "a collective") + (
                f" of {view.signature.sizes}" if view.signature.sizes else ""
            )
            by_call.setdefault(words, []).append(rank)
    shown = sorted(by_call.items(), key=lambda item: -len(item[1]))
    parts = [f"rank{'s' if len(r) > 1 else ''} {listing(sorted(r))} {words}" for words, r in shown[:4]]
    return (f"in #{hang.seq} " if hang.seq is not None else "") + ", ".join(parts) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _stood(hang: Hang, rank: int) -> str:
    view = hang.views.get(rank)
    frame = own_frame(view.frames) if view is not None else None
    if view is None or frame is None:
        return ""
    which = "It" if view.waits_in is not None else "Its last collective"
    return f" {which} was called in {frame}."


def _host_of_all(hang: Hang, processes: Mapping[int, NcclProc]) -> str:
    hosts = {p.host for p in (processes.get(r) for r in hang.suspects) if p is not None}
    if len(hang.suspects) > 1 and len(hosts) == 1 and None not in hosts and all(r in processes for r in hang.suspects):
        return f" All of them run on {hosts.pop()}."
    return ""


def _evidence(hang: Hang, first: Iterable[int]) -> tuple[Evidence, ...]:
    order = [*first, *(r for r in hang.waiting if r not in set(first))]
    spots = [e for r in order[:64] if r in hang.views for e in hang.views[r].evidence]
    return (
        tuple(dict.fromkeys(spots))[:MAX_EVIDENCE]
        or tuple(e for v in hang.views.values() for e in v.evidence)[:MAX_EVIDENCE]
    )


def _steps(hang: Hang, rank: int | None, known: Known, stop: Stop | None) -> tuple[Step, ...]:
    steps: list[Step] = []
    who = f"rank {rank}" if rank is not None else "the ranks that did not come"
    process = known.processes.get(rank) if rank is not None else None
    host = process.host if process is not None else None
    on = f" (host {host})" if host else ""
    if hang.kind == MISMATCH:
        steps.append(Step("Find the branch, batch or parameter in which the ranks differ; PyTorch checks every call with", "TORCH_DISTRIBUTED_DEBUG=DETAIL", "reversible"))
    elif hang.kind == ALL_IN:
        steps.append(Step("Check every host: links, Xids, adapters", "gpudoctor check"))
        steps.append(Step("Try the same job once with another transport; if it then ends, peer to peer is broken (ACS, IOMMU)", "NCCL_P2P_DISABLE=1", "reversible"))
    elif stop is not None and stop.troubled:
        steps.append(Step(f"Mend the error that {who} tells{on}; that the others waited follows from it"))
    elif stop is not None:
        steps.append(Step(f"Find what {who}{on} does after that line and before the time-out: a data loader, a long step, a step that only some ranks make"))
    else:
        steps.append(Step(f"Read the log of {who}{on} above the time-out: an exception, a data loader, a step that only some ranks make"))
    if hang.kind != ALL_IN:
        if rank not in known.dead and not (stop is not None and stop.troubled):
            frames = next((v.frames for v in hang.views.values() if v.frames), ())
            steps.append(of_rank(rank, known.over, host, known.seats.get(rank) if rank is not None else None, frames))
        steps.append(Step(f"Check the host of {who}{on}", "gpudoctor check"))
    if not known.dumps:
        steps.append(
            Step(
                "Record every rank's calls (torch 2.9 and later say TORCH_FR_BUFFER_SIZE, and take both names), then give all dumps to gpudoctor check --from",
                "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_NCCL_DESYNC_DEBUG=1 NCCL_DEBUG=INFO",
                "reversible",
            )
        )
    return tuple(steps)
