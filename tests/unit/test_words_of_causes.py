"""Causes that the words of a job's log name, each beside a log in order that looks like it. Synthetic."""

from __future__ import annotations

import pytest

from gpudoctor.nccl_messages import classify
from gpudoctor.report.text import headline
from tests.unit.test_homes import found, report

HEAD = "node01:700:7{} [{}] {}\n"


def line(words: str, thread: int = 10, dev: int = 0) -> str:
    return HEAD.format(thread, dev, words)


RDMA = line("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>") + "NCCL version 2.9.9+cuda11.3\n"


@pytest.mark.parametrize("call", ["cq", "qp"])
def test_a_queue_that_an_old_release_did_not_get_is_the_limit_of_locked_memory(call: str) -> None:
    told = report(RDMA + line(f"misc/ibvwrap.cc:268 NCCL WARN Call to ibv_create_{call} failed") + line("NCCL INFO transport/net_ib.cc:398 -> 2"))
    (finding,) = found(told, "memlock").values()
    assert (finding.severity, finding.confidence, told.exit_code) == ("error", "likely", 1)
    assert not found(told, "network-error")


def test_other_calls_of_the_rdma_library_and_a_queue_refused_for_another_reason() -> None:
    for words in ("Call to ibv_modify_qp failed with error Connection timed out", "Call to ibv_create_qp failed with error Invalid argument", "Call to ibv_query_port failed"):
        told = report(RDMA + line(f"misc/ibvwrap.cc:268 NCCL WARN {words}"))
        assert not found(told, "memlock") and found(told, "network-error"), words
    cut = classify("Call to ibv_create_cq failed")  # more may stand behind it
    assert cut is not None and cut[0].id == "ib-call"


UCX = "[1700000000.100000] [node01:4000:0]          ib_log.c:246  UCX  ERROR mlx5_0: ibv_{}\n"


def test_a_limit_that_ucx_names_is_a_warning() -> None:
    told = report(UCX.format("create_cq() failed: Cannot allocate memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)") * 2)
    (finding,) = found(told, "memlock").values()
    assert (finding.severity, told.exit_code) == ("warning", 0) and "64 KiB" in finding.message
    assert not found(report(RDMA + UCX.format("reg_mr(address=0x7f, length=4096) failed: Bad address")), "memlock")


def test_a_run_that_a_topology_file_ended_is_told_by_it_and_not_by_the_programs_error() -> None:
    test = "# nThread 1 nGpus 2 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
    failed = "node01: Test NCCL failure common.cu:961 'internal error - please report this issue to the NCCL developers / '\n"
    told = report(test + line("graph/xml.h:101 NCCL WARN Attribute arch of node cpu not found") + line("NCCL INFO group.cc:64 -> 3 [Async thread]") + failed)
    assert [(d.finding.slug, [f.slug for f in d.explains]) for d in told.diagnoses if d.finding.severity == "error"] == [("nccl-env", ["bandwidth-failed"])]
    # A setting that is merely worth a note explains no failure.
    told = report("NCCL_ALGO=Ring ./all_reduce_perf -g 2\n" + test + failed)
    assert [d.finding.slug for d in told.diagnoses if d.finding.severity == "error"] == ["bandwidth-failed"]


def test_a_call_of_ucx_that_failed() -> None:
    told = report(RDMA + line("ucx_plugin.c:498 NCCL WARN Failed: UCX error ucx_plugin.c:498 '-5' Invalid parameter"))
    assert [f.severity for f in found(told, "network-error").values()] == ["error"]
    assert report(RDMA + line("NCCL INFO NET/UCX: Worker address length: 142")).exit_code == 0


@pytest.mark.parametrize("path", ["group.cc:654 (groupLaunch)", "src/group.cc:654 (groupLaunch)", "external/nccl/src/group.cc:654", "/build/nccl/src/enqueue.cc:2400 (ncclEnqueueCheck)"])
def test_a_result_of_a_release_that_names_the_function(path: str) -> None:
    told = report(line("src/allocator.cc:229 (ncclSpaceAlloc) NCCL WARN No suitable space found for size=0x21 within limit=0x2d") + line(f"NCCL INFO {path} -> 3"))
    (finding,) = found(told, "peer-died").values()
    assert finding.confidence == "possible" and "No suitable space" in finding.message and told.exit_code == 1


def test_a_result_deeper_in_the_stack_and_one_that_is_none() -> None:
    for words in ("src/transport/net.cc:1302 (sendProxy) -> 3", "graph/search.cc:1100 (ncclTopoCompute) -> 3", "group.cc:654 (groupLaunch) -> 7", "src/init.cc:654 says no"):
        assert report(line(f"NCCL INFO {words}") + line("NCCL INFO Using network IB")).exit_code == 0, words


SOCKET = "".join(
    line(f"NCCL INFO NET/Socket : Using [0]{{0}}:10.0.0.{n}<0>", n) + line("NCCL INFO Using network Socket", n) + line("NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0", n)
    for n in (1, 2)
)  # fmt: skip


@pytest.mark.parametrize("name", ["ib0", "ibp60s0", "ibs85f0", "ibo1", "ibxec0d9a0123"])
def test_tcp_over_an_interface_of_an_infiniband_adapter(name: str) -> None:
    (finding,) = found(report(SOCKET.replace("{0}", name)), "socket-fallback").values()
    assert finding.severity == "warning" and name in finding.message


@pytest.mark.parametrize("name", ["eth0", "enp60s0", "ibmveth0", "ibridge0"])
def test_tcp_over_another(name: str) -> None:
    assert not found(report(SOCKET.replace("{0}", name)), "socket-fallback")


def test_a_variable_that_the_log_itself_says_was_read_is_known() -> None:
    echo = line("NCCL INFO NCCL_NCHANNELS_PER_PEER set by environment to 16.")
    assert not found(report(echo), "nccl-env")
    assert [f.severity for f in found(report("export NCCL_NCHANNELS_PER_PEER=16\nexport NCCL_DEBUG=INFO\n"), "nccl-env").values()] == ["note"]


RCCL = "node01:700:710 [0] NCCL INFO Channel 00/0 : 0[c1000] -> 1[c5000] via P2P/IPC comm 0x55d0c0ffee10 nRanks 02\n"


@pytest.mark.parametrize(
    "words",
    [
        "/src/build/hipify/src/transport/p2p.cc:241 NCCL WARN Cuda failure 'invalid argument'",
        "/src/build/hipify/src/transport/p2p.cc:239 NCCL WARN hipIpcGetMemHandle failed : invalid argument",
        "/rccl/src/init.cc:100 NCCL WARN HIP failure: 'out of memory'",
    ],
)
def test_a_call_of_hip_is_no_fault_of_nvidias(words: str) -> None:
    told = report(RCCL + line(words) + line("NCCL INFO group.cc:100 -> 1 [Async thread]") + "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n")
    assert told.exit_code == 3 and not told.diagnoses
    assert any("RCCL" in m.reason and "amdgpu" in m.reason for m in told.missing)


def test_what_rccl_shares_with_nccl_is_judged_and_nccls_own_is_not_called_rccls() -> None:
    peer = report(RCCL + line("/build/hipify/src/misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer 10.0.0.2<40000>"))
    assert found(peer, "peer-died") and any("RCCL" in m.reason for m in peer.missing)
    assert report(RCCL).exit_code == 0
    for words in ("transport/p2p.cc:241 NCCL WARN Cuda failure 'invalid argument'", "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"):
        assert not any("RCCL" in m.reason for m in report(line(words)).missing), words
    assert found(report(line("transport/p2p.cc:241 NCCL WARN Cuda failure 'invalid argument'")), "cuda-error")


SUM = '[rank0]:     assert value == world_size, f"Expected {world_size}, got {value}"\n[rank0]: '


def test_a_programs_own_check_of_its_all_reduce() -> None:
    """Neither a fault that could be named nor a pass."""
    start = line("NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 70 commId 0x86 - Init COMPLETE")
    told = report(start + "[rank0]: Traceback (most recent call last):\n" + SUM + "AssertionError: Expected 2, got 1.0\n" + "\n" * 3 + "run.py FAILED\n" * 8)
    assert told.exit_code == 3 and any("Expected 2, got 1.0" in m.reason for m in told.missing)
    assert report(start + SUM + "ValueError: no such model\n").exit_code == 0
    assert report(start + "AssertionError: Expected 3, got 4\n").exit_code == 0  # of any program's


def test_a_crash_that_ucx_tells_of_above_its_own_list_of_calls() -> None:
    start = line("NCCL INFO Using network IB") + line("NCCL INFO Connected all rings")
    calls = "".join(f"{n:2} 0x0000000000042520 __sigaction()  ???:0\n" for n in range(12))
    told = report(start + "[node01:700:0:712] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)\n" + calls)
    assert told.exit_code == 3 and any("Caught signal 11" in m.reason for m in told.missing)
    assert report(start + "Caught signal 15, saving a checkpoint\n" + calls).exit_code == 0


SHARP = line("sharp_plugin.c:320 NCCL WARN NET/IB : SHARP coll init error: Cannot create SHARP job(-11)") + line("NCCL INFO transport.cc:291 -> 2") + line("NCCL INFO init.cc:670 -> 2")


def test_nccl_goes_on_without_sharp() -> None:
    told = report(SHARP + line("transport.cc:323 NCCL WARN Cannot initialize CollNet, using point-to-point network instead"))
    assert told.exit_code == 0 and not told.diagnoses
    assert report(line("NCCL INFO transport.cc:291 -> 2") + line("NCCL INFO init.cc:670 -> 2")).exit_code == 3


def test_a_failed_start_is_no_pass_beside_a_warning() -> None:
    slow = SOCKET.replace("{0}", "ib0")
    told = report(slow + line("NCCL INFO init.cc:1501 -> 2", 20))
    assert found(told, "socket-fallback") and told.exit_code == 0  # connections were made after all
    began = "".join(line(f"NCCL INFO NET/Socket : Using [0]ib0:10.0.0.{n}<0>", n) + line("NCCL INFO Using network Socket", n) for n in (1, 2))
    told = report(began + line("NCCL INFO init.cc:1501 -> 2", 1))
    assert found(told, "socket-fallback") and told.exit_code == 3


GDR = RDMA + line("NCCL INFO NET/IB : GPU Direct RDMA {} for HCA 0 'mlx5_0'") + line("NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0")


def test_adapters_that_can_do_gpudirect_need_no_module() -> None:
    for can in ("Enabled", "(DMABUF) enabled"):
        (finding,) = found(report(GDR.format(can)), "gdr-off").values()
        assert not any("modprobe" in (s.command or "") for s in finding.remediation) and "mlx5_0" in finding.message, can
    for cannot in ("Disabled", "(PCI) disabled"):
        (finding,) = found(report(GDR.format(cannot)), "gdr-off").values()
        assert any("modprobe" in (s.command or "") for s in finding.remediation), cannot


def test_a_plug_in_without_a_device_is_told_where_tcp_is_used_between_hosts() -> None:
    absent = line("nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data available")
    between = "".join(line(w, n) for n in (1, 2) for w in ("NCCL INFO NET/IB : No device found.", f"NCCL INFO NET/Socket : Using [0]eth0:10.0.0.{n}<0>", "NCCL INFO Using network Socket"))
    (finding,) = found(report(absent + between), "socket-fallback").values()
    assert finding.severity == "note" and "fi_info" in (finding.remediation[0].step)
    assert not found(report(between), "socket-fallback")
    assert report(line("NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)")).exit_code == 0


def test_memory_that_the_plug_in_could_not_lock() -> None:
    told = report(line("register_mr_buffers:465 NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: 12, Error: Cannot allocate memory"))
    assert [f.confidence for f in found(told, "memlock").values()] == ["likely"]
    other = report(line("register_mr_buffers:544 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 0. RC: -22, Error: Invalid argument"))
    assert found(other, "network-error") and not found(other, "memlock")


def test_what_nccl_said_itself_stands_with_the_programs_failure() -> None:
    test = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 0 iters: 1 validation: 0\nNCCL version 2.8.3+cuda11.1\n"
    failed = "node01: Test NCCL failure common.cu:777 'unhandled system error'\n"
    told = report(test + line("graph/xml.cc:332 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:21/../../0000:21:00.0") + failed)
    (finding,) = found(told, "bandwidth-failed").values()
    assert "/sys/class/pci_bus" in finding.message and "2.10" in finding.remediation[0].step
    (plain,) = found(report(test + line("misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]") + failed), "bandwidth-failed").values()
    assert "libibverbs" not in plain.message


def test_an_exception_in_one_line_with_its_stack() -> None:
    told = report(
        "terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version 2.20.5  ncclRemoteError: A call failed   "
        "Last error:   NET/IB : Got completion from peer 10.0.0.2<38536> with error 12, opcode 48   Exception raised from checkForNCCLErrorsInternal at "
        "/opt/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1736 (most recent call first):   frame #1: c10d::ProcessGroupNCCL::checkForNCCLErrors()\n"
    )
    assert found(told, "network-error") and told.exit_code == 1


@pytest.mark.parametrize(("address", "what"), [("169.254.7.1<40815>", "link-local"), ("fe80::14ad%veth7<40123>", "link-local"), ("172.17.0.2<40000>", "Docker"), ("127.0.0.1<40000>", "loopback")])
def test_an_address_that_leads_to_no_other_host(address: str, what: str) -> None:
    told = report(line(f"misc/socket.cc:441 NCCL WARN socketStartConnect: Connect to {address} failed : Software caused connection abort"))
    (finding,) = found(told, "network-error").values()
    assert what in finding.message and "NCCL_SOCKET_IFNAME" in (finding.remediation[0].command or "")
    plain = report(line("misc/socket.cc:441 NCCL WARN socketStartConnect: Connect to 10.169.254.1<40815> failed : Connection refused"))
    (finding,) = found(plain, "network-error").values()
    assert "The address in it" not in finding.message and "NCCL_SOCKET_IFNAME=" not in (finding.remediation[0].command or "")


def test_a_call_that_the_driver_does_not_offer() -> None:
    (finding,) = found(report(line("init.cc:416 NCCL WARN Cuda failure 'operation not supported'")), "cuda-error").values()
    assert "vGPU" in finding.message and "enable_uvm" in finding.remediation[0].step
    (other,) = found(report(line("init.cc:416 NCCL WARN Cuda failure 'invalid argument'")), "cuda-error").values()
    assert "vGPU" not in other.message


def test_a_pinned_protocol_takes_no_adapter_away() -> None:
    between = RDMA + line("NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0")
    told = report(line("NCCL INFO NCCL_PROTO set by environment to LL") + between)
    assert {d.finding.slug for d in told.diagnoses} >= {"nccl-env", "gdr-off"}
    told = report(line("NCCL INFO NCCL_IB_HCA set to mlx5_9") + SOCKET.replace("{0}", "ib0"))
    assert "socket-fallback" in {d.finding.slug for d in told.diagnoses}


def test_a_complaint_that_only_follows_is_no_pass() -> None:
    for words in ("Proxy Call to rank 1 failed (Connect)", "communicator encountered a fatal error (detected in ncclIbTest)", "[Proxy Service 3] Failed to execute operation Setup from rank 3, retcode 1"):
        told = report(line(f"proxy.cc:1519 NCCL WARN {words}"))
        assert told.exit_code == 3 and any(words[:40] in m.reason for m in told.missing), words
    # With its cause it is that one's; what is said of a process that ended is said at the end of jobs in order too.
    assert found(report(line("include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'") + line("proxy.cc:1519 NCCL WARN Proxy Call to rank 1 failed (Connect)")), "cuda-error")
    assert report(line("proxy.cc:1458 NCCL WARN [Service thread] Could not receive type from localRank 1, res=3, closed=0")).exit_code == 0
    assert report(line("proxy.cc:1484 NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=2, closing connection")).exit_code == 3


@pytest.mark.parametrize("words", ["graph/rings.cc:38 NCCL WARN Error : ring 0 does not loop back to start (4 != 5)", "graph/topo.h:230 NCCL WARN Could not find NET with id 0"])
def test_a_plan_that_does_not_fit_a_rank(words: str) -> None:
    result = line("NCCL INFO init.cc:763 -> 3") + "RuntimeError: NCCL error in: /src/ProcessGroupNCCL.cpp:975, internal error, NCCL version 2.25.1\n"
    told = report(line(words) + result)
    assert found(told, "rank-mismatch") and not found(told, "peer-died")
    assert not found(report(line("graph/search.cc:1 NCCL INFO Could not find a path for pattern 4, falling back to simple order") + result), "rank-mismatch")


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        ("uncorrectable ECC error encountered", "ecc-remap"),
        ("uncorrectable NVLink error detected during the execution", "nvlink-errors"),
        ("an illegal memory access was encountered", "cuda-error"),
        ("unspecified launch failure", "cuda-error"),
    ],
)
def test_an_error_of_the_gpu_that_ended_the_watchdog(error: str, slug: str) -> None:
    told = report(f"[rank3]:[E817 17:40:34.227531918 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 3] Process group watchdog thread terminated with exception: CUDA error: {error}\n")
    (finding,) = found(told, slug).values()
    assert finding.subject == "rank:3" and (slug == "cuda-error") is any("CUDA_LAUNCH_BLOCKING" in (s.command or "") for s in finding.remediation)
    assert [d.finding.slug for d in told.diagnoses if d.finding.severity == "error"] == [slug]


def test_words_of_nccl_that_are_not_known_head_the_report() -> None:
    refused = line("plug.cc:55 NCCL WARN NET/Own : slot 3 is not empty. No request was made") + line("NCCL INFO transport/net.cc:1302 -> 3") + line("NCCL INFO proxy.cc:878 -> 3 [Progress Thread]")
    told = report(refused)
    (finding,) = found(told, "peer-died").values()
    assert finding.message.startswith("The process at node01, pid 700 failed, and NCCL's own words are `NET/Own : slot 3 is not empty. No request was made`. ")
    assert "only NCCL's own" not in finding.message and "line 1" in finding.remediation[0].step
    assert "No request was made`." in headline(told)[1]
    # Alone, a result waits for them.
    (finding,) = found(report(line("NCCL INFO proxy.cc:878 -> 3 [Progress Thread]")), "peer-died").values()
    assert "only NCCL's own" in finding.message and "NCCL_DEBUG=WARN" in finding.remediation[0].step


def test_an_address_without_an_interface() -> None:
    for words in ("misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error No such device", "misc/ibvwrap.cc:92 NCCL WARN Call to ibv_modify_qp failed with 19 No such device, on dev mlx5_0:1, curr state INIT, next state RTR"):
        (finding,) = found(report(line(words)), "network-error").values()
        assert "no network interface here" in finding.message and "gid_attrs/ndevs" in finding.remediation[0].step
    for words in ("Call to ibv_modify_qp failed with error Connection timed out", "Call to ibv_open_device failed with error No such device"):
        known = classify(words)
        assert known is not None and known[0].id != "qp-interface", words
    retried = line("NCCL INFO Call to ibv_modify_qp failed with 19 No such device, on dev mlx5_0:1, curr state INIT, next state RTR, retrying 1/3 after 100 msec of sleep")
    assert report(RDMA + retried).exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        "Call to ibv_set_ece failed with error Operation not supported errno 95",
        "Call to ibv_query_ece failed with error Operation not supported errno 95",
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1, curr state INIT, next state RTR, local GID index 3, retrying 2/35 after 200 msec of sleep",
        "Failed to multicast-bind user buffer: CUDA error 2 'out of memory'",
    ],
)
def test_a_call_that_a_release_tells_and_goes_on_without(words: str) -> None:
    rank = "comm 0x1 rank {0} nranks 2 cudaDev {0} busId {1}000 - Init COMPLETE"
    made = "".join(line(f"NCCL INFO {rank.format(n, n + 1)}", 10 + n, n) for n in range(2))
    told = report(RDMA + line(f"NCCL INFO {words}") + made)
    assert (told.exit_code, told.diagnoses) == (0, ())
    # Another reason, as a warning, is one that ends the run.
    assert report(RDMA + line("misc/ibvwrap.cc:98 NCCL WARN Call to ibv_set_ece failed with error Invalid argument errno 22")).exit_code == 1
