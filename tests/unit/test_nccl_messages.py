"""The families of NCCL's messages: every one can be told from its words, explained, and leads somewhere."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudoctor.discover import load
from gpudoctor.nccl_messages import classify, families
from tests.nccl_logs import job
from tests.support import FIXTURES, gpudoctor, report
from tests.unit.test_homes import report as judged

SAMPLES = [
    ("duplicate-gpu", "Duplicate GPU detected : rank 4 and rank 0 both on CUDA device 1000", None),
    ("duplicate-gpu", "Multiple ranks detected using the same GPU on this node", None),
    ("duplicate-gpu", "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1", None),
    ("graph-device", "XML Import Channel : dev 3 not found.", None),
    ("ib-registration", "Call to ibv_reg_mr_iova2 failed with error Invalid argument", None),
    ("no-interface", "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)", None),
    ("may-hang", "Your program may be hanging, this may be caused by a collective mismatch around rank 3. Please check your calls", None),
    ("no-interface", "Bootstrap : no socket interface found", None),
    ("version-of-ranks", "Mismatched NCCL version detected : rank 0 version 22304 rank 1 version 22809", None),
    ("version-of-ranks", "NCCL version mismatch with remote peer 10.0.0.1<28028> (local: 22809, remote 22605)", None),
    ("too-old-shared-memory", "ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856", None),
    ("too-old-no-kernel", "Cuda failure 209 'no kernel image is available for execution on the device'", None),
    ("nvls-bind", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'x'.", None),
    ("nvls-bind-fallback", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2 : CUDA error 401 'x'. Proceeding without NVLS support.", None),
    ("xml-absent", "Could not open XML topology file /opt/topo.xml : No such file or directory", None),
    ("nvls-cuda", "Cuda failure 1 'invalid argument'", "transport/nvls.cc"),
    ("fabric-not-ready", "Cuda failure 802 'system not yet initialized'", "init.cc"),
    ("p2p-nvlink-refused", "P2P is disabled between NVLINK connected GPUs 0 and 1. This should not be the case.", None),
    ("p2p-refused", "P2P is disabled between connected GPUs 2 and 3. You can repress this message", None),
    ("p2p-could-not-enable", "Could not enable P2P between dev 2(=300000) and dev 1(=200000)", None),
    ("p2p-217", "Cuda failure 217 'peer access is not supported between these two devices'", "transport/shm.cc"),
    ("shm-cuda", "Cuda failure 'invalid argument'", "misc/shmutils.cc"),
    ("shm-full", "Error: failed to extend /dev/shm/nccl-a to 9637892 bytes, error: No space left on device (28)", None),
    ("shm-full", "Call to posix_fallocate failed: No space left on device", None),
    ("shm-full", "Error while creating shared memory segment nccl-shm-recv-2-0-1-3 (size 9637888)", None),
    ("shm-attach", "Error while attaching to shared memory segment /dev/shm/nccl-g (size 14156128), error: No such file or directory (2)", None),
    ("shm-call", "Call to open failed: No such file or directory", "misc/shmutils.cc"),
    ("memlock", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory errno 12", None),
    ("ib-call", "Call to ibv_modify_qp failed with error Connection timed out", None),
    ("world-size", "Bootstrap Root : mismatch in rank count from procs 8 : 16", None),
    ("world-size", "Bootstrap Root : mismatch in info from procs, nranks 2 vs 3", None),
    ("world-size", "Bootstrap Root : rank 3 of 8 ranks has already checked in", None),
    ("truncated", "Message truncated : received 64 bytes instead of 32", None),
    ("wrong-socket", "socketFinalizeAccept: wrong type 4 != 3", None),
    ("ib-completion", "NET/IB : Got completion from peer 10.0.0.1<33092> with error 12, opcode 0, len 0, vendor err 129", None),
    ("ib-completion", "NET/IB : Got completion with error 12, opcode 1, len 32577, vendor err 129", None),
    ("ib-completion", "NET/IB : Got completion from peer 10.0.0.1<5> with status=12 opcode=0 len=0 vendor err 129 (Recv)", None),
    ("ib-completion", "NET/IB: Got completion from peer 10.0.0.1<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0", None),
    ("ib-flushed", "NET/IB : Got completion from peer 10.0.0.1<5> with error 5, opcode 0, len 0, vendor err 244", None),
    ("no-route", "Net : Connect to 10.0.0.2<54263> failed : No route to host", None),
    ("refused", "socketStartConnect: Connect to 10.0.0.2<5426> failed : Connection refused", None),
    ("refused", "socketStartConnect: exceeded retries (20000)", None),
    ("peer-closed", "Net : Connection closed by remote peer node2<53210>", None),
    ("peer-closed", "socketProgressOpt: Call to recv from 10.0.0.1<4> failed : Connection reset by peer", None),
    ("follow-up", "Proxy Call to rank 1 failed (Connect)", None),
    ("cuda-oom", "Cuda failure 2 'out of memory'", "include/alloc.h"),
    ("cuda-failure", "Cuda failure 700 'an illegal memory access was encountered'", "proxy.cc"),
    ("gpu-not-visible", "Cuda failure 101 'invalid device ordinal'", "init.cc"),
    ("harmless-libibverbs", "Failed to open libibverbs.so[.1]", None),
    ("harmless-plugin", "NET/Plugin: Could not find: libnccl-net.so", None),
    ("ib-open", "Call to ibv_open_device failed", "misc/ibvwrap.cc"),
    ("ib-open", "NET/IB : Unable to open device mlx5_4", "transport/net_ib.cc"),
    ("ib-call", "Call to ibv_get_async_event failed", "misc/ibvwrap.cc"),
    ("ib-async", "NET/IB : mlx5_1:1 async fatal event on QP (0x55d0c0ffee10): invalid request local work queue error", "transport/net_ib.cc"),
    ("ib-async", "NET/IB : Got async event : port error", "transport/net_ib.cc"),
    ("socket-call", "Call to bind failed: Address already in use", "misc/socket.cc"),
    ("socket-call", "Call to socket failed : Too many open files", "include/socket.h"),
    ("refused", "Call to connect failed : Connection refused", "include/socket.h"),
    ("torch-oom", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", None),
    ("torch-raised", "RuntimeError: unique_by_key: failed to synchronize: cudaErrorAssert: device-side assert triggered", None),
    ("ray-worker", "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot", None),
    ("jax-heartbeat", "UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout. This indicates that the remote task has failed", None),
    ("jax-barrier", "DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Shutdown::0. Some timed out task names: /job:jax_worker/replica:0/task:3", None),
    ("tf-collective", "UnavailableError: Collective ops is aborted by: failed to connect to all addresses", None),
    ("mpi-abort", "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD", None),
    ("ray-worker", "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2.", None),
    ("torch-raised", "RuntimeError: CUDA error: an illegal memory access was encountered", None),
    ("cuda-ecc", "RuntimeError: CUDA error: uncorrectable ECC error encountered", None),
    ("gpu-not-visible", "RuntimeError: CUDA error: invalid device ordinal", None),
    ("store-connect", "The client socket has timed out after 600000ms while trying to connect to (10.0.0.9, 29500).", None),
    ("ofi-absent", "NET/OFI Could not find any optimal provider", None),
    ("ofi", "NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument", None),
    ("argument-check", "Recv : invalid root 4 (root should be in the 0..4 range)", "misc/argcheck.cc"),
    ("argument-check", "AllReduce : invalid type 17", "misc/argcheck.cc"),
    ("argument-check", "CommDestroy : comm argument is NULL", "misc/argcheck.cc"),
    ("argument-check", "Send : sendbuff 0x7f00 is not a valid pointer", "misc/argcheck.cc"),
    ("pointer-device", "Reduce : recvbuff allocated on device 1 mismatchs with NCCL device 0", "misc/argcheck.cc"),
    ("world-size", "Invalid rank requested : 8/8", "init.cc"),
    ("xml-attribute", "Attribute arch of node cpu not found", "graph/xml.h"),
    ("p2p-import", "Cuda failure 101 'invalid device ordinal'", "transport/p2p.cc"),
    ("p2p-import", "Cuda failure 'invalid resource handle'", "transport/p2p.cc"),
    ("cuda-failure", "Cuda failure 'invalid resource handle'", "enqueue.cc"),
    ("harmless-plugin", "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "file"), SAMPLES)
def test_each_wording_finds_its_family(name: str, text: str, file: str | None) -> None:
    found = classify(text + "\n", file)
    assert found is not None and found[0].id == name


def test_every_family_leads_to_a_cause_or_to_nothing_at_all() -> None:
    slugs = {c.slug for c in load().causes}
    for family in families():
        assert family.slug is None or family.slug in slugs, family.id
        assert family.meaning and family.remedy and family.versions


def test_values_come_from_whole_words_only() -> None:
    assert classify("Duplicate GPU detected : rank 4 and rank 0 both on CUDA device 1000\n")[1]["bus"] == "1000"  # type: ignore[index]
    assert "bus" not in classify("Duplicate GPU detected : rank 4 and rank 0 both on CUDA device 10")[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("Duplicate GPU detected", "duplicate-gpu"),
        ("vm:2:3 [0] transport/nvls.cc:165 NCCL WARN Cuda failure 'invalid argument'", "fabric"),
        ("NCCL WARN Failed to open libibverbs.so[.1]", "harmless"),
        ("ib-completion", "network-error"),
    ],
)
def test_explain_takes_a_message(words: str, said: str) -> None:
    done = gpudoctor("explain", words)
    assert done.returncode == 0 and said in done.stdout.decode()
    assert "Remedy" in done.stdout.decode()
    entry = json.loads(gpudoctor("explain", "--format", "json", words).stdout)
    assert entry["meaning"] and entry["remedy"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("utter nonsense", "see `gpudoctor checks`"),
        ("79", 'did you mean "Xid 79"?'),
        ("step 12 of epoch 3 is done", "gpudoctor check --from FILE"),
    ],
)
def test_explain_of_nothing_known_is_a_usage_error_that_says_what_to_do(words: str, said: str) -> None:
    done = gpudoctor("explain", words)
    assert done.returncode == 2 and done.stdout == b"" and said in done.stderr.decode()


def test_notes_on_one_subject_are_all_told() -> None:
    done = gpudoctor("check", "--from", str(FIXTURES / "outputs" / "nccl-log" / "h200x2-2.28.9-env-mismatch.txt"))
    text = done.stdout.decode()
    assert "host, host" not in text and all(f"nccl-env (host): {name}" in text for name in ("NCCL_ALGO=Ring", "NCCL_PROTO=Simple"))


@pytest.mark.skipif(shutil.which("zstd") is None, reason="the zstd program is not installed")
def test_a_log_compressed_with_zstd(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text("\n".join(job(2)) + "\n")
    subprocess.run(["zstd", "-q", str(log)], check=True)
    status, result = report("check", "--from", f"{log}.zst")
    assert status == 0 and result["facts"]["nccl"][0]["nranks"] == 2
    cut = tmp_path / "cut.zst"
    cut.write_bytes((tmp_path / "nccl.log.zst").read_bytes()[:-40])
    assert report("check", "--from", str(cut))[0] in (0, 3)


FIELD = [
    ("truncated", "NET/Socket : message truncated : receiving 696320 bytes instead of 32768", None),
    ("collective-mismatch", "NET/IB : req 0/1 tag 0 peer 10.0.0.6<58683> collective mismatch error, local size 496640 remote size 65536", None),
    ("collective-mismatch", "Mismatched collective detected, please check your collective calls at and around rank 39. You can use", None),
    ("refused", "socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort", None),
    ("refused", "socketPollConnect poll() returned 1, no POLLOUT events", None),
    ("ofi", "NET/OFI Request 0x7f2a44002d68 completed with error. RC: 21. Error: unknown error. Completed length: 0", None),
    ("ofi", "NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument", None),
    ("ofi-absent", "NET/OFI aws-ofi-nccl initialization failed", None),
    ("cuda-ecc", "Cuda failure 214 'uncorrectable ECC error encountered'", "misc/strongstream.cc"),
    ("cuda-nvlink", "Cuda failure 220 'uncorrectable NVLink error detected during the execution'", "enqueue.cc"),
    ("cuda-start", "Cuda failure 'initialization error'", "init.cc"),
    ("cuda-start", "Cuda failure 999 'unknown error'", None),
    ("cuda-failure", "Cuda failure 1 'invalid argument'", "enqueue.cc"),
    ("too-old-no-kernel", "Cuda failure 98 'invalid device function'", "enqueue.cc"),
    ("driver-library", "Cuda failure 36 'API call is not supported in the installed CUDA driver'", "init.cc"),
    ("no-library", "NCCL operation ncclGetUniqueId(&id) failed: Unable to load NCCL library. Multi-GPU collectives will not work.", None),
    ("harmless-plugin", "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file", None),
    ("torch-system", "NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: unhandled system error (run with NCCL_DEBUG=INFO for details). Last NCCL warning(error) log entry (may be unrelated) 'socketTryAccept: Accept failed: Bad file descriptor'", None),
    ("cuda-oom", "NCCL operation ncclCommInitRank failed: unhandled cuda error. Last NCCL warning(error) log entry (may be unrelated) 'Cuda failure 2 'out of memory''.", None),
    ("torch-internal", "NCCL error in: ProcessGroupNCCL.cpp:825, internal error, NCCL version 2.9.9", None),
    ("torch-usage", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", None),
    ("torch-system", "group.cc:75 -> 2 [Async thread]", None),
    ("harmless-ib-event", "NET/IB : Got async event : client reregistration", None),
    ("ib-async", "NET/IB : Got async event : port error", None),
    ("ib-async", "NET/IB : mlx5_0:1 async fatal event on QP (0x7f69f01519a8): local access violation work queue error", None),
    ("too-old-no-kernel", "Cuda failure 'named symbol not found'", "enqueue.cc"),
    ("no-route", "Net : Socket creation failed : Address family not supported by protocol", "include/socket.h"),
    ("follow-up", "Socket recv failed while polling for opId=0x7f4774cc9620", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "file"), FIELD)
def test_wordings_of_reports_find_their_family(name: str, text: str, file: str | None) -> None:
    found = classify(text + "\n", file)
    assert found is not None and found[0].id == name


LAST_ERROR = (
    "{head}torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1207, {result} (run with NCCL_DEBUG=INFO for details), NCCL version 2.14.3\n"
    "{head}ncclInternalError: Internal check failed.\n{head}Last error:\n{head}{text}\n"
)


QUOTED = [("", name, text) for name, text, file in SAMPLES if file is None]
QUOTED += [(head, "world-size", "Bootstrap Root : rank 3 of 8 ranks has already checked in") for head in ("[rank3]: ", "[1,3]<stderr>:", "node07: ", "[trainer3|1]:")]


@pytest.mark.parametrize(("head", "name", "text"), QUOTED)
def test_what_pytorch_quotes_of_nccl_is_the_cause(head: str, name: str, text: str) -> None:
    known = next(f for f in families() if f.id == name)
    if known.slug is None or known.tier >= 8:
        return
    told = judged(LAST_ERROR.format(head=head, text=text, result="internal error"))
    assert told.diagnoses[0].finding.slug == known.slug and text[:30] in told.diagnoses[0].finding.evidence[0].value


@pytest.mark.parametrize("below", ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "Exception raised from check at Utils.cpp:1 (most recent call first):"])
def test_what_stands_below_an_empty_last_error_is_not_nccls_word(below: str) -> None:
    told = judged(LAST_ERROR.format(head="", text=below, result="internal error"))
    assert told.diagnoses[0].finding.slug == "peer-died" and "NCCL's own words" not in told.diagnoses[0].finding.message


def test_words_of_nccl_that_no_family_knows_are_shown() -> None:
    told = judged(LAST_ERROR.format(head="[rank3]: ", text="Net : something new went wrong", result="unhandled system error"))
    assert "something new went wrong" in told.diagnoses[0].finding.message
    assert judged("node01:700:710 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nLast error:\nnone\n").exit_code == 0
