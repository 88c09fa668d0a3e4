"""A host made of facts: root ports, switches, GPUs and pairs, with faults set by name.

    host(gpus=8, switches=4).narrow(3, 8).facts()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.facts.base import Fact
from gpudoctor.facts.gpu import Gpu, Gpus, LinkSample
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Grant, GrantEntry, Platform, PlatformEntry
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.record import replace
from tests.support import HERE

NO_ACS: Mapping[str, bool] = {}
ACS_OFF = dict.fromkeys(
    ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"), False
)
ACS_REDIRECT = {**ACS_OFF, "SrcValid": True, "ReqRedir": True, "CmpltRedir": True, "UpstreamFwd": True}


class Host:
    """Facts of one host; every method changes it and returns it."""

    def __init__(self, gpus: dict[int, Gpu], devices: dict[str, PciDevice], pairs: list[Pair]) -> None:
        self.gpus = gpus
        self.devices = devices
        self.pairs = pairs
        self.extra: list[Fact] = []
        self.complete = True

    def bdf(self, gpu: int) -> str:
        return str(self.gpus[gpu].bdf)

    def port(self, gpu: int) -> str:
        """The bridge directly above a GPU."""
        return str(self.devices[self.bdf(gpu)].parent)

    def root(self, gpu: int) -> str:
        above = self.port(gpu)
        while self.devices[above].parent:
            above = str(self.devices[above].parent)
        return above

    def uplink(self, gpu: int) -> str:
        """The upstream port of the switch a GPU sits below."""
        return str(self.devices[self.port(gpu)].parent)

    def set(self, bdf: str, **fields: Any) -> Host:
        self.devices[bdf] = replace(self.devices[bdf], **fields)
        return self

    def set_gpu(self, gpu: int, **fields: Any) -> Host:
        self.gpus[gpu] = replace(self.gpus[gpu], **fields)
        return self

    def every_gpu(self, **fields: Any) -> Host:
        for gpu in self.gpus:
            self.set_gpu(gpu, **fields)
        return self

    def every_bridge(self, **fields: Any) -> Host:
        for bdf, device in list(self.devices.items()):
            if device.is_bridge:
                self.set(bdf, **fields)
        return self

    def narrow(self, gpu: int, width: int) -> Host:
        """The link trained with fewer lanes than both ends allow."""
        for bdf in (self.bdf(gpu), self.port(gpu)):
            self.set(bdf, width=width)
        return self.set_gpu(gpu, width=width)

    def slow(self, gpu: int, speed_gts: float, busy: bool | None = None) -> Host:
        """The link runs at a lower generation; `busy` True: while traffic was proven."""
        for bdf in (self.bdf(gpu), self.port(gpu)):
            self.set(bdf, speed_gts=speed_gts)
        samples = None if busy is None else (LinkSample(speed_gts=speed_gts, width=self.gpus[gpu].width, busy=busy),)
        return self.set_gpu(gpu, speed_gts=speed_gts, samples=samples)

    def slot(self, gpu: int, width: int | None = None, speed_gts: float | None = None) -> Host:
        """The port itself gives no more."""
        if width is not None:
            self.set(self.port(gpu), max_width=width).narrow(gpu, width)
        if speed_gts is not None:
            self.set(self.port(gpu), max_speed_gts=speed_gts).slow(gpu, speed_gts)
            self.set_gpu(gpu, slot_max_speed_gts=speed_gts, max_speed_gts=speed_gts)
        return self

    def nvlink(self, *pairs: tuple[int, int]) -> Host:
        """NVLink between these pairs (all when none is named)."""
        self.pairs = [
            replace(p, path="NVL", nvlinks=18) if not pairs or (p.a, p.b) in pairs else p for p in self.pairs
        ]
        return self

    def p2p(self, word: str) -> Host:
        """The driver's answer for every pair."""
        self.pairs = [replace(p, p2p_read=word, p2p_write=word) for p in self.pairs]
        return self

    def nic(self, gpu: int, bdf: str = "0000:c1:00.0", driver: str = "mlx5_core") -> Host:
        """An RDMA NIC below the same switch as a GPU, on a port of its own."""
        port = self.port(gpu)[:8] + "1f.0"
        self.devices[port] = replace(self.devices[self.port(gpu)], bdf=port)
        self.devices[bdf] = _device(bdf, "020700", parent=port, port_type="endpoint", driver=driver)
        return self

    def without_driver(self) -> Host:
        """Only the bus is known, as from lspci alone."""
        self.gpus = {}
        self.pairs = []
        return self

    def platform(self, **fields: Any) -> Host:
        return self.add(Platform(PlatformEntry(origin=HERE, **fields)))

    def add(self, *facts: Fact) -> Host:
        self.extra += facts
        return self

    def facts(self) -> list[Fact]:
        out: list[Fact] = []
        if self.gpus:
            out.append(Gpus(tuple(self.gpus.values()), complete=self.complete))
        if self.devices:
            out.append(PciTree(tuple(self.devices.values()), complete=self.complete))
        if self.pairs:
            out.append(Pairs(tuple(self.pairs)))
        return out + self.extra


def _device(bdf: str, class_code: str, **fields: Any) -> PciDevice:
    usual: dict[str, Any] = {
        "speed_gts": 16.0, "max_speed_gts": 16.0, "width": 16, "max_width": 16, "link_up": None,
        "aspm_enabled": (), "parent_known": True, "virtual": False, "acs": NO_ACS, "origin": HERE,
    }
    return PciDevice(bdf=bdf, class_code=class_code, **{**usual, **fields})


def host(
    gpus: int = 2,
    switches: int = 0,
    name: str = "NVIDIA A100-PCIE-40GB",
    device_id: str = "10de:20f1",
    path: str | None = None,
    speed_gts: float = 16.0,
    fb_mib: int = 40960,
) -> Host:
    """A healthy bare-metal host: Gen4 x16 everywhere, each GPU on a root port of its own or shared out over switches."""
    devices: dict[str, PciDevice] = {}
    listed: dict[int, Gpu] = {}
    speeds = {"speed_gts": speed_gts, "max_speed_gts": speed_gts}

    def bridge(bdf: str, parent: str | None, kind: str, acs: Mapping[str, bool]) -> None:
        devices[bdf] = _device(bdf, "060400", parent=parent, port_type=kind, driver="pcieport", acs=acs, **speeds)

    for number in range(switches):
        bridge(f"0000:{number:02x}:01.0", None, "root", ACS_OFF)
        bridge(f"0000:{0x40 + number:02x}:00.0", f"0000:{number:02x}:01.0", "upstream", NO_ACS)
    for index in range(gpus):
        bdf = f"0000:{0x81 + index:02x}:00.0"
        if switches:
            port = f"0000:{0x60 + index % switches:02x}:{index // switches:02x}.0"
            bridge(port, f"0000:{0x40 + index % switches:02x}:00.0", "downstream", ACS_OFF)
        else:
            port = f"0000:{index:02x}:01.0"
            bridge(port, None, "root", ACS_OFF)
        devices[bdf] = _device(
            bdf, "030200", device_id=device_id, parent=port, port_type="endpoint", driver="nvidia", name=name, **speeds
        )
        listed[index] = Gpu(
            index=index, bdf=bdf, name=name, device_id=device_id, width=16, max_width=16, card_max_speed_gts=speed_gts,
            slot_max_speed_gts=speed_gts, fb_mib=fb_mib, bar1_mib=65536, **speeds, origin=HERE,
        )  # fmt: skip
    pairs = []
    for low in range(gpus):
        for high in range(low + 1, gpus):
            near = "PIX" if switches and low % switches == high % switches else "NODE"
            pairs.append(Pair(a=low, b=high, path=path or near, origin=HERE))
    return Host(listed, devices, pairs)


def bus(count: int = 2, **fields: Any) -> PciTree:
    """The bus alone, with the same said of every GPU on it: a driver bound or not."""
    made = host(gpus=count)
    for gpu in range(count):
        made.set(made.bdf(gpu), **fields)
    return PciTree(tuple(made.devices.values()), complete=True)


def granted(*minors: int, unopenable: tuple[int, ...] = ()) -> Grant:
    """The device nodes at hand, and those of them that may not be opened."""
    return Grant(GrantEntry(device_nodes=minors, unopenable=unopenable, origin=HERE))
