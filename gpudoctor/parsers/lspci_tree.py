"""`lspci -t`, `-tv` and `-tvnn`, the picture of the PCI tree, to a PciTree: what hangs below what.

A `+` or `\\` that begins a line stands in the column where a line above it opened that bus; what follows it is read from left
to right: a device (`01.1`), the bus below it (`[01]`, `[04-0c]`), devices of that bus, and at the end a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor import bdf, parts
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.parsers.lspci_head import known_id
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section, Unparsable

_TOKEN = lazy(
    r"(?P<branch>[+\\])|\[(?P<domain>[0-9a-f]{4,8}):(?P<root>[0-9a-f]{2})\]|\[(?P<bus>[0-9a-f]{2})(?:-[0-9a-f]{2})?\]"
    r"|(?P<at>[0-9a-f]{2}\.[0-7])(?=(?P<next>.?))|(?<=[0-7])(?P<name>  \S.*)$"
)
_IDS = lazy(r"\s*\[([0-9a-f]{4}:[0-9a-f]{4})\]")
_BRAND = lazy(r"\[(?:GeForce|Quadro|Tesla|TITAN|NVIDIA|RTX) ")
_BRIDGE = "060400"
_GPU = "030000"  # VGA or 3D controller: the picture does not tell which


class _Bus:
    """The bus that devices further right or below belong to, and the bridge that leads to it."""

    def __init__(self, domain: str, bus: str, bridge: str | None, known: bool = True) -> None:
        self.domain, self.bus, self.bridge = domain, bus, bridge
        self.known = known  # False: the bridge's own line is not in the input


def parse(section: Section) -> Iterator[Fact | Loss]:
    devices: list[PciDevice] = []
    opened: dict[int, _Bus] = {}  # by the column of the branch
    lost = 0
    excerpt = not any(token["root"] for line in section for token in _TOKEN.finditer(line.text))
    for line in section:
        found = list(_line(section, line, opened, excerpt))
        lost += not found and bool(line.text.strip(" |"))
        devices += found
    if not devices:
        raise Unparsable(f"{section.source}: no device in what looks like lspci -t")
    yield PciTree(tuple(devices))
    if lost:
        yield Loss("a part of the picture of the PCI tree", f"{lost} lines do not fit the lines above them ({section.source})")


def _line(section: Section, line: Line, opened: dict[int, _Bus], excerpt: bool) -> Iterator[PciDevice]:
    here: _Bus | None = None
    found: dict[str, Any] | None = None  # the device read last, whose bus or name may follow
    first = True
    for token in _TOKEN.finditer(line.text.expandtabs(8)):
        if token["branch"]:
            column = token.start()
            if first:
                for done in [c for c in opened if c > column]:
                    del opened[done]  # what stands further right is finished
                here = opened.get(column)
                if token["branch"] == "\\":
                    opened.pop(column, None)  # the last device of its bus
            elif here is not None:
                opened[column] = here
        elif token["root"]:
            here = _Bus(token["domain"], token["root"], None)
        elif here is None:
            # The line above it is not in the input. A bus that the line itself names is known all the same, where no root is
            # in the input that could be another domain's.
            if token["name"] or not excerpt:
                return
            here = _Bus("0000", token["bus"], None, known=False) if token["bus"] else None
        elif token["bus"]:
            if found is None:
                return
            found["class_code"] = _BRIDGE
            here = _Bus(here.domain, token["bus"], found["bdf"])
        elif token["at"]:
            if line.cut and not token["next"]:
                break
            if found is not None:
                yield _device(section, line, found)
            address = bdf.normalise(f"{here.domain}:{here.bus}:{token['at']}")
            found = {"bdf": address, "parent": here.bridge, "parent_known": here.known}
        elif token["name"] and found is not None:
            if not line.cut:
                found.update(_named(token["name"].strip()))
            break
        first = False
    if found is not None:
        yield _device(section, line, found)


def _named(text: str) -> dict[str, Any]:
    ids = _IDS.search(text)
    name = _IDS.sub("", text).strip()
    values: dict[str, Any] = {"name": name}
    number = ids[1] if ids else known_id(name)
    if number:
        values["device_id"] = number
    # The class is not in the picture: a GPU is told by a part that is known, or by a brand that only GPUs bear.
    if name.startswith("NVIDIA") and (_BRAND.search(name) or parts.find(number, name) is not None):
        values["class_code"] = _GPU
    return values


def _device(section: Section, line: Line, values: dict[str, Any]) -> PciDevice:
    return PciDevice(**values, origin={"*": section.at(line)})
