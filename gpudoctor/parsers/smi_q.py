"""`nvidia-smi -q` (text, whole or `-d SECTION`, drivers 418 to 580 and later) to Gpus and Driver.

The tree stands in the indentation; where a paste lost it, the known order of headings stands in. Excerpts are the rule:
authors leave out lines, headings and whole GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.bdf import normalise
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.model import Evidence
from gpudoctor.parsers.smi_failure import failures
from gpudoctor.parsers.smi_fields import bare, count, known_field
from gpudoctor.parsers.smi_gpus import GROUPS, GpuReadings, facts
from gpudoctor.read.section import Line, Section, Unparsable

_GPU = re.compile(r"^\s*GPU ((?:[0-9A-Fa-f]{4,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_LEAF = re.compile(r"^\s*(?P<key>[^\s:][^:]{0,80}?)\s*:(?:\s+(?P<value>.*?))?\s*$")
_ELIDED = re.compile(r"^\s*(?:\[\s*)?\.{3,}(?:\s*\])?\s*$|^\s*\[?\u2026\]?\s*$")
_SECTIONS = frozenset((
    "remapped rows", "retired pages", "gpu link info", "fabric", "clocks throttle reasons", "clocks event reasons", "ecc errors",
    "bar1 memory usage", "mig mode",
))  # fmt: skip
# Begins an excerpt, or is a heading in prose.
_QUOTED = re.compile(
    r"^\s*(?:Remapped Rows|Retired Pages|GPU Link Info|Fabric|Clocks (?:Throttle|Event) Reasons|E(?:CC|cc) Errors|BAR1 Memory Usage"
    r"|MIG Mode)\s*$"
)
_TOP = re.compile(r"^\s*(?:=+NVSMI LOG=+|(?:Timestamp|(?:Driver|KMD) Version|CUDA (?:UMD )?Version|Attached GPUs)\b)", re.I)
# Since 610 the driver's parts are named (kernel-mode, user-mode), and behind the old names stands that they go.
_HOST = {
    "driver version": "version", "kmd version": "version", "cuda version": "cuda_version", "cuda umd version": "cuda_version",
    "attached gpus": "attached",
}  # fmt: skip
# These tell whose values follow where an author left out the heading above them and the GPU's own line.
_PCI = frozenset(("bus id", "device id"))
_MIG = "mig device"
_AFTER_MIG = "accounting mode"  # what follows the MIG devices of a GPU in every driver that has them
# Depth of headings that stand below another; all others stand directly below the GPU. Used without indentation only.
_DEPTHS = {
    "gpu link info": 2,
    "bridge chip": 2,
    "pcie generation": 3,
    "link width": 3,
    "volatile": 2,
    "aggregate": 2,
    "single bit": 3,
    "double bit": 3,
    "bank remap availability histogram": 2,
    "health": 2,
}


class _Reader:
    def __init__(self, section: Section) -> None:
        self.section = section
        self.gpus: list[GpuReadings] = []
        self.driver: dict[str, Any] = {}
        self.origin: dict[str, Evidence] = {}
        self.attached: int | None = None
        self.elided: Line | None = None
        self._stack: list[tuple[int, str]] = []  # open headings with their indentation
        self._flat = _lost_indentation(section)
        self._quoted: set[str] = set()  # headings of a GPU that is not named

    def feed(self, line: Line) -> None:
        text = line.text.expandtabs(8)
        if not text.strip():
            return
        if _ELIDED.match(text):
            self.elided = self.elided or line
            return
        gpu = _GPU.match(text)
        if gpu is not None:
            self._leave(-1)
            self.gpus.append(GpuReadings(normalise(gpu[1]), self.section.at(line)))
            return
        leaf = _LEAF.match(text)
        indent = len(text) - len(text.lstrip())
        if leaf is None or not leaf["value"]:
            if not line.cut:  # an unfinished line may be a leaf whose colon is not there yet
                self._heading((leaf["key"] if leaf else text.strip()).lower(), indent, line)
        elif leaf["key"].lower() in _HOST or not self.gpus and not self._unnamed(leaf["key"].lower(), line):
            self._host_value(leaf["key"].lower(), leaf["value"], line)
        else:
            if leaf["key"].lower() == "bus id" and not line.cut and self._another(leaf["value"]):
                self.gpus.append(GpuReadings(None, self.section.at(line)))
            self._gpu_value(leaf["key"].lower(), leaf["value"], indent, line)

    def _unnamed(self, key: str, line: Line) -> bool:
        """A value that only GPUs have, below a heading and before any GPU's line: an excerpt of one that is not named."""
        path = (*(name for _, name in self._stack), key)
        if key in _PCI:
            self.gpus.append(GpuReadings(None, self.section.at(line)))
            return True
        if not self._stack or known_field(path) is None and GROUPS.isdisjoint(path):
            return False
        self.gpus.append(GpuReadings(None, self.section.at(line)))
        return True

    def _another(self, address: str) -> bool:
        """Is this the address of a GPU whose own line was left out, between the values of two?"""
        known, new = self.gpus[-1].values.get("bdf"), normalise(bare(address))
        return known is not None and new is not None and known != new

    @property
    def _in_mig(self) -> bool:
        return any(name.startswith(_MIG) for _, name in self._stack)

    def _heading(self, name: str, indent: int, line: Line) -> None:
        if self._flat and self._in_mig and not name.startswith(_MIG):
            return  # a MIG device repeats the headings of its GPU
        level = _DEPTHS.get(name, 1) if self._flat else indent
        self._leave(level)
        if name in self._quoted and self.gpus and "bdf" not in self.gpus[-1].values:
            self._quoted.clear()  # `grep -A 3 Fabric`: the next of several that are not named
            self.gpus.append(GpuReadings(None, self.section.at(line)))
        if name in _SECTIONS:
            self._quoted.add(name)
        self._stack.append((level, name))

    def _leave(self, level: int) -> None:
        """Close the headings that a line of this level cannot stand below."""
        while self._stack and self._stack[-1][0] >= level:
            own = not self._in_mig
            _, name = self._stack.pop()
            if self.gpus and own:
                self.gpus[-1].close(name)

    def _gpu_value(self, key: str, value: str, indent: int, line: Line) -> None:
        if not self._flat:
            self._leave(indent)
        elif key == _AFTER_MIG:
            self._leave(0)
        if not self._in_mig:
            path = ("pci", key) if key in _PCI else (*(name for _, name in self._stack), key)
            self.gpus[-1].add(path, value, lambda: self.section.at(line), cut=line.cut)

    def _host_value(self, key: str, value: str, line: Line) -> None:
        field = _HOST.get(key)
        if line.cut or field is None:
            return
        if field == "attached":
            self.attached = count(bare(value)) if self.attached is None else self.attached
        elif bare(value)[:1].isdigit():
            self.driver.setdefault(field, bare(value).partition(" [")[0])
            self.origin.setdefault(field, self.section.at(line))


def _lost_indentation(section: Section) -> bool:
    """Do all lines but those that name a GPU begin in one column?"""
    columns = {
        len(line.text) - len(line.text.lstrip())
        for line in section
        if line.text.strip()
        and not _GPU.match(line.text)
        and not _TOP.match(line.text)
        and not _ELIDED.match(line.text)
    }
    return len(columns) < 2


def parse(section: Section) -> Iterator[Fact | Loss]:
    """Facts of one output; nvidia-smi's words where it printed an error instead."""
    said = list(failures(section))
    yield from said
    reader = _Reader(section)
    for line in section:
        reader.feed(line)
    if not (reader.gpus or reader.driver or reader.attached is not None):
        if not said and not any(_QUOTED.match(line.text) for line in section):
            raise Unparsable("no GPU and no version in what looks like nvidia-smi -q")
        return
    if reader.elided is not None:
        yield Loss("a part of nvidia-smi -q", f"left out by the author at line {reader.elided.number} ({section.source})")
    yield from facts(
        reader.gpus, reader.driver, reader.origin, reader.attached, section.lines[-1].cut or reader.elided is not None
    )
