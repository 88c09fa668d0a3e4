"""What the lines of NCCL's own diagnostics mean (NCCL_RUN_DIAGNOSTICS, NCCL_RUN_RAS_DIAGNOSTICS, `ncclras -D`; 2.31 and later).

NCCL marks a line [OK] or [INFO] and nothing else: a fault, a check that could not be made and a mere remark all say [INFO],
so only the words tell them apart. Read from its source and user guide, 2.31 to 2.32 (src/diagnostics, src/ras/diagnostics*).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudoctor.pattern import lazy

PASSED, FAULT, UNABLE = "passed", "fault", "unable"
REMARK = "remark"  # a fault or not, by what else is known
STRANGE = "strange"  # a later release's words, or its mark for a failure

_RANKS = r"rank\(s\) (?P<ranks>\{[\d,.]*\}(?: \(N=\d+\))?)"
_DIFFER = rf"{_RANKS} differ from rank (?P<of>\d+) \((?P<there>.*?)\)"
_EDGE = (
    r"srcRank=(?P<src>\d+) srcCudaDev=-?\d+ srcNvmlDev=(?P<a>-?\d+) dstRank=(?P<dst>\d+) dstCudaDev=-?\d+ "
    r"dstNvmlDev=(?P<b>-?\d+) path=(?P<path>\w+) handle=(?P<handle>\w+)"
)
_ENDS = r"server_rank=\d+ server_host=(?P<server>\S*) server_device=(?P<nic>\S*) client_rank=\d+ client_host=(?P<client>\S*) client_device=\S* "


class Matter(NamedTuple):
    """One kind of line."""

    name: str
    kind: str
    pattern: re.Pattern[str]  # of the whole line behind its mark; what it names are the fields


# The first that fits counts.
MATTERS = (
    Matter("incomplete", UNABLE, lazy(r"[\w/ ]+: (?:diagnostics incomplete|incomplete for comm|unavailable\b|not usable on|unable to )")),
    Matter("p2p-data", FAULT, lazy(rf"p2p: (?P<way>write|read) mismatch {_EDGE}")),
    Matter(
        "p2p-edge", FAULT,
        lazy(rf"p2p: (?P<what>destination buffer unavailable|local CUDA setup failed|peer-memory import failed|topology check failed|launch/check failed) {_EDGE}"),
    ),
    Matter("p2p-some", FAULT, lazy(r"p2p: only (?P<good>\d+)/(?P<all>\d+) GPU-to-GPU peer accesses passed")),
    Matter("p2p-unable", UNABLE, lazy(r"p2p: (?:setup failed on rank|check returned) ")),
    Matter("p2p", REMARK, lazy(r"p2p: (?:temporarily enabled|resource cleanup failed)")),
    Matter(
        "net-off", REMARK,
        lazy(r"net bw: (?P<mode>\S+) rank (?P<rank>\d+) \((?P<host>[^)]*)\): (?P<rate>\d+\.\d) Gbit/s, >30% off median (?P<median>\d+\.\d) Gbit/s"),
    ),
    Matter("net-failed", FAULT, lazy(rf"net bw: mode=\w+ {_ENDS}(?:memory=\S+ )?(?P<what>tool run timed out|tool run failed)")),
    Matter("net-unable", UNABLE, lazy(r"net bw: (?:mode=|test unable|cannot |setup failed|bootstrap failure|invalid qps)|transport detect returned")),
    Matter("net", REMARK, lazy(r"net bw: ")),
    Matter("gpu-count", REMARK, lazy(rf"GPU inventory: count mismatch across .*?, {_DIFFER}")),
    Matter("gpu-model", REMARK, lazy(rf"GPU inventory: model mismatch across .*?, {_DIFFER}")),
    Matter("version-unable", UNABLE, lazy(r"(?:CUDA|NVIDIA graphics) driver version: (?:no driver|mismatch across .*? \((?:unavailable|no driver)[^)]*\)$)")),
    Matter("version", REMARK, lazy(rf"(?P<what>(?:CUDA|NVIDIA graphics) driver) version: mismatch across .*?, {_DIFFER}")),
    Matter("env-differs", REMARK, lazy(r"NCCL environment: mismatch across .*? for (?P<name>NCCL_\w+)$")),
    Matter("env-value", REMARK, lazy(rf"NCCL environment: (?P<name>NCCL_\w+)=(?P<value>.*) on {_RANKS}$")),
    Matter("env-count", REMARK, lazy(r"NCCL environment: \d+ NCCL_\* env var")),
    Matter("env-unable", UNABLE, lazy(r"NCCL environment: \d+ rank\(s\) had >")),
    Matter("ecc-uncorrected", FAULT, lazy(rf"ECC: uncorrected volatile errors on {_RANKS} \(worst=(?P<worst>\d+)\)")),
    Matter("ecc-corrected", REMARK, lazy(rf"ECC: corrected volatile errors at or above threshold \d+ on {_RANKS} \(worst=(?P<worst>\d+)\)")),
    Matter("ecc-unable", UNABLE, lazy(r"ECC: no uncorrected volatile errors across \d+ of ")),
    Matter("nvlink-count", REMARK, lazy(rf"NVLink: link-count mismatch across .*?, {_DIFFER}")),
    Matter("nvlink-inactive", REMARK, lazy(rf"NVLink: inactive link\(s\) on {_RANKS}")),
    Matter("nvlink-speed", REMARK, lazy(rf"NVLink: inconsistent link speeds on {_RANKS}")),
    Matter("rdma-topo", FAULT, lazy(rf"rdma_topo check: failed on {_RANKS} .*? exit -?\d+: (?P<said>.*)")),
    Matter("rdma-topo-unable", UNABLE, lazy(r"rdma_topo check: (?!passed)")),
    Matter("rdma-topo-some", REMARK, lazy(r"rdma_topo check: passed")),
    Matter("iommu", REMARK, lazy(r"IOMMU mode: enabled \(DMA remapping\) (?:for|on) (?P<devices>\d+) ")),
    Matter("iommu-some", REMARK, lazy(r"IOMMU mode: (?:mismatch|disabled|passthrough)|IOMMU groups: GPU and NIC groups")),
    Matter("iommu-unable", UNABLE, lazy(r"IOMMU (?:mode|groups): ")),
    Matter("ats", REMARK, lazy(r"ATS state: (?:ATSCtl )?(?:disabled|enabled)")),
    Matter("ats-unable", UNABLE, lazy(r"ATS state: ")),
    Matter(
        "xid", FAULT,
        lazy(r"(?P<kind>S?Xid) (?P<code>\d{1,5}) detected (?:at least )?(?P<times>\d+) times? (?:\(NVSwitch driver reported (?P<fatal>Fatal|Non-fatal).*?\) )?on host (?P<host>\S+)\. "),
    ),
    Matter("xid-unable", UNABLE, lazy(r"Xid/SXid: ")),
    Matter("paths-unable", UNABLE, lazy(r"Paths: could not locate")),
    Matter("paths", REMARK, lazy(r"Paths: ")),
    Matter("nic-down", FAULT, lazy(r"Net device (?P<nic>[\w.-]+):\d+: .*\(port is not active\)")),
    Matter("nic-differs", FAULT, lazy(rf"Net device (?P<nic>[\w.-]+):\d+: {_RANKS} differ from rank (?P<of>\d+) \((?P<there>.*?)\) across")),
    Matter("nic-unable", UNABLE, lazy(r"Net device(?:: (?:skipped|not inspected)| .*\(some port attributes unavailable\))")),
    Matter("nic-some", REMARK, lazy(r"Net device[: ]")),
)  # fmt: skip


class Read(NamedTuple):
    """One line, read."""

    kind: str
    name: str  # of the matter
    fields: dict[str, str]


def read(status: str, text: str) -> Read:
    """What a line says, by its mark and its words."""
    if status == "OK":
        return Read(PASSED, "", {})
    for matter in MATTERS:
        found = matter.pattern.match(text)
        if found is not None:
            return Read(matter.kind, matter.name, {k: v for k, v in found.groupdict().items() if v is not None})
    return Read(REMARK if status == "INFO" else STRANGE, "", {})
