"""The network among the ways that NCCL chose: between hosts, and where it should not be, within one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.checkers.nccl_causes import GDR_OFF, SOCKET_FALLBACK, SPLIT_HOST
from gpudoctor.checkers.nccl_view import Ranks, between, gpu_of, inside, named
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.nccl import Nccl, NcclComm, kind_of
from gpudoctor.facts.store import FactView
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, WARNING, Evidence, Finding, Step
from gpudoctor.nccl_messages import family

# The kernel's own name of an interface over InfiniBand, and those that systemd gives by slot, bus or address.
_IPOIB = re.compile(r"ib(?:\d|[ops]\d|x[0-9a-f]{6})")

COST_TCP = "3 GB/s all-reduce instead of 28 over shared memory and 328 over NVLink, measured on two H200"


def seen_as(nccl: Nccl, comm: NcclComm, via: str) -> Evidence:
    """A line of the log that shows this kind of transport."""
    return nccl.seen.get(kind_of(via)) or comm.at("transports")


def sockets(ranks: Ranks, nccl: Nccl) -> Iterator[Finding]:
    """TCP within a host at any time, between hosts where an RDMA adapter is there."""
    comm = ranks.comm
    local = [(a, b) for a, b, names in inside(ranks) if names and all(v.startswith("NET/Socket") for v in names)]
    if local:
        off = [n for n in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE") if n in comm.env]
        reason = f" Set are {', '.join(f'{n}={comm.env[n]}' for n in off)}." if off else " Neither peer to peer nor shared memory was possible between them."
        set_ = tuple(nccl.settings[n, comm.env[n]] for n in off if (n, comm.env[n]) in nccl.settings)
        yield Finding(
            SOCKET_FALLBACK.slug, ERROR, "host",
            f"Ranks {named(local)} run on one host and talk over TCP.{reason}",
            (seen_as(nccl, comm, "NET/Socket/0"), *set_),
            CERTAIN if comm.nnodes == 1 else LIKELY, COST_TCP,
            (
                *((Step("Remove the settings", "unset " + " ".join(off), "reversible"),) if off else ()),
                Step("Containers of one host: share host name, /dev/shm and network", "docker run --ipc=host --uts=host --network=host IMAGE", "reversible", "NCCL_DEBUG=INFO shows `via P2P` or `via SHM`"),
            ),
        )  # fmt: skip
    far = [t for t in between(ranks) if t.via.startswith("NET/Socket")]
    chosen = any(p.network == "Socket" for p in comm.procs)
    if not (far or (chosen and not comm.transports and comm.nnodes != 1)):
        return
    nics = next((p.nics for p in comm.procs if p.nics), ())
    names = [w.split(":")[0] for p in comm.procs for w in (p.address or "", *p.interfaces)]
    ipoib = next((n for n in names if _IPOIB.match(n)), None)
    closed = [m for m in comm.messages if m.family == "ib-open"]
    if not nics and ipoib is None and not closed:
        yield from _without_plugin(comm)
        return
    shut = ", ".join(dict.fromkeys(m.fields["nic"] for m in closed if "nic" in m.fields)) or "one"
    what = (
        f"RDMA devices are listed ({', '.join(nics[:4])})" if nics
        else f"there is an RDMA device ({shut}), which it cannot open" if closed
        else f"the interface {ipoib} belongs to an InfiniBand adapter"
    )  # fmt: skip
    off = [n for n in ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA") if n in comm.env and comm.env[n] != "0"]
    seen = (nccl.seen.get("NET/Socket") if far else None, nccl.seen.get("network Socket"), nccl.seen.get("nics"), *(m.at("text") for m in closed[:2]))
    yield Finding(
        SOCKET_FALLBACK.slug, WARNING, "host",
        f"NCCL goes over TCP between hosts although {what}." + (f" Set are {', '.join(f'{n}={comm.env[n]}' for n in off)}." if off else ""),
        tuple(e for e in seen if e) or (comm.at("transports"),),
        LIKELY if far or comm.nnodes else POSSIBLE, None,
        (
            Step("See whether the adapters answer where the job runs", "ibv_devinfo; ls /dev/infiniband"),
            Step("Give the container the adapters", "docker run --device=/dev/infiniband --ulimit memlock=-1 IMAGE", "reversible", "NCCL_DEBUG=INFO shows `Using network IB`"),
        ),
    )  # fmt: skip


def _without_plugin(comm: NcclComm) -> Iterator[Finding]:
    """A vendor's plug-in is installed and found no device: by design on a host without one, the reason for TCP on any other."""
    told = [m for m in comm.messages if m.family == "ofi-absent"]
    known = family("ofi-absent") if told else None
    if known is not None:
        yield Finding(
            SOCKET_FALLBACK.slug, NOTE, "host", f"NCCL goes over TCP between hosts. {known.meaning}", tuple(m.at("text") for m in told[:2]), POSSIBLE,
            remediation=(Step(known.remedy),),
        )  # fmt: skip


def split(ranks: Ranks) -> Iterator[Finding]:
    """Ranks with one address and different GPUs, more of them than each counts as local."""
    comm = ranks.comm
    machines: dict[str, list[int]] = {}
    for number in ranks.rank:
        address = ranks.address(number)
        if address is not None:
            machines.setdefault(address, []).append(number)
    over_network = {(t.a, t.b) for t in comm.transports if t.via.startswith("NET/")}
    for members in machines.values():
        local = [ranks.rank[n].local_ranks for n in members]
        counted = max((n for n in local if n is not None), default=None)
        hosts = sorted({str(ranks.proc[n].host) for n in members})
        if counted >= len(members) if counted is not None else len(hosts) < 2:  # asked first: nearly always so
            continue
        pairs = [(a, b) for a in members for b in members if a < b][:2000]
        apart = over_network & set(pairs)
        if not pairs or counted is None and not apart or not all(ranks.same_machine(a, b) for a, b in pairs):
            continue
        off = [n for n in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE") if n in comm.env]
        if len(hosts) > 1:
            reason = f"Their host names differ ({', '.join(hosts[:4])})."
            step = Step(
                "Give the containers of one machine one host name, or one id",
                "docker run --uts=host --ipc=host IMAGE   # or: export NCCL_HOSTID=$(hostname of the machine)",
                "reversible",
                "the log then says nNodes 1",
            )
        elif "NCCL_SHM_DISABLE" in off:
            reason = f"Neither peer to peer nor shared memory is left to them ({', '.join(f'{n}={comm.env[n]}' for n in off)})."
            step = Step("Remove the settings", "unset " + " ".join(off), "reversible", "the log then says nNodes 1")
        else:
            reason = "Each seems to have a /dev/shm of its own."
            step = Step("Share /dev/shm between the containers of one machine", "docker run --ipc=host IMAGE", "reversible", "the log then says nNodes 1")
        some = ranks.rank[members[0]]
        yield Finding(
            SPLIT_HOST.slug, ERROR, "host",
            f"Ranks {', '.join(map(str, members[:12]))} run on one machine (address {ranks.address(members[0])}, different GPUs), "
            f"but NCCL counts {comm.nnodes or 'several'} nodes. {reason}",
            (some.at("nnodes"), ranks.rank[members[1]].at("nnodes")), LIKELY, COST_TCP, (step,),
        )  # fmt: skip


def gpudirect(ranks: Ranks, nccl: Nccl, facts: FactView) -> Iterator[Finding]:
    """RDMA between hosts that goes through host memory, on parts that could do without."""
    comm = ranks.comm
    far = [t.via for t in between(ranks) if not t.via.startswith("NET/Socket")]
    direct = [v for v in far if "GDRDMA" in v]
    told = {name: can for p in comm.procs for name, can in p.gdr.items()}
    off = [name for name, can in told.items() if not can]
    network = next((p.network for p in comm.procs if p.network), None)
    if far and direct or comm.nnodes == 1 or network == "Socket" or not (far or (off and len(off) == len(told))):
        return
    gpus = [g for n, r in ranks.rank.items() if (g := gpu_of(r, ranks.home(n, facts).get(Gpus))) is not None]
    if gpus and all(g.name and "GeForce" in g.name for g in gpus):
        return  # GeForce has no GPUDirect RDMA
    message = next((m for m in comm.messages if "GPU Direct RDMA Disabled" in m.text), None)
    evidence = [nccl.seen[kind_of(far[0])]] if far and kind_of(far[0]) in nccl.seen else []
    evidence += [e for e in (nccl.seen.get("gdr off"), message.at("text") if message else None) if e]
    setting = next((n for n in ("NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL") if comm.env.get(n) in ("LOC", "0")), None)
    what = f"NCCL says that the adapters {', '.join(off[:4])} cannot do it." if off else "The connections lack the suffix /GDRDMA."
    if setting:
        what += f" {setting}={comm.env[setting]} forbids it."
    able = bool(told) and not off and setting is None
    if able:
        what += f" The adapters can ({', '.join([*told][:4])}): the GPU is too far from them for NCCL, or its part has no GPUDirect RDMA (DGX Spark)."
    yield Finding(
        GDR_OFF.slug, WARNING, "host",
        f"Traffic between hosts is copied through host memory: GPUDirect RDMA is not in use. {what}",
        tuple(evidence) or (comm.at("transports"),), LIKELY if off or setting else POSSIBLE, "roughly half the adapter's rate on large messages",
        (
            Step("See how far each GPU is from the adapters: farther than PXB NCCL copies through the host", "nvidia-smi topo -m"),
            Step("Where the way is short enough in fact: allow it, and measure", "export NCCL_NET_GDR_LEVEL=PHB", "reversible", "all_reduce_perf -b 1G -e 1G"),
        ) if able else (
            Step("Is the module there, and of this driver?", "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'; cat /sys/module/nvidia_peermem/version"),
            Step("Load it", "sudo modprobe nvidia_peermem", "reversible", "NCCL_DEBUG=INFO shows /GDRDMA"),
        ),
    )  # fmt: skip
