"""The ways that NCCL chose between ranks, a communicator at a time, and what the host would have allowed."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.checkers.nccl_between import COST_TCP, gpudirect, seen_as, sockets, split
from gpudoctor.checkers.nccl_causes import P2P_NOT_USED
from gpudoctor.checkers.nccl_env import P2P_DISABLED_ENV
from gpudoctor.checkers.nccl_view import Ranks, could_peer, host_of, inside, level, named, pair_of
from gpudoctor.checkers.nic_used import far_adapters
from gpudoctor.checkers.traffic import can_peer
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.facts.store import FactView, short
from gpudoctor.facts.system import Settings
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, WARNING, CannotTell, Finding, Step
from gpudoctor.record import replace

_COST_SHM = "28 instead of 328 GB/s all-reduce, measured on two H200 with NVLink"


def judged(facts: FactView) -> Iterator[Finding | CannotTell]:
    """Every communicator of the log by itself; what several say alike, once, with a line of each job that says it."""
    said: dict[tuple[str, str, str, str | None], Finding | CannotTell] = {}
    told: set[tuple[object, int]] = set()
    for comm in facts[Nccl]:
        ranks, nccl = Ranks(comm), facts[Nccl].told_by(comm)
        job = id(nccl.spots.get(comm.source))
        for finding in (
            *(found for part, home in ranks.parts(facts) for found in _of_machine(part, nccl, home, facts)),
            *sockets(ranks, nccl),
            *split(ranks),
            *gpudirect(ranks, nccl, facts),
        ):
            key = (
                finding.slug,
                finding.subject,
                finding.message if isinstance(finding, Finding) else finding.reason,
                finding.host if isinstance(finding, Finding) else None,
            )
            first = said.setdefault(key, finding)
            if isinstance(first, Finding) and isinstance(finding, Finding) and first is not finding and (key, job) not in told:
                said[key] = replace(first, evidence=(*first.evidence, finding.evidence[0]))
            told.add((key, job))
    yield from said.values()


def _of_machine(ranks: Ranks, nccl: Nccl, home: FactView, facts: FactView) -> Iterator[Finding | CannotTell]:
    """What was lost within one machine, by its own facts."""
    names = list(dict.fromkeys(p.host for p in ranks.proc.values() if p.host is not None))
    host = host_of(names, home, facts)
    told_as = ""
    if host is not None and home.nowhere is None and names and short(host) not in map(short, names):
        told_as = f" In the log this host is {', '.join(names[:3])}; its GPUs tell that it is the same."
    for said in (*_switched_off(ranks, nccl, home), *_not_used(ranks, nccl, home), *far_adapters(ranks, nccl, home)):
        if isinstance(said, CannotTell) or host is None:
            yield said
        else:
            yield replace(said, host=host, message=said.message + told_as)


def _switched_off(ranks: Ranks, nccl: Nccl, facts: FactView) -> Iterator[Finding]:
    comm = ranks.comm
    found = level(dict(comm.env))
    if found is None:
        return
    name, word = found
    value = comm.env[name]
    settings = facts.get(Settings)
    own = settings.get(name) if settings is not None else None
    if own is not None and own.value.strip() == value:
        return  # said of the host's own settings already
    local = list(inside(ranks))
    direct = [(a, b) for a, b, names in local if any(v.startswith("P2P/") for v in names)]
    cut = [(a, b) for a, b, names in local if not any(v.startswith("P2P/") for v in names)]
    if direct and not cut or comm.truncated and not any(k.startswith("SHM") for k in comm.counts):
        return
    if word != "LOC":
        # A level that keeps NVLink or switches: only pairs that lost by it count.
        cut = [(a, b) for a, b in cut if could_peer(ranks, a, b, facts)[0] is not False]
        if not cut or word in ("PHB", "SYS"):
            return
    if not cut and ranks.whole.transports and not local:
        return  # one rank a machine: nothing to switch off
    linked = any(could_peer(ranks, a, b, facts)[1] for a, b in cut) or (
        not cut and len(ranks.rank) > 1 and all(ranks.fabric(r) for r in ranks.rank)
    )
    gpus = facts.get(Gpus)
    unable = [can_peer(g) for g in gpus] if gpus is not None and gpus.gpus else []
    without = _failed_without(nccl, comm)
    if without:
        severity, why = NOTE, "Without it a run in the same input failed, so this is a way around that fault and not the cause."
    elif linked:
        severity, why = ERROR, "The GPUs have NVLink, which is idle then."
    elif (
        cut
        and all(could_peer(ranks, a, b, facts)[0] is False for a, b in cut)
        or unable
        and all(u is False for u in unable)
    ):
        severity, why = NOTE, "These GPUs have no peer to peer anyway, so nothing is lost."
    elif any(could_peer(ranks, a, b, facts)[0] for a, b in cut):
        severity, why = WARNING, "The driver would allow peer to peer."
    else:
        severity, why = WARNING, "Whether these GPUs can do peer to peer is not in the input."
    evidence = [nccl.settings.get((name, value)) or comm.at("env")]
    # That a switched fabric is up tells of NVLink without showing a link.
    sure = word == "LOC" and (severity != ERROR or bool(cut))
    which, goes, cost = "", "through host memory", _COST_SHM
    if cut:
        via = next(v for a, b, names in local if (a, b) == cut[0] for v in names)
        which = f" for the rank pairs {named(cut)}" if len(cut) > 1 else f" between ranks {cut[0][0]} and {cut[0][1]}"
        evidence.append(seen_as(nccl, comm, via))
        if via.startswith("NET/"):  # shared memory is not used either
            goes, cost = f"over {via}", COST_TCP if via.startswith("NET/Socket") else ""
    # 2.18.3 and 2.21.5 show NCCL_P2P_DISABLE=1 as the level that it means; 2.24.3 and later do not (measured, two H200).
    hidden = name == "NCCL_P2P_LEVEL" and word == "LOC" and (comm.version is None or [int(n) for n in comm.version.split(".")[:2]] < [2, 24])
    both = "NCCL_P2P_(LEVEL|DISABLE)" if hidden else name
    yield Finding(
        P2P_DISABLED_ENV.slug, severity, "host",
        f"{name}={value} switches peer to peer off{which}: NCCL goes {goes}. {why}",
        tuple(evidence), CERTAIN if sure else LIKELY, (cost or None) if severity == ERROR else None,
        (
            Step(
                "Find where it is set: NCCL prints `set by environment` for its config files too"
                + (", and before 2.24 NCCL_P2P_DISABLE=1 under this name" if hidden else ""),
                f"env | grep -E '{both}'; grep -nE '{both}' /etc/nccl.conf ~/.nccl.conf" if hidden else f"env | grep {name}; grep -n {name} /etc/nccl.conf ~/.nccl.conf",
            ),
            Step("Remove it and start again", f"unset {name} NCCL_P2P_DISABLE" if hidden else f"unset {name}", "reversible", "NCCL_DEBUG=INFO shows `via P2P`"),
        ) if severity != NOTE else (),
    )  # fmt: skip


def _failed_without(nccl: Nccl, comm: NcclComm) -> bool:
    """Did another run in the same input, without the switch, end in a fault?"""
    return comm.failure is None and any(
        c is not comm
        and c.failure is not None
        and c.procs
        and level(dict(c.env)) is None
        and not set(map(id, c.procs)) & set(map(id, comm.procs))
        for c in nccl
    )


def _not_used(ranks: Ranks, nccl: Nccl, facts: FactView) -> Iterator[Finding | CannotTell]:
    comm = ranks.comm
    linked: list[tuple[int, int, str]] = []
    able: list[tuple[int, int, str]] = []
    unable: list[tuple[int, int, str]] = []
    open_: list[tuple[int, int, str]] = []
    for a, b, names in inside(ranks):
        if any(v.startswith("P2P/") for v in names):
            continue
        could, nvlink = could_peer(ranks, a, b, facts)
        (linked if nvlink else able if could else unable if could is False else open_).append((a, b, names[0]))
    for group, severity in ((linked, ERROR), (able, WARNING), (unable, NOTE)):
        if not group:
            continue
        pairs = [(a, b) for a, b, _ in group]
        via = group[0][2]
        first = pair_of(ranks, *pairs[0], facts)
        reason, steps = _why(ranks, pairs[0], comm, facts) if severity != NOTE else ("Peer to peer is not possible between these parts, so this is as it must be.", ())
        link = (
            " although NVLink connects them"
            if severity == ERROR
            else " although the driver allows peer to peer"
            if severity == WARNING
            else ""
        )
        cost = (_COST_SHM if via.startswith("SHM") else COST_TCP) if severity == ERROR else None
        yield Finding(
            P2P_NOT_USED.slug, severity, first.subject if first is not None and len(pairs) == 1 else "host",
            f"Ranks {named(pairs)} of one host talk over {via}{link}. {reason}",
            (seen_as(nccl, comm, via), *((first.at("path"),) if first is not None else ())),
            CERTAIN if first is not None else LIKELY, cost, steps,
        )  # fmt: skip
    if open_ and not (linked or able):
        pairs = [(a, b) for a, b, _ in open_]
        why = facts.nowhere or "nvidia-smi topo -m; nvidia-smi topo -p2p r"
        yield CannotTell(P2P_NOT_USED.slug, f"ranks {named(pairs)} talk over {open_[0][2]}; whether their GPUs could use peer to peer is not in the input ({why})")


def _why(ranks: Ranks, pair: tuple[int, int], comm: NcclComm, facts: FactView) -> tuple[str, tuple[Step, ...]]:
    found = level(dict(comm.env))
    if found is not None:
        return f"{found[0]}={comm.env[found[0]]} is set.", (
            Step("Remove the setting", f"unset {found[0]}", "reversible"),
        )
    host = pair_of(ranks, *pair, facts)
    version = tuple(int(p) for p in (comm.version or "0").split(".")[:2])
    path = host.path if host is not None else None
    if path in ("PHB", "NODE", "SYS"):
        wanted = "SYS" if path == "SYS" else "PHB"
        since = (
            "since 2.23 NCCL goes peer to peer only within PXB (on AMD with at most two GPUs: SYS)"
            if version >= (2, 23)
            else "on Intel, ARM and Zhaoxin hosts NCCL goes peer to peer only within PXB"
        )
        return (
            f"Their path is {path}, and {since}.",
            (Step("Let NCCL use peer to peer over this path, and measure both", f"export NCCL_P2P_LEVEL={wanted}", "reversible", "gpudoctor bandwidth --gpus all"),),
        )
    return (
        "No setting in the log explains it: separate containers (host name, /dev/shm, network namespace) are the usual reason.",
        (
            Step(
                "Start all ranks of the host in one IPC, UTS and network namespace",
                "docker run --ipc=host --uts=host --network=host IMAGE",
                "reversible",
                "NCCL_DEBUG=INFO shows `via P2P`",
            ),
        ),
    )
