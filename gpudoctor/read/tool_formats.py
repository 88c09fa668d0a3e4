"""The outputs of measuring and diagnosing tools beside NCCL's: CUDA's p2pBandwidthLatencyTest, and DCGM's dcgmi."""

from __future__ import annotations

from gpudoctor.read.formats import Format

_MATRIX = r"(?:(?:Uni|Bi)directional\s+)?P2P=(?:En|Dis)abled\s+(?:Write\s+)?(?:Bandwidth|Latency)\b"

TOOLS: tuple[Format, ...] = (
    # A heading of a page (`### Bidirectional P2P=Enabled …`) begins it too; an author's blank lines and notes stand between.
    Format(
        "p2p-test",
        ("P2P Connectivity Matrix", "P2P=Enabled ", "P2P=Disabled ", "(Peer-to-Peer) GPU", "pciBusID: ", "Access Peer Device="),
        rf"^[\s#*]*{_MATRIX}|^[\s#*]*P2P Connectivity Matrix|^\s*\[P2P \(Peer-to-Peer\) GPU|^\s*Device: \d+, .{{1,120}}, pciBusID: [0-9a-f]+, "
        r"|^\s*Device=\d+ (?:CAN|CANNOT) Access Peer Device=\d",
        rf"^[\s#*]*{_MATRIX}|^[\s#*]*P2P Connectivity Matrix|^\s*\[P2P \(Peer-to-Peer\) GPU|^\s*Device: \d+, .{{1,120}}, pciBusID: "
        r"|^\s*Device=\d+ (?:CAN|CANNOT) Access Peer Device=|^\s*(?:D[\\/]{0,2}D|GPU|CPU)\s+\d+(?:\s+\d+)*\s*$"
        r"|^\s*\d+\s+(?:\d+(?:\.\d+)?|N/A|-)(?:\s+(?:\d+(?:\.\d+)?|N/A|-))*\s*$|^\s*\**NOTE: |^\s*So you can see lesser Bandwidth",
        strangers=2,
        first=r"^\s*\[P2P \(Peer-to-Peer\) GPU",
        joins=False,
    ),
)
