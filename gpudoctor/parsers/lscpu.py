"""`lscpu` to Cpu, Numa and Platform. Newer versions indent and group the same keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor import cpulist
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Cpu, CpuEntry, Numa, NumaNode, Platform, PlatformEntry
from gpudoctor.model import Evidence
from gpudoctor.read.section import Section, Unparsable

_ROW = re.compile(r"^\s*([A-Z][\w() ./-]{1,50}?)\s*:\s*(.*?)\s*$")
_NODE = re.compile(r"^NUMA node(\d+) CPU\(s\)$")
_TEXTS = {
    "Vendor ID": "vendor",
    "Model name": "model_name",
    "Architecture": "architecture",
    "On-line CPU(s) list": "online",
}
_NUMBERS = {"CPU family": "family", "Model": "model", "Socket(s)": "sockets"}
_ENOUGH_FLAGS = 20  # a shorter list was shortened by its author


def parse(section: Section) -> Iterator[Fact | Loss]:
    cpu: dict[str, Any] = {}
    nodes: list[NumaNode] = []
    vm: tuple[bool, str | None, Evidence] | None = None
    origin: dict[str, Evidence] = {}
    for line in section:
        row = _ROW.match(line.text)
        if row is None or line.cut:  # every value is open at its end
            continue
        key, value = row.groups()
        node = _NODE.match(key)
        if key in _TEXTS and value and value != "-":
            cpu.setdefault(_TEXTS[key], value)
            origin.setdefault(_TEXTS[key], section.at(line))
        elif key in _NUMBERS and value.isdigit():
            cpu.setdefault(_NUMBERS[key], int(value))
            origin.setdefault(_NUMBERS[key], section.at(line))
        elif node and (not value or cpulist.parse(value) is not None):
            nodes.append(NumaNode(id=int(node[1]), cpus=value, origin={"*": section.at(line)}))
        elif key == "Hypervisor vendor" and value:
            vm = (True, value.lower(), section.at(line))
        elif key == "Flags" and vm is None and "..." not in value and len(value.split()) >= _ENOUGH_FLAGS:
            # CPUID's hypervisor bit is set in a guest and clear on bare metal (Linux arch/x86 cpufeatures.h).
            vm = (
                "hypervisor" in value.split(),
                None,
                section.at(
                    line, "Flags: … hypervisor" if "hypervisor" in value.split() else "Flags without hypervisor"
                ),
            )
    if cpu.keys() == {"architecture"} and not (nodes or vm):
        return  # the lists of packages, containers and nodes have such a line too
    if not (cpu or nodes or vm):
        raise Unparsable(f"{section.source}: no line of lscpu could be read")
    if cpu:
        yield Cpu(CpuEntry(**cpu, origin=origin))
    if nodes:
        yield Numa(tuple(nodes))
    if vm is not None:
        yield Platform(PlatformEntry(vm=vm[0], hypervisor=vm[1], origin={"*": vm[2]}))
