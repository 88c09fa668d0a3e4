"""Excerpts of jobs' logs as people paste them: the line that is the cause, and none where nothing failed. Synthetic."""

from __future__ import annotations

import json

import pytest

from gpudoctor.facts.nccl import Nccl
from gpudoctor.report.layout import Style
from gpudoctor.report.nccl import view
from tests.unit.test_homes import found, report

PLAIN = Style(unicode=False, width=10_000)


def test_a_refused_call_is_the_cause_and_not_the_results_below_it() -> None:
    head = "node01:700:7{} [{}] {}\n"
    told = report(
        head.format(10, 1, "misc/argcheck.cc:39 NCCL WARN Send : invalid root 3 (root should be in the 0..1 range)")
        + head.format(11, 0, "NCCL INFO group.cc:106 -> 4")
        + head.format(10, 1, "NCCL INFO enqueue.cc:1450 -> 4")
    )
    (mismatch,) = found(told, "rank-mismatch").values()
    assert "invalid root 3" in mismatch.evidence[0].value


def test_a_plug_in_without_a_device_is_no_failure() -> None:
    """NCCL goes on with its own network; a plug-in that has a device and cannot open it ends the run."""
    line = "node01:700:710 [0] get_ofi_provider:312 NCCL WARN NET/OFI {}\n"
    socket = "node01:700:710 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\nNCCL version 2.4.6+cuda10.0\n"
    assert report(line.format("Could not find any optimal provider") + socket).exit_code == 0
    assert report(line.format("Couldn't open AV. RC: -22, ERROR: Invalid argument") + socket).exit_code == 1


def start(rank: int, host: str, bus: str, dev: int = 0, pid: int | None = None, ip: str = "10.0.0.1", end: str = "START") -> str:
    head = f"{host}:{pid or 100 + rank}:{200 + rank} [{dev}] NCCL INFO "
    return f"{head}Bootstrap : Using eth0:{ip}<0>\n{head}comm 0x55{rank:02x} rank {rank} nranks 4 cudaDev {dev} nvmlDev {dev} busId {bus} commId 0xab - Init {end}\n"


def test_two_ranks_that_start_with_one_gpu() -> None:
    told = report("".join(start(r, "gpu07", bus) for r, bus in enumerate(("31000", "4b000", "31000", "4b000"))))
    said = {f.subject: f for r in told.results for f in r.findings if f.slug == "duplicate-gpu"}
    assert {s: f.confidence for s, f in said.items()} == {"gpu:0000:31:00.0": "likely", "gpu:0000:4b:00.0": "likely"}
    assert "Ranks 0, 2 on gpu07" in said["gpu:0000:31:00.0"].message


def test_ranks_with_equal_bus_ids_that_are_no_duplicates() -> None:
    both = (("gpu07", "10.0.0.1"), ("gpu08", "10.0.0.2"))
    assert not found(report("".join(start(r, host, "31000", ip=ip) for r, (host, ip) in enumerate(both))), "duplicate-gpu")
    # Two machines of one name; a name in place of the real one; an init that was completed.
    assert not found(report("".join(start(r, "gpu07", "31000", ip=ip) for r, (_, ip) in enumerate(both))), "duplicate-gpu")
    assert not found(report("".join(start(r, "localhost", "31000") for r in (0, 1))), "duplicate-gpu")
    assert not found(report("".join(start(r, "gpu07", "31000") + start(r, "gpu07", "31000", end="COMPLETE") for r in (0, 1))), "duplicate-gpu")


def test_nccl_of_2018_whose_lines_lack_its_name() -> None:
    """The connection that timed out is the cause; the one that was closed follows."""
    told = report(
        "NCCL version 2.2.13+cuda9.0\nnode1:18:61 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out\n"
        "node1:18:61 [0] INFO bootstrap.cu:28 -> 2 [Net]\nnode1:18:62 [0] include/socket.h:371 WARN Connection closed by remote peer\n"
    )
    (finding,) = found(told, "network-error").values()
    assert "timed out" in finding.evidence[0].value and not found(told, "peer-died")


def test_a_framework_that_repeats_nccls_result_or_cudas() -> None:
    trt = "Failed, NCCL error /src/cpp/plugins/allreducePlugin.cpp:295 '{}'\n"
    internal = report(trt.format("internal error - please report this issue to the NCCL developers"))
    assert {f.confidence for f in found(internal, "peer-died").values()} == {"possible"}
    assert found(report("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n"), "nvlink-errors")
    assert found(report("RuntimeError: CUDA error: uncorrectable ECC error encountered\n"), "ecc-remap")
    assert found(report("INTERNAL: NCCL operation ncclCommInitRank(&comm) failed. Last NCCL warning(error) log entry 'Attribute busid of node nic not found'.\n"), "nccl-env")
    assert not report("the ECC error of node 7 was not found again; NVLink errors are rare\n").diagnoses


def test_a_warning_that_no_family_knows_is_shown() -> None:
    line = "node1:70:71 [0] init.cc:303 NCCL WARN Something entirely new on rank 3\n"
    told = report(line + line)
    picture = "\n".join(view(told.hosts[0], PLAIN))
    assert "does not know: `Something entirely new on rank 3` (line 1)" in " ".join(picture.split()) and picture.count("entirely") == 1
    known = report(line + "node1:70:71 [0] misc/cudawrap.cc:36 NCCL WARN Cuda failure 'out of memory'\n")
    assert "does not know" not in "\n".join(view(known.hosts[0], PLAIN))


def test_ranks_that_only_heard_of_a_time_out() -> None:
    """The one that timed out waited: nobody is to blame by these lines."""
    heard = (
        "[rank0]:[E804 23:05:54.817424543 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to a collective "
        "timeout from  rank 13 and we will try our best to dump the debug info. Last enqueued NCCL work: 1261, last completed NCCL work: 1259.This is\n"
    )
    (finding,) = found(report(heard), "collective-timeout").values()
    assert (finding.subject, finding.confidence) == ("host", "possible") and "Rank 13 waited" in finding.message
    own = "[rank13]:[E804 10:11:12.1 ProcessGroupNCCL.cpp:632] [Rank 13] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
    (finding,) = found(report(heard + own), "collective-timeout").values()
    assert "ALLREDUCE #7" in finding.message


def test_a_device_that_cannot_be_opened_is_no_failure() -> None:
    """NCCL goes on with the others, and over TCP where there is no other."""
    closed = "node1:70:70 [0] misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed\nnode1:70:70 [0] transport/net_ib.cc:149 NCCL WARN NET/IB : Unable to open device mlx5_9\n"
    others = report(closed + "node1:70:70 [0] NCCL INFO NET/IB : Using [0]mlx5_1:1/RoCE ; OOB eth0:10.0.0.1<0>\nnode1:70:70 [0] NCCL INFO Using network IB\n")
    assert others.exit_code == 0 and not others.diagnoses
    tcp = report(closed + "node1:70:70 [0] NCCL INFO NET/IB : No device found.\nnode1:70:70 [0] NCCL INFO Using network Socket\n")
    (finding,) = found(tcp, "socket-fallback").values()
    assert (tcp.exit_code, finding.severity, finding.confidence) == (0, "warning", "possible") and "mlx5_9" in finding.message


def test_what_the_adapter_reported_is_said() -> None:
    told = report("node1:70:71 [0] transport/net_ib.cc:154 NCCL WARN NET/IB : mlx5_1:1 async fatal event on QP (0x55d0c0ffee10): local access violation work queue error\n")
    assert "`local access violation work queue error` from its RDMA adapter mlx5_1:1" in next(iter(found(told, "network-error").values())).message


ID = "torch.distributed.DistBackendError: [{}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: {}\n"


def test_ranks_that_wait_for_the_id_with_which_nccl_starts() -> None:
    (finding,) = found(report(ID.format(4, "Socket Timeout") + ID.format(5, "wait timeout after 600000ms")), "collective-timeout").values()
    assert (finding.subject, finding.severity) == ("rank:0", "error") and "ranks 4-5 waited" in finding.message
    (finding,) = found(report(ID.format(4, "Connection reset by peer")), "peer-died").values()
    assert finding.subject == "rank:0" and "Rank 4 asked the store" in finding.message


def test_a_rendezvous_that_cannot_be_reached() -> None:
    assert found(report("torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.9.8.7, 29512).\n"), "network-error")
    # One address of several, then the next one answers.
    retry = "[W socket.cpp:697] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).\n"
    assert not report(retry).diagnoses


LOST = "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1900, remote process exited or there was a network error, NCCL version 2.21.5\n[rank{0}]: Last error:\n[rank{0}]: Connection closed by remote peer node1<4711>\n"


@pytest.mark.parametrize("prefix", ["[rank3]: ", "(VllmWorker rank=3 pid=812) ERROR 06-19 07:06:13 [multiproc_executor.py:527] ", "(Worker_TP3 pid=812) "])
def test_whose_words_a_framework_repeats(prefix: str) -> None:
    """The launcher's or vLLM's mark says which rank it is, and the evidence is the line as it stands."""
    told = report(f"{prefix}Last error:\n{prefix}Cuda failure 2 'out of memory'\n")
    (finding,) = found(told, "cuda-error").values()
    assert finding.subject == "rank:3" and finding.message.startswith("Rank 3 failed")
    assert finding.evidence[0].value == f"{prefix}Cuda failure 2 'out of memory'"


def test_a_worker_of_several_groups_or_of_none_is_no_rank() -> None:
    for prefix in ("(Worker_DP1_TP3 pid=812) ", "(RayWorkerWrapper pid=812, ip=10.0.0.2) ", "worker-3: "):
        (finding,) = found(report(f"{prefix}Cuda failure 2 'out of memory'\n"), "cuda-error").values()
        assert finding.subject == "host"


@pytest.mark.parametrize("raised", ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB.", "RuntimeError: CUDA error: device-side assert triggered"])
def test_the_exception_of_one_rank_is_the_root_where_others_lost_it(raised: str) -> None:
    told = report(LOST.format(0) + LOST.format(1) + f"[rank7]: {raised}\n")
    (finding,) = found(told, "cuda-error").values()
    assert finding.subject == "rank:7" and not found(told, "peer-died")


def test_an_exception_that_the_program_caught_is_none() -> None:
    told = report(LOST.format(0) + "WARNING:root:OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB, retrying with batch size 8\n")
    assert found(told, "peer-died") and not found(told, "cuda-error")


WORK = "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, {}Timeout(ms)=600000{}) ran for 600021 milliseconds before timing out.\n"


def test_a_time_out_whose_rank_stands_elsewhere_or_nowhere() -> None:
    """An exception as an application prints it, a line that somebody shortened by hand."""
    (finding,) = found(report("RuntimeError: NCCL communicator was aborted on rank 3.  Original reason for failure was: " + WORK.format("", "")), "collective-timeout").values()
    assert finding.message.startswith("Rank 3 waited 600 s in ALLREDUCE #12")
    (finding,) = found(report("RuntimeError: Watchdog caught collective operation timeout: " + WORK.format("", ", ...")), "collective-timeout").values()
    assert (finding.subject, finding.confidence) == ("host", "possible") and finding.message.startswith("A rank waited 600 s in ALLREDUCE #12")


def test_what_deepspeeds_launcher_saw_end() -> None:
    line = "[2024-05-06 07:08:09,123] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=2', '--zero', '3'] exits with return code = {}\n"
    (finding,) = found(report(line.format(-9)), "peer-died").values()
    assert finding.message.startswith("The process of local rank 2 was killed by SIGKILL")
    (bus,) = found(report(line.format(-7)), "peer-died").values()
    assert "/dev/shm" in bus.remediation[0].step
    # The launcher's own signal, and an exit status that only says that it failed.
    assert not found(report(line.format(-15)), "peer-died") and not found(report(line.format(1)), "peer-died")


STALL = "[2024-05-06 07:08:09.1: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. This may indicate that\n"


@pytest.mark.parametrize("below", ["Stalled ops:grad_1 [missing ranks: 2]\ngrad_2 [missing ranks: 2]\n", "Stalled ranks:\n2: [grad_1, grad_2 ...]\n"])
def test_ranks_that_horovod_waits_for(below: str) -> None:
    told = report(STALL + below)
    (finding,) = found(told, "collective-timeout").values()
    assert (finding.subject, finding.severity, told.exit_code) == ("rank:2", "warning", 0) and "grad_1" in finding.message


WAITS = "2024-05-06 07:08:09.1: E external/xla/xla/service/rendezvous.cc:38] This thread has been waiting for `initialize clique for rank 2; clique=devices=[0,1,2,3]; stream=0` for 10 seconds and may be stuck. Expected 4 threads to join the rendezvous, but not all of them arrived on time.\n"


def test_where_xlas_threads_meet() -> None:
    (finding,) = found(report(WAITS), "collective-timeout").values()
    assert (finding.severity, finding.confidence) == ("warning", "possible") and finding.message.startswith("Rank 2 waits for others before a collective: not all 4")
    ended = WAITS.replace("This thread has been waiting for", "Termination timeout for").replace("for 10 seconds and may be stuck.", "of 40 seconds exceeded. Exiting to ensure a consistent program state.")
    (finding,) = found(report(WAITS + ended), "collective-timeout").values()
    assert (finding.severity, finding.confidence) == ("error", "likely")
    assert not report(WAITS + "2024-05-06 07:08:19.1: E external/xla/xla/service/rendezvous.cc:44] This thread is unstuck! Warning above was a false-positive.\n").diagnoses


ANSWER = """NCCL version 2.27.5 compiled with CUDA 12.9
Communicators... (0.00s)
=============
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  {0}
Warnings
========
{1}"""
BEHIND = """#0-0 (1a2b3c4d5e6f7081) MISMATCH
  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation 21
  2 ranks have launched up to operation 20
  Rank 2 -- GPU 2 managed by process 912 on node 10.0.0.4
  Rank 3 -- GPU 3 managed by process 913 on node 10.0.0.4
"""


@pytest.mark.parametrize(
    "worn",
    [
        "", "node7-1  | ", "May 06 07:08:09 node7 nccl[4711]: ", "[pod/trainer-0/main] ", "- ", "trainer-0 main ", "trainer-0 › main ", "logs/ras-12-",
        "2026-01-02 03:04:05,123 - ras - INFO - ", "[2026-01-02 03:04:05,123] [INFO] [ras.py:33:poll] [Rank 0] ", "INFO 01-02 03:04:05 [ras.py:33] ",
    ],
)  # fmt: skip
def test_an_answer_of_ras_in_the_dress_of_a_log(worn: str) -> None:
    told = report("".join(worn + line for line in ANSWER.format("MISMATCH", BEHIND).splitlines(keepends=True)))
    (finding,) = found(told, "collective-timeout").values()
    assert finding.severity == "warning" and "AllReduce" in finding.message
    assert not report("".join(worn + line for line in ANSWER.format("OK", "").splitlines(keepends=True))).diagnoses


@pytest.mark.parametrize("keys", [{"msg": "{}"}, {"stream": "stdout", "log": "{}\n", "time": "2026-01-02T03:04:05Z"}, {"level": "info", "message": "{}"}])
def test_an_answer_of_ras_in_a_log_of_json(keys: dict[str, str]) -> None:
    def logged(text: str) -> str:
        return "".join(json.dumps({k: v.replace("{}", line) for k, v in keys.items()}) + "\n" for line in text.splitlines())

    (finding,) = found(report(logged(ANSWER.format("MISMATCH", BEHIND))), "collective-timeout").values()
    assert "AllReduce" in finding.message
    assert not report(logged(ANSWER.format("OK", ""))).diagnoses


@pytest.mark.parametrize("words", ["It says that 2 ranks have launched less than the others.", "Row 1 2 3 4 5 6 RUNNING MISMATCH of the table", "see #0-0 in the answer: MISMATCH"])
def test_words_about_an_answer_of_ras_are_none(words: str) -> None:
    assert report(words + "\n").exit_code == 3


@pytest.mark.parametrize(
    ("line", "slug"),
    [
        ("RuntimeError: radix_sort: failed on 1st step: cudaErrorIllegalAddress: an illegal memory access was encountered", "cuda-error"),
        ("  what():  after reduction step 1: cudaErrorInvalidDevice: invalid device ordinal", "gpu-not-visible"),
        ("(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs", "peer-died"),
        ("2026-01-02 03:04:05.1: E coordination_service.cc:1386] /job:jax_worker/replica:0/task:2 has been set to ERROR in coordination service: UNAVAILABLE", "peer-died"),
        ("absl::Status: DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Shutdown::0. # of tasks that reached the barrier: 3/4.", "peer-died"),
        ("(0) UNAVAILABLE:  Collective ops is aborted by: failed to connect to all addresses", "peer-died"),
        ("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD", "peer-died"),
        ("Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.", "peer-died"),
    ],
)
def test_what_thrust_and_ray_say_of_a_process(line: str, slug: str) -> None:
    (finding,) = found(report(line + "\n"), slug).values()
    assert finding.severity == "error"


@pytest.mark.parametrize("line", ["Worker exit type: INTENDED_USER_EXIT Worker exit detail: exited", "see cudaErrorAssert: device asserts in the manual", "A worker died of boredom", "/job:worker/task:2 has connected to coordination service", "the barrier timed out", "MPI_ABORT is called by mpi4py"])
def test_an_intended_end_is_none(line: str) -> None:
    assert report(line + "\n").exit_code == 3


def test_a_cause_comes_before_what_ray_saw() -> None:
    told = report("(Worker pid=7) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nWorker exit type: SYSTEM_ERROR Worker exit detail: x\n")
    assert [d.finding.slug for d in told.diagnoses if d.finding.severity == "error"] == ["cuda-error"]


WATCHED = "[rank3]:[E809 14:59:33.6 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"


@pytest.mark.parametrize("seen", ["Worker exit type: SYSTEM_ERROR Worker exit detail: x", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD"])
def test_what_a_launcher_sees_of_a_watchdog_is_no_cause(seen: str) -> None:
    told = report(f"{seen}\n{WATCHED}")
    assert [d.finding.slug for d in told.diagnoses if d.finding.severity == "error"] == ["collective-timeout"]


@pytest.mark.parametrize(("printed", "version"), [("21.0.3", "2.10.3"), ("21.2.12", "2.12.12"), ("20.9.9", "2.9.9"), ("2.8.3", "2.8.3"), ("2.21.5", "2.21.5")])
def test_a_version_that_pytorch_took_apart_as_that_of_an_older_release(printed: str, version: str) -> None:
    told = report(f"RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:957, unhandled system error, NCCL version {printed}\n")
    (comm,) = told.hosts[0].get(Nccl) or ()
    assert comm.version == version


def test_a_mismatch_that_nccl_itself_only_supposes() -> None:
    words = "[0] init.cc:1100 NCCL WARN Your program may be hanging, this may be caused by a collective mismatch around rank 3. Please check your calls at and around this rank.\n"
    told = report(words)
    (mismatch,) = found(told, "rank-mismatch").values()
    assert mismatch.confidence == "possible" and told.exit_code == 1
    assert report("node01:700:710 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nIf the program may be hanging, look for a collective mismatch.\n").exit_code == 0


def test_a_run_that_a_setting_ended_is_no_pass() -> None:
    told = report("201: :41367:41367 [1] enqueue.cc:422 NCCL WARN Error : no algorithm/protocol available\n")
    (setting,) = found(told, "nccl-env").values()
    assert setting.severity == "error" and told.exit_code == 1 and "41367 at" not in setting.message and "at 41367" not in setting.message
    assert report("node01:700:710 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n").exit_code == 0


def test_a_machine_learning_librarys_socket_that_has_no_address() -> None:
    told = report("include/socket.h:344 WARN Socket creation failed : Address family not supported by protocol\n")
    assert found(told, "network-error") and told.exit_code == 1


DEEPSPEED = "[2024-02-08 12:00:00,790] [INFO] [launch.py:{at}:main] 0 {setting}\n"


@pytest.mark.parametrize(("at", "setting"), [(71, "NCCL_P2P_DISABLE 1"), (138, "NCCL_P2P_DISABLE=1")])
def test_what_deepspeeds_launcher_found_in_the_environment(at: int, setting: str) -> None:
    told = report(DEEPSPEED.format(at=at, setting="NCCL_DEBUG=INFO") + DEEPSPEED.format(at=at, setting=setting) + DEEPSPEED.format(at=103, setting="dist_world_size=2"))
    (off,) = found(told, "p2p-disabled-env").values()
    assert "NCCL_P2P_DISABLE=1" in off.message and off.evidence[0].where == "line 2"
    assert not found(report(DEEPSPEED.format(at=at, setting="NCCL_P2P_DISABLE=0")), "p2p-disabled-env")


@pytest.mark.parametrize(("nodes", "warned"), [("nRanks 2 nNodes 1 localRanks 2", False), ("nRanks 4 nNodes 2 localRanks 2", True)])
def test_an_interface_that_does_not_leave_the_host_harms_only_a_job_over_several(nodes: str, warned: bool) -> None:
    lines = "node01:700:710 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to lo\n"
    lines += f"node01:700:710 [0] NCCL INFO comm 0x51 rank 0 {nodes} localRank 0 MNNVL 0\n"
    assert bool(found(report(lines), "nccl-env")) is warned


def test_the_head_of_an_nccl_of_2016_is_none_of_ras() -> None:
    text = "NCCL version 1.3.4 compiled with CUDA 8.0\nINFO rank 0 using buffSize = 2097152\nWARN src/reduce.cu:126 Cuda failure 'invalid resource handle'\n"
    told = report(text)
    assert found(told, "cuda-error") and not any("RAS" in m.reason for m in told.missing)


@pytest.mark.parametrize(("quoted", "level"), [('"NCCL INFO NCCL_P2P_LEVEL set by environment to PHB"', "PHB"), ("`NCCL INFO NCCL_P2P_LEVEL set by environment to 3.`", "3"), ("NCCL INFO NCCL_P2P_LEVEL set by environment to SYS", "SYS")])
def test_the_marks_of_a_quotation_are_no_part_of_a_value(quoted: str, level: str) -> None:
    told = report("I see in my log\n" + quoted + "\n")
    (comm,) = told.hosts[0].get(Nccl) or ()
    assert comm.env == {"NCCL_P2P_LEVEL": level}


def test_a_thread_of_the_proxy_that_ended_with_a_result() -> None:
    """The warning above it was left out of the paste. Results deeper in the stack may be ones that NCCL goes on without."""
    head = "node07:100:310 [0] NCCL INFO "
    told = report(head + "transport/net.cc:1134 -> 6\n" + head + "proxy.cc:679 -> 6\n" + head + "proxy.cc:858 -> 6 [Proxy Thread]\n")
    (died,) = found(told, "peer-died").values()
    assert died.confidence == "possible" and died.evidence[0].where == "line 3"
    assert report(head + "proxy.cc:679 -> 6\n" + head + "[Proxy Progress] Device 0 CPU core 3\n" + head + "Bootstrap : Using eth0:10.0.0.1<0>\n").exit_code == 0


def test_the_threads_result_is_the_effect_of_what_the_warning_names() -> None:
    head = "node07:100:310 [0] "
    told = report(head + "transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)\n" + head + "NCCL INFO proxy.cc:858 -> 6 [Proxy Thread]\n")
    assert [d.finding.slug for d in told.diagnoses] == ["network-error"]
