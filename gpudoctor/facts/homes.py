"""Which machine of the input a host of NCCL's log is: by name, else by what only one of them can be.

A log of a job names many hosts, and the input may hold outputs of some. A snapshot has a stand-in for its name, and
plain outputs have none: those are told by bus ids, NVML's numbers and the driver, and only where nothing else fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.nccl import Nccl, NcclProc, bdf_of
from gpudoctor.facts.store import STAND_IN, FactStore, Homes, short
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.model import Missing

_SHOWN = 6


def lend_kills(stores: Sequence[FactStore]) -> None:
    """What the kernels of named hosts say of processes that they ended goes to the log that names those hosts: it is told by both."""
    kills = [k for s in stores if s.named for k in (s.get(MemoryKills) or MemoryKills(())).kills if k.host is not None]
    for store in stores:
        if kills and Nccl in store and not (store.named and MemoryKills in store):
            own = store.get(MemoryKills)
            store.put(MemoryKills(tuple(dict.fromkeys((*(own.kills if own is not None else ()), *kills)))))


class _Machine:
    """Hosts of the log that are one machine: one name, or containers that share an address or memory."""

    def __init__(self, name: str) -> None:
        self.names = [name]
        self.gpus: dict[str, set[int]] = {}  # address -> NVML's numbers
        self.cuda: set[int] = set()
        self.addresses: set[str] = set()

    def learn(self, proc: NcclProc) -> None:
        for rank in proc.ranks:
            bdf = bdf_of(rank.bus_id)
            if bdf is not None:
                self.gpus.setdefault(bdf, set()).update(() if rank.nvml_dev is None else (rank.nvml_dev,))
        if proc.cuda_driver is not None:
            self.cuda.add(proc.cuda_driver)
        if proc.ip is not None:
            self.addresses.add(proc.ip)

    def take(self, other: _Machine) -> None:
        self.names += other.names
        self.gpus.update(other.gpus)
        self.cuda |= other.cuda
        self.addresses |= other.addresses

    def fits(self, store: FactStore) -> bool:
        """Has this store every GPU that the log saw, under the same number, and the same driver?"""
        gpus, driver = store.get(Gpus), store.get(Driver)
        if gpus is None or not self.gpus:
            return False
        for bdf, numbers in self.gpus.items():
            gpu = gpus.by_bdf(bdf)
            if gpu is None or gpu.index is not None and numbers and gpu.index not in numbers:
                return False
        found = re.match(r"(\d+)\.(\d+)", (driver.entry.cuda_version if driver is not None else None) or "")
        return found is None or not self.cuda or int(found[1]) * 1000 + int(found[2]) * 10 in self.cuda


def settle(stores: Sequence[FactStore]) -> Iterator[Missing]:
    """Give every store with a log the machines that its hosts are, and say which could not be found."""
    known = [s for s in stores if any(kind in s for kind in (Gpus, Pairs, NvLinks))]
    for store in stores if known else ():
        nccl = store.get(Nccl)
        if nccl is None:
            continue
        machines = _machines(nccl)
        names = [n for m in machines for n in m.names]
        if known == [store] and len(machines) < 2:
            continue  # one machine in the log, one in the input: whatever their names, there is no other
        if not names:
            if known != [store]:
                store.homes = Homes({}, {}, "the log does not name the hosts of its ranks, and the input has outputs of several")
            continue
        homes, reasons = _settled(machines, stores, known)
        store.homes = Homes(homes, reasons, "its log line does not name the host")
        by_reason: dict[str, list[str]] = {}
        for name, reason in reasons.items():
            by_reason.setdefault(reason, []).append(name)
        for reason, hosts in by_reason.items():
            yield Missing(f"the GPUs of {_listed(hosts)}, which NCCL's log names", reason, "nvidia-smi topo -m; nvidia-smi -q -x")


def _machines(nccl: Nccl) -> list[_Machine]:
    by_name: dict[str, _Machine] = {}
    for proc in nccl.procs:
        if proc.host is not None:
            by_name.setdefault(short(proc.host), _Machine(proc.host)).learn(proc)
    direct: dict[str, set[str]] = {}
    for comm in nccl if len(by_name) > 1 else ():
        host_of = {n: short(p.host) for n, p, _ in comm.members() if p.host is not None}
        for t in comm.transports:
            a, b = host_of.get(t.a), host_of.get(t.b)
            if a is not None and b is not None and a != b and t.via.startswith(("SHM", "P2P/")) and "MNNVL" not in t.via:
                direct.setdefault(b, set()).add(a)
    out: dict[str, _Machine] = {}
    at: dict[str, _Machine] = {}  # by address
    for name, machine in by_name.items():
        near = [at.get(a) for a in machine.addresses] + [out.get(o) for o in direct.get(name, ())]
        # The same GPU under two names: two machines that share an address, as virtual ones behind one host do.
        same = next((m for m in near if m is not None and not m.gpus.keys() & machine.gpus.keys()), None)
        if same is None:
            out[name] = machine
        else:
            same.take(machine)
            out[name] = same
        at.update(dict.fromkeys(machine.addresses, out[name]))
    return list(dict.fromkeys(out.values()))


def _settled(
    machines: Iterable[_Machine], stores: Sequence[FactStore], known: Sequence[FactStore]
) -> tuple[dict[str, FactStore], dict[str, str]]:
    homes: dict[str, FactStore] = {}
    reasons: dict[str, str] = {}
    named = {short(s.host): s for s in stores if s.named and s.host is not None}
    left = []
    for machine in machines:
        home = next((named[short(n)] for n in machine.names if short(n) in named), None)
        if home is None:
            left.append(machine)
            continue
        homes.update(dict.fromkeys(machine.names, home))
        if home not in known:
            reasons.update(dict.fromkeys(machine.names, "the input has outputs of this host, but none that tells of its GPUs"))
    taken = set(map(id, homes.values()))
    # A host under its own name is no other; one under a stand-in, or under none, may be any.
    open_ = [s for s in known if id(s) not in taken and (not s.named or STAND_IN.match(s.host or ""))]
    fits = [[s for s in open_ if m.fits(s)] for m in left]
    claims: dict[int, list[str]] = {}  # a machine of the input -> the hosts of the log that it may be
    for machine, mine in zip(left, fits, strict=True):
        for store in mine:
            claims.setdefault(id(store), []).append(machine.names[0])
    for machine, mine in zip(left, fits, strict=True):
        if len(mine) == 1 and len(claims[id(mine[0])]) == 1:
            homes.update(dict.fromkeys(machine.names, mine[0]))
        else:
            rivals = list(dict.fromkeys(n for s in mine for n in claims[id(s)]))
            reasons.update(dict.fromkeys(machine.names, _why(machine, mine, rivals, open_)))
    return homes, reasons


def _why(machine: _Machine, mine: Sequence[FactStore], rivals: Sequence[str], open_: Sequence[FactStore]) -> str:
    tell = 'name the host where it is not named: "host" in a snapshot\'s manifest.json, a prompt (user@host:~#) above an output'
    if not open_:
        return "nothing in the input is of this host: add its snapshot or its outputs"
    which = _listed([s.host or "the outputs without a host's name" for s in mine or open_])
    if not machine.gpus:
        return f"the log gives no bus ids by which it could be told whether {which} is this host; {tell}"
    if not mine:
        return f"by bus ids and driver it is not {which}: add its snapshot or its outputs"
    return f"by bus ids and driver {_listed(rivals)} may {'each ' if len(rivals) > 1 else ''}be {which}; {tell}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
