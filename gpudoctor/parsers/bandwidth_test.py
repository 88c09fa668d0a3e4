"""CUDA's bandwidthTest to HostCopies.

     Device 0: Tesla P100-PCIE-16GB
     Quick Mode
     Host to Device Bandwidth, 1 Device(s)
     PINNED Memory Transfers
       Transfer Size (Bytes)        Bandwidth(GB/s)
       32000000                     12.2

Only pinned copies of one device count: pageable ones measure the processor, and those of several devices are a sum. Of
several runs on one GPU the best stands for its link: the others are held up by something else, such as memory of the
other socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.bandwidth import HostCopies, HostCopy
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.model import Evidence
from gpudoctor.read.section import Section, Unparsable

_LONGEST = 400  # characters
_START = re.compile(r"^\s*\[?CUDA Bandwidth Test\]")
_DEVICE = re.compile(r"^\s*Device (\d{1,3}): (\S.{0,100}?)\s*$")
_HEADING = re.compile(r"^\s*(Host to Device|Device to Host|Device to Device) Bandwidth, (\d{1,3}) Device\(s\)")
_MEMORY = re.compile(r"^\s*(PINNED|PAGEABLE) Memory Transfers")
_UNIT = re.compile(r"Bandwidth\s?\(([MG])B/s\)")
_ROW = re.compile(r"^\s*\d{1,12}\s+(\d{1,9}(?:\.\d{1,4})?)\s*$")
_FIELDS = {"Host to Device": "to_device_gbs", "Device to Host": "from_device_gbs"}
_SCALE = {"G": 1.0, "M": 1e-3}


def parse(section: Section) -> Iterator[Fact | Loss]:
    best: dict[int, dict[str, tuple[float, Evidence]]] = {}
    names: dict[int, str] = {}
    devices: list[int] = []
    field: str | None = None
    alone = pinned = seen = False
    scale: float | None = None
    for line in section:
        text = line.text
        if len(text) > _LONGEST:
            continue
        if _START.match(text):
            devices, field, seen = [], None, True
        elif (device := _DEVICE.match(text)) and not line.cut:
            devices.append(int(device[1]))
            names[int(device[1])] = device[2]
        elif heading := _HEADING.match(text):
            field, alone, pinned, scale, seen = _FIELDS.get(heading[1]), heading[2] == "1", False, None, True
        elif memory := _MEMORY.match(text):
            pinned = memory[1] == "PINNED"
        elif unit := _UNIT.search(text):
            scale = _SCALE[unit[1]]
        elif row := _ROW.match(text):
            if line.cut:
                yield Loss("the last row of bandwidthTest", f"{section.source}, line {line.number}: cut off")
            elif field is not None and alone and pinned and scale is not None and len(devices) == 1:
                rate = float(row[1]) * scale
                known = best.setdefault(devices[0], {})
                if field not in known or rate > known[field][0]:
                    known[field] = (rate, section.at(line))
    if not seen:
        raise Unparsable(f"{section.source}: no line of bandwidthTest")
    copies = tuple(
        HostCopy(
            gpu=number,
            name=names.get(number),
            to_device_gbs=known["to_device_gbs"][0] if "to_device_gbs" in known else None,
            from_device_gbs=known["from_device_gbs"][0] if "from_device_gbs" in known else None,
            origin={**{name: spot for name, (_, spot) in known.items()}, "*": next(iter(known.values()))[1]},
        )
        for number, known in sorted(best.items())
    )
    if copies:
        yield HostCopies(copies)
