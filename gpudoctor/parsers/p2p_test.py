"""CUDA's p2pBandwidthLatencyTest to PeerCopies and PairRates; and what simpleP2P says of access and of data.

    Device: 0, NVIDIA H200, pciBusID: 6, pciDeviceID: 0, pciDomainID:0
    Device=0 CAN Access Peer Device=1
    P2P Connectivity Matrix
         D\\D     0     1
         0       1     1
         1       1     1
    Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
       D\\D     0      1
         0 2474.76 371.02
         1  376.82 2512.44
    P2P=Enabled Latency (P2P Writes) Matrix (us)
       GPU     0      1
         0   2.61   2.31

Where a pair has no peer access the program copies through host memory, whatever the heading says. The diagonal is the
card's own memory and says nothing of a pair. Releases before CUDA 10.1 leave `(P2P Writes)` out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor import bdf
from gpudoctor.facts.bandwidth import (
    STAGED,
    Bandwidth,
    BandwidthRun,
    Failure,
    PairRate,
    PairRates,
    PeerCopies,
    PeerCopy,
)
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.model import Evidence
from gpudoctor.read.section import Line, Section, Unparsable

_LONGEST = 4000  # characters; a row of 72 GPUs has 600
_DEVICE = re.compile(r"^\s*Device: (\d{1,4}), (\S.{0,119}?), pciBusID: ([0-9a-f]{1,2}), pciDeviceID: ([0-9a-f]{1,2}), pciDomainID: ?([0-9a-f]{1,8})\s*$")
_ACCESS = re.compile(r"^\s*Device=(\d{1,4}) (CAN|CANNOT) Access Peer Device=(\d{1,4})\s*$")
# simpleP2P, which writes to a peer and compares what arrived.
_PEER = re.compile(r"^[\s>]*Peer access from (\S.{0,99}?) \(GPU(\d{1,4})\) -> (\S.{0,99}?) \(GPU(\d{1,4})\) : (Yes|No)\s*$")
_DIFFERS = re.compile(r"^\s*Verification error @ element \d{1,9}: val = \S{1,40}, ref = \S{1,40}\s*$")
_HEADING = re.compile(
    r"^[\s#*]*(?:(Uni|Bi)directional\s+)?P2P=(En|Dis)abled\s+(?:Write\s+)?(Bandwidth|Latency)(?:\s*\(P2P (Write|Read)s\))?", re.I
)
_CONNECTIVITY = re.compile(r"^[\s#*]*P2P Connectivity Matrix")
# The source's path is cut to its name: it says where somebody's home is.
_FAILED = re.compile(r"^\s*(Cuda failure) \S*(p2pBandwidthLatencyTest\.cu:\d{1,6}: '[^']{1,300}')\s*$")
_COLUMNS = re.compile(r"^\s*(D[\\/]{0,2}D|GPU|CPU)((?:\s+\d{1,4})+)\s*$")
_CELL = re.compile(r"^(?:\d{1,7}(?:\.\d{1,6})?|N/A|-)$")
_WHOLE = re.compile(r"\.\d\d$|\s$")  # the program prints two decimals and a blank
_NEAR = 1.25  # times the copies through host memory: below, a pair whose access is not told may have none
ACCESS, OTHER = "access", "other"
Cells = dict[tuple[int, int], tuple[float, Evidence]]
_FIELDS = (
    "on_gbs", "on_read_gbs", "on_both_ways_gbs", "off_gbs", "off_both_ways_gbs", "on_latency_us", "off_latency_us", "on_cpu_latency_us", "off_cpu_latency_us",
)  # fmt: skip
# With what `off` each is compared.
_RATES = (
    ("on_gbs", "off_gbs", "peer copy"), ("on_read_gbs", "off_gbs", "peer copy by reads"), ("on_both_ways_gbs", "off_both_ways_gbs", "peer copies both ways"),
)  # fmt: skip


class _Run:
    """One run of the program while its lines come in."""

    def __init__(self, devices: Mapping[int, tuple[str, str | None]] | None = None) -> None:
        self.devices = dict(devices or {})
        self.access: dict[tuple[int, int], tuple[bool, Evidence]] = {}
        self.tables: dict[str, Cells] = {}
        self.field: str | None = None  # of the table that is open; ACCESS for the connectivity matrix, OTHER for what is not kept
        self.columns: list[int] = []
        self.begun = False


def parse(section: Section) -> Iterator[Fact | Loss]:
    runs = [_Run()]
    failures: list[tuple[str, Evidence]] = []
    differs: Evidence | None = None
    for line in section:
        if len(line.text) > _LONGEST:
            continue
        run = runs[-1]
        device, access, heading, columns = (p.match(line.text) for p in (_DEVICE, _ACCESS, _HEADING, _COLUMNS))
        if failed := _FAILED.match(line.text):
            failures.append((f"{failed[1]} {failed[2]}", section.at(line)))
        elif _DIFFERS.match(line.text):
            differs = differs or section.at(line)
        elif (peer := _PEER.match(line.text)) and not line.cut:
            for name, number in ((peer[1], peer[2]), (peer[3], peer[4])):
                run.devices.setdefault(int(number), (name, None))
            run.access[int(peer[2]), int(peer[4])] = (peer[5] == "Yes", section.at(line))
        elif device and not line.cut:
            if run.tables:
                runs.append(run := _Run())
            address = f"{int(device[5], 16):04x}:{int(device[3], 16):02x}:{int(device[4], 16):02x}.0"
            run.devices[int(device[1])] = (device[2], bdf.normalise(address))
        elif access and not line.cut:
            run.access[int(access[1]), int(access[3])] = (access[2] == "CAN", section.at(line))
        elif heading:
            field = _field(heading)
            if run.tables.get(field):  # the same table again: a second run, pasted below the first
                runs.append(run := _Run(run.devices))
            run.field, run.columns, run.begun = field, [], True
        elif _CONNECTIVITY.match(line.text):
            run.field, run.columns, run.begun = ACCESS, [], True
        elif columns:
            run.columns = [int(word) for word in columns[2].split()] if not line.cut else []
            if run.field is not None and run.field.endswith("latency_us"):
                side = run.field.partition("_")[0]
                run.field = f"{side}_cpu_latency_us" if columns[1] == "CPU" else f"{side}_latency_us"
        elif run.field is not None and run.columns:
            loss = _row(run, run.field, line, section)
            if loss is not None:
                yield loss
    copies = [copy for run in runs for copy in _copies(run)]
    if failures:
        yield Bandwidth(tuple(_failed(text, spot) for text, spot in failures))
    if differs is not None:
        yield Bandwidth((BandwidthRun(engine="cuda-samples", program="simpleP2P", wrong=True, origin={"*": differs}),))
    if not failures and differs is None and not any(run.begun or run.devices or run.access for run in runs):
        raise Unparsable(f"{section.source}: no line of p2pBandwidthLatencyTest")
    if copies or not failures:
        yield PeerCopies(tuple(copies))
    rates = [rate for copy in copies for rate in _rates(copy)]
    if rates:
        yield PairRates(tuple(rates))


def _failed(text: str, spot: Evidence) -> BandwidthRun:
    """The program ends at the first call of CUDA's that fails."""
    return BandwidthRun(
        engine="cuda-samples", program="p2pBandwidthLatencyTest", failures=(Failure(kind="cuda", text=text),), origin={"*": spot}
    )


def _field(heading: re.Match[str]) -> str:
    ways, on, what, how = heading.groups()
    side = "on" if on.lower() == "en" else "off"
    if what.lower() == "latency":
        return f"{side}_latency_us" if (how or "").lower() != "read" else OTHER
    if ways is not None and ways.lower() == "bi":
        return f"{side}_both_ways_gbs"
    return f"{side}_read_gbs" if (how or "").lower() == "read" else f"{side}_gbs"


def _row(run: _Run, field: str, line: Line, section: Section) -> Loss | None:
    words = line.text.split()
    if len(words) < 2 or not words[0].isdigit() or not all(_CELL.match(w) for w in words[1:]):
        return None
    short = len(words) != len(run.columns) + 1
    if line.cut and (short or not (field == ACCESS or _WHOLE.search(line.text))):
        return Loss("the last row of p2pBandwidthLatencyTest", f"{section.source}, line {line.number}: cut off")
    if short:
        return None  # an author's `…`
    row, spot = int(words[0]), section.at(line)
    for column, word in zip(run.columns, words[1:], strict=True):
        if row == column or word in ("N/A", "-"):
            continue
        if field == ACCESS and word in ("0", "1"):
            run.access[row, column] = (word == "1", spot)
        elif field in _FIELDS:
            run.tables.setdefault(field, {})[row, column] = (float(word), spot)
    return None


def _copies(run: _Run) -> Iterator[PeerCopy]:
    """A pair counts with the slower of its two directions, so both must be there."""
    seen = {*run.access, *(pair for cells in run.tables.values() for pair in cells)}
    for a, b in sorted({(min(pair), max(pair)) for pair in seen}):
        values: dict[str, float] = {}
        origin: dict[str, Evidence] = {}
        for field in _FIELDS:
            cells = run.tables.get(field, {})
            both = [cells[p] for p in ((a, b), (b, a)) if p in cells]
            if len(both) == 2:
                values[field], origin[field] = (max if field.endswith("_us") else min)(both, key=lambda cell: cell[0])
        told = [run.access[p] for p in ((a, b), (b, a)) if p in run.access]
        access = False if any(not can for can, _ in told) else True if len(told) == 2 else None
        if access is not None:
            origin["access"] = next(spot for can, spot in told if can is access)
        if not origin:
            continue
        (a_name, a_bdf), (b_name, b_bdf) = run.devices.get(a, (None, None)), run.devices.get(b, (None, None))
        yield PeerCopy(
            a=a,
            b=b,
            a_bdf=a_bdf,
            b_bdf=b_bdf,
            a_name=a_name,
            b_name=b_name,
            access=access,
            origin={**origin, "*": next(iter(origin.values()))},
            **values,
        )


def _rates(copy: PeerCopy) -> Iterator[PairRate]:
    """What may be held against other pairs. Without access the two headings measure the same thing."""
    if copy.access is False:
        field = "off_gbs" if copy.off_gbs is not None else "on_gbs"
        yield from _rate(copy, field, STAGED)
        return
    for field, without, what in _RATES:
        on: float | None = getattr(copy, field)
        off: float | None = getattr(copy, without)
        if copy.access is None and on is not None and off is not None and on < _NEAR * off:
            continue
        yield from _rate(copy, field, what)


def _rate(copy: PeerCopy, field: str, what: str) -> Iterator[PairRate]:
    rate: float | None = getattr(copy, field)
    if rate is not None:
        yield PairRate(
            a=copy.a,
            b=copy.b,
            gbs=rate,
            what=what,
            a_bdf=copy.a_bdf,
            b_bdf=copy.b_bdf,
            a_name=copy.a_name,
            b_name=copy.b_name,
            origin={"*": copy.at(field)},
        )
