"""What single NCCL lines say, gathered by process and communicator. Versions 2.3 to 2.32.

A line is accepted as it stands or not at all: every value must be followed by what NCCL prints after it, so a line
that was cut or broken by a terminal gives less, never something wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpudoctor.facts.nccl import Diagnostic, Nccl, NcclMessage, kind_of
from gpudoctor.model import Evidence
from gpudoctor.nccl_messages import HARMLESS, Family, classify
from gpudoctor.parsers.nccl_state import Comm, Pairs, Proc
from gpudoctor.record import replace

Where = Callable[[], tuple[int, str]]  # line number and text, found only where asked for
MAX_MESSAGES = 5000  # of one tier: each rank's echo is kept, and none of them takes the place of a cause
MAX_PROCS = 20_000

_WHO = re.compile(rb"(?:^|[\s>:\]|)])([A-Za-z0-9_][\w.-]*):(\d+)(?::(\d+))?(?: \[(-?\d+)\])? *$")
_ONLY_DEV = re.compile(rb"(?:^|\s)\[(-?\d+)\] *$")
# The part of a WARN or ATTN prefix behind the device: `transport/net.cc:12 (netInit) `.
_SOURCE = re.compile(rb" ?([\w./+-]+\.(?:cc|h|cu|c|cpp)):\d+(?: \([^)]*\))? *$")
_VIA = re.compile(
    rb"(?:[\d/]* ?: *)? *(\d+)\[([0-9a-f]+)\] -> (\d+)\[([0-9a-f]+)\] (?:\[(send|receive)\] )?via "
    rb"(P2P/(?:direct pointer|indirect/\d+\[[0-9a-f]+\]|IPC|CUMEM|MNNVL)(?:/(?:read|CE))*"
    rb"|SHM(?:/(?:direct|CE))+|direct shared memory"
    rb"|NET/[\w .+-]+/\d+(?:\(\d+\))?(?:/(?:GDRDMA(?:\(PCI\))?|Shared))*)"
    rb"(?: comm 0x[0-9a-f]+ nRanks \d+)? *\r?\n"
)
_RING = re.compile(rb"Channel 00/(\d+) : +\d+[ \d.]*\r?\n")
_COMM = re.compile(
    rb"(?:\[Rank \d+\] )?(?:\w+ )?comm (0x[0-9a-f]+|[0-9a-f]{6,}) (?:parent 0x[0-9a-f]+ )?(?:(?:splitCount|childCount) -?\d+ )?(?:color -?\d+ key -?\d+ )?"
    rb"rank (\d+) n[rR]\w*anks (\d+) (?:.*?cudaDev (\d+) )?(?:.*?nvmlDev (\d+) )?(?:.*?busId ([0-9a-f]+) )?(?:.*?commId (0x[0-9a-f]+) )?"
)
_NODES = re.compile(rb"nNodes (\d+) localRanks (\d+) localRank (\d+) ")
_STATE = re.compile(rb"- (Init|Destroy|Abort) ?(START|COMPLETE)\b")
_OLD_RANK = re.compile(rb"rank (\d+) nranks (\d+)\s")
_ENV = re.compile(rb"([A-Z][A-Z0-9_]+) set (?:by (?:environment|config)(?: file)? )?to (.*?)[ \r]*\n")
_VERSION = re.compile(rb"version (\d+\.\d+(?:\.\d+)?)(?:[^\d\s+.][^\s+]*)?(?:\+cuda[\d.]+\s|\s)")
_CHANNELS = re.compile(rb"(\d+) coll channels, (?:\d+ collnet channels, )?(?:(\d+) nvls channels, )?(\d+) p2p channels")
_PATTERN = re.compile(
    rb"Pattern (\d+), crossNic \d+, nChannels (\d+), (?:bw|speed) ([\d.]+)/([\d.]+), (?:nvlink \d+, )?type (\w+)/(\w+), sameChannels"
)
_SYSTEM_NVL = re.compile(rb"\+ NVL\[ *([\d.]+)\] - ")
_PATHS = re.compile(rb"GPU/(?:[0-9a-fA-F]+-)?([0-9a-fA-F]+) \(\d+/ *([\d.]+)/(\w+)\)")
_PATHS_OF = re.compile(rb"GPU/(?:[0-9a-fA-F]+-)?([0-9a-fA-F]+) :")
_TIMINGS = re.compile(rb"Init timings(?: - \w+)?: rank (\d+) nranks (\d+) total ([\d.]+) \(([^)]*)\)")
_CUDA = re.compile(rb"cudaDriverVersion (\d+)\s")
_PART = re.compile(rb"(\w+) (\d+\.\d+)")
_NICS = re.compile(rb"\[\d+\]([\w.-]+:\d+/\w+)(?=[ ;])")
_INTERFACES = re.compile(rb"\[\d+\]([\w.:@-]+:\[?[0-9a-fA-F.:%]+\]?<\d+>)")
_ADDRESS = re.compile(rb"Using (?:interface )?(?:\[\d+\])?([\w.@-]+:[0-9a-fA-F.:%]+)(?:<\d+>)?\s")
_GDR = re.compile(rb"GPU Direct RDMA (Enabled|Disabled) for HCA (\d+) '([^']+)'")
_GDR_OLD = re.compile(rb"GPU Direct RDMA (Enabled|Disabled) for GPU \S+ / HCA (\d+) \(distance")
_AFFINITY = re.compile(rb"(?:Setting affinity for GPU (\d+) to|Affinity for GPU (\d+) is) ([^\n(]*)")
_FORCED = re.compile(rb"\(GPU affinity = ([\d,-]+) ; CPU affinity = ([\d,-]+)\)")
_FABRIC = re.compile(rb"MNNVL busId \S+ fabric UUID \S+ cliqueId \S+ state (\d+) ")
# How lines begin that say nothing we keep: passed over before anything else is asked.
SILENT = frozenset(
    b"INFO " + word
    for word in (
        b"Trees", b"Tree ", b"Conne", b"threa", b"P2P C", b"CC Of", b"TUNER", b"PROFI", b"ENV/P", b"[Prox", b"proxy", b"Check", b"TOPO/", b"Topol",
        b"Alloc", b"Loade", b"Initi", b"Assig", b"RAS c", b"Enabl", b"Comm ", b"Launc", b"Memor", b"GIN/P", b"RMA/P",
        b"AllRe", b"AllGa", b"Reduc", b"Broad", b"Send:", b"Recv:",
    )
)
# Lines of level INFO whose words may be a family's; others are never complaints.
_INFO_TELLS = frozenset((b"P2P i", b"Could", b"peer ", b"ncclM", b"Call ", b"socke", b"Faile", b"cuMem", b"Mism", b"NVLin"))


class Heard:
    """A complaint and how often it came."""

    def __init__(self, message: NcclMessage) -> None:
        self.message = message
        self.times = 1


class NcclLog:
    """One source, read line by line; `facts` says what it came to."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.procs: dict[tuple[str | None, int | None, int | None], Proc] = {}
        self.messages: dict[tuple[object, ...], Heard] = {}
        self.settings: dict[tuple[str, str], tuple[int, str]] = {}
        self.seen: dict[str, tuple[int, str]] = {}
        self.diagnostics: dict[str, tuple[str, tuple[int, str]]] = {}
        self.pairs = Pairs()
        self.loose_version: str | None = None
        self.order = 0
        self._kept: dict[int, int] = {}  # messages by tier
        self._hosts: dict[int, set[str]] = {}
        self._vias: dict[bytes, tuple[str, str]] = {}
        self._who: dict[bytes, tuple[Proc, int | None]] = {}
        self._classified: dict[tuple[str, str | None], tuple[Family, dict[str, str]] | None] = {}
        handlers: dict[bytes, Callable[[Proc, int | None, bytes, Where], None]] = {
            b"Chann": self._channel, b"Ring ": self._channel, b"comm ": self._comm, b"ncclC": self._comm, b"[Rank": self._comm,
            b"NCCL_": self._env, b"CUDA_": self._env, b"NCCL ": self._version, b"Using": self._using, b"NET/I": self._ib,
            b"NET/S": self._socket, b"NET :": self._bootstrap, b"Boots": self._bootstrap, b"cudaD": self._driver, b"Patte": self._pattern,
            b"Setti": self._affinity, b"ncclT": self._affinity, b"MNNVL": self._mnnvl, b"Init ": self._timings,
            b"NVLS ": self._nvls, b"DMA-B": self._dma_buf, b"rank ": self._old_rank,
        }  # fmt: skip
        self._handlers = {b"INFO " + word: handler for word, handler in handlers.items()}

    def take(self, before: bytes, message: bytes, where: Where) -> bool:
        """One line, cut at its first `NCCL `. False where NCCL did not write it."""
        try:
            return self._take(before, message, where)
        except (ValueError, OverflowError):  # a number of five thousand digits, `1.2.3`: no line of NCCL's
            return True

    def _take(self, before: bytes, message: bytes, where: Where) -> bool:
        handler = self._handlers.get(message[:10])
        if handler is not None:
            known = self._who.get(before)
            proc, dev = known if known is not None else self._identify(before)
            handler(proc, dev, message[5:], where)
            return True
        if message.startswith(b"INFO "):
            if message[:10] not in SILENT:
                self._info(before, message[5:], where)
        elif message.startswith((b"WARN ", b"ATTN ", b"ABORT ")):
            self._warn(before, message, where)
        elif message.startswith(b"DIAG "):
            self._diag(message[5:], where)
        elif message.startswith(b"version "):
            self._bare_version(message)
            return False
        elif not message.startswith((b"CALL ", b"TRACE ")):
            # A framework's sentence: `NCCL error in: …, unhandled cuda error, NCCL version 2.29.3`.
            at = message.find(b"NCCL version ")
            if at >= 0:
                self._bare_version(message[at + 5 :])
            return False
        return True

    def _info(self, before: bytes, message: bytes, where: Where) -> None:
        """A line of level INFO that no handler has for its own."""
        known = self._who.get(before)
        proc, dev = known if known is not None else self._identify(before)
        key = message[:5]
        if key[:1] in b" +=0123456789G":
            self._figures(proc, message, where)
        if key in _INFO_TELLS or b"GPU Direct" in message:
            self._gdr(proc, message, where)
            self._complaint("INFO", proc, dev, None, message, where)
        elif b"Cuda failure" in message or b"not visible, assuming" in message:
            self._complaint("INFO", proc, dev, None, message, where)

    def _identify(self, before: bytes) -> tuple[Proc, int | None]:
        found = _WHO.search(before)
        dev: int | None = None
        if found is not None:
            host = found[1].decode("ascii", "replace")
            pid = int(found[2])
            dev = int(found[4]) if found[4] else None
            key: tuple[str | None, int | None, int | None] = (host, pid, None)
            if key not in self.procs:
                # Two writers may run into one line: `…Partitiovm:705:705 [0] NCCL`. The known name behind it is meant.
                if found.start(1) > 0:
                    host = next((h for h in self._hosts.get(pid, ()) if host.endswith(h)), host)
                key = (host, pid, None)
                self._hosts.setdefault(pid, set()).add(host)
        else:
            alone = _ONLY_DEV.search(before)
            dev = int(alone[1]) if alone else None
            key = (None, None, dev)
        proc = self.procs.get(key)
        if proc is None:
            if len(self.procs) >= MAX_PROCS:
                key = (None, None, None)
            proc = self.procs.setdefault(key, Proc(key[0], key[1]))
        if len(self._who) > 100_000:
            self._who.clear()
        self._who[before] = (proc, dev)
        return proc, dev

    def _note(self, kind: str, where: Where) -> None:
        """Remember where something was first seen."""
        if kind not in self.seen:
            self.seen[kind] = where()

    # --- connections

    def _channel(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _VIA.search(message, message.find(b" ") + 1)
        if found is None:
            ring = _RING.search(message)
            if ring is not None:
                proc.ring_channels = int(ring[1])
            return
        a, b = int(found[1]), int(found[3])
        if a == b:
            return
        known = self._vias.get(found[6])
        if known is None:
            via = _via(found[6])
            known = self._vias[found[6]] = (via, kind_of(via))
        via, kind = known
        own, other = (b, a) if found[5] == b"receive" else (a, b)
        devices = (found[2], found[4]) if own == a else (found[4], found[2])
        if proc.connect(own, other, devices, via, self.pairs):
            self._note(kind, where)

    # --- communicators

    def _comm(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _COMM.match(message)
        if found is None:
            return
        pointer, rank, nranks, cuda, nvml, bus, comm_id = found.groups()
        state = _STATE.search(message)
        what = (state[1] + b" " + state[2]) if state else b""
        comm = proc.comms.get(pointer)
        starts = what == b"Init START"
        if comm is None or (starts and (comm.started or comm.ended)) or (comm.ended and not what.startswith((b"Destroy", b"Abort"))) or comm.rank != int(rank):
            self.order += 1
            comm = Comm(pointer.decode(), int(rank), int(nranks), self.order)
            proc.begin(pointer, comm)
            comm.where = where()
        if cuda is not None:
            comm.cuda_dev = int(cuda)
        if nvml is not None:
            comm.nvml_dev = int(nvml)
        if bus is not None:
            comm.bus_id = bus.decode()
        if comm_id is not None:
            comm.comm_id = comm_id.decode()
        nodes = _NODES.search(message)
        if nodes is not None:
            comm.nnodes, comm.local_ranks, comm.local_rank = (int(n) for n in nodes.groups())
        if starts:
            comm.started = True
        elif what == b"Init COMPLETE":
            comm.completed = True
            proc.complete(comm)
        elif what.endswith(b"COMPLETE") and what:
            comm.ended = "destroy" if what.startswith(b"Destroy") else "abort"

    def _old_rank(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _OLD_RANK.match(message)
        if found is not None:
            self.order += 1
            comm = Comm("", int(found[1]), int(found[2]), self.order)
            comm.where = where()
            proc.begin(b"%d" % self.order, comm)

    def _figures(self, proc: Proc, message: bytes, where: Where) -> None:
        """Lines of numbers: channel counts, topology and path dumps."""
        if b" coll channels" in message:
            found = _CHANNELS.match(message)
            comm = proc.current
            if found is not None:
                proc.channels = (int(found[1]), int(found[2]) if found[2] else None, int(found[3]))
                if comm is not None and comm.channels is None:
                    comm.channels = proc.channels
        elif message.startswith(b"GPU/"):
            of = _PATHS_OF.match(message)
            if of is not None and not proc.paths_full():
                for other, bandwidth, kind in _PATHS.findall(message):
                    proc.path(of[1], other, bandwidth, kind)
                    if kind in (b"PHB", b"SYS"):
                        self._note("path " + kind.decode(), where)
        elif b"NVL[" in message:
            nvl = _SYSTEM_NVL.search(message)
            if nvl is not None:
                proc.nvlink_gbs = max(proc.nvlink_gbs or 0.0, float(nvl[1]))

    def _pattern(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _PATTERN.match(message)
        if found is not None:
            proc.graph(found.groups())
            self._note(f"graph {int(found[1])}", where)

    def _timings(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _TIMINGS.match(message)
        if found is None or proc.current is None:
            return
        comm = proc.of_rank(int(found[1]), int(found[2])) or proc.current
        comm.init_seconds = float(found[3])
        comm.init_parts = tuple((name.decode(), float(value)) for name, value in _PART.findall(found[4]))

    def _nvls(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        if message.startswith(b"NVLS comm ") and proc.current is not None:
            proc.current.nvls = True

    # --- process

    def _env(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _ENV.match(message)
        if found is None:
            return
        name, value = found[1].decode(), found[2].decode("utf-8", "replace")
        if value[-1:] == "." and value[:-1].lstrip("-").isdigit():
            value = value[:-1]
        proc.env[name] = value
        if (name, value) not in self.settings:
            self.settings[name, value] = where()

    def _version(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _VERSION.match(message, 5)
        if found is not None:
            proc.version = found[1].decode()

    def _bare_version(self, message: bytes) -> None:
        found = _VERSION.match(message)
        if found is not None:
            self.loose_version = found[1].decode()

    def _using(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        for words in (b"Using network ", b"Using internal Network ", b"Using internal network "):
            if message.startswith(words):
                name = message[len(words) :]
                if name.endswith(b"\n"):
                    proc.network = name.strip().decode("utf-8", "replace")
                    self._note("network " + proc.network, where)

    def _ib(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        if message.startswith(b"NET/IB : Using ["):
            found = _NICS.findall(message.partition(b"; OOB")[0])
            if found:
                proc.nics = tuple(n.decode() for n in found)
                self._note("nics", where)
        elif b"GPU Direct" in message:
            self._gdr(proc, message, where)
        elif b"using interface" in message.lower():
            self._bootstrap(proc, dev, message, where)

    def _gdr(self, proc: Proc, message: bytes, where: Where) -> None:
        if b"Direct RDMA Disabled" in message:
            self._note("gdr off", where)
        found = _GDR.search(message)
        if found is not None:
            name = found[3].decode("utf-8", "replace")
            proc.gdr[name] = proc.gdr.get(name, False) or found[1] == b"Enabled"
        else:
            old = _GDR_OLD.search(message)
            if old is not None:
                name = f"HCA {int(old[2])}"
                proc.gdr[name] = proc.gdr.get(name, False) or old[1] == b"Enabled"

    def _socket(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _INTERFACES.findall(message)
        if found:
            proc.interfaces = tuple(n.rsplit(b"<", 1)[0].decode("utf-8", "replace") for n in found)

    def _bootstrap(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _ADDRESS.search(message)
        if found is not None:
            proc.address = found[1].decode("utf-8", "replace")

    def _driver(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _CUDA.match(message)
        if found is not None:
            proc.cuda_driver = int(found[1])

    def _affinity(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _AFFINITY.search(message)
        if found is None:
            return
        index = int(found[1] or found[2])
        text = found[3].strip().decode("utf-8", "replace").rstrip(".")
        if text.startswith("empty"):
            both = _FORCED.search(message)
            text = f"forced {both[1].decode()} {both[2].decode()}" if both is not None else "empty"
            self._note(f"affinity {index}", where)
        proc.affinity[index] = text

    def _mnnvl(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        found = _FABRIC.match(message)
        if found is not None:
            proc.fabric_state = int(found[1])

    def _dma_buf(self, proc: Proc, dev: int | None, message: bytes, where: Where) -> None:
        if message.startswith(b"DMA-BUF is available"):
            proc.dma_buf = True

    # --- complaints

    def _warn(self, before: bytes, message: bytes, where: Where) -> None:
        file = None
        found = _SOURCE.search(before)
        if found is not None:
            file = found[1].decode("ascii", "replace")
            before = before[: found.start()]
        proc, dev = self._identify(before + b" ") if before not in self._who else self._who[before]
        self._complaint(message[:4].decode().strip(), proc, dev, file, message[5:], where)

    def _complaint(self, level: str, proc: Proc, dev: int | None, file: str | None, message: bytes, where: Where) -> None:
        said = message.decode("utf-8", "replace")
        text = said.strip()
        shape = (re.sub(r"\d+", "0", text[:200]), file)
        if shape in self._classified and self._classified[shape] is None:
            found = None
        else:
            found = classify(said[:1000], file)
            if len(self._classified) < 5000:
                self._classified[shape] = found
        if found is None and level == "INFO":
            return
        family, fields = found if found is not None else (None, {})
        key = (family.id if family else text[:120], id(proc), dev, file, tuple(sorted(fields.items())) if family else ())
        if key in self.messages:
            self.messages[key].times += 1
        elif self._kept.get(tier := family.tier if family else HARMLESS, 0) < MAX_MESSAGES:
            self._kept[tier] = self._kept.get(tier, 0) + 1
            spot = where()
            message_ = NcclMessage(
                family=family.id if family else "unknown",
                slug=family.slug if family else None,
                tier=tier,
                text=text,
                source=self.source,
                line=spot[0],
                level=level,
                host=proc.host,
                pid=proc.pid,
                dev=dev,
                file=file,
                fields=fields,
                origin={"*": self._spot(spot)},
            )
            self.messages[key] = Heard(message_)

    def _diag(self, message: bytes, where: Where) -> None:
        found = re.match(rb"\[([A-Z]+)\] +(.+)", message.strip())
        if found is not None and len(self.diagnostics) < 500:
            text = found[2].decode("utf-8", "replace")
            self.diagnostics.setdefault(text, (found[1].decode(), where()))

    # --- result

    def facts(self) -> Iterator[Nccl]:
        """Nothing where no line of NCCL's was seen."""
        if not (self.procs or self.messages or self.diagnostics or self.loose_version):
            return
        procs = list(self.procs.values())
        if not procs and (self.loose_version or self.diagnostics):
            procs = [Proc(None, None)]
        for proc in procs:
            if proc.version is None:
                proc.version = self.loose_version
        if self.pairs.full:
            # Told by one end before the limit and by the other after it: every pair counts once.
            for proc in procs:
                for comm in proc.all:
                    for (a, b), names in comm.transports.items():
                        for name in names:
                            self.pairs.count(comm.nranks, a, b, name)
        yield Nccl(
            procs=tuple(p.record(self.source, self._spot) for p in procs),
            messages=tuple(replace(h.message, times=h.times) for h in self.messages.values()),
            diagnostics=tuple(
                Diagnostic(status=status, text=text, origin={"*": self._spot(spot)})
                for text, (status, spot) in self.diagnostics.items()
            ),
            settings={key: self._spot(spot) for key, spot in self.settings.items()},
            seen={kind: self._spot(spot) for kind, spot in self.seen.items()},
            counts=self.pairs.counts(),
        )

    def _spot(self, spot: tuple[int, str]) -> Evidence:
        return Evidence(self.source, f"line {spot[0]}" if spot[0] else "version line", spot[1][:240])


def _via(raw: bytes) -> str:
    """As the contract writes it: without the proxy rank; the old words for shared memory are SHM."""
    if raw == b"direct shared memory":
        return "SHM"
    return re.sub(r"/(\d+)\(\d+\)", r"/\1", raw.decode("utf-8", "replace"))

