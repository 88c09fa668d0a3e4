"""The line that opens a device's block: `19:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)`."""

from __future__ import annotations

from typing import Any

from gpudoctor import bdf
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line
from gpudoctor.record import KeyedRecord

_LONGEST = 400  # characters of an address line that are looked at; real ones end before 200
# What scripts print before an address: `Card: `, `GPU 0: `, `=== `.
_LABEL = r"^\s*(?:[A-Za-z][\w -]{0,24}?[:=]\s{1,4}|[=#*>-]{1,40}\s{0,4})?"
_HEAD = lazy(rf"{_LABEL}((?:[0-9a-fA-F]{{4,8}}:)?[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}\.[0-7]) (\S.*)$")
_BEHIND_WORDS = lazy(
    r"^\s*[A-Za-z][^|:]{0,100}\s((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) "
    r"((?:VGA compatible controller|3D controller|PCI bridge)(?: \[\d{4}\])?: .*)$"
)
_BARE = lazy(rf"{_LABEL}((?:[0-9a-fA-F]{{4,8}}:)?[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}\.[0-7])\s{{0,4}}[:=#*>-]{{0,40}}\s*$")
_NUMERIC = lazy(r"^([0-9a-f]{4}): ([0-9a-f]{4}:[0-9a-f]{4})(?![0-9a-f])")  # lspci -n
_CLASSED = lazy(r"^([^:\[\]]{2,60}?)(?: \[([0-9a-f]{4})\])?: (.*)$")
_MACHINE = lazy(r'^"([^"]*)" "([^"]*)" "([^"]*)"(.*)$')  # lspci -mm
_IDS = lazy(r"\s*\[([0-9a-f]{4}:[0-9a-f]{4})\]")
_CODE = lazy(r"\s*\[([0-9a-f]{4})\]$")
_PROGIF = lazy(r"\(prog-if ([0-9a-f]{2})\b")
_TAIL = lazy(r"\s*(?:\((?:rev|prog-if) [^()]*(?:\([^()]*\))?[^()]*\)|-r\w+|-p\w+)\s*")
_DEVICE = lazy(r"^(.*?),? Device ([0-9a-f]{4})(?: |$)")

# Class words of the PCI ID database (pci.ids, classes 01 to 13) to codes; only what a multi-GPU host has.
_CLASSES = {
    "SCSI storage controller": "010000",
    "RAID bus controller": "010400",
    "SATA controller": "010600",
    "Serial Attached SCSI controller": "010700",
    "Non-Volatile memory controller": "010800",
    "Mass storage controller": "018000",
    "Ethernet controller": "020000",
    "Infiniband controller": "020700",
    "Fabric controller": "020800",
    "Network controller": "028000",
    "VGA compatible controller": "030000",
    "XGA compatible controller": "030100",
    "3D controller": "030200",
    "Display controller": "038000",
    "Multimedia audio controller": "040100",
    "Audio device": "040300",
    "RAM memory": "050000",
    "Memory controller": "058000",
    "Host bridge": "060000",
    "ISA bridge": "060100",
    "PCI bridge": "060400",
    "Bridge": "068000",
    "Serial controller": "070000",
    "Communication controller": "078000",
    "PIC": "080000",
    "SD Host controller": "080500",
    "IOMMU": "080600",
    "System peripheral": "088000",
    "Co-processor": "0b4000",
    "USB controller": "0c0300",
    "SMBus": "0c0500",
    "InfiniBand": "0c0600",
    "Encryption controller": "108000",
    "Performance counters": "110100",
    "Signal processing controller": "118000",
    "Processing accelerators": "120000",
    "Non-Essential Instrumentation": "130000",
}
# Vendors whose parts an old pci.ids prints as `VENDOR Device XXXX`; each has one id (Red Hat has two: left out).
_VENDORS = (
    ("NVIDIA", "10de"),
    ("Intel Corporation", "8086"),
    ("Mellanox", "15b3"),
    ("Advanced Micro Devices", "1022"),
    ("Broadcom / LSI", "1000"),
    ("PLX Technology", "10b5"),
    ("PMC-Sierra", "11f8"),
    ("Microsemi", "11f8"),
    ("ASMedia", "1b21"),
    ("ASPEED", "1a03"),
)


class Head(KeyedRecord):
    """values: fields of PciDevice. dead: `(rev ff)`, the configuration space reads all ones, so nothing answers there."""

    bdf: str
    values: dict[str, Any]
    dead: bool = False


def known_id(text: str) -> str | None:
    """`NVIDIA Corporation Device 2335` -> `10de:2335`; None where vendor or number is given as a name."""
    found = _DEVICE.match(text.strip())
    if not found:
        return None
    vendor = next((code for name, code in _VENDORS if found[1].startswith(name)), None)
    return f"{vendor}:{found[2]}" if vendor else None


def head_of(line: Line) -> Head | None:
    """The address line, or None for any other line."""
    found = _HEAD.match(line.text) or _BEHIND_WORDS.match(line.text)
    if not found:
        return None
    address = bdf.normalise(found[1])
    if address is None:
        return None
    values: dict[str, Any] = {"bdf": address}
    # A cut line names its address for certain (text follows it), its class only when the colon behind it is there.
    rest = found[2][:_LONGEST]
    for shape in (_numeric, _machine, _classed):
        more = shape(rest, line.cut)
        if more is not None:
            values.update(more)
            return Head(bdf=address, values=values, dead="(rev ff)" in rest)
    # A stranger: an address in front of other words (a log line, prose) is no device.
    return Head(bdf=address, values=values) if line.cut else None


def bare_address(line: Line) -> str | None:
    """The address of a line that holds nothing else: a script prints it above what it filters."""
    found = None if line.cut else _BARE.match(line.text)
    return bdf.normalise(found[1]) if found else None


def _numeric(rest: str, cut: bool) -> dict[str, Any] | None:
    found = _NUMERIC.match(rest)
    if not found:
        return None
    more = {"class_code": found[1] + _interface(rest)}
    if not cut or len(rest) > found.end():
        more["device_id"] = found[2]
    return more


def _machine(rest: str, cut: bool) -> dict[str, Any] | None:
    found = _MACHINE.match(rest)
    if not found:
        return None
    code, vendor, device = _CODE.search(found[1]), found[2], found[3]
    name = f"{vendor} {device}"
    more = {"name": " ".join(_CODE.sub("", w) for w in (vendor, device))}
    coded = code[1] + "00" if code else _CLASSES.get(found[1])
    if coded:
        more["class_code"] = coded
    ids = [_CODE.search(w) for w in (vendor, device)]
    number = f"{ids[0][1]}:{ids[1][1]}" if ids[0] and ids[1] else known_id(name)
    if number:
        more["device_id"] = number
    return more


def _classed(rest: str, cut: bool) -> dict[str, Any] | None:
    found = _CLASSED.match(rest)
    if not found:
        return None
    words, code, name = found.groups()
    known = code + _interface(rest) if code else _CLASSES.get(words)
    if known is None and not cut and not words[0].isupper():
        return None
    more: dict[str, Any] = {}
    if known:
        more["class_code"] = known
    ids = _IDS.search(name)
    plain = _TAIL.sub(" ", _IDS.sub("", name)).strip()
    if not cut:
        more["name"] = plain
    number = ids[1] if ids else None if cut else known_id(plain)
    if number:
        more["device_id"] = number
    return more


def _interface(rest: str) -> str:
    found = _PROGIF.search(rest)
    return found[1] if found else "00"
