"""NCCL's own diagnostics (2.31 and later): it marks a fault, a check that could not be made and a remark alike with [INFO].

The lines are synthetic, in the words of NCCL's source; those of the recorded log are in order.
"""

from __future__ import annotations

import pytest

from gpudoctor.nccl_diagnostics import MATTERS, PASSED, REMARK, STRANGE, UNABLE, read
from gpudoctor.parsers.nccl_log import parse
from gpudoctor.read.recognise import Recogniser
from tests import support
from tests.support import FIXTURES
from tests.unit.test_nccl_checks import pair_of_ranks, say

COMM = "in comm 0xf1699a110ca5e97e"
EDGE = "srcRank={a} srcCudaDev={a} srcNvmlDev={a} dstRank={b} dstCudaDev={b} dstNvmlDev={b} path={path} handle={handle}"
ADVICE = "check the affected pair"


def edge(a: int = 0, b: int = 1, path: str = "NVL", handle: str = "CUMEM_POSIX_FD") -> str:
    return EDGE.format(a=a, b=b, path=path, handle=handle)


INVENTORY = "[OK]   GPU inventory: 8x {} per node consistent across 8 ranks " + COMM
NET = "server_rank=0 server_host=a server_device=mlx5_0 client_rank=8 client_host=b client_device=mlx5_0 memory=cuda"

# line, slug, severity, subject, what the message must name
FAULTS = [
    (f"p2p: write mismatch {edge()} expected=0x0 got=0x1 verify=0x1; {ADVICE}", "wrong-results", "error", "pair:0-1", "rank 0 (GPU0) to rank 1 (GPU1)"),
    (f"p2p: read mismatch {edge(3, 1, 'PHB')} expected=0x0 got=0x1; {ADVICE}", "wrong-results", "error", "pair:1-3", "over PCIe (PHB)"),
    (f"p2p: read mismatch {edge(0, 8, 'NVL', 'CUMEM_FABRIC')} expected=0x0 got=0x1; {ADVICE}", "wrong-results", "error", "host", "between hosts"),
    (f"p2p: peer-memory import failed {edge()} reason=import; {ADVICE}", "p2p-unsupported", "error", "pair:0-1", "peer-memory import failed"),
    (f"p2p: launch/check failed {edge()} reason=writeLaunch; {ADVICE}", "p2p-unsupported", "error", "pair:0-1", "launch/check failed"),
    ("p2p: only 52/56 GPU-to-GPU peer accesses passed verification", "p2p-unsupported", "error", "host", "52 of 56"),
    (f"net bw: cross-nic rank 3 (node0): 265.1 Gbit/s, >30% off median 391.5 Gbit/s {COMM}", "nic-link", "warning", "rank:3", "265.1 Gbit/s"),
    (f"net bw: mode=same {NET} tool run timed out {COMM}", "network-error", "warning", "host", "from b to a over mlx5_0"),
    (f"GPU inventory: count mismatch across 16 ranks {COMM}, rank(s) {{8,9}} differ from rank 0 (8)", "rank-mismatch", "warning", "host", "ranks 8,9"),
    (f"GPU inventory: model mismatch across 2 ranks {COMM}, rank(s) {{1}} differ from rank 0 (NVIDIA H200)", "rank-mismatch", "warning", "rank:1", "NVIDIA H200"),
    (f"CUDA driver version: mismatch across 2 ranks {COMM}, rank(s) {{1}} differ from rank 0 (13000)", "version-mismatch", "warning", "rank:1", "13000"),
    (f"NVIDIA graphics driver version: mismatch across 2 ranks {COMM}, rank(s) {{1}} differ from rank 0 (580.1)", "version-mismatch", "warning", "rank:1", "580.1"),
    (f"NCCL environment: mismatch across 2 ranks {COMM} for NCCL_ALGO", "rank-mismatch", "error", "host", "NCCL_ALGO"),
    (f"ECC: uncorrected volatile errors on rank(s) {{0,1,...}} (N=9) (worst=4) across 16 ranks {COMM}", "ecc-remap", "error", "host", "0,1,... (N=9)"),
    (f"ECC: corrected volatile errors at or above threshold 5 on rank(s) {{2}} (worst=6) across 8 ranks {COMM}", "ecc-remap", "note", "rank:2", "6"),
    (f"NVLink: link-count mismatch across 8 ranks {COMM}, rank(s) {{3}} differ from rank 0 (18)", "nvlink-down", "warning", "rank:3", "18"),
    (f"NVLink: inactive link(s) on rank(s) {{3}} across 8 ranks {COMM}", "nvlink-down", "warning", "rank:3", "inactive"),
    (f"NVLink: inconsistent link speeds on rank(s) {{3}} across 8 ranks {COMM}", "nvlink-down", "warning", "rank:3", "speeds"),
    (f"rdma_topo check: failed on rank(s) {{0}} across 8/8 ranks {COMM}; first rank 0 exit 100: FAIL\tACS of 0000:01:00.0", "acs", "warning", "rank:0", "0000:01:00.0"),
    (f"IOMMU mode: enabled (DMA remapping) for 4 relevant device(s) across 2/2 ranks {COMM}", "iommu", "warning", "host", "4 of"),
    ("Xid 79 detected 1 time on host node07.example. For the recommended response, see the documentation: URL", "xid", "error", "host", "Xid 79 on node07.example"),
    ("Xid 13 detected at least 70000 times on host a. Restart the affected application. For guidance, see: URL", "xid", "note", "host", "70000 times"),
    ("SXid 12028 detected 2 times (NVSwitch driver reported Fatal, link(s) {3,4}) on host a. See the documentation: URL", "xid", "error", "host", "SXid 12028"),
    ("SXid 12028 detected 2 times (NVSwitch driver reported Non-fatal, link(s) {3,4}) on host a. See: URL", "xid", "warning", "host", "SXid 12028"),
    (f"Net device mlx5_0:1: net device type=Host, speed=400000 Mbps, link layer=InfiniBand, state=DOWN/POLLING across 2 nodes {COMM} (port is not active)", "nic-link", "warning", "nic:mlx5_0", "not active"),
    (f"Net device mlx5_0:1: rank(s) {{1}} differ from rank 0 (net device type=Host, speed=400000 Mbps) across 2 of 2 nodes {COMM}", "nic-link", "warning", "nic:mlx5_0", "400000"),
]  # fmt: skip

# What stands next to a fault and is none.
IN_ORDER = [
    ("[OK]   p2p: verified P2P access in both directions between every GPU pair (2 peer accesses)", PASSED),
    (f"[OK]   ECC: no uncorrected volatile errors across 2 ranks {COMM}", PASSED),
    ("[OK]   Xid 63 detected 1 time on host a. No user action or further investigation is required for this Xid.", PASSED),
    ("[INFO] p2p: temporarily enabled context-wide CUDA peer access rank=0 cudaDev=0; avoid concurrent CUDA use", REMARK),
    ("[INFO] p2p: check returned 1", UNABLE),
    (f"[INFO] net bw: 265.1/391.5/398.0 Gbit/s min/median/max cross-nic bw (across 8 ranks) {COMM}", REMARK),
    (f"[INFO] net bw: same-nic rank 3 (node0): 591.5 Gbit/s, >30% off median 391.5 Gbit/s {COMM}", REMARK),
    (f"[INFO] net bw: mode=same {NET} tool missing {COMM}", UNABLE),
    (f"[INFO] net bw: test unable to complete in allocated time; ran 1 of 2 test phases {COMM}", UNABLE),
    (f"[INFO] GPU inventory: unavailable via NVML across 2 ranks {COMM}", UNABLE),
    (f"[INFO] GPU inventory: diagnostics incomplete, gathered 3/8 ranks {COMM}/0x1/0x2", UNABLE),
    (f"[INFO] CUDA driver version: mismatch across 2 ranks {COMM}, rank(s) {{1}} differ from rank 0 (unavailable)", UNABLE),
    (f"[INFO] NCCL environment: mismatch across 8 ranks {COMM} for NCCL_DEBUG", REMARK),
    ("[INFO] NCCL environment: NCCL_ALGO=Ring on rank(s) {0,1,2,3}", REMARK),
    ("[INFO] NCCL environment: 1 rank(s) had >16384 bytes of NCCL_* env vars; comparison may be partial", UNABLE),
    (f"[INFO] ECC: unavailable via NVML across 2 ranks {COMM}", UNABLE),
    (f"[INFO] ECC: no uncorrected volatile errors across 1 of 2 ranks {COMM} (ECC counters unavailable via NVML on 1 ranks)", UNABLE),
    (f"[INFO] rdma_topo check: not usable on 2/2 ranks {COMM} (unavailable)", UNABLE),
    (f"[INFO] IOMMU mode: unable to identify relevant GPU/NIC pairs on 2/2 ranks {COMM}", UNABLE),
    (f"[INFO] IOMMU mode: passthrough on 2 device(s); first rank 0 device 0000:01:00.0 {COMM}", REMARK),
    (f"[INFO] ATS state: disabled on 2 rank/NIC pair(s) across 2/2 ranks {COMM}", REMARK),
    ("[INFO] Xid/SXid: no kernel-log source was available on host a", UNABLE),
    (f"[INFO] Paths: self+NVL(6/8)+SYS across 8 ranks {COMM}", REMARK),
    (f"[INFO] Net device: skipped across 2 ranks {COMM} (network plugin is not a recognized verbs-based InfiniBand/RoCE plugin)", UNABLE),
    (f"[INFO] NCCL environment: 1 NCCL_* env var(s) differ across ranks {COMM}", REMARK),
    (f"[INFO] rdma_topo check: passed on 1/2 ranks {COMM}", REMARK),
    (f"[INFO] rdma_topo check: inconclusive on rank(s) {{0}} {COMM}", UNABLE),
    (f"[INFO] IOMMU groups: GPU and NIC groups differ on 2 pair(s) {COMM}; first rank 0 GPU group 1 NIC 0000:01:00.0 group 2", REMARK),
    (f"[INFO] IOMMU groups: comparison unavailable on 2 GPU/NIC pair(s) {COMM}", UNABLE),
    (f"[INFO] ATS state: lspci output truncated on rank(s) {{0}} {COMM}", UNABLE),
    (f"[INFO] Paths: could not locate the rank's own GPU in the topology, so its paths are unknown -- {{0}} {COMM}", UNABLE),
    (f"[INFO] Net device mlx5_1:1: reported on only 1 of 2 nodes {COMM} (device may be missing on some nodes)", REMARK),
    ("[INFO] moon phase: waning", REMARK),
    ("[FAIL] moon phase: waning", STRANGE),
]  # fmt: skip


def diag(*lines: str) -> str:
    return "".join(f"h:768 NCCL DIAG {line}\n" for line in ("=== NCCL Diagnostics ===", *lines, "NCCL diagnostics completed in 10.8 ms across 2 ranks"))


@pytest.mark.parametrize(("text", "slug", "severity", "subject", "names"), FAULTS)
def test_what_is_not_in_order(text: str, slug: str, severity: str, subject: str, names: str) -> None:
    found = say(diag(f"[INFO] {text}"))
    assert set(found) == {slug}
    assert (found[slug].severity, found[slug].subject) == (severity, subject) and names in found[slug].message
    assert found[slug].remediation[-1].command and found[slug].evidence


@pytest.mark.parametrize(("line", "kind"), IN_ORDER)
def test_what_stands_next_to_a_fault(line: str, kind: str) -> None:
    assert say(diag(line)) == {}
    status, text = line.split("]", 1)
    line_read = read(status[1:], text.strip())
    assert kind == line_read.kind


def test_every_matter_has_a_line() -> None:
    named = {read("INFO", text).name for text, *_ in FAULTS} | {read("INFO", line.split("] ")[1]).name for line, _ in IN_ORDER if line.startswith("[INFO]")}
    assert {m.name for m in MATTERS} <= named


def test_a_fault_that_is_none_of_this_hosts_parts() -> None:
    """Inactive links by the model that the inventory names: a board must have them up, a card may have no bridge."""
    line = f"[INFO] NVLink: inactive link(s) on rank(s) {{3}} across 8 ranks {COMM}"
    assert say(diag(INVENTORY.format("NVIDIA H100 80GB HBM3"), line))["nvlink-down"].severity == "error"
    assert say(diag(INVENTORY.format("NVIDIA A40"), line))["nvlink-down"].severity == "note"


def test_a_pair_is_named_once_and_the_sum_not_beside_it() -> None:
    both = [f"[INFO] p2p: write mismatch {edge(a, 1 - a)} expected=0x0 got=0x1 verify=0x1; {ADVICE}" for a in (0, 1)]
    text = diag("[INFO] p2p: only 0/2 GPU-to-GPU peer accesses passed verification", *both)
    found = say(text)
    assert set(found) == {"wrong-results"} and len(found["wrong-results"].evidence) == 2


def test_settings_that_differ_are_given_with_their_values_and_told_once() -> None:
    lines = [
        f"[INFO] NCCL environment: mismatch across 2 ranks {COMM} for NCCL_ALGO",
        "[INFO] NCCL environment: NCCL_ALGO=Ring on rank(s) {0}",
        "[INFO] NCCL environment: NCCL_ALGO=(unset) on rank(s) {1}",
        f"[INFO] NCCL environment: 1 NCCL_* env var(s) differ across ranks {COMM}",
    ]
    assert "NCCL_ALGO is Ring on rank 0, (unset) on rank 1." in say(diag(*lines))["rank-mismatch"].message
    own = "h:10:20 [0] NCCL INFO NCCL_ALGO set by environment to Ring\nh:11:21 [1] NCCL INFO NCCL_ALGO set by environment to Tree\n"
    text = (pair_of_ranks("P2P/CUMEM") + own + diag(*lines)).encode()
    _, got = support.report("check", "--from", "-", stdin=text)
    assert [f["message"].startswith("The ranks run") for r in got["results"] for f in r["findings"] if r["slug"] == "rank-mismatch"] == [True]


def test_another_communicator_says_the_same_once_and_a_cut_line_nothing() -> None:
    lines = [f"[INFO] ECC: uncorrected volatile errors on rank(s) {{0}} (worst=2) across 2 ranks in comm 0x{n:x}" for n in range(1, 4)]
    (fact,) = (f for s in Recogniser("t").run([diag(*lines).encode()]) for f in parse(s))
    assert len(fact.diagnostics) == 1 and fact.diagnostics[0].at("text").where == "line 2"
    whole = diag("[INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification").encode()
    whole = whole[: whole.index(b"verification") + 12]
    for end in range(len(whole)):
        assert not any(f.diagnostics for s in Recogniser("t").run([whole[:end]]) if s.kind == "nccl-log" for f in parse(s))


def test_the_picture_tells_them_apart() -> None:
    text = diag(
        f"[OK]   ECC: no uncorrected volatile errors across 2 ranks {COMM}",
        f"[INFO] rdma_topo check: not usable on 2/2 ranks {COMM} (unavailable)",
        "[INFO] p2p: only 1/2 GPU-to-GPU peer accesses passed verification",
        f"[INFO] ATS state: disabled on 2 rank/NIC pair(s) across 2/2 ranks {COMM}",
    )
    seen = " ".join(support.gpudoctor("check", "--from", "-", stdin=text.encode()).stdout.decode().split())
    assert "1 of NCCL's own diagnostics passed; not in order: p2p: only 1/2" in seen
    assert "could not be made: rdma_topo check" in seen and "worth a look: ATS state" in seen
    healthy = (FIXTURES / "outputs" / "nccl-log" / "h200x2-2.32.3-diagnostics.txt").read_bytes()
    assert "2 of NCCL's own diagnostics passed, none complains" in " ".join(support.gpudoctor("check", "--from", "-", stdin=healthy).stdout.decode().split())


def test_that_data_arrive_whole_only_a_check_of_them_tells() -> None:
    def wrong(text: str) -> str:
        return next(r["status"] for r in support.report("check", "--from", "-", stdin=text.encode())[1]["results"] if r["slug"] == "wrong-results")

    assert wrong(pair_of_ranks("P2P/CUMEM")) == "skipped"
    assert wrong(pair_of_ranks("P2P/CUMEM") + diag(IN_ORDER[0][0])) == "ok"
