"""Bandwidth as it was measured: collective runs, copies between two GPUs, copies to and from the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from gpudoctor.facts.base import Contradiction, Entry, Fact
from gpudoctor.median import median
from gpudoctor.record import EMPTY, KeyedRecord

# busbw = algbw x factor(n), n ranks (nccl-tests doc/PERFORMANCE.md). The three families, by what their factor is.
TWICE = ("all_reduce",)  # 2(n-1)/n
SHARE = ("reduce_scatter", "all_gather", "alltoall", "alltoallv", "gather", "scatter")  # (n-1)/n
WHOLE = ("broadcast", "reduce", "sendrecv", "hypercube")  # 1
COLLECTIVES = (*TWICE, *SHARE, *WHOLE)

CPU = "CPU"  # the path of a pair of processes that use no GPU
LEVEL_ROWS = 3  # sizes from the end that may make the level
LEVEL_WITHIN = 0.95  # of the best of them
LEVEL_SPAN = 16  # times: a size that much below the largest says nothing of the level
LEVEL_FROM = 1 << 20  # bytes: below this a collective measures latency on every link there is


def factor(collective: str | None, nranks: int) -> float | None:
    """What algbw is multiplied by to give busbw; None where the collective is not known."""
    if collective in TWICE:
        return 2 * (nranks - 1) / nranks
    if collective in SHARE:
        return (nranks - 1) / nranks
    return 1.0 if collective in WHOLE else None


class BandwidthRow(KeyedRecord):
    """One size. `out` is out-of-place, `in` in-place; None was not measured, not checked or not readable.

    wrong_*: number of wrong elements. nccl-tests before 2.13 printed the largest deviation instead (error_*).
    """

    size: int  # bytes
    busbw_out_gbs: float | None = None
    busbw_in_gbs: float | None = None
    wrong_out: int | None = None
    wrong_in: int | None = None
    algbw_out_gbs: float | None = None
    algbw_in_gbs: float | None = None
    time_out_us: float | None = None
    time_in_us: float | None = None
    error_out: float | None = None
    error_in: float | None = None
    type: str | None = None
    redop: str | None = None
    line: int | None = None

    @property
    def busbw_gbs(self) -> float | None:
        """The better of in-place and out-of-place."""
        return max((v for v in (self.busbw_out_gbs, self.busbw_in_gbs) if v is not None), default=None)

    @property
    def time_us(self) -> float | None:
        return min((v for v in (self.time_out_us, self.time_in_us) if v is not None), default=None)


class Member(KeyedRecord):
    """One rank of a run and the GPU it used. `device` is CUDA's number, which need not be nvidia-smi's."""

    rank: int
    device: int | None = None
    host: str | None = None
    bdf: str | None = None
    bus: int | None = None  # old nccl-tests print the bus number alone
    name: str | None = None
    group: int | None = None


class Failure(KeyedRecord):
    """A line that says a run went wrong. kind: nccl, cuda, test, gpus (too few GPUs), exit (launcher), timeout."""

    kind: str
    text: str
    asked: int | None = None  # kind gpus
    found: int | None = None
    status: int | None = None  # kind exit


class BandwidthRun(Entry):
    """One program run, whatever the operations or restarting sizes in it."""

    engine: str = "nccl-tests"  # "nccl-tests", "pytorch", "cuda-samples"
    program: str | None = None  # all_reduce_perf
    collective: str | None = None
    nranks: int | None = None
    rows: tuple[BandwidthRow, ...] = ()
    average_busbw_gbs: float | None = None  # nccl-tests' footer: the plain mean of all rows, small ones included
    wrong: bool | None = None
    completed: bool = False  # the run's own footer is there
    members: tuple[Member, ...] = ()
    failures: tuple[Failure, ...] = ()
    exit_status: int | None = None
    nccl_version: str | None = None
    tests_version: str | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    checked: bool | None = None  # False: results were not compared (-c 0)
    below_minimum: bool | None = None  # the program's own NCCL_TESTS_MIN_BW was not met
    backend: str = "nccl"  # "gloo" runs the same code on CPUs
    settings: Mapping[str, str] = EMPTY  # allowed environment variables of the run

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(m.host for m in self.team if m.host))

    @property
    def team(self) -> tuple[Member, ...]:
        """The ranks of the first communicator: NCCL_TESTS_SPLIT makes several, and the table speaks of each alike."""
        first = min((m.group or 0 for m in self.members), default=0)
        return tuple(m for m in self.members if (m.group or 0) == first)

    @property
    def own(self) -> bool:
        """Did gpudoctor's own engine measure it? There is then no other program to run again."""
        return self.engine == "pytorch"

    @property
    def sample(self) -> bool:
        """Is it one of CUDA's samples, which know nothing of NCCL and take no sizes?"""
        return self.engine == "cuda-samples"

    def again(self, low: str, high: str, step: int = 2, check: bool = False) -> str:
        """The command that measures the same over these sizes."""
        if self.sample and self.program:
            return self.program
        if self.own:
            indices = ",".join(str(m.device) for m in self.team if m.device is not None)
            # A list of one needs its comma: a plain number is a count.
            who = f"{indices}," if indices.isdigit() else indices or str(self.nranks or 2)
            extra = " --backend gloo" if self.backend == "gloo" else ""
            what = f" --collective {self.collective}" if self.collective not in (None, "all_reduce") else ""
            return f"gpudoctor bandwidth --engine torch --gpus {who} --sizes {low}:{high}:{step}{what}{extra}"
        program = self.program or f"{self.collective or 'all_reduce'}_perf"
        return f"{program} -b {low} -e {high} -f {step}{' -c 1' if check else ''} -g {self.nranks or 2}"

    def level(self) -> tuple[BandwidthRow, ...]:
        """The rows that make the plateau, in the order of size.

        Of each size the fastest row; of these the three largest sizes, none below a sixteenth of the largest; of these the
        ones within 5 % of the best. So a table that still rises is not pulled down by sizes that are bound by latency, and one size that was
        disturbed does not decide. No level where every size is under 1 MiB or there is one rank.
        """
        best: dict[int, BandwidthRow] = {}
        for row in self.rows:
            rate = row.busbw_gbs
            if rate is not None and (row.size not in best or rate > (best[row.size].busbw_gbs or 0)):
                best[row.size] = row
        if self.nranks == 1 or not best or max(best) < LEVEL_FROM:
            return ()
        least = max(LEVEL_FROM, max(best) // LEVEL_SPAN)
        last = [best[size] for size in sorted(best)[-LEVEL_ROWS:] if size >= least]
        top = max(row.busbw_gbs or 0 for row in last)
        return tuple(row for row in last if (row.busbw_gbs or 0) >= LEVEL_WITHIN * top) if top > 0 else ()

    @property
    def plateau_busbw_gbs(self) -> float | None:
        """The busbw that the large sizes level out at: the median of `level`."""
        rates = [row.busbw_gbs for row in self.level() if row.busbw_gbs is not None]
        return median(rates) if rates else None

    @property
    def latency_us(self) -> float | None:
        """The shortest time of the small sizes (up to 4 KiB)."""
        times = [row.time_us for row in self.rows if 0 < row.size <= 4096 and row.time_us]
        return min(times) if times else None


class Bandwidth(Fact):
    """Every run of a bandwidth program in the input."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "a bandwidth measurement"
    hint: ClassVar[str | None] = "all_reduce_perf -b 8 -e 4G -f 2 -g 2"

    runs: tuple[BandwidthRun, ...]

    def __iter__(self) -> Iterator[BandwidthRun]:
        return iter(self.runs)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Bandwidth:
        return Bandwidth(tuple(run for part in parts for run in part.runs))


class PairRate(Entry):
    """What two GPUs of one host reach with nobody else at work. Numbers as the source has them."""

    a: int
    b: int
    gbs: float
    what: str  # "all_reduce busbw", "copy read", "copy write", …: only like is compared with like
    a_bdf: str | None = None
    b_bdf: str | None = None
    a_name: str | None = None
    b_name: str | None = None
    path: str | None = None  # where the source itself knows it


class PairRates(Fact):
    """What each pair of GPUs reaches by itself."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "the bandwidth of every pair"
    hint: ClassVar[str | None] = "gpudoctor bandwidth --pairs; nvbandwidth -t device_to_device_memcpy_read_ce"

    rates: tuple[PairRate, ...]

    def __iter__(self) -> Iterator[PairRate]:
        return iter(self.rates)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> PairRates:
        return PairRates(tuple(rate for part in parts for rate in part.rates))


STAGED = "copy through the host"  # `what` of a pair that has no peer access


class PeerCopy(Entry):
    """Copies between two GPUs as p2pBandwidthLatencyTest makes them: `on` with peer access enabled, `off` through host memory.

    a < b are CUDA's numbers, which need not be nvidia-smi's. A pair counts with its slower direction.
    """

    a: int
    b: int
    a_bdf: str | None = None
    b_bdf: str | None = None
    a_name: str | None = None
    b_name: str | None = None
    access: bool | None = None  # cudaDeviceCanAccessPeer, both ways. False: `on` copies go through host memory too
    on_gbs: float | None = None
    on_read_gbs: float | None = None
    on_both_ways_gbs: float | None = None
    off_gbs: float | None = None
    off_both_ways_gbs: float | None = None
    on_latency_us: float | None = None
    off_latency_us: float | None = None
    on_cpu_latency_us: float | None = None
    off_cpu_latency_us: float | None = None


class PeerCopies(Fact):
    """Every pair of p2pBandwidthLatencyTest, one run after the other."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "copies between GPUs with and without peer access"
    hint: ClassVar[str | None] = "p2pBandwidthLatencyTest"

    copies: tuple[PeerCopy, ...]

    def __iter__(self) -> Iterator[PeerCopy]:
        return iter(self.copies)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> PeerCopies:
        return PeerCopies(tuple(copy for part in parts for copy in part.copies))


class HostCopy(Entry):
    """Pinned copies between host memory and one GPU. speed_gts and width were read while they ran."""

    gpu: int | None = None
    bdf: str | None = None
    name: str | None = None
    to_device_gbs: float | None = None
    from_device_gbs: float | None = None
    speed_gts: float | None = None
    width: int | None = None

    @property
    def subject(self) -> str:
        return f"gpu:{self.bdf or self.gpu}"


class HostCopies(Fact):
    """What each GPU reaches in copies to and from host memory."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "the bandwidth of copies to and from the host"
    hint: ClassVar[str | None] = "gpudoctor bandwidth; nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce"

    copies: tuple[HostCopy, ...]

    def __iter__(self) -> Iterator[HostCopy]:
        return iter(self.copies)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> HostCopies:
        out: list[HostCopy] = []
        for copy in (c for part in parts for c in part.copies):
            out.append(copy)
        return HostCopies(tuple(out))


class Curve(KeyedRecord):
    """A saved measurement of this host: what it reached when it was known to be good."""

    collective: str
    nranks: int
    devices: tuple[str, ...]  # device ids or names, one a rank, sorted
    points: tuple[tuple[int, float], ...]  # (bytes, busbw in GB/s), by size
    source: str  # the file
    date: str
    nccl_version: str | None = None


class Wanted(Fact):
    """What the user asks for: a limit in GB/s, a share of what is expected, baselines saved earlier."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "the user's own limits"

    limit_gbs: float | None = None
    min_ratio: float | None = None
    baselines: tuple[Curve, ...] = ()
