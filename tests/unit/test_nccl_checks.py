"""What is said of NCCL's log: each cause, its healthy neighbour, and what cannot be told."""

from __future__ import annotations

import pytest

from gpudoctor.checkers.nccl_failure import NcclFailure
from gpudoctor.checkers.nccl_ranks import NcclRanks
from gpudoctor.checkers.nccl_transport import NcclTransport
from gpudoctor.facts.base import Fact
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Setting, Settings
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CannotTell, Finding
from tests.nccl_logs import job
from tests.support import FIXTURES, HERE, check, report
from tests.unit.test_nccl_log import read

LOGS = FIXTURES / "outputs" / "nccl-log"


def say(*texts: str | bytes, more: tuple[Fact, ...] = ()) -> dict[str, Finding]:
    """slug -> finding of all three checkers; the notes on settings left out."""
    nccl = read(*texts)
    found = [f for c in (NcclFailure(), NcclTransport(), NcclRanks()) for f in check(c, nccl, *more)]
    return {f.slug: f for f in found if isinstance(f, Finding) and not (f.slug == "nccl-env" and f.severity == "note")}


def untold(*texts: str | bytes) -> dict[str, str]:
    nccl = read(*texts)
    return {f.slug: f.reason for c in (NcclFailure(), NcclTransport()) for f in check(c, nccl) if isinstance(f, CannotTell)}


def recorded(name: str) -> bytes:
    return (LOGS / f"h200x2-{name}.txt").read_bytes()


def pair_of_ranks(via: str, *more: str, nnodes: int = 1, hosts: tuple[str, str] = ("h", "h"), addresses: tuple[str, str] = ("10.0.0.1", "10.0.0.1")) -> str:
    lines = []
    for rank in (0, 1):
        head = f"{hosts[rank]}:{rank + 10}:{rank + 20} [{rank}] NCCL INFO "
        lines += [
            f"{head}Bootstrap: Using eth0:{addresses[rank]}<0>",
            f"{head}NCCL version 2.28.9+cuda13.0",
            f"{head}ncclCommInitRank comm 0x{rank + 1} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId 0xab - Init START",
            f"{head}comm 0x{rank + 1} rank {rank} nRanks 2 nNodes {nnodes} localRanks {2 // nnodes} localRank {rank if nnodes == 1 else 0} MNNVL 0",
            *(f"{head}{m}" for m in more),
            f"{head}Channel 00/0 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] {'[send] ' if via.startswith('NET') else ''}via {via}",
            f"{head}2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
            f"{head}ncclCommInitRank comm 0x{rank + 1} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId 0xab - Init COMPLETE",
        ]
    return "\n".join(lines) + "\n"


def matrix(path: str | None = "NVL", p2p: str | None = None) -> Pairs:
    return Pairs((Pair(a=0, b=1, path=path, p2p_read=p2p, p2p_write=p2p, origin=HERE),))


@pytest.mark.parametrize("name", ["2.28.9-p2p", "2.28.9-graph", "2.32.3-diagnostics"])
def test_healthy_logs_say_nothing(name: str) -> None:
    assert say(recorded(name)) == {}


@pytest.mark.parametrize(
    ("name", "slug", "severity"),
    [
        ("2.28.9-duplicate-gpu", "duplicate-gpu", "error"),
        ("2.32.3-duplicate-gpu", "duplicate-gpu", "error"),
        ("2.28.9-small-shm", "shm", "error"),
        ("2.28.9-split-host", "split-host", "error"),
        ("2.28.9-env-mismatch", "rank-mismatch", "error"),
        ("2.28.9-killed-peer", "peer-died", "error"),
        ("2.28.9-p2p-disabled", "p2p-disabled-env", "error"),
        ("2.18.3-socket", "socket-fallback", "error"),
        ("2.18.3-socket", "p2p-disabled-env", "warning"),
    ],
)
def test_recorded_faults(name: str, slug: str, severity: str) -> None:
    assert say(recorded(name))[slug].severity == severity


def test_the_dead_rank_is_named_and_not_the_one_that_complains() -> None:
    assert say(recorded("2.28.9-killed-peer"))["peer-died"].subject == "rank:1"


def test_settings_that_differ_are_named_with_their_ranks() -> None:
    message = say(recorded("2.28.9-env-mismatch"))["rank-mismatch"].message
    assert "NCCL_ALGO is Ring on rank 0, Tree on rank 1" in message and "NCCL_PROTO" in message


def test_interfaces_may_differ() -> None:
    lines = [f"h:{r + 1}:9 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth{r}" for r in (0, 1)]
    assert "rank-mismatch" not in say(pair_of_ranks("P2P/CUMEM") + "\n".join(lines) + "\n")


def test_one_rank_of_64_with_another_setting_is_the_subject() -> None:
    lines = list(job(64))
    odd = [i for i, line in enumerate(lines) if line.startswith("node004:20037:") and "NCCL_IB_TIMEOUT" in line][0]
    lines.insert(odd, lines[odd].replace("NCCL_IB_TIMEOUT set by environment to 22.", "NCCL_ALGO set by environment to Tree"))
    found = say("\n".join(lines) + "\n")["rank-mismatch"]
    assert found.subject == "rank:37" and "NCCL_ALGO" in found.message


def test_one_failing_rank_of_64_is_the_cause_and_its_victims_are_not() -> None:
    lines = list(job(64))
    head = "[2026-03-01 12:30:00] node{n}:{p}:{p} [{d}] "
    victims = [f"{head.format(n=f'{r // 8:03d}', p=20000 + r, d=r % 8)}misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node004<5000>" for r in range(64) if r != 37]
    root = head.format(n="004", p=20037, d=5) + "transport/net_ib.cc:99 NCCL WARN Cuda failure 'an illegal memory access was encountered'"
    for text in ([*victims, root], [root, *victims], [*victims[:9], root, *victims[9:]]):
        found = say("\n".join([*lines, *text]) + "\n")
        assert set(found) == {"cuda-error"} and found["cuda-error"].subject == "rank:37"
    # The same with one file a rank.
    files: dict[str, list[str]] = {}
    for line in [*lines, *victims, root]:
        files.setdefault(line.removeprefix("[2026-03-01 12:30:00] ").split(":")[1], []).append(line)
    found = say(*("\n".join(f) + "\n" for f in files.values()))
    assert set(found) == {"cuda-error"} and found["cuda-error"].subject == "rank:37"
    # Without the culprit's words: the one that did not complain.
    assert say("\n".join([*lines, *victims]) + "\n")["peer-died"].subject == "rank:37"


def test_shared_memory_is_only_a_fault_where_more_was_possible() -> None:
    text = pair_of_ranks("SHM/direct/direct")
    assert "p2p-not-used" not in say(text) and "p2p-not-used" in untold(text)
    assert say(text, more=(matrix("NVL"),))["p2p-not-used"].severity == "error"
    assert say(text, more=(matrix("PHB", "OK"),))["p2p-not-used"].severity == "warning"
    assert "NCCL_P2P_LEVEL=PHB" in str(say(text, more=(matrix("PHB", "OK"),))["p2p-not-used"].remediation)
    assert say(text, more=(matrix("PHB", "CNS"),))["p2p-not-used"].severity == "note"
    geforce = Gpus(tuple(Gpu(index=i, name="NVIDIA GeForce RTX 4090", origin=HERE) for i in (0, 1)))
    assert say(text, more=(geforce,))["p2p-not-used"].severity == "note"
    assert "p2p-not-used" not in say(pair_of_ranks("P2P/CUMEM"), more=(matrix("NVL"),))


def test_a_switch_is_a_fault_by_what_it_costs() -> None:
    text = pair_of_ranks("SHM/direct/direct", "NCCL_P2P_DISABLE set by environment to 1")
    assert say(text)["p2p-disabled-env"].severity == "warning"
    assert say(text, more=(matrix("NVL"),))["p2p-disabled-env"].severity == "error"
    assert say(text, more=(matrix("PHB", "CNS"),))["p2p-disabled-env"].severity == "note"
    for harmless in ("NCCL_P2P_DISABLE set by environment to 0", "NCCL_P2P_DISABLE set by environment to 2"):
        assert "p2p-disabled-env" not in say(pair_of_ranks("SHM/direct/direct", harmless))
    assert "p2p-disabled-env" not in say(pair_of_ranks("P2P/CUMEM", "NCCL_P2P_LEVEL set by environment to PIX"))
    assert say(pair_of_ranks("SHM/direct/direct", "NCCL_P2P_LEVEL set by environment to LOC"))["p2p-disabled-env"].severity == "warning"


def test_the_switch_in_the_hosts_own_settings_is_said_once() -> None:
    own = Settings((Setting(name="NCCL_P2P_DISABLE", value="1", scope="/etc/nccl.conf", origin=HERE),))
    text = pair_of_ranks("SHM/direct/direct", "NCCL_P2P_DISABLE set by environment to 1")
    assert "p2p-disabled-env" not in say(text, more=(own, matrix("NVL")))


def test_a_way_around_a_failure_is_not_its_cause() -> None:
    failed = "h:90:91 [0] init.cc:9 NCCL WARN Cuda failure 'an illegal memory access was encountered'\n"
    found = say(failed, pair_of_ranks("SHM/direct/direct", "NCCL_P2P_DISABLE set by environment to 1"))
    assert found["cuda-error"].severity == "error" and found["p2p-disabled-env"].severity == "note"


def test_sockets_within_and_between_hosts() -> None:
    inside = say(pair_of_ranks("NET/Socket/0"))
    assert inside["socket-fallback"].severity == "error"
    apart = pair_of_ranks("NET/Socket/0", nnodes=2, hosts=("a", "b"), addresses=("10.0.0.1", "10.0.0.2"))
    assert say(apart) == {}
    rdma = pair_of_ranks("NET/Socket/0", "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>", nnodes=2, hosts=("a", "b"), addresses=("10.0.0.1", "10.0.0.2"))
    assert say(rdma)["socket-fallback"].severity == "warning"
    assert "socket-fallback" not in say(rdma.replace("NET/Socket/0", "NET/IB/0/GDRDMA"))


def test_one_machine_counted_twice() -> None:
    split = pair_of_ranks("NET/Socket/0", nnodes=2, hosts=("a", "b"))
    assert say(split)["split-host"].severity == "error"
    # Two machines that share a name and hand out the same GPUs: nothing is known of who sits where.
    twins = split.replace("busId 2000", "busId 1000").replace("nvmlDev 1", "nvmlDev 0")
    assert "split-host" not in say(twins)
    assert "split-host" not in say(pair_of_ranks("NET/Socket/0", nnodes=2, hosts=("a", "b"), addresses=("10.0.0.1", "10.0.0.2")))


def test_gpudirect() -> None:
    far = {"nnodes": 2, "hosts": ("a", "b"), "addresses": ("10.0.0.1", "10.0.0.2")}
    assert say(pair_of_ranks("NET/IB/0", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", **far))["gdr-off"].severity == "warning"  # type: ignore[arg-type]
    assert say(pair_of_ranks("NET/IB/0", **far))["gdr-off"].confidence == "possible"  # type: ignore[arg-type]
    assert "gdr-off" not in say(pair_of_ranks("NET/IB/0/GDRDMA", **far))  # type: ignore[arg-type]
    assert "gdr-off" not in say(pair_of_ranks("P2P/CUMEM", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"))


def test_versions() -> None:
    text = pair_of_ranks("P2P/CUMEM")
    other = text.replace("h:11:21 [1] NCCL INFO NCCL version 2.28.9", "h:11:21 [1] NCCL INFO NCCL version 2.26.5")
    assert "2.26.5 on rank 1" in say(other)["version-mismatch"].message
    old = text.replace("2.28.9", "2.25.1")
    new_card = Gpus(tuple(Gpu(index=i, name="NVIDIA GeForce RTX 5090", origin=HERE) for i in (0, 1)))
    assert say(old, more=(new_card,))["version-mismatch"].severity == "error"
    assert "version-mismatch" not in say(text, more=(new_card,)) and "version-mismatch" not in say(old)


def test_refusals_of_the_driver() -> None:
    line = "h:1:1 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
    assert say(line)["p2p-unsupported"].severity == "warning" and say(line)["p2p-unsupported"].subject == "pair:0-1"
    geforce = Gpus(tuple(Gpu(index=i, name="NVIDIA GeForce RTX 4090", origin=HERE) for i in (0, 1)))
    assert say(line, more=(geforce,))["p2p-unsupported"].severity == "note"


def test_affinity_that_the_launcher_forced() -> None:
    words = "ncclTopoGetCpuAffinity: Affinity for GPU 1 is empty, ignoring. (GPU affinity = 32-63 ; CPU affinity = 0-31)."
    found = say(pair_of_ranks("P2P/CUMEM", words))["numa-mismatch"]
    assert found.severity == "warning" and found.subject == "gpu:1"
    assert "numa-mismatch" not in say(pair_of_ranks("P2P/CUMEM", words.replace("32-63", "")))


@pytest.mark.parametrize(
    ("words", "file", "slug"),
    [
        ("Cuda failure 1 'invalid argument'", "transport/nvls.cc:254", "fabric"),
        ("Cuda failure 217 'peer access is not supported between these two devices'", "transport/shm.cc:590", "p2p-unsupported"),
        ("Cuda failure 'invalid argument'", "misc/shmutils.cc:9", "shm"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory", "misc/ibvwrap.cc:1", "memlock"),
        ("Bootstrap Root : rank 3 of 8 ranks has already checked in", "bootstrap.cc:1", "rank-mismatch"),
        ("Cuda failure 101 'invalid device ordinal'", "init.cc:1", "gpu-not-visible"),
        ("NET/IB : Got completion from peer 10.0.0.1<33092> with error 12, opcode 0, len 0, vendor err 129", "transport/net_ib.cc:1", "network-error"),
        ("Bootstrap : no socket interface found", "bootstrap.cc:45", "no-interface"),
    ],
)
def test_each_complaint_is_its_cause(words: str, file: str, slug: str) -> None:
    text = f"h:1:1 [0] {file} NCCL WARN {words}\nh:1:1 [0] NCCL INFO init.cc:1 -> 1\nh:1:9 [0] misc/socket.cc:1 NCCL WARN socketProgress: Connection closed by remote peer h<1>\n"
    found = say(text)
    assert set(found) == {slug} and found[slug].severity == "error"


@pytest.mark.parametrize(
    "words",
    ["Failed to open libibverbs.so[.1]", "RMA/Socket : rma_socket requires GDRCopy; and GDR Copy is not available", "NET/Plugin: Could not find: libnccl-net.so", "Stack size limit (unlimited) is unsafe"],
)
def test_harmless_lines_raise_nothing(words: str) -> None:
    assert say(f"h:1:1 [0] misc/x.cc:1 NCCL WARN {words}\n") == {}


def test_two_failed_jobs_in_one_input_are_two_findings() -> None:
    def failing(pid: int, comm: int, words: str) -> str:
        return (
            f"h:{pid}:1 [0] NCCL INFO ncclCommInitRank comm 0x{comm} rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x{comm} - Init START\n"
            f"h:{pid}:1 [0] a.cc:1 NCCL WARN {words}\n"
        )

    found = say(failing(1, 11, "Cuda failure 'out of memory'") + failing(2, 22, "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"))
    assert {"cuda-error", "duplicate-gpu"} <= set(found)


def test_attempts_to_connect_are_a_fault_only_where_nothing_came_of_them() -> None:
    tries = "h:10:20 [0] NCCL INFO Call to connect returned Connection refused, retrying\n" * 5
    assert say(tries)["network-error"].confidence == "possible"
    assert "network-error" not in say(tries + pair_of_ranks("P2P/CUMEM"))
    assert "network-error" not in say(tries[: len(tries) // 5])


def test_without_the_fabric_nothing_starts_so_leaving_nvls_out_is_no_way_round() -> None:
    def commands(text: str) -> str:
        found = report("check", "--from", "-", stdin=text.encode())[1]["diagnoses"]
        return " ".join(s.get("command") or "" for d in found if d["cause"] == "fabric" for s in d["remediation"])

    early = commands("RuntimeError: cuda runtime error (802) : system not yet initialized at THCGeneral.cpp:50\n")
    assert "nvidia-fabricmanager" in early and "NVLS" not in early
    later = commands("node07:9:9 [0] transport/nvls.cc:244 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2 : CUDA error 401 'x'.\n")
    assert "NCCL_NVLS_ENABLE=0" in later


def test_nvls_given_up_is_a_warning_and_the_run_no_failure() -> None:
    words = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'x'. Proceeding without NVLS support."
    found = say(pair_of_ranks("P2P/CUMEM", words))
    assert found["fabric"].severity == "warning"
    assert read(pair_of_ranks("P2P/CUMEM", words)).comms[0].failure is None


def test_a_topology_file_that_is_not_there_is_a_warning_and_never_the_cause() -> None:
    words = "Could not open XML topology file /opt/my topo.xml : No such file or directory"
    found = say(pair_of_ranks("P2P/CUMEM", words.replace("my topo", "$(x)")))["nccl-env"]
    assert found.severity == "warning" and "ls -l '/opt/$(x).xml'" in found.remediation[0].command
    assert read(pair_of_ranks("P2P/CUMEM", words)).comms[0].failure is None
    later = "Error while creating shared memory segment /dev/shm/nccl-abc (size 9637888)"
    assert read(pair_of_ranks("P2P/CUMEM", words) + f"vm:1:1 [0] misc/shmutils.cc:80 NCCL WARN {later}\n").comms[0].failure == "shm"
    assert "nccl-env" not in say(pair_of_ranks("P2P/CUMEM", "Loading topology file /opt/topo.xml"))


def test_versions_of_another_age_are_told_so() -> None:
    for text in ("NCCL version 2.3.7+cuda9.0\nh:1:1 [0] NCCL INFO rank 0 nranks 8\n", "NCCL version 1.3.5 compiled with CUDA 8.0\n"):
        assert say(text)["version-mismatch"].severity == "note"


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("socketStartConnect: Connect to 10.0.0.2<41234> failed : Connection refused", "network-error"),
        ("socketProgress: Connection closed by remote peer node2<53210>", "peer-died"),
        ("Error while creating shared memory segment /dev/shm/nccl-abc (size 9637888)", "shm"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 81000", "duplicate-gpu"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", "memlock"),
    ],
)
def test_words_a_framework_quotes(text: str, slug: str) -> None:
    whole = f"[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1331, unhandled system error, NCCL version 2.20.5\nncclSystemError: System call or external library call failed or device error.\nLast error:\n{text}\n"
    found = say(whole)
    assert set(found) == {slug} and read(whole).comms[0].version == "2.20.5"


def test_gpus_that_no_rank_uses() -> None:
    text = pair_of_ranks("P2P/CUMEM")
    four = Gpus(tuple(Gpu(index=i, bdf=f"0000:0{i + 1}:00.0", origin=HERE) for i in range(4)))
    found = say(text, more=(four,))["gpu-not-visible"]
    assert found.severity == "note" and "GPU2" in found.message and "GPU3" in found.message
    two = Gpus(four.gpus[:2])
    assert "gpu-not-visible" not in say(text, more=(two,))
    assert "gpu-not-visible" not in say(text, more=(Gpus(four.gpus, complete=False),))


def test_a_flood_of_echoes_does_not_drown_the_cause() -> None:
    flood = "".join(f"h:{n}:1 [0] a.cc:1 NCCL WARN socketProgress: Connection closed by remote peer x<1>\n" for n in range(1, 5600))
    found = say(flood + "h:9999:1 [0] a.cc:1 NCCL WARN Cuda failure 'out of memory'\n")
    assert set(found) == {"cuda-error"}


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)", "network-error"),
        ("RuntimeError: NCCL error in: ../c10d/ProcessGroupNCCL.cpp:825, internal error, NCCL version 2.9.9", "peer-died"),
        ("NCCL operation ncclGroupEnd() failed: unhandled cuda error", "cuda-error"),
    ],
)
def test_a_run_that_ended_is_never_in_order_even_where_nothing_names_the_cause(text: str, slug: str) -> None:
    found = say(text + "\n")
    assert set(found) == {slug} and found[slug].severity == "error" and found[slug].confidence == "possible"


def test_the_result_of_a_call_counts_where_no_line_names_the_cause_and_its_own_words_are_quoted() -> None:
    text = "h:1:2 [0] misc/odd.cc:9 NCCL WARN The flux is inverted\nh:1:2 [0] NCCL INFO misc/odd.cc:12 -> 2\n"
    assert say(text) == {}  # one that NCCL may go on without
    found = say(text + "h:1:1 [0] NCCL INFO group.cc:75 -> 2 [Async thread]\n")["network-error"]
    assert "`The flux is inverted`" in found.message and found.confidence == "possible"
    # A cause that is named stays the cause, and 7 is no failure.
    named = "h:1:2 [0] misc/socket.cc:9 NCCL WARN Bootstrap : no socket interface found\nh:1:1 [0] NCCL INFO group.cc:75 -> 3 [Async thread]\n"
    assert set(say(named)) == {"no-interface"}
    assert say("h:1:1 [0] NCCL INFO group.cc:75 -> 7\nh:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n") == {}


def test_a_plugin_that_names_a_function_and_a_bold_line_keep_their_process() -> None:
    from gpudoctor.facts.nccl import NcclMessage

    def message(text: str) -> NcclMessage:
        return read(text).messages[0]

    plugin = message("h:465:860 [3] ofi_process_cq:1033 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 21. Error: unknown error\n")
    assert (plugin.host, plugin.pid, plugin.dev, plugin.file) == ("h", 465, 3, "ofi_process_cq")
    bold = message("**h1:2918:3333 [0] src/transport/net_socket.cc:200 NCCL WARN NET/Socket : message truncated : receiving 8 bytes instead of 4**\n")
    assert (bold.host, bold.pid) == ("h1", 2918)
    words = message("h1:2918:3333 [0] include/shm.h:28 **NCCL WARN Call to posix_fallocate failed : No space left on device**\n")
    assert (words.host, words.pid, words.file) == ("h1", 2918, "include/shm.h")


def test_each_completion_status_is_told_by_itself() -> None:
    line = "h:1:2 [0] transport/net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5> with error {}, opcode 0, len 0, vendor err 81\n"
    refused, silent = (say(line.format(n))["network-error"].message for n in (4, 12))
    assert "memory could not be reached" in refused and "retries" not in refused
    assert "after all retries" in silent and "memory" not in silent


def system(value: str, bus: str = "0-1000") -> str:
    return pair_of_ranks("P2P/CUMEM") + f"h:10:20 [0] NCCL INFO + PCI[{value}] - GPU/{bus} (0)\n"


def link(width: int, speed: float = 16.0, max_width: int | None = None, max_speed: float | None = 16.0) -> Gpus:
    return Gpus(
        (Gpu(index=0, bdf="0000:01:00.0", width=width, speed_gts=speed, max_width=max_width, max_speed_gts=max_speed, origin=HERE), Gpu(index=1, bdf="0000:02:00.0", origin=HERE))
    )


def test_nccl_overrates_a_link_that_trained_lower() -> None:
    narrow = say(system("24.0"), more=(link(4),))["pcie-width"]
    assert narrow.severity == "warning" and narrow.subject == "gpu:0000:01:00.0"
    assert "assumes 24 GB/s" in narrow.message and "Gen4 x4" in narrow.message and "6 GB/s" in narrow.message
    # Where the driver knows both ends the fault has its own finding, and this only adds to it.
    assert say(system("24.0"), more=(link(4, max_width=16),))["pcie-width"].severity == "note"
    assert say(system("24.0", "1000"), more=(link(8),))["pcie-width"].severity == "warning"  # before 2.27
    idle = say(system("24.0"), more=(link(16, speed=2.5),))
    assert set(idle) == {"pcie-speed"} and idle["pcie-speed"].severity == "note"


def test_nccl_and_the_link_agree() -> None:
    assert say(system("24.0"), more=(link(16),)) == {}
    assert say(system("48.0"), more=(link(16, 32.0, max_speed=32.0),)) == {}
    assert say(system("24.0", "0-5000"), more=(link(4),)) == {}  # another GPU
    other = pair_of_ranks("P2P/CUMEM") + "h:10:20 [0] NCCL INFO + PCI[24.0] - NIC/0-1000\nh:10:20 [0] NCCL INFO + PCI[24.0] - GPU/0-1000"
    assert say(other, more=(link(4),)) == {}  # an adapter; a line that is cut
