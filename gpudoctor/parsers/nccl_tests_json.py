"""nccl-tests' own JSON (`-J FILE`, since 2.17.3) to Bandwidth, and its environment to Settings.

The program writes as it goes, so a run that dies leaves the beginning of the document: its parts are decoded one by one.
The environment in it is the whole one and holds secrets; only names on the allow list are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gpudoctor import bdf
from gpudoctor.facts.bandwidth import COLLECTIVES, Bandwidth, BandwidthRow, BandwidthRun, Failure, Member
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Setting, Settings
from gpudoctor.parsers.nccl_conf import kept
from gpudoctor.parsers.nccl_row import ranks
from gpudoctor.parsers.nccl_tests import version_of
from gpudoctor.read.section import Section, Unparsable

_DECODER = json.JSONDecoder()
_RESULTS = re.compile(r'"results"\s*:\s*\[\s*')
_NEXT = re.compile(r"\s*,\s*")
SCOPE = "environment"


def parse(section: Section) -> Iterator[Fact | Loss]:
    text = section.text.rstrip("\n")
    config = _member(text, "config") or {}
    arguments = _member(text, "args")
    rows, whole = _rows(text)
    average = _member(text, "average_bus_bandwidth")
    bounds = _member(text, "out_of_bounds")
    if not isinstance(config, dict) or not (config or rows or arguments):
        raise Unparsable(f"{section.source}: JSON of nccl-tests without parameters or results")
    if not whole:
        yield Loss("the end of a bandwidth run", f"{section.source}: the JSON stops after {len(rows)} of its rows")
    program = str(arguments[0]).rpartition("/")[2] if isinstance(arguments, list) and arguments else None
    name = (program or "").removesuffix("_mpi").removesuffix("_perf")
    collective = name if name in COLLECTIVES else None
    settings = _settings(section, _member(text, "env"))
    counts = [n for row in rows for n in (row.wrong_out, row.wrong_in) if n is not None]
    told = _number(bounds, "count")
    wrong = bool(told) if told is not None else any(counts) if counts else None
    completed = average is not None
    listed = _member(text, "errors")
    errors = [e for e in listed if isinstance(e, str) and e.strip()] if isinstance(listed, list) else []
    members = _members(config)
    yield Bandwidth(
        (
            BandwidthRun(
                program=program,
                collective=collective,
                nranks=_nranks(config, members, rows, collective),
                rows=rows,
                average_busbw_gbs=_number(average, "bandwidth"),
                wrong=wrong,
                completed=completed,
                members=members,
                # NCCL's last error may be a warning of a good run: it counts where the run did not reach its end.
                failures=() if completed else tuple(Failure(kind="nccl", text=e[:200]) for e in errors),
                nccl_version=version_of(_member(text, "nccl_version")),
                min_bytes=_whole_number(config.get("minimum_bytes")),
                max_bytes=_whole_number(config.get("maximum_bytes")),
                checked=None if config.get("validation") is None else config.get("validation") != 0,
                below_minimum=_below(average),
                settings={s.name: s.value for s in settings},
                origin={
                    "*": section.spot("config", _short(config)),
                    "rows": section.spot("results", _short(rows[-1].__dict__ if rows else None)),
                    "average_busbw_gbs": section.spot("average_bus_bandwidth", _short(average)),
                    "wrong": section.spot("out_of_bounds", _short(bounds)),
                    "failures": section.spot("errors", _short(errors)),
                },
            ),
        )
    )
    if settings:
        yield Settings(tuple(settings))


def _member(text: str, name: str) -> Any:
    """The value of one member of the document, where it is there to its last character."""
    found = re.search(rf'"{name}"\s*:\s*', text)
    if found is None:
        return None
    try:
        value, end = _DECODER.raw_decode(text, found.end())
    except (ValueError, RecursionError):
        return None
    # A number has its end only where something follows.
    return None if isinstance(value, (int, float)) and not text[end:].strip() else value


def _rows(text: str) -> tuple[tuple[BandwidthRow, ...], bool]:
    """The rows, and whether the list was closed."""
    found = _RESULTS.search(text)
    if found is None:
        return (), False
    out: list[BandwidthRow] = []
    at = found.end()
    while True:
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return tuple(out), text[at : at + 1] == "]"
        row = _row(value)
        if row is not None:
            out.append(row)
        following = _NEXT.match(text, at)
        if following is None:
            return tuple(out), text[at:].lstrip()[:1] == "]"
        at = following.end()


def _row(value: object) -> BandwidthRow | None:
    if not isinstance(value, dict) or _whole_number(value.get("size")) is None:
        return None
    out, inside = value.get("out_of_place"), value.get("in_place")
    return BandwidthRow(
        size=int(value["size"]),
        type=value.get("type") if isinstance(value.get("type"), str) else None,
        redop=value.get("redop") if isinstance(value.get("redop"), str) else None,
        time_out_us=_time(out),
        algbw_out_gbs=_number(out, "alg_bw"),
        busbw_out_gbs=_number(out, "bus_bw"),
        wrong_out=_whole_number(_number(out, "nwrong")),
        time_in_us=_time(inside),
        algbw_in_gbs=_number(inside, "alg_bw"),
        busbw_in_gbs=_number(inside, "bus_bw"),
        wrong_in=_whole_number(_number(inside, "nwrong")),
    )


def _time(half: object) -> float | None:
    return _number(half, "time") if _number(half, "time") is not None else _number(half, "cpu_time")


def _number(holder: object, name: str) -> float | None:
    value = holder.get(name) if isinstance(holder, dict) else None
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) != float("inf")
    return float(value) if good else None  # type: ignore[arg-type]


def _whole_number(value: object) -> int | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 62
    return int(value) if good else None  # type: ignore[call-overload]


def _members(config: dict[str, Any]) -> tuple[Member, ...]:
    """The list has the first device of each process; the process drives the ones after it too."""
    each = (_whole_number(config.get("nthreads")) or 1) * (_whole_number(config.get("ngpus")) or 1)
    out: list[Member] = []
    devices = config.get("devices")
    for item in devices if isinstance(devices, list) else ():
        rank = _whole_number(item.get("rank")) if isinstance(item, dict) else None
        if rank is None:
            continue
        address, name, host = item.get("device_hex"), item.get("device_info"), item.get("hostname")
        out.append(
            Member(
                rank=rank,
                device=_whole_number(item.get("device")),
                host=host if isinstance(host, str) else None,
                bdf=bdf.normalise(address) if isinstance(address, str) else None,
                name=name if isinstance(name, str) else None,
                group=_whole_number(item.get("group")),
            )
        )
        first = out[-1]
        for more in range(1, min(each, 64)):
            device = None if first.device is None else first.device + more
            out.append(Member(rank=rank + more, device=device, host=first.host, group=first.group))
    return tuple(out)


def _nranks(config: dict[str, Any], members: tuple[Member, ...], rows: tuple[BandwidthRow, ...], collective: str | None) -> int | None:
    """The list of devices, held against the ratio of the bandwidths."""
    told = ranks(rows, collective)
    known = members and config.get("nthreads") is not None and config.get("ngpus") is not None
    count = len(members) if known else None
    if count is not None and (told is None or told[0] <= count <= told[1]):
        return count
    return told[0] if told is not None and told[0] == told[1] else None


def _below(average: object) -> bool | None:
    okay = average.get("okay") if isinstance(average, dict) else None
    return None if okay in (None, "unchecked") else okay in (False, "false")


def _settings(section: Section, env: object) -> list[Setting]:
    out: dict[str, Setting] = {}
    for item in env if isinstance(env, list) else ():
        name, sign, value = item.partition("=") if isinstance(item, str) else ("", "", "")
        shown = kept(name, value) if sign else None
        if shown is not None:
            out[name] = Setting(name=name, value=shown, scope=SCOPE, origin={"*": section.spot("env", f"{name}={shown}")})
    return list(out.values())


def _short(value: object) -> str:
    return json.dumps(value, default=str)[:200]
