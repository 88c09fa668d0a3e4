"""nvbandwidth's text to HostCopies and PairRates.

    Device 0: NVIDIA H200 (00000000:06:00)
    Running device_to_device_memcpy_read_ce.
    memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
               0         1
     0       N/A    396.01
     1    395.87       N/A
    SUM device_to_device_memcpy_read_ce 791.88

Numbers are CUDA's; the list of devices at the top gives their addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor import bdf
from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRun, Failure, HostCopies, HostCopy, PairRate, PairRates
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.model import Evidence
from gpudoctor.read.section import Line, Section, Unparsable

_DEVICE = re.compile(r"^\s*Device (\d+): (\S.*?)\s*\(([0-9a-fA-F:.]+)\)")
_RUNNING = re.compile(r"^\s*Running (\w+)\.")
_HEAD = re.compile(r"^\s*\d+(?:\s+\d+)*\s*$")
# `NVML_ERROR: [Not Found] in expression nvml…(…) in void …() : inline_common.h:142`: the program ends at the first call that fails.
_FAILED = re.compile(r"^\s*(?:\w{2,40}: )?\[[^\[\]]{2,80}\](?: [^\[\]]{1,160})? in expression \w")
_LONGEST = 4000  # characters; a row of 72 GPUs has 800
_CELL = re.compile(r"^(?:\d+\.\d+|N/A)$")
# Only copies one at a time: in the others the GPUs share links, so that a number is nobody's own.
_TO_DEVICE, _FROM_DEVICE = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce"
# Of the bidirectional ones the last matrix counts, both directions together.
_PAIRS = {
    f"device_to_device_{ways}memcpy_{kind}_{engine}": f"copy {kind}{words}{' by kernel' if engine == 'sm' else ''}"
    for ways, words in (("", ""), ("bidirectional_", " both ways"))
    for kind in ("read", "write")
    for engine in ("ce", "sm")
}
Devices = Mapping[int, tuple[str, str | None]]  # CUDA's number -> name, address
Cells = dict[tuple[int, int], tuple[float, Evidence]]


class Matrix:
    """One test's matrix while its rows come in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns: list[int] = []
        self.cells: Cells = {}


def parse(section: Section) -> Iterator[Fact | Loss]:
    devices: dict[int, tuple[str, str | None]] = {}
    matrices: list[Matrix] = []
    failed: BandwidthRun | None = None
    for line in section:
        if failed is None and not line.cut and _FAILED.match(line.text[:_LONGEST]):
            text = line.text[:_LONGEST].strip()
            cause = Failure(kind="test" if text.startswith("NVML") else "cuda", text=text)
            failed = BandwidthRun(engine="cuda-samples", program="nvbandwidth", failures=(cause,), origin={"*": section.at(line)})
        if len(line.text) > _LONGEST:
            continue
        if found := _DEVICE.match(line.text):
            devices[int(found[1])] = (found[2], bdf.normalise(found[3]))
        elif found := _RUNNING.match(line.text):
            matrices.append(Matrix(found[1]))
        elif matrices:
            loss = _row(matrices[-1], line, section)
            if loss is not None:
                yield loss
    if failed is not None:
        yield Bandwidth((failed,))
    if not devices and not matrices:
        raise Unparsable(f"{section.source}: no test of nvbandwidth")
    yield from facts_of(matrices, devices)


def facts_of(matrices: Sequence[Matrix], devices: Devices) -> Iterator[Fact]:
    """What the matrices of one output say of the links."""
    copies = _copies(matrices, devices)
    if copies:
        yield HostCopies(tuple(copies))
    rates = [rate for matrix in matrices if matrix.name in _PAIRS for rate in _rates(matrix, devices)]
    if rates:
        yield PairRates(tuple(rates))


def _row(matrix: Matrix, line: Line, section: Section) -> Loss | None:
    if line.cut and not line.text[-1:].isspace():
        return Loss(f"the last row of {matrix.name}", f"{section.source}, line {line.number}: cut off")
    words = line.text.split()
    if not matrix.columns and _HEAD.match(line.text):
        matrix.columns = [int(word) for word in words]
    elif (
        matrix.columns
        and len(words) == len(matrix.columns) + 1
        and words[0].isdigit()
        and all(_CELL.match(w) for w in words[1:])
    ):
        for column, word in zip(matrix.columns, words[1:], strict=True):
            if word != "N/A":
                matrix.cells[int(words[0]), column] = (float(word), section.at(line))
    return None


def _copies(matrices: Sequence[Matrix], devices: Devices) -> list[HostCopy]:
    to_device: Cells = next((m.cells for m in matrices if m.name == _TO_DEVICE), {})
    from_device: Cells = next((m.cells for m in matrices if m.name == _FROM_DEVICE), {})
    out = []
    for number in sorted({column for _, column in (*to_device, *from_device)}):
        there = next((v for (_, column), v in to_device.items() if column == number), None)
        back = next((v for (_, column), v in from_device.items() if column == number), None)
        name, address = devices.get(number, (None, None))
        origin = {
            field: v[1]
            for field, v in (("to_device_gbs", there), ("from_device_gbs", back))
            if v is not None
        }
        out.append(
            HostCopy(
                gpu=None if address else number,
                bdf=address,
                name=name,
                to_device_gbs=there[0] if there else None,
                from_device_gbs=back[0] if back else None,
                origin={**origin, "*": next(iter(origin.values()))},
            )
        )
    return out


def _rates(matrix: Matrix, devices: Devices) -> list[PairRate]:
    """A pair counts with its slower direction."""
    out = []
    for a, b in sorted({(min(pair), max(pair)) for pair in matrix.cells}):
        seen = [matrix.cells[pair] for pair in ((a, b), (b, a)) if pair in matrix.cells]
        if a == b or len(seen) < 2:
            continue
        rate, spot = min(seen, key=lambda cell: cell[0])
        (a_name, a_bdf), (b_name, b_bdf) = devices.get(a, (None, None)), devices.get(b, (None, None))
        out.append(
            PairRate(
                a=a,
                b=b,
                gbs=rate,
                what=_PAIRS[matrix.name],
                a_bdf=a_bdf,
                b_bdf=b_bdf,
                a_name=a_name,
                b_name=b_name,
                origin={"*": spot},
            )
        )
    return out
