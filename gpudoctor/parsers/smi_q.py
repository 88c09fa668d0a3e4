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
from gpudoctor.parsers.smi_fields import GpuReadings, Reading, bare, count, facts
from gpudoctor.read.section import Line, Section, Unparsable

_GPU = re.compile(r"^\s*GPU ((?:[0-9A-Fa-f]{4,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_LEAF = re.compile(r"^\s*(?P<key>[^\s:][^:]{0,80}?)\s*:(?:\s+(?P<value>.*?))?\s*$")
_ELIDED = re.compile(r"^\s*(?:\[\s*)?\.{3,}(?:\s*\])?\s*$|^\s*\[?\u2026\]?\s*$")
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
        self.cut = False
        self.elided: Line | None = None
        self._stack: list[tuple[int, str]] = []  # open headings with their indentation
        self._flat = not _indented(section)
        self._mig = False

    def feed(self, line: Line) -> None:
        text = line.text.expandtabs(8)
        if not text.strip():
            return
        if _ELIDED.match(text):
            self.elided = self.elided or line
            return
        gpu = _GPU.match(text)
        if gpu is not None:
            self._begin(gpu[1], line)
            return
        leaf = _LEAF.match(text)
        indent = len(text) - len(text.lstrip())
        if leaf is None or not leaf["value"]:
            if not line.cut:  # an unfinished line may be a leaf whose colon is not there yet
                self._heading((leaf["key"] if leaf else text.strip()).lower(), indent)
        elif self.gpus and not self._is_of_host(leaf["key"], indent):
            self._gpu_value(leaf["key"].lower(), leaf["value"], indent, line)
        else:
            self._host_value(leaf["key"].lower(), leaf["value"], line)

    def end(self) -> None:
        last = self.section.lines[-1]
        self.cut = last.cut

    def _begin(self, address: str, line: Line) -> None:
        while self._stack:
            self._pop()
        self._mig = False
        self.gpus.append(GpuReadings(normalise(address), self.section.at(line)))

    def _is_of_host(self, key: str, indent: int) -> bool:
        return indent == 0 and key in ("Timestamp", "Driver Version", "CUDA Version", "Attached GPUs")

    def _heading(self, name: str, indent: int) -> None:
        if not self.gpus:
            return
        self._leave(_DEPTHS.get(name, 1) if self._flat else indent)
        self._mig = self._mig or name.startswith(_MIG)
        self._stack.append((_DEPTHS.get(name, 1) if self._flat else indent, name))

    def _leave(self, level: int) -> None:
        """Close the headings that a line of this level cannot stand below."""
        while self._stack and self._stack[-1][0] >= level:
            self._pop()

    def _pop(self) -> None:
        _, name = self._stack.pop()
        if self.gpus and not self._mig:
            self.gpus[-1].close(name)

    def _gpu_value(self, key: str, value: str, indent: int, line: Line) -> None:
        if not self._flat:
            self._leave(indent)
            self._mig = any(name.startswith(_MIG) for _, name in self._stack)
        elif key == _AFTER_MIG:
            self._mig = False
            self._leave(0)
        if not self._mig:
            path = (*(name for _, name in self._stack), key)
            self.gpus[-1].add(Reading(path, value, self.section.at(line)), cut=line.cut)

    def _host_value(self, key: str, value: str, line: Line) -> None:
        if line.cut:
            return
        field = {"driver version": "version", "cuda version": "cuda_version"}.get(key)
        if field is not None and bare(value)[:1].isdigit():
            self.driver.setdefault(field, bare(value))
            self.origin.setdefault(field, self.section.at(line))
        elif key == "attached gpus" and self.attached is None:
            self.attached = count(bare(value))


def _indented(section: Section) -> bool:
    """Does any line stand further in than the GPU lines? If none does, the paste lost the indentation."""
    return any(line.text[:1] in " \t" and line.text.strip() and not _GPU.match(line.text) for line in section)


def parse(section: Section) -> Iterator[Fact | Loss]:
    """Facts of one output; nvidia-smi's words where it printed an error instead."""
    said = list(failures(section))
    yield from said
    reader = _Reader(section)
    for line in section:
        reader.feed(line)
    reader.end()
    if not (reader.gpus or reader.driver or reader.attached is not None):
        if not said:
            raise Unparsable("no GPU and no version in what looks like nvidia-smi -q")
        return
    if reader.elided is not None:
        yield Loss("a part of nvidia-smi -q", f"left out by the author at line {reader.elided.number} ({section.source})")
    yield from facts(reader.gpus, reader.driver, reader.origin, reader.attached, reader.cut or reader.elided is not None)
