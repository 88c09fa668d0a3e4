"""PCI addresses in the one form used everywhere: `dddd:bb:dd.f`, lower case."""

from __future__ import annotations

import re

# Domains of VMD and some clouds need five digits or more (10000:e1:00.0); nvidia-smi prints eight (00000000:01:00.0).
PATTERN = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_SHAPE = re.compile(r"^(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?$")


def normalise(text: str) -> str | None:
    """`00000000:10:1C.0`, `0000:10:1c`, `10:1c.0` -> `0000:10:1c.0`; None for anything else.

    A missing domain is 0000 and a missing function 0: lspci without -D and the kernel's Xid lines leave them out.
    The all-ones address that a hypervisor reports for a hidden device is None.
    """
    found = _SHAPE.match(text.strip())
    if not found:
        return None
    domain, bus, device, function = found.groups()
    number = int(domain or "0", 16)
    if int(device, 16) > 0x1F or number == 0xFFFFFFFF:
        return None
    return f"{number:04x}:{bus.lower()}:{device.lower()}.{function or '0'}"


def from_nccl_busid(value: int) -> str:
    """NCCL's packed integer (domain<<20 | bus<<12 | device<<4 | function) -> `dddd:bb:dd.f`."""
    return f"{value >> 20:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0xFF:02x}.{value & 0xF:x}"
