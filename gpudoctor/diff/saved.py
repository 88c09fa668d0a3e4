"""A JSON report of gpudoctor (check, facts, bandwidth, gate) to one side of a comparison. Any JSON at all is read without raising."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpudoctor import bdf
from gpudoctor.diff.model import Side
from gpudoctor.facts.base import Fact
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.join import join
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import Nic, NicPath, Nics, NvLink, NvLinks, Pair, Pairs
from gpudoctor.model import (
    CERTAIN,
    CONFIDENCES,
    SEVERITIES,
    SKIPPED,
    CheckResult,
    Diagnosis,
    Evidence,
    Finding,
    Missing,
)
from gpudoctor.read.text import clean

SCHEMA_VERSION = 1
MAX_ENTRIES = 20_000  # of one family, over all hosts
MAX_OF_HOST = {"gpus": 512, "nics": 512, "pci": 8192}  # the largest hosts have a tenth of it
_MAX_EVENTS = 1000  # of one Xid: more say no more
_STATUSES = ("ok", "found", "skipped", "error")
Json = Mapping[str, Any]


def parse(content: bytes, path: str) -> Side | None:
    """None where it is no report of gpudoctor."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return None
    tool = tree.get("tool") if isinstance(tree, dict) else None
    if not isinstance(tool, dict) or tool.get("name") != "gpudoctor" or not isinstance(tree.get("facts"), dict):
        return None
    return of_report(tree, path)


def of_report(tree: Json, path: str) -> Side:
    """The envelope, as the contract has it, to facts and findings."""
    missing = []
    version = tree.get("schema_version")
    if version != SCHEMA_VERSION:
        missing.append(Missing(path, f"a report of schema {clean(str(version)[:20])}, not {SCHEMA_VERSION}: read as well as can be"))
    facts = _table(tree.get("facts"))
    for family in _MAKERS:
        most = MAX_OF_HOST.get(family, MAX_ENTRIES)
        counts = Counter(_text(e.get("host")) for e in _entries(facts.get(family)))
        if isinstance(facts.get(family), list) and len(facts[family]) > MAX_ENTRIES or max(counts.values(), default=0) > most:
            missing.append(Missing(path, f"{family}: more than {most} entries, of which so many were read"))
    source = _table(tree.get("source"))
    return Side(
        path=path, stores=tuple(_stores(facts, path)), results=tuple(_results(tree.get("results"))),
        diagnoses=tuple(_diagnoses(tree.get("diagnoses"))), missing=tuple(missing), captured_at=_text(source.get("captured_at")), saved=True,
    )  # fmt: skip


def _stores(facts: Json, path: str) -> Iterator[FactStore]:
    """One per host: entries of a report over several hosts name theirs."""
    found: dict[str | None, list[Fact]] = {}
    for family, make in _MAKERS.items():
        if not isinstance(facts.get(family), list):
            continue
        by_host: dict[str | None, Rows] = {}
        for n, entry in enumerate(_entries(facts[family])):
            rows = by_host.setdefault(_text(entry.get("host")), [])
            if len(rows) < MAX_OF_HOST.get(family, MAX_ENTRIES):
                rows.append((n, entry))
        for host, rows in (by_host or {None: []}).items():
            fact = make(rows, facts, lambda n, family=family: {"*": Evidence(path, f"facts.{family}[{n}]", "")})  # type: ignore[misc]
            found.setdefault(host, []).append(fact)
    for host, parts in found.items():
        yield join(FactStore(host, parts))


Rows = list[tuple[int, Json]]
At = Callable[[int], Mapping[str, Evidence]]


def _gpus(rows: Rows, facts: Json, at: At) -> Fact:
    out = []
    for n, e in rows:
        pcie = _table(e.get("pcie"))
        out.append(
            Gpu(
                index=_whole(e.get("index")), bdf=_address(e.get("bdf")), name=_text(e.get("name")), device_id=_text(e.get("device_id")),
                numa_node=_whole(e.get("numa_node")), cpu_affinity=_text(e.get("cpu_affinity")), speed_gts=_number(pcie.get("speed_gts")),
                max_speed_gts=_number(pcie.get("max_speed_gts")), width=_whole(pcie.get("width")), max_width=_whole(pcie.get("max_width")),
                origin=_told(at(n), speed_gts=pcie.get("speed_gts"), width=pcie.get("width"), name=e.get("name"), bdf=e.get("bdf")),
            )
        )  # fmt: skip
    return Gpus(tuple(out))


def _pairs(rows: Rows, facts: Json, at: At) -> Fact:
    out = []
    for n, e in rows:
        a, b, p2p = _whole(e.get("a")), _whole(e.get("b")), _table(e.get("p2p"))
        if a is None or b is None:
            continue
        out.append(
            Pair(
                a=min(a, b), b=max(a, b), path=_text(e.get("path")), nvlinks=_whole(e.get("nvlinks")), p2p_read=_text(p2p.get("read")),
                p2p_write=_text(p2p.get("write")), p2p_nvlink=_text(p2p.get("nvlink")), p2p_atomics=_text(p2p.get("atomics")),
                p2p_unstated=_text(p2p.get("unstated")), origin=_told(at(n), path=e.get("path")),
            )
        )  # fmt: skip
    return Pairs(tuple(out))


def _nics(rows: Rows, facts: Json, at: At) -> Fact:
    nics = [
        Nic(
            name=_text(e.get("name")) or "?", device=_text(e.get("device")), bdf=_address(e.get("bdf")), state=_text(e.get("state")),
            rate_gbps=_number(e.get("rate_gbps")), link_layer=_text(e.get("link_layer")), origin=_told(at(n), state=e.get("state")),
        )
        for n, e in rows
    ]  # fmt: skip
    names = {n.name for n in nics}
    paths = []
    for n, e in enumerate(_entries(facts.get("nic_paths"))):
        gpu, nic, path = _whole(e.get("gpu")), _text(e.get("nic")), _text(e.get("path"))
        if gpu is not None and nic in names and path is not None and nic is not None:
            paths.append(NicPath(gpu=gpu, nic=nic, path=path, origin=_told(at(n), path=path)))
    return Nics(tuple(nics), tuple(paths), any(n.state for n in nics))


def _pci(rows: Rows, facts: Json, at: At) -> Fact:
    out = []
    for n, e in rows:
        acs = e.get("acs")
        out.append(
            PciDevice(
                bdf=_address(e.get("bdf")), name=_text(e.get("name")), class_code=_text(e.get("class")), parent=_address(e.get("parent")),
                speed_gts=_number(e.get("speed_gts")), max_speed_gts=_number(e.get("max_speed_gts")), width=_whole(e.get("width")),
                max_width=_whole(e.get("max_width")), aspm_enabled=_words(e.get("aspm_enabled")), aspm_supported=_words(e.get("aspm_supported")),
                acs={clean(str(k)[:20]): v for k, v in acs.items() if isinstance(v, bool)} if isinstance(acs, dict) else None,
                origin=_told(at(n), acs=acs, width=e.get("width")),
            )
        )  # fmt: skip
    return PciTree(tuple(out))


def _nvlinks(rows: Rows, facts: Json, at: At) -> Fact:
    out = []
    for n, e in rows:
        gpu, link, errors, active = _whole(e.get("gpu")), _whole(e.get("link")), _table(e.get("errors")), e.get("active")
        if gpu is not None and link is not None:
            out.append(
                NvLink(
                    gpu=gpu, link=link, active=active if isinstance(active, bool) else None, speed_gbs=_number(e.get("speed_gbs")),
                    replay=_whole(errors.get("replay")), recovery=_whole(errors.get("recovery")), crc=_whole(errors.get("crc")),
                    origin=_told(at(n), active=active),
                )
            )  # fmt: skip
    return NvLinks(tuple(out))


def _xids(rows: Rows, facts: Json, at: At) -> Fact:
    out = []
    for n, e in rows:
        event = KernelEvent(kind="xid", bdf=_address(e.get("bdf")), code=_whole(e.get("code")), origin=_told(at(n), text=e.get("code")))
        out += [event] * min(_whole(e.get("count")) or 1, _MAX_EVENTS)
    return KernelLog(tuple(out))


_MAKERS: dict[str, Callable[[Rows, Json, At], Fact]] = {
    "gpus": _gpus, "pairs": _pairs, "nics": _nics, "pci": _pci, "nvlinks": _nvlinks, "xid": _xids,
}  # fmt: skip


def _results(said: object) -> Iterator[CheckResult]:
    for e in _entries(said):
        code, slug, status = _text(e.get("code")), _text(e.get("slug")), e.get("status")
        if slug is not None:
            found = tuple(f for f in (_finding(x, slug) for x in _entries(e.get("findings"))) if f is not None)
            yield CheckResult(code or slug, slug, status if status in _STATUSES else SKIPPED, _text(e.get("reason"), 1000), found)


def _finding(e: Json, slug: str) -> Finding | None:
    severity, subject = e.get("severity"), _text(e.get("subject"))
    if severity not in SEVERITIES or subject is None:
        return None
    return Finding(slug, severity, subject, _text(e.get("message"), 1000) or slug, _evidence(e.get("evidence")), host=_text(e.get("host")))


def _diagnoses(said: object) -> Iterator[Diagnosis]:
    for e in _entries(said):
        slug, severity, confidence = _text(e.get("cause")), e.get("severity"), e.get("confidence")
        subjects = [*(_words(e.get("subjects")) or ()), _text(e.get("subject"))]
        if slug is None or severity not in SEVERITIES or subjects[0] is None:
            continue
        told = (_text(e.get("summary"), 1000) or slug, _evidence(e.get("evidence")), confidence if confidence in CONFIDENCES else CERTAIN)
        root = Finding(slug, severity, subjects[0], *told, host=_text(e.get("host")))
        # A report names what a cause explains by slug alone: the subject is as near as can be told.
        explains = tuple(Finding(s, "note", subjects[0], s, ()) for s in _words(e.get("explains")) or ())
        alike = tuple(Finding(slug, severity, s, *told) for s in subjects[1:-1] if s is not None)
        yield Diagnosis(root, explains, alike)


def _evidence(said: object) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(_text(e.get("source")) or "?", _text(e.get("where")) or "", _text(e.get("value"), 1000) or "") for e in _entries(said)[:50]
    )


def _told(origin: Mapping[str, Evidence], **values: object) -> Mapping[str, Evidence]:
    """The place with each value as it stood there."""
    spot = origin["*"]
    return {**origin, **{name: Evidence(spot.source, spot.where, clean(str(v)[:200])) for name, v in values.items()}}


def _entries(said: object) -> list[Json]:
    return [e for e in said[:MAX_ENTRIES] if isinstance(e, dict)] if isinstance(said, list) else []


def _table(said: object) -> Json:
    return said if isinstance(said, dict) else {}


def _text(said: object, most: int = 200) -> str | None:
    return clean(said[:most]).strip() or None if isinstance(said, str) else None


def _words(said: object) -> tuple[str, ...] | None:
    return tuple(w for x in said[:100] if (w := _text(x))) if isinstance(said, list) else None


def _number(said: object) -> float | None:
    return float(said) if isinstance(said, (int, float)) and not isinstance(said, bool) and abs(said) < 1e15 else None


def _whole(said: object) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 1 << 62 else None


def _address(said: object) -> str | None:
    return bdf.normalise(said) if isinstance(said, str) else None
