"""What PyTorch itself found by comparing ranks, where no time-out of the watchdog's says more: who is absent, who differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudoctor.checkers.job_causes import COLLECTIVE_TIMEOUT
from gpudoctor.checkers.job_stacks import of_rank
from gpudoctor.checkers.nccl_causes import PEER_DIED, RANK_MISMATCH
from gpudoctor.facts.hang import Accused, Watchdog
from gpudoctor.hang import listing
from gpudoctor.model import CERTAIN, ERROR, LIKELY, POSSIBLE, WARNING, Evidence, Finding, Step

MAX_SUBJECTS = 8
MAX_EVIDENCE = 8
_SAID = {
    "barrier": "did not come to a barrier of all ranks (monitoredBarrier) within its time",
    "behind": "did not join",
    "never": "never joined a collective",
    "unfinished": "joined and did not finish",
    "absent": "did not join",
}


def named(watchdog: Watchdog) -> Iterator[Finding]:
    """Ranks that a barrier, the desync report or the analysis of the dumps names as those that did not come."""
    seen: set[tuple[object, ...]] = set()
    told: set[int] = set()
    for report in watchdog.accused:
        call = (report.kind, report.ranks, report.seq, report.group)
        if report.kind not in _SAID or call in seen:
            continue
        seen.add(call)
        what = _SAID[report.kind] + (f" {_collective(report)}" if report.kind not in ("barrier", "never") else "")
        ranks = [r for r in report.ranks if r not in told]
        if 0 < len(ranks) <= MAX_SUBJECTS and _few(report):
            told.update(ranks)
            for rank in ranks:
                others = f" Neither did {_ranks(set(report.ranks) - {rank}).lower()}." if len(report.ranks) > 1 else ""
                yield _absent(f"rank:{rank}", f"Rank {rank} {what}, says PyTorch.{others}", report, f"rank {rank}")
        elif not report.ranks:
            yield _absent("host", f"Not all ranks joined {_collective(report)}, says PyTorch; which, the input does not show.", report, "the absent ranks")
        elif ranks:
            told.update(ranks)
            yield _absent("host", f"{_ranks(report.ranks)} {what}, says PyTorch.", report, "these ranks")
    if not told:
        yield from _stalled(watchdog)
        yield from _rendezvous(watchdog)
        yield from _waiting(watchdog)
        yield from _first_call(watchdog)


def _stalled(watchdog: Watchdog) -> Iterator[Finding]:
    """Horovod's rank 0 waits for tensors that some ranks have submitted and others not. It warns, and does not end the job."""
    stalls = [a for a in watchdog.accused if a.kind == "stalled"]
    if not stalls:
        return
    ranks = sorted({r for a in stalls for r in a.ranks})
    first = next((f", first {a.op}" for a in stalls if a.op), "")
    who = _lower(_ranks(ranks)) if ranks else "the ranks that did not come"
    lacks = f"{len(stalls)} tensor{'s' if len(stalls) > 1 else ''} that {'it has' if len(ranks) == 1 else 'these have'} not{first}"
    yield Finding(
        COLLECTIVE_TIMEOUT.slug, WARNING, f"rank:{ranks[0]}" if len(ranks) == 1 else "host",
        (f"Horovod waits for {who}: the others have submitted {lacks}." if ranks else "Horovod waits: some ranks have submitted tensors that others have not.")
        + " A rank that is only slow looks like this too; one that failed, or takes another branch, never comes.",
        tuple(a.at("*") for a in stalls[:MAX_EVIDENCE]), LIKELY, "All other ranks wait.",
        (Step(f"Read the log of {who} above that time: an exception, a step that only some ranks make, a longer validation or data load"),),
    )  # fmt: skip


def _rendezvous(watchdog: Watchdog) -> Iterator[Finding]:
    """XLA's threads meet before they make a communicator or run a collective; it says so when not all came."""
    waits = [a for a in watchdog.accused if a.kind in ("rendezvous", "ended")]
    if not waits:
        return
    ended = next((a for a in waits if a.kind == "ended"), None)
    ranks = sorted({r for a in waits for r in a.ranks})
    came = next((a for a in waits if a.joined is not None), None) or next((a for a in waits if a.world is not None), waits[0])
    count = f"only {came.joined} of {came.world}" if came.joined is not None else f"not all {came.world}" if came.world is not None else "not all"
    yield Finding(
        COLLECTIVE_TIMEOUT.slug, ERROR if ended else WARNING, "host",
        f"{_ranks(ranks) if ranks else 'Threads of XLA'} wait{'s' if len(ranks) == 1 else ''} for others before a collective: {count} threads came, says XLA."
        + (" It ended the process." if ended else " A compilation or a slow host can be the reason; XLA says so when a thread gets on."),
        tuple(dict.fromkeys(a.at("*") for a in (*([ended] if ended else []), *waits)))[:MAX_EVIDENCE], LIKELY if ended else POSSIBLE, "All other ranks wait.",
        (Step("See in the logs of the other processes whether they run, failed, or wait elsewhere (NCCL_DEBUG=INFO)"),),
    )  # fmt: skip


def _first_call(watchdog: Watchdog) -> Iterator[Finding]:
    """The first rank of a group makes the id with which NCCL starts, when it comes to the group's first collective."""
    for kind in ("id", "id lost"):
        waits = [a for a in watchdog.accused if a.kind == kind and a.of is not None]
        for root in sorted({a.of for a in waits if a.of is not None}):
            mine = [a for a in waits if a.of == root]
            who = _ranks(r for a in mine for r in a.ranks)
            if kind == "id":
                yield _absent(f"rank:{root}", f"Rank {root} did not come to the group's first NCCL call in its time: {_lower(who)} waited for the id with which "
                              "NCCL starts there. It still did something else (data, a model to load, an evaluation), or never started.", mine[0], f"rank {root}")  # fmt: skip
            else:
                yield Finding(
                    PEER_DIED.slug, ERROR, f"rank:{root}",
                    f"{who} asked the store for the id with which NCCL starts and lost it: the process that serves the store, mostly that of rank {root}, ended first.",
                    tuple(a.at("*") for a in mine[:MAX_EVIDENCE]), LIKELY, "The job does not start.",
                    (Step(f"Read the end of the log of rank {root}: an exception, an out-of-memory kill, a wrong MASTER_ADDR"),),
                )  # fmt: skip


def heard(watchdog: Watchdog) -> Iterator[Finding]:
    """Ranks that only heard of another one's time-out, where that one's lines are not there: it waited, and is not to blame."""
    told = [w for w in watchdog.works if w.told_by is not None]
    if not told:
        yield from _of_nobody(watchdog)
        return
    by = sorted({w.told_by for w in told if w.told_by is not None})
    ranks = {w.rank for w in told if w.rank is not None}
    yield Finding(
        COLLECTIVE_TIMEOUT.slug, ERROR, "host",
        f"{_ranks(by)} waited in a collective that did not end in its time; {_lower(_ranks(ranks)) if ranks else 'another rank'} heard of it. In which, "
        f"and which rank did not come, only the lines of {_lower(_ranks(by))} and of the others show.",
        tuple(dict.fromkeys(w.at("*") for w in told))[:MAX_EVIDENCE], POSSIBLE, "The job stands still until the watchdog ends it.",
        (Step(f"Give gpudoctor check --from the logs of all ranks, that of {_lower(_ranks(by))} first"),),
    )  # fmt: skip


def _of_nobody(watchdog: Watchdog) -> Iterator[Finding]:
    """A time-out in an excerpt that does not say which rank it was."""
    waited = [w for w in watchdog.works if w.rank is None and w.group_rank is None and (w.timed_out or w.signalled)]
    if not waited:
        return
    named = next((w for w in waited if w.op), None)
    seconds = next((w.ran_ms or w.timeout_ms for w in waited if w.ran_ms or w.timeout_ms), None)
    number = f" #{named.seq}" if named is not None and named.seq is not None else ""
    what = f"{named.op}{number}" if named is not None else "a collective"
    yield Finding(
        COLLECTIVE_TIMEOUT.slug, ERROR, "host",
        f"A rank waited {f'{seconds // 1000} s ' if seconds else ''}in {what}, which did not end in its time. Which rank that was, and which did not come, "
        "the input does not show.", tuple(dict.fromkeys(w.at("*") for w in waited))[:MAX_EVIDENCE], POSSIBLE,
        "The job stands still until the watchdog ends it.", (Step("Give gpudoctor check --from the logs of all ranks"),),
    )  # fmt: skip


def _few(report: Accused) -> bool:
    """Where half of a group or more is absent, those that came are as likely to be the odd ones."""
    return report.world is None or len(report.ranks) * 2 <= max(report.world, 2)


def _waiting(watchdog: Watchdog) -> Iterator[Finding]:
    waits = [a for a in watchdog.accused if a.kind == "waits" and a.world is None]
    left = [a for a in watchdog.accused if a.kind == "left"]
    if waits:
        yield _absent("host", f"{_ranks(r for a in waits for r in a.ranks)} waited in a barrier of all ranks (monitoredBarrier) for others. "
                      "Rank 0's own message names those that did not come.", waits[0], "rank 0", POSSIBLE)  # fmt: skip
    elif left:
        yield Finding(
            PEER_DIED.slug, ERROR, "host",
            f"{_ranks(r for a in left for r in a.ranks)} came to a barrier of all ranks (monitoredBarrier) and lost rank 0 there. Rank 0 ends "
            "like that where another rank did not come: its log names which.",
            tuple(a.at("*") for a in left[:MAX_EVIDENCE]), POSSIBLE, "The job ends.",
            (Step("Read the log of rank 0 for `failed to pass monitoredBarrier`"),),
        )  # fmt: skip


def _absent(subject: str, message: str, report: Accused, who: str, confidence: str = LIKELY) -> Finding:
    return Finding(
        COLLECTIVE_TIMEOUT.slug, ERROR, subject, message, (report.at("*"),), confidence, "All other ranks wait.",
        (
            Step(f"Read the log of {who} above that time: an exception, a data loader, a step that only some ranks make"),
            of_rank(int(subject[5:]) if subject.startswith("rank:") else None, True),
            Step(f"Check the host of {who}", "gpudoctor check"),
        ),
    )  # fmt: skip


def differing(watchdog: Watchdog) -> Iterator[Finding]:
    """Calls that PyTorch compared before it made them (TORCH_DISTRIBUTED_DEBUG=DETAIL), or in the dumps."""
    calls: dict[str, set[int]] = {}
    spots: list[Evidence] = []
    for call in watchdog.accused:
        if call.kind == "calls":
            calls.setdefault(_call(call), set()).update(call.ranks)
            spots.append(call.at("*"))
    if calls:
        shown = sorted(calls.items(), key=lambda item: (-len(item[1]), min(item[1])))
        parts = [f"{_ranks(ranks)} {words}" for words, ranks in shown[:4]]
        more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
        odd = min(shown[-1][1]) if len(shown) == 2 and len(shown[-1][1]) == 1 < len(shown[0][1]) else None
        yield _mismatch(f"rank:{odd}" if odd is not None else "host", f"The ranks do not call the same, says PyTorch: {_lower(', '.join(parts))}{more}.", spots, CERTAIN)
    for report in watchdog.accused:
        if report.kind == "odd":
            few = 0 < len(report.ranks) <= MAX_SUBJECTS and report.world is not None and len(report.ranks) * 2 < report.world
            which = f"{_ranks(report.ranks)} call{'s' if len(report.ranks) == 1 else ''} something else than the others" if few else "the ranks do not call the same"
            subject = f"rank:{report.ranks[0]}" if few and len(report.ranks) == 1 else "host"
            yield _mismatch(subject, f"In {_collective(report)} {_lower(which)}, says PyTorch's analysis of the dumps.", [report.at("*")], LIKELY)


def _mismatch(subject: str, message: str, spots: list[Evidence], confidence: str) -> Finding:
    return Finding(
        RANK_MISMATCH.slug, ERROR, subject, message, tuple(dict.fromkeys(spots))[:MAX_EVIDENCE], confidence, "The job ends, or would hang there.",
        (
            Step("Find the branch, batch or parameter in which the ranks differ: a batch of another size, a call that only some ranks make"),
            Step("See where each rank makes the call", "TORCH_DISTRIBUTED_DEBUG=DETAIL TORCH_SHOW_CPP_STACKTRACES=1", "reversible"),
        ),
    )  # fmt: skip


def _call(call: Accused) -> str:
    words = call.op or "another collective"
    if call.seq is not None:
        words += f" #{call.seq}"
    return words + (f" of [{call.sizes}]" if call.sizes else "")


def _collective(report: Accused) -> str:
    """`all_reduce #5 of 0:default_pg`."""
    words = report.op or "a collective"
    if report.seq is not None:
        words += f" #{report.seq}" if report.op else f" (#{report.seq})"
    return words + (f" of {report.group}" if report.group else "")


def _ranks(ranks: Iterable[int]) -> str:
    numbers = sorted(set(ranks))
    return f"Rank{'s' if len(numbers) != 1 else ''} {listing(numbers)}"


def _lower(words: str) -> str:
    return words.replace("Rank", "rank")
