"""What the JSON of the `system` child probe says of the machine: processor, hypervisor, container, kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.system import Cpu, CpuEntry, Platform, PlatformEntry
from gpudoctor.parsers.probe_json import flag, rows, table, text, whole
from gpudoctor.read.section import Section
from gpudoctor.read.text import clean

# Words of DMI's vendor and product that only a virtual machine has. Clouds also rent whole machines under their own
# name, so a cloud's name alone decides nothing.
_HYPERVISORS = (
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("xen", "xen"),
    ("virtual machine", "hyperv"),
    ("bochs", "kvm"),
    ("openstack", "kvm"),
    ("parallels", "parallels"),
    ("bhyve", "bhyve"),
    ("google compute engine", "kvm"),
)
_KINDS = ("docker", "podman", "kubernetes", "lxc", "apptainer", "containerd", "systemd-nspawn")
_IMPLEMENTERS = {"0x41": "ARM", "0x4e": "NVIDIA", "0xc0": "Ampere"}  # MIDR_EL1, implementer
_SECONDS = re.compile(r"^(\d{1,12}(?:\.\d{1,4})?)(?:\s|$)")


def platform(section: Section, said: dict[str, Any]) -> Iterator[Platform]:
    """Machine, container and kernel."""
    machine = said.get("machine")
    if not isinstance(machine, dict):
        return
    board = " ".join(filter(None, (text(machine.get("sys_vendor")), text(machine.get("product_name")))))
    hypervisor = text(machine.get("hypervisor_type")) or _hypervisor(board)
    bit = flag(table(said.get("processor")).get("hypervisor_flag"))
    version = (text(machine.get("version")) or "").lower()
    uptime = _SECONDS.match(text(machine.get("uptime")) or "")
    cmdline = machine.get("cmdline")
    container = _container(table(said.get("container")))
    yield Platform(
        PlatformEntry(
            # A hypervisor may hide its bit, but nobody sets it on bare metal.
            vm=True if bit or hypervisor else bit,
            hypervisor=hypervisor,
            wsl="microsoft" in version if version else None,
            container=container,
            uptime_s=float(uptime[1]) if uptime else None,
            kernel=text(machine.get("kernel")),
            cmdline=clean(cmdline) if isinstance(cmdline, str) else None,
            uid=whole(machine.get("uid"), 1 << 32),
            origin={
                "*": section.spot("/proc/version", text(machine.get("version"))),
                "vm": section.spot(
                    "/proc/cpuinfo flags, /sys/class/dmi/id", f"hypervisor flag {bit}; {board or 'no DMI'}"
                ),
                "hypervisor": section.spot("/sys/class/dmi/id", board),
                "container": section.spot("signs of a container", container or "none"),
                "uptime_s": section.spot("/proc/uptime", text(machine.get("uptime"))),
                "cmdline": section.spot("/proc/cmdline", text(cmdline)),
                "uid": section.spot("getuid", machine.get("uid")),
            },
        )
    )


def _hypervisor(board: str) -> str | None:
    low = board.lower()
    return next((name for word, name in _HYPERVISORS if word in low), None)


def _container(said: dict[str, Any]) -> str | None:
    """Kubernetes first: its pods carry the marks of the runtime below as well."""
    marks, variables, groups = (
        {text(word) for word in rows(said.get(key))[:64]} for key in ("marks", "variables", "cgroups")
    )
    if "KUBERNETES_SERVICE_HOST" in variables or "kubernetes" in groups:
        return "kubernetes"
    if variables & {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}:
        return "apptainer"
    named = text(said.get("systemd"))
    for kind in _KINDS:
        if kind in marks or kind in groups or kind == named:
            return kind
    return named or ("container" if "container" in variables else None)


def cpu(section: Section, said: dict[str, Any]) -> Iterator[Cpu]:
    """The processor."""
    first = table(said.get("first"))
    architecture = text(said.get("architecture"))
    if not first and architecture is None:
        return
    vendor = text(first.get("vendor_id")) or _IMPLEMENTERS.get(text(first.get("CPU implementer")) or "")
    name = text(first.get("model name"))
    yield Cpu(
        CpuEntry(
            vendor=vendor,
            model_name=name,
            family=whole(first.get("cpu family"), 1 << 16),
            model=whole(first.get("model"), 1 << 16),
            sockets=whole(said.get("sockets"), 4096),
            architecture=architecture,
            online=text(said.get("online")),
            origin={
                "*": section.spot("/proc/cpuinfo", " ".join(filter(None, (vendor, name))) or architecture),
                "online": section.spot("/sys/devices/system/cpu/online", text(said.get("online"))),
            },
        )
    )
