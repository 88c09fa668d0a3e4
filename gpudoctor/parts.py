"""What is known of a GPU model: board form, NVLinks, peer-to-peer class. By PCI device id, or by name alone.

The table is `data/parts.tsv`, one row per model. `source` begins with the list in which the ids stand; what follows backs
the NVLinks and the peer-to-peer class, after `unverified:` what no source read for it backs. `date` is the list's. Names
there are normalised (`normalised`); a trailing `*` matches any continuation, so that `Tesla V100-SXM2-32GB-LS` is found by
`v100 sxm2*`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpudoctor import shipped
from gpudoctor.record import KeyedRecord

TABLE = "parts.tsv"

# Classes of peer access over PCIe, as the driver grants it.
PCIE, BRIDGE_ONLY, NONE = "pcie", "bridge", "none"

_WORDS = re.compile(r"[a-z0-9]+")
# A laptop part has the desktop part's name and other limits; a vGPU or MIG slice has the card's and none of its links.
_OTHER = frozenset(("laptop", "mobile", "embedded", "mig", "grid"))
_VGPU = re.compile(r"^\d+[qcab]$")  # the profile at the end of a vGPU's name: A100-40C, L40S-48Q


# As drivers and the PCI ID database name laptop parts: `… Laptop GPU`, `… with Max-Q Design`, `TU117M [GeForce … Mobile]`, `GTX 970M`.
_LAPTOP = re.compile(r"\b(?:Laptop|Mobile|Max-Q|[A-Z]{2}\d{3}(?:GL)?M|\d{3}MX?)\b")


def is_laptop(*names: str | None) -> bool:
    """A GPU that is soldered beside a processor: the board wires what lanes it likes and switches it off when idle."""
    return any(name is not None and _LAPTOP.search(name) is not None for name in names)


class Part(KeyedRecord):
    """One GPU model. None is unknown or, for NVLink, none: see `nvlink`."""

    names: tuple[str, ...]
    form: str | None  # "SXM", "PCIe", "NVL", "superchip", "display"
    nvlink_gen: int | None  # None: the part has no NVLink
    links: int | None  # links that are up when everything is; a bridged card may list more that never are
    pair_links: tuple[int, ...]  # links to one neighbour on boards that are whole: NV12 behind switches, NV4 in a mesh of four
    link_gbs: float | None  # GB/s, one link, one direction
    required: bool  # the board joins all links: one that is down is a fault
    p2p_class: str | None  # PCIE, BRIDGE_ONLY, NONE; None unknown
    source: str
    date: str

    @property
    def nvlink(self) -> bool:
        """Has the part NVLink, be it on the board or by a bridge?"""
        return self.nvlink_gen is not None

    @property
    def p2p(self) -> bool | None:
        """Does the driver let it reach a peer's memory over PCIe? None unknown."""
        return None if self.p2p_class is None else self.p2p_class == PCIE

    @property
    def display_only(self) -> bool:
        """A card that drives a screen beside the computing ones; no part of any GPU-to-GPU path worth judging."""
        return self.form == "display"


def normalised(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` and lspci's `GA100 [A100 SXM4 80GB]` both to `a100 sxm4 80gb`."""
    if "[" in name:
        name = name[name.index("[") + 1 :].partition("]")[0]
    words = _WORDS.findall(name.lower())
    while words and words[0] in ("nvidia", "tesla"):
        words = words[1:]
    return " ".join(words)


def find(device_id: str | None, name: str | None = None) -> Part | None:
    """The part by PCI device id (`10de:2335`), else by name; None where the table does not know it."""
    by_id, by_name = _index()
    if device_id is not None and device_id.startswith("10de:"):
        row = by_id.get(device_id[5:])
        if row is not None:
            return _part(row)
    return _named(normalised(name), by_name) if name else None


def is_vgpu(name: str | None) -> bool:
    """A share of a card, as the driver of a virtual machine names it: `GRID A100-40C`, `NVIDIA L40S-48Q`."""
    words = normalised(name).split() if name else []
    return len(words) > 1 and _VGPU.match(words[-1]) is not None


def needs_all_links(part: Part | None, name: str | None = None) -> bool:
    """Must every NVLink of this part be up? A part that the table does not know yet is an SXM board when its name says so."""
    if part is not None:
        return part.required
    return name is not None and any(w.startswith("sxm") for w in normalised(name).split())


def _named(wanted: str, by_name: dict[str, str]) -> Part | None:
    words = wanted.split()
    if not words or _OTHER.intersection(words) or _VGPU.match(words[-1]):
        return None
    row = by_name.get(wanted)
    while row is None and words:
        row = by_name.get(" ".join(words) + "*")
        words.pop()
    return _part(row) if row else None


@lru_cache(maxsize=1)
def _index() -> tuple[dict[str, str], dict[str, str]]:
    """Rows by id and by name, left as text: a run needs one or two of them."""
    by_id: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for row in shipped.rows(TABLE)[1:]:
        ids, names, _ = row.split("\t", 2)
        by_id.update(dict.fromkeys(filter(None, ids.split(",")), row))
        by_name.update(dict.fromkeys(filter(None, names.split(";")), row))
    return by_id, by_name


@lru_cache(maxsize=64)
def _part(row: str) -> Part:
    _, names, form, nvlink, links, pair, gbs, required, p2p, source, date = row.split("\t")
    return Part(
        names=tuple(filter(None, names.split(";"))),
        form=form or None,
        nvlink_gen=int(nvlink) if nvlink else None,
        links=int(links) if links else None,
        pair_links=tuple(int(n) for n in pair.split(",") if n),
        link_gbs=float(gbs) if gbs else None,
        required=required == "y",
        p2p_class=p2p or None,
        source=source,
        date=date,
    )
