"""`nvidia-smi topo -m`, `topo -mp` and `topo -p2p X` to Pairs, Gpus and Nics.

A row is `GPU3  NV12 NV12 NV12 X … 0-23 0 N/A`; the header names the columns, but may be lost, wrapped at the width of a
terminal or missing its leading tab. So cells are read by their vocabulary, and the place of `X` (a row's own column)
proves that a row fits. Cells that ran into each other (`NODENODE`) are taken apart. In a row with too few cells only
those are read whose place X proves; the rest is a loss, not a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.cpulist import parse as parse_cpus
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import P2P_WORDS, Nic, NicPath, Nics, Pair, Pairs
from gpudoctor.model import Evidence
from gpudoctor.parsers.topo_matrix import ELISION, NAME, Matrix, Row, matrices
from gpudoctor.read.section import Section, Unparsable
from gpudoctor.record import replace

_P2P = frozenset(P2P_WORDS)
_CPU_LIST = re.compile(r"^\d+(?:[-,]\d+)*$")
_NODE_NA = re.compile(r"^\d+N/A$")
_SIBLINGS = re.compile(r"^(\d+)-(\d+),(\d+)-(\d+)$")
_GPU = re.compile(r"^GPU(\d+)$")
# `topo -p2p p` asks for PCIe peer access, which NVLink parts answer with NS: it is not the read capability.
_CAPABILITY = {"r": "p2p_read", "w": "p2p_write", "n": "p2p_nvlink", "a": "p2p_atomics", "p": "p2p_pcie"}
_LEGEND_END = "PIX"  # the last line of the PCIe classes; `topo -m` has NV# after it, `topo -mp` nothing


def parse(section: Section) -> Iterator[Fact | Loss]:
    found = [matrix for matrix in matrices(section) if matrix.rows]
    if not found:
        raise Unparsable(f"{section.source}: a topology header without a readable row")
    for matrix in found:
        yield from _facts(section, matrix)


def _facts(section: Section, matrix: Matrix) -> Iterator[Fact | Loss]:
    columns = matrix.columns or _columns_without_header(matrix.rows)
    p2p = any(cell in _P2P for row in matrix.rows for cell in row.cells)
    field = _p2p_field(section.command) if p2p else None
    pcie_only = not p2p and _pcie_only(section.command, matrix)
    pairs: list[Pair] = []
    gpus: list[Gpu] = []
    paths: list[NicPath] = []
    whole = matrix.columns is not None and ELISION not in columns
    for row in matrix.rows:
        cells = _placed(row, columns)
        if len(cells) < len(columns):
            whole = False
            yield Loss(
                f"row {row.name} of the topology matrix",
                f"{len(row.cells)} of {len(columns)} cells ({section.source}, line {row.line.number})",
            )
        origin = {"*": section.at(row.line)}
        for place, cell in cells.items():
            ends = (row.name, columns[place])
            if cell in ("X", ELISION):
                continue
            numbers = [int(found[1]) for name in ends if (found := _GPU.match(name))]
            if not numbers:
                continue
            if len(numbers) == 2:
                pairs.append(_pair(min(numbers), max(numbers), cell, field, pcie_only, origin))
            elif not p2p and all(NAME.match(name) or name in (matrix.columns or ()) for name in ends):
                nic = next(name for name in ends if not _GPU.match(name))
                if not nic.startswith("CPU"):
                    paths.append(NicPath(gpu=numbers[0], nic=nic, path=_class(cell), origin=origin))
        if named := _GPU.match(row.name):
            gpus.append(_gpu(int(named[1]), row, matrix, origin))
    if p2p and field == "p2p_unstated":
        yield Loss(
            "which peer-to-peer capability a matrix shows",
            f"{section.source}, line {matrix.rows[0].line.number}: it does not say whether it is topo -p2p r, w, n, a or p",
        )
    yield from _listed(section, matrix, columns, _without_torn_end(gpus, columns), whole)
    yield Pairs(tuple(pairs))
    nics = [n for n in columns if not n.startswith(("GPU", "CPU", "?", ELISION))]
    nics += [row.name for row in matrix.rows if not row.name.startswith(("GPU", "CPU")) and row.name not in nics]
    if nics and not p2p:
        yield Nics(tuple(_nic(section, name, matrix) for name in nics), tuple(paths))


def _without_torn_end(gpus: list[Gpu], columns: list[str]) -> list[Gpu]:
    """Where rows are missing below the last one, that one may have lost its end too: `0-23,4` above rows of `0-23,48-71`."""
    last = gpus[-1] if gpus else None
    if last is None or last.cpu_affinity is None or f"GPU{last.index}" == next((c for c in reversed(columns) if _GPU.match(c)), None):
        return gpus
    torn = last.cpu_affinity
    if any(g.cpu_affinity is not None and g.cpu_affinity != torn and g.cpu_affinity.startswith(torn) for g in gpus):
        return [*gpus[:-1], replace(last, cpu_affinity=None)]
    return gpus


def _placed(row: Row, columns: list[str]) -> dict[int, str]:
    """Column number -> cell, for those cells whose place is proven."""
    if row.name not in columns:
        return dict(enumerate(row.cells)) if len(row.cells) == len(columns) else {}
    own = columns.index(row.name)
    lacking = len(columns) - len(row.cells)
    mark = row.cells.index("X") if row.cells.count("X") == 1 else None
    if lacking <= 0:
        return dict(enumerate(row.cells[: len(columns)])) if mark in (own, None) else {}
    if mark is None:
        # An unfinished line that ends before its own column: what is there is the beginning.
        return dict(enumerate(row.cells)) if row.unfinished and len(row.cells) <= own else {}
    if mark == own:
        return dict(enumerate(row.cells if row.unfinished else row.cells[: own + 1]))
    if mark == own - lacking and not row.unfinished:
        return {place + lacking: cell for place, cell in enumerate(row.cells) if place >= mark}
    return {}


def _listed(section: Section, matrix: Matrix, columns: list[str], gpus: list[Gpu], whole: bool) -> Iterator[Fact]:
    """The GPUs of rows and header. A GPU of the header without a row is there, but nothing more is known of it."""
    known = {g.index for g in gpus}
    head = matrix.header or matrix.rows[0].line
    rest = [int(c[3:]) for c in columns if _GPU.match(c) and int(c[3:]) not in known]
    more = [Gpu(index=i, origin={"*": section.at(head)}) for i in rest]
    if gpus or more:
        yield Gpus((*gpus, *more), complete=whole and not rest)


def _class(cell: str) -> str:
    return "SYS" if cell == "SOC" else cell  # what drivers before 384 called SYS


def _pair(a: int, b: int, cell: str, field: str | None, pcie_only: bool, origin: dict[str, Evidence]) -> Pair:
    common: dict[str, Any] = {"a": a, "b": b, "origin": origin}
    if field is not None:
        common[field] = cell
        return Pair(**common)
    if cell.startswith("NV"):
        return Pair(**common, path="NVL", nvlinks=int(cell[2:]))
    return Pair(**common, path=_class(cell), pcie_only=True if pcie_only else None)


def _apart(rest: list[str], matrix: Matrix) -> list[str]:
    """The columns behind a row whose blanks a terminal ate: `0N/A` is `0  N/A`, `56-111,168-2231` is `56-111,168-223  1`.

    The node is taken off the CPUs only where siblings prove it: both ranges of a node are of one length.
    """
    words = [part for word in rest for part in ((word[:-3], "N/A") if _NODE_NA.match(word) else (word,))]
    if len(words) < 2 or not _CPU_LIST.match(words[1]):
        found = _SIBLINGS.match(words[0]) if words else None
        nodes = matrix.header is None or matrix.labels.count("NUMA") > 0
        if found is not None and nodes:
            a, b, c, d = (int(n) for n in found.groups())
            if d - c != b - a and d // 10 - c == b - a:
                words[:1] = [words[0][:-1], words[0][-1]]
    return words


def _gpu(index: int, row: Row, matrix: Matrix, origin: dict[str, Evidence]) -> Gpu:
    """The columns behind the matrix: CPU Affinity, NUMA Affinity, GPU NUMA ID. Newer drivers added the later ones."""
    rest = _apart(row.rest, matrix)
    affinity = node = None
    if matrix.header is None or "CPU" in matrix.labels:
        first = rest.pop(0) if rest else ""
        # A blank affinity shifts the words; a list of several CPUs cannot be a node.
        if _CPU_LIST.match(first) and (len(rest) + 1 >= matrix.behind or not first.isdigit()):
            # `112-127,240-25` runs backwards: a cut took its end, and what is left is another list.
            affinity = first if parse_cpus(first) is not None else None
        elif first != "N/A":
            rest = []
    if rest and (matrix.header is None or matrix.labels.count("NUMA")):
        node = rest[0] if _CPU_LIST.match(rest[0]) else None
    return Gpu(
        index=index,
        cpu_affinity=affinity,
        numa_node=int(node) if node and node.isdigit() else None,
        numa_list=node if node and not node.isdigit() else None,
        origin=origin,
    )


def _nic(section: Section, name: str, matrix: Matrix) -> Nic:
    """Its device stands in the legend; drivers before 470 have no numbers and name the device itself."""
    if name in matrix.devices:
        device, line = matrix.devices[name]
        return Nic(name=name, device=device, origin={"*": section.at(line)})
    numbered = re.match(r"^NIC\d+$", name)
    return Nic(
        name=name, device=None if numbered else name, origin={"*": section.at(matrix.header or matrix.rows[0].line)}
    )


def _columns_without_header(rows: list[Row]) -> list[str]:
    """Row names and the place of X give the columns; a column that nothing names is `?N` and is not read."""
    width = max(len(row.cells) for row in rows)
    places = {row.cells.index("X"): row.name for row in rows if row.cells.count("X") == 1}
    if any(name.startswith("GPU") and int(name[3:]) != place for place, name in places.items()):
        raise Unparsable("a topology matrix without header whose rows do not fit their own columns")
    # GPUs come first and in order: every column up to the last GPU row is one, and so is every column with an NVLink.
    last = max((place for place, name in places.items() if name.startswith("GPU")), default=-1)
    first_nic = min((place for place, name in places.items() if not name.startswith("GPU")), default=width)
    for row in rows:
        last = max(last, *(place for place, cell in enumerate(row.cells) if cell.startswith("NV")), -1)
    numbered = [place - int(name[3:]) for place, name in places.items() if re.match(r"^NIC\d+$", name)]
    start = numbered[0] if numbered and all(n == numbered[0] for n in numbered) else None
    if start is not None or first_nic <= last:
        last = max(last, (start if start is not None else first_nic) - 1)
    names = []
    for place in range(width):
        if place <= last:
            names.append(f"GPU{place}")
        elif start is not None and place >= start:
            names.append(f"NIC{place - start}")
        else:
            names.append(places.get(place, f"?{place}"))
    return names


def _pcie_only(command: str | None, matrix: Matrix) -> bool:
    """`topo -mp` leaves NVLink out by design: told by the command, or by a legend without its NV# line."""
    if any(cell.startswith("NV") for row in matrix.rows for cell in row.cells):
        return False
    words = (command or "").split()
    if "-mp" in words or "--matrix_pci" in words:
        return True
    return _LEGEND_END in matrix.legend and "NV#" not in matrix.legend


def _p2p_field(command: str | None) -> str:
    words = (command or "").split()
    for flag, capability in zip(words, words[1:], strict=False):
        if flag in ("-p2p", "--p2pstatus") and capability[:1] in _CAPABILITY:
            return _CAPABILITY[capability[:1]]  # `-p2p rw` shows what `-p2p r` shows
    return "p2p_unstated"


