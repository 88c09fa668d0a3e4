"""A policy as it was understood. None: nothing is asked."""

from __future__ import annotations

from gpudoctor.record import KeyedRecord


class GpuRules(KeyedRecord):
    count: int | None = None
    model: tuple[str, ...] | None = None
    severity: str = "error"


class PairRules(KeyedRecord):
    """Of every pair, or of those that `of` names (`0-1`)."""

    of: tuple[str, ...] | None = None
    path: tuple[str, ...] | None = None  # the accepted ones; a single word in the file stands for itself and all nearer
    nvlinks: int | None = None
    severity: str = "error"


class PcieRules(KeyedRecord):
    generation: int | None = None  # as it runs under proven traffic
    capable_generation: int | None = None  # as card and slot allow
    width: int | None = None
    severity: str = "error"


class NvLinkRules(KeyedRecord):
    links: int | None = None
    speed_gbs: float | None = None
    severity: str = "error"


class NumaRules(KeyedRecord):
    of_gpus: tuple[int, ...] | None = None
    known: bool | None = None
    severity: str = "error"


class NicRules(KeyedRecord):
    devices: tuple[str, ...] | None = None
    count: int | None = None
    state: str | None = None
    rate_gbps: float | None = None
    nearest: str | None = None
    severity: str = "error"


class DriverRules(KeyedRecord):
    min: str | None = None
    max: str | None = None
    cuda_min: str | None = None
    severity: str = "error"


class EnvironmentRules(KeyedRecord):
    forbid: tuple[str, ...] | None = None
    severity: str = "error"


class MeasuredRules(KeyedRecord):
    collective: str = "all_reduce"
    gpus: int | str = "all"
    min_busbw_gbs: float | None = None
    max_latency_us: float | None = None
    host_copies: bool = False
    min_host_copy_gbs: float | None = None
    severity: str = "error"


class FindingRules(KeyedRecord):
    fail: tuple[str, ...] = ()
    warn: tuple[str, ...] = ()


class Acceptance(KeyedRecord):
    """A finding that somebody answers for until a day. After it the finding counts again."""

    slug: str
    reason: str
    until: str  # YYYY-MM-DD, that day included
    subject: str | None = None


class Policy(KeyedRecord):
    name: str
    on_unknown: str = "hold"
    require_readable: tuple[str, ...] = ()
    gpus: GpuRules | None = None
    pairs: PairRules | None = None
    pair: tuple[PairRules, ...] = ()
    pcie: PcieRules | None = None
    nvlink: NvLinkRules | None = None
    numa: NumaRules | None = None
    nics: NicRules | None = None
    driver: DriverRules | None = None
    environment: EnvironmentRules | None = None
    measured: MeasuredRules | None = None
    findings: FindingRules | None = None
    accept: tuple[Acceptance, ...] = ()
