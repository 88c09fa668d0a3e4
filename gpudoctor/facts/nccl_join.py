"""Ranks to communicators: what NCCL itself joins, across processes, hosts and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpudoctor.facts.nccl import MAX_PAIRS, NcclComm, NcclMessage, NcclProc, NcclRank, Process, Transport
from gpudoctor.nccl_messages import DOES_WITHOUT, ECHO, GENERAL, HARMLESS, PEER, ending
from gpudoctor.record import replace

_SHOWN = 40  # warnings of one communicator that are kept as text
_NOBODY = NcclRank()  # stands for the rank of a process that named no communicator
_NOT_A_FAILURE = 8  # a tier: the run goes on, slower


class _Group:
    """A communicator while its ranks are found."""

    def __init__(self, nranks: int | None) -> None:
        self.nranks = nranks
        self.members: list[tuple[NcclProc, NcclRank]] = []
        self.taken: dict[int, NcclProc] = {}
        self.messages: list[NcclMessage] = []

    def add(self, proc: NcclProc, rank: NcclRank) -> None:
        self.members.append((proc, rank))
        if rank.rank is not None:
            self.taken.setdefault(rank.rank, proc)


def comms_of(
    procs: Iterable[NcclProc], messages: Sequence[NcclMessage], counts: Mapping[tuple[int, str], int]
) -> tuple[NcclComm, ...]:
    """Every communicator, then one entry for each log in which none was named."""
    procs = tuple(procs)
    named: dict[tuple[str, int | None], _Group] = {}
    guessed: list[_Group] = []
    loose: list[tuple[NcclProc, NcclRank]] = []
    ranks = [(p, r) for p in procs for r in p.ranks]
    ranks.sort(key=_in_order)
    for proc, rank in ranks:
        if rank.nranks is None:
            loose.append((proc, rank))
        elif rank.comm_id is not None:
            name = (rank.comm_id, rank.nranks)
            group = named.get(name)
            if group is None:
                group = named[name] = _Group(rank.nranks)
            group.add(proc, rank)
        else:
            _guess(guessed, proc, rank)
    groups = [*named.values(), *guessed]
    logs: dict[str, _Group] = {}
    for proc, rank in loose:
        home = _home(groups, proc, rank)
        (home or logs.setdefault(proc.source, _Group(None))).add(proc, rank)
    known = {p.source for g in groups for p, _ in g.members}
    for proc in procs:
        if not proc.ranks and proc.source not in known:
            logs.setdefault(proc.source, _Group(None)).members.append((proc, _NOBODY))
    everything = [*groups, *logs.values()]
    homes: dict[Process, list[tuple[_Group, NcclRank]]] = {}
    sources: dict[str, list[_Group]] = {}
    for group in groups if messages else ():
        for proc, rank in group.members:
            homes.setdefault((proc.source, proc.host, proc.pid), []).append((group, rank))
        for source in {p.source for p, _ in group.members}:
            sources.setdefault(source, []).append(group)
    for message in messages:
        own = homes.get(message.process, []) if message.pid is not None else []
        found = _of_message(own, sources.get(message.source, []), groups, logs, message)
        if found is None:
            found = logs.setdefault(message.source, _Group(None))
            everything.append(found)
        found.messages.append(message)
    return tuple(_comm(group, counts) for group in everything)


def _in_order(member: tuple[NcclProc, NcclRank]) -> int:
    return member[1].order


def _guess(groups: list[_Group], proc: NcclProc, rank: NcclRank) -> None:
    """Up to 2.15 a communicator has no common name: the latest of that size in which this rank is still free."""
    for group in reversed(groups):
        same = group.nranks == rank.nranks and rank.rank not in group.taken
        other = next((p.version for p, _ in group.members), None)
        if same and (other is None or proc.version is None or other == proc.version):
            group.add(proc, rank)
            return
    groups.append(_Group(rank.nranks))
    groups[-1].add(proc, rank)


def _home(groups: list[_Group], proc: NcclProc, rank: NcclRank) -> _Group | None:
    """The one communicator that connections without a name can belong to."""
    needed = max((max(pair) for pair in rank.transports), default=rank.rank or 0)
    fits = [
        g
        for g in groups
        if (g.nranks or 0) > needed
        and (rank.rank is None or g.taken.get(rank.rank) in (None, proc))
        and any(p.source == proc.source for p, _ in g.members)
    ]
    return fits[0] if len(fits) == 1 else None


def _of_message(
    own: list[tuple[_Group, NcclRank]],
    near: list[_Group],
    groups: list[_Group],
    logs: dict[str, _Group],
    message: NcclMessage,
) -> _Group | None:
    """The communicator a complaint belongs to: one of its process that is not built yet, else the last of it."""
    if own:
        open_ = [g for g, r in own if r.started and not r.completed]
        return open_[-1] if open_ else own[-1][0]
    if len(near) == 1:
        return near[0]
    if message.source in logs:
        return logs[message.source]
    return groups[0] if len(groups) == 1 else None


def _comm(group: _Group, counts: Mapping[tuple[int, str], int]) -> NcclComm:
    members = group.members
    procs = _unique(p for p, _ in members)
    ranks = tuple(sorted((r for _, r in members if r is not _NOBODY), key=lambda r: -1 if r.rank is None else r.rank))
    pairs: dict[tuple[int, int], tuple[str, ...]] = {}
    of_process: dict[Process, list[NcclRank]] = {}
    for proc, rank in members:
        if group.messages:
            of_process.setdefault((proc.source, proc.host, proc.pid), []).append(rank)
        for pair, names in rank.transports.items():
            known = pairs.setdefault(pair, names)
            if known is not names and known != names:  # both ends tell of a pair, mostly the same
                pairs[pair] = tuple(dict.fromkeys((*known, *names)))
    beyond = {kind: n for (nranks, kind), n in counts.items() if nranks == group.nranks}
    listed = tuple(Transport(a, b, via) for (a, b), names in sorted(pairs.items()) for via in names)
    summed: dict[str, int] = {}
    truncated = bool(beyond) or len(pairs) > MAX_PAIRS
    if truncated:
        for name in () if beyond else (t.via for t in listed):
            summed[name] = summed.get(name, 0) + 1
        summed.update(beyond)
        listed = ()
    env: dict[str, str] = {}
    for proc in procs:
        for name, value in proc.env.items():
            env.setdefault(name, value)
    messages = tuple(sorted(group.messages, key=lambda m: (m.source, m.line)))
    first = root(messages)
    told = [m for m in messages if m.level == "WARN" or m.tier != HARMLESS and not (m.level == "INFO" and m.family.startswith("torch-"))]
    source = procs[0].source if procs else messages[0].source
    return NcclComm(
        source=source,
        comm_id=next((r.comm_id for r in ranks if r.comm_id), None),
        version=next((p.version for p in procs if p.version), None),
        nranks=group.nranks,
        nnodes=next((r.nnodes for r in ranks if r.nnodes is not None), None),
        channels=next((r.channels for r in ranks if r.channels is not None), None),
        ranks=ranks,
        procs=procs,
        transports=listed,
        counts=summed,
        truncated=truncated,
        env=env,
        warnings=tuple(dict.fromkeys(m.text for m in told))[:_SHOWN],
        messages=messages,
        failure=first.slug if first is not None else None,
        seats=tuple([(r.rank, p, r) for p, r in members if r.rank is not None]),
        of_process={key: tuple(found) for key, found in of_process.items()},
        origin=next((r.origin for r in ranks if r.origin), messages[0].origin if messages else {}),
    )


def _unique(procs: Iterable[NcclProc]) -> tuple[NcclProc, ...]:
    return tuple({id(p): p for p in procs}.values())


def settled(messages: tuple[NcclMessage, ...], procs: tuple[NcclProc, ...]) -> tuple[NcclMessage, ...]:
    """Complaints after which NCCL goes on in some releases or places: an end where the next word of their process is that a call failed.

    A framework's word on a result names no process: it counts where the process itself says no more.
    """
    if not any(m.tier == DOES_WITHOUT and m.family in ending() for m in messages):
        return messages
    refused = {(p.source, p.host, p.pid) for p in procs if p.failed_start}
    next_of: dict[Process, NcclMessage] = {}
    raised: dict[str, NcclMessage] = {}
    out = []
    for message in sorted(messages, key=lambda m: (m.source, m.line), reverse=True):
        if message.tier == DOES_WITHOUT and message.level != "INFO" and message.family in ending():
            follows = next_of.get(message.process) if message.pid is not None else None
            follows = follows or raised.get(message.source)
            if follows is None and message.process in refused or follows is not None and follows.family.startswith("torch-"):
                message = replace(message, tier=GENERAL)
        if message.pid is not None:
            next_of[message.process] = message
        elif message.family.startswith("torch-"):
            raised[message.source] = message
        out.append(message)
    return tuple(reversed(out))


def root(messages: Iterable[NcclMessage]) -> NcclMessage | None:
    """The line that names the cause: of each process its first complaint counts, of all processes the nearest to a cause.

    A rank that only lost its peer, or whose framework only repeats the result code, explains nothing.
    """
    first: dict[tuple[str, str | None, int | None], NcclMessage] = {}
    for message in messages:
        if message.tier >= _NOT_A_FAILURE or message.slug is None:
            continue
        known = first.get(message.process)
        if known is None or _sooner(message, known):
            first[message.process] = message
    if not first:
        return None
    return min(first.values(), key=lambda m: (m.tier, m.line))


def _sooner(message: NcclMessage, known: NcclMessage) -> bool:
    """Within a process the first line is the cause, unless it is an echo (a peer is gone) and a later one names more."""
    return (
        known.tier >= PEER
        and message.tier < known.tier
        or known.tier == ECHO
        and (message.tier < ECHO or message.tier == ECHO and known.family.startswith("torch-") > message.family.startswith("torch-"))
        or (
            message.tier == 0
            and known.tier == 1
            and message.slug in ("shm", "memlock", "fabric")
            and message.line - known.line < 6
        )
    )
