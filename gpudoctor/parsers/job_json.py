"""JSON of the `job` child probe to Jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor import bdf as address
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import JobProcess, Jobs, ShmEntry
from gpudoctor.model import Evidence
from gpudoctor.parsers.probe_json import document, flag, rows, table, tables, text, whole
from gpudoctor.read.section import Section, Unparsable
from gpudoctor.read.text import clean

_NAME = re.compile(r"^[A-Z][A-Z0-9_]{1,80}$")
_MOST = 4096
_PIDS = 1 << 32


def parse(section: Section) -> Iterator[Fact | Loss]:
    said = document(section, "gpudoctor.job")
    if not isinstance(said.get("processes"), list):
        raise Unparsable("no list of GPU processes")
    minors = {}
    for minor, bus in table(said.get("minors")).items():
        number, bdf = whole(minor, 4096), _bdf(bus)
        if number is not None and bdf is not None:
            minors[number] = bdf
    processes: dict[int, JobProcess] = {}
    for place, about in tables(said["processes"]):
        pid = whole(about.get("pid"), _PIDS)
        if pid is None or pid in processes or place >= _MOST:
            yield Loss("a GPU process", f"entry {place} of {section.source} has no process id of its own")
            continue
        processes[pid] = _process(section, pid, about, minors)
    problem = text(said.get("nvml_problem"))
    if problem:
        yield Loss("NVML's list of GPU processes", f"{problem}; only processes whose open files this user may read are seen")
    more = whole(said.get("more"), _PIDS)
    if more:
        yield Loss("some GPU processes", f"{more} beyond the first {len(processes)} were not looked at")
    yield Jobs(tuple(processes.values()))


def _bdf(value: Any) -> str | None:
    found = text(value)
    return address.normalise(found) if found and len(found) < 32 else None


def _process(section: Section, pid: int, said: dict[str, Any], minors: dict[int, str]) -> JobProcess:
    buses = [b for b in map(_bdf, rows(said.get("nvml_gpus"))[:512]) if b]
    where = "NVML's list of processes"
    if not buses:
        # CUDA opens the nodes of all visible GPUs, so without NVML this is what the process can use, not what it uses.
        opened = [whole(m, 4096) for m in rows(said.get("open_minors"))[:512]]
        buses = [minors[m] for m in opened if m in minors]
        where = f"/proc/{pid}/fd"
    gpus = tuple(dict.fromkeys(buses))
    values = said.get("environment")
    environment = None
    if isinstance(values, dict):
        environment = {k: clean(v[:4096]) for k, v in values.items() if _NAME.match(k) and isinstance(v, str)}
    cpus, mems = text(said.get("cpus")), text(said.get("mems"))
    origin: dict[str, Evidence] = {
        "*": section.spot(f"/proc/{pid}", text(said.get("name")) or pid),
        "gpus": section.spot(where, ", ".join(gpus) or "none"),
        "gpu_bdf": section.spot(where, ", ".join(gpus) or "none"),
        "cpus": section.spot(f"/proc/{pid}/status, Cpus_allowed_list", cpus),
        "mems": section.spot(f"/proc/{pid}/status, Mems_allowed_list", mems),
        "environment": section.spot(
            f"/proc/{pid}/environ", " ".join(f"{k}={v}" for k, v in (environment or {}).items())
        ),
        "unreadable": section.spot(f"/proc/{pid}", text(said.get("unreadable"))),
    }
    return JobProcess(
        pid=pid,
        name=text(said.get("name")),
        gpu_bdf=gpus[0] if len(gpus) == 1 else None,
        gpus=gpus or None,
        cpus=cpus,
        mems=mems,
        environment=environment,
        container=_container(table(said.get("container"))),
        shm=_shm(section, pid, said.get("shm")),
        unreadable=text(said.get("unreadable")),
        origin=origin,
    )


def _container(said: dict[str, Any]) -> str | None:
    """The kind where its cgroup names one; else only that it has a file system of its own."""
    return text(said.get("kind")) or ("container" if flag(said.get("own_root")) else None)


def _shm(section: Section, pid: int, said: Any) -> ShmEntry | None:
    size = whole(table(said).get("size_bytes"))
    if size is None:
        return None
    return ShmEntry(
        size_bytes=size,
        free_bytes=whole(said.get("free_bytes")),
        mounted=flag(said.get("mounted")),
        origin={"*": section.spot(f"/proc/{pid}/root/dev/shm", f"{size} bytes")},
    )
