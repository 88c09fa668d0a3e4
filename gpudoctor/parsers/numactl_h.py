"""`numactl -H` to Numa: nodes with their CPUs and memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor import cpulist
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Numa, NumaNode
from gpudoctor.model import Evidence
from gpudoctor.read.section import Section, Unparsable

_AVAILABLE = re.compile(r"^\s*available: \d+ nodes? \(([\d,-]+)\)")
_CPUS = re.compile(r"^\s*node (\d+) cpus:([\d ]*)$")
_SIZE = re.compile(r"^\s*node (\d+) size: (\d+) MB")
_MAX_CPU = 1 << 16


def parse(section: Section) -> Iterator[Fact | Loss]:
    cpus: dict[int, str] = {}
    memory: dict[int, int] = {}
    origin: dict[int, dict[str, Evidence]] = {}
    for line in section:
        available, held, size = _AVAILABLE.match(line.text), _CPUS.match(line.text), _SIZE.match(line.text)
        if available:
            for node in sorted(cpulist.parse(available[1]) or ()):
                origin.setdefault(node, {})["*"] = section.at(line)
        elif held and not line.cut:  # a list that was cut would lack CPUs
            numbers = {int(n) for n in held[2].split()}
            if max(numbers, default=0) < _MAX_CPU:
                cpus[int(held[1])] = cpulist.render(numbers)
                origin.setdefault(int(held[1]), {})["cpus"] = section.at(line)
        elif size:
            memory[int(size[1])] = int(size[2])
            origin.setdefault(int(size[1]), {})["memory_mib"] = section.at(line)
    if not origin:
        raise Unparsable(f"{section.source}: no node of numactl -H could be read")
    yield Numa(
        tuple(
            NumaNode(
                id=n, cpus=cpus.get(n), memory_mib=memory.get(n), origin={"*": next(iter(where.values())), **where}
            )
            for n, where in sorted(origin.items())
        )
    )
