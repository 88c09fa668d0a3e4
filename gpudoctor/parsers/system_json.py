"""JSON of the `system` child probe to Platform, Cpu, Numa, OwnAffinity, Limits, Shm, Modules, Settings, Grant and others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.cpulist import render
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry
from gpudoctor.facts.system import (
    AffinityEntry,
    FabricManager,
    FabricManagerEntry,
    Grant,
    GrantEntry,
    Limits,
    LimitsEntry,
    Modules,
    Numa,
    NumaNode,
    OwnAffinity,
    Setting,
    Settings,
    Shm,
    ShmEntry,
    Software,
)
from gpudoctor.model import Evidence
from gpudoctor.parsers.machine_json import cpu, platform
from gpudoctor.parsers.probe_json import document, flag, lines, rows, table, text, whole
from gpudoctor.read.section import Section
from gpudoctor.read.text import clean

# "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build", "NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue …"
_MODULE = re.compile(r"^NVRM version: .{0,80}?Kernel Module\s+(?:for \S{1,20}\s+)?(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)(?:\s|$)")
_VERSION = re.compile(r"^\d{3,4}\.\d{1,4}(?:\.\d{1,4})?$")
_NAME = re.compile(r"^[A-Z][A-Z0-9_]{1,80}$")
_MODULE_NAME = re.compile(r"^[a-z0-9_]{1,60}$")
_MOST_CPUS = 1 << 16


def parse(section: Section) -> Iterator[Fact | Loss]:
    said = document(section, "gpudoctor.system")
    for name, why in table(said.get("failed")).items():
        yield Loss(f"the part {text(name)} of the host", text(why) or "it broke")
    yield from platform(section, said)
    yield from cpu(section, table(said.get("processor")))
    yield from _numa(section, said.get("numa"))
    yield from _affinity(section, table(said.get("affinity")))
    yield from _limits(section, table(said.get("limits")))
    yield from _shm(section, said.get("shm"))
    yield from _modules(section, said.get("modules"))
    yield from _settings(section, said)
    yield from _grant(section, said)
    yield from _driver(section, said)
    yield from _fabric_manager(section, said)
    yield from _software(section, said.get("distributions"))


def _numa(section: Section, said: Any) -> Iterator[Numa]:
    nodes = []
    for name, about in table(said).items():
        number = whole(name, 4096)
        if number is None or not isinstance(about, dict):
            continue
        cpus, memory = about.get("cpus"), whole(about.get("memory_kib"))
        place = f"/sys/devices/system/node/node{number}"
        nodes.append(
            NumaNode(
                id=number,
                # An empty list is a node without processors, a missing one is unknown.
                cpus=clean(cpus).strip() if isinstance(cpus, str) else None,
                memory_mib=None if memory is None else memory // 1024,
                origin={
                    "*": section.spot(f"{place}/cpulist", text(cpus) or "empty"),
                    "memory_mib": section.spot(f"{place}/meminfo", f"{memory} kB"),
                },
            )
        )
    if nodes:
        yield Numa(tuple(sorted({n.id: n for n in nodes}.values(), key=lambda n: n.id)))


def _affinity(section: Section, said: dict[str, Any]) -> Iterator[OwnAffinity]:
    status = table(said.get("status"))
    known = {n for n in (whole(c, _MOST_CPUS) for c in rows(said.get("cpus"))[:_MOST_CPUS]) if n is not None}
    cpus = render(known) if known else text(status.get("Cpus_allowed_list"))
    if cpus is None:
        return
    mems, cpuset = text(status.get("Mems_allowed_list")), text(said.get("cpuset_cpus"))
    yield OwnAffinity(
        AffinityEntry(
            cpus=cpus,
            mems=mems,
            cpuset_cpus=cpuset,
            origin={
                "*": section.spot("sched_getaffinity", cpus),
                "mems": section.spot("/proc/self/status, Mems_allowed_list", mems),
                "cpuset_cpus": section.spot("/sys/fs/cgroup/cpuset.cpus.effective", cpuset),
            },
        )
    )


def _limits(section: Section, said: dict[str, Any]) -> Iterator[Limits]:
    memlock, stack = said.get("memlock"), said.get("stack")
    bytes_ = whole(memlock)
    unlimited = True if memlock == -1 else False if bytes_ is not None else None
    if unlimited is None:
        return
    yield Limits(
        LimitsEntry(
            memlock_bytes=bytes_,
            memlock_unlimited=unlimited,
            stack_unlimited=True if stack == -1 else False if whole(stack) is not None else None,
            origin={
                "*": section.spot("RLIMIT_MEMLOCK", "unlimited" if unlimited else f"{bytes_} bytes"),
                "stack_unlimited": section.spot("RLIMIT_STACK", "unlimited" if stack == -1 else stack),
            },
        )
    )


def _shm(section: Section, said: Any) -> Iterator[Shm]:
    if not isinstance(said, dict) or flag(said.get("exists")) is None:
        return
    mount = said.get("mount")
    options = (text(table(mount).get("options")) or "").split(",")
    yield Shm(
        ShmEntry(
            size_bytes=whole(said.get("size_bytes")),
            free_bytes=whole(said.get("free_bytes")),
            writable=flag(said.get("writable")) and "ro" not in options if said.get("exists") else False,
            mounted=isinstance(mount, dict),
            noexec="noexec" in options if isinstance(mount, dict) else None,
            origin={
                "*": section.spot("statvfs /dev/shm", f"{whole(said.get('size_bytes'))} bytes"),
                "free_bytes": section.spot("statvfs /dev/shm", f"{whole(said.get('free_bytes'))} bytes free"),
                "writable": section.spot("access /dev/shm", f"writable: {flag(said.get('writable'))}"),
                "mounted": section.spot(
                    "/proc/self/mounts", f"/dev/shm {','.join(options)}" if mount else "no /dev/shm"
                ),
                "noexec": section.spot("/proc/self/mounts", f"/dev/shm {','.join(options)}"),
            },
        )
    )


def _modules(section: Section, said: Any) -> Iterator[Modules]:
    if isinstance(said, dict):
        loaded = {name: text(version) or "" for name, version in said.items() if _MODULE_NAME.match(name)}
        shown = ", ".join(f"{n} {v}".strip() for n, v in sorted(loaded.items())) or "none of nvidia, mlx5, ib, rdma"
        yield Modules(loaded, section.spot("/proc/modules", shown))


def _settings(section: Section, said: dict[str, Any]) -> Iterator[Settings]:
    if not isinstance(said.get("environment"), dict) and not isinstance(said.get("settings_files"), dict):
        return
    out = []
    for name, value in _values(said.get("environment")).items():
        out.append(
            Setting(name=name, value=value, scope="environment", origin={"*": section.spot(name, f"{name}={value}")})
        )
    for file, content in table(said.get("settings_files")).items():
        # A file named by NCCL_CONF_FILE stands in for the one in the home directory.
        scope = "/etc/nccl.conf" if file == "/etc/nccl.conf" else "~/.nccl.conf"
        seen = set()
        for number, line in enumerate(lines(content)[:10_000], 1):
            # NCCL takes the line up to the first `=` as it stands, blanks and `export ` included, and the first of two
            # wins (param.cc, setEnvFile).
            name, sign, value = line.partition("=")
            if sign and _NAME.match(name) and name not in seen:
                seen.add(name)
                where = Evidence(text(file) or scope, f"line {number}", line[:240])
                out.append(Setting(name=name, value=value, scope=scope, origin={"*": where}))
    yield Settings(tuple(out))


def _values(said: Any) -> dict[str, str]:
    return {k: clean(v[:4096]) for k, v in table(said).items() if _NAME.match(k) and isinstance(v, str)}


def _grant(section: Section, said: dict[str, Any]) -> Iterator[Grant]:
    values: Mapping[str, str] = _values(said.get("environment"))
    nodes = table(said.get("nodes")).get("gpus")
    if not isinstance(said.get("environment"), dict) and not isinstance(nodes, dict):
        return
    minors = {whole(k, 4096): flag(v) for k, v in table(nodes).items() if whole(k, 4096) is not None}
    slurm = next((n for n in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS") if n in values), None)
    here = sorted(m for m in minors if m is not None)
    closed = tuple(m for m in here if minors[m] is False)
    yield Grant(
        GrantEntry(
            nvidia_visible=values.get("NVIDIA_VISIBLE_DEVICES"),
            cuda_visible=values.get("CUDA_VISIBLE_DEVICES"),
            slurm_gpus=values[slurm] if slurm else None,
            device_nodes=tuple(here) if isinstance(nodes, dict) else None,
            unopenable=closed if isinstance(nodes, dict) else None,
            origin={
                "*": section.spot("the environment", "no word of GPUs"),
                "nvidia_visible": section.spot("NVIDIA_VISIBLE_DEVICES", values.get("NVIDIA_VISIBLE_DEVICES")),
                "cuda_visible": section.spot("CUDA_VISIBLE_DEVICES", values.get("CUDA_VISIBLE_DEVICES")),
                "slurm_gpus": section.spot(slurm or "SLURM_JOB_GPUS", values.get(slurm or "")),
                "device_nodes": section.spot("/dev/nvidiaN", ", ".join(map(str, here)) or "none"),
                "unopenable": section.spot("access /dev/nvidiaN", ", ".join(map(str, closed)) or "none refused"),
            },
        )
    )


def _driver(section: Section, said: dict[str, Any]) -> Iterator[Driver]:
    words = text((lines(table(said.get("driver")).get("version")) or [""])[0])
    found = _MODULE.match(words or "")
    version, where, shown = (found[1], "/proc/driver/nvidia/version", words) if found else (None, "", words)
    if version is None:
        version = text(table(said.get("modules")).get("nvidia"))
        where, shown = "/sys/module/nvidia/version", version
    if version is None or not _VERSION.match(version):
        return
    yield Driver(
        DriverEntry(
            module_version=version,
            open_module="Open Kernel Module" in found[0] if found else None,
            origin={"*": section.spot(where, shown)},
        )
    )


def _fabric_manager(section: Section, said: dict[str, Any]) -> Iterator[FabricManager]:
    about, nodes = table(said.get("fabric_manager")), table(said.get("nodes"))
    listed = table(said.get("driver")).get("switches")
    switches = len(listed) if isinstance(listed, list) else whole(nodes.get("switches"), 4096) or None
    binary, version = flag(about.get("binary")), text(about.get("package_version"))
    if not binary and version is None and switches is None:
        return
    yield FabricManager(
        FabricManagerEntry(
            # Its absence here says nothing where this is a container: it runs on the host.
            installed=True if binary or version else None,
            version=version.partition("-")[0].rpartition(":")[2] if version else None,
            switches=switches,
            origin={
                "*": section.spot("/usr/bin/nv-fabricmanager", version or ("there" if binary else "not there")),
                "switches": section.spot("/proc/driver/nvidia-nvswitch/devices", switches),
            },
        )
    )


def _software(section: Section, said: Any) -> Iterator[Software]:
    versions = {}
    for name, version in table(said).items():
        known = "nccl" if name.startswith("nvidia-nccl-") else name
        value = text(version)
        if value and len(name) < 60:
            versions[known] = value
    if isinstance(said, dict):
        shown = ", ".join(f"{n} {v}" for n, v in sorted(versions.items()))
        yield Software(versions, section.spot("this interpreter's packages", shown or "none that matter"))
