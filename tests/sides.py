"""Sides of a comparison, made of single facts."""

from __future__ import annotations

from gpudoctor.diff.compare import compare
from gpudoctor.diff.model import Side
from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRow, BandwidthRun
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.nccl import Nccl, NcclComm, Transport
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import (
    Setting,
    Settings,
)
from gpudoctor.facts.topology import Nic, Nics, NvLink, NvLinks, Pair
from gpudoctor.model import ERROR, FOUND, OK, CheckResult, Finding
from tests.support import HERE

REDIRECT, VALID = {"SrcValid": True, "ReqRedir": True}, {"SrcValid": True, "ReqRedir": False}
BDF = ("0000:41:00.0", "0000:61:00.0", "0000:81:00.0", "0000:a1:00.0")


def gpu(index=0, **more):
    values = {"bdf": BDF[index], "name": "NVIDIA A100", "speed_gts": 16.0, "max_speed_gts": 16.0, "width": 16, "max_width": 16, **more}
    return Gpu(index=index, origin=HERE, **values)


def gpus(*found, **more):
    return Gpus(tuple(found), **more)


def nvlinks(*active, number=0, **more):
    return NvLinks(tuple(NvLink(gpu=number, link=i, active=up, origin=HERE, **more) for i, up in enumerate(active)))


def pair(a, b, path, **more):
    return Pair(a=a, b=b, path=path, origin=HERE, **more)


def side(*facts, host="node07", results=(), diagnoses=(), at=None):
    stores = (FactStore(host, facts),) if facts else ()
    return Side(path="x", stores=stores, results=tuple(results), diagnoses=tuple(diagnoses), captured_at=at)


def diff(a, b, mode=None):
    a, b = (x if isinstance(x, Side) else side(*x) if isinstance(x, (tuple, list)) else side(x) for x in (a, b))
    return compare(a, b, mode)


def told(comparison):
    return [c.message for c in comparison.changes]


def missing(comparison):
    return " | ".join(f"{m.fact}: {m.reason}" for m in comparison.missing)


def driver(version):
    return Driver(DriverEntry(version=version, origin=HERE))


def settings(**values):
    return Settings(tuple(Setting(name=n, value=v, scope="environment", origin=HERE) for n, v in values.items()))


def bridge(bdf="0000:40:01.1", **more):
    return PciDevice(bdf=bdf, class_code="060400", origin=HERE, **more)


def tree(*devices):
    return PciTree(tuple(devices))


def under(bdf="0000:40:01.1", **more):
    """A GPU below one bridge."""
    card = PciDevice(bdf=BDF[0], class_code="030200", device_id="10de:20b2", parent=bdf, origin=HERE)
    return gpus(gpu()), tree(bridge(bdf, parent_known=True, **more), card)


def xids(*codes, bdf=BDF[0]):
    return KernelLog(tuple(KernelEvent(kind="xid", bdf=bdf, code=c, text=f"Xid {c}", origin=HERE) for c in codes))


def nics(**more):
    values = {"name": "NIC0", "device": "mlx5_0", "state": "active", "rate_gbps": 400.0, "link_layer": "InfiniBand", **more}
    return Nics((Nic(origin=HERE, **values),), states_read=True)


def comm(via, **more):
    return Nccl(comms=(NcclComm(source="log", nranks=2, transports=(Transport(0, 1, via),), origin=HERE, **{"channels": 24, **more}),))


def run(gbs):
    rows = tuple(BandwidthRow(size=size, busbw_out_gbs=gbs) for size in (1 << 28, 1 << 29, 1 << 30))
    return Bandwidth((BandwidthRun(collective="all_reduce", nranks=2, rows=rows, origin=HERE),))


def result(*found, slug="nvlink-down", status=None, reason=None):
    return CheckResult("GD401", slug, status or (FOUND if found else OK), reason, tuple(found))


def finding(severity=ERROR, subject="gpu:0000:41:00.0", slug="nvlink-down", host=None):
    return Finding(slug, severity, subject, f"{slug} of {subject}", (HERE["*"],), host=host)


def judged(*results, facts=(), **more):
    return side(gpus(gpu(**more)), *facts, results=results)


def switched(speed):
    """A GPU below a switch whose uplink has this speed; the port that the GPU sits in is at rest."""
    card = PciDevice(bdf=BDF[0], class_code="030200", device_id="10de:20b2", parent="0000:42:00.0", origin=HERE)
    port = bridge("0000:42:00.0", parent="0000:40:01.1", speed_gts=2.5 if speed == 8.0 else 16.0, width=16)
    return gpus(gpu()), tree(bridge(parent_known=True, speed_gts=speed, width=16), port, card)


def nic_card(**more):
    return PciDevice(bdf="0000:c1:00.0", class_code="020700", origin=HERE, **more)
