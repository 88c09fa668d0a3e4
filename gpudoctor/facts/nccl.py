"""What NCCL's own log says: processes, communicators, transports, and the lines that complain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from gpudoctor.facts.base import Contradiction, Entry, Fact
from gpudoctor.model import Evidence
from gpudoctor.record import EMPTY, replace

Process = tuple[str, str | None, int | None]  # source, host, pid
Choice = tuple[str | None, str, str | None]  # collective, algorithm, protocol (or kernel)
_LOCAL = ("127.", "::1", "172.17.", "0.0.0.0", "[::1]")
_PART = re.compile(r"(\w+) (\d+\.\d+)")
MAX_PAIRS = 100_000  # of one communicator; beyond, transports are summed up per kind


class Transport(NamedTuple):
    """How two ranks of a communicator talk, a < b; `via` as the contract writes it."""

    a: int
    b: int
    via: str


class Graph(NamedTuple):
    """One line of NCCL's search: what it expects of a ring (pattern 4), a tree (1-3), NVLS (5)."""

    pattern: int
    channels: int
    bw_intra: float
    bw_inter: float
    type_intra: str
    type_inter: str


class GpuPath(NamedTuple):
    """One cell of the topology dump: two GPUs by bus id (hex as printed, lower case), the bandwidth, the path's type."""

    a: str
    b: str
    bandwidth_gbs: float
    type: str


class NcclRank(Entry):
    """One rank of one communicator, as its own process printed it."""

    rank: int | None = None
    nranks: int | None = None
    pointer: str | None = None
    comm_id: str | None = None
    cuda_dev: int | None = None  # in that process, after CUDA_VISIBLE_DEVICES
    nvml_dev: int | None = None  # nvidia-smi's index
    bus_id: str | None = None  # hex without punctuation
    nnodes: int | None = None
    local_ranks: int | None = None
    local_rank: int | None = None
    started: bool = False  # "Init START" was printed
    completed: bool = False
    ended: str | None = None  # "destroy", "abort"
    failed: tuple[str, Evidence] | None = None  # what the call that was to make it gave back, and where: "init.cc:1740 -> 5"
    channels: int | None = None
    nvls_channels: int | None = None
    p2p_channels: int | None = None
    init_seconds: float | None = None
    init_said: str = ""  # the parts of that time: "kernels 0.33, alloc 0.03"
    graphs: tuple[Graph, ...] = ()
    nvls: bool | None = None  # set up, not merely available
    order: int = 0  # place in the input, among all sources
    transports: Mapping[tuple[int, int], tuple[str, ...]] = MappingProxyType({})  # (a, b), a < b

    @property
    def init_parts(self) -> tuple[tuple[str, float], ...]:
        """Parts of the initialisation in seconds, as NCCL names them."""
        return tuple((name, float(value)) for name, value in _PART.findall(self.init_said))


class NcclProc(Entry):
    """One process that wrote NCCL lines."""

    source: str
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    cuda_driver: int | None = None
    env: Mapping[str, str] = EMPTY
    network: str | None = None  # "IB", "Socket", "AWS Libfabric"
    nics: tuple[str, ...] = ()  # "mlx5_0:1/IB"
    address: str | None = None  # of the bootstrap interface, "eth0:10.0.0.1"
    interfaces: tuple[str, ...] = ()
    gdr: Mapping[str, bool] = EMPTY  # NIC -> can do GPUDirect RDMA
    dma_buf: bool | None = None
    affinity: Mapping[int, str] = MappingProxyType({})  # NVML index -> "empty", or what NCCL sets
    fabric_state: int | None = None  # MNNVL line: 3 completed, which only a GPU on an NVSwitch fabric has
    paths: tuple[GpuPath, ...] = ()
    nvlink_gbs: float | None = None  # `+ NVL[370.8]` of the topology dump, the largest
    pcie: Mapping[str, float] = EMPTY  # bus id -> GB/s that NCCL counts for the GPU's own link, `+ PCI[24.0] - GPU/1000`
    tuning: Mapping[tuple[str, str, str], tuple[float, float]] = MappingProxyType({})  # collective, algorithm, protocol -> us, GB/s
    choices: Mapping[Choice, tuple[int, int]] = MappingProxyType({})  # what it took for calls of so many bytes, from .. to
    drives: tuple[int, ...] = ()  # CUDA's numbers of the devices that its lines are marked with
    ranks: tuple[NcclRank, ...] = ()
    failed_start: str | None = None  # what a call gave back before a communicator of it began, where none was made since

    @property
    def ip(self) -> str | None:
        """The address it announced; None for one that says nothing (loopback, docker0)."""
        return _ip(self.address or "")


@lru_cache(4096)
def _ip(announced: str) -> str | None:
    name, _, address = announced.partition(":")
    return None if not address or address.startswith(_LOCAL) or name.startswith(("lo", "docker")) else address


class NcclMessage(Entry):
    """A line that says something is wrong, put into its family (gpudoctor.nccl_messages)."""

    family: str
    slug: str | None
    tier: int  # 0: names the cause; the larger, the more likely an echo; see nccl_messages
    text: str
    source: str
    line: int
    level: str = "WARN"
    host: str | None = None
    pid: int | None = None
    dev: int | None = None
    rank: int | None = None
    file: str | None = None  # NCCL's own source file: "transport/nvls.cc"
    fields: Mapping[str, str] = EMPTY
    times: int = 1

    @property
    def process(self) -> Process:
        return (self.source, self.host, self.pid)


class Diagnostic(Entry):
    """A line of NCCL's own diagnostics (2.31 and later)."""

    status: str  # "OK", "INFO", "WARN", "FAIL", …
    text: str


class NcclComm(Entry):
    """One communicator, or what a log says where it names none."""

    source: str
    comm_id: str | None = None
    version: str | None = None
    nranks: int | None = None
    nnodes: int | None = None
    channels: int | None = None
    ranks: tuple[NcclRank, ...] = ()
    procs: tuple[NcclProc, ...] = ()
    transports: tuple[Transport, ...] = ()
    counts: Mapping[str, int] = EMPTY  # kind -> pairs, where there are too many to list
    truncated: bool = False
    env: Mapping[str, str] = EMPTY
    warnings: tuple[str, ...] = ()
    messages: tuple[NcclMessage, ...] = ()
    failure: str | None = None
    seats: tuple[tuple[int, NcclProc, NcclRank], ...] = ()
    of_process: Mapping[Process, tuple[NcclRank, ...]] = MappingProxyType({})  # where the communicator has messages

    def members(self) -> Iterator[tuple[int, NcclProc, NcclRank]]:
        """Every rank that the log shows, with its process."""
        return iter(self.seats)

    @property
    def slowest(self) -> NcclRank | None:
        """The rank that took longest to start, of those that say how long it took."""
        timed = (r for r in self.ranks if r.init_seconds is not None)
        return max(timed, key=lambda r: r.init_seconds or 0.0, default=None)

    def by_rank(self) -> dict[int, NcclProc]:
        """The process of every rank that the log shows."""
        return {number: proc for number, proc, _ in self.members()}

    def rank_of(self, message: NcclMessage) -> int | None:
        """Which rank said this; None where the process is not known or drives several."""
        if message.rank is not None:
            return message.rank
        own = [r for r in self.of_process.get(message.process, ()) if r.rank is not None]
        if len(own) > 1:
            own = [r for r in own if r.cuda_dev == message.dev]
        elif own and own[0].cuda_dev is None:
            # No line of its start is there: others of the process may be ranks too. (A thread that chose no device marks its
            # lines with 0, so that a mark alone says nothing against a rank whose device is known.)
            drives = next((p.drives for _, p, r in self.seats if r is own[0]), ())
            own = own if len(drives) < 2 or own[0].nvml_dev == message.dev else []
        return own[0].rank if len(own) == 1 else None


class Spots(NamedTuple):
    """Where the logs of one job first show what is kept once: as Nccl's fields of these names."""

    settings: dict[tuple[str, str], Evidence]
    seen: dict[str, Evidence]


class Nccl(Fact):
    """Everything NCCL printed. `comms` is joined from the processes when the sources are merged."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "NCCL's log"
    hint: ClassVar[str | None] = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,GRAPH,NET,P2P,SHM,NVLS,TUNING"

    procs: tuple[NcclProc, ...] = ()
    messages: tuple[NcclMessage, ...] = ()
    comms: tuple[NcclComm, ...] = ()  # given: entries that another reader made (a framework's watchdog)
    diagnostics: tuple[Diagnostic, ...] = ()
    # What is kept once per log: (name, value) of a setting, the kind of a transport -> where it was first seen.
    settings: Mapping[tuple[str, str], Evidence] = MappingProxyType({})
    seen: Mapping[str, Evidence] = EMPTY
    counts: Mapping[tuple[int, str], int] = MappingProxyType({})  # (nranks, kind) -> pairs, beyond MAX_PAIRS
    spots: Mapping[str, Spots] = EMPTY  # of a log -> those of its job; only where the logs are of several jobs

    def __iter__(self) -> Iterator[NcclComm]:
        return iter(self.comms)

    def told_by(self, comm: NcclComm) -> Nccl:
        """All of it, but for evidence only what the logs of this communicator's job show."""
        own = self.spots.get(comm.source)
        return self if own is None else replace(self, settings=own.settings, seen=own.seen)

    @property
    def of_a_run(self) -> bool:
        """Did a rank speak, or NCCL complain? A version alone is what somebody's list may have."""
        return bool(self.messages) or any(c.nranks is not None or c.transports or c.counts for c in self.comms)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Nccl:
        from gpudoctor.facts.nccl_jobs import jobs_of, spots_of
        from gpudoctor.facts.nccl_join import comms_of, settled

        procs = tuple(p for part in parts for p in part.procs)
        messages = settled(tuple(m for part in parts for m in part.messages), procs)
        settings: dict[tuple[str, str], Evidence] = {}
        seen: dict[str, Evidence] = {}
        counts: dict[tuple[int, str], int] = {}
        for part in parts:
            for key, spot in part.settings.items():
                settings.setdefault(key, spot)
            for kind, spot in part.seen.items():
                seen.setdefault(kind, spot)
            for counted, number in part.counts.items():
                counts[counted] = counts.get(counted, 0) + number
        given = tuple(c for part in parts for c in part.comms)
        comms = comms_of(procs, messages, counts)
        return cls(
            procs,
            messages,
            (*comms, *given),
            tuple(d for part in parts for d in part.diagnostics),
            settings,
            seen,
            counts,
            spots_of(jobs_of(comms), parts),
        )


def kind_of(via: str) -> str:
    """Transport without the adapter's number: `NET/IB/3/GDRDMA` -> `NET/IB/GDRDMA`."""
    return re.sub(r"^(NET/[^/]+)/\d+", r"\1", via)


def bdf_of(bus_id: str | None) -> str | None:
    """NCCL's hex bus id as an address: `ce000` is 0000:ce:00.0. One digit function, two device, two bus, rest domain."""
    if not bus_id or not re.fullmatch(r"[0-9a-f]{1,12}", bus_id):
        return None
    number = int(bus_id, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF:x}"
