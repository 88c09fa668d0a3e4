"""What single NCCL lines say of a connection and of a communicator: read from the line alone, so that equal lines are read once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpudoctor.facts.nccl import kind_of
from gpudoctor.parsers.nccl_state import Comm, Connection
from gpudoctor.read.compiled import communicator
from gpudoctor.read.nccl_line import TRANSPORT

if TYPE_CHECKING:
    from gpudoctor.read._lines import Details, Named

_MAX_VIAS = 4096
_MORE = re.compile(r"(/\d+)\(\d+\)|/flush=\w+$")
_MAX_KNOWN = 16_384  # connections: those of a job of 4,096 ranks, made again for each of its communicators

_VIA = re.compile(
    rb"(?<!\d)(\d+)(?:\[([0-9a-f]+)\])? -> (\d+)(?:\[([0-9a-f]+)\])? (?:\[(send|receive)\] )?via "
    rb"(" + TRANSPORT + rb")(?: comm 0x[0-9a-f]+ nRanks \d+)?(?: ?(?:\[\d+m)? ?\[repeated \d+x across cluster\] ?(?:\[0m)?)? *\r?\n"  # Ray's words at its end
)
# The same before a transport that is known already.
_PAIR = re.compile(rb"Channel [\d/]* ?: *(\d+)\[([0-9a-f]+)\] -> (\d+)\[([0-9a-f]+)\](?: \[(send|receive)\])?")
_COMM = re.compile(
    rb"(?:\[Rank \d+\] )?(?:\w+ )?comm (0x[0-9a-f]+|[0-9a-f]{6,}) (?:parent 0x[0-9a-f]+ )?(?:(?:splitCount|childCount) -?\d+ )?(?:color -?\d+ key -?\d+ )?"
    rb"rank (\d+) n[rR]\w*anks (\d+) "
)
_STATE = re.compile(rb"- (Init|Destroy|Abort) ?(START|COMPLETE)\b")
_HEX = b"0123456789abcdef"
# The two forms of which a large job prints most, whole: many times faster than word by word.
_INIT = re.compile(
    rb"\w+ comm (0x[0-9a-f]+) rank (\d+) nranks (\d+) cudaDev (\d+) nvmlDev (\d+) busId ([0-9a-f]+) commId (0x[0-9a-f]+) - (Init (?:START|COMPLETE))\r?\n"
)
_NODES = re.compile(rb"comm (0x[0-9a-f]+) rank (\d+) nRanks (\d+) nNodes (\d+) localRanks (\d+) localRank (\d+) MNNVL \d+\r?\n")


class Connections:
    """Reads lines of channels; remembers transports and connections, of which there are few."""

    def __init__(self) -> None:
        self._vias: dict[bytes, tuple[tuple[str], str]] = {}
        self.of_rccl = False  # which puts its communicator behind every transport
        self.known: dict[bytes, Connection] = {}

    def read(self, message: bytes, told: bytes) -> Connection | None:
        """told: the message without its channel, which may be all that two lines differ in, as which it becomes known."""
        found = self._read(message)
        if found is not None and len(self.known) < _MAX_KNOWN:
            self.known[told] = found
        return found

    def _read(self, message: bytes) -> Connection | None:
        pair, _, rest = message.partition(b" via ")
        known = self._vias.get(rest)
        found = _PAIR.fullmatch(pair) if known is not None else None
        if found is None or known is None:
            found = _VIA.search(message, message.find(b" ") + 1)
            if found is None:
                return None
            via = _via(found[6])
            self.of_rccl |= b" nRanks " in rest
            known = ((via,), kind_of(via))
            if found.start(6) == len(message) - len(rest) and found.end() == len(message) and len(self._vias) < _MAX_VIAS:
                self._vias[rest] = known
        a, b = int(found[1]), int(found[3])
        if a == b:
            return None
        here, there = found[2] or b"", found[4] or b""  # NCCL 2.4 names no devices of a connection over the network
        if found[5] == b"receive":
            a, b, here, there = b, a, there, here
        return Connection(a, b, (a, b) if a < b else (b, a), (here, there), *known)


def _via(raw: bytes) -> str:
    """As the contract writes it: without the proxy rank and, since 2.31, the receiver's way to flush; the old words for shared memory are SHM."""
    if raw == b"direct shared memory":
        return "SHM"
    return _MORE.sub(r"\1", raw.decode("utf-8", "replace"))


def named(message: bytes) -> Named | None:
    """A line that names a communicator."""
    found = communicator(message)
    return found if found is not None else _named(message)


def _named(message: bytes) -> Named | None:
    if message.startswith(b"comm "):
        found = _NODES.fullmatch(message)
        if found is not None:
            return found[1].decode(), int(found[2]), int(found[3]), b"", (int(found[4]), int(found[5]), int(found[6]))
    else:
        found = _INIT.fullmatch(message)
        if found is not None:
            pointer, rank, nranks, cuda, nvml, bus, comm_id, what = found.groups()
            return pointer.decode(), int(rank), int(nranks), what, (int(cuda), int(nvml), bus.decode(), comm_id.decode(), (cuda, nvml, bus))
    found = _COMM.match(message)
    if found is None:
        return None
    state = _STATE.search(message, found.end())
    what = (state[1] + b" " + state[2]) if state else b""
    return found[1].decode(), int(found[2]), int(found[3]), what, message[found.end() :]


def describe(comm: Comm, details: Details) -> None:
    """What stands behind rank and size."""
    if isinstance(details, bytes):
        _describe(comm, details)
        comm.devices = None
    elif len(details) == 5:
        comm.cuda_dev, comm.nvml_dev, comm.bus_id, comm.comm_id, comm.devices = details
    else:
        comm.nnodes, comm.local_ranks, comm.local_rank = details


def _describe(comm: Comm, message: bytes) -> None:
    """Every name with what follows it. The last word may be cut."""
    words = message.split(b" ")
    fields = dict(zip(words, words[1:-1], strict=False))
    if fields.get(b"cudaDev", b"").isdigit():
        comm.cuda_dev = int(fields[b"cudaDev"])
    if fields.get(b"nvmlDev", b"").isdigit():
        comm.nvml_dev = int(fields[b"nvmlDev"])
    bus, comm_id = fields.get(b"busId"), fields.get(b"commId")
    if bus and not bus.strip(_HEX):
        comm.bus_id = bus.decode()
    if comm_id is not None and comm_id[:2] == b"0x" and not comm_id[2:].strip(_HEX):
        comm.comm_id = comm_id.decode()
    if b"nNodes" in fields:
        nodes = fields[b"nNodes"], fields.get(b"localRanks", b""), fields.get(b"localRank", b"")
        if all(n.isdigit() for n in nodes):
            comm.nnodes, comm.local_ranks, comm.local_rank = (int(n) for n in nodes)
