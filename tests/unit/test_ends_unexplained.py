"""A job that failed for a reason that is not in the input is no pass. Synthetic, in the shape of torchrun's summary."""

from __future__ import annotations

import pytest

from tests.unit.test_ends_by_signal import TABLE
from tests.unit.test_homes import P2P, log, report


def table(code: int) -> str:
    """torchrun's summary; of an exception its last line points to the manual."""
    text = TABLE.format(code=code, signal=-code)
    return text if code < 0 else text.replace(f"Signal {-code} (SIGABRT) received by PID 101", "To enable traceback see: https://pytorch.org")


@pytest.mark.parametrize(("code", "words"), [(1, "rank 1 ended with exit status 1"), (-6, "rank 1 ended itself by SIGABRT"), (-2, "rank 1 ended by signal 2")])
def test_a_job_that_failed_and_nothing_says_why(code: int, words: str) -> None:
    told = report(table(code))
    (missing,) = [m for m in told.missing if m.fact == "why the job ended"]
    assert told.verdict == "unknown" and told.exit_code == 3 and missing.needed and words in missing.reason and "line" in missing.reason


def test_what_is_explained_is_not_said_again() -> None:
    warned = "node07:101:201 [1] misc/cudawrap.cc:36 NCCL WARN Cuda failure 'out of memory'\n"
    told = report(log({"node07": P2P}) + warned + table(1))
    assert told.exit_code == 1 and not any(m.fact == "why the job ended" for m in told.missing)


@pytest.mark.parametrize("end", ["", table(1)], ids=["well", "by an exception of its own"])
def test_a_job_whose_communication_is_shown_in_order(end: str) -> None:
    told = report(log({"node07": P2P}) + end)
    assert told.exit_code == 0 and not any(m.fact == "why the job ended" for m in told.missing)


def test_what_a_launcher_stopped_is_no_end_of_a_job() -> None:
    told = report(table(-15))
    assert not any(m.fact == "why the job ended" for m in told.missing)


def begun(ranks: range, nranks: int, then: str = "") -> str:
    lines = (
        f"node07:{100 + r}:{100 + r} [{r}] NCCL INFO ncclCommInitRank comm 0x5{r} rank {r} nranks {nranks} cudaDev {r} nvmlDev {r} busId {r + 1}000 commId 0x7 - Init START\n{then.format(r=r, pid=100 + r)}"
        for r in ranks
    )
    return "node07:100:100 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n" + "".join(lines)


def test_a_start_that_waits_for_a_rank_is_no_pass() -> None:
    told = report(begun(range(7), 8))
    (missing,) = [m for m in told.missing if m.fact == "whether the communicator came about"]
    assert told.exit_code == 3 and "7 of its 8 ranks" in missing.reason and "rank 7 never appears" in missing.reason


def test_a_paste_of_a_few_ranks_of_many_is_a_pass_that_says_so() -> None:
    """The others write elsewhere, or were left out: that they are not there is said, and no verdict hangs on it."""
    told = report(begun(range(1, 2), 16))
    (missing,) = [m for m in told.missing if m.fact == "whether the communicator came about"]
    assert told.exit_code == 0 and not missing.needed and "ranks 0,2-15 never appear" in missing.reason


def test_one_of_two_ranks_that_waits_is_no_pass() -> None:
    """Two H200, rank 1 was never started: without a word from it, and no time-out of NCCL's own."""
    told = report(begun(range(1), 2))
    (missing,) = [m for m in told.missing if m.fact == "whether the communicator came about"]
    assert told.exit_code == 3 and "1 of its 2 ranks" in missing.reason and "rank 1 never appears" in missing.reason
    assert not told.diagnoses  # it may only just have begun


@pytest.mark.parametrize(
    "then",
    [
        "node07:{pid}:{pid} [{r}] NCCL INFO ncclCommInitRank comm 0x5{r} rank {r} nranks 2 cudaDev {r} nvmlDev {r} busId {r}000 commId 0x7 - Init COMPLETE\n",
        "node07:{pid}:{pid} [{r}] NCCL INFO Channel 00/0 : {r}[{r}] -> 1[1] via P2P/CUMEM\n",
        "node07:{pid}:{pid} [{r}] NCCL INFO comm 0x5{r} rank {r} nRanks 2 nNodes 1 localRanks 2 localRank {r} MNNVL 0\n",
    ],
    ids=["done", "connections", "met"],
)
def test_a_log_of_rank_0_alone_that_went_on(then: str) -> None:
    """Mostly only rank 0's output is kept."""
    told = report(begun(range(1), 2, then))
    assert told.exit_code == 0 and not any(m.fact == "whether the communicator came about" for m in told.missing)


def test_a_rank_whose_line_was_cut_did_appear() -> None:
    cut = "node07:107:107 [7] NCCL INFO ncclCommInitRank comm 0x57 rank 7 nranks 8 cudaDev 7 nvmlDev 7 busId 8000 commId 0x\n"
    assert not any(m.fact == "whether the communicator came about" for m in report(begun(range(7), 8) + cut).missing)


@pytest.mark.parametrize(
    "text",
    [
        begun(range(8), 8),  # all are there: an excerpt ends where its author wished
        begun(range(7), 8, "node07:{pid}:{pid} [{r}] NCCL INFO comm 0x5{r} rank {r} nRanks 8 nNodes 1 localRanks 8 localRank {r} MNNVL 0\n"),
        begun(range(7), 8, "node07:{pid}:{pid} [{r}] NCCL INFO Channel 00/0 : {r}[{r}] -> 7[7] via P2P/CUMEM\n"),
    ],
    ids=["all began", "it went on", "connections"],
)
def test_an_excerpt_is_not_a_job_that_waits(text: str) -> None:
    told = report(text)
    assert told.exit_code == 0 and not any(m.fact == "whether the communicator came about" for m in told.missing)


def test_the_start_of_a_log_does_not_show_that_the_communication_is_in_order() -> None:
    start = "node07:100:100 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\nnode07:100:100 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n"
    told = report(start + table(1))
    assert told.exit_code == 3 and [m.fact for m in told.missing if m.needed] == ["why the job ended"]
    assert report(start).exit_code == 0


CUT = "node07:101:101 [0] bootstrap.cc:112 NCCL WARN Bootstrap : no socket interface fo\n"
RESULTS = "node07:101:101 [0] NCCL INFO init.cc:74 -> {code}\nnode07:101:101 [0] NCCL INFO init.cc:1740 -> {code}\n"


@pytest.mark.parametrize(("before", "words"), [(CUT, "was cut: `Bootstrap : no socket interface fo`"), ("", "NCCL_DEBUG=WARN shows them")])
def test_a_start_that_failed_for_a_reason_that_was_cut_off(before: str, words: str) -> None:
    told = report(before + RESULTS.format(code=5))
    (missing,) = [m for m in told.missing if m.fact == "why NCCL's start failed"]
    assert told.verdict == "unknown" and told.exit_code == 3 and "`init.cc:1740 -> 5`" in missing.reason and words in missing.reason


@pytest.mark.parametrize(
    "text",
    [
        log({"node07": P2P}).replace("node07:100:", "node07:101:") + RESULTS.format(code=7),  # 7: still at work
        RESULTS.format(code=2).replace(":101:101", ":100:100") + log({"node07": P2P}),  # tried again, and made
        CUT.replace("fo\n", "found\n") + RESULTS.format(code=5),  # known: named as the fault
    ],
    ids=["in-progress", "made-after-all", "known"],
)
def test_a_start_that_is_explained_or_came_about(text: str) -> None:
    assert not any(m.fact == "why NCCL's start failed" for m in report(text).missing)


FAILED = "node07:{pid}:{pid} [0] NCCL INFO init.cc:74 -> 3\nnode07:{pid}:{pid} [0] NCCL INFO init.cc:1740 -> 3\n"


def started(pid: int, rank: int, nranks: int, comm: str, *words: str) -> str:
    return "".join(
        f"node07:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x{comm}{rank} rank {rank} nranks {nranks} cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId 0x{comm} - Init {word}\n"
        for word in words or ("START", "COMPLETE")
    )


WORLD = started(100, 0, 2, "a") + started(101, 1, 2, "a")


@pytest.mark.parametrize(
    "text",
    [
        WORLD + started(100, 0, 4, "b", "START") + FAILED.format(pid=100),  # one of others was made before
        started(100, 0, 4, "b", "START") + FAILED.format(pid=100) + WORLD,  # or after
        started(100, 0, 2, "b", "START") + FAILED.format(pid=100) + started(102, 1, 2, "b", "START") + WORLD,  # as many ranks, another member
        started(100, 0, 4, "b", "START") + FAILED.format(pid=100) + started(100, 1, 4, "c"),  # another rank of as many
    ],
    ids=["before", "after", "other-members", "other-rank"],
)
def test_another_communicator_does_not_mend_one_that_failed(text: str) -> None:
    told = report(text)
    (missing,) = [m for m in told.missing if m.fact == "why NCCL's start failed"]
    assert told.exit_code == 3 and "`init.cc:1740 -> 3` (f0.txt, line " in missing.reason


@pytest.mark.parametrize(
    "text",
    [
        started(100, 0, 2, "b", "START") + FAILED.format(pid=100) + WORLD,  # a new id, the same rank of as many
        started(100, 0, 2, "b", "START") + FAILED.format(pid=100) + started(101, 1, 2, "b", "START") + FAILED.format(pid=101) + WORLD,
        started(100, 0, 2, "a", "START") + FAILED.format(pid=100) + started(100, 0, 2, "a", "COMPLETE"),
    ],
    ids=["of one rank", "of both", "the same"],
)
def test_a_communicator_that_was_tried_again(text: str) -> None:
    assert not any(m.fact == "why NCCL's start failed" for m in report(text).missing)


CRASHES = [
    "Segmentation fault (core dumped)",
    "[rank0]: Bus error",
    "run.sh: line 3:  4321 Killed                  python train.py",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your processes may have been killed by the cgroup out-of-memory handler.",
    "slurmstepd: error: *** JOB 7 ON node07 CANCELLED AT 2026-03-01T12:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
]
FINE = [
    "Killed 3 stale workers",
    "wandb: run finished",
    "INFO: no segmentation fault in 100 runs",
    "slurmstepd: error: *** JOB 7 ON node07 CANCELLED AT 2026-03-01T12:00:00 DUE TO TIME LIMIT ***",
    "Segmentation fault (core dumped)\n" + "step 1 done\n" * 9,  # long before the end
]


@pytest.mark.parametrize("last", CRASHES)
def test_a_log_in_order_that_ends_in_a_crash_is_no_pass(last: str) -> None:
    told = report(log({"node07": P2P}) + last + "\n")
    (missing,) = [m for m in told.missing if m.fact == "why the job ended"]
    assert told.exit_code == 3 and missing.needed and last[:40] in missing.reason and "line" in missing.reason


@pytest.mark.parametrize("last", FINE)
def test_a_log_in_order_that_ends_otherwise(last: str) -> None:
    told = report(log({"node07": P2P}) + last + "\n")
    assert told.exit_code == 0 and not any(m.fact == "why the job ended" for m in told.missing)


DEEP = "node07:101:201 [0] NCCL INFO transport/net.cc:515 -> 2\nnode07:101:201 [0] NCCL INFO misc/socket.cc:484 -> 2\nnode07:101:201 [0] NCCL INFO transport.cc:165 -> 2\n"


def test_results_from_deep_within_a_call_alone_are_no_pass() -> None:
    told = report(DEEP)
    (missing,) = [m for m in told.missing if m.fact == "why NCCL's start failed"]
    assert told.exit_code == 3 and "transport/net.cc:515 -> 2" in missing.reason and "line 1" in missing.reason


@pytest.mark.parametrize(
    "text",
    [
        DEEP.replace("-> 2", "-> 7"),
        DEEP + "node07:101:201 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n",
        DEEP + "node07:101:201 [0] NCCL INFO Using network Socket\n" + log({"node07": P2P}),
    ],
    ids=["in progress", "it says more of itself", "a communicator came about"],
)
def test_results_that_nccl_went_on_without_are_no_end(text: str) -> None:
    assert not any(m.fact == "why NCCL's start failed" for m in report(text).missing)


USAGE = "[rank1]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9\n"


def test_a_call_that_nccl_refused_names_no_cause_by_itself() -> None:
    told = report(USAGE + "[rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n")
    (missing,) = [m for m in told.missing if m.fact == "why NCCL failed"]
    assert told.exit_code == 3 and not told.diagnoses and "two ranks share a GPU" in missing.reason


def test_a_call_that_nccl_refused_beside_a_mere_warning_is_no_pass() -> None:
    warned = "node07:101:201 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /x.xml\nnode07:101:201 [0] graph/xml.cc:9 NCCL WARN Could not open XML topology file /x.xml : No such file or directory\n"
    assert report(warned + USAGE).exit_code == 3


def test_where_nccls_own_words_are_there_they_name_it() -> None:
    told = report(USAGE + "[rank1]: Last error:\n[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60\n")
    assert told.exit_code == 1 and told.diagnoses[0].finding.slug == "duplicate-gpu"
    assert not any(m.fact == "why NCCL failed" for m in told.missing)


GROUP = "[PG ID 0 PG GUID 0(default_pg) Rank 3]"
GLOG = "[rank3]:[{level}1129 18:35:17.747801234 {file}:1557] "
ECHOES = [
    GLOG.format(level="W", file="TCPStore.cpp") + "[c10d] sendBytes failed on SocketImpl(fd=76, addr=[node3]:41652, remote=[node0]:29500): Broken pipe\n"
    + GLOG.format(level="W", file="ProcessGroupNCCL.cpp") + GROUP + ' Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe\n',
    GLOG.format(level="E", file="ProcessGroupNCCL.cpp") + GROUP + " Something new went wrong here.\n",
]  # fmt: skip
QUIET = GLOG.format(level="I", file="ProcessGroupNCCL.cpp") + GROUP + " ProcessGroupNCCL initialization options: size: 4, global rank: 3\n"


@pytest.mark.parametrize(("text", "words"), [(ECHOES[0], "mostly the process of rank 0, ended first"), (ECHOES[1], "complains of something that is not known here")])
def test_an_echo_alone_is_no_pass_and_blames_nobody(text: str, words: str) -> None:
    told = report(QUIET + text)
    (missing,) = [m for m in told.missing if m.fact == "why PyTorch's process group complains"]
    assert told.exit_code == 3 and not told.diagnoses and words in missing.reason and ", line 2)" in missing.reason


@pytest.mark.parametrize("text", [QUIET, log({"node07": P2P}) + ECHOES[0]], ids=["nothing said", "as a job in order ends"])
def test_a_process_group_that_does_not_complain(text: str) -> None:
    told = report(text)
    assert told.exit_code == 0 and not any(m.fact == "why PyTorch's process group complains" for m in told.missing)


def test_a_watchdog_that_hangs_is_said_by_its_last_word_too() -> None:
    line = GLOG.format(level="F", file="ProcessGroupNCCL.cpp") + f"{GROUP} {GROUP} Terminating the process after attempting to dump debug info, due to {{}}.\n"
    (told,) = report(line.format("ProcessGroupNCCL watchdog hang")).diagnoses
    assert (told.finding.slug, told.finding.subject) == ("collective-timeout", "rank:3") and "made no progress" in told.finding.message
    (told,) = report(line.format("collective timeout or exception")).diagnoses
    assert (told.finding.slug, told.finding.subject) == ("collective-timeout", "host") and "Rank 3 waited" in told.finding.message


@pytest.mark.parametrize(("code", "status"), [(-9, 1), (1, 3), (0, 3)])
def test_what_lightning_saw_end(code: int, status: int) -> None:
    told = report(f"[rank: 1] Child process with PID 3593 terminated with code {code}. Forcefully terminating all other processes to avoid zombies\n")
    assert told.exit_code == status
    assert [(d.finding.slug, d.finding.subject) for d in told.diagnoses] == ([("peer-died", "rank:1")] if code == -9 else [])
    assert any("rank 1 ended with exit status 1" in m.reason for m in told.missing) == (code == 1)
