"""The made-up hosts that every release must judge right, each with what is true of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.hosts.outputs import Dev, Gpu, Spec

TWO_NODES = {0: "0-31,64-95", 1: "32-63,96-127"}
A100 = ("20b2", "NVIDIA A100-SXM4-80GB")
A100_PCIE = ("20b5", "NVIDIA A100 80GB PCIe")
H100 = ("2330", "NVIDIA H100 80GB HBM3")
RTX4090 = ("2684", "NVIDIA GeForce RTX 4090")
REDIRECT = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"


@dataclass
class Hero:
    """A host, what must be said of it, and what must not."""

    spec: Spec
    exit: int
    causes: list[list[str]] = field(default_factory=list)  # [slug, severity, subject] of each error and warning
    notes: list[str] = field(default_factory=list)
    explains: dict[str, list[str]] = field(default_factory=dict)
    never: list[str] = field(default_factory=list)


def root_port(bdf: str, node: int = 0, gen: int = 5, width: int = 16, **more: Any) -> Dev:
    more = {"vendor": "1022", "device": "14ab", "name": "AMD PCIe GPP Bridge", "max_width": width, "max_gen": gen, **more}
    return Dev(bdf, "060400", gen=gen, width=width, node=node, driver="pcieport", port="Root Port (Slot+)", acs=None, **more)


def switch(up: str, down: list[str], parent: str, node: int, gen: int = 5) -> list[Dev]:
    """A Broadcom switch: one upstream port, the downstream ports below it."""
    about = {"vendor": "1000", "device": "c030", "name": "Broadcom / LSI PEX890xx PCIe Gen 5 Switch", "gen": gen, "max_gen": gen, "node": node, "driver": "pcieport"}
    ports = [Dev(up, "060400", parent=parent, port="Upstream Port", acs=None, **about)]
    return ports + [Dev(bdf, "060400", parent=up, port="Downstream Port (Slot+)", **about) for bdf in down]


def card(bdf: str, part: tuple[str, str], parent: str, node: int = 0, gen: int = 4, **more: Any) -> Dev:
    more = {"max_gen": gen, **more}
    return Dev(bdf, "030200", "10de", part[0], part[1], parent=parent, gen=gen, node=node, driver="nvidia", subsystem="10de:1234", **more)


def all_pairs(count: int, cell: str) -> dict[tuple[int, int], str]:
    return {(a, b): cell for a in range(count) for b in range(a + 1, count)}


def sxm_board() -> Hero:
    """4 x A100 SXM; GPU2's links are all down, so its pairs go through the CPU."""
    devices, gpus = [], []
    for i, (port, bdf) in enumerate((("0000:00:01.1", "0000:01:00.0"), ("0000:20:01.1", "0000:21:00.0"), ("0000:80:01.1", "0000:81:00.0"), ("0000:a0:01.1", "0000:a1:00.0"))):
        node = i // 2
        devices += [root_port(port, node, gen=4), card(bdf, A100, port, node, bar1_mib=131072)]
        gpus.append(Gpu(devices[-1], i + 1, TWO_NODES[node], [None] * 12 if i == 2 else [25.0] * 8 + [None] * 0, power_w=400))
    for i in (0, 1, 3):  # four links to each of two living peers; the four to GPU2 are dark at this end too
        gpus[i].links = [25.0] * 8 + [None] * 4
    paths = all_pairs(4, "NV4") | {(0, 2): "SYS", (1, 2): "SYS", (2, 3): "NODE"}
    p2p = {pair: "NS" for pair in paths if 2 in pair}
    spec = Spec("a100x4-sxm-gpu2-nvlinks-down", "all 12 NVLinks of GPU2 down", gpus, devices, paths, p2p, TWO_NODES)
    return Hero(spec, 1, [["nvlink-down", "error", "gpu:0000:81:00.0"]], explains={"nvlink-down": ["no-nvlink-path", "path-sys", "path-node"]}, never=["pcie-width", "gpu-missing"])


def pcie_cards(name: str, part: tuple[str, str], links: int, cell: str = "NODE", **more: Any) -> Spec:
    devices, gpus = [], []
    for i, (port, bdf) in enumerate((("0000:40:01.1", "0000:41:00.0"), ("0000:60:01.1", "0000:61:00.0"))):
        devices += [root_port(port, gen=4), card(bdf, part, port, **more)]
        gpus.append(Gpu(devices[-1], i + 1, "0-31", [None] * links, power_w=300))
    return Spec(name, "", gpus, devices, {(0, 1): cell})


def no_bridge() -> Hero:
    spec = pcie_cards("a100x2-pcie-no-bridge", A100_PCIE, 12, bar1_mib=131072)
    return Hero(replace(spec, note="two A100 PCIe cards, no NVLink bridge fitted"), 0, notes=["no-nvlink-path", "nvlink-down", "path-node"])


def geforce(name: str, note: str) -> Spec:
    spec = pcie_cards(name, RTX4090, 0, "PHB", gen=1, max_gen=4)
    for gpu in spec.gpus:
        gpu.dev.cls, gpu.dev.bar1_mib, gpu.fb_mib, gpu.power_w = "030000", 32768, 24564, 450
    return replace(spec, note=note, p2p={(0, 1): "CNS"})


def healthy_4090() -> Hero:
    spec = geforce("rtx4090x2-healthy", "two healthy 4090, idle links at Gen1, no peer to peer by design")
    return Hero(spec, 0, notes=["path-phb", "p2p-unsupported"], never=["nvlink-down", "no-nvlink-path", "pcie-width", "slot-width", "aspm"])


def chipset_4090() -> Hero:
    """GPU1 in a x4 slot of the chipset, ASPM on, as on a desktop board."""
    spec = geforce("rtx4090x2-chipset-x4-aspm", "GPU1 in a chipset slot with four lanes, ASPM L1 on")
    port, gpu = spec.devices[2], spec.gpus[1].dev
    spec.devices[0].vendor, spec.devices[0].device, spec.devices[0].name = "8086", "a70d", "Raptor Lake PCI Express 5.0 Graphics Port (PEG010)"
    port.bdf = gpu.parent = "0000:00:1c.0"
    port.vendor, port.device, port.name = "8086", "7a38", "Raptor Lake PCI Express Root Port #1"
    port.max_width = port.width = gpu.width = 4
    port.aspm = gpu.aspm = "L1"
    spec.system = {"processor": {"first": {"vendor_id": "GenuineIntel", "model name": "13th Gen Intel(R) Core(TM) i9-13900K", "cpu family": "6", "model": "183"}}}
    return Hero(spec, 1, [["slot-width", "error", "gpu:0000:61:00.0"]], ["aspm"], {"slot-width": ["chipset-slot"]}, ["pcie-width", "pcie-upstream"])


def numa_job() -> Hero:
    """Two A100 PCIe on two sockets; the process on GPU1 is pinned to the other node."""
    spec = pcie_cards("a100x2-job-on-the-wrong-node", A100_PCIE, 12, "SYS", bar1_mib=131072)
    spec.gpus[1].dev.node = spec.devices[2].node = 1
    spec.gpus[0].cpus, spec.gpus[1].cpus = TWO_NODES[0], TWO_NODES[1]
    about = {"name": "python", "environment": {}, "unreadable": None}
    jobs = [
        {"pid": 4711, "nvml_gpus": ["0000:41:00.0"], "cpus": "0-31", "mems": "0-1", **about},
        {"pid": 4712, "nvml_gpus": ["0000:61:00.0"], "cpus": "0-31", "mems": "0-1", **about},
    ]
    spec = replace(spec, note="the process on GPU1 (node 1) is pinned to node 0", nodes=TWO_NODES, jobs=jobs)
    return Hero(spec, 0, [["numa-mismatch", "warning", "gpu:0000:61:00.0"]], ["no-nvlink-path"])


def behind_switch(name: str, part: tuple[str, str], acs: str | None = None) -> Spec:
    ports = switch("0000:41:00.0", ["0000:42:00.0", "0000:42:01.0"], "0000:40:01.1", 0, gen=4)
    if acs:
        for port in ports[1:]:
            port.acs = acs
    cards = [card("0000:43:00.0", part, "0000:42:00.0", bar1_mib=65536), card("0000:44:00.0", part, "0000:42:01.0", bar1_mib=65536)]
    gpus = [Gpu(dev, i + 1, "0-31", fb_mib=46068, power_w=350) for i, dev in enumerate(cards)]
    return Spec(name, "", gpus, [root_port("0000:40:01.1", gen=4), *ports, *cards], {(0, 1): "PIX"})


def acs_redirect() -> Hero:
    spec = behind_switch("l40sx2-acs-redirect", ("26b9", "NVIDIA L40S"), REDIRECT)
    spec.note = "ACS redirects peer traffic at both switch ports between the GPUs"
    return Hero(spec, 0, [["acs", "warning", "pci:0000:42:00.0"], ["acs", "warning", "pci:0000:42:01.0"]], never=["pcie-width", "iommu"])


def switched_board(name: str, note: str) -> Spec:
    """8 x H100 on NVSwitch, a NIC below each GPU's PCIe switch."""
    devices, gpus, nics = [], [], []
    for i in range(8):
        node, bus = i // 4, 0x10 + 0x18 * i
        port = f"0000:{bus:02x}:01.0"
        up, down = f"0000:{bus + 1:02x}:00.0", [f"0000:{bus + 2:02x}:00.0", f"0000:{bus + 2:02x}:01.0"]
        gpu = card(f"0000:{bus + 3:02x}:00.0", H100, down[0], node, gen=5, bar1_mib=131072)
        nic = Dev(f"0000:{bus + 4:02x}:00.0", "020700", "15b3", "1021", "Mellanox Technologies MT2910 Family [ConnectX-7]", parent=down[1], node=node, driver="mlx5_core")
        devices += [root_port(port, node), *switch(up, down, port, node), gpu, nic]
        gpus.append(Gpu(gpu, i + 1, TWO_NODES[node], [26.562] * 18, fb_mib=81559, power_w=700))
        nics.append((f"mlx5_{i}", nic, ["PIX" if j == i else "NODE" if j // 4 == node else "SYS" for j in range(8)]))
    spec = Spec(name, note, gpus, devices, all_pairs(8, "NV18"), nodes=TWO_NODES, nics=nics, fabric="Completed")
    spec.system = {"modules": {"nvidia_peermem": "550.54.15", "nvidia": "550.54.15", "nvidia_uvm": "550.54.15", "mlx5_core": "", "ib_core": ""}}
    return spec


def healthy_board() -> Hero:
    return Hero(switched_board("h100x8-nvswitch-healthy", "healthy 8-GPU NVSwitch host with NICs"), 0)


def one_link_down() -> Hero:
    spec = switched_board("h100x8-one-nvlink-down", "link 7 of GPU5 is down: 17 of 18")
    spec.gpus[5].links[7] = None
    spec.paths = {pair: "NV17" if 5 in pair else "NV18" for pair in spec.paths}
    return Hero(spec, 1, [["nvlink-down", "error", "gpu:0000:8b:00.0"]], never=["no-nvlink-path", "fabric"])


def one_gpu_pod() -> Hero:
    """A pod that was granted GPU3 of eight: sysfs shows the whole bus, the driver one GPU."""
    spec = switched_board("h100-pod-one-of-eight", "a pod with one GPU of an 8-GPU host")
    spec.gpus = [spec.gpus[3]]
    spec.gpus[0].minor = 3
    spec.paths = {}
    spec.nics = [(device, dev, [to_gpus[3]]) for device, dev, to_gpus in spec.nics]
    spec.system = {
        **spec.system,
        "container": {"marks": [], "variables": ["KUBERNETES_SERVICE_HOST"], "cgroups": ["kubernetes"], "systemd": None},
        "driver": {"gpus": [d.bdf for d in spec.devices if d.cls == "030200"]},
        "nodes": {"control": True, "uvm": True, "switches": 0, "imex_channels": 0},
        "environment": {"NVIDIA_VISIBLE_DEVICES": "GPU-00000000-0000-0000-0000-000000000004"},
    }
    return Hero(spec, 0, notes=["gpu-not-visible"], never=["gpu-missing", "nvlink-down", "driver-unavailable"])


def hung() -> Hero:
    """nvidia-smi never answers; lspci and sysfs do."""
    spec = switched_board("h100x8-nvidia-smi-hangs", "every call of nvidia-smi and NVML hangs")
    spec.hang = ("smi-", "nvml")
    return Hero(spec, 3, [["driver-unavailable", "warning", "host"]], never=["gpu-missing", "nvlink-down"])


HEROES = (
    sxm_board,
    no_bridge,
    chipset_4090,
    healthy_4090,
    numa_job,
    acs_redirect,
    one_link_down,
    healthy_board,
    one_gpu_pod,
    hung,
)
