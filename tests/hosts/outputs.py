"""What the tools print on a made-up host: raw outputs in the shapes of real ones (synthetic, and labelled so).

The shapes were taken from the recorded two-H200 machine in fixtures/hosts and from the tools' own documentation; the
numbers come from a Spec. Only what a checker reads is printed; a real output is longer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

GEN = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0}


@dataclass
class Dev:
    """One PCI function: a GPU, a NIC, a switch port, a root port, an NVSwitch."""

    bdf: str
    cls: str  # 030200
    vendor: str
    device: str
    name: str
    parent: str | None = None
    gen: int = 5
    width: int = 16
    max_gen: int = 5
    max_width: int = 16
    node: int = 0
    driver: str | None = None
    port: str = "Endpoint"
    aspm: str = ""  # enabled: "L1"
    acs: str | None = "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
    group_type: str = "identity"
    subsystem: str = "0000:0000"
    bar1_mib: int = 32768


@dataclass
class Gpu:
    """A GPU as the driver sees it; its PCI function is `dev`."""

    dev: Dev
    uuid_tail: int
    cpus: str
    links: list[float | None] = field(default_factory=list)  # GB/s per NVLink, None inactive
    fb_mib: int = 81920
    power_w: int = 400
    util: int = 0
    minor: int | None = None  # of its /dev/nvidiaN; None: as its index
    extra_xml: str = ""

    @property
    def uuid(self) -> str:
        return f"GPU-00000000-0000-0000-0000-{self.uuid_tail:012d}"

    @property
    def long_bdf(self) -> str:
        return "0000" + self.dev.bdf.upper()


@dataclass
class Spec:
    """A whole host."""

    name: str
    note: str
    gpus: list[Gpu]
    devices: list[Dev]  # all PCI functions, the GPUs' included
    paths: dict[tuple[int, int], str]  # (a, b) -> matrix cell
    p2p: dict[tuple[int, int], str] = field(default_factory=dict)  # default OK
    nodes: dict[int, str] = field(default_factory=lambda: {0: "0-31"})
    nics: list[tuple[str, Dev, list[str]]] = field(default_factory=list)  # device name, function, cell per GPU
    driver: str = "550.54.15"
    cuda: str = "12.4"
    fabric: str | None = None  # "Completed": an NVSwitch host
    system: dict[str, Any] = field(default_factory=dict)  # overrides of the system probe's JSON
    dmesg: str = ""
    jobs: list[dict[str, Any]] | None = None
    hang: tuple[str, ...] = ()  # probes that never answer


def smi_xml(spec: Spec) -> str:
    gpus = "".join(_gpu_xml(spec, g, i) for i, g in enumerate(spec.gpus))
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<driver_version>{spec.driver}</driver_version>\n\t<cuda_version>{spec.cuda}</cuda_version>\n"
        f"\t<attached_gpus>{len(spec.gpus)}</attached_gpus>\n{gpus}</nvidia_smi_log>\n"
    )


def _gpu_xml(spec: Spec, gpu: Gpu, minor: int) -> str:
    dev = gpu.dev
    port = next((d for d in spec.devices if d.bdf == dev.parent), None)
    host_gen = port.max_gen if port else "N/A"
    both = min(dev.max_gen, port.max_gen) if port else dev.max_gen
    fabric = f"<fabric>\n\t\t\t<state>{spec.fabric or 'N/A'}</state>\n\t\t\t<status>{'Success' if spec.fabric == 'Completed' else 'N/A'}</status>\n\t\t</fabric>"
    return f"""\t<gpu id="{gpu.long_bdf}">
\t\t<product_name>{dev.name}</product_name>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<display_active>Disabled</display_active>
\t\t<mig_mode>
\t\t\t<current_mig>Disabled</current_mig>
\t\t</mig_mode>
\t\t<uuid>{gpu.uuid}</uuid>
\t\t<minor_number>{minor if gpu.minor is None else gpu.minor}</minor_number>
\t\t<gpu_virtualization_mode>
\t\t\t<virtualization_mode>None</virtualization_mode>
\t\t</gpu_virtualization_mode>
\t\t<pci>
\t\t\t<pci_device_id>{dev.device.upper()}10DE</pci_device_id>
\t\t\t<pci_bus_id>{gpu.long_bdf}</pci_bus_id>
\t\t\t<pci_sub_system_id>{dev.subsystem.split(":")[1].upper()}{dev.subsystem.split(":")[0].upper()}</pci_sub_system_id>
\t\t\t<pci_gpu_link_info>
\t\t\t\t<pcie_gen>
\t\t\t\t\t<max_link_gen>{both}</max_link_gen>
\t\t\t\t\t<current_link_gen>{dev.gen}</current_link_gen>
\t\t\t\t\t<device_current_link_gen>{dev.gen}</device_current_link_gen>
\t\t\t\t\t<max_device_link_gen>{dev.max_gen}</max_device_link_gen>
\t\t\t\t\t<max_host_link_gen>{host_gen}</max_host_link_gen>
\t\t\t\t</pcie_gen>
\t\t\t\t<link_widths>
\t\t\t\t\t<max_link_width>{dev.max_width}x</max_link_width>
\t\t\t\t\t<current_link_width>{dev.width}x</current_link_width>
\t\t\t\t</link_widths>
\t\t\t</pci_gpu_link_info>
\t\t\t<replay_counter>0</replay_counter>
\t\t\t<replay_rollover_counter>0</replay_rollover_counter>
\t\t</pci>
\t\t<performance_state>P{0 if gpu.util else 8}</performance_state>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_gpu_idle>{"Not Active" if gpu.util else "Active"}</clocks_event_reason_gpu_idle>
\t\t\t<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
\t\t\t<clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
\t\t</clocks_event_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>{gpu.fb_mib} MiB</total>
\t\t</fb_memory_usage>
\t\t<bar1_memory_usage>
\t\t\t<total>{dev.bar1_mib} MiB</total>
\t\t</bar1_memory_usage>
\t\t<utilization>
\t\t\t<gpu_util>{gpu.util} %</gpu_util>
\t\t</utilization>
\t\t<gpu_power_readings>
\t\t\t<current_power_limit>{gpu.power_w}.00 W</current_power_limit>
\t\t\t<default_power_limit>{gpu.power_w}.00 W</default_power_limit>
\t\t\t<max_power_limit>{gpu.power_w}.00 W</max_power_limit>
\t\t</gpu_power_readings>
\t\t{fabric}
{_memory_xml(gpu)}{gpu.extra_xml}\t</gpu>
"""


def _memory_xml(gpu: Gpu) -> str:
    """Row remapping and ECC as data-centre parts print them; GeForce cards say N/A."""
    zero, no = ("N/A", "N/A") if "GeForce" in gpu.dev.name else ("0", "No")
    return f"""\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<sram_correctable>{zero}</sram_correctable>
\t\t\t\t<sram_uncorrectable>{zero}</sram_uncorrectable>
\t\t\t\t<dram_correctable>{zero}</dram_correctable>
\t\t\t\t<dram_uncorrectable>{zero}</dram_uncorrectable>
\t\t\t</volatile>
\t\t</ecc_errors>
\t\t<remapped_rows>
\t\t\t<remapped_row_corr>{zero}</remapped_row_corr>
\t\t\t<remapped_row_unc>{zero}</remapped_row_unc>
\t\t\t<remapped_row_pending>{no}</remapped_row_pending>
\t\t\t<remapped_row_failure>{no}</remapped_row_failure>
\t\t</remapped_rows>
"""


def topo(spec: Spec) -> str:
    names = [f"GPU{i}" for i in range(len(spec.gpus))] + [f"NIC{i}" for i in range(len(spec.nics))]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for a, gpu in enumerate(spec.gpus):
        cells = [" X " if a == b else spec.paths[min(a, b), max(a, b)] for b in range(len(spec.gpus))]
        cells += [to_gpus[a] for _, _, to_gpus in spec.nics]
        rows.append(f"GPU{a}\t" + "\t".join(cells) + f"\t{gpu.cpus}\t{gpu.dev.node}\t\tN/A")
    for n, (_, _, to_gpus) in enumerate(spec.nics):
        own = [" X " if m == n else "SYS" for m in range(len(spec.nics))]
        rows.append(f"NIC{n}\t" + "\t".join([*to_gpus, *own]) + "\t\t\t\t")
    legend = [
        "\nLegend:\n",
        "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
        "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
        "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
        "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
        "  PIX  = Connection traversing at most a single PCIe bridge",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
    ]
    if spec.nics:
        legend += ["\nNIC Legend:\n", *(f"  NIC{n}: {device}" for n, (device, _, _) in enumerate(spec.nics))]
    return "\n".join(rows + legend) + "\n"


def p2p(spec: Spec, capability: str) -> str:
    names = [f"GPU{i}" for i in range(len(spec.gpus))]
    rows = [" \t" + "\t".join(names) + "\t"]
    for a in range(len(names)):
        cells = []
        for b in range(len(names)):
            pair = (min(a, b), max(a, b))
            word = spec.p2p.get(pair, "OK")
            if a != b and capability in "na":
                word = "OK" if spec.paths[pair].startswith("NV") else "NS"
            cells.append("X" if a == b else word)
        rows.append(f" GPU{a}\t" + "\t".join(cells) + "\t")
    return "\n".join(rows) + "\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n  GNS  = GPU not supported\n  TNS  = Topology not supported\n  NS   = Not supported\n  U    = Unknown\n"


def nvlink_status(spec: Spec) -> str:
    out = ""
    for i, gpu in enumerate(spec.gpus):
        out += f"GPU {i}: {gpu.dev.name} (UUID: {gpu.uuid})\n"
        if gpu.links and all(speed is None for speed in gpu.links):
            out += "NVML: Unable to retrieve NVLink information as all links are inactive\n"
            continue
        out += "".join(f"\t Link {n}: {'<inactive>' if s is None else f'{s:g} GB/s'}\n" for n, s in enumerate(gpu.links))
    return out


def nvlink_errors(spec: Spec) -> str:
    out = ""
    for i, gpu in enumerate(spec.gpus):
        out += f"GPU {i}: {gpu.dev.name} (UUID: {gpu.uuid})\n"
        for n, speed in enumerate(gpu.links):
            if speed is not None:
                out += f"\t Link {n}: Replay Errors: 0\n\t Link {n}: Recovery Errors: 0\n\t Link {n}: CRC Errors: 0\n\n"
    return out


def lspci(spec: Spec) -> str:
    words = {"0604": "PCI bridge", "0302": "3D controller", "0300": "VGA compatible controller", "0207": "Infiniband controller", "0680": "Bridge"}
    blocks = []
    for dev in sorted(spec.devices, key=lambda d: d.bdf):
        bus = f"\tBus: primary={dev.bdf[5:7]}, secondary={_below(spec, dev)}, subordinate=ff, sec-latency=0\n" if dev.cls == "060400" else ""
        support = "ASPM L1, Exit Latency L1 <4us" if dev.cls != "0680" else "ASPM not supported"
        down = " (downgraded)"
        acs = f"\tCapabilities: [148 v1] Access Control Services\n\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+\n\t\tACSCtl:\t{dev.acs}\n" if dev.acs and dev.cls == "060400" else ""
        blocks.append(
            f"{dev.bdf} {words[dev.cls[:4]]} [{dev.cls[:4]}]: {dev.name} [{dev.vendor}:{dev.device}] (rev a1)\n{bus}"
            f"\tNUMA node: {dev.node}\n"
            f"\tCapabilities: [60] Express (v2) {dev.port}, MSI 00\n"
            f"\t\tLnkCap:\tPort #0, Speed {GEN[dev.max_gen]:g}GT/s, Width x{dev.max_width}, {support}\n"
            f"\t\tLnkCtl:\tASPM {dev.aspm + ' Enabled' if dev.aspm else 'Disabled'}; RCB 64 bytes, LnkDisable- CommClk+\n"
            f"\t\tLnkSta:\tSpeed {GEN[dev.gen]:g}GT/s{down if dev.gen < dev.max_gen else ''}, Width x{dev.width}{down if dev.width < dev.max_width else ''}\n"
            f"\t\t\tTrErr- Train- SlotClk+ DLActive{'+' if dev.cls == '060400' else '-'} BWMgmt- ABWMgmt-\n"
            f"\tCapabilities: [100 v2] Advanced Error Reporting\n{acs}" + (f"\tKernel driver in use: {dev.driver}\n" if dev.driver else "")
        )
    return "\n".join(blocks)


def _below(spec: Spec, dev: Dev) -> str:
    child = next((d for d in spec.devices if d.parent == dev.bdf), None)
    return child.bdf[5:7] if child else "ff"


def pci_json(spec: Spec) -> str:
    devices = {d.bdf: _sysfs(spec, d) for d in spec.devices}
    verbs = {
        device: {
            "path": devices[dev.bdf]["path"],
            "numa_node": str(dev.node),
            "netdevs": [],
            "ports": {"1": {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand", "netdev": None}},
        }
        for device, dev, _ in spec.nics
    }
    return (
        json.dumps(
            {
                "probe": "gpudoctor.pci",
                "schema": 1,
                "devices": devices,
                "slots": {},
                "infiniband": verbs,
                "net": {},
                "iommu_units": [],
                "iommu_groups": 0 if all(d.group_type == "" for d in spec.devices) else 64,
                "aspm_policy": "[default] performance powersave powersupersave",
            }
        )
        + "\n"
    )


def _sysfs(spec: Spec, dev: Dev) -> dict[str, Any]:
    chain = [dev.bdf]
    at: Dev | None = dev
    while at is not None and at.parent:
        chain.append(at.parent)
        at = next((d for d in spec.devices if d.bdf == at.parent), None) if at else None  # noqa: B023
    root = f"pci{chain[-1][:7]}"
    out: dict[str, Any] = {
        "path": f"/sys/devices/{root}/" + "/".join(reversed(chain)),
        "class": f"0x{dev.cls}",
        "vendor": f"0x{dev.vendor}",
        "device": f"0x{dev.device}",
        "subsystem_vendor": f"0x{dev.subsystem.split(':')[0]}",
        "subsystem_device": f"0x{dev.subsystem.split(':')[1]}",
        "driver": dev.driver,
        "current_link_speed": f"{GEN[dev.gen]:.1f} GT/s PCIe",
        "max_link_speed": f"{GEN[dev.max_gen]:.1f} GT/s PCIe",
        "current_link_width": str(dev.width),
        "max_link_width": str(dev.max_width),
        "numa_node": str(dev.node),
        "local_cpulist": spec.nodes.get(dev.node, ""),
        "power/control": "on",
        "power/runtime_status": "active",
        "link/l1_aspm": "1" if "L1" in dev.aspm else "0",
        "aer_dev_correctable": "TOTAL_ERR_COR 0",
        "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0",
        "aer_dev_fatal": "TOTAL_ERR_FATAL 0",
    }
    if dev.group_type:
        out["iommu_group"] = str(spec.devices.index(dev))
        out["iommu_type"] = dev.group_type
    if dev.cls.startswith("03"):
        out["samples"] = [[out["current_link_speed"], out["current_link_width"]]] * 3
    return out
