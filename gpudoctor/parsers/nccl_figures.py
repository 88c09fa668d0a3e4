"""NCCL lines of numbers: channel counts, what its search found, the topology it saw, how long the start took."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from gpudoctor.parsers.nccl_complaints import Where
from gpudoctor.parsers.nccl_process import Seen
from gpudoctor.parsers.nccl_state import NO_RANK, Comm, Proc
from gpudoctor.read.compiled import timings
from gpudoctor.read.nccl_silent import CALLS, OPCOUNT

if TYPE_CHECKING:
    from gpudoctor.read._lines import Timings

_CHANNELS = re.compile(rb"(\d+) coll channels, (?:\d+ collnet channels, )?(?:(\d+) nvls channels, )?(\d+) p2p channels")
_PATTERN = re.compile(
    rb"Pattern (\d+), crossNic \d+, nChannels (\d+), (?:bw|speed) (\d+(?:\.\d+)?)/(\d+(?:\.\d+)?), (?:nvlink \d+, )?type (\w+)/(\w+), sameChannels"
)
_SYSTEM_NVL = re.compile(rb"\+ NVL\[ *(\d+(?:\.\d+)?)\] - ")
# A GPU's own link; since 2.30 the PCI device stands before the GPU, with its vendor.
_SYSTEM_PCI = re.compile(rb"\+ PCI\[ *(\d+(?:\.\d+)?)\] - (?:GPU/(?:[0-9a-fA-F]+-)?([0-9a-fA-F]+) \(-?\d+\)|DEV/(?:[0-9a-fA-F]+-)?([0-9a-fA-F]+) \(10de)")
# The table of NCCL's model (NCCL_DEBUG_SUBSYS=TUNING), printed by rank 0: a head with algorithms, three protocols each, and
# a row for each collective with latency in microseconds and bandwidth in GB/s.
_TUNING_HEAD = re.compile(rb" *Algorithm +\|((?: +[A-Za-z]\w* +\|)+)[ \r]*\n")
# Up to 2.17 algorithm and protocol stand in each cell of the head.
_OLD_HEAD = re.compile(rb"Latency/AlgBw \|((?: +[A-Za-z]\w*/ *(?:LL|LL128|Simple) \|)+)[ \r]*\n")
_TUNING_ROW = re.compile(rb" *(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce) \|((?: *\d+(?:\.\d+)?/ *\d+(?:\.\d+)? ?\|)+)[ \r]*\n")
_TUNING_CELL = re.compile(rb"(\d+(?:\.\d+)?)/ *(\d+(?:\.\d+)?) ?\|")
_PROTOCOLS = ("LL", "LL128", "Simple")
_PATHS = re.compile(rb"GPU/(?:[0-9a-fA-F]+-)?([0-9a-fA-F]+) \(\d+/ *(\d+(?:\.\d+)?)/(\w+)\)")
_PATHS_OF = re.compile(rb"GPU/(?:[0-9a-fA-F]+-)?([0-9a-fA-F]+) :")
_TIMINGS = re.compile(rb"Init timings(?: - \w+)?: rank (\d+) nranks (\d+) total (\d+(?:\.\d+)?) \(([^)]*)\)")

# What NCCL chose for a call of so many bytes, printed by rank 0 (subsystem TUNING): by number up to 2.23 (2.20 to 2.22 without
# the collective), by name since 2.24; since 2.27 kernels for registered memory and copies without a kernel have lines of their own.
_CHOICE = re.compile(
    rb"(?:([A-Z][A-Za-z]+)(?: \[([A-Z][A-Za-z ]+)\])?: )?(\d{1,18}) Bytes -> "
    rb"(?:Algo (\w+) proto (\w+) (?:channel\{|time )|Kernel (\w+) nchannels |(?:cudaMemcpy|RMA proxy)[^\n]*\n)"
)
_CALL = re.compile(rb"\w+: opCount [0-9a-f]+ sendbuff \S+ recvbuff \S+ count \d+ datatype \d+ op \d+ root -?\d+ comm (0x[0-9a-f]+) \[nranks=(\d+)\] stream")
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")  # by number, 2.14 and later
_BY_NAME = {name.upper(): name for name in (*_ALGORITHMS, *_PROTOCOLS)}
_MAX_CHOICES = 256  # kinds, not calls

MAX_LINKS = 1024  # GPUs of one host, and more


def figures(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    """Lines of numbers: topology and path dumps, choices of a release that names no collective."""
    if b" Bytes -> " in message:
        _choice(proc, message)
    elif b" | " in message:
        _tuning(proc, message, seen, where)
    elif proc.figures_again(message):
        return
    elif message.startswith(b"GPU/"):
        of = _PATHS_OF.match(message)
        if of is not None and not proc.paths_full():
            for other, bandwidth, kind in _PATHS.findall(message):
                proc.path(of[1], other, bandwidth, kind)
                if kind in (b"PHB", b"SYS"):
                    seen.note("path " + kind.decode(), where)
    elif b"PCI[" in message:
        link = _SYSTEM_PCI.search(message)
        if link is not None and len(proc.pcie) < MAX_LINKS:
            bus = (link[2] or link[3]).decode().lower()
            proc.pcie[bus] = float(link[1])
            seen.note(f"pcie {bus}", where)
    elif b"NVL[" in message:
        nvl = _SYSTEM_NVL.search(message)
        if nvl is not None:
            proc.nvlink_gbs = max(proc.nvlink_gbs or 0.0, float(nvl[1]))


def counts(proc: Proc, message: bytes) -> None:
    """How many channels there are."""
    found = _channels(message)
    if found is not None:
        proc.channels = found
        comm = proc.current
        if comm is not None and comm.told_channels is None:
            comm.told_channels = found


@lru_cache(256)
def _channels(message: bytes) -> tuple[int, int | None, int] | None:
    """Every rank says the same."""
    found = _CHANNELS.match(message)
    return (int(found[1]), int(found[2]) if found[2] else None, int(found[3])) if found is not None else None


@lru_cache(64)
def _algorithms(message: bytes) -> tuple[str, ...] | None:
    """Of the head of a table; None for any other line of one."""
    head = _TUNING_HEAD.match(message)
    if head is not None:
        return tuple(name.decode() for name in re.findall(rb"\w+", head[1]))
    head = _OLD_HEAD.match(message)
    if head is None:
        return None
    cells = re.findall(rb"(\w+)/", head[1])
    names = tuple(dict.fromkeys(name.decode() for name in cells))
    return names if len(cells) == len(names) * len(_PROTOCOLS) else ()


def _tuning(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    """Cells stand under the head before them; a row of another width is not read."""
    head = _algorithms(message)
    if head is not None:
        proc.tuned = head
        return
    if proc.figures_again((proc.tuned, message)):
        return
    row = _TUNING_ROW.match(message)
    cells = _TUNING_CELL.findall(row[2]) if row is not None else []
    if row is None or len(cells) != len(proc.tuned) * len(_PROTOCOLS):
        return
    for place, (latency, bandwidth) in enumerate(cells):
        if float(bandwidth) > 0:
            algorithm, protocol = proc.tuned[place // len(_PROTOCOLS)], _PROTOCOLS[place % len(_PROTOCOLS)]
            proc.tuning[row[1].decode(), algorithm, protocol] = (float(latency), float(bandwidth))
    seen.note("tuning", where)


def _choice(proc: Proc, message: bytes) -> None:
    """The smallest and the largest size of each choice: a job may call with a million sizes."""
    found = _CHOICE.match(message)
    if found is None:
        return
    collective = found[1].decode() if found[1] else None
    algorithm = _named(found[4], _ALGORITHMS) if found[4] else (found[2] or b"").decode()
    protocol = _named(found[5], _PROTOCOLS) if found[5] else found[6].decode() if found[6] else None
    if not algorithm or protocol == "":
        return
    size, key = int(found[3]), (collective, algorithm, protocol)
    low, high = proc.choices.get(key, (size, size))
    if key in proc.choices or len(proc.choices) < _MAX_CHOICES:
        proc.choices[key] = (min(low, size), max(high, size))


def _named(word: bytes, names: tuple[str, ...]) -> str:
    """As the table of NCCL's model names it; empty for a number that no release has."""
    if word.isdigit():
        return names[int(word)] if int(word) < len(names) else ""
    return _BY_NAME.get(word.decode().replace("_", ""), word.decode())


def _call(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    if OPCOUNT in message:
        _of_call(proc, message, where)
    elif b" Bytes -> " in message:
        _choice(proc, message)
    else:
        _tuning(proc, message, seen, where)


def _of_call(proc: Proc, message: bytes, where: Where) -> None:
    """A call (subsystem COLL) names its communicator and the size of it: all there is in an excerpt without its start."""
    found = _CALL.match(message) if not proc.all else None
    if found is not None:
        comm = Comm(found[1].decode(), NO_RANK, int(found[2]), 0)
        comm.where = where()
        proc.begin(comm.pointer, comm)


def _pattern(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    found = _PATTERN.match(message)
    if found is not None:
        proc.graph(found.groups())
        seen.note(f"graph {int(found[1])}", where)


def _timings(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    told = timings(message) or _timings_of(message)
    comm = proc.current
    if told is None or comm is None:
        return
    rank, nranks, seconds, parts = told
    if comm.rank != rank or comm.nranks != nranks:
        comm = proc.of_rank(rank, nranks) or comm
    comm.init_seconds = float(seconds)
    comm.init_said = parts


def _timings_of(message: bytes) -> Timings | None:
    found = _TIMINGS.match(message)
    return (int(found[1]), int(found[2]), found[3], found[4].decode("utf-8", "replace")) if found is not None else None


def _nvls(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    if message.startswith(b"NVLS comm ") and proc.current is not None:
        proc.current.nvls = True


# By the first characters of the message.
READERS: dict[bytes, Callable[[Proc, bytes, Seen, Where], None]] = {
    b"Patte": _pattern, b"Init ": _timings, b"NVLS ": _nvls, b"Laten": _tuning, **dict.fromkeys(CALLS, _call),
}  # fmt: skip
