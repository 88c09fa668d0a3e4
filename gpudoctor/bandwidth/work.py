"""What an engine is asked to measure and what it gives back. Both engines speak this and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from gpudoctor.facts.bandwidth import BandwidthRun, HostCopy, PairRate
from gpudoctor.record import EMPTY, KeyedRecord

Progress = Callable[[str, float], None]  # what is being done, and the share of it that is done


class Target(KeyedRecord):
    """One GPU to measure, or (gloo) one process on the CPU."""

    index: int  # nvidia-smi's
    uuid: str | None = None
    bdf: str | None = None
    name: str | None = None
    on_cpu: bool = False

    @property
    def label(self) -> str:
        return f"rank {self.index}" if self.on_cpu else f"GPU{self.index}"


class Work(KeyedRecord):
    """One measurement. `pairs` are rounds of pairs to measure by themselves; without, all targets make one group."""

    collective: str
    targets: tuple[Target, ...]
    sizes: tuple[int, ...]
    backend: str = "nccl"
    repeats: int = 3
    rounds: int = 20  # calls in one repeat, at most
    round_s: float = 0.06  # a repeat of slow calls is cut to about this long
    seconds: float = 10.0  # for all sizes together: the largest are left out where they do not fit
    pairs: tuple[tuple[tuple[int, int], ...], ...] = ()  # rounds of pairs of ranks
    host_copies: bool = False
    proof: bool = False  # write and read back over peer to peer first
    set: Mapping[str, str] = EMPTY  # environment of the children: put, and taken away
    unset: tuple[str, ...] = ()
    all_cpus: bool = False  # without the CPU affinity that this process has
    until: float = 0.0  # time.monotonic() when it is killed at the latest
    hang_s: float = 30.0  # without any progress: it hangs
    settings: Mapping[str, str] = EMPTY  # what NCCL obeys in this run, as the facts show it


class Measured(KeyedRecord):
    """What came of it. `stopped`: it could not be started, which is no fault of the links."""

    run: BandwidthRun | None = None
    pairs: tuple[PairRate, ...] = ()
    copies: tuple[HostCopy, ...] = ()
    stopped: str | None = None
    short_of_memory: bool = False
    no_gpu: bool = False  # the driver lists the GPUs, and CUDA does not give them
    spread_pct: float | None = None  # of the level over the repeats
    log: bytes = b""  # NCCL's own
    notes: tuple[str, ...] = ()
    engine: str = ""  # "PyTorch 2.11.0, NCCL 2.28.9 (/usr/bin/python3)"
    seconds: float = 0.0


class CannotStart(Exception):
    """An engine is not to be had here. The words say what to install or pass."""


class Engine(Protocol):
    """PyTorch or nccl-tests. `start` raises CannotStart; after it `run` may be called any number of times."""

    name: str

    def start(self, until: float) -> None: ...

    def run(self, work: Work, progress: Progress) -> Measured: ...

    def close(self) -> None: ...
