"""How a run of NCCL's ended: the complaint that names the cause, on which rank, and those that only follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudoctor.checkers.driver import DRIVER_UNAVAILABLE
from gpudoctor.checkers.ecc_remap import ECC_REMAP
from gpudoctor.checkers.fabric import FABRIC
from gpudoctor.checkers.memlock import MEMLOCK, by_words
from gpudoctor.checkers.nccl_causes import CUDA_ERROR, DUPLICATE_GPU, NETWORK_ERROR, NO_INTERFACE, PEER_DIED, SPLIT_HOST
from gpudoctor.checkers.nccl_dead import Witnesses, of_rank
from gpudoctor.checkers.nccl_headline import AWAITED, NOWHERE, unknown_words, what
from gpudoctor.checkers.nccl_view import sentence, who
from gpudoctor.checkers.nvlink_errors import ERRORS as NVLINK_ERRORS
from gpudoctor.checkers.p2p import UNSUPPORTED
from gpudoctor.checkers.shm import SHM
from gpudoctor.checkers.visibility import GPU_NOT_VISIBLE
from gpudoctor.facts.hang import LogEnds, Watchdog
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.nccl import Nccl, NcclComm, NcclMessage, NcclProc, NcclRank, bdf_of
from gpudoctor.facts.nccl_join import root
from gpudoctor.facts.store import FactView
from gpudoctor.model import CERTAIN, ERROR, LIKELY, POSSIBLE, Evidence, Finding, Step
from gpudoctor.nccl_messages import HARMLESS, PEER, family

_MOST_RANKS = 1 << 17  # a larger number is a mangled line
# Faults of the host that complains; a dead peer or ranks that differ are the job's.
_OF_A_HOST = frozenset(
    c.slug for c in (NETWORK_ERROR, CUDA_ERROR, SHM, MEMLOCK, FABRIC, UNSUPPORTED, GPU_NOT_VISIBLE, ECC_REMAP, NVLINK_ERRORS, NO_INTERFACE, SPLIT_HOST, DRIVER_UNAVAILABLE)
)
# Names that a writer puts in place of the real one, and those that many machines have.
_ANY_HOST = frozenset(("localhost", "host", "hostname", "node", "worker", "xxx", "ubuntu", "master"))
_FEW = 4  # ranks that are named where one of them is meant
_ENDED = 8  # a message of a lower tier ended something
_LESS_SURE = {
    "nvls-cuda": LIKELY,
    "wrong-magic": POSSIBLE,
    "torch-cuda": POSSIBLE,
    "torch-remote": POSSIBLE,
    "torch-system": POSSIBLE,
    "torch-internal": POSSIBLE,
    "ray-worker": POSSIBLE,
    "jax-heartbeat": LIKELY,
    "jax-barrier": POSSIBLE,
    "tf-collective": POSSIBLE,
    "mpi-abort": LIKELY,
    "shm-cuda": LIKELY,
    "memlock-silent": LIKELY,
    "memlock-ofi": LIKELY,
    "ib-flushed": LIKELY,
    "truncated": LIKELY,
    "may-hang": POSSIBLE,
    "topology-gap": POSSIBLE,
    "ipc-handle": LIKELY,
    "gpu-not-in-nvml": LIKELY,
    "no-sysfs": LIKELY,
    "driver-nvml": LIKELY,
    "cuda-symbols": LIKELY,
    "adapters-not-merged": LIKELY,
    "socket-lost": LIKELY,
    "destroyed-before": LIKELY,
}
# What a launcher sees of a process that the watchdog ended.
_SEEN_OUTSIDE = frozenset(("ray-worker", "jax-barrier", "tf-collective", "mpi-abort"))
_COMMANDS: dict[str, tuple[Step, ...]] = {
    "shm": (
        Step("See the size of /dev/shm where the job runs", "df -h /dev/shm; ls -l /dev/shm | head"),
        Step("Give the container more", "docker run --shm-size=1g IMAGE   # or --ipc=host", "reversible", "df -h /dev/shm"),
    ),
    "memlock": (Step("See the limit where the job is started, and lift it", "ulimit -l; docker run --ulimit memlock=-1 IMAGE", "reversible", "ulimit -l"),),
    "no-interface": (Step("See the interfaces of each host", "ip -br addr"), Step("Let NCCL choose", "unset NCCL_SOCKET_IFNAME", "reversible", "NCCL_DEBUG=INFO shows `Bootstrap: Using`")),
    "fabric": (
        Step("See the fabric's state, and that Fabric Manager is of the driver's version", "nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager; nv-fabricmanager --version"),
        Step("Restart Fabric Manager while no job runs", "sudo systemctl restart nvidia-fabricmanager", "disruptive", "nvidia-smi -q | grep -A3 Fabric"),
        Step("Until then: work around it", "export NCCL_NVLS_ENABLE=0", "reversible"),
    ),
    "p2p-unsupported": (Step("See the driver's word for each pair", "nvidia-smi topo -p2p r; nvidia-smi topo -p2p w"),),
    "network-error": (Step("See the ports and their state on both hosts", "ibstat; ip -br addr"), Step("Test the path without NCCL", "ib_write_bw -d DEVICE   # on one host; on the other: ib_write_bw -d DEVICE HOST")),
    "peer-died": (Step("On the host of the rank that ended first: was it killed, did the GPU fail?", "sudo dmesg -T | grep -iE 'out of memory|killed process|xid'"),),
    "cuda-error": (Step("Look for an Xid", "sudo dmesg -T | grep -i xid"), Step("Run again so that the failing call is named", "CUDA_LAUNCH_BLOCKING=1 NCCL_DEBUG=INFO COMMAND")),
    "gpu-not-visible": (Step("See what the job is given", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES"),),
    "version-mismatch": (Step("Compare on every host", "python3 -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'; nvidia-smi --query-gpu=name,driver_version --format=csv"),),
}  # fmt: skip


def judged(facts: FactView) -> Iterator[Finding]:
    """Job by job: one finding for what ended it, or for ranks that never met."""
    watchdog = facts.get(Watchdog)
    witnesses = Witnesses(facts.get(LogEnds), facts.get(MemoryKills), watchdog.deaths if watchdog is not None else ())
    for job in _jobs(facts[Nccl]):
        messages = [m for c in job for m in c.messages if m.tier < _ENDED]
        first = root(messages)
        if first is not None and first.family == "torch-cuda" and any(m.family in ("hip", "hip-file") for m in messages):
            first = None  # the framework's word for a call of HIP
        if first is not None and first.family in _SEEN_OUTSIDE and watchdog is not None and (watchdog.works or watchdog.accused):
            continue
        if first is None:
            yield from by_words(m for c in job for m in c.messages)
            yield from _never_met(job)
            yield from _same_gpu(job)
            continue
        by_slug = [m for m in messages if m.slug == first.slug and m.tier <= max(first.tier, 1)] or [first]
        named = {id(m) for m in by_slug}  # a switch that fails leaves thousands
        yield _finding(first, by_slug, [m for m in messages if id(m) not in named], job, witnesses)


def _jobs(nccl: Nccl) -> list[list[NcclComm]]:
    """Communicators that share a process, or whose log names no process, are one job's."""
    jobs: list[tuple[set[object], list[NcclComm]]] = []
    for comm in nccl:
        keys: set[object] = {(p.source, p.host, p.pid) for p in comm.procs if p.pid is not None}
        keys |= {m.process for m in comm.messages if m.pid is not None}
        if not keys or any(m.pid is None for m in comm.messages):
            keys.add(comm.source)
        if comm.comm_id is None and comm.nranks is None:
            keys.add(comm.source)
        touched = [j for j in jobs if j[0] & keys]
        merged: tuple[set[object], list[NcclComm]] = (keys, [comm])
        for job in touched:
            merged[0].update(job[0])
            merged[1][:0] = job[1]
            jobs.remove(job)
        jobs.append(merged)
    # A process that ended before its communicator had a name belongs to the only other job there is.
    named = [j for j in jobs if any(c.nranks for c in j[1])]
    loose = [j for j in jobs if j not in named]
    if len(named) == 1 and loose:
        for job in loose:
            named[0][1].extend(job[1])
        return [named[0][1]]
    if not named and len(loose) > 1:
        return [[c for j in loose for c in j[1]]]
    return [j[1] for j in jobs]


def _never_met(job: list[NcclComm]) -> Iterator[Finding]:
    """Attempts to connect that go on to the log's end. Where init was completed later they were only early."""
    tries = [m for c in job for m in c.messages if m.family == "retrying"]
    if (
        sum(m.times for m in tries) < 3
        or any(r.completed for c in job for r in c.ranks)
        or any(c.transports for c in job)
    ):
        return
    last = tries[-1]
    known = family("retrying")
    yield Finding(
        NETWORK_ERROR.slug,
        ERROR,
        "host",
        f"{sentence(who(last, _rank(last, job)))} tried to connect to a peer again and again, and no communicator was built. {known.meaning if known else ''}",
        (last.at("text"),),
        POSSIBLE,
        "the job does not start",
        (*((Step(known.remedy),) if known else ()), *_COMMANDS["network-error"][:1]),
    )


def _same_gpu(job: list[NcclComm]) -> Iterator[Finding]:
    """Ranks of one host with one bus id, in an init of which no more is there: NCCL compares them right after these lines."""
    for comm in job:
        if comm.transports or comm.env.get("NCCL_MULTI_RANK_GPU_ENABLE", "0") != "0" or any(r.completed or r.nnodes is not None for r in comm.ranks):
            continue
        seats: dict[tuple[str, str], dict[int, tuple[NcclProc, NcclRank]]] = {}
        for number, proc, rank in comm.members():
            if proc.host is not None and proc.host.lower() not in _ANY_HOST and rank.bus_id is not None:
                seats.setdefault((proc.host, rank.bus_id), {})[number] = (proc, rank)
        shared = {seat: ranks for seat, ranks in seats.items() if len(ranks) > 1 and len({p.ip for p, _ in ranks.values() if p.ip}) <= 1}
        for (host, bus), ranks in sorted(shared.items())[:4]:
            known, bdf = family("duplicate-gpu"), bdf_of(bus)
            numbers = sorted(ranks)
            yield Finding(
                DUPLICATE_GPU.slug,
                ERROR,
                f"gpu:{bdf}" if bdf else "host",
                f"Ranks {', '.join(map(str, numbers[:8]))}{' and more' if len(numbers) > 8 else ''} on {host} start with the same GPU ({bdf or bus}). {known.meaning if known else ''}",
                tuple(ranks[n][1].at("bus_id") for n in numbers[:4]),
                LIKELY,
                "NCCL refuses it and the run ends",
                (Step(known.remedy),) if known else (),
                host=host if len({p.host for p in comm.procs}) > 1 else None,
            )


def _rank(message: NcclMessage, job: Iterable[NcclComm]) -> int | None:
    return next((r for c in job if (r := c.rank_of(message)) is not None), None)


def _finding(first: NcclMessage, same: list[NcclMessage], others: list[NcclMessage], job: list[NcclComm], witnesses: Witnesses) -> Finding:
    known = family(first.family)
    slug = first.slug or CUDA_ERROR.slug
    rank = _rank(first, job)
    ranks = sorted({r for m in same if (r := _rank(m, job)) is not None})
    env = {name: value for c in job for name, value in c.env.items()}
    words = [what(first, rank, known.meaning if known else first.text)]
    unknown = unknown_words(first, job)
    if unknown is not None:
        words = [f"{sentence(who(first, rank))} failed, and NCCL's own words are `{unknown.text[:160]}`.", AWAITED.sub("", known.meaning if known else first.text)]
    if slug == NO_INTERFACE.slug and "NCCL_SOCKET_IFNAME" in env:
        words.append(f"NCCL_SOCKET_IFNAME is set to {env['NCCL_SOCKET_IFNAME']}, and no interface of that name is up here.")
    nowhere = next((told for mark, told in NOWHERE if mark in first.text), None) if slug == NETWORK_ERROR.slug else None
    if nowhere is not None:
        words.append(f"The address in it is {nowhere}.")
    if len(ranks) > 1:
        words.append(f"Ranks {', '.join(map(str, ranks[:12]))}{' and more' if len(ranks) > 12 else ''} say the same.")
    echoes = [m for m in others if m.slug not in (None, slug) or m.tier >= PEER]
    if echoes:
        lines = ", ".join(str(m.line) for m in sorted(echoes, key=lambda m: m.line)[:6])
        words.append(f"What follows (line{'s' if len(echoes) > 1 else ''} {lines}) is its effect.")
    subject = _subject(first, rank, job)
    dead = of_rank(int(subject[5:]), job, witnesses) if slug == PEER_DIED.slug and subject.startswith("rank:") else None
    if dead is not None:
        if first.family == "peer-closed":
            words[0] = f"Rank {subject[5:]} went away while others still used it: {who(first, rank)} lost the connection to it{f' in {first.file}' if first.file else ''}."
        words += dead.words
    elif slug == PEER_DIED.slug:
        quiet, present = _quiet(job)
        if quiet == present and 1 < len(quiet) <= _FEW:
            words.append(f"Ranks {', '.join(map(str, sorted(quiet)))} have no complaint of their own: one of them went first.")
    evidence: list[Evidence] = [first.at("text"), *((unknown.at("text"),) if unknown is not None else ())]
    evidence += dead.evidence if dead is not None else ()
    evidence += [m.at("text") for m in same if m is not first][:3]
    evidence += [m.at("text") for m in echoes][:3]
    steps = _COMMANDS.get(slug, ())
    if first.family == "fabric-not-ready":
        steps = steps[:-1]  # no CUDA program starts then, with NVLS or without
    if dead is not None:
        unread = Step(f"Read the end of the log of rank {subject[5:]}, which is not in the input: a CUDA error, an out-of-memory kill, an exception")
        steps = dead.steps or (unread, *steps)
    elif unknown is not None:
        steps = (Step(f"Start from NCCL's own words (line {unknown.line}): they are not among those known here; NCCL_DEBUG=INFO on every rank shows what led to them"), *steps)
    elif known is not None:
        steps = (Step(known.remedy), *steps)
    if nowhere is not None:
        steps = (Step("See which interface each host has in the network they share, and name it (a container needs --network=host for it)", "ip -br addr; export NCCL_SOCKET_IFNAME=INTERFACE", "reversible", "NCCL_DEBUG=INFO shows `Bootstrap : Using INTERFACE`"), *steps)
    return Finding(
        slug,
        ERROR,
        subject,
        " ".join(words),
        tuple(dict.fromkeys(evidence)),
        _LESS_SURE.get(first.family, CERTAIN),
        "the run ends",
        steps,
        host=_host(first, job) if slug in _OF_A_HOST else None,
    )


def _host(first: NcclMessage, job: list[NcclComm]) -> str | None:
    """The host that failed, where the job ran on several: a fault of another host in the same input is not its cause."""
    hosts = {p.host for c in job for p in c.procs if p.host} | {m.host for c in job for m in c.messages if m.host}
    return first.host if len(hosts) > 1 else None


def _subject(first: NcclMessage, rank: int | None, job: list[NcclComm]) -> str:
    if first.slug == DUPLICATE_GPU.slug:
        bdf = bdf_of(first.fields.get("bus", "").lower())
        return f"gpu:{bdf}" if bdf else "host"
    if first.slug == PEER_DIED.slug:
        quiet, _ = _quiet(job)
        return f"rank:{quiet.pop()}" if len(quiet) == 1 else "host"
    if first.slug in (NETWORK_ERROR.slug, CUDA_ERROR.slug) and rank is not None:
        return f"rank:{rank}"
    return "host"


def _quiet(job: list[NcclComm]) -> tuple[set[int], set[int]]:
    """The ranks that lost no peer while others complain of one: all of them, and those that the input has lines of."""
    for comm in job:
        if comm.nranks is None or comm.nranks > _MOST_RANKS or not comm.messages:
            continue
        complaining = {r for m in comm.messages if m.tier < HARMLESS and (r := comm.rank_of(m)) is not None}
        if complaining:
            quiet = set(range(comm.nranks)) - complaining
            return quiet, quiet & {number for number, _, _ in comm.members()}
    return set(), set()
