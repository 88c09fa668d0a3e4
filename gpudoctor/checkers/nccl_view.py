"""Questions about a communicator that several checkers ask: who shares a machine, who could use peer to peer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from functools import cached_property

from gpudoctor.checkers.traffic import can_peer
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.nccl import NcclComm, NcclMessage, NcclProc, NcclRank, Transport, bdf_of
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.record import replace


class Ranks:
    """One communicator, looked up by rank."""

    def __init__(self, comm: NcclComm) -> None:
        self.comm = comm
        self._whole = self  # of which this is a part
        self._same: dict[tuple[int, int], bool | None] = {}  # pairs that were asked for: are they on one machine?
        self.rank: dict[int, NcclRank] = {}
        self.proc: dict[int, NcclProc] = {}
        for number, proc, rank in comm.members():
            if number not in self.rank:
                self.rank[number] = rank
                self.proc[number] = proc

    # Looked up where somebody asks: few checkers ask for any of it, and a job may have thousands of ranks.

    @cached_property
    def _shared_names(self) -> frozenset[str]:
        """The same host name and the same GPU twice: two machines share the name."""
        return _twice((p.host, r) for n, r in self.rank.items() if (p := self.proc[n]).host)

    @cached_property
    def _shared_addresses(self) -> frozenset[str]:
        """The same of addresses."""
        return _twice((a, r) for n, r in self.rank.items() if (a := self.address(n)))

    @cached_property
    def _direct(self) -> frozenset[tuple[int, int]]:
        """Pairs that talk as only two of one machine can."""
        return frozenset((t.a, t.b) for t in self.comm.transports if t.via.startswith(("SHM", "P2P/")) and "MNNVL" not in t.via)

    def address(self, rank: int) -> str | None:
        """The IP address the rank's process announced; None for one that says nothing (loopback, docker0)."""
        proc = self.proc.get(rank)
        return proc.ip if proc is not None else None

    @property
    def whole(self) -> NcclComm:
        """The communicator of which these may be one machine's ranks."""
        return self._whole.comm

    def parts(self, facts: FactView) -> Iterator[tuple[Ranks, FactView]]:
        """The ranks of each machine with its own facts; those of all machines that the input knows nothing of, together."""
        if not facts.several:
            yield self, facts
            return
        members: dict[FactView, list[int]] = {}
        for number in self.rank:
            members.setdefault(self.home(number, facts), []).append(number)
        for view, numbers in members.items():
            yield self._part(frozenset(numbers)), view

    def _part(self, numbers: frozenset[int]) -> Ranks:
        out = copy(self)
        out.rank = {n: r for n, r in self.rank.items() if n in numbers}
        out.proc = {n: p for n, p in self.proc.items() if n in numbers}
        env: dict[str, str] = {}
        for proc in out.proc.values():
            for name, value in proc.env.items():
                env.setdefault(name, value)
        out.comm = replace(
            self.comm,
            transports=tuple(t for t in self.comm.transports if t.a in numbers and t.b in numbers),
            env=env,
            procs=tuple({id(p): p for p in out.proc.values()}.values()),
        )
        return out

    def home(self, rank: int | None, facts: FactView) -> FactView:
        """The facts of the machine that a rank runs on."""
        proc = self.proc.get(rank) if rank is not None else None
        return facts.on(proc.host if proc is not None else None)

    def same_machine(self, a: int, b: int) -> bool | None:
        """Are these two ranks on one machine? None where the log does not tell."""
        pair = (a, b)
        known = self._whole._same  # several checks ask of the same pairs
        if pair not in known:
            known[pair] = self._whole._on_one(a, b)
        return known[pair]

    def _on_one(self, a: int, b: int) -> bool | None:
        if self.comm.nnodes == 1 or (min(a, b), max(a, b)) in self._direct:
            return True
        one, two = self.proc.get(a), self.proc.get(b)
        if one is None or two is None:
            return None
        if one is two:
            return True
        here, there = self.address(a), self.address(b)
        if here and there and here != there:
            return None if one.host == two.host and one.host not in self._shared_names else False
        if here and here == there:
            return True if here not in self._shared_addresses else (False if one.host != two.host else None)
        if one.host is None or two.host is None:
            return None
        if one.host != two.host:
            return False
        if one.host in self._shared_names:
            return None
        hosts = {p.host for p in self.proc.values()}
        if self.comm.nnodes is not None and self.comm.nnodes > len(hosts) and len(self.rank) == self.comm.nranks:
            return None  # NCCL counts more machines than there are names, and nothing else tells them apart
        return True if self.rank[a].nvml_dev is not None or self.rank[a].bus_id is not None else None

    def fabric(self, rank: int) -> bool:
        """Is the rank's GPU known to hang on NVLink? An NVSwitch fabric that is up (MNNVL line), or NCCL's own dump."""
        proc = self.proc.get(rank)
        return proc is not None and (proc.fabric_state == 3 or bool(proc.nvlink_gbs))


def _twice(named: Iterable[tuple[str | None, NcclRank]]) -> frozenset[str]:
    seen: set[tuple[str | None, object]] = set()
    out = set()
    for name, rank in named:
        device = rank.bus_id if rank.bus_id is not None else rank.nvml_dev
        if device is None or name is None:
            continue
        if (name, device) in seen:
            out.add(name)
        seen.add((name, device))
    return frozenset(out)


def gpu_of(rank: NcclRank | None, gpus: Gpus | None) -> Gpu | None:
    """The host's GPU that a rank uses: by address, else by NVML's index."""
    if rank is None or gpus is None:
        return None
    return gpus.by_bdf(bdf_of(rank.bus_id)) or (gpus.by_index(rank.nvml_dev) if rank.nvml_dev is not None else None)


def host_of(ranks: Iterable[str | None], home: FactView, facts: FactView) -> str | None:
    """Whose a finding is that rests on `home`: the machine's name in the input, else the log's; None: the log's own."""
    if home.nowhere is None:
        return home.host if home is not facts else None
    names = list(dict.fromkeys(n for n in ranks if n is not None))
    if len(names) == 1:
        return names[0]
    return None if facts.host is None else ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def pair_of(ranks: Ranks, a: int, b: int, facts: FactView) -> Pair | None:
    """The host's pair of GPUs that two ranks use."""
    home = ranks.home(a, facts)
    if ranks.home(b, facts) is not home:
        return None
    pairs, gpus = home.get(Pairs), home.get(Gpus)
    indices = []
    for rank in (ranks.rank.get(a), ranks.rank.get(b)):
        gpu = gpu_of(rank, gpus)
        index = gpu.index if gpu is not None else rank.nvml_dev if rank is not None else None
        if index is None:
            return None
        indices.append(index)
    return pairs.of(indices[0], indices[1]) if pairs is not None and indices[0] != indices[1] else None


def could_peer(ranks: Ranks, a: int, b: int, facts: FactView) -> tuple[bool | None, bool]:
    """(could these two use peer to peer, do they have NVLink); None where the input does not tell."""
    pair = pair_of(ranks, a, b, facts)
    if pair is not None:
        if pair.path == "NVL":
            return True, True
        said = [w for w in (pair.p2p_read, pair.p2p_write) if w]
        if said:
            return all(w == "OK" for w in said), False
    if ranks.fabric(a) and ranks.fabric(b):
        return True, True
    gpus = [gpu_of(ranks.rank.get(r), ranks.home(r, facts).get(Gpus)) for r in (a, b)]
    able = [can_peer(g) if g is not None else None for g in gpus]
    if False in able:
        return False, False
    return (True if all(able) else None), False


def level(env: dict[str, str]) -> tuple[str, str] | None:
    """The setting that limits peer to peer, and the level it leaves; NCCL_P2P_DISABLE goes first, but only as 1."""
    from gpudoctor.checkers.nccl_env import level_of, strtol

    if strtol(env.get("NCCL_P2P_DISABLE", "")) == 1:
        return "NCCL_P2P_DISABLE", "LOC"
    word = level_of(env.get("NCCL_P2P_LEVEL", ""))
    return ("NCCL_P2P_LEVEL", word) if word is not None else None


def inside(ranks: Ranks) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Pairs of ranks on one machine, with every transport they use."""
    by_pair: dict[tuple[int, int], list[str]] = {}
    for t in ranks.comm.transports:
        by_pair.setdefault((t.a, t.b), []).append(t.via)
    for (a, b), names in by_pair.items():
        if ranks.same_machine(a, b):
            yield a, b, tuple(names)


def between(ranks: Ranks) -> Iterator[Transport]:
    """Connections over the network that do not stay in one machine, as far as is known."""
    for t in ranks.comm.transports:
        if t.via.startswith("NET/") and not ranks.same_machine(t.a, t.b):
            yield t


def named(pairs: Iterable[tuple[int, int]], limit: int = 6) -> str:
    """`0-1, 2-3 and 4 more`."""
    listed = [f"{a}-{b}" for a, b in pairs]
    return ", ".join(listed[:limit]) + (f" and {len(listed) - limit} more" if len(listed) > limit else "")


def who(message: NcclMessage, rank: int | None) -> str:
    """`rank 0 (node1, pid 4242)`."""
    place = ", ".join(w for w in (message.host, f"pid {message.pid}" if message.pid is not None else None) if w)
    if rank is not None:
        return f"rank {rank}" + (f" ({place})" if place else "")
    return f"the process at {place}" if place else "a process"


def sentence(words: str) -> str:
    """Begun with a capital; names in it stay as they are."""
    return words[:1].upper() + words[1:]
