"""NCCL's log: who said what of which communicator, whatever stands before the lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.ingest import take
from gpudoctor.read.source import Document
from tests.nccl_logs import job, training
from tests.support import FIXTURES, gpudoctor

LOGS = FIXTURES / "outputs" / "nccl-log"


def read(*texts: str | bytes, chunk: int = 1 << 20) -> Nccl:
    """The one Nccl fact of one or several files."""

    def document(number: int, raw: bytes) -> Document:
        return Document(name=f"log{number}.txt", chunks=lambda: iter([raw[i : i + chunk] for i in range(0, len(raw), chunk)]))

    raws = [t if isinstance(t, bytes) else t.encode() for t in texts]
    intake = take((), [document(n, r) for n, r in enumerate(raws)])
    found = [s.get(Nccl) for s in intake.stores]
    assert len(found) == 1 and found[0] is not None, intake.missing
    return found[0]


def one(*texts: str | bytes, chunk: int = 1 << 20) -> NcclComm:
    comms = read(*texts, chunk=chunk).comms
    assert len(comms) == 1, comms
    return comms[0]


def via(comm: NcclComm) -> set[tuple[int, int, str]]:
    return {(t.a, t.b, t.via) for t in comm.transports}


@pytest.mark.parametrize(
    ("name", "version", "nnodes", "channels", "transports", "failure"),
    [
        ("h200x2-2.28.9-p2p", "2.28.9", 1, 24, {(0, 1, "P2P/CUMEM")}, None),
        ("h200x2-2.28.9-graph", "2.28.9", 1, 24, {(0, 1, "P2P/CUMEM")}, None),
        ("h200x2-2.28.9-p2p-disabled", "2.28.9", 1, 4, {(0, 1, "SHM/direct/direct")}, None),
        ("h200x2-2.28.9-duplicate-gpu", "2.28.9", None, None, set(), "duplicate-gpu"),
        ("h200x2-2.32.3-duplicate-gpu", "2.32.3", None, None, set(), "duplicate-gpu"),
        ("h200x2-2.28.9-small-shm", "2.28.9", 1, 4, set(), "shm"),
        ("h200x2-2.28.9-split-host", "2.28.9", 2, 2, {(0, 1, "NET/Socket/0")}, None),
        ("h200x2-2.28.9-killed-peer", "2.28.9", 2, 2, {(0, 1, "NET/Socket/0")}, "peer-died"),
        ("h200x2-2.18.3-socket", "2.18.3", None, 2, {(0, 1, "NET/Socket/0")}, None),
        ("h200x2-2.32.3-diagnostics", "2.32.3", 1, 24, {(0, 1, "P2P/CUMEM")}, None),
    ],
)
def test_recorded_logs(name: str, version: str, nnodes: int | None, channels: int | None, transports: set[object], failure: str | None) -> None:
    comm = one((LOGS / f"{name}.txt").read_bytes())
    assert (comm.version, comm.nranks, comm.nnodes, comm.channels) == (version, 2, nnodes, channels)
    assert via(comm) == transports
    assert comm.failure == failure


def test_the_graph_and_the_diagnostics() -> None:
    comm = one((LOGS / "h200x2-2.28.9-graph.txt").read_bytes())
    ring = next(g for g in comm.ranks[0].graphs if g.pattern == 4)
    assert (ring.channels, ring.bw_intra, ring.type_intra) == (12, 30.0, "NVL")
    assert comm.procs[0].nvlink_gbs == 370.8 and comm.procs[0].fabric_state == 3
    assert {(p.a, p.b, p.type) for p in comm.procs[0].paths} == {("60", "70", "NVL")}
    assert comm.ranks[0].init_seconds is not None and dict(comm.ranks[0].init_parts)["kernels"] > 0
    said = read((LOGS / "h200x2-2.32.3-diagnostics.txt").read_bytes()).diagnostics
    assert [d.status for d in said].count("OK") == len(said) == 2


PREFIXES = [
    "",
    "  ",
    "> ",
    "[rank0]:",
    "[1,0]<stdout>:",
    "[1,0]<stderr>: ",
    "0: ",
    "  0: ",
    "node07: ",
    "(Worker pid=4242) ",
    "(RayWorkerWrapper pid=4242, ip=10.0.0.1) ",
    "[default0]:",
    "2026-03-01T12:00:00.123456789Z ",
    "2026-03-01T12:00:00.123Z stdout F ",
    "[2026-03-01 12:00:00] ",
    "[2026-03-01 12:00:00.123456] ",
    "\x1b[32m",
    "trainer-0 | ",
    "Mar  1 12:00:00 host python[42]: ",
]


@pytest.mark.parametrize("before", PREFIXES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_launchers_put_before_a_line(before: str, end: str) -> None:
    lines = list(job(2))
    comm = one(end.join(f"{before}{line}" for line in lines) + end)
    assert (comm.nranks, comm.nnodes, comm.version, comm.channels) == (2, 1, "2.28.9", 16)
    assert [r.rank for r in comm.ranks] == [0, 1] and all(r.completed for r in comm.ranks)
    assert {p.host for p in comm.procs} == {"node000"} and {p.pid for p in comm.procs} == {20000, 20001}
    assert via(comm) == {(0, 1, "P2P/CUMEM")}
    assert comm.env["NCCL_IB_TIMEOUT"] == "22"


def test_lines_without_host_or_without_any_prefix() -> None:
    bare = "\n".join(line.split("] ", 1)[1] for line in job(2) if line.startswith("node000:20000:")) + "\n"
    comm = one(bare)
    assert comm.nranks == 2 and [r.rank for r in comm.ranks] == [0] and via(comm) == {(0, 1, "P2P/CUMEM")}
    only_dev = "\n".join("[" + line.split(" [", 1)[1] for line in job(2)) + "\n"
    comm = one(only_dev)
    assert comm.nranks == 2 and [r.rank for r in comm.ranks] == [0, 1] and via(comm) == {(0, 1, "P2P/CUMEM")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ring 00 : 3[3] -> 2[2] via P2P/IPC", {(2, 3, "P2P/IPC")}),  # 2.4
        ("Channel 00 : 0[1000] -> 1[24000] via P2P/IPC", {(0, 1, "P2P/IPC")}),  # 2.5 to 2.11
        ("Channel 00 : 0[1000] -> 1[24000] via direct shared memory", {(0, 1, "SHM")}),
        ("Channel 00/0 : 1[4000] -> 0[1000] via P2P/IPC/read", {(0, 1, "P2P/IPC/read")}),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", {(0, 1, "SHM/direct/direct")}),
        ("Channel 03/1 : 0[0] -> 1[1] via SHM/CE/direct", {(0, 1, "SHM/CE/direct")}),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct", {(0, 1, "SHM/direct")}),
        ("Channel 100/0 : 0[0] -> 1[1] via P2P/CUMEM/CE", {(0, 1, "P2P/CUMEM/CE")}),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA", {(7, 8, "NET/IB/0/GDRDMA")}),
        ("Channel 00/0 : 8[0] -> 7[7] [receive] via NET/IB/0(5)/GDRDMA/Shared", {(7, 8, "NET/IB/0/GDRDMA/Shared")}),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/1/GDRDMA", {(0, 8, "NET/AWS Libfabric/1/GDRDMA")}),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer", {(0, 1, "P2P/direct pointer")}),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read", {(0, 1, "P2P/direct pointer/read")}),
        ("Channel 00/0 : 0[0] -> 5[5] via P2P/indirect/4[4]", {(0, 5, "P2P/indirect/4[4]")}),
        ("Channel 00/0 : 0[0] -> 8[0] via P2P/MNNVL", {(0, 8, "P2P/MNNVL")}),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA(PCI)", {(0, 8, "NET/IB/2/GDRDMA(PCI)")}),
        ("Channel 00/24 :  0  1", set()),
        ("Ring 00 : 1 -> 0 -> 1", set()),
        ("Channel 00/0 : 0[0] -> 1[1] via signal SIGTERM", set()),
    ],
)
def test_transports_of_every_version(text: str, expected: set[tuple[int, int, str]]) -> None:
    found = read(f"h:1:2 [0] NCCL INFO {text}\n")
    assert via(found.comms[0]) == expected


@pytest.mark.parametrize(
    ("line", "nranks", "bus"),
    [
        ("comm 0x7f rank 3 nranks 8 cudaDev 3 nvmlDev 3 - Init COMPLETE", 8, None),  # 2.4
        ("comm 0x7fdd80001060 rank 3 nranks 8 cudaDev 3 busId 300000 - Init COMPLETE", 8, "300000"),
        ("comm 0x7fdd80001060 rank 3 nranks 8 cudaDev 3 busId 1d000 commId 0x1234 - Init COMPLETE", 8, "1d000"),
        ("comm 0x55 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1d000 commId 0x1234 - Init COMPLETE", 8, "1d000"),
        ("ncclCommInitRank comm 0x55 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1d000 commId 0x1234 - Init COMPLETE", 8, "1d000"),
        ("[Rank 3] ncclCommInitRankConfig comm 0x55 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1d000 commId 0x1234 - Init COMPLETE", 8, "1d000"),
        ("ncclCommSplit comm 0x55 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1d000 parent 0x44 splitCount 1 color 0 key 3- Init START", 8, "1d000"),
    ],
)
def test_communicator_lines_of_every_version(line: str, nranks: int, bus: str | None) -> None:
    comm = one(f"h:1:2 [3] NCCL INFO {line}\n")
    rank = comm.ranks[0]
    assert (comm.nranks, rank.rank, rank.cuda_dev, rank.bus_id) == (nranks, 3, 3, bus)
    assert rank.completed == ("COMPLETE" in line) and rank.started == ("START" in line)


def test_two_jobs_with_the_same_ranks_stay_apart() -> None:
    first, second = list(job(4, comm=1)), [line.replace(":2000", ":3000").replace("via P2P/CUMEM", "via SHM/direct/direct") for line in job(4, comm=2)]
    for text in ("\n".join(first + second), "\n".join(x for pair in zip(first, second, strict=True) for x in pair)):
        a, b = read(text + "\n").comms
        assert {k for _, _, k in via(a)} == {"P2P/CUMEM"} and {k for _, _, k in via(b)} == {"SHM/direct/direct"}
        assert [r.rank for r in a.ranks] == [r.rank for r in b.ranks] == [0, 1, 2, 3]


def test_two_jobs_of_an_old_version_without_a_common_name() -> None:
    def old(pid: int, kind: str) -> list[str]:
        out = []
        for rank in (0, 1):
            head = f"h:{pid + rank}:{pid + rank + 9} [{rank}] NCCL INFO "
            out += [f"{head}Channel {c:02d} : {rank}[{rank + 1}000] -> {1 - rank}[{2 - rank}000] via {kind}" for c in range(4)]
            out += [f"{head}comm 0x7f{pid}{rank} rank {rank} nranks 2 cudaDev {rank} busId {rank + 1}000 - Init COMPLETE"]
        return out

    a, b = read("\n".join(old(100, "P2P/IPC") + old(200, "direct shared memory")) + "\n").comms
    assert via(a) == {(0, 1, "P2P/IPC")} and via(b) == {(0, 1, "SHM")}


def test_one_process_with_two_communicators_in_one_chunk() -> None:
    """Equal lines before and after the second start speak of different communicators."""
    lines = []
    for comm, kind in ((1, "P2P/CUMEM"), (2, "SHM/direct/direct"), (3, "P2P/CUMEM")):
        lines += [line.replace("via P2P/CUMEM", f"via {kind}") for line in job(4, channels=600, comm=comm)]
    for chunk in (1 << 20, 1 << 16, 4096):
        comms = read("\n".join(lines) + "\n", chunk=chunk).comms
        assert [sorted({k for _, _, k in via(c)}) for c in comms] == [["P2P/CUMEM"], ["SHM/direct/direct"], ["P2P/CUMEM"]]
        assert all(len(c.transports) == 4 for c in comms)


def test_one_file_a_rank_is_one_communicator() -> None:
    texts: dict[str, list[str]] = {}
    for line in job(16):
        texts.setdefault(line.split(" ")[0], []).append(line)
    comm = one(*("\n".join(lines) + "\n" for lines in texts.values()))
    assert comm.nranks == 16 and [r.rank for r in comm.ranks] == list(range(16)) and len(comm.transports) > 16


def test_evidence_points_to_the_line_however_the_lines_were_read() -> None:
    dense = list(job(2)) * 200
    dense[700] = "node000:20000:20007 [0] NCCL INFO NCCL_ALGO set by environment to Ring"
    sparse = list(training(list(job(2))))
    for lines, wanted in ((dense, "NCCL_ALGO"), (sparse, "NCCL_IB_TIMEOUT")):
        found = read("\n".join(lines) + "\n")
        spot = next(e for (name, _), e in found.settings.items() if name == wanted)
        number = int(spot.where.removeprefix("line "))
        assert wanted in lines[number - 1] and spot.value == lines[number - 1]
        for kind, place in found.seen.items():
            text = lines[int(place.where.removeprefix("line ")) - 1]
            assert place.value == text.strip(), kind


def test_a_hundredth_of_the_lines_and_all_of_them_give_the_same() -> None:
    lines = list(job(32))
    alone, among = read("\n".join(lines) + "\n"), read("\n".join(training(lines, 100)) + "\n")
    assert [via(c) for c in alone.comms] == [via(c) for c in among.comms]
    assert [c.env for c in alone.comms] == [c.env for c in among.comms]


def test_interleaved_writers_do_not_make_up_a_host() -> None:
    text = (
        "vm:705:705 [0] NCCL INFO cudaDriverVersion 13000\n"
        "vm:704:704 [0] init.cc:1294 (f) NCCL WARN Multiple Ranks are using the same GPU/Partitiovm:705:705 [0] NCCL INFO group.cc:147 -> 5\n"
        "n. Set NCCL_MULTI_RANK_GPU_ENABLE=1\n"
        "rank 0 invm:705:705 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n"
    )
    found = read(text)
    assert {p.host for p in found.procs} == {"vm"}
    assert found.comms[0].failure == "duplicate-gpu"


def test_rubbish_around_changes_nothing() -> None:
    good = "\n".join(job(2)) + "\n"
    noise = b"\x00\xff\xfe binary \x80\x81\n" + b"x" * (10 << 20) + b"\n" + b"NCCL\nNCCL \nNCCL INFO\n[0] NCCL INFO \n"
    comm = one(noise + good.encode() + noise)
    assert via(comm) == {(0, 1, "P2P/CUMEM")} and comm.nranks == 2


def test_one_long_line_between_carriage_returns() -> None:
    comm = one("\r".join(job(2)))
    assert comm.nranks == 2 and via(comm) == {(0, 1, "P2P/CUMEM")}


def test_many_pairs_are_summed_up() -> None:
    import gpudoctor.facts.nccl_join as join
    import gpudoctor.parsers.nccl_state as state

    ranks = 60
    head = "".join(f"h:{r + 1}:1 [0] NCCL INFO ncclCommInitRank comm 0x{r + 1:x} rank {r} nranks {ranks} cudaDev 0 nvmlDev {r} busId {r + 1}000 commId 0xab - Init START\n" for r in range(ranks))
    text = head + "".join(
        f"h:{a + 1}:1 [0] NCCL INFO Channel 00/0 : {a}[{a}] -> {b}[{b}] via P2P/CUMEM\n" for a in range(ranks) for b in range(ranks) if a != b
    )
    whole = one(text)
    assert not whole.truncated and len(whole.transports) == ranks * (ranks - 1) // 2
    before = state.MAX_PAIRS, join.MAX_PAIRS
    state.MAX_PAIRS = join.MAX_PAIRS = 100
    try:
        summed = one(text)
    finally:
        state.MAX_PAIRS, join.MAX_PAIRS = before
    assert summed.truncated and summed.transports == () and summed.counts == {"P2P/CUMEM": ranks * (ranks - 1) // 2}


def test_a_compressed_log(tmp_path: object) -> None:
    from pathlib import Path

    from gpudoctor.read.source import open_path

    path = Path(str(tmp_path)) / "nccl.log.gz"
    path.write_bytes(gzip.compress(("\n".join(job(2)) + "\n").encode()))
    intake = take((), open_path(str(path)))
    fact = intake.stores[0].get(Nccl)
    assert fact is not None and via(fact.comms[0]) == {(0, 1, "P2P/CUMEM")}


def test_numbers_beyond_all_reason() -> None:
    """A mangled or hostile line costs itself, never the log."""
    digits = "9" * 6000
    bad = [
        f"h:1:1 [0] NCCL INFO Channel 00/0 : {digits}[0] -> 1[1] via P2P/CUMEM",
        f"h:{digits}:1 [0] NCCL INFO cudaDriverVersion {digits}",
        f"h:1:1 [0] NCCL INFO comm 0x1 rank {digits} nranks {digits} cudaDev {digits} busId 1000 - Init COMPLETE",
        "h:1:1 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 1.2.3/4, type NVL/PIX, sameChannels 1",
        "h:7:7 [0] NCCL INFO comm 0x9 rank 999999999 nranks 1999999999 cudaDev 0 busId 1000 - Init COMPLETE",
        "h:7:7 [0] misc/socket.cc:1 NCCL WARN socketProgress: Connection closed by remote peer h<1>",
        f"h:1:1 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank {digits} and rank 1 both on CUDA device 1000",
    ]
    found = read("\n".join([*bad, *job(2)]) + "\n")
    assert any(via(c) == {(0, 1, "P2P/CUMEM")} and c.nranks == 2 for c in found.comms)


def test_hostile_numbers_end_no_report() -> None:
    from tests.support import gpudoctor

    text = "h:7:7 [0] NCCL INFO comm 0x9 rank 3 nranks 1999999999 cudaDev 0 busId 1000 - Init START\nh:7:7 [0] misc/socket.cc:1 NCCL WARN socketProgress: Connection closed by remote peer h<1>\n"
    done = gpudoctor("check", "--from", "-", stdin=text.encode())
    assert done.returncode in (0, 1, 3) and b"Traceback" not in done.stderr


def test_a_coloured_chunk_with_a_broken_transport_and_a_short_line_elsewhere() -> None:
    """Colours anywhere in a chunk, and lines that look like the rest of a broken one, lose nothing."""
    head = "\x1b[36mnode0:1:2 [0]\x1b[0m NCCL INFO "
    text = (
        f"{head}comm 0x5000 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n"
        f"{head}Channel 00 : 0[0] -> 1[1] via SHM\n/direct/direct\n"
        f"{head}Channel 00 : 0[0] -> 2[2] via P2P/CUMEM\ndone\n"
        f"{head}Channel 00 : 0[0] -> 3[3] via P2P/CUMEM\n42\n"
    )
    for shown in (text, text.replace("\x1b[36m", "").replace("\x1b[0m", "")):
        assert via(one(shown)) >= {(0, 1, "SHM/direct/direct"), (0, 3, "P2P/CUMEM")}


def test_the_last_word_of_a_process_counts_however_often_an_earlier_one_came() -> None:
    head = "node0:1:2 [0] NCCL INFO "
    said = [f"{head}NCCL_IB_TIMEOUT set by environment to {n}." for n in (20, 22, 20)]
    assert read("\n".join([*said, ""])).procs[0].env == {"NCCL_IB_TIMEOUT": "20"}
    assert read("\n".join([*said, f"{head}Using network IB", f"{head}Using network Socket", f"{head}Using network IB", ""])).procs[0].network == "IB"


def test_a_second_communicator_of_a_process_has_its_own_connections() -> None:
    """Equal lines before and after a new communicator speak of different ones, in one chunk or in several, dense or not."""
    def lines(comm: int) -> list[str]:
        return list(job(4, channels=4, comm=comm))

    text = "\n".join([*lines(1), *lines(2), ""])
    for chunk in (1 << 20, 4096):
        comms = read(text, chunk=chunk).comms
        assert len(comms) == 2
        assert via(comms[0]) == via(comms[1]) and len(via(comms[0])) == 4
    noise = "".join(f"step {n} loss {n / 7:.3f}\n{line}\n" for n, line in enumerate(text.splitlines()))
    assert [via(c) for c in read(noise).comms] == [via(c) for c in read(text).comms]


def test_a_known_transport_is_taken_only_where_it_stands_whole_behind_its_pair() -> None:
    head = "node0:1:2 [0] NCCL INFO Channel 00/0 : "
    text = (
        f"{head}0[0] -> 1[1] via somewhere 0[0] -> 2[2] via P2P/CUMEM\n"
        f"{head}0[0] -> 3[3] via somewhere 0[0] -> 2[2] via P2P/CUMEM\n"
        f"{head}0[0] -> 4[4] via P2P/CUMEM\n"
        f"{head}0[0] -> 5[5] via P2P/CUMEM\n"
        f"{head}0[0] -> 6[6] [send] via P2P/CUMEM\n"
        f"{head}0[0] -> 7[7] via P2P/CUMEM"
    )
    assert via(one(text)) == {(0, n, "P2P/CUMEM") for n in (2, 4, 5, 6)}


TUNING = """\
h:1:1 [0] NCCL INFO   Algorithm   |                            Tree                  |                            Ring                  |
h:1:1 [0] NCCL INFO   Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |
h:1:1 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |            512 |            640 |            512 |
h:1:1 [0] NCCL INFO     Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     7.2/ 141.0 |    15.9/ 331.2 |    11.8/ 360.0 |
h:1:1 [0] NCCL INFO     AllReduce |     8.0/  61.1 |    16.5/ 180.6 |    16.4/ 232.2 |     7.8/ 141.0 |    17.8/ 331.2 |    15.2/ 360.0 |
"""


def test_the_tuning_table() -> None:
    table = read(TUNING).procs[0].tuning
    assert table["AllReduce", "Tree", "LL128"] == (16.5, 180.6) and table["Broadcast", "Ring", "Simple"] == (11.8, 360.0)
    assert ("Broadcast", "Tree", "LL") not in table and len(table) == 9  # what it does not offer is left out


def test_a_tuning_row_counts_only_under_its_head() -> None:
    rows = "".join(line + "\n" for line in TUNING.splitlines() if "Algorithm" not in line)
    assert read(rows).procs[0].tuning == {}
    other = TUNING.replace("h:1:1 [0] NCCL INFO     AllReduce", "h:2:2 [1] NCCL INFO     AllReduce")
    assert [len(p.tuning) for p in read(other).procs] == [3, 0]
    cut = TUNING[: TUNING.rindex("360.0")]
    assert ("AllReduce", "Tree", "LL") not in read(cut).procs[0].tuning


def test_the_tuning_table_is_a_table_of_its_own_among_the_facts(tmp_path: Path) -> None:
    log = tmp_path / "n.log"
    log.write_text(TUNING)
    text = gpudoctor("facts", "--from", str(log)).stdout.decode()
    assert "NCCL's model of its algorithms" in text and "collective    algorithm    protocol" in text and "360" in text
    log.write_text("h:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n")
    assert b"NCCL's model" not in gpudoctor("facts", "--from", str(log)).stdout


def test_connections_over_the_network_without_devices() -> None:
    """NCCL 2.4 names ranks only; the order of a ring has no transport."""
    text = "[1,7]<stdout>:h1:2:3 [7] NCCL INFO Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0\n[1,4]<stdout>:h2:4:5 [0] NCCL INFO Ring 00 : 1 -> 4 [receive] via NET/IB/1/GDRDMA\n"
    assert {t for c in read(text).comms for t in via(c)} == {(7, 8, "NET/AWS Libfabric/0"), (1, 4, "NET/IB/1/GDRDMA")}
    order = "h1:2:3 [0] NCCL INFO Ring 00 : 1 -> 0 -> 1\nh1:2:3 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
    assert {t for c in read(order).comms for t in via(c)} == set()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("-worker-1:946:988 [0] NCCL INFO ", (None, 946)),  # a name of which the beginning was masked
        ("...-48:34050:34121 [0] NCCL INFO ", (None, 34050)),
        ("rank0:1234:12:13 [1] NCCL INFO ", ("1234", 12)),  # a label before a host that is a number
        ("host.example:12:13 [1] NCCL INFO ", ("host.example", 12)),
    ],
)
def test_whose_line_it_is(head: str, expected: tuple[str | None, int]) -> None:
    (proc,) = read(f"{head}Using network IB\n").procs
    assert (proc.host, proc.pid) == expected


def test_a_plug_ins_function_is_no_host() -> None:
    found = read("net_plugin_get_ep:969 NCCL WARN NET/OFI Couldn't open endpoint\n")
    assert [(m.host, m.pid, m.file) for m in found.messages] == [(None, None, "net_plugin_get_ep")]
    assert read("node7:969 NCCL WARN NET/OFI Couldn't open endpoint\n").messages[0].host == "node7"


def test_a_link_made_of_a_source_line_leaves_the_writer() -> None:
    (message,) = read("h7:1:2 [3] transport/[net_ib.cc:101](http://net_ib.cc:101/) NCCL WARN NET/IB : Got async event : port error\n").messages
    assert (message.host, message.pid, message.dev, message.file) == ("h7", 1, 3, "transport/net_ib.cc")


@pytest.mark.parametrize("tail", ["\x1b[32m [repeated 106x across cluster]\x1b[0m", "[32m [repeated 106x across cluster] [0m", " [repeated 3x across cluster]"])
def test_a_transport_before_the_words_of_ray(tail: str) -> None:
    found = read(f"h:1:2 [5] NCCL INFO Channel 23/0 : 6[a01c0] -> 5[901d0] via P2P/IPC/read{tail}\n")
    assert via(found.comms[0]) == {(5, 6, "P2P/IPC/read")}


def test_a_log_of_calls_alone_tells_the_size_of_their_communicator() -> None:
    call = "NCCL INFO AllReduce: opCount 28c sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x5{0} [nranks=4] stream 0x9"
    lines = [f"h:{n}:{n} [{n}] {call.format(n)}" for n in range(4)]
    (comm,) = read("\n".join(lines * 3) + "\n").comms
    assert (comm.nranks, comm.version, comm.transports) == (4, None, ())
    # Where its start was logged, that says it.
    started = [f"h:{n}:{n} [{n}] NCCL INFO ncclCommInitRank comm 0x5{n} rank {n} nranks 4 cudaDev {n} nvmlDev {n} busId {n}000 commId 0x77 - Init COMPLETE" for n in range(4)]
    (comm,) = read("\n".join(started + lines) + "\n").comms
    assert sorted(r.rank for r in comm.ranks) == [0, 1, 2, 3]


def test_a_process_of_several_gpus_of_which_one_shows_its_rank() -> None:
    connection = "h:1:9 [5] NCCL INFO Channel 00/0 : 5[5] -> 6[6] via P2P/IPC"
    lines = [connection, "h:1:8 [0] NCCL INFO Using network IB", "h:1:8 [0] transport/p2p.cc:1 NCCL WARN Cuda failure 'peer access is not supported'"]
    found = read("\n".join(lines) + "\n")
    assert [found.comms[0].rank_of(m) for m in found.messages] == [None]
    own = read("\n".join([*lines[:2], lines[2].replace("[0]", "[5]")]) + "\n")
    assert [own.comms[0].rank_of(m) for m in own.messages] == [5]
    # One device in all its lines: the process of one rank.
    single = read(f"{connection}\n" + lines[2].replace("[0]", "[5]") + "\n")
    assert [single.comms[0].rank_of(m) for m in single.messages] == [5]
    # Its start names the rank: a thread that chose no device changes nothing.
    start = "h:1:9 [5] NCCL INFO ncclCommInitRank comm 0x55 rank 5 nranks 8 cudaDev 5 nvmlDev 5 busId 5000 commId 0x7 - Init START"
    known = read("\n".join([start, *lines]) + "\n")
    assert [known.comms[0].rank_of(m) for m in known.messages] == [5]


LOST = "vm:817:835 [0] misc/socket.cc:47 NCCL WARN socketProgressOpt: Call to send to 192.0.2.2<42387> failed : Connection reset by peer\n"


@pytest.mark.parametrize(
    ("post", "version"),
    [
        ("- OS: Ubuntu 22.04\n- NCCL version: 2.21.5\n- GPU: 8x H100\n\n", "2.21.5"),
        ("**NCCL 2.27.5**, driver 570\n", "2.27.5"),
        ("| NCCL version | 2.18.3 |\n", "2.18.3"),
        ("NCCL 2.18.3 is required for this.\n", None),
        ("I went from NCCL 2.21.5 to\nNCCL 2.27.5 and\n", None),
        ("- NCCL version: 2.21.5\n- NCCL version: 2.27.5\n", None),  # of two hosts, or before and after
        ("NCCL version: 2.2", None),
    ],
)
def test_a_version_that_a_post_lists(post: str, version: str | None) -> None:
    from tests.unit.test_homes import report

    told = report(post + (LOST if post.endswith("\n") else "\n" + LOST))
    assert {c.version for store in told.hosts for c in store.get(Nccl)} == {version}
    assert report(post).exit_code == 3  # a list of versions is no output to judge


def test_a_runs_own_version_beats_the_one_that_is_listed() -> None:
    from tests.unit.test_homes import report

    told = report("- NCCL version: 2.21.5\n" + LOST + "vm:817:817 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n")
    assert {c.version for store in told.hosts for c in store.get(Nccl)} == {"2.28.9"}
