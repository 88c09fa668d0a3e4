"""Causes that the words of a job's log name, each beside a log in order that looks like it. Synthetic."""

from __future__ import annotations

import pytest

from gpudoctor.nccl_messages import classify
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
