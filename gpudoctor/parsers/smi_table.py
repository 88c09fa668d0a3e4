"""The plain `nvidia-smi` table (drivers 418 to 580 and later) to Gpus and Driver, and the words it prints instead of one.

A GPU takes two lines of three cells, three since drivers know MIG (450). A cell counts once its closing bar was read.
Excerpts may begin below the head, or at the list of MIG devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.bdf import normalise
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.parsers.smi_failure import failures
from gpudoctor.read.section import Line, Section, Unparsable

_VERSIONS = re.compile(r"NVIDIA-SMI\s+[\d.]+\s+(?:Driver|KMD) Version:\s*(\d[\d.]*)(\s.*)")
_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s*(\d+\.\d+)\s")
# `0  Tesla V100-SXM2...  Off`: what stands last is the persistence mode, on Windows the driver model.
_NAMED = re.compile(r"^\s*(\d{1,3})\s+(\S.*?)\s+(On|Off|N/A|ERR!|WDDM|TCC|MCDM)\s*$")
_ADDRESS = re.compile(r"^\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s+(On|Off|N/A|ERR!)\s*$")
# GPU, GPU instance, compute instance, MIG device.
_INSTANCE = re.compile(r"^\s*(\d{1,3})(?:\s+\d{1,3}){3}\s*$")
# `mig -lgi`: GPU, profile, its id, instance, place; `mig -lci` has the GPU instance before the profile.
_MADE = re.compile(r"^\s*(\d{1,3})\s+(?:\d{1,3}\s+)?MIG \d{1,2}(?:c\.\d{1,2})?g\.\d{1,3}gb\S*(?:\s+\d{1,3}){2}\s+\d{1,2}:\d{1,2}\s*$")
_STATE = re.compile(r"\s(P\d{1,2})\s")
_MEMORY = re.compile(r"(\d+)MiB\s*/\s*(\d+)MiB")
_LOAD = re.compile(r"^\s*(\d{1,3})%")
_DOTS = re.compile(r"^[\s|]*(?:\[?\.{3,}\]?|…)[\s|]*$")


class _Card:
    def __init__(self, section: Section, line: Line, index: int, values: dict[str, Any]) -> None:
        evidence = section.at(line)
        self.values: dict[str, Any] = {"index": index, **values}
        self.origin = {"*": evidence}
        self.lines = 1


def parse(section: Section) -> Iterator[Fact | Loss]:
    said = list(failures(section))
    yield from said
    cards: list[_Card] = []
    header = elided = processes = instances = made = False
    for line in section:
        versions = _VERSIONS.search(line.text)
        if versions:
            header = True
            cuda = _CUDA.search(versions[2])
            yield Driver(
                DriverEntry(version=versions[1], cuda_version=cuda[1] if cuda else None, origin={"*": section.at(line)})
            )
        elided = elided or _DOTS.match(line.text) is not None
        processes = processes or "Processes:" in line.text
        instances = instances or "MIG devices:" in line.text
        made = made or "GPU instances:" in line.text or "Compute instances:" in line.text
        # The text behind the last bar is the margin, or a cell that a cut left open.
        cells = line.text.split("|")[1:-1]
        if made:
            _instance(section, line, _MADE.match(cells[0]) if cells else None, cards)
        elif len(cells) >= 1 and not processes:
            if instances:
                _instance(section, line, _INSTANCE.match(cells[0]), cards)
            else:
                _take(section, line, cells, cards)
    if not cards:
        if not (said or header or instances or made):
            raise Unparsable(f"{section.source}: no GPU and no version in what looks like nvidia-smi's table")
        return
    if elided:
        yield Loss("a part of nvidia-smi's table", f"left out by the author ({section.source})")
    whole = processes and not elided and cards[0].values["index"] == 0 and "-i" not in (section.command or "").split()
    yield Gpus(tuple(Gpu(**c.values, origin=c.origin) for c in cards), complete=whole)


def _take(section: Section, line: Line, cells: list[str], cards: list[_Card]) -> None:
    """One line of cells: the first of a GPU opens a card, the next two fill it."""
    named = _NAMED.match(cells[0])
    if named and len(cells) > 1:
        cards.append(_first(section, line, named, cells))
        return
    if not cards or cards[-1].lines > 2 or not cells[0].strip(" +-") and len(cells) < 3:
        return
    card = cards[-1]
    card.lines += 1
    found: dict[str, Any] = _second(cells) if card.lines == 2 else _third(cells)
    card.values.update(found)
    card.origin.update(dict.fromkeys(found, section.at(line)))


def _instance(section: Section, line: Line, found: re.Match[str] | None, cards: list[_Card]) -> None:
    """A row of a list of MIG's instances: its first number is the GPU, which may stand above or be left out."""
    if found is None:
        return
    index = int(found[1])
    card = next((c for c in cards if c.values["index"] == index), None)
    if card is None:
        card = _Card(section, line, index, {})
        cards.append(card)
    if card.values.get("mig_mode") is None:
        card.values["mig_mode"] = "enabled"
        card.origin["mig_mode"] = section.at(line)


def _first(section: Section, line: Line, named: re.Match[str], cells: list[str]) -> _Card:
    values: dict[str, Any] = {"persistence": {"On": True, "Off": False}.get(named[3])}
    if named[2] == "ERR!":
        values["error"] = "ERR!"
    else:
        values["name"] = named[2]
    address = _ADDRESS.match(cells[1])
    if address:
        values["bdf"] = normalise(address[1])
        values["display_active"] = {"On": True, "Off": False}.get(address[2])
    errors = cells[2].strip() if len(cells) > 2 else ""
    if errors.isdigit():
        values["ecc_uncorrectable_volatile"] = int(errors)
    elif errors == "On":  # where the GPU is cut into instances, their errors are counted apart
        values["mig_mode"] = "enabled"
    return _Card(section, line, int(named[1]), values)


def _second(cells: list[str]) -> dict[str, Any]:
    """`N/A 40C P0 43W / 300W`, `0MiB / 32510MiB`, `0% Default`."""
    found: dict[str, Any] = {}
    state = _STATE.search(cells[0])
    if state:
        found["pstate"] = int(state[1][1:])
    elif cells[0].split().count("ERR!") >= 3:
        # Fan or power alone read ERR! on sound cards too; with the performance state gone the GPU does not answer.
        found["error"] = "ERR!"
    memory = _MEMORY.search(cells[1]) if len(cells) > 1 else None
    if memory and int(memory[2]):
        found["fb_mib"] = int(memory[2])
    load = _LOAD.match(cells[2]) if len(cells) > 2 else None
    if load:
        found["utilisation_pct"] = int(load[1])
    return found


def _third(cells: list[str]) -> dict[str, Any]:
    """The MIG mode; a star says that a change is pending."""
    mode = cells[2].strip().rstrip("*").lower() if len(cells) > 2 else ""
    return {"mig_mode": mode} if mode in ("enabled", "disabled") else {}
