"""Opinions on what a run should reach, and the verdict that the first usable one gives."""

from __future__ import annotations

from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun
from gpudoctor.median import median
from gpudoctor.model import ERROR, WARNING, Threshold
from gpudoctor.record import KeyedRecord, replace

# In the order in which they count.
LIMIT, BASELINE, REFERENCE, GRAPH, WIRE = "limit", "baseline", "reference", "graph", "wire"
ORDER = (LIMIT, BASELINE, REFERENCE, GRAPH, WIRE)

_OURS = "our choice: two runs on a healthy host differ by up to 10 %"
WARN = Threshold("of what is expected: below is a warning", 0.85, "share", _OURS, "2026-11")
FAIL = Threshold("of what is expected: below is an error", 0.70, "share", _OURS, "2026-11")
_WIRES = "healthy runs in data/busbw.tsv reach 36 to 77 % of the wire, by part and protocol"
WIRE_WARN = Threshold("of the wire: below is a warning", 0.45, "share", _WIRES, "2026-11")
WIRE_FAIL = Threshold("of the wire: below is an error", 0.30, "share", _WIRES, "2026-11")
GRAPH_FROM = Threshold(
    "smallest size that NCCL's own estimate is held against",
    1 << 30,
    "bytes",
    "two H200 reach 92 % of the estimate at 1 GiB, 75 % at 64 MiB",
    "2026-11",
)
# What is left of a PCIe link's rate where every byte goes through host memory: two H200 reached 45 % of Gen5 x16.
THROUGH_HOST = Threshold(
    "of the PCIe rate is expected where NCCL goes through host memory", 0.40, "share", "two H200 with peer to peer off: 28.3 of 63 GB/s", "2026-11"
)
THRESHOLDS = (WARN, FAIL, WIRE_WARN, WIRE_FAIL, GRAPH_FROM, THROUGH_HOST)

LARGE = 256 << 20  # bytes: every link is past its latency there
LEVELLED = 16 << 20  # from here on a table that grows by less than 10 % a doubling is level too
_GROWTH = 1.10


class Opinion(KeyedRecord):
    """What one source says. `why_not` is set where it is shown and not used."""

    kind: str
    gbs: float | None  # at the largest size of the run
    words: str  # for a reader: "NCCL's graph (12 x 30)"
    source: str
    points: tuple[tuple[int, float], ...] = ()  # (bytes, GB/s); () is the same at every size
    why_not: str | None = None


class Verdict(KeyedRecord):
    """severity None: as it should be, or (with used None) not judged, for the reason in `why_not`."""

    measured_gbs: float | None  # what was compared: the plateau, or the level's row of `size`
    opinions: tuple[Opinion, ...]
    used: Opinion | None = None
    expected_gbs: float | None = None
    size: int | None = None  # where the opinion depends on the size: the one compared
    ratio: float | None = None
    warn_below: float | None = None
    fail_below: float | None = None
    severity: str | None = None
    why_not: str | None = None

    @property
    def limit_words(self) -> str:
        """`85 % (warning), 70 % (error)`."""
        if self.warn_below is None or self.fail_below is None:
            return ""
        return f"{100 * self.warn_below:.0f} % (error under {100 * self.fail_below:.0f} %)"


def at(points: tuple[tuple[int, float], ...], size: int) -> float | None:
    """The value at one size, between two points by the logarithm of the size; nothing below the first is known."""
    from math import log2

    if not points or size < points[0][0]:
        return None
    for (low, less), (high, more) in zip(points, points[1:], strict=False):
        if low <= size <= high:
            return less + (more - less) * log2(size / low) / log2(high / low)
    return points[-1][1]


def judge(run: BandwidthRun, opinions: tuple[Opinion, ...], min_ratio: float | None = None) -> Verdict:
    """The first usable opinion, in the order above, decides."""
    ordered = tuple(sorted(opinions, key=lambda o: ORDER.index(o.kind)))
    measured = run.plateau_busbw_gbs
    level = run.level()
    if measured is None:
        return Verdict(measured_gbs=None, opinions=ordered, why_not=_no_level(run))
    reasons: list[str] = []
    shown: list[Opinion] = []
    verdict: Verdict | None = None
    for opinion in ordered:
        compared = _compare(run, level, measured, opinion) if opinion.why_not is None else opinion.why_not
        if isinstance(compared, str):
            opinion = replace(opinion, why_not=compared)
            reasons.append(f"{opinion.words}: {compared}")
        elif verdict is None:
            reached, expected, size = compared
            warn, fail = limits(opinion.kind, min_ratio)
            verdict = Verdict(
                measured_gbs=reached,
                opinions=(),
                used=opinion,
                expected_gbs=expected,
                size=size,
                ratio=reached / expected,
                warn_below=warn,
                fail_below=fail,
                severity=ERROR if reached < fail * expected else WARNING if reached < warn * expected else None,
            )
        shown.append(opinion)
    if verdict is None:
        return Verdict(
            measured_gbs=measured, opinions=tuple(shown), why_not="; ".join(reasons) or "nothing to compare with"
        )
    return replace(verdict, opinions=tuple(shown))


def limits(kind: str, min_ratio: float | None) -> tuple[float, float]:
    """(warning, error). A limit that the user sets in GB/s is a limit: below it is an error."""
    if kind == LIMIT:
        return 1.0, 1.0
    warn, fail = (WIRE_WARN.value, WIRE_FAIL.value) if kind == WIRE else (WARN.value, FAIL.value)
    return (min_ratio, min(fail, min_ratio)) if min_ratio is not None else (warn, fail)


def _no_level(run: BandwidthRun) -> str:
    if run.nranks == 1:
        return "one rank: busbw is 0 by definition, nothing was measured between GPUs"
    if not run.rows:
        return "there is no row"
    return f"the largest size is {max(r.size for r in run.rows)} bytes: small sizes measure latency, not links"


def _compare(
    run: BandwidthRun, level: tuple[BandwidthRow, ...], measured: float, opinion: Opinion
) -> tuple[float, float, int | None] | str:
    """(reached, expected, at which size), or why the two cannot be compared."""
    largest = level[-1].size
    if opinion.points:
        for row in reversed(level):
            value = at(opinion.points, row.size)
            if value and row.busbw_gbs is not None:
                return row.busbw_gbs, value, row.size
        return f"known from {amount(opinion.points[0][0])} on, measured up to {amount(largest)}"
    if not opinion.gbs:
        return "not known"
    if opinion.kind == GRAPH:
        big = [row.busbw_gbs for row in level if row.size >= GRAPH_FROM.value and row.busbw_gbs is not None]
        return (median(big), opinion.gbs, None) if big else f"compared from 1 GiB on, measured up to {amount(largest)}"
    if opinion.kind == WIRE and not (largest >= LARGE or largest >= LEVELLED and levelled(run)):
        return f"compared from {amount(LARGE)} on, measured up to {amount(largest)} and still rising"
    return measured, opinion.gbs, None


def levelled(run: BandwidthRun) -> bool:
    """Does the end of the table grow by less than 10 % a doubling?"""
    best: dict[int, float] = {}
    for row in run.rows:
        best[row.size] = max(best.get(row.size, 0.0), row.busbw_gbs or 0.0)
    sizes = sorted(size for size in best if size > 0)
    if len(sizes) < 2 or not best[sizes[-2]]:
        return False
    from math import log2

    doublings = max(log2(sizes[-1] / sizes[-2]), 1e-9)
    return bool(best[sizes[-1]] / best[sizes[-2]] < _GROWTH**doublings)


def amount(size: float) -> str:
    """1073741824 -> `1 GiB`."""
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size / step:.4g} {unit}"
    return f"{size:.0f} B"
