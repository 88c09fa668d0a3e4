"""Lines in the shapes of NCCL's releases, as its sources print them: each is read, and what only looks like it is not."""

from __future__ import annotations

import pytest

from gpudoctor.discover import load
from gpudoctor.ingest import take
from gpudoctor.judge import judge
from gpudoctor.model import Report
from gpudoctor.nccl_messages import classify
from gpudoctor.read.source import Document
from tests.nccl_logs import connect, finish, prefix, start
from tests.support import gpudoctor
from tests.unit.test_nccl_log import one, read, via

IB = "NET/IB : Using"


def reported(lines: list[str]) -> Report:
    raw = "".join(line + "\n" for line in lines).encode()
    return judge(take(sources=[Document(name="job.log", chunks=lambda: iter([raw]))]), load(), {"kind": "recorded", "paths": ["job.log"]})


def shown(lines: list[str]) -> str:
    done = gpudoctor("check", "--from", "-", stdin="".join(line + "\n" for line in lines).encode())
    return str(done.stdout.decode())


def slugs(lines: list[str]) -> set[str]:
    return {f.slug for r in reported(lines).results for f in r.findings}


def log(*said: str) -> str:
    """A start of two ranks, then what the first of them says."""
    return "\n".join([*start(0, 2), *start(1, 2), *(prefix(0) + line for line in said)]) + "\n"


@pytest.mark.parametrize(
    ("line", "nics"),
    [
        # 2.20 to 2.23: ports taken together. Read one by one, an index behind them would mean another adapter.
        (
            f"{IB} [0]={{[0] mlx5_0:1/IB, [1] mlx5_1:1/IB}} [2]mlx5_2:1/RoCE [RO]; OOB eth0:10.1.0.1<0>",
            ("mlx5_0+mlx5_1:1/IB", "mlx5_2:1/RoCE"),
        ),
        # Since 2.30.7: rail and plane, plane alone.
        (f"{IB} [0]mlx5_0:1:3/IB [1]mlx5_1:1::0/IB [2]mlx5_2:1:3:1/RoCE [RO]; OOB eth0:10.1.0.1<0>", ("mlx5_0:1/IB", "mlx5_1:1/IB", "mlx5_2:1/RoCE")),
        (f"{IB} [0]mlx5_0:1/IB [1]mlx5_0+mlx5_1:1/IB [RO]; OOB eth0:10.1.0.1<0>", ("mlx5_0:1/IB", "mlx5_0+mlx5_1:1/IB")),
    ],
)
def test_adapters_of_the_list(line: str, nics: tuple[str, ...]) -> None:
    assert next(p.nics for p in read(log(line)).procs) == nics


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("NET/IB/0/GDRDMA/flush=Always", "NET/IB/0/GDRDMA"),
        ("NET/IB/0/GDRDMA(PCI)/Shared/flush=C2c", "NET/IB/0/GDRDMA(PCI)/Shared"),
    ],
)
def test_a_receiver_that_says_how_it_flushes(way: str, said: str) -> None:
    """2.31: only the receiving end says it, and both ends speak of one way."""
    text = log(f"Channel 00/0 : 0[0] -> 1[1] [send] via {said}", f"Channel 00/0 : 1[1] -> 0[0] [receive] via {way}")
    assert via(one(text)) == {(0, 1, said)}


def test_a_way_that_was_cut_is_none() -> None:
    assert not via(one(log() + prefix(0) + "Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA/flush=Al"))
    assert not via(one(log("Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA/flush")))




HEAD = "Latency/AlgBw |" + "".join(f" {a:>7}/{p:>6} |" for a in ("Tree", "Ring") for p in ("LL", "LL128", "Simple"))  # 2.6 to 2.17
ROW = "".join(f"{lat:8.1f}/{bw:6.1f} |" for lat, bw in ((11.2, 1.4), (16.0, 0.0), (56.2, 20.0), (8.4, 2.0), (14.4, 0.0), (30.1, 24.0)))


def test_the_table_of_the_model_in_its_older_form() -> None:
    proc = next(iter(read(log(HEAD, " Max NThreads |" + " 512 |" * 6, f"    AllReduce |{ROW}")).procs))
    assert proc.tuning == {
        ("AllReduce", "Tree", "LL"): (11.2, 1.4), ("AllReduce", "Tree", "Simple"): (56.2, 20.0),
        ("AllReduce", "Ring", "LL"): (8.4, 2.0), ("AllReduce", "Ring", "Simple"): (30.1, 24.0),
    }  # fmt: skip


def test_a_row_of_another_width_than_its_head_is_not_read() -> None:
    short = HEAD.replace(f" {'Ring':>7}/{'Simple':>6} |", "")
    assert not next(iter(read(log(short, f"    AllReduce |{ROW}")).procs)).tuning


# Words of NCCL's own, in the shapes of the releases that print them: family, message, source file.
SAID = [
    ("harmless-graph-dump", "Unable to open /tmp/topo.xml, not dumping topology.", "graph/xml.cc"),
    ("harmless-registration", "rank 3 failed to NET register userbuff 0x7f buffSize 4096 GDR flag 0", "transport/net.cc"),
    ("harmless-collnet", "CollNet is not supported or fails to initialize, ignoring NCCL_ALGO=COLLNET", "graph/tuning.cc"),
    ("harmless-ras", "fatal error - RAS thread terminating", "ras/ras.cc"),
    ("harmless-thread-context", "Unable to create thread context due to old driver, disabling.", "proxy.cc"),
    ("harmless-affinity", "sched_setaffinity failed with error: Invalid argument", "os/linux.cc"),
    ("harmless-gdrcopy", "Failed to open libgdrapi.so - libgdrapi.so: cannot open shared object file", "misc/gdrwrap.cc"),
    ("harmless-gin", "Unable to use GIN: Peermem is not supported, and device 0 does not support DMA-BUF.", "transport/net_ib/gin.cc"),
    ("harmless-plugin", "Profiler init failed with error (3). Continue without profiler.", "plugin/profiler.cc"),
    ("harmless-ib-event", "NET/IB : mlx5_0:1 Got non-fatal async event: GID table change(18)", "transport/net_ib/common.cc"),
    ("harmless-ib-event", "NET/IB : mlx5_0:1 GID table changed", "transport/net_ib/common.cc"),
    ("cuda-exit", "Cuda failure 4 'driver shutting down'", "transport/nvls.cc"),
    ("too-old-program", "NCCL library is too old. This application was compiled with NCCL version 2.30.7, but is running with NCCL library version 2.30.3.", "dev_runtime.cc"),
    ("too-old-driver", "NCCL cannot be captured in a graph if either it wasn't built with CUDA runtime >= 11.3 or if the installed CUDA driver < R465.", "misc/strongstream.cc"),
    ("too-old-shared-memory", "cudaArch 1200 dynamic smem 82240 exceeds device/fn maxSharedMem 79856", "enqueue.cc"),
    ("cuda-symbols", "Retrieve cuMemCreate version 10020 failed with 0 status 1", "misc/cudawrap.cc"),
    ("ipc-handle", "failed to open CUDA IPC handle : 11 invalid argument", "transport/p2p.cc"),
    ("p2p-217", "failed to open CUDA IPC handle : 64 peer access is not supported between these two devices", "transport/p2p.cc"),
    ("no-transport", "No transport found for rank 1[41000] -> rank 0[40000]", "transport.cc"),
    ("shm-attach", "Error: failed to create shared memory file /dev/shm/nccl-aX3bQ1, error Permission denied (13)", "os/linux.cc"),
    ("shm-attach", "Error: Could not map /dev/shm/nccl-aX3bQ1 size 9637892, error: Cannot allocate memory (12)", "misc/shmutils.cc"),
    ("driver-nvml", "Failed to open libnvidia-ml.so.1", "misc/nvmlwrap.cc"),
    ("driver-nvml", "nvmlInit_v2() failed: Driver Not Loaded", "misc/nvmlwrap.cc"),
    ("driver-library", "nvmlInit_v2() failed: Driver/library version mismatch", "misc/nvmlwrap.cc"),
    ("gpu-not-in-nvml", "nvmlDeviceGetHandleByPciBusId() failed: Not Found", "misc/nvmlwrap.cc"),
    ("no-sysfs", "Could not find real path of /sys/class/pci_bus/0000:01/../../0000:01:00.0", "graph/xml.cc"),
    ("ib-port-skipped", "Could not find real path of mlx5_0 (/sys/class/infiniband/mlx5_0/device)", "transport/net_ib.cc"),
    ("nvlink-not-looked-for", "No NVML device handle. Skipping nvlink detection.", "graph/xml.cc"),
    ("topology-differs", "Error : ring 2 does not loop back to start (7 != 2)", "graph/rings.cc"),
    ("topology-differs", "Rank 3 requires NIC 7 but that NIC is not available for rank 4", "graph/search.cc"),
    ("topology-gap", "Could not find any local path from gpu 0 to net.", "graph/topo.cc"),
    ("adapters-differ", "Detected mixed local Net device counts across ranks (min 7, max 8). Set NCCL_IGNORE_NET_MISMATCH=1 to continue.", "init.cc"),
    ("registration-differs", "Coll AllReduce size 4096 symmetric registration check failed on rank 1: sendReg 0 recvReg 1 mismatch with rank 0 sendReg 1 recvReg 1", "misc/argcheck.cc"),
    ("collective-mismatch", "NET/IB : req 0/1 tag 0 peer 10.0.0.6<5> posted incorrect receive info: size 4096 addr 7f00 rkeys[0]=1f", "transport/net_ib.cc"),
    ("destroyed-before", "comm 0x55ec10690820 has already been destroyed", "init.cc"),
    ("call-refused", "Trying to send to self without a matching recv", "enqueue.cc"),
    ("call-refused", "Invalid config blocking attribute value 7", "init.cc"),
    ("adapters-of-two-kinds", "NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [0]mlx5_0:1/RoCE. Try selecting NICs", "transport/net_ib.cc"),
    ("adapters-not-merged", "NET/IB : Attempted to merge incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE. Try selecting NICs", "transport/net_ib.cc"),
    ("no-algorithm", "No algorithm/protocol nor symKernelId available for function AllReduce with datatype ncclFloat32. NCCL_ALGO was set to nvls.", "tuning/tuning.cc"),
    ("env-refused", 'Unrecognized element token "rings" when parsing "rings"', "graph/tuning.cc"),
    ("env-refused", "Invalid NCCL_COMM_ID, please use format: <ipv4>:<port> or [<ipv6>]:<port> or <hostname>:<port>", "bootstrap.cc"),
    ("env-limited", "Invalid value 8MB for NCCL_BUFFSIZE, using default -2.", "misc/param.cc"),
    ("env-limited", "Invalid NCCL_NTHREADS 100 (must be a multiple of 32)", "graph/tuning.cc"),
    ("env-limited", "NET/Socket : NCCL_SOCKET_NTHREADS is greater than the maximum allowed, setting to 16", "transport/net_socket.cc"),
    ("no-interface", "no device found matching eth9, verify NCCL_OOB_NET_IFNAME", "bootstrap.cc"),
    ("no-interface", "Error : connecting to address with family 0 is neither AF_INET(2) nor AF_INET6(10)", "include/socket.h"),
    ("xml-version", "XML Parse error : expecting '<', got 'n'", "graph/xml.cc"),
    ("ib-resilience", "NET/IB: Fatal error. Detected 2 failed devices out of 2 devices on the send communicator (comm=0x7f). No support for more", "transport/net_ib/p2p_resiliency.cc"),
    ("ib-failed-over", "NET/IB: Device 1 marked as failed. Initiating recovery? Yes (send comm=0x7f, outstandingRecovery=0)", "transport/net_ib/p2p_resiliency.cc"),
    ("ib-call", "ibv_post_send() failed with error Invalid argument, Bad WR 0x7f, First WR 0x7f", "include/ibvwrap.h"),
    ("name-lookup", "Net : error encountered when getting address info : Temporary failure in name resolution", "misc/socket.cc"),
    ("refused", "socketPollConnect: connect to 10.0.0.1<4> returned Interrupted system call, exceeded error retry count after 35 attempts", "misc/socket.cc"),
    ("refused", "socketStartConnect: exceeded timeouts (20000)", "misc/socket.cc"),
    ("socket-call", "socketTryAccept: exceeded error retry count after 35 attempts, Too many open files", "misc/socket.cc"),
    ("socket-lost", "socketProgressOpt: Call to recv from 10.0.0.2<43210> failed : Connection timed out", "misc/socket.cc"),
    ("socket-lost", "ncclOsSocketProgressOpt: Call to send to 10.0.0.2<43210> failed : 110 (Connection timed out)", "os/linux.cc"),
    ("peer-closed", "ncclOsSocketProgressOpt: Call to recv from 10.0.0.2<43210> failed : 104 (Connection reset by peer)", "os/linux.cc"),
    ("follow-up", "commReclaim: cleanup comm 0x556dc9418220 rank 0 failed in destroy/abort, error 1", "init.cc"),
    ("follow-up", "Attempt to use communicator before the previous operation returned ncclSuccess", "init.cc"),
    ("host-memory", "Failed to malloc 4096 bytes", "include/alloc.h"),
    ("no-thread", "Thread creation failed: Resource temporarily unavailable", "include/checks.h"),
    ("gdrcopy", "gdr_pin_buffer(addr 7f00, size 65536) failed: 12", "misc/gdrwrap.cc"),
    ("gin", "User requested GIN but not all ranks in the communicator support GIN", "dev_runtime.cc"),
    ("internal-check", "Could not find pool of op 0x7f00", "proxy.cc"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "file"), SAID)
def test_each_wording_finds_its_family(name: str, text: str, file: str) -> None:
    found = classify(text + "\n", file)
    assert found is not None and found[0].id == name


@pytest.mark.parametrize(
    "text",
    [
        "Detected mixed local Net device counts across ranks (min 7, max 8). Ignoring due to NCCL_IGNORE_NET_MISMATCH.",
        "Using network IB", "NCCL_BUFFSIZE set by environment to 8388608.", "Connected all rings, use ring PXN 0 GDR 1",
        "Comm config Blocking set to 1", "NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000 context=0x1 pciPath=/sys/devices/x ar=0",
        "P2P Chunksize set to 131072", "TOPO/NET : Made vNic 1", "Symmetric memory is not supported. cuMemEnable 0, globalGinSupport 0",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_complaint_is_none(text: str) -> None:
    assert classify(text + "\n", None) is None


SOFT = [
    ("driver-unavailable", "misc/nvmlwrap.cc", "Failed to open libnvidia-ml.so.1", 2),
    ("gpu-not-visible", "misc/nvmlwrap.cc", "nvmlDeviceGetHandleByPciBusId() failed: Not Found", 2),
    ("gpu-not-visible", "graph/xml.cc", "Could not find real path of /sys/class/pci_bus/0000:01/../../0000:01:00.0", 2),
    ("version-mismatch", "misc/cudawrap.cc", "CUDA some PFN functions not found in the library", 2),
    ("network-error", "transport/net_ib.cc", "NET/IB : Attempted to merge incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE.", 5),
]


@pytest.mark.parametrize(("slug", "file", "text", "result"), SOFT)
def test_a_complaint_that_some_releases_go_on_from(slug: str, file: str, text: str, result: int) -> None:
    """It is the cause where nothing but the result of the call follows, and nothing where the communicator is made."""
    said = prefix(1).replace("NCCL INFO ", f"{file}:123 NCCL WARN {text}")
    begun = [*start(0, 2), *start(1, 2), said]
    failed = [*begun, f"{prefix(1)}init.cc:840 -> {result}", f"{prefix(1)}group.cc:73 -> {result} [Async thread]"]
    assert slugs(failed) == {slug}
    went_on = [*begun, *(line for rank in (0, 1) for line in (*connect(rank, 2), *finish(rank, 2)))]
    assert not slugs(went_on)
    # What it died of an hour later is another matter.
    later = [*went_on, prefix(1).replace("NCCL INFO ", "misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer node1<5>"), f"{prefix(1)}proxy.cc:9 -> 6 [Progress Thread]"]
    assert slugs(later) == {"peer-died"}


@pytest.mark.parametrize(
    "text",
    [
        "socketFinalizeAccept from 10.0.0.9<40000>: wrong socket type (peer 4 != expected 3 -- peer connected to wrong NCCL socket), discarding peer connection",
        "socketFinalizeAccept: didn't receive a valid magic from 10.0.0.9<40000>",
    ],
)
def test_a_stranger_at_the_door_is_no_fault(text: str) -> None:
    """Since 2.27 NCCL closes such a connection and goes on; before, the same words at level WARN were the end."""
    whole = [line for rank in (0, 1) for line in (*start(rank, 2), prefix(rank) + text, *connect(rank, 2), *finish(rank, 2))]
    assert not slugs(whole)
    assert slugs([*start(0, 2), prefix(0).replace("NCCL INFO ", "misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3")]) == {"rank-mismatch"}


@pytest.mark.parametrize("text", ["Cuda failure 'driver shutting down'", "commReclaim: cleanup comm 0x1 rank 1 failed in destroy/abort, error 1"])
def test_the_noise_of_an_end_is_no_fault(text: str) -> None:
    whole = [line for rank in (0, 1) for line in (*start(rank, 2), *connect(rank, 2), *finish(rank, 2))]
    assert not slugs([*whole, prefix(1).replace("NCCL INFO ", f"init.cc:123 NCCL WARN {text}")])


def test_a_value_that_nccl_does_not_take_is_a_note() -> None:
    whole = [line for rank in (0, 1) for line in (*start(rank, 2), prefix(rank) + "Invalid value 8MB for NCCL_BUFFSIZE, using default -2.", *connect(rank, 2), *finish(rank, 2))]
    found = [f for r in reported(whole).results for f in r.findings]
    assert [(f.slug, f.severity) for f in found] == [("nccl-env", "note")] and "NCCL_BUFFSIZE=8MB" in found[0].message
    assert not slugs([line.replace("Invalid value 8MB for NCCL_BUFFSIZE, using default -2.", "NCCL_BUFFSIZE set by environment to 8388608.") for line in whole])


def test_an_adapter_that_failed_during_a_run_is_a_warning() -> None:
    whole = [line for rank in (0, 1) for line in (*start(rank, 2), *connect(rank, 2), *finish(rank, 2))]
    lost = prefix(1).replace("NCCL INFO ", "transport/net_ib/p2p_resiliency.cc:376 NCCL WARN NET/IB: Device 1 marked as failed. Initiating recovery? Yes (send comm=0x7f, outstandingRecovery=0)")
    report = reported([*whole, lost])
    assert [(f.slug, f.severity) for r in report.results for f in r.findings] == [("network-error", "warning")] and report.exit_code == 0


def test_an_address_that_names_its_interface() -> None:
    """IPv6 within one link; without its end it may be another."""
    proc = next(iter(read(log("Bootstrap: Using eth1:fe80::ae1f:6bff%eth1<0>", "NET/Socket : Using [0]eth1:fe80::ae1f:6bff%eth1<0> [1]eth0:10.1.0.1<0>")).procs))
    assert proc.address == "eth1:fe80::ae1f:6bff%eth1" and proc.interfaces == ("eth1:fe80::ae1f:6bff%eth1", "eth0:10.1.0.1")
    cut = next(iter(read(log() + prefix(0) + "Bootstrap: Using eth1:fe80::ae1f:6bff%et").procs))
    assert cut.address == "eth0:10.1.0.1"


@pytest.mark.parametrize("line", ["GPU Direct RDMA Enabled for GPU 0 / HCA b (distance 4 <= 4), read 1", "GPU Direct RDMA Enabled for GPU 1a000 / HCA 11 (distance 4 <= 4), read 1"])
def test_gpudirect_of_an_adapter_with_a_high_number(line: str) -> None:
    """In hexadecimal since 2.21."""
    gdr = next(iter(read(log(line)).procs)).gdr
    assert list(gdr.values()) == [True]


@pytest.mark.parametrize(
    "text",
    [
        "NET/OFI Failed to close OFI endpoint: -16", "NET/OFI Unable to de-register memory. RC: -22, Error: Invalid argument",
        "NET/OFI Could not set FI_OPT_MAX_MSG_SIZE. RC: -92, ERROR: Protocol not available", "NET/OFI Failed to resolve GDRCopy v2 API (gdr_pin_buffer_v2): x",
        "NET/OFI Unable to post receive of connect message for dev 0. Trying again until success.",
    ],
)  # fmt: skip
def test_what_the_network_plug_in_goes_on_from_is_no_fault(text: str) -> None:
    whole = [line for rank in (0, 1) for line in (*start(rank, 2), *connect(rank, 2), *finish(rank, 2))]
    assert not slugs([*whole, prefix(1).replace("NCCL INFO ", f"nccl_ofi_cleanup:12 NCCL WARN {text}")])


@pytest.mark.parametrize("text", ["NET/OFI Unexpected status (0) for message 246", "NET/OFI Error posting RDMA ctrl request. RC: -22, Error: Invalid argument", "NET/OFI Couldn't open CQ. RC: -12, ERROR: Cannot allocate memory"])
def test_what_it_fails_from_is_one(text: str) -> None:
    assert slugs([*start(0, 2), *start(1, 2), prefix(1).replace("NCCL INFO ", f"get_req_from_imm_data:1411 NCCL WARN {text}")]) == {"network-error"}


def test_an_echo_alone_is_shown_with_its_meaning() -> None:
    """Nothing is judged of it, and it is not kept back; beside a cause it is."""
    echo = prefix(1).replace("NCCL INFO ", "include/alloc.h:9 NCCL WARN Failed to malloc 4096 bytes")
    cause = prefix(1).replace("NCCL INFO ", "misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer node1<5>")
    begun = [*start(0, 2), *start(1, 2), echo]
    assert "had no memory left for NCCL" in " ".join(shown(begun).split())
    assert "had no memory left for NCCL" not in " ".join(shown([*begun, cause]).split())
