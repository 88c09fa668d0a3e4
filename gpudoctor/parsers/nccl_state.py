"""What a reader of NCCL lines remembers: per rank and pair, never per line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gpudoctor.facts.nccl import MAX_PAIRS, Choice, GpuPath, Graph, NcclProc, NcclRank
from gpudoctor.parsers.nccl_place import Origin, Place, evidence
from gpudoctor.record import become

NO_RANK = -1  # of a process that no line gave a number
UNKNOWN = 1 << 30  # of a communicator whose size no line told
_MOST = 2 * MAX_PAIRS  # each pair is told by both ends
_MAX_FIGURED = 1024
_MAX_FAILED = 64  # communicators that one failed call may have been about
_BITS = 1 << 26  # pairs a bit map may hold: 11,585 ranks


class Connection(NamedTuple):
    """What a line of a channel says."""

    own: int  # rank
    other: int
    pair: tuple[int, int]  # the same two, the lower first
    devices: tuple[bytes, bytes]  # what stands in brackets behind each
    vias: tuple[str]  # one transport, as the contract writes it
    kind: str


class Pairs:
    """How many pairs are remembered one by one; beyond the limit they are only counted, each once, per kind."""

    def __init__(self) -> None:
        self.kept = 0
        self.maps: dict[tuple[int, str], bytearray] = {}
        self.names: dict[tuple[str, ...], tuple[str, ...]] = {}  # equal sets of transports share one tuple

    @property
    def full(self) -> bool:
        return self.kept > _MOST

    def count(self, nranks: int, low: int, high: int, kind: str) -> None:
        place = high * (high - 1) // 2 + low
        if place >= _BITS:
            return
        bits = self.maps.setdefault((nranks, kind), bytearray())
        if len(bits) <= place >> 3:
            bits.extend(bytes((place >> 3) + 1 - len(bits)))
        bits[place >> 3] |= 1 << (place & 7)

    def counts(self) -> dict[tuple[int, str], int]:
        return {key: bin(int.from_bytes(bits, "little")).count("1") for key, bits in self.maps.items()}


class Comm:
    """One rank's communicator while it is read. What no line told is not in the object: there may be a hundred thousand."""

    comm_id: str | None = None
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    bus_id: str | None = None
    nnodes: int | None = None
    local_ranks: int | None = None
    local_rank: int | None = None
    said = 0  # the line of its start without its last word, as a hash
    started = False
    completed = False
    ended: str | None = None
    failed: tuple[str, Place] | None = None
    told_channels: tuple[int, int | None, int] | None = None
    ring_channels: int | None = None
    init_seconds: float | None = None
    init_said = ""  # the parts of that time, as they were printed
    searched: Mapping[int, Graph] = MappingProxyType({})  # what NCCL's search came to, by pattern
    nvls: bool | None = None
    where: Place = (0, b"")
    devices: tuple[bytes, ...] | None = None  # words that may stand in brackets for its own device

    def __init__(self, pointer: str, rank: int, nranks: int, order: int) -> None:
        self.pointer = pointer
        self.rank = rank
        self.nranks = nranks
        self.order = order
        self.transports: dict[tuple[int, int], tuple[str, ...]] = {}

    def fits(self, other: int, device: bytes) -> bool:
        """May this line be of this communicator? The rank's own device in brackets must be the known one."""
        if other >= self.nranks:
            return False
        if self.devices is not None and device in self.devices:
            return True
        if self.devices is None:
            known = (self.bus_id, self.nvml_dev, self.cuda_dev)
            self.devices = tuple(str(x).encode() for x in known if x is not None)
        return not self.devices or not device or device in self.devices or (self.nvml_dev is None and self.bus_id is None)

    def add(self, told: Connection, pairs: Pairs) -> bool:
        vias, pair = told.vias, told.pair
        known = self.transports.get(pair)
        if known is None:
            if pairs.kept > _MOST:
                pairs.count(self.nranks, *pair, vias[0])
                return True
            pairs.kept += 1
            self.transports[pair] = vias
            return True
        if vias[0] in known:
            return False
        names = (*known, *vias)
        self.transports[told.pair] = pairs.names.setdefault(names, names)
        return True

    def record(self, source: str) -> NcclRank:
        """The same as a record, which it is from here on: a copy for each of a hundred thousand would cost more than the rest."""
        values = self.__dict__
        if self.rank < 0:
            del values["rank"]
        if self.nranks >= UNKNOWN:
            del values["nranks"]
        if not self.pointer:
            del values["pointer"]
        counted = values.pop("told_channels", None)
        rings = values.pop("ring_channels", None)
        if counted is not None or rings is not None:
            values["channels"], values["nvls_channels"], values["p2p_channels"] = counted or (rings, None, None)
        if self.failed is not None:
            values["failed"] = self.failed[0], evidence(source, self.failed[1])
        searched = values.pop("searched", None)
        if searched:
            values["graphs"] = tuple(searched[pattern] for pattern in sorted(searched))
        values["origin"] = Origin(source, values.pop("where", (0, b"")))
        values.pop("devices", None)
        values.pop("said", None)
        return become(NcclRank, self)


class Proc:
    """One process while its lines are read."""

    def __init__(self, host: str | None, pid: int | None) -> None:
        self.host = host
        self.pid = pid
        self.version: str | None = None
        self.cuda_driver: int | None = None
        self.env: dict[str, str] = {}
        self.network: str | None = None
        self.nics: tuple[str, ...] = ()
        self.address: str | None = None
        self.interfaces: tuple[str, ...] = ()
        self.gdr: dict[str, bool] = {}
        self.dma_buf: bool | None = None
        self.affinity: dict[int, str] = {}
        self.fabric_state: int | None = None
        self.nvlink_gbs: float | None = None
        self.pcie: dict[str, float] = {}
        self.tuned: tuple[str, ...] = ()  # algorithms in the head of the tuning table
        self.tuning: dict[tuple[str, str, str], tuple[float, float]] = {}
        self.choices: dict[Choice, tuple[int, int]] = {}
        self.paths: dict[tuple[str, str], GpuPath] = {}
        self.drives: set[int] = set()
        self.failed_start: tuple[str, Place] | None = None
        self.deep: tuple[str, Place] | None = None  # a result from within a call, after which it said no more of itself
        self.comms: dict[str, Comm] = {}
        self.all: list[Comm] = []
        self.current: Comm | None = None
        self.waiting: dict[int, Comm] = {}  # own rank -> connections told before their communicator
        self.channels: tuple[int, int | None, int] | None = None
        self.ring_channels: int | None = None
        self.graphs: dict[int, Graph] = {}
        # Lines of the process already read, as hashes: what they say again changes nothing until something else has been said.
        self.heard: set[int] = set()
        self.figured: set[int] = set()  # the same of lines of numbers

    def learn(self, name: str, value: object) -> None:
        """The last word counts. Where it differs from an earlier one, the earlier line may come again and count."""
        self.deep = None
        before = getattr(self, name)
        if before != value:
            if before:
                self.heard.clear()
            setattr(self, name, value)

    def figures_again(self, said: object) -> bool:
        """Was this line of numbers read before? A process prints its dumps and tables again for each communicator."""
        mark = hash(said)
        if mark in self.figured:
            return True
        if len(self.figured) >= _MAX_FIGURED:
            self.figured.clear()
        self.figured.add(mark)
        return False

    def begin(self, pointer: str, comm: Comm) -> None:
        self.deep = None
        self.comms[pointer] = comm
        self.all.append(comm)
        self.current = comm

    def complete(self, comm: Comm) -> None:
        """Up to 2.18.1 a communicator is named only when it is done: what came before belongs to it."""
        self.current = comm
        self.failed_start = self.deep = None
        if not comm.started:
            early = self.waiting.pop(comm.rank, None)
            if early is not None:
                comm.transports.update(early.transports)
            comm.told_channels = comm.told_channels or self.channels
        if not comm.searched:
            comm.searched = self.graphs
        self.graphs = {}
        comm.ring_channels = comm.ring_channels or self.ring_channels
        self.channels = self.ring_channels = None

    def fail(self, result: str, where: Place) -> None:
        """A call that makes a communicator gave this back: those that have begun, else whatever comes first.

        As the call returns, each function on its way says the same: the last of them counts.
        """
        begun = [c for c in self.all[-_MAX_FAILED:] if c.started and not c.completed and c.ended is None]
        fresh = [c for c in begun if c.failed is None] or [c for c in begun if c is self.current]
        for comm in fresh:
            comm.failed = (result, where)
        if not fresh:
            self.failed_start = (result, where)

    def of_rank(self, rank: int, nranks: int) -> Comm | None:
        return next((c for c in reversed(self.all) if c.rank == rank and c.nranks == nranks), None)

    def connect(self, told: Connection, pairs: Pairs) -> bool:
        """A connection of a rank to another: of the last communicator that it can be of. False where it is known."""
        own, device = told.own, told.devices[0]
        comm = self.current
        if comm is not None and comm is self.all[-1] and comm.rank == own and comm.started and comm.ended is None:  # as nearly always
            if comm.devices is not None and device in comm.devices and told.other < comm.nranks:
                return comm.add(told, pairs)
        for comm in reversed(self.all):
            # Without "Init START" (up to 2.18.1) a finished communicator has all its connections.
            if comm.rank == own and comm.ended is None and (comm.started or not comm.completed) and comm.fits(told.other, device):
                return comm.add(told, pairs)
        early = self.waiting.get(own)
        if early is None:
            early = self.waiting[own] = Comm("", own, UNKNOWN, 0)
            # Brackets hold a bus id up to 2.18.1 and NVML's index since; bus ids have three digits and more but on bus 0.
            if len(device) > 2:
                early.bus_id = device.decode()
            elif device.isdigit():
                early.nvml_dev = int(device)
        return early.add(told, pairs)

    def graph(self, groups: tuple[bytes, ...]) -> None:
        pattern, channels, intra, inter, here, there = groups
        graph = Graph(int(pattern), int(channels), float(intra), float(inter), here.decode(), there.decode())
        if self.current is not None and not self.current.completed:
            self.current.searched = {**self.current.searched, graph.pattern: graph}
        else:
            self.graphs[graph.pattern] = graph

    def paths_full(self) -> bool:
        return len(self.paths) > 4096

    def path(self, a: bytes, b: bytes, bandwidth: bytes, kind: bytes) -> None:
        low, high = sorted((a.decode().lower(), b.decode().lower()))
        if low != high:
            self.paths[low, high] = GpuPath(low, high, float(bandwidth), kind.decode())

    def record(self, source: str) -> NcclProc:
        for own, early in self.waiting.items():
            home = next((c for c in reversed(self.all) if c.rank == own and c.nranks > max(map(max, early.transports), default=0)), None)
            if home is not None:
                for pair, names in early.transports.items():
                    known = home.transports.get(pair, ())
                    home.transports[pair] = (*known, *(n for n in names if n not in known))
                continue
            early.told_channels = self.channels
            early.ring_channels = self.ring_channels
            self.all.append(early)
        if not self.all and (self.channels or self.ring_channels or self.graphs):
            loose = Comm("", NO_RANK, UNKNOWN, 0)
            loose.told_channels, loose.ring_channels, loose.searched = self.channels, self.ring_channels, self.graphs
            self.all.append(loose)
        elif self.all and (last := self.all[-1]).told_channels is None:
            last.told_channels = self.channels
            last.ring_channels = last.ring_channels or self.ring_channels
            last.searched = last.searched or self.graphs
        failed = self.failed_start or self.deep
        return NcclProc(
            source=source,
            host=self.host,
            pid=self.pid,
            version=self.version,
            cuda_driver=self.cuda_driver,
            env=self.env,
            network=self.network,
            nics=self.nics,
            address=self.address,
            interfaces=self.interfaces,
            gdr=self.gdr,
            dma_buf=self.dma_buf,
            affinity=self.affinity,
            fabric_state=self.fabric_state,
            paths=tuple(self.paths.values()),
            nvlink_gbs=self.nvlink_gbs,
            pcie=self.pcie,
            tuning=self.tuning,
            choices=self.choices,
            drives=tuple(sorted(self.drives)),
            failed_start=failed[0] if failed is not None else None,
            origin={"failed_start": evidence(source, failed[1])} if failed is not None else {},
            ranks=tuple(c.record(source) for c in self.all),
        )
