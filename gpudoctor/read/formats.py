"""The outputs of tools and of the host that gpudoctor knows: how each begins, which lines belong to it, and who parses it.

Recognition is by content, never by file name. A block format is a run of lines; it ends at the first line that
neither belongs nor is blank (a few strangers in a row may stand inside, since authors annotate). A scattered format
(no `belongs`) is single telling lines anywhere in a file, collected into one section a file and host.

Tokens and hints decide how fast half a gigabyte of foreign text is passed over: a line without any is never looked at.
So they are rare words (`GPU0`, not `GPU`).
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    kind: str
    tokens: tuple[str, ...]  # literal words; one of them, or of `hints`, stands in every line that `starts` can match
    starts: str  # regular expression, searched in a line without prefixes
    belongs: str | None = None  # None: scattered
    strangers: int = 0  # how many unknown lines in a row may stand inside a block
    first: str | None = None  # with joins False: a line that opens a new block even inside one
    joins: bool = True
    until: str | None = None  # a line that ends the block, itself included (closing tags)
    balanced: bool = False  # JSON, which ends where the brackets that it opened are closed
    # As tokens, for starts that have no rare word: regular expressions that begin with a literal character.
    hints: tuple[str, ...] = ()
    # Of a scattered format: how many lines before and after a telling one go with it, all with their prefixes (a terminal
    # breaks lines, and a prefix may say whose line it is).
    around: tuple[int, int] | None = None


# A line of JSON that a program laid out, or that holds all of it; `[ 12.3] NVRM: …`, `[1,0]<stdout>:` and `2026-…` are none.
_NUMBER = r"-?\d[\d.eE+-]*"
JSON_LINE = (
    rf"^\s*(?:[\"}}\]]|\{{\s*(?:$|[\"}}])|\[\s*(?:$|[\"{{\[\]]|(?:(?:{_NUMBER}|true|false|null)\s*(?:,\s*|(?=\]|$)))+(?:\]\s*(?:[,\]}}]|$)|$))"
    rf"|(?:{_NUMBER}|true|false|null)\s*(?:,|$|[}}\]]))"
)

_CELL = r"(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|U)"
_TOPO_ROW = rf"^\s*(?:GPU|NIC|CPU)\d+\s+{_CELL}|^\s*(?:mlx|hfi1_|bnxt_re|irdma|rocep|ibp|efa_|rdmap|nic)\S*\s+{_CELL}\b"
_TOPO_HEAD = r"^\s*GPU\d+\s*(?:GPU\d+|NIC\d+|mlx\S+|CPU Aff|NUMA Aff)"
_TOPO_LEGEND = r"^\s*(?:Legend:|NIC Legend:|(?:X|OK|CNS|GNS|TNS|NS|DR|U|SYS|NODE|PHB|PXB|PIX|NV#|SOC)\s*=\s|NIC\d+:\s)"
# The rest of a header or row that a terminal broke at its width; and an author's dots.
_TOPO_REST = r"^\s*(?:(?:[A-Z\d/][A-Z\d/,-]*|\w{0,8}nity|mlx\S+|\.{2,}|…)(?:\s+|$))+$"
# Headings of nvidia-smi -q.
_SMI_QUOTED = (
    r"^\s*(?:Remapped Rows|Retired Pages|GPU Link Info|Fabric|Clocks (?:Throttle|Event) Reasons)\s*$"
    r"|^\s{2,}(?:E(?:CC|cc) Errors|BAR1 Memory Usage|MIG Mode)\s*$"
)
# What may stand behind `Link 3: ` (states, remote ends, counters).
_LINK_VALUE = r"(?:\d+(?:\.\d+)? ?GB/s|<|[Ii]nactive|Sleep|Remote Device|[0-9A-F]{8}:|[A-Z][\w/ ]{1,40}(?:Errors?|events|discards|packets|bytes|Blocks|BER))"
_ENV_NAMES = r"(?:NCCL_[A-Z0-9_]+|TORCH_NCCL_[A-Z0-9_]+|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES)"
_ASKS_CSV = r"(?:^|[$#%>]\s)\s*(?:sudo\s+)?nvidia-smi\s[^|;&]{0,80}?--query-gpu[= ][\"']?"
# A pipe may sort the rows or leave some out; in a table of a page its bar has become a tab.
_NO_HEADER = r"[\"']? [^|;&\t]{0,60}?\bnoheader\b[^|;&\t]{0,40}$"
_COLUMN = r"[a-z][a-z0-9_.]*(?: \[[^\],]{1,12}\])?"

# First lines of other outputs: where a post is indented as a whole, an output whose lines are indented anyway ends there.
_ELSE = (
    r"Architecture:|CPU\(s\):|NUMA node[\d(]|available: \d|CA '|hca_id:|Infiniband device '|Filesystem\s|Module\s+Size\s|max locked memory|"
    r"index, |(?:export )?[A-Z]\w+_\w+=|Collecting environment|PyTorch version|nvbandwidth Version|Device \d+: |Running \w+\.|[$#]\s+\w|"
    r"=+NVSMI|-\+?-?\[\d"
)

# What scripts print before an address: `Card: `, `GPU 0: `, `=== `.
_PCI_LABEL = r"^\s*(?:[A-Za-z][\w -]{0,24}?[:=]\s{1,4}|[=#*>-]{1,40}\s{0,4})?"
_PCI_AT = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# An address and what lspci prints behind it: `3D controller: …`, `"3D controller" …` (-mm), `0302: 10de:2335` (-n).
_PCI_HEAD = (
    rf"{_PCI_LABEL}{_PCI_AT} (?:\"|[A-Z][^|]{{3}}|3D |[0-9a-f]{{4}}: [0-9a-f]{{4}}:)"
    # Behind an author's words the class must be one of lspci's.
    rf"|^\s*[A-Za-z][^|:]{{0,100}}\s{_PCI_AT} (?:VGA compatible controller|3D controller|PCI bridge)(?: \[\d{{4}}\])?: "
)
# An address alone, which a script prints above the lines that it filters.
_PCI_BARE = rf"{_PCI_LABEL}{_PCI_AT}\s{{0,4}}[:=#*>-]{{0,40}}\s*$"
# Lines of a device's block from which an excerpt without its address line may begin.
_PCI_TELLING = r"^\s*(?:Capabilities: \[\w+\] Express \(v|Kernel driver in use: |Region \d: |IOMMU group: \d|Subsystem: )"
# Lines of a block whose indentation was lost.
_PCI_WORDS = (
    r"^(?:Subsystem|DeviceName|Physical Slot|Control|Status|Latency|Interrupt|NUMA node|IOMMU group|Region \d|Bus|Capabilities"
    r"|Kernel driver in use|Kernel modules|Expansion ROM|(?:Lnk|Dev|Slt|Root)(?:Cap|Ctl|Sta)2?|ACSCap|TrErr[+-]|ClockPM[+-]"
    r"|BridgeCtl|L1SubCap|L1SubCtl[12]|[UC]E(?:Sta|Msk|Svrt)|AERCap|HeaderLog|ExtTag[+-]|RlxdOrd[+-]|MaxPayload|ExtSynch[+-]"
    r"|Changed|I/O behind|Memory behind|Prefetchable memory|Secondary status|Flags|Address|Masking|Vector table|PBA)[: ]"
    # The rest of a list of bits that a mailer broke: `ParErr- Stepping- SERR- FastB2B- DisINTx-`.
    r"|^[<>]?[A-Za-z]\w{1,24}[+-],? [<>]?[A-Za-z]\w{1,24}[+-](?:[ ,]|$)"
)

# Order matters: the first format whose `starts` matches a line takes it. The logs (read.log_formats) come after them.
OUTPUTS: tuple[Format, ...] = (
    # --- JSON of our own child probes, one line each
    Format("nvml-json", ('"gpudoctor.nvml"',), r'^\{"probe": "gpudoctor\.nvml"', r"$^", until=r"."),
    Format("pci-json", ('"gpudoctor.pci"',), r'^\{"probe": "gpudoctor\.pci"', r"$^", until=r"."),
    Format("system-json", ('"gpudoctor.system"',), r'^\{"probe": "gpudoctor\.system"', r"$^", until=r"."),
    Format("job-json", ('"gpudoctor.job"',), r'^\{"probe": "gpudoctor\.job"', r"$^", until=r"."),
    # The JSON of nccl-tests (-J), in one line as it writes it or laid out by another tool.
    Format(
        "nccl-tests-json",
        ('"start_time"',),
        r'^\s*\{\s*"version"\s*:\s*\d{1,3}\s*,\s*"start_time"|^\s*"start_time"\s*:\s*"',
        JSON_LINE,
        until=r'"end_time"\s*:',
    ),
    # The JSON of nvbandwidth (-j).
    Format(
        "nvbandwidth-json",
        ('"nvbandwidth"', '"bandwidth_'),
        r'^\s*(?:\{\s*)?"nvbandwidth"\s*:|^\s*(?:\{\s*)?"bandwidth_(?:description|matrix)"\s*:',
        JSON_LINE,
        until=r'(?<![A-Za-z_])"version"\s*:\s*"',
    ),
    # The JSON of PyTorch's flight recorder, pasted among other text, in one line or laid out.
    Format(
        "flight-recorder",
        ('"pg_config"', '"pg_status"', '"comm_lib_version"', '"collective_seq_id"', '"version"', '"record_id"', '"entries"'),
        r'^\s*[{\[].{0,2000}?"(?:pg_config|pg_status|collective_seq_id|record_id)"\s*:|^\s*"(?:comm_lib_version|pg_config|pg_status)"\s*:'
        r'|^\s*(?:\{\s*)?"version"\s*:\s*"2\.\d{1,2}"\s*,\s*$|^\s*(?:\{\s*)?"entries"\s*:\s*\[\s*(?:\{?\s*$|\{\s*"(?:frames|duration_ms)")',
        JSON_LINE,
        balanced=True,
    ),
    # --- nvidia-smi
    Format(
        "smi-topo",
        ("PIX", "PXB", "PHB", "NODE", "SYS", "GNS", "CNS", "TNS"),
        f"{_TOPO_HEAD}|{_TOPO_ROW}",
        f"{_TOPO_HEAD}|{_TOPO_ROW}|{_TOPO_LEGEND}|{_TOPO_REST}",
        strangers=1,
        first=r"^\s*GPU0\s*(?:GPU\d+|NIC\d+|mlx\S+|CPU Aff|NUMA Aff)",
        joins=False,
        hints=(r"GPU\d", r"NIC\d{1,4}\s", r"mlx\S{0,24}\s"),
    ),
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
        (
            "NVSMI LOG", "Attached GPUs", "Driver Version", "DRIVER version", "KMD version", "KMD Version", "Bus Id", "Device Id", "GPU 0", "Remapped Rows", "Retired Pages", "GPU Link Info", "Fabric",
            "Clocks Throttle Reasons", "Clocks Event Reasons", "ECC Errors", "Ecc Errors", "BAR1 Memory Usage", "MIG Mode",
        ),
        r"^\s*=+NVSMI LOG=+|^\s*Attached GPUs\s+:|^\s*(?:Driver Version|DRIVER version|KMD [Vv]ersion)\s+: \d|^\s*GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*$"
        r"|^\s*Bus Id\s+: [0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d\s*$|^\s*Device Id\s+: 0x[0-9A-F]{4}10DE\s*$"
        # Headings from which authors quote a GPU's values without its name; what prose may say too only where it is indented.
        rf"|{_SMI_QUOTED}",
        # A leaf has a space before its colon (lspci's and lscpu's lines have none), a heading has no colon at all.
        rf"^\s*[\w(][^|:]{{0,80}}\s:(?:\s|$)|^\s*GPU [0-9A-Fa-f]{{4,8}}:|^(?!\s*(?:(?:GPU|NIC)\d|{_ELSE}))\s+[A-Za-z][^|:<]{{0,60}}$|^\s*\[?\s?\.{{3}}"
        rf"|{_SMI_QUOTED}",
        strangers=3,
        first=r"^\s*=+NVSMI LOG=+",
        joins=False,
    ),
    # An echoed command that asked for no header: it alone names the columns of what stands below it, here a single one.
    Format(
        "smi-csv",
        ("--query-gpu",),
        rf"{_ASKS_CSV}[a-z][\w.]*{_NO_HEADER}",
        r"^\s*(?:\d[\d.]{0,15}(?: (?:MiB|W|%|MHz))?|0x[0-9A-Fa-f]{1,16}|\[?N/A\]?|\[Not Supported\]|(?:En|Dis)abled|(?:Not )?Active|Yes|No|P\d{1,2}"
        r"|Not Started|In Progress|Completed|Success|(?:NVIDIA|Tesla|Quadro|GeForce|GRID) \w[\w ()/.-]{0,60}|[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|GPU-[0-9a-f-]{36})\s*$",
        first=_ASKS_CSV,
        joins=False,
    ),
    Format(
        "smi-csv",
        ("--query-gpu", "pci.bus_id", "pcie.link", "gpu_bus_id", "driver_version", "gpu_name", "gpu_uuid", "index,", "utilization.", "persistence_mode", "remapped_rows.", "retired_pages.", "[MiB]", "[W]", "[%]"),
        rf"^(?=[^A-Z]*(?:pci\.|pcie\.|gpu_bus_id|driver_version|gpu_name|uuid|memory\.|utilization\.|persistence_mode|mig\.mode|fabric\.|remapped_rows\.|retired_pages\.))\s*{_COLUMN}(?:\s*,\s*{_COLUMN})+\s*$"
        rf"|{_ASKS_CSV}[a-z][\w.]*(?:,[a-z][\w.]*)+{_NO_HEADER}"
        # A row of `noheader` that begins with the index and names the GPU.
        r"|^\s*\d{1,3}, (?:[^,]{1,80}, ){0,12}?(?:NVIDIA [A-Z][\w -]{1,60}|Tesla [A-Z]\S{1,40})(?:, [^,]{1,80}){2,24}\s*$",
        r"^(?!\s*max locked memory)[^,]{1,80}(?:,[^,]{0,120})+$",
        first=rf"^\s*{_COLUMN}(?:\s*,\s*{_COLUMN})+\s*$|{_ASKS_CSV}",
        joins=False,
        hints=(r" NVIDIA [A-Z][\w -]{1,60}, ", r" Tesla [A-Z]\S{1,40}, "),
    ),
    Format(
        "smi-table",
        ("NVIDIA-SMI", "MIG devices:", "GPU instances:", "Compute instances:"),
        # A GPU's first line, and the list of MIG devices, for excerpts that begin below the head; `mig -lgi` and `-lci`.
        r"\|\s*NVIDIA-SMI\s|^NVIDIA-SMI\s[\d.]+|NVIDIA-SMI has failed|NVIDIA-SMI couldn't|^\s*\|\s*(?:MIG devices|GPU instances|Compute instances):"
        r"|^\s*\|\s*\d{1,3}\s+\S.{0,60}\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\s+(?:On|Off|N/A|ERR!)\s*\|",
        # Tables of dcgmi are drawn alike.
        r"^\s*(?!\|\s*(?:Diagnostic\s+\|\s*Result|NvLink Link|NVLINK Error|Health Monitor|Overall Health|Topology Inf|GPU ID(?:: \d|\s*\|\s*Device Inf)))[|+]|WARNING: infoROM|^\s*\[?\.{3}",
        strangers=1,
        first=r"\|\s*NVIDIA-SMI\s",
        joins=False,
        hints=(r":[0-9A-Fa-f]{2}\.[0-7]\s{1,8}(?:On|Off|N/A|ERR!)\s{0,8}\|",),
    ),
    # What nvidia-smi says instead of an answer, or below one.
    Format(
        "smi-failure",
        ("Unable to determine the device handle", "Failed to initialize NVML", "infoROM is corrupted", "No devices were found", "nvidia-container-cli: "),
        r"nvidia-container-cli: (?:initialization|requirement) error: |Unable to determine the device handle for|Failed to initialize NVML|WARNING: infoROM is corrupted at gpu|^\s*No devices were found\s*$",
    ),
    # `nvidia-smi -L` and every form of `nvidia-smi nvlink` begin alike: a line per GPU. The parser tells them apart.
    Format(
        "smi-nvlink",
        ("(UUID: ", "Unable to retrieve NVLink", "Unable to retrieve Nvlink", "NVLE: "),
        r"^\s*GPU \d+: .{2,80}\(UUID: |^\s*GPU \d+: (?:NVIDIA|Tesla|Quadro|GeForce|GRID)\s[\w ./()-]{1,60}$"
        rf"|^\s*Links? \d+(?:-\d+)?(?:, ?\d+(?:-\d+)?)*: ?{_LINK_VALUE}|^\s*Link \d+, \w[\w ]{{3,50}}: \w"
        r"|Unable to retrieve N[Vv][Ll]ink information",
        r"^\s*GPU \d+: |^\s*Links? \d+(?:-\d+)?(?:, ?\d+(?:-\d+)?)*[:,] ?\S|^\s*(?:\[?\.{3,}\]?|…)\s*$|^\s*NVML: |Unable to retrieve N[Vv][Ll]ink|^\s*Device does not (?:have|support)|^\s*NVLE:|^\s*Firmware Version:|^\s*MIG .+\(UUID",
        hints=(r"Links? \d", r"GPU \d+: [NTQG]"),
    ),
    # PyTorch's report on an environment; its lscpu part is a section of its own.
    Format(
        "collect-env",
        ("PyTorch version", "Collecting environment information", "GPU models and configuration", "Nvidia driver version", "CUDA used to build PyTorch", "[pip", "[conda] "),
        r"^\s*(?:PyTorch version\s*:|Collecting environment information|GPU models and configuration\s*:|Nvidia driver version\s*:|CUDA used to build PyTorch\s*:|\[(?:pip3?|conda)\] [\w.-]+(?:==|\s+)\d)",
        r"^\s*GPU \d+: (?!.*\(UUID:)\S|^\s*\[(?:pip3?|conda)\] \S|^\s*(?:OS|Is |Python|PyTorch|ROCM|CUDA|GCC|Clang|CMake|Libc|GPU models|Nvidia driver|cuDNN|HIP|MIOpen|Probably one|Versions of)[^:]{0,50}(?::|\])|^\s*/usr/\S+\.so|^\s*=+\s*$",
        strangers=1,
    ),
    # /proc/driver/nvidia, as nvidia-bug-report shows it.
    Format("proc-nvidia", ("NVRM version:",), r"^\s*NVRM version:\s+NVIDIA UNIX", r"^\s*GCC version:"),
    Format(
        "proc-nvidia",
        (),
        r"^\s*Model:\s+(?:NVIDIA|Tesla|Quadro|GeForce|GRID|Unknown)\b",
        r"^\s*(?:IRQ|GPU UUID|Video BIOS|Bus Type|DMA Size|DMA Mask|Bus Location|Device Minor|GPU Firmware|GPU Excluded|Blacklisted):",
        hints=(r"Model:\s{1,16}[NTQGU]",),
    ),
    # --- PCI
    Format(
        "lspci",
        (
            "LnkSta", "LnkCap", "LnkCtl", "ACSCtl", "] Express (v", "Kernel driver in use: ", "IOMMU group: ", "Subsystem: ",
        ),
        rf"{_PCI_HEAD}|{_PCI_BARE}|{_PCI_LABEL}{_PCI_AT}[\s:=]{{1,6}}(?:LnkSta|LnkCap2?|LnkCtl|ACSCtl):\s|\b(?:LnkSta|LnkCap2?|LnkCtl|ACSCtl):\s|{_PCI_TELLING}",
        # Indented lines belong, but not those that other outputs indent too (topology headers, NVLink rows, tables, logs),
        # nor the first lines of what follows in a post that is indented as a whole.
        rf"{_PCI_HEAD}|{_PCI_BARE}|^\s+(?!{_ELSE}|[A-Z][\w ]{{1,40}}\s: |GPU\d|GPU \d|NIC\d|Link \d|[|+<]|\d+\s+\d+\s|\[ *\d+\.\d|\[\w{{3}} \w{{3}} |[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:|\d{{4}}-\d\d-\d\d[T ]\d\d:)\S|\b(?:LnkSta|LnkCap2?|LnkCtl|ACSCtl):\s|^\^+|{_PCI_WORDS}",
        strangers=3,  # a name or a list that a mailer broke
        hints=(
            r":[0-9a-f]{2}\.[0-7] (?:\"|[A-Z3]|[0-9a-f]{4}: )",
            r":[0-9a-f]{2}\.[0-7](?=[ :=#*>-]{0,40}(?:[\r\n]|\Z))",
            r"Region \d: ",
        ),
    ),
    # The picture of the tree (-t, -tv).
    Format(
        "lspci-tree",
        ("]-+-", "]---"),
        # Or a line from within it that names a bus itself.
        r"^\s*-(?:\+-)?\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-(?:\+-|--)[0-9a-f]{2}\.[0-7]|^\s*\|[ \t|]*[+\\]-[0-9a-f]{2}\.[0-7]-\[[0-9a-f]{2}(?:-[0-9a-f]{2})?\]-(?:\+-|---)[0-9a-f]{2}\.[0-7]",
        r"^[ \t|]*[+\\]-(?:\[[0-9a-f]{4,8}:[0-9a-f]{2}\]|[0-9a-f]{2}\.[0-7])|^[ \t|]*\|\s*$",
        first=r"^\s*-(?:\+-)?\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-",
        joins=False,
    ),
    # setpci -v at the extended capability of ACS.
    Format(
        "setpci",
        ("(ecap 000d @",),
        r"^\s*[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] \(ecap 000d @",
        r"^\s*[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] \(ecap 000d @|^\s*setpci: ",
        strangers=3,
    ),
    # Tags, the end of a comment and wrapped attributes belong. Authors quote elements from the middle of a file.
    Format(
        "topo-xml",
        ("<system version", "<cpu numaid=", "<cpu host_hash=", "<pci busid=", "<gpu dev=", "<nvlink target=", "<net name="),
        r'<system version=|^\s*<(?:cpu (?:numaid|host_hash)|pci busid|gpu dev|nvlink target|net name)="',
        r'^\s*<|-->|^\s*\w+="',
        strangers=20,
        until=r"</system>",
    ),
    # --- the host
    Format(
        "lscpu",
        ("Architecture:", "CPU(s):", "NUMA node", "Socket(s):", "Hypervisor vendor:"),
        r"^\s*Architecture:\s+\S|^\s*CPU\(s\):\s+\d|^\s*NUMA node\(s\):\s+\d|^\s*NUMA node\d+ CPU\(s\):|^\s*Socket\(s\):\s+\d|^\s*Hypervisor vendor:\s",
        r"^\s*(?!GPU \d|Links? \d|CA ')[A-Z][\w().,/-]*(?: [\w().,/-]+){0,6}:(?:\s|$)",
    ),
    Format(
        "numactl-h",
        ("available:",),
        r"^\s*available: \d+ nodes? \(",
        r"^\s*node\s|^\s*\d+:(?:\s+\d+)+\s*$",
        first=r"^\s*available:",
        joins=False,
    ),
    Format(
        "df",
        ("Mounted on", "/dev/shm"),
        r"^\s*Filesystem\s.*Mounted on|^\s*\S+(?:\s+\S+){3,4}\s+\d+%\s+/dev/shm\s*$",
        r"^\s*\S+(?:\s+\S+){2,4}\s+(?:\d+%|-)\s+/\S*|^\s*Filesystem\s.*Mounted on",
    ),
    Format(
        "ulimit",
        ("locked memory", "locked-in-memory", "Soft Limit", "ulimit -l"),
        r"^\s*[Mm]ax locked memory\s|^\s*(?:-l: )?locked(?:-in-memory| memory)|^\s*Limit\s+Soft Limit"
        r"|(?:^|[$#%>+]\s|['\"])\s*ulimit -l['\"]?\s*$",
        r"^\s*(?:-\w: |Max |Limit )?[a-zA-Z][\w /-]*(?:\([^()]{1,40}\))?\s+(?:unlimited|\d+)(?:\s+(?:unlimited|\d+)(?:\s+\w+)?)?\s*$"
        r"|^\s*(?:unlimited|\d{1,18})\s*$",
    ),
    Format(
        "lsmod",
        ("Used by", "nv_peer_mem", "gdrdrv", "nouveau"),
        r"^\s*Module\s+Size\s+Used by|^\s*(?:nvidia\w*|nv_peer_mem|gdrdrv|nouveau)\s+\d+\s+-?\d+(?:\s|$)",
        r"^\s*[a-z][a-z0-9_]*\s+\d+\s+-?\d+(?:\s|$)",
        hints=(r"nvidia\w{0,24}\s{1,24}\d",),
    ),
    Format(
        "nccl-conf",
        ("NCCL_", "CUDA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER=", "NVIDIA_VISIBLE_DEVICES="),
        rf"^\s*(?:export\s+|declare\s+-x\s+)?{_ENV_NAMES}\s*=\s*(?:\"[^\"]*\"|'[^']*'|\S*)\s*;?\s*$"
        rf"|\[launch\.py:\d+:main\] \d+ {_ENV_NAMES}[ =]\S+\s*$"
        # What NCCL says of a setting that it found, quoted without all that NCCL puts before it.
        r"|^\s*NCCL_[A-Z0-9_]{2,60} set by environment to \S{1,200}\s*$",
        r"\[launch\.py:\d+:main\] \d+ [A-Z][A-Z0-9_]*[ =]\S+\s*$|^\s*(?:export\s+|declare\s+-x\s+)?[A-Z][A-Z0-9_]*\s*=.*$|^\s*NCCL_[A-Z0-9_]+ set by environment to |^\s*#(?!\s*(?:size\s|nThread|Using devices|Rank\s|Collective test|nccl-tests|\(B\)))",
    ),
    Format(
        "ibstat",
        ("CA '", "hca_id:", "Infiniband device '"),
        r"^\s*CA '\S+'|^\s*hca_id:\s|^\s*Infiniband device '\S+' port",
        rf"^\s+(?!GPU \d|Links? \d|NUMA |{_ELSE})[A-Za-z][\w .()/-]{{0,40}}:|^\s*CA '|^\s*hca_id:|^\s*Infiniband device '",
    ),
    Format(
        "ibdev2netdev",
        (" ==> ",),
        r"^\s*(?:[0-9a-f:.]{12} )?\S{1,64}(?: \(\w.{0,240})?\s+port\s+\d{1,3}(?: \([A-Z]+\s*\))?\s+==>\s+\S+\s+\((?:Up|Down)\)",
        r"\s==>\s+\S+\s+\((?:Up|Down)\)",
    ),
)
