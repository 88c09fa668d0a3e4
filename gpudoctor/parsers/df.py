"""`df` to Shm: the line of /dev/shm, in whatever unit its header or its suffix names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Shm, ShmEntry
from gpudoctor.read.section import Section, Unparsable

# From the right, since `df -T` puts the type in second place: size, used, available, use%, mount.
_ROW = re.compile(r"\s([\d.]+[KMGTP]?i?B?)\s+([\d.]+[KMGTP]?i?B?)\s+([\d.]+[KMGTP]?i?B?)\s+(?:\d+%|-)\s+(/\S*)\s*$")
_UNIT = re.compile(r"\s(\d+)?([KMGT])?i?B?-blocks\s")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SHM = "/dev/shm"


def parse(section: Section) -> Iterator[Fact | Loss]:
    block: int | None = None
    words = (section.command or "").split()
    base = 1000 if {"-H", "--si"} & set(words) else 1024
    read = False
    for line in section:
        unit = _UNIT.search(line.text)
        row = _ROW.search(line.text)
        if line.text.lstrip().startswith("Filesystem"):
            block = int(unit[1] or 1) * 1024 ** _POWERS[unit[2] or ""] if unit else None
        elif row:
            read = True
            if row[4] == _SHM:
                size, free = (_size(row[n], block, base) for n in (1, 3))
                if size is None:
                    yield Loss("the size of /dev/shm", f"{section.source}, line {line.number}: {row[1]} has no unit and no header names one")
                rounded = " (rounded by df)" if not row[1].isdigit() else ""
                evidence = section.at(line, f"{line.text.strip()}{rounded}")
                yield Shm(ShmEntry(size_bytes=size, free_bytes=free, mounted=True, origin={"*": evidence}))
            elif _SHM in words and row[4] in ("/", "/dev") and not line.cut:
                # df answers with the file system that holds the path: this one is not a mount of its own.
                yield Shm(ShmEntry(mounted=False, origin={"*": section.at(line)}))
    if not read:
        raise Unparsable(f"{section.source}: no file system in what looks like df")


def _size(text: str, block: int | None, base: int) -> int | None:
    """`64M` is a power of 1024 (1000 with `df -H`); a plain number counts blocks."""
    found = re.match(r"^(\d+(?:\.\d+)?)([KMGTP]?)", text)
    if not found:
        return None
    if found[2]:
        return int(float(found[1]) * base ** _POWERS[found[2]])
    if text == "0":
        return 0
    return int(found[1]) * block if block and found[1].isdigit() else None
