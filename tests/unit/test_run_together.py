"""Lines into which two writers ran: NCCL's warning is not lost, whatever stands before it. Synthetic."""

from __future__ import annotations

import pytest

from gpudoctor.parsers.nccl_log import parse
from gpudoctor.read.nccl_cut import Cutter
from gpudoctor.read.recognise import Recogniser
from gpudoctor.read.text import lines_of
from tests import support
from tests.prop.test_lines import in_python
from tests.unit.test_homes import P2P, found, log, report
from tests.unit.test_nccl_log import read

ERROR = "node07:101:201 [1] misc/cudawrap.cc:36 NCCL WARN Cuda failure 'out of memory'"


@pytest.mark.parametrize(
    "before",
    [
        "[E1129 18:35:21.747801 ProcessGroupNCCL.cpp:825] Some NCCL operations have failed or timed out. Du",
        "[rank1]:[E1129 18:35:21.747801 ProcessGroupNCCL.cpp:825] [Rank 1] NCCL watchdog thread termin",
        "node07:102:202 [2] NCCL CALL ncclGroupEnd()",
        "node07:102:202 [2] NCCL INFO ncclCommInitRank comm 0x5501 ",
        "node07:102:202 [2] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via P2P/",
        "node07:102:202 [2] misc/param.cc:9 NCCL WARN Something of no",
    ],
)
def test_a_warning_behind_anothers_words_is_heard(before: str) -> None:
    told = report(log({"node07": P2P}) + before + ERROR + "\n")
    (failed,) = found(told, "cuda-error").values()
    assert failed.subject == "rank:1" and "misc/cudawrap.cc" in failed.message and told.exit_code == 1


def test_the_nearest_file_is_that_of_the_words() -> None:
    line = "node07:101:201 [1] node07:102:202 [2] misc/shmutils.cc:1 NCCL WARN misc/cudawrap.cc:36 NCCL WARN Cuda failure 'out of memory'\n"
    told = report(log({"node07": P2P}) + line)
    assert [f.subject for f in found(told, "cuda-error").values()] == ["rank:2"] and not found(told, "shm")


def test_others_words_of_nccl_are_no_warning() -> None:
    talk = "[I1129 18:35:21.747801 ProcessGroupNCCL.cpp:825] Some NCCL operations have NCCL in their names\nnode07:102:202 [2] NCCL CALL ncclGroupEnd()\n"
    told = report(log({"node07": P2P}) + talk)
    assert told.exit_code == 0 and not any(r.findings for r in told.results if r.slug == "cuda-error")


TORCH_ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, "
    "unhandled system error (run with NCCL_DEBUG=WARN for details), "
)
LAUNCHER = "(RayTrainWorker pid=4711, ip=10.0.0.17) [2026-03-01 12:00:00.123456789+00:00] [trainer-worker-0 of trainer] [stdout] " + "- " * 20
OWN = "vm:3796:3796 [1] NCCL INFO "


SILENT = ["Connected all rin", "Trees [0] -1/-1", "AllReduce: opCount 12 sendb", "P2P Chunk", "Channel 07/24 ", "Channel 07/0 : 2[2] -> 3[3] via P2P/CUMEM"]


@pytest.mark.parametrize("cut", SILENT)
@pytest.mark.parametrize("others", [0, 400])
@pytest.mark.parametrize("ended", [True, False])
def test_a_warning_behind_a_line_that_is_passed_over(cut: str, others: int, ended: bool) -> None:
    """Among few of NCCL's lines and among many, and as the last line of all, which comes by itself."""
    head = "node07:102:202 [2] NCCL INFO "
    text = log({"node07": P2P}) + f"{head}Channel 00/24 :  0 1\n{head}Channel 07/0 : 2[2] -> 3[3] via P2P/CUMEM\n" + "a line of others\n" * others
    told = report(f"{text}{head}{cut}{ERROR}" + ("\n" if ended else ""))
    (failed,) = found(told, "cuda-error").values()
    assert failed.subject == "rank:1" and told.exit_code == 1
    assert not found(report(f"{text}{head}{cut}\n"), "cuda-error")


@pytest.mark.parametrize("tail", ["Channel 10/0 : 1[1] -> 0[0] via P2P/CUMEM", "Connected all rings"])
@pytest.mark.parametrize("others", [0, 40, 400])
@pytest.mark.parametrize("before, status", [(TORCH_ERROR, 1), (LAUNCHER, 0), ("", 0)])
def test_an_error_into_whose_line_an_info_of_nccl_ran(tail: str, others: int, before: str, status: int) -> None:
    """Among few of NCCL's lines and among many, which are cut in two ways."""
    text = f"{OWN}NCCL version 2.28.9+cuda13.0\n" + f"{OWN}Channel 11/0 : 1[1] -> 0[0] via P2P/CUMEM\n" * others
    done, got = support.report("check", "--from", "-", stdin=f"{text}{before}{OWN}{tail}\nstep 1\n".encode())
    assert done == status, got["diagnoses"]
    if status:
        assert got["diagnoses"][0]["evidence"][0]["where"] == f"line {others + 2}"


PIECED = [
    "step 1\n" * 90 + "vm:768:768 [0] NCCL INFO Channel 05/24 : 0 1\nvm:768:768 [0] NCCL INFO Channel 22/0 : 0[0] -> 1[1] via P2P/CUMEM\nvm:76] 0/-1\n"
    "vm:768:768 [0] NCCL INFO Channel 23/0  Could not find: libnc:768:768 [0] NCCL INFO Channel 00/24 : 0 1\n",
    "step 1\n" * 90 + "vm:566:566 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n"
    "vm:566:566 [0] NCCL INFO Channel 01/0 : 1[1] -> 0[0] [receive] via NET/Soc\nket/1\n" + "step 1\n" * 9,
]


@pytest.mark.parametrize("text", PIECED)
def test_in_pieces_it_reads_the_same(text: str) -> None:
    """A line of two writers, and one that a terminal broke within its transport."""
    raw = text.encode()

    def read(*pieces: bytes) -> list[str]:
        reader = Recogniser("log.txt")
        sections = [s for line in lines_of(pieces, reader) for s in reader.feed(line)]
        return [repr(f) for s in [*sections, *reader.end()] if s.kind == "nccl-log" for f in parse(s)]

    whole = read(raw)
    assert len(whole) == 1 and "channels=24," not in whole[0]
    assert "NET/Socket/1" in whole[0] or text == PIECED[0]
    for size in range(20, 700, 3):
        assert read(*(raw[at : at + size] for at in range(0, len(raw), size))) == whole, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A whole transport, and another writer's short line below it.
        ("via P2P/CUMEM\nfiller\n", "P2P/CUMEM"),
        ("via NET/IB/0/GDRDMA\nwarmup\n", "NET/IB/0/GDRDMA"),
        # Broken by a terminal.
        ("via SHM\n/direct/direct\nstep done\n", "SHM/direct/direct"),
        ("via NET/Sock\net/0\nstep done\n", "NET/Socket/0"),
        ("via P2P/CUMEM\n/read\nstep done\n", "P2P/CUMEM/read"),
    ],
)
def test_a_short_line_below_a_transport(text: str, expected: str) -> None:
    (comm,) = read(f"h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] {text}").comms
    assert [t.via for t in comm.transports] == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "h:1:2 [0] NCCL INFO Using network IB\rEpoch 1:  3%|#  | 1/30\n",
        "\rEpoch 1:  3%|#  | 1/30\rh:1:2 [0] NCCL INFO Using network IB\r\n",
        "h:1:2 [0] NCCL INFO Using network IB\r\n",
    ],
)
def test_a_progress_bar_before_or_behind(text: str) -> None:
    (proc,) = read(text).procs
    assert (proc.host, proc.pid, proc.network) == ("h", 1, "IB")


def test_messages_parted_by_carriage_returns_are_all_read() -> None:
    text = "h:1:2 [0] NCCL INFO Using network IB\r 45%|####      |\rh:3:4 [1] NCCL INFO Using network Socket\n"
    assert [(proc.pid, proc.network) for proc in read(text).procs] == [(1, "IB"), (3, "Socket")]


def test_a_control_character_within_a_name_makes_no_host_of_a_number() -> None:
    (proc,) = read("node000\x08:20002:20009 [0] NCCL INFO Using network IB\n").procs
    assert (proc.host, proc.pid) == (None, 20002)


def test_a_paste_that_lost_its_line_ends_is_read_line_by_line() -> None:
    own = "node07:101:201 [1] NCCL INFO "
    lines = [
        "node07:101:201 [1] misc/cudawrap.cc:179 NCCL WARN Failed to find CUDA library libcuda.so (NCCL_CUDA_PATH='') : cannot open shared object file",
        "NCCL version 2.18.1+cuda12.1",
        own + "Failed to open libibverbs.so[.1]",
        own + "comm 0x55 rank 1 nranks 4 cudaDev 1 busId 2000 commId 0x7 - Init START",
        own + "Channel 00/0 : 1[1000] -> 2[2000] via P2P/IPC",
        own + "2 coll channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
    ]
    whole = read("\n".join(lines) + "\n")
    for joint in (" ", "   ", "\\n", "\\r\\n", "\\r\\n\\n"):
        joined = read(joint.join(lines) + "\n")
        (comm,) = joined
        assert (comm.version, comm.nranks, comm.channels, [t.via for t in comm.transports]) == ("2.18.1", 4, 2, ["P2P/IPC"])
        assert [m.text for m in joined.messages] == [m.text for m in whole.messages]


@pytest.mark.parametrize("filling", [" ", "\\n"])
def test_a_line_of_which_most_is_blank_is_soon_passed(filling: str) -> None:
    """Tried from each blank anew it would take minutes."""
    own = "node07:101:201 [1] NCCL INFO "
    (comm,) = read(own + "Using network IB\n" + own + "NCCL A NCCL B NCCL C NCCL D" + filling * 60_000 + "x\n")
    assert comm.procs[0].network == "IB"


def test_writers_that_broke_one_another_are_no_such_paste() -> None:
    """Of their lines only the last is known to be whole."""
    torn = "".join(f"node07:10{r}:20{r} [{r}] NCCL INFO Channel 00/0 : {r}[{r}] -> {r + 1}[{r + 1}] via P2P/IPC" for r in range(6))
    assert [(t.a, t.b, t.via) for c in read(torn + "/read\n") for t in c.transports] == [(5, 6, "P2P/IPC/read")]


def test_an_error_below_one_that_begins_as_it_does() -> None:
    """NCCL ran into the second one, of which the first may hold every word."""
    place = "Failed, NCCL error /home/build/" + "x" * 90 + "/plugin.c"
    for text in (f"{place}pp:183 'unknown result code'\n{place}NCCL INFO Trees\n", "Failed, NCCL error /home/x.cpp:12 h:1:2 [0] NCCL INFO Trees [0]\n"):
        reader = Recogniser("log.txt")
        sections = [s for line in lines_of([text.encode()], reader) for s in reader.feed(line)]
        kept = [line.number for s in [*sections, *reader.end()] if s.kind == "nccl-text" for line in s.lines]
        assert kept == list(range(1, text.count("\n") + 1))


def test_a_ring_is_not_lost_where_the_lines_below_it_are_joined() -> None:
    text = "h:1:2 [0] NCCL INFO Ring 00 : 0 -> 1 -> 2\nit went via the door\nstep\n"
    cutter = Cutter()
    assert [cut[1] for cut in cutter.cut(text.encode()).cuts] == [b"Ring 00 : 0 -> 1 -> 2\n"]
    assert [cut[1] for cut in in_python(Cutter(), text.encode()).cuts] == [b"Ring 00 : 0 -> 1 -> 2\n"]
