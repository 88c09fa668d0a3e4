"""The lines of a topology matrix, put back together: wrapped lines joined, headers, rows and legends told apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section

ELISION = "…"  # stands for columns that the author left out

# Longest first, or `NODE` would lose to `NS`-like prefixes; SOC is what drivers before 384 called SYS.
_CELL = r"NV\d{1,2}|NODE|PIX|PXB|PHB|SYS|SOC|X|OK|CNS|GNS|TNS|NS|DR|U"
_CELLS = lazy(_CELL)
_WHOLE = lazy(rf"^(?:{_CELL})+$")
NAME = lazy(r"^(?:GPU|NIC|CPU|NVME)\d+$|^(?:mlx|hfi1_|bnxt_re|irdma|rocep|roceo|ibp|ibs|efa_|rdmap|qedr|hns_|nic)\S*$")
_GPU = lazy(r"^GPU\d+$")
_NAMES = lazy(r"(?:GPU|NIC)\d+")
_RUN_TOGETHER = lazy(r"^(?:(?:GPU|NIC)\d+){2,}$")
_INTO_LABEL = lazy(r"^(.*\d)(CPU|NUMA)$")  # `NIC11CPU Affinity`: the last name ran into the first label
_DOTS = lazy(r"^(?:\.{2,}|…|\[(?:\.{2,}|…)\])$")
_LABELS = ("CPU", "NUMA", "GPU", "Affinity", "ID")
_LEGEND = lazy(r"^\s*(X|SYS|NODE|PHB|PXB|PIX|NV#|SOC|OK|CNS|GNS|TNS|NS|DR|U)\s*=\s")
_DEVICE = lazy(r"^\s*(NIC\d+):\s+(\S+)")
_FRAGMENT = lazy(r"^(?:[A-Z\d/][A-Z\d/,-]*|,[\d,-]+|-\d[\d,-]*|\w{0,8}nity|ity|ty|y|mlx\S+|\.{2,}|…)$")
_ALIGNED = lazy(r"\S\s{2,}\S|\t")


class Row:
    """One row. `unfinished`: the line ends in the middle, by a cut or by the author's dots, so cells lack at its end."""

    def __init__(self, line: Line, name: str, cells: list[str], rest: list[str], unfinished: bool) -> None:
        self.line, self.name, self.cells, self.rest, self.unfinished = line, name, cells, rest, unfinished


class Matrix:
    """One matrix as it was printed: header, rows, legend."""

    def __init__(self) -> None:
        self.header: Line | None = None
        self.columns: list[str] | None = None
        self.labels: list[str] = []  # words of the header behind the columns
        self.rows: list[Row] = []
        self.devices: dict[str, tuple[str, Line]] = {}  # NIC legend
        self.legend: set[str] = set()

    @property
    def behind(self) -> int:
        """How many columns stand behind the matrix: CPU Affinity, NUMA Affinity, GPU NUMA ID."""
        return self.labels.count("Affinity") + self.labels.count("ID")


def matrices(section: Section) -> Iterator[Matrix]:
    """Every matrix of a section, with the legends that follow it."""
    matrix = Matrix()
    lines = list(_unwrapped(section.lines))
    for line in _marked(lines):
        words = line.text.split()
        device, legend = _DEVICE.match(line.text), _LEGEND.match(line.text)
        if device:
            if not line.cut or line.text[-1:].isspace():
                matrix.devices[device[1]] = (device[2], line)
        elif legend:
            matrix.legend.add(legend[1])
        elif _is_header(words):
            if matrix.rows or matrix.columns:
                yield matrix
                matrix = Matrix()
            matrix.header = line
            matrix.columns, matrix.labels = _header(words[:-1] if line.cut and not _is_word(words[-1]) else words)
        else:
            row = _row(line, words, matrix.columns or [])
            if row is None:
                continue
            if any(row.name == known.name for known in matrix.rows):
                yield matrix
                matrix = Matrix()
            matrix.rows.append(row)
    yield matrix


def _marked(lines: list[Line]) -> Iterator[Line]:
    """Lines of a matrix that was clipped at a width (`cut -c`, `less -S`, a narrow window) count as cut where they reach it."""
    width = 0
    for place, line in enumerate(lines):
        words = line.text.split()
        if _is_header(words):
            below = [other.text for other in lines[place + 1 : place + 3]]
            partial = not _is_word(words[-1])
            flush = (
                words[-1] not in ("Affinity", "ID")
                and len(below) == 2
                and {len(text) for text in below} == {len(line.text)}
            )
            width = len(line.text) if partial or flush else 0
        yield line._replace(cut=True) if width and len(line.text) >= width else line


def _is_word(word: str) -> bool:
    """Is a header's last word whole, as far as one can tell?"""
    return (
        word in _LABELS
        or NAME.match(word) is not None
        or _DOTS.match(word) is not None
        or _RUN_TOGETHER.match(word) is not None
    )


def _is_header(words: list[str]) -> bool:
    """`GPU0 GPU1 … CPU Affinity`; a row has a cell in second place."""
    return bool(words) and (
        bool(_GPU.match(words[0]))
        and (len(words) == 1 or not (_WHOLE.match(words[1]) or _DOTS.match(words[1]) and _has_cell(words)))
        or bool(_RUN_TOGETHER.match(words[0]))
    )


def _has_cell(words: list[str]) -> bool:
    return any(_WHOLE.match(w) for w in words)


def _header(words: list[str]) -> tuple[list[str], list[str]]:
    """Columns are the words before the first label; names that ran into each other are taken apart."""
    columns: list[str] = []
    for place, word in enumerate(words):
        joined = _INTO_LABEL.match(word)
        if joined is not None and (NAME.match(joined[1]) or _RUN_TOGETHER.match(joined[1])):
            columns += _NAMES.findall(joined[1]) if _RUN_TOGETHER.match(joined[1]) else [joined[1]]
            return columns, [joined[2], *words[place + 1 :]]
        if word in _LABELS:
            return columns, words[place:]
        if _RUN_TOGETHER.match(word):
            columns += _NAMES.findall(word)
        else:
            columns.append(ELISION if _DOTS.match(word) else word)
    return columns, []


def _row(line: Line, words: list[str], columns: list[str]) -> Row | None:
    if len(words) < 2 or not (NAME.match(words[0]) or words[0] in columns):
        return None
    cells: list[str] = []
    place = 1
    while place < len(words) and (_WHOLE.match(words[place]) or _DOTS.match(words[place])):
        cells += [ELISION] if _DOTS.match(words[place]) else _CELLS.findall(words[place])
        place += 1
    rest = words[place:]
    finished_word = not line.cut or line.text[-1:].isspace()
    if not finished_word and rest:
        rest = rest[:-1]
    elif not finished_word and cells and re.match(r"^NV\d$", cells[-1]):
        cells.pop()  # may be the beginning of NV18
    unfinished = line.cut and not words[place:]
    if cells and cells[-1] == ELISION and ELISION not in columns:
        cells.pop()
        unfinished = True
    return Row(line, words[0], cells, rest, unfinished) if cells else None


def _unwrapped(lines: tuple[Line, ...]) -> Iterator[Line]:
    """Join what a terminal or a mail program broke.

    A terminal breaks at its width, in the middle of a word or at a blank that the copy then loses; so a broken line is
    filled up to that width before the next is put behind it. Words that thereby run together are taken apart later.
    Where the columns are not aligned any more it was no terminal, and what was broken is a blank.
    """
    groups: list[list[Line]] = []
    for line in lines:
        if groups and _continues(groups[-1], line):
            groups[-1].append(line)
        else:
            groups.append([line])
    width = max((len(line.text) for group in groups for line in group[:-1]), default=0)
    for group in groups:
        aligned = any(_ALIGNED.search(line.text) for line in group)
        text = "".join(line.text.ljust(width) if aligned else f"{line.text} " for line in group[:-1]) + group[-1].text
        yield group[0]._replace(text=text, cut=group[-1].cut)


def _continues(group: list[Line], line: Line) -> bool:
    """Is this the rest of a broken header or row?"""
    words = line.text.split()
    begun = group[0].text.split()
    if not words or not begun or not all(_FRAGMENT.match(w) for w in words):
        return False
    in_header = _is_header(begun)
    in_row = NAME.match(begun[0]) is not None and len(begun) > 1 and not in_header
    if not (in_header or in_row) or "=" in line.text:
        return False
    starts_row = (
        NAME.match(words[0]) is not None
        and len(words) > 1
        and (_WHOLE.match(words[1]) is not None or words[1] in ("..", "...", "…"))
    )
    if in_header:
        return not starts_row and not (words[0] == "GPU0" and len(words) > 1)
    # The rest of a row is cells and affinities; a line of names is another header.
    return not starts_row and not _is_header(words) and not NAME.match(words[0])
