"""The outputs gpudoctor knows: how each begins, which lines belong to it, and who parses it.

Recognition is by content, never by file name. A block format is a run of lines; it ends at the first line that
neither belongs nor is blank (a few strangers in a row may stand inside, since authors annotate). A scattered format
(no `belongs`) is single telling lines anywhere in a file, collected into one section a file and host.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Format(NamedTuple):
    kind: str
    tokens: tuple[str, ...]  # literal words, one of which stands in every line that `starts` can match
    starts: str  # regular expression, searched in a line without prefixes
    belongs: str | None = None  # None: scattered
    strangers: int = 0  # how many unknown lines in a row may stand inside a block
    first: str | None = None  # with joins False: a line that opens a new block even inside one
    joins: bool = True
    until: str | None = None  # a line that ends the block, itself included (closing tags)


_CELL = r"(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|U)"
_TOPO_ROW = rf"^\s*(?:GPU|NIC|CPU)\d+\s+{_CELL}|^\s*(?:mlx|hfi1_|bnxt_re|irdma|rocep|ibp|efa_|rdmap|nic)\S*\s+{_CELL}\b"
_TOPO_HEAD = r"^\s*GPU\d+\s+(?:GPU\d+|NIC\d+|mlx\S+|CPU Aff|NUMA Aff)|^\s*GPU0\s*$"
_TOPO_LEGEND = r"^\s*(?:Legend:|NIC Legend:|(?:X|OK|CNS|GNS|TNS|NS|DR|U|SYS|NODE|PHB|PXB|PIX|NV#|SOC)\s*=\s|NIC\d+:\s)"

# An address and what lspci prints behind it: `3D controller: …`, `"3D controller" …` (-mm), `0302: 10de:2335` (-n).
_PCI_HEAD = r"^\s*(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] (?:\"|[A-Z][^|]{3}|3D |[0-9a-f]{4}: [0-9a-f]{4}:)"
# Lines of a device's block from which an excerpt without its address line may begin.
_PCI_TELLING = r"^\s*(?:Capabilities: \[\w+\] Express \(v|Kernel driver in use: |Region \d: |IOMMU group: \d|Subsystem: )"
# Lines of a block whose indentation was lost.
_PCI_WORDS = (
    r"^(?:Subsystem|DeviceName|Physical Slot|Control|Status|Latency|Interrupt|NUMA node|IOMMU group|Region \d|Bus|Capabilities"
    r"|Kernel driver in use|Kernel modules|Expansion ROM|(?:Lnk|Dev|Slt|Root)(?:Cap|Ctl|Sta)2?|ACSCap|TrErr[+-]|ClockPM[+-])[: ]"
)

# Order matters: the first format whose `starts` matches a line takes it.
FORMATS: tuple[Format, ...] = (
    # --- JSON of our own child probes, one line each
    Format("nvml-json", ('"gpudoctor.nvml"',), r'^\{"probe": "gpudoctor\.nvml"', r"$^", until=r"."),
    Format("pci-json", ('"gpudoctor.pci"',), r'^\{"probe": "gpudoctor\.pci"', r"$^", until=r"."),
    Format("system-json", ('"gpudoctor.system"',), r'^\{"probe": "gpudoctor\.system"', r"$^", until=r"."),
    Format("job-json", ('"gpudoctor.job"',), r'^\{"probe": "gpudoctor\.job"', r"$^", until=r"."),
    # --- nvidia-smi
    Format("smi-topo", ("GPU", "NIC", "mlx"), f"{_TOPO_HEAD}|{_TOPO_ROW}", f"{_TOPO_HEAD}|{_TOPO_ROW}|{_TOPO_LEGEND}", strangers=1, first=_TOPO_HEAD, joins=False),
    # Tags belong, so that an XML without its end does not swallow what follows; a wrapped value may stand on its own line.
    Format(
        "smi-qx",
        ("<nvidia_smi_log>", "<gpu id="),
        r'<nvidia_smi_log>|^\s*<gpu id="[0-9A-Fa-f:.]+">',
        r"^\s*<|^\s*\[?\.{3}",
        strangers=3,
        until=r"</nvidia_smi_log>",
    ),
    Format(
        "smi-q",
        ("NVSMI LOG", "Attached GPUs", "Driver Version", "GPU 0"),
        r"^\s*=+NVSMI LOG=+|^\s*Attached GPUs\s+:|^\s*Driver Version\s+: \d|^\s*GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*$",
        # A leaf has a space before its colon (lspci's and lscpu's lines have none), a heading has no colon at all.
        r"^\s*[\w(][^|:]{0,80}\s:(?:\s|$)|^\s*GPU [0-9A-Fa-f]{4,8}:|^(?!\s*(?:GPU|NIC)\d)\s+[A-Za-z][^|:<]{0,60}$|^\s*\[?\s?\.{3}",
        strangers=3,
        first=r"^\s*=+NVSMI LOG=+",
        joins=False,
    ),
    Format("smi-csv", ("pci.bus_id", "pcie.link", "index,", "name,"), r"^\s*(?:index|name|uuid|pci\.bus_id|gpu_bus_id|timestamp|driver_version|count)\s*,\s*[a-z_.]+(?:\s\[\S+\])?\s*(?:,|$)", r"^[^,]{1,80}(?:,[^,]{0,120})+$"),
    Format("smi-table", ("NVIDIA-SMI",), r"\|\s*NVIDIA-SMI\s|^NVIDIA-SMI\s[\d.]+|NVIDIA-SMI has failed", r"^\s*[|+]|WARNING: infoROM|^\s*$", strangers=1, first=r"\|\s*NVIDIA-SMI\s", joins=False),
    # What nvidia-smi says instead of an answer, or below one.
    Format(
        "smi-failure",
        ("Unable to determine the device handle", "Failed to initialize NVML", "infoROM is corrupted"),
        r"Unable to determine the device handle for|Failed to initialize NVML|WARNING: infoROM is corrupted at gpu",
    ),
    # `nvidia-smi -L` and every form of `nvidia-smi nvlink` begin alike: a line per GPU. The parser tells them apart.
    Format(
        "smi-nvlink",
        ("GPU ", "Link", "NVLink"),
        r"^\s*GPU \d+: .{2,80}\(UUID: |^\s*Links? \d+(?:-\d+)?(?:, [\d-]+)*: |^\s*Link \d+, \w|NVML: Unable to retrieve NVLink information",
        r"^\s*GPU \d+: |^\s*Links? \d+|^\s*(?:\[\.{3}\]|\.{3,})|NVML: Unable to retrieve NVLink|^\s*NVLE:|^\s*Firmware Version:|^\s*MIG .+\(UUID",
    ),
    # --- PCI
    Format(
        "lspci",
        (
            "LnkSta", "LnkCap", "LnkCtl", "ACSCtl", ":00.", ":0", ".0 ", ".1 ", ".2 ", ".3 ", ".4 ", ".5 ", ".6 ", ".7 ",
            "] Express (v", "Kernel driver in use: ", "Region ", "IOMMU group: ", "Subsystem: ",
        ),
        rf"{_PCI_HEAD}|\b(?:LnkSta|LnkCap2?|LnkCtl|ACSCtl):\s|{_PCI_TELLING}",
        # Indented lines belong, but not those that other outputs indent too (topology headers, NVLink rows, tables, logs).
        rf"{_PCI_HEAD}|^\s+(?!GPU\d|GPU \d|NIC\d|Link \d|[|+<]|\[ *\d+\.\d|\[\w{3} \w{3} )\S|\b(?:LnkSta|LnkCap2?|LnkCtl|ACSCtl):\s|^\^+|{_PCI_WORDS}",
        strangers=1,
    ),
    # Tags, the end of a comment and wrapped attributes belong.
    Format("topo-xml", ("<system version",), r"<system version=", r'^\s*<|-->|^\s*\w+="', strangers=20, until=r"</system>"),
    # --- the host
    Format("lscpu", ("Architecture:", "CPU(s):", "NUMA node"), r"^Architecture:\s+\S|^CPU\(s\):\s+\d|^\s*NUMA node\(s\):\s+\d", r"^\s*[A-Z][\w() .,/-]{1,50}:\s+\S"),
    Format("numactl-h", ("available:",), r"^available: \d+ nodes? \(", r"^node\s|^\s*\d+:(?:\s+\d+)+\s*$|^available:"),
    Format("df", ("Filesystem", "/dev/shm"), r"^Filesystem\s.*Mounted on|^\S+\s+\S+\s+\S+\s+\S+\s+\d+%\s+/dev/shm\s*$", r"^\S+\s+\S+\s+\S+\s+\S+\s+(?:\d+%|-)\s+/\S*"),
    Format("ulimit", ("locked memory", "memlock"), r"max(?:imum)? locked[ -]memory|\bmemlock\b.*(?:unlimited|\d)", r"^[a-z][\w /().-]*\(.*-\w\)\s+\S+|^[a-z][a-z -]+\s{2,}\S+$"),
    Format("lsmod", ("Module ", "nvidia"), r"^Module\s+Size\s+Used by|^nvidia(?:_\w+)?\s+\d+\s+-?\d+", r"^[a-z][a-z0-9_]*\s+\d+\s+-?\d+(?:\s|$)"),
    Format("nccl-conf", ("NCCL_",), r"^\s*(?:export\s+)?NCCL_[A-Z0-9_]+=\S*\s*$", r"^\s*(?:export\s+)?[A-Z][A-Z0-9_]*=.*$|^\s*#"),
    Format("ibstat", ("CA '", "hca_id:"), r"^\s*CA '\S+'|^hca_id:\s", r"^\s+\S|^CA '|^hca_id:"),
    # --- logs: telling lines anywhere
    Format(
        "kernel-log",
        ("NVRM", "SXid", "NVSwitch", "AER:", "PCIe Bus Error", "nvidia-nvswitch", "available PCIe bandwidth", "AMD-Vi", "DMAR:"),
        r"NVRM: |SXid|detected NVSwitch|AER: |PCIe Bus Error|nvidia-nvswitch|limited by|AMD-Vi: .{0,40}(?:Event|IO_PAGE_FAULT)|DMAR: ?\[.{0,60}fault",
    ),
)


class Compiled(NamedTuple):
    format: Format
    starts: re.Pattern[str]
    belongs: re.Pattern[str] | None
    first: re.Pattern[str] | None
    until: re.Pattern[str] | None


def compiled() -> tuple[Compiled, ...]:
    """The table with its expressions compiled. Not at import: reading a snapshot needs none of them."""

    def build(pattern: str | None) -> re.Pattern[str] | None:
        return re.compile(pattern) if pattern else None

    return tuple(Compiled(f, re.compile(f.starts), build(f.belongs), build(f.first), build(f.until)) for f in FORMATS)


def parser_module(kind: str) -> str:
    """`smi-topo` -> `gpudoctor.parsers.smi_topo`: one file per format, imported when such a section turns up."""
    return "gpudoctor.parsers." + kind.replace("-", "_")
