"""Runs, GPUs, pairs and NCCL logs of which something is expected (synthetic: single facts, made here)."""

from __future__ import annotations

from gpudoctor.expect.seats import Around
from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun, Member
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.nccl import Graph, Nccl, NcclComm, NcclRank
from gpudoctor.facts.topology import Pair, Pairs
from tests.support import HERE

GIB, MIB = 1 << 30, 1 << 20
H200, A100, RTX = "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"


def members(count, name=H200, host="vm", devices=None):
    return tuple(Member(rank=n, device=n if devices is None else devices[n], host=host, name=name, bdf=f"0000:{n + 1:02x}:00.0") for n in range(count))


def run(rate, size=GIB, nranks=2, name=H200, collective="all_reduce", **more):
    rows = tuple(BandwidthRow(size=s, busbw_out_gbs=rate, line=n) for n, s in enumerate((size // 4, size // 2, size)))
    return BandwidthRun(**{"collective": collective, "nranks": nranks, "rows": rows, "members": members(nranks, name), "origin": HERE, **more})


def gpus(count, name=H200, **more):
    entry = {"max_width": 16, "width": 16, "max_speed_gts": 32.0, **more}
    return Gpus(tuple(Gpu(index=n, bdf=f"0000:{n + 1:02x}:00.0", name=name, origin=HERE, **entry) for n in range(count)))


def pairs(count, path="NVL", nvlinks=18, **more):
    return Pairs(tuple(Pair(a=a, b=b, path=path, nvlinks=nvlinks if path == "NVL" else None, origin=HERE, **more) for a in range(count) for b in range(a + 1, count)))


def comm(nranks=2, channels=12, bw=30.0, kind="NVL", env=None, nvls=None, **more):
    graph = Graph(4, channels, bw, bw, kind, "PIX")
    ranks = tuple(NcclRank(rank=n, nranks=nranks, graphs=(graph,), nvls=nvls, nvls_channels=16 if nvls else 0, origin=HERE) for n in range(nranks))
    return Nccl(comms=(NcclComm(source="test", nranks=nranks, ranks=ranks, env=env or {}, origin=HERE, **more),))


HGX = Around(gpus=gpus(2), pairs=pairs(2))
