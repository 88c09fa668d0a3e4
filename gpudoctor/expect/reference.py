"""Figures that the same part reached elsewhere (data/busbw.tsv), and what this host reached earlier."""

from __future__ import annotations

from typing import Any

from gpudoctor import shipped
from gpudoctor.expect.opinion import BASELINE, REFERENCE, Opinion, at
from gpudoctor.facts.bandwidth import BandwidthRun, Curve
from gpudoctor.parts import Part, find

TABLE = "busbw.tsv"
_RINGS = ("all_reduce", "all_gather", "reduce_scatter")


def reference(part: Part, link: str, nranks: int, collective: str, nvls: bool | None, largest: int) -> Opinion | None:
    """The curve for this part, link class, number of GPUs and collective.

    Of the collectives that NCCL runs as rings, one stands in for another that has no figure: busbw is the same link's.
    A figure reached with in-switch reduction (NVLS) counts only where NCCL is known to use it; without, the lower one.
    """
    for same in (collective, *(c for c in _RINGS if collective in _RINGS and c != collective)):
        found = _curve(part, link, nranks, same, nvls and same == collective, largest)
        if found is not None:
            return found
    return None


def _curve(part: Part, link: str, nranks: int, collective: str, nvls: bool | None, largest: int) -> Opinion | None:
    points: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    said: dict[bool, tuple[str, str, str]] = {}
    for line in shipped.rows(TABLE)[1:]:
        ids, name, kind, ranks, what, switch, size, gbs, version, source, date = line.split("\t")
        if (kind, ranks, what) != (link, str(nranks), collective) or not any(
            find(f"10de:{i}") == part for i in ids.split(",")
        ):
            continue
        points[switch == "y"].append((int(size), float(gbs)))
        said[switch == "y"] = (name, version, f"{source}, {date}")
    chosen = True if nvls and points[True] else False
    if not points[chosen]:
        return None
    name, version, source = said[chosen]
    curve = tuple(sorted(points[chosen]))
    words = f"reference ({collective} over {nranks} x {name} {link}{' with NVLS' if chosen else ''}{f', NCCL {version}' if version else ''})"
    return Opinion(kind=REFERENCE, gbs=at(curve, largest), words=words, source=source, points=curve)


def baseline(curves: tuple[Curve, ...], run: BandwidthRun, devices: tuple[str, ...], largest: int) -> Opinion | None:
    """What this host reached with the same collective and the same GPUs."""
    for curve in curves:
        if (curve.collective, curve.nranks) != (run.collective, run.nranks):
            continue
        words = f"this host's baseline of {curve.date}"
        if curve.devices != devices:
            return Opinion(
                kind=BASELINE, gbs=None, words=words, source=curve.source, why_not="it was saved with other GPUs"
            )
        return Opinion(
            kind=BASELINE, gbs=at(curve.points, largest), words=words, source=curve.source, points=curve.points
        )
    return None


def to_json(run: BandwidthRun, devices: tuple[str, ...], date: str) -> dict[str, Any]:
    """A run as a baseline; the caller has made sure that the host is healthy."""
    best: dict[int, float] = {}
    for row in run.rows:
        if row.busbw_gbs:
            best[row.size] = max(best.get(row.size, 0.0), row.busbw_gbs)
    return {
        "collective": run.collective,
        "nranks": run.nranks,
        "devices": list(devices),
        "points": [[size, best[size]] for size in sorted(best)],
        "nccl_version": run.nccl_version,
        "date": date,
    }


def from_json(value: object, source: str) -> Curve | None:
    """The reverse; None for anything that is no baseline."""
    try:
        entry: dict[str, Any] = dict(value)  # type: ignore[call-overload]
        return Curve(
            collective=str(entry["collective"]),
            nranks=int(entry["nranks"]),
            devices=tuple(str(d) for d in entry["devices"]),
            points=tuple(sorted((int(size), float(gbs)) for size, gbs in entry["points"] if float(gbs) > 0)),
            source=source,
            date=str(entry["date"]),
            nccl_version=str(entry["nccl_version"]) if entry.get("nccl_version") else None,
        )
    except (KeyError, TypeError, ValueError):
        return None
