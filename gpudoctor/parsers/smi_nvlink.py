"""`nvidia-smi -L` and every form of `nvidia-smi nvlink` to NvLinks and Gpus.

All begin with a line per GPU. What follows tells them apart: states (`Link 0: 26.562 GB/s`), error counters (three lines
a link, or NVLink5's dozen), remote ends, capabilities, or nothing (`-L`). Authors shorten them: `[...]` for left-out
links, `Links 0-2, 4-5: Replay/Recovery/CRC Errors: 0` for equal ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from gpudoctor.bdf import normalise
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import NvLink, NvLinkGpu, NvLinks
from gpudoctor.model import Evidence
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section, Unparsable

_GPU = lazy(r"^\s*GPU (\d+): (?:(.{1,80}?) \(UUID: ([^)]*)(\)?)|(.*))")
_UUID = lazy(r"^GPU-[0-9a-fA-F-]{30,}$")
_LINKS = lazy(r"^\s*Links? ((?:\d+(?:-\d+)?)(?:, ?\d+(?:-\d+)?)*)(: ?|, )(.*)$")
_SPEED = lazy(r"^(\d+(?:\.\d+)?) ?GB/s")
_REMOTE = lazy(r"^(?:Remote Device )?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?:: Link \d+)?\s*$")
_COUNTER = lazy(r"([A-Z][A-Za-z/ ]*?(?: Errors?| events| discards)): (\d+)")
_INSTANCE = lazy(r"^\s*MIG \S.{0,40}\bDevice\s+\d+: \(UUID: MIG-")
_DOTS = lazy(r"^\s*(?:\[(?:\.{2,}|…)\]|\.{3,}|…)\s*$")
# Its spelling differs by driver: NVLink or Nvlink, inactive or inActive.
_ALL_INACTIVE = "unable to retrieve nvlink information as all links are inactive"
_MAX_LINK = 64  # no part has more than 18; a hostile range is not spelled out
_OLD = {"Replay": "replay", "Recovery": "recovery", "CRC": "crc"}
# NVLink5 (drivers from 570) has other counters. FEC, BER and raw lane counts grow on a healthy link and are left out.
_NEW = {"Link recovery failed events": "recovery_failed", "Total link recovery events": "recovery"}
_HARD = (
    "Malformed packet Errors", "Buffer overrun Errors", "Rx Errors", "Rx remote Errors", "Rx General Errors",
    "Local link integrity Errors", "Tx discards", "Link recovery successful events", "Effective Errors", "Symbol Errors",
)  # fmt: skip


class _Gpu:
    """What was read of one GPU."""

    def __init__(self, number: int, name: str | None, uuid: str | None, evidence: Evidence) -> None:
        self.number, self.name, self.uuid, self.evidence = number, name, uuid, evidence
        self.links: dict[int, dict[str, Any]] = {}
        self.all_inactive: Evidence | None = None
        self.elided = False
        self.instance: Evidence | None = None  # the first MIG instance listed below it
        self.rows = 0  # lines of any kind below the GPU's own
        self.followed = False  # another GPU's line came after it: its list is whole


def parse(section: Section) -> Iterator[Fact | Loss]:
    gpus: list[_Gpu] = []
    homeless: list[Line] = []
    states = False
    for line in section:
        row = _row(line.text, line.cut)  # first, since most lines are such; no line is two of these kinds
        header = None if row else _GPU.match(line.text)
        if header:
            gpu = _begin(section, line, header)
            if gpu is None:
                continue
            if gpus:
                gpus[-1].followed = True
            # A second listing of the same GPU adds to the first (`-s`, then `-e`); it is the one being filled now.
            known = next((g for g in gpus if (g.number, g.uuid) == (gpu.number, gpu.uuid)), None)
            if known is not None:
                gpus.remove(known)
            gpus.append(known or gpu)
        elif not row and _DOTS.match(line.text):
            if gpus:
                gpus[-1].elided = True
        elif row or _ALL_INACTIVE in line.text.lower():
            states = True
            if gpus:
                _take(section, gpus[-1], line, row)
            else:
                homeless.append(line)
        elif gpus and line.text.strip():
            gpus[-1].rows += 1
            if gpus[-1].instance is None and _INSTANCE.match(line.text):
                gpus[-1].instance = section.at(line)
    if homeless:
        yield Loss("NVLinks of a GPU whose own line is missing", f"{section.source}, lines {homeless[0].number}-{homeless[-1].number}")
    if not gpus:
        if homeless:
            return
        raise Unparsable(f"{section.source}: no GPU and no link in it")
    words = (section.command or "").split()
    if not states and "nvlink" not in words:
        cut = section.lines[-1].cut or any(g.elided for g in gpus)
        yield Gpus(
            tuple(_listed(g) for g in gpus),
            complete=not cut and ("-L" in words or "--list-gpus" in words),
        )
        return
    listing = {"-s", "--status", "-e", "--errorcounters"} & set(words)
    yield NvLinks(
        tuple(NvLink(gpu=g.number, link=n, **values) for g in gpus for n, values in sorted(g.links.items())),
        tuple(_about(g, bool(listing), section) for g in sorted(gpus, key=lambda g: g.number)),
    )


def _listed(gpu: _Gpu) -> Gpu:
    """A GPU of `-L`. That no instance stands below it does not say that MIG is off."""
    origin = {"*": gpu.evidence, **({} if gpu.instance is None else {"mig_mode": gpu.instance})}
    mode = "enabled" if gpu.instance is not None else None
    return Gpu(index=gpu.number, name=gpu.name, uuid=gpu.uuid, mig_mode=mode, origin=origin)


def _begin(section: Section, line: Line, header: re.Match[str]) -> _Gpu | None:
    number, name, uuid, closed, bare = header.groups()
    if name is None and line.cut:
        return None
    whole = uuid if closed and _UUID.match(uuid or "") else None
    shown = re.sub(r" \.{3}$", "", (name or bare or "").strip())  # a program that says what it does: `GPU 0: NVIDIA A40 ...`
    return _Gpu(int(number), shown or None, whole, section.at(line))


def _numbers(text: str) -> list[int]:
    """`0-2, 4-5` -> [0, 1, 2, 4, 5]."""
    out: list[int] = []
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        first, last = int(low), int(high or low)
        if first <= last <= _MAX_LINK:
            out += range(first, last + 1)
    return out


@lru_cache(maxsize=256)  # the same lines stand below every GPU
def _row(text: str, cut: bool) -> tuple[list[int], Mapping[str, Any] | None] | None:
    """A line of links: their numbers and what it says of each, None for "all links are inactive". None: no such line."""
    found = _LINKS.match(text)
    if found is None:
        return None
    if _ALL_INACTIVE in found[3].lower():
        return [], None
    return _numbers(found[1]), {} if found[2] == ", " else _values(found[3], cut)


def _take(section: Section, gpu: _Gpu, line: Line, row: tuple[list[int], Mapping[str, Any] | None] | None) -> None:
    gpu.rows += 1
    here = section.at(line)
    numbers, values = row or ([], None)
    if values is None:
        gpu.all_inactive = here
        return
    for number in numbers:
        link = gpu.links.setdefault(number, {"origin": {"*": here}})
        if any(name in values and name in link for name in _OLD.values()) and "errors_before" not in link:
            # The same counter again: a later reading of the same links. What matters is how much it grew.
            link["errors_before"] = tuple(link.pop(name, None) for name in _OLD.values())
        older = link.get("counters") or ()
        link.update(values)
        if "counters" in values:
            link["counters"] = tuple({**dict(older), **dict(values["counters"])}.items())
        link["origin"].update(dict.fromkeys(values, here))


def _values(text: str, cut: bool) -> dict[str, Any]:
    """What stands behind `Link 3: `."""
    low = text.strip(" \t|").lower()  # the border of a table may follow
    speed = _SPEED.match(text)
    if speed:
        return {"active": True, "speed_gbs": float(speed[1])}
    if low.strip("<>") == "inactive":
        return {"active": False}
    if low.strip("<>") in ("sleep", "sleeping"):
        return {"active": True, "sleeping": True}
    remote = _REMOTE.match(text)
    if remote:
        return {"remote_bdf": normalise(remote[1])}
    if "Lane" in text or "FEC" in text or "BER" in text or text.startswith("Raw"):
        return {}
    values: dict[str, Any] = {}
    counters: list[tuple[str, int]] = []
    for name, digits in ((m[1], m[2]) for m in _COUNTER.finditer(text)):
        if cut and text.endswith(digits) and digits != "0":
            continue  # the number may go on
        if name in _NEW:
            values[_NEW[name]] = int(digits)
        elif name in _HARD:
            counters.append((name, int(digits)))
        else:
            values.update({_OLD[part]: int(digits) for part in name.removesuffix(" Errors").split("/") if part in _OLD})
    if counters:
        values["counters"] = tuple(counters)
    return values


def _about(gpu: _Gpu, listing: bool, section: Section) -> NvLinkGpu:
    numbers = sorted(gpu.links)
    whole = gpu.followed or section.live
    gaps = numbers != list(range(len(numbers)))
    return NvLinkGpu(
        gpu=gpu.number,
        name=gpu.name,
        uuid=gpu.uuid,
        all_inactive=True if gpu.all_inactive else None,
        no_nvlink=True if listing and whole and not gpu.rows and not gpu.elided else None,
        elided=True if gpu.elided or gaps or section.lines[-1].cut and not gpu.followed else None,
        origin={"*": gpu.evidence, **({"all_inactive": gpu.all_inactive} if gpu.all_inactive else {})},
    )
