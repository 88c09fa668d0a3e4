"""`nvidia-smi topo -m`, `topo -mp` and `topo -p2p X` to Pairs, Gpus and Nics.

A row is `GPU3  NV12 NV12 NV12 X … 0-23 0 N/A`; the header names the columns, but may be lost, re-flowed or missing its
leading tab. So cells are read by their vocabulary, and the place of `X` (a row's own column) anchors a row without a
header. Cells that ran into each other (`NODENODE`) are taken apart; a row with too few cells is a loss, not a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import P2P_WORDS, Nic, NicPath, Nics, Pair, Pairs
from gpudoctor.model import Evidence
from gpudoctor.read.section import Line, Section, Unparsable

# Longest first, or `NODE` would lose to `NS`-like prefixes; SOC is what drivers before 384 called SYS.
_CELLS = re.compile(r"NV\d{1,2}|NODE|PIX|PXB|PHB|SYS|SOC|X|OK|CNS|GNS|TNS|NS|DR|U")
_WHOLE = re.compile(rf"^(?:{_CELLS.pattern})+$")
_NAME = re.compile(r"^(?:GPU|NIC)\d+$|^(?:mlx|hfi1_|bnxt_re|irdma|rocep|ibp|efa_|rdmap|nic)\S*$")
_LEGEND = re.compile(r"^\s*(NIC\d+):\s+(\S+)\s*$")
_NODE_LIST = re.compile(r"^\d+(?:[-,]\d+)*$")
_P2P = frozenset(P2P_WORDS)


class _Row:
    def __init__(self, line: Line, name: str, cells: list[str], rest: list[str]) -> None:
        self.line, self.name, self.cells, self.rest = line, name, cells, rest


def parse(section: Section) -> Iterator[Fact | Loss]:
    header: list[str] | None = None
    labels: list[str] = []
    rows: list[_Row] = []
    devices: dict[str, tuple[str, Line]] = {}
    for line in section:
        words = line.text.split()
        legend = _LEGEND.match(line.text)
        if legend:
            devices[legend[1]] = (legend[2], line)
        elif not words:
            continue
        elif header is None and not rows and _is_header(words):
            header = [w for w in words if _NAME.match(w)]
            labels = [w for w in words if not _NAME.match(w)]
        elif _NAME.match(words[0]) and len(words) > 1:
            row = _row(line, words)
            if row is not None:
                rows.append(row)
    if not rows:
        if header is not None:
            raise Unparsable("a topology header without a readable row")
        raise Unparsable("no row of a topology matrix")
    yield from _facts(section, header, labels, rows, devices)


def _is_header(words: list[str]) -> bool:
    return bool(_NAME.match(words[0])) and all(_NAME.match(w) or not _WHOLE.match(w) for w in words)


def _row(line: Line, words: list[str]) -> _Row | None:
    cells: list[str] = []
    place = 1
    while place < len(words) and _WHOLE.match(words[place]):
        cells.extend(_CELLS.findall(words[place]))
        place += 1
    return _Row(line, words[0], cells, words[place:]) if cells else None


def _facts(
    section: Section, header: list[str] | None, labels: list[str], rows: list[_Row], devices: dict[str, tuple[str, Line]]
) -> Iterator[Fact | Loss]:
    columns = header or _columns_without_header(rows)
    complete = header is not None
    pairs: list[Pair] = []
    gpus: list[Gpu] = []
    paths: list[NicPath] = []
    p2p = any(cell in _P2P for row in rows for cell in row.cells)
    mp = not p2p and _command_says(section, "-mp")
    field = _p2p_field(section) if p2p else None
    for row in rows:
        if len(row.cells) < len(columns) or (row.line.cut and not row.rest and len(row.cells) == len(columns)):
            # Fewer cells than columns: which one is missing cannot be known.
            if len(row.cells) < len(columns):
                yield Loss(f"row {row.name} of the topology matrix", f"{len(row.cells)} of {len(columns)} cells ({section.source}, line {row.line.number})")
                complete = False
                continue
        evidence = section.at(row.line)
        for name, cell in zip(columns, row.cells):
            if not row.name.startswith("GPU"):
                continue
            a = int(row.name[3:])
            if not name.startswith("GPU"):
                if not p2p:
                    paths.append(NicPath(gpu=a, nic=name, path="SYS" if cell == "SOC" else cell, origin={"*": evidence}))
                continue
            b = int(name[3:])
            if a != b and cell != "X":
                pairs.append(_pair(a, b, cell, field, mp, evidence))
        if row.name.startswith("GPU"):
            gpus.append(_gpu(int(row.name[3:]), row, labels, evidence))
    if p2p and field == "p2p_unstated":
        yield Loss("which peer-to-peer capability a matrix shows", f"{section.source} does not say whether it is -p2p r, w, n, a or p")
    listed = {int(c[3:]) for c in columns if c.startswith("GPU")}
    if gpus:
        whole = complete and listed == {g.index for g in gpus}
        yield Gpus(tuple(gpus) + tuple(Gpu(index=i, origin={"*": section.at(rows[0].line)}) for i in sorted(listed - {g.index for g in gpus})), complete=whole)
    yield Pairs(tuple(_unique(pairs)))
    nics = [c for c in columns if not c.startswith("GPU")] + [r.name for r in rows if not r.name.startswith("GPU") and r.name not in columns]
    if nics and not p2p:
        yield Nics(tuple(_nic(section, name, devices, rows) for name in dict.fromkeys(nics)), tuple(paths))


def _unique(pairs: list[Pair]) -> list[Pair]:
    """Each cell stands twice in the matrix; the second sighting is kept too, so that a contradiction is said."""
    return pairs


def _pair(a: int, b: int, cell: str, field: str | None, mp: bool, evidence: Evidence) -> Pair:
    low, high = min(a, b), max(a, b)
    origin = {"*": evidence}
    if field is not None:
        return Pair(a=low, b=high, origin=origin, **{field: cell})
    if cell.startswith("NV"):
        return Pair(a=low, b=high, path="NVL", nvlinks=int(cell[2:]), origin=origin)
    return Pair(a=low, b=high, path="SYS" if cell == "SOC" else cell, pcie_only=True if mp else None, origin=origin)


def _gpu(index: int, row: _Row, labels: list[str], evidence: Evidence) -> Gpu:
    """The columns behind the matrix: CPU Affinity, NUMA Affinity, GPU NUMA ID. Newer drivers added the later ones."""
    affinity = row.rest[0] if row.rest else None
    node = row.rest[1] if len(row.rest) > 1 else None
    if labels and "CPU" not in labels:
        affinity = None
    if row.line.cut and len(row.rest) <= 2:
        # The last value of an unfinished line may itself be cut (`0-2` of `0-23`).
        affinity, node = (affinity, None) if len(row.rest) == 2 else (None, None)
    return Gpu(
        index=index,
        cpu_affinity=affinity if affinity and _NODE_LIST.match(affinity) else None,
        numa_node=int(node) if node and node.isdigit() else None,
        numa_list=node if node and _NODE_LIST.match(node) and not node.isdigit() else None,
        origin={"*": evidence},
    )


def _nic(section: Section, name: str, devices: dict[str, tuple[str, Line]], rows: list[_Row]) -> Nic:
    device, line = devices.get(name, (None if re.match(r"^NIC\d+$", name) else name, rows[0].line))
    return Nic(name=name, device=device, origin={"*": section.at(line)})


def _columns_without_header(rows: list[_Row]) -> list[str]:
    """Row names and the place of X give the columns: GPUs come first, in order, then the NICs of the rows."""
    width = max(len(row.cells) for row in rows)
    places = {row.cells.index("X"): row.name for row in rows if row.cells.count("X") == 1}
    first_nic = min((place for place, name in places.items() if not name.startswith("GPU")), default=width)
    for place, name in places.items():
        if name.startswith("GPU") and int(name[3:]) != place:
            raise Unparsable("a matrix without header whose rows do not fit their own columns")
    return [f"GPU{n}" for n in range(first_nic)] + [places.get(n, f"?{n}") for n in range(first_nic, width)]


def _command_says(section: Section, word: str) -> bool:
    return section.command is not None and word in section.command.split()


def _p2p_field(section: Section) -> str:
    words = (section.command or "").split()
    if "-p2p" in words[:-1]:
        capability = words[words.index("-p2p") + 1][:1]
        return {"r": "p2p_read", "w": "p2p_write", "n": "p2p_nvlink", "a": "p2p_atomics"}.get(capability, "p2p_unstated")
    return "p2p_unstated"
