"""The smaller tables of dcgmi: health -c, nvlink -s, nvlink -e, topo, discovery -l."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor import bdf
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.outcomes import ToolTest
from gpudoctor.facts.topology import NvLink, NvLinkGpu, NvLinks, Pair, Pairs
from gpudoctor.model import Evidence
from gpudoctor.parsers.dcgm_diag import entry
from gpudoctor.read.section import Line, Section

_STATUS = {"healthy": "pass", "warning": "warn", "failure": "fail"}
_WORD = re.compile(r"^(Healthy|Warning|Failure)$", re.I)
_ENTITY = re.compile(r"^\s*->\s*(\d{1,4})\s*$")
_SYSTEM = re.compile(r"^\s*->\s*((?:[\w-]+ )?system|Driver|Internal error|NvSwitch\S* ?\w*)\s*$", re.I)
_GROUP = re.compile(r"^\s*(GPU|CPU|CPU_CORE|NvSwitch|Switch|Link|ConnectX)\s*$", re.I)
_OLD_GPU = re.compile(r"^\s*GPU ID: (\d{1,4})\s*$")
_OLD_SYSTEM = re.compile(r"^((?:[\w-]+ )?system|Driver): (Healthy|Warning|Failure)(?: - (.*))?$", re.I)
_OVERALL = re.compile(r"Overall Health:?\s*\|?\s*(Healthy|Warning|Failure)", re.I)


class Health:
    """`dcgmi health -c`: what the watches of the host engine saw."""

    def __init__(self) -> None:
        self._found: list[tuple[str, int | None, str, Line, list[str]]] = []
        self._overall: tuple[str, Line] | None = None
        self._gpu: int | None = None
        self._is_gpu = True
        self._open = False

    def row(self, name: str, cell: str, line: Line) -> None:
        value = cell.strip()
        if line.cut and not line.text.rstrip().endswith("|"):
            return
        overall = _OVERALL.search(f"{name} | {value}" if value else name)
        if overall:
            self._overall = (overall[1].lower(), line)
            self._open = False
        elif group := _GROUP.match(name):
            self._is_gpu, self._open = group[1].upper() == "GPU", False
        elif (gpu := _ENTITY.match(name) or _OLD_GPU.match(name)) and (not value or _WORD.match(value)):
            self._gpu = int(gpu[1]) if self._is_gpu else None
            self._open = False
        elif (system := _SYSTEM.match(name)) and _WORD.match(value):
            self._found.append((system[1], self._gpu, _STATUS[value.lower()], line, []))
            self._open = True
        elif not name.strip() and (old := _OLD_SYSTEM.match(value)):
            self._found.append((old[1], self._gpu, _STATUS[old[2].lower()], line, [old[3]] if old[3] else []))
            self._open = True
        elif not name.strip() and self._open and value:
            self._found[-1][4].append(value)

    def section(self) -> None:
        self._open = False

    def end(self) -> None:
        """The last line of a message that the end of the output may have broken off says nothing for sure."""
        if self._open and self._found:
            del self._found[-1][4][-1:]

    def tests(self, section: Section) -> Iterator[ToolTest]:
        if self._overall is not None:
            word, line = self._overall
            yield entry("health", None, _STATUS[word], section.at(line), [])
        for test, gpu, status, line, pieces in self._found:
            text = " ".join(pieces)
            yield entry(f"health: {test}", gpu, status, section.at(line), [(text, section.at(line, text))] if text else [])


_STATES_GPU = re.compile(r"^\s*gpuId (\d{1,4}):\s*$")
_STATES_OTHER = re.compile(r"^\s*(?:NvSwitches:|physicalId \d)")
_STATES = re.compile(r"^\s*([UDX_](?: [UDX_])*)\s*$")


class LinkStates:
    """`dcgmi nvlink -s`: one letter a link. Those of NVSwitches lead to GPUs that may not be there, and are left alone."""

    def __init__(self) -> None:
        self._gpu: int | None = None
        self._rows: dict[int, tuple[str, Line]] = {}

    @staticmethod
    def begins(text: str) -> bool:
        return _STATES_GPU.match(text) is not None

    def line(self, section: Section, line: Line) -> None:
        if found := _STATES_GPU.match(line.text):
            self._gpu = int(found[1]) if not line.cut else None
        elif _STATES_OTHER.match(line.text):
            self._gpu = None
        elif (found := _STATES.match(line.text)) and self._gpu is not None and not line.cut:
            self._rows.setdefault(self._gpu, (found[1].replace(" ", ""), line))

    def facts(self, section: Section) -> Iterator[Fact | Loss]:
        links, about = [], []
        for gpu, (letters, line) in sorted(self._rows.items()):
            origin = {"*": section.at(line)}
            links += [NvLink(gpu=gpu, link=n, active=letter == "U", origin=origin) for n, letter in enumerate(letters) if letter != "_"]
            none = set(letters) == {"_"}
            about.append(NvLinkGpu(gpu=gpu, all_inactive=True if "U" not in letters and not none else None, no_nvlink=none or None, origin=origin))
        if about:
            yield NvLinks(tuple(links), tuple(about))


_LINK = re.compile(r"^Link (\d{1,3})$")
_GPU = re.compile(r"^GPU (\d{1,4})$")
_COUNTS = {"Replay Error": "replay", "Recovery Error": "recovery"}
_CRC = ("CRC FLIT Error", "CRC Data Error")


class LinkErrors:
    """`dcgmi nvlink -g N -e`. Of CRC errors, control and data packets have a count each: the larger one stands."""

    def __init__(self, gpu: int | None) -> None:
        self._gpu = gpu
        self._link: int | None = None
        self._links: dict[int, dict[str, tuple[int, Line]]] = {}

    def section(self) -> None:
        pass

    def row(self, name: str, cell: str, line: Line) -> None:
        if line.cut and not line.text.rstrip().endswith("|"):
            return
        if found := _GPU.match(name):
            self._gpu = int(found[1])
            return
        left, bar, right = cell.partition("|")
        if found := _LINK.match(name):
            self._link = int(found[1])
            what, value = (left.strip(), right.strip()) if bar else ("", "")  # before release 2: `|Link 0 | Replay Error | 0 |`
        else:
            what, value = name.removeprefix("->").strip(), cell.strip()
        if self._link is not None and value.isdigit() and len(value) <= 20 and what in (*_COUNTS, *_CRC):
            self._links.setdefault(self._link, {}).setdefault(what, (int(value), line))

    def facts(self, section: Section) -> Iterator[Fact | Loss]:
        if self._gpu is None or not self._links:
            return
        out = []
        for number, counts in sorted(self._links.items()):
            values: dict[str, Any] = {field: counts[what][0] for what, field in _COUNTS.items() if what in counts}
            origin: dict[str, Evidence] = {field: section.at(counts[what][1]) for what, field in _COUNTS.items() if what in counts}
            if all(what in counts for what in _CRC):
                count, line = max((counts[what] for what in _CRC), key=lambda c: c[0])
                values["crc"], origin["crc"] = count, section.at(line)
            if values:
                out.append(NvLink(gpu=self._gpu, link=number, origin={"*": next(iter(origin.values())), **origin}, **values))
        if out:
            yield NvLinks(tuple(out), (NvLinkGpu(gpu=self._gpu, elided=True, origin=out[0].origin),))


_TO = re.compile(r"^To GPU (\d{1,4})$")
_HEAD = re.compile(r"^GPU ID: (\d{1,4})$")
_PATHS = (
    ("on-board PCIe switch", "PIX"), ("a single PCIe switch", "PIX"), ("multiple PCIe switches", "PXB"), ("a PCIe host bridge", "PHB"),
)  # fmt: skip
_CPU = "Connected via a CPU-level link"
_NVLINKS = re.compile(r"^Connected via ([\w-]+) NVLINKs? \(Links?: (\d{1,3}(?:, \d{1,3})*)\)$")


class Topology:
    """`dcgmi topo --gpuid N`: the paths from one GPU; `-g N`: only the worst of a group.

    DCGM has one word for NODE and SYS, so the path of such a pair stays open.
    """

    def __init__(self, head: str | None) -> None:
        found = _HEAD.match(head or "")
        self._gpu = int(found[1]) if found else None
        self._to: tuple[int, str, Line, str | None] | None = None
        self._pairs: list[tuple[int, str, Line, str | None]] = []
        self._worst: tuple[str, Line] | None = None

    def section(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._to is not None:
            self._pairs.append(self._to)
        self._to = None

    def end(self) -> None:
        """NVLinks stand in the next row: a pair that the output stops at may have some."""
        self._to = None

    def row(self, name: str, cell: str, line: Line) -> None:
        value = cell.strip()
        if line.cut and not line.text.rstrip().endswith("|"):
            return
        if name or not value.startswith("Connected"):
            self._close()
        if found := _HEAD.match(name):
            self._gpu = int(found[1])
        elif found := _TO.match(name):
            self._to = (int(found[1]), value, line, None)
        elif name == "Worst Path":
            self._worst = (value, line)
        elif self._to is not None and not name and _NVLINKS.match(value):
            self._to = (*self._to[:3], value)

    def facts(self, section: Section) -> Iterator[Fact | Loss]:
        pairs = []
        for other, words, line, nvlinks in self._pairs if self._gpu is not None else ():
            assert self._gpu is not None
            if other == self._gpu:
                continue
            pcie = next((path for text, path in _PATHS if text in words), None)
            found = _NVLINKS.match(nvlinks or "")
            a, b = min(self._gpu, other), max(self._gpu, other)
            origin = {"*": section.at(line)}
            if found:
                pairs.append(Pair(a=a, b=b, path="NVL", nvlinks=found[2].count(",") + 1, pcie_path=pcie, origin=origin))
            else:
                pairs.append(Pair(a=a, b=b, path=pcie, origin=origin))
                if pcie is None and words == _CPU:
                    yield Loss(
                        f"the path of pair {a}-{b}",
                        f"{section.source}: DCGM calls both NODE and SYS a CPU-level link; `nvidia-smi topo -m` tells them apart",
                    )
        if pairs:
            yield Pairs(tuple(pairs))

    def tests(self, section: Section) -> Iterator[ToolTest]:
        if self._worst is not None:
            words, line = self._worst
            yield entry("worst path of a group", None, "info", section.at(line), [(words, section.at(line, words))])


_DETAIL = re.compile(r"^(Name|PCI Bus ID|Device UUID): (\S.*)$")
_UUID = re.compile(r"^GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.I)
_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", re.I)


class Discovery:
    """`dcgmi discovery -l`: name, address and UUID of every GPU. NVSwitches follow in a table of their own, by number alone."""

    def __init__(self) -> None:
        self._gpu: int | None = None
        self._found: dict[int, dict[str, Any]] = {}

    def section(self) -> None:
        pass

    def row(self, name: str, cell: str, line: Line) -> None:
        if line.cut and not line.text.rstrip().endswith("|"):
            return
        detail = _DETAIL.match(cell.strip())
        if name:
            self._gpu = int(name) if name.isdigit() and len(name) < 5 and detail is not None else None
        if self._gpu is None or detail is None:
            return
        known = self._found.setdefault(self._gpu, {"line": line})
        what, value = detail.groups()
        if what == "Name":
            known.setdefault("name", value)
        elif what == "PCI Bus ID" and _ADDRESS.match(value):
            known.setdefault("bdf", bdf.normalise(value))
        elif what == "Device UUID" and _UUID.match(value):
            known.setdefault("uuid", value)

    def facts(self, section: Section) -> Iterator[Fact | Loss]:
        """A cut may have taken GPUs away, so the list counts as a part."""
        gpus = tuple(
            Gpu(index=n, name=v.get("name"), bdf=v.get("bdf"), uuid=v.get("uuid"), origin={"*": section.at(v["line"])})
            for n, v in sorted(self._found.items())
        )
        if gpus:
            yield Gpus(gpus, complete=False)
