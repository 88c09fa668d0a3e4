"""What the error numbers of NVIDIA's driver and of NVSwitches mean: the table in data/xid.tsv, read on first use."""

from __future__ import annotations

from functools import lru_cache

from gpudoctor import shipped
from gpudoctor.record import Record

SOURCE = "NVIDIA Xid catalogue (docs.nvidia.com/deploy/xid-errors) and Fabric Manager User Guide DU-09883-001"
DATE = "2025-10-29"


class Known(Record):
    """family: see the head of the table. remedy: a key that checkers.xid_remedy turns into steps."""

    family: str
    remedy: str
    meaning: str


UNKNOWN = Known("unknown", "support", "a number that NVIDIA's lists do not explain")


@lru_cache(maxsize=1)
def _rows() -> dict[tuple[str, int], Known]:
    rows: dict[tuple[str, int], Known] = {}
    for line in shipped.rows("xid.tsv"):
        kind, code, family, remedy, meaning = line.split("\t")
        rows[kind, int(code)] = Known(family, remedy, meaning)
    return rows


def lookup(kind: str, code: int | None) -> Known:
    """kind: `xid`, `sxid`, or `nvswitch` (the Fabric Manager's name for the same numbers as SXid)."""
    return _rows().get(("sxid" if kind == "nvswitch" else kind, code if code is not None else -1), UNKNOWN)
