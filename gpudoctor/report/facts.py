"""Stores to the `facts` object of the contract: plain dicts, every entry with all its keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpudoctor.facts.bandwidth import (
    Bandwidth,
    BandwidthRun,
    HostCopies,
    HostCopy,
    PairRate,
    PairRates,
    PeerCopies,
    PeerCopy,
)
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.facts.outcomes import ToolTests
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import Nic, Nics, NvLink, NvLinks, Pair, Pairs
from gpudoctor.report.hang import nccl_entries
from gpudoctor.report.nccl_choices import rows as choices

Json = dict[str, Any]


def facts_json(stores: Iterable[FactStore]) -> Json:
    """One object; with several hosts every entry carries `host`. A family without a source is absent."""
    stores = tuple(stores)
    out: Json = {}
    for store in stores:
        mark = {"host": store.host} if len(stores) > 1 else {}
        for family, entries in _families(store).items():
            out.setdefault(family, []).extend({**entry, **mark} for entry in entries)
    return out


def _families(store: FactStore) -> dict[str, list[Json]]:
    out: dict[str, list[Json]] = {}
    gpus, pairs, nics = store.get(Gpus), store.get(Pairs), store.get(Nics)
    tree, links, log = store.get(PciTree), store.get(NvLinks), store.get(KernelLog)
    if gpus is not None:
        out["gpus"] = [_gpu(g) for g in gpus if not (g.unnamed and g.uuid is None)]
    if pairs is not None:
        out["pairs"] = [_pair(p) for p in pairs]
    if nics is not None:
        out["nics"] = [_nic(n) for n in nics]
        out["nic_paths"] = [{"gpu": p.gpu, "nic": p.nic, "path": p.path} for p in nics.paths]
    if tree is not None:
        out["pci"] = [_pci(d) for d in tree]
    if links is not None:
        out["nvlinks"] = [_nvlink(x) for x in links]
    nccl = store.get(Nccl)
    hung = nccl_entries(store)
    if nccl is not None or hung:
        out["nccl"] = [*(_nccl(c) for c in nccl or ()), *hung]
    measured, rates, copies = store.get(Bandwidth), store.get(PairRates), store.get(HostCopies)
    if measured is not None:
        out["bandwidth"] = [_bandwidth(r) for r in measured]
    if rates is not None:
        out["pair_bandwidth"] = [_pair_rate(r) for r in rates]
    peers = store.get(PeerCopies)
    if peers is not None:
        out["peer_copies"] = [_peer_copy(c) for c in peers]
    if copies is not None:
        out["host_copies"] = [_host_copy(c) for c in copies]
    tested = store.get(ToolTests)
    if tested is not None:
        out["tool_tests"] = [
            {"tool": t.tool, "test": t.test, "gpu": t.gpu, "status": t.status, "messages": list(t.messages)} for t in tested
        ]
    if log is not None:
        counts: dict[tuple[str | None, int], int] = {}
        for event in log.of("xid"):
            if event.code is not None:
                counts[event.bdf, event.code] = counts.get((event.bdf, event.code), 0) + 1
        out["xid"] = [{"bdf": bdf, "code": code, "count": n} for (bdf, code), n in counts.items()]
    return out


def _gpu(gpu: Gpu) -> Json:
    return {
        "index": gpu.index,
        "bdf": gpu.bdf,
        "name": gpu.name,
        "device_id": gpu.device_id,
        "numa_node": gpu.numa_node,
        "cpu_affinity": gpu.cpu_affinity,
        "pcie": {
            "speed_gts": gpu.speed_gts,
            "max_speed_gts": gpu.max_speed_gts,
            "width": gpu.width,
            "max_width": gpu.max_width,
        },
    }


def _pair(pair: Pair) -> Json:
    return {
        "a": pair.a,
        "b": pair.b,
        "path": pair.path,
        "nvlinks": pair.nvlinks,
        "p2p": {
            "read": pair.p2p_read,
            "write": pair.p2p_write,
            "nvlink": pair.p2p_nvlink,
            "atomics": pair.p2p_atomics,
            "unstated": pair.p2p_unstated,
        },
    }


def _nic(nic: Nic) -> Json:
    return {
        "name": nic.name,
        "device": nic.device,
        "bdf": nic.bdf,
        "state": nic.state,
        "rate_gbps": nic.rate_gbps,
        "link_layer": nic.link_layer,
    }


def _pci(device: PciDevice) -> Json:
    return {
        "bdf": device.bdf,
        "name": device.name,
        "class": device.class_code,
        "parent": device.parent,
        "speed_gts": device.speed_gts,
        "max_speed_gts": device.max_speed_gts,
        "width": device.width,
        "max_width": device.max_width,
        "aspm_enabled": None if device.aspm_enabled is None else list(device.aspm_enabled),
        "aspm_supported": None if device.aspm_supported is None else list(device.aspm_supported),
        "acs": None if device.acs is None else dict(device.acs),
    }


def _nccl(comm: NcclComm) -> Json:
    entry: Json = {
        "version": comm.version,
        "nranks": comm.nranks,
        "nnodes": comm.nnodes,
        "transports": [{"a": t.a, "b": t.b, "via": t.via} for t in comm.transports],
        "channels": comm.channels,
        "env": dict(comm.env),
        "warnings": list(comm.warnings),
        "failure": comm.failure,
        "comm_id": comm.comm_id,
        "truncated": comm.truncated,
        "tuning": _tuning(comm),
        "init": _init(comm),
        "choices": choices(comm.procs),
    }
    if comm.truncated:
        entry["transports"] = [{"a": None, "b": None, "via": via, "pairs": n} for via, n in sorted(comm.counts.items())]
    return entry


def _init(comm: NcclComm) -> Json | None:
    """What the rank that took longest says of its start (`Init timings`, 2.22 and later)."""
    rank = comm.slowest
    if rank is None:
        return None
    parts = [{"name": name, "seconds": seconds} for name, seconds in rank.init_parts]
    return {"slowest_rank": rank.rank, "seconds": rank.init_seconds, "parts": parts}


def _tuning(comm: NcclComm) -> list[Json] | None:
    """NCCL's own model of each algorithm and protocol, where the log has its table."""
    table = next((p.tuning for p in comm.procs if p.tuning), None)
    if table is None:
        return None
    return [
        {"collective": name, "algorithm": algorithm, "protocol": protocol, "latency_us": latency, "bandwidth_gbs": rate}
        for (name, algorithm, protocol), (latency, rate) in table.items()
    ]


def _bandwidth(run: BandwidthRun) -> Json:
    return {
        "program": run.program,
        "collective": run.collective,
        "nranks": run.nranks,
        "rows": [
            {
                "size": row.size,
                "busbw_out_gbs": row.busbw_out_gbs,
                "busbw_in_gbs": row.busbw_in_gbs,
                "wrong_out": row.wrong_out,
                "wrong_in": row.wrong_in,
                "time_out_us": row.time_out_us,
                "time_in_us": row.time_in_us,
            }
            for row in run.rows
        ],
        "plateau_busbw_gbs": run.plateau_busbw_gbs,
        "average_busbw_gbs": run.average_busbw_gbs,
        "wrong": run.wrong,
        "completed": run.completed,
        "engine": run.engine,
        "backend": run.backend,
        "nccl_version": run.nccl_version,
        "latency_us": run.latency_us,
        "gpus": [{"rank": m.rank, "host": m.host, "device": m.device, "bdf": m.bdf, "name": m.name} for m in run.members],
        "failures": [f.text for f in run.failures],
        "exit_status": run.exit_status,
    }


def _pair_rate(rate: PairRate) -> Json:
    return {"a": rate.a, "b": rate.b, "a_bdf": rate.a_bdf, "b_bdf": rate.b_bdf, "what": rate.what, "gbs": rate.gbs}


def _peer_copy(copy: PeerCopy) -> Json:
    return {name: getattr(copy, name) for name in copy._fields if name not in ("origin", "a_name", "b_name")}


def _host_copy(copy: HostCopy) -> Json:
    return {
        "gpu": copy.gpu,
        "bdf": copy.bdf,
        "to_device_gbs": copy.to_device_gbs,
        "from_device_gbs": copy.from_device_gbs,
        "speed_gts": copy.speed_gts,
        "width": copy.width,
    }


def _nvlink(link: NvLink) -> Json:
    return {
        "gpu": link.gpu,
        "link": link.link,
        "active": link.active,
        "speed_gbs": link.speed_gbs,
        "errors": {"replay": link.replay, "recovery": link.recovery, "crc": link.crc},
    }
