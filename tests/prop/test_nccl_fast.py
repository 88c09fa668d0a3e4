"""The fast way through a text, chunk by chunk, says what the slow one says, line by line: the same facts, the same places."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.parsers.nccl_log import parse
from gpudoctor.read import nccl_cut, shapes
from gpudoctor.read.recognise import Recogniser
from gpudoctor.read.section import Section
from gpudoctor.read.text import lines_of
from tests.nccl_logs import job, training
from tests.support import FIXTURES

CHOSEN = [(8, "RING proto LL"), (1 << 20, "RING proto LL128"), (3 << 20, "NVLS_TREE proto SIMPLE"), (64, "TREE proto LL")]
CUDA = "node07:101:201 [1] misc/cudawrap.cc:36 NCCL WARN Cuda failure 'out of memory'"
# Synthetic: the shapes of real lines, mixed as no machine would.
OF_NCCL = [
    *job(3, channels=3),
    *job(3, channels=2, comm=2),
    *(line.replace("node000:2000", "node000:3000").replace("P2P/CUMEM", "SHM/direct/direct") for line in job(2, channels=2)),
    *(line.replace(":20001:", ":20001:9") for line in job(2, channels=2) if "Channel" in line),
    *(line.split("] ", 1)[1] for line in job(2, channels=2)),
    *("[" + line.split(" [", 1)[1] for line in job(2, channels=2)),
    *(line for name in ("h200x2-2.28.9-small-shm", "h200x2-2.18.3-socket") for line in (FIXTURES / "outputs" / "nccl-log" / f"{name}.txt").read_text().splitlines()),
    "h:1:2 [0] NCCL INFO Channel 00/24 :    0   1",
    "h:1:2 [0] NCCL INFO Channel 01/24 :    0   1",
    "h:1:2 [0] NCCL INFO comm 0x7f rank 1 nranks 2 cudaDev 1 busId 24000 - Init COMPLETE",
    "h:1:2 [0] NCCL INFO Channel 100/0 : 1[1] -> 0[0] via P2P/IPC/read",
    "h:1:2 [0] init.cc:904 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1d000",
    "h:1:2 [0] misc/socket.cc:1 NCCL WARN socketProgress: Connection closed by remote peer h<1>",
    "vm:704:704 [0] init.cc:1294 (f) NCCL WARN Multiple Ranks are using the same GPU/Partitiovm:705:705 [0] NCCL INFO group.cc:147 -> 5",
    "NCCL version 2.28.9+cuda13.0",
    "RuntimeError: NCCL error in: /x.cpp:1, unhandled cuda error, NCCL version 2.29.3",
    "h:1:2 [0] NCCL INFO AllReduce: opCount 28c sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x5 [nranks=2] stream 0x9",
    "h:7:7 [0] NCCL INFO Broadcast: opCount 2 sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x5 [nranks=2] stream 0x9",
    "node000\u200b:20002:20009 [2] NCCL INFO Using\0 net\u00adwork\u2003IB",  # as pages and rewound files hold it
    "the mark twice: NCCL INFO NCCL INFO Using network IB",
    "vm:2:2 [1] NCCL 683INFO NCCL version 2.28.9+cuda13.0",  # without its digits it would be NCCL's own
    "vm:2:2 [1] NCCL 7WARN NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.",
    "NCCL INFO",
    *(f"h:1:2 [0] NCCL INFO {name}: {size} Bytes -> Algo {kind} channel{{Lo..Hi}}={{0..{size % 24}}}" for name in ("AllReduce", "AllGather", "Reduce") for size, kind in CHOSEN),
    *(f"h:1:2 [0] NCCL INFO AllReduce: {size} Bytes -> Algo 1 proto {size % 4} time {size}.5" for size, _ in CHOSEN),
    *(f"h:3:4 [0] NCCL INFO {size} Bytes -> Algo {size % 9} proto 0 time 1.0" for size, _ in CHOSEN),
    "h:1:2 [0] NCCL INFO AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1",
    "h:1:2 [0] NCCL INFO AllReduce: opCount 12 sendbuff 0x7f recvbuff 0x7f count 32 datatype 7 op 0 root 0 comm 0x7f [nranks=2] stream 0x55",
    "h:9:9 [0] NCCL INFO AllReduce: opCount 12 sendbuff 0x7f recvbuff 0x7f count 32 datatype 7 op 0 root 0 comm 0x7f [nranks=2] stream 0x55",
    "h:1:2 [0] NCCL INFO   Algorithm   |                            Tree                  |",
    "h:1:2 [0] NCCL INFO ReduceScatter |     8.0/  61.1 |    16.5/ 180.6 |    16.4/ 232.2 |",
    # Several writers in one line.
    *(f"h:1:2 [0] NCCL INFO {cut}{CUDA}" for cut in ("Connected all rin", "Channel 07/0 : 0[0] -> 1[1] via P2P/", "Channel 01/24", "AllReduce: opCount 12 send", "comm 0x7f ra", "AllReduce: 64 Bytes -> Al")),
    "host:1:2 [0] NCCL INFO Channel 23/0  Could not find: libnc:768:768 [0] NCCL INFO Channel 00/24 :  0 1",
]
OF_OTHERS = [
    *training(["step done"], every=4),
    "root@node07:~# nvidia-smi topo -m",
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity",
    "GPU0\t X \tNV18\t0-47\t0",
    "GPU1\tNV18\t X \t0-47\t0",
    "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.",
    "[rank0]:[E1129 18:35:20 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.",
    "exitcode  : -9 (pid: 77)",
    *(f"[GPU0] Epoch {n} | Batchsize: 32 | Steps: 32" for n in (1, 2, 33, 4, 5)),
    *(f"Rank {n} is done, GPU {n} is idle" for n in (1, 2, 33, 4, 5)),
    "\x1b[01;31m\x1b[KGPU\x1b[m\x1b[K0\t X \tNV18\t0-47\t0",  # as grep paints it
    "NV\x1b[1mRM\x1b(B\x1b[m: Xid (PCI:0000:41:00): 48, pid=1, name=x",
    "a line of text that nobody knows, longer than any that a terminal broke in two",
    "",
]
PREFIXES = ["", "[rank0]:", "[1,0]<stdout>:", "0: ", "node07: ", "(Worker pid=4242) ", "2026-03-01T12:00:00.123Z stdout F ", "trainer-0 | ", "\x1b[36m"]

lines = st.lists(
    st.tuples(st.sampled_from(PREFIXES), st.one_of(st.sampled_from(OF_NCCL), st.sampled_from(OF_NCCL[:80]), st.sampled_from(OF_OTHERS))), max_size=60
)
blocks = st.lists(st.tuples(st.integers(0, len(OF_NCCL) - 1), st.integers(1, 40), st.sampled_from(PREFIXES)), max_size=4)


def cut(text: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(text), size):
        yield text[at : at + size]


def said(reader: Recogniser, found: list[Section]) -> list[str]:
    out = []
    for section in [*found, *reader.end()]:
        if section.kind == "nccl-log":
            out += [repr(fact) for fact in parse(section)]
        else:
            out.append(repr((section.kind, section.lines, section.command, section.host)))
    return out


def fast(chunks: Iterator[bytes]) -> list[str]:
    reader = Recogniser("log.txt")
    return said(reader, [section for line in lines_of(chunks, reader) for section in reader.feed(line)])


def slow(text: bytes) -> list[str]:
    """Every line is looked at, whatever stands in it."""
    reader = Recogniser("log.txt")
    return said(reader, [section for line in lines_of([text]) for section in reader.feed(line)])


@settings(max_examples=150, deadline=None)
@given(blocks, lines, st.sampled_from(["\n", "\r\n"]), st.integers(1, 6000), st.sampled_from([0, 0, 0, 3000, shapes.FIRST]))
def test_fast_as_slow(runs: list[tuple[int, int, str]], mixed: list[tuple[str, str]], end: str, size: int, first: int) -> None:
    text = "".join(f"{prefix}{line}{end}" for at, length, prefix in runs for line in OF_NCCL[at : at + length])
    text += "".join(f"{prefix}{line}{end}" for prefix, line in mixed)
    raw = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "FIRST", first)
        wanted = slow(raw)
        assert fast(cut(raw, size)) == wanted
        patch.setattr(nccl_cut, "walk", None)
        assert fast(cut(raw, size)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "h:0:7 [9] NCCL INFO Channel 08/16 :    7   5\nh:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC/read\n\tNumber of ports: 1\n",
        "root@node07:~# nvidia-smi\n$ nvidia-smi topo -m\n\tGPU0\tGPU1\tCPU Affinity",
        "[rank3]:what stood before it\nexitcode  : -9 (pid: 77)",
    ],
    ids=["ring-before-a-broken-line", "command-above-a-last-line", "neighbour-of-a-last-line"],
)
@pytest.mark.parametrize("walk", [nccl_cut.walk, None], ids=["as-installed", "python"])
def test_fast_as_slow_in_special_cases(text: str, walk: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_cut, "walk", walk)
    assert fast(iter([("of nobody\n" * 12 + text).encode()])) == slow(("of nobody\n" * 12 + text).encode())


@pytest.mark.parametrize("walk", [nccl_cut.walk, None], ids=["as-installed", "python"])
def test_fast_as_slow_cut_at_every_place(walk: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chunks, wherever the border is."""
    monkeypatch.setattr(nccl_cut, "walk", walk)
    raw = "\n".join([*OF_NCCL[:24], *OF_OTHERS, *OF_NCCL[-14:], ""]).encode()
    wanted = slow(raw)
    monkeypatch.setattr(shapes, "FIRST", 0)
    for at in range(0, len(raw), 29):
        assert fast(iter([raw[:at], raw[at:]])) == wanted, at
