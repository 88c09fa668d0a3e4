"""`setpci -v -s BDF ECAP_ACS+0x6.w` to a PciTree: the control register of ACS, as NVIDIA's script to switch it off shows it.

    0000:03:00.0 (ecap 000d @220) @226 = 001d
    0000:03:00.0 (ecap 000d @220) @226 0000

The second line is a write; what stands last of a port is what it was left with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor import bdf
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.model import Evidence
from gpudoctor.read.section import Section, Unparsable

_LINE = re.compile(r"^\s*([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) \(ecap 000d @([0-9a-f]{3})\) @([0-9a-f]{3}) (?:= )?([0-9a-f]{4})\s*$")
_CONTROL = 6  # bytes from the capability to its control register (PCI Express Base Specification 6.0, 7.7.11.3)
_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")  # from bit 0 on


def parse(section: Section) -> Iterator[Fact | Loss]:
    found: dict[str, tuple[int, Evidence]] = {}
    for line in section:
        row = _LINE.match(line.text)
        address = bdf.normalise(row[1]) if row else None
        if row and address is not None and int(row[3], 16) - int(row[2], 16) == _CONTROL:
            found[address] = (int(row[4], 16), section.at(line))
    if not found:
        raise Unparsable(f"{section.source}: no control register of ACS in what looks like setpci's output")
    yield PciTree(
        tuple(
            PciDevice(bdf=address, acs={name: bool(value >> bit & 1) for bit, name in enumerate(_BITS)}, origin={"*": spot})
            for address, (value, spot) in found.items()
        ),
        complete=False,
    )
