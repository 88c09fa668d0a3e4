"""The ranks' timings to rows, by the definitions of nccl-tests."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median
from typing import Any

from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun, factor


def repeats_of(events: Iterable[dict[str, Any]]) -> list[float]:
    """Microseconds of each repeat: the mean over the ranks, as nccl-tests averages by default (-a 1)."""
    times = [event["times_us"] for event in events]
    return [fmean(repeat) for repeat in zip(*times, strict=True)]


def event_rows(events: list[dict[str, Any]], collective: str, ranks: int) -> tuple[BandwidthRow, ...]:
    """One row per size that every rank reported. The time is the median of the repeats."""
    rows: dict[int, dict[str, Any]] = {}
    for (size, in_place), same in _by_place(events).items():
        if len(same) < ranks:
            continue  # a rank did not finish it
        time_us = median(repeats_of(same))
        algbw = size / time_us / 1e3 if time_us > 0 else None
        share = factor(collective, ranks)
        which = "in" if in_place else "out"
        rows.setdefault(size, {"size": size}).update(
            {
                f"time_{which}_us": round(time_us, 3),
                f"algbw_{which}_gbs": algbw,
                f"busbw_{which}_gbs": algbw * share if algbw is not None and share is not None else None,
                f"wrong_{which}": sum(event["wrong"] for event in same),
                "type": "float",
            }
        )
    return tuple(BandwidthRow(**rows[size]) for size in sorted(rows))


def _by_place(events: list[dict[str, Any]]) -> dict[tuple[int, bool], list[dict[str, Any]]]:
    out: dict[tuple[int, bool], list[dict[str, Any]]] = {}
    for event in events:
        out.setdefault((event["size"], event["in_place"]), []).append(event)
    return out


def spread_pct(events: list[dict[str, Any]], run: BandwidthRun) -> float | None:
    """How far the repeats of the level's sizes lie apart, in per cent of their median; None with one repeat."""
    level = {row.size for row in run.level()}
    spreads = []
    for (size, _), same in _by_place(events).items():
        if size in level and len(same) == run.nranks:
            times = repeats_of(same)
            if len(times) > 1 and median(times) > 0:
                spreads.append(100 * (max(times) - min(times)) / median(times))
    return round(median(spreads), 2) if spreads else None
