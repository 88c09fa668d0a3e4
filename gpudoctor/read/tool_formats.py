"""The outputs of measuring and diagnosing tools beside NCCL's: nvbandwidth, CUDA's samples, and DCGM's dcgmi."""

from __future__ import annotations

from gpudoctor.read.formats import JSON_LINE, Format

# Headings of dcgmi's tables, and rows of `diag` from which an excerpt may begin.
_DCGM = (
    r"^\s*\|\s*Diagnostic\s+\|\s*Result\s*\|?\s*$|^\s*[|+]-{5}\s+(?:Metadata|Deployment|Hardware|Integration|Stress|Performance)\s+-{3,}"
    r"|^\s*\|\s*(?:NvLink Link Status|NVLINK Error Counts|Health Monitor Report|Overall Health|Topology Information)\b"
    r"|^\s*\|\s*GPU ID\s*\|\s*Device Information\b"
    r"|^\s*\|\s*[A-Z][\w: ]{0,40}?\s*\|\s*(?:NVLINK Error Counts|Topology Information|Overall Health:)|^\s*Health Monitor Report\s*$"
    r"|^\s*\|\s*(?:GPU Memory|PCIe|Diagnostic|Pulse Test|SM Stress|Targeted Stress|Targeted Power|Memory Bandwidth|Memtest|EUD Test)\s+"
    r"\|\s*(?:Pass|Fail|Warn|Skip) - (?:All|GPUs?:)|^\s*gpuId \d{1,4}:\s*$"
)
_MATRIX = r"(?:(?:Uni|Bi)directional\s+)?P2P=(?:En|Dis)abled\s+(?:Write\s+)?(?:Bandwidth|Latency)\b"

TOOLS: tuple[Format, ...] = (
    Format(
        "nvbandwidth",
        ("nvbandwidth Version",),
        r"^\s*nvbandwidth Version|^\s*Running \w+(?:_memcpy_(?:read_|write_)?|_(?:read_|write_))(?:ce|sm)\.",
        r"^\s*(?:nvbandwidth Version|Built from|CUDA (?:Runtime|Driver) Version|Driver Version|Device \d+: |Running \w+\.|memcpy |SUM |NOTE:|Waived)|\] .{0,160}?in expression \w|^\s*\d+(?:\s+(?:\d+(?:\.\d+)?|N/A))*\s*$",
        strangers=2,
        first=r"^\s*nvbandwidth Version",
        joins=False,
        hints=(r"Running \w{8,50}_(?:ce|sm)\.",),
    ),
    # A heading of a page (`### Bidirectional P2P=Enabled …`) begins it too; an author's blank lines and notes stand between.
    Format(
        "p2p-test",
        ("P2P Connectivity Matrix", "P2P=Enabled ", "P2P=Disabled ", "(Peer-to-Peer) GPU", "pciBusID: ", "Access Peer Device=", "p2pBandwidthLatencyTest.cu:", "Peer access from "),
        rf"^[\s#*]*{_MATRIX}|^[\s#*]*P2P Connectivity Matrix|^\s*\[P2P \(Peer-to-Peer\) GPU|^\s*Device: \d+, .{{1,120}}, pciBusID: [0-9a-f]+, "
        r"|^[\s>]*Peer access from \S.{0,100} \(GPU\d+\) -> "  # simpleP2P
        r"|^\s*Device=\d+ (?:CAN|CANNOT) Access Peer Device=\d|^\s*Cuda failure \S*p2pBandwidthLatencyTest\.cu:\d+: '",
        rf"^[\s#*]*{_MATRIX}|^[\s#*]*P2P Connectivity Matrix|^\s*\[P2P \(Peer-to-Peer\) GPU|^\s*Device: \d+, .{{1,120}}, pciBusID: "
        r"|^\s*Device=\d+ (?:CAN|CANNOT) Access Peer Device=|^\s*(?:D[\\/]{0,2}D|GPU|CPU)\s+\d+(?:\s+\d+)*\s*$"
        r"|^\s*\d+\s+(?:\d+(?:\.\d+)?|N/A|-)(?:\s+(?:\d+(?:\.\d+)?|N/A|-))*\s*$|^\s*\**NOTE: |^\s*So you can see lesser Bandwidth"
        r"|^\s*Cuda failure \S*p2pBandwidthLatencyTest\.cu:\d+: '|^[\s>]*Peer access from \S.{0,100} \(GPU\d+\) -> |^\s*Verification error @ element \d"
        r"|^\s*(?:(?:En|Dis)abling peer access|Allocating buffers|Creating event handles|cudaMemcpyPeer / cudaMemcpy|Preparing host buffer|Run kernel on GPU"
        r"|Copy data back|Shutting down|Test (?:passed|failed))",
        strangers=2,
        first=r"^\s*\[P2P \(Peer-to-Peer\) GPU",
        joins=False,
    ),
    Format(
        "bandwidth-test",
        ("CUDA Bandwidth Test]", " Device Bandwidth, ", " Host Bandwidth, "),
        r"^\s*\[?CUDA Bandwidth Test\] - |^\s*(?:Host to Device|Device to (?:Host|Device)) Bandwidth, \d+ Device\(s\)",
        r"^\s*\[?CUDA Bandwidth Test\] - |^\s*(?:Running on|(?:Quick|Range|Shmoo) Mode|Device \d+: |(?:PINNED|PAGEABLE) Memory|Transfer Size|Result = |NOTE: |\.{3,}\s*$)"
        r"|^\s*(?:Host to Device|Device to (?:Host|Device)) Bandwidth, |^\s*\d{1,12}\s+\d+(?:\.\d+)?\s*$",
        strangers=1,
        first=r"^\s*\[?CUDA Bandwidth Test\] - ",
        joins=False,
    ),
    Format(
        "dcgm",
        (
            "Diagnostic  ", "  Metadata  -", "  Deployment  -", "  Hardware  -", "  Integration  -", "  Stress  -", "  Performance  -", "NvLink Link Status",
            "NVLINK Error Counts", "Health Monitor Report", "Overall Health", "Topology Information", "Device Information", "Pass - ", "Fail - ", "Warn - ", "Skip - ", "gpuId ",
        ),
        _DCGM,
        r"^\s*[|+](?!\s*NVIDIA-SMI)|^\s*(?:GPUs:|NvSwitches:|gpuId \d|physicalId \d|[UDX_](?: [UDX_])*\s*$|No (?:GPUs|NvSwitches) found|Link Entities:|Key: Up=U)"
        r"|^\s*\d{1,2}:\d{3,}(?:\s+\d{1,2}:\d{3,})*\s*$|^\s*Health Monitor Report\s*$",
        strangers=2,
    ),
    Format(
        "dcgm-json",
        ('"DCGM GPU Diagnostic"', '"DCGM Diagnostic"', '"test_categories"'),
        r'^\s*(?:\{\s*)?"DCGM (?:GPU )?Diagnostic"\s*:|^\s*(?:\{\s*)?"test_categories"\s*:',
        JSON_LINE,
        balanced=True,
    ),
)
