"""What NCCL's RAS service says of a running job: ranks that are dead or silent, and ranks that stay behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.job_causes import COLLECTIVE_TIMEOUT
from gpudoctor.checkers.nccl_causes import PEER_DIED, RANK_MISMATCH
from gpudoctor.facts.hang import Ras, RasAnswer, RasComm, RasCounts, RasRank
from gpudoctor.facts.store import FactView
from gpudoctor.model import CERTAIN, ERROR, LIKELY, POSSIBLE, WARNING, CannotTell, Evidence, Finding, Step

MAX_SUBJECTS = 8
_ASK = "echo verbose status | nc -w 5 localhost 28028"


class RasFindings(BaseChecker):
    """Counters move while a job runs, so a rank that is behind in one answer proves nothing; in two it stands still."""

    name: ClassVar[str] = "ras"
    needs = (Ras,)
    causes = (COLLECTIVE_TIMEOUT, PEER_DIED, RANK_MISMATCH)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        answers = facts[Ras].answers
        seen: set[tuple[str, str]] = set()
        for answer in reversed(answers):
            for finding in (*_lost(answer), *_failed(answer), *_behind(answer, answers)):
                if (finding.slug, finding.subject) not in seen:
                    seen.add((finding.slug, finding.subject))
                    yield finding
            for row in answer.groups:
                if row.errors not in ("OK", None) and not answer.comms and not answer.peers and not seen:
                    yield CannotTell(COLLECTIVE_TIMEOUT.slug, f"RAS marks communicators of {row.size} ranks {row.errors}, but its details are not in the input")


def _who(rank: RasRank) -> str:
    at = f"process {rank.pid}" if rank.pid is not None else None
    host = f"on {rank.host}" if rank.host else None
    gpu = f"GPU {rank.gpu}" if rank.gpu else None
    words = " ".join(w for w in (at, host) if w)
    inside = ", ".join(w for w in (words, gpu) if w)
    return f"rank {rank.rank}" + (f" ({inside})" if inside else "")


def _comm(comm: RasComm) -> str:
    return f"communicator {comm.id or '?'}" + (f" of {comm.size} ranks" if comm.size else "")


def _spread(ranks: tuple[RasRank, ...]) -> str:
    from gpudoctor.hang import listing  # the reading of hangs, which only a job needs

    return listing(r.rank for r in ranks)


def _lost(answer: RasAnswer) -> Iterator[Finding]:
    """Dead: RAS could not reach the process for a minute. Silent: it did not answer this time."""
    dead = {(p.pid, p.host) for p in answer.peers if p.state == "dead"}
    told = False
    for comm in answer.comms:
        if not comm.missing:
            continue
        told = True
        if len(comm.missing) > MAX_SUBJECTS:
            yield _gone("host", f"Ranks {_spread(comm.missing)} of {_comm(comm)} do not answer NCCL's RAS service.", LIKELY, comm.at("*"), None)
            continue
        for rank in comm.missing:
            is_dead = rank.why == "dead" or (rank.pid, rank.host) in dead
            how = "is dead: NCCL's RAS service could not reach it for a minute" if is_dead else "does not answer NCCL's RAS service"
            yield _gone(
                f"rank:{rank.rank}", f"R{_who(rank)[1:]} of {_comm(comm)} {how}.", CERTAIN if is_dead else LIKELY, comm.at("*"), rank
            )
    if not told:
        for peer in answer.peers[:MAX_SUBJECTS]:
            how = "is dead" if peer.state == "dead" else "gave no data"
            yield _gone(
                "host", f"Process {peer.pid} on {peer.host}, GPU {peer.gpus}, {how}, says NCCL's RAS service.",
                CERTAIN if peer.state == "dead" else LIKELY, peer.at("*"), RasRank(-1, peer.host, peer.pid),
            )  # fmt: skip
            return
        if answer.dead or answer.lost:
            yield _gone("host", f"{answer.dead or answer.lost} processes of the job do not answer NCCL's RAS service.", LIKELY, answer.at("*"), None)


def _gone(subject: str, message: str, confidence: str, evidence: Evidence, rank: RasRank | None) -> Finding:
    on = f" on {rank.host}" if rank is not None and rank.host else " on its host"
    pid = rank.pid if rank is not None and rank.pid is not None else "PID"
    return Finding(
        PEER_DIED.slug, ERROR, subject, message, (evidence,), confidence, "All other ranks wait for it.",
        (
            Step(f"Is the process still there{on}, and what does it wait for", f"ps -o pid,stat,wchan:32,cmd -p {pid}"),
            Step(f"Killed, or its GPU lost? The kernel log{on} says", "dmesg -T | grep -iE 'out of memory|killed process|Xid'"),
            Step(f"Check the host{on}", "gpudoctor check"),
        ),
    )  # fmt: skip


def _failed(answer: RasAnswer) -> Iterator[Finding]:
    for comm in answer.comms:
        own = [
            r
            for r in comm.failed
            if r.why and "status" not in r.why and "remote error" not in r.why and r.why != "error"
        ]
        for rank in own[:MAX_SUBJECTS]:
            yield _gone(f"rank:{rank.rank}", f"R{_who(rank)[1:]} of {_comm(comm)} failed: {rank.why}.", LIKELY, comm.at("*"), rank)
        if comm.failed and not own:
            yield _gone("host", f"Ranks {_spread(comm.failed)} of {_comm(comm)} report: {comm.failed[0].why}.", POSSIBLE, comm.at("*"), None)


def _behind(answer: RasAnswer, answers: tuple[RasAnswer, ...]) -> Iterator[Finding]:
    for comm in answer.comms:
        if comm.counts:
            from gpudoctor.checkers.ras_order import order  # which only answers with unequal counts need

            crossed = list(order(comm, _comm(comm)))
            if crossed:
                yield from crossed
                continue
        by_operation: dict[str, list[RasCounts]] = {}
        for counts in comm.counts:
            by_operation.setdefault(counts.operation, []).append(counts)
        for operation, levels in by_operation.items():
            top = max(c.upto for c in levels)
            low = [c for c in levels if c.upto < top]
            total = sum(c.ranks for c in levels)
            few = sum(c.ranks for c in low)
            if not low:
                continue
            named = tuple(dict.fromkeys(r for c in low for r in c.named))
            still = _stands_still(comm, operation, low, answers)
            if still is False:
                continue
            yield from _late(
                comm, operation, low, top, total, named if few * 2 <= total and len(named) == few else (), still is True
            )


def _stands_still(comm: RasComm, operation: str, low: list[RasCounts], answers: tuple[RasAnswer, ...]) -> bool | None:
    """Do other answers show the same ranks at the same count? None: there is no other answer on this communicator."""
    others = [c for a in answers for c in a.comms if c.id == comm.id and c is not comm]
    if not others:
        # An answer in which nothing is marked shows that the ranks came together.
        return False if any(a.groups and all(g.errors == "OK" for g in a.groups) for a in answers) else None
    mine = {(c.upto, c.ranks) for c in low}
    return all(mine <= {(c.upto, c.ranks) for c in other.counts if c.operation == operation} for other in others)


def _late(
    comm: RasComm, operation: str, low: list[RasCounts], top: int, total: int, named: tuple[RasRank, ...], still: bool
) -> Iterator[Finding]:
    least = min(c.upto for c in low)
    few = sum(c.ranks for c in low)
    span = f"{least}" if len({c.upto for c in low}) == 1 else f"{least} to {max(c.upto for c in low)}"
    severity, confidence = (ERROR, LIKELY) if still else (WARNING, POSSIBLE)
    tail = (
        " Two answers show the same counts: it stands still."
        if still
        else " A job that runs looks like this for a moment; if a second answer shows the same counts, it hangs there."
    )
    which = f"communicator {comm.id or '?'}" if comm.size == total else _comm(comm)
    what = f"of {total} ranks of {which} have called {operation} {top} times"

    def finding(subject: str, message: str, rank: RasRank | None) -> Finding:
        from gpudoctor.checkers.job_stacks import of_process  # which only a job needs

        on = f" (host {rank.host})" if rank is not None and rank.host else ""
        return Finding(
            COLLECTIVE_TIMEOUT.slug, severity, subject, message + tail, (comm.at("*"),), confidence,
            "All other ranks wait." if still else None,
            (
                Step("Ask again, ten seconds later: do the counts grow", _ASK),
                of_process(rank.pid if rank is not None else None, "the rank that is behind", rank.host if rank is not None else None),
                Step(f"Check its host{on}", "gpudoctor check"),
            ),
        )  # fmt: skip

    if named and len(named) <= MAX_SUBJECTS:
        for rank in named:
            yield finding(f"rank:{rank.rank}", f"{total - few} {what}, {_who(rank)} only {span}.", rank)
        return
    whose = f"ranks {_spread(named)}" if named else f"{few} ranks"
    yield finding("host", f"{total - few} {what}, {whose} only {span}.", None)
