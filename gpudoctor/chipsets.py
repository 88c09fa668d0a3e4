"""Which bridges belong to a chipset: device id (or lspci's name of it) to the chipset's name, from data/chipsets.tsv."""

from __future__ import annotations

from functools import lru_cache

from gpudoctor import shipped
from gpudoctor.pattern import lazy
from gpudoctor.record import Record

_PORT_NUMBER = lazy(r" #?\d{1,2}(?: \(rev [0-9a-f]+\))?$| \(rev [0-9a-f]+\)$")


class Chipset(Record):
    """One range of device ids. `names` are those that only this chipset's bridges bear."""

    vendor: str
    first: int
    last: int
    name: str
    names: tuple[str, ...]
    source: str
    date: str


@lru_cache(maxsize=1)
def table() -> tuple[Chipset, ...]:
    """All rows, in the file's order."""
    rows = []
    for line in shipped.rows("chipsets.tsv"):
        vendor, first, last, name, names, source, date = line.split("\t")
        known = tuple(n for n in names.split("|") if n)
        rows.append(Chipset(vendor, int(first, 16), int(last, 16), name, known, source, date))
    return tuple(rows)


def find(device_id: str | None, name: str | None = None) -> Chipset | None:
    """The chipset a bridge belongs to; None where it is not in the table, which says nothing about the bridge.

    The name counts only where there is no id: lspci without -nn prints the same table's name instead.
    """
    if device_id is not None:
        vendor, _, device = device_id.partition(":")
        try:
            number = int(device, 16)
        except ValueError:
            return None
        return next((c for c in table() if c.vendor == vendor and c.first <= number <= c.last), None)
    if name is None:
        return None
    bare = _PORT_NUMBER.sub("", name)
    bare = _PORT_NUMBER.sub("", bare)
    return next((c for c in table() if any(bare == n or bare.endswith(" " + n) for n in c.names)), None)
