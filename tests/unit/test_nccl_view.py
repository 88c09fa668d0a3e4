"""What picture and JSON say of a communicator beside its transports: how long it took to start, what NCCL chose. Synthetic."""

from __future__ import annotations

import pytest

from tests import support
from tests.unit.test_nccl_checks import pair_of_ranks

PARTS = "(kernels {}, alloc 0.03, bootstrap {}, allgathers 0.00, topo 0.06, graphs 0.00, connections 0.01, rest 0.00)"


def timing(rank: int, total: str, kernels: str, bootstrap: str) -> str:
    return f"h:{rank + 10}:{rank + 20} [{rank}] NCCL INFO Init timings - ncclCommInitRank: rank {rank} nranks 2 total {total} {PARTS.format(kernels, bootstrap)}\n"


def picture(text: str) -> str:
    return " ".join(support.gpudoctor("check", "--from", "-", stdin=text.encode()).stdout.decode().split())


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (("12.31", "0.33", "11.90"), "init took 12.31 s on rank 1, the slowest, 11.9 s of it bootstrap"),
        (("4.00", "1.90", "2.00"), "init took 4 s on rank 1, the slowest, 2 s of it bootstrap and 1.9 s of it kernels"),
        (("9.00", "0.10", "0.10"), "init took 9 s on rank 1, the slowest"),
        (("0.97", "0.33", "0.50"), None),
    ],
)
def test_the_slowest_start(slow: tuple[str, str, str], words: str | None) -> None:
    text = pair_of_ranks("P2P/CUMEM") + timing(0, "0.57", "0.33", "0.13") + timing(1, *slow)
    seen = picture(text)
    assert words in seen if words is not None else "init took" not in seen
    for command in ("check", "facts"):
        (entry,) = support.report(command, "--from", "-", stdin=text.encode())[1]["facts"]["nccl"]
        assert entry["init"]["slowest_rank"] == 1 and entry["init"]["seconds"] == float(slow[0])
        assert {"name": "bootstrap", "seconds": float(slow[2])} in entry["init"]["parts"]
    assert "init_seconds" in support.gpudoctor("facts", "--from", "-", stdin=text.encode()).stdout.decode()


def test_a_log_without_timings_says_none() -> None:
    text = pair_of_ranks("P2P/CUMEM")
    assert "init took" not in picture(text)
    assert support.report("facts", "--from", "-", stdin=text.encode())[1]["facts"]["nccl"][0]["init"] is None
    # A line that is cut within its parts tells nothing.
    cut = text + timing(1, "12.31", "0.33", "11.90")[:120]
    assert support.report("facts", "--from", "-", stdin=cut.encode())[1]["facts"]["nccl"][0]["init"] is None


HEAD = "h:10:20 [0] NCCL INFO "
KIB = 1024


def named(name: str, size: int, algorithm: str, protocol: str) -> str:
    return f"{HEAD}{name}: {size} Bytes -> Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{size % 24}}} cgaClusterSize 4\n"


def choices(text: str) -> set[tuple[str | None, str, str | None, int, int]]:
    (entry,) = support.report("facts", "--from", "-", stdin=text.encode())[1]["facts"]["nccl"]
    return {tuple(row.values()) for row in entry["choices"] or ()}


def test_what_was_chosen_by_size() -> None:
    """2.24 and later. Sizes are merged into ranges, however many there are."""
    text = pair_of_ranks("P2P/CUMEM")
    for size in range(8, 64 * KIB + 1, 1021):
        text += named("AllReduce", size, "RING", "LL")
    text += named("AllReduce", 64 * KIB, "RING", "LL") + named("AllReduce", KIB * KIB, "RING", "LL128") + named("AllReduce", 64 << 20, "RING", "SIMPLE")
    text += named("ReduceScatter", 512, "COLLNET_DIRECT", "SIMPLE") + named("AllGather", 512, "RING", "LL") + named("AllGather", 8192, "NVLS_TREE", "SIMPLE")
    seen = picture(text)
    assert "NCCL chose for all_reduce: LL up to 64 KiB, LL128 up to 1 MiB, Simple above (Ring); reduce_scatter: Simple at 512 B (CollNetDirect);" in seen
    assert "all_gather: Ring LL up to 512 B, NVLSTree Simple above" in seen
    assert ("AllReduce", "Ring", "LL", 8, 64 * KIB) in choices(text) and len(choices(text)) == 6
    table = support.gpudoctor("facts", "--from", "-", stdin=text.encode()).stdout.decode()
    assert "What NCCL chose" in table and "67108864" in table


def test_choices_that_overlap_are_given_with_both_ends() -> None:
    text = pair_of_ranks("P2P/CUMEM") + "".join(named("Broadcast", s, "RING", p) for s, p in ((8, "LL"), (4096, "LL"), (2048, "SIMPLE"), (8192, "SIMPLE")))
    assert "broadcast: LL at 8 B to 4 KiB, Simple at 2 KiB to 8 KiB (Ring)" in picture(text)


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("AllReduce: 4096 Bytes -> Algo 1 proto 2 time 12.300000", {("AllReduce", "Ring", "Simple", 4096, 4096)}),  # 2.23
        ("4096 Bytes -> Algo 5 proto 0 time 12.300000", {(None, "NVLSTree", "LL", 4096, 4096)}),  # 2.20 to 2.22
        ("AllReduce: 4096 Bytes -> Algo 6 proto 2 time 12.300000", {("AllReduce", "PAT", "Simple", 4096, 4096)}),
        ("AllReduce: 4096 Bytes -> Algo 9 proto 2 time 12.300000", set()),
        ("AllReduce: 4096 Bytes -> Algo 1 proto 3 time 12.300000", set()),
        ("AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1", {("AllReduce", "Symmetric", "AllReduce_AGxLL_R", 64, 64)}),
        ("AllGather [Copy Engine]: 64 Bytes -> cudaMemcpyBatchAsync", {("AllGather", "Copy Engine", None, 64, 64)}),
        ("AllReduce: opCount 12 sendbuff 0x7f recvbuff 0x7f count 32 datatype 7 op 0 root 0 comm 0x7f [nranks=2] stream 0x55", set()),
        ("AllReduce: 4096 Bytes -> Algo RING pro", set()),
    ],
)
def test_the_forms_of_all_releases(line: str, chosen: set[tuple[object, ...]]) -> None:
    for others in ("", "a line of others\n" * 200):
        assert choices(pair_of_ranks("P2P/CUMEM") + others + HEAD + line + "\n") == chosen


def test_no_choice_is_lost_because_another_was_told() -> None:
    """Lines that differ only in what stands before their tenth character, or in the size's first digits."""
    told = [(n, s) for n in ("AllReduce", "AllGather", "Broadcast", "Reduce") for s in (128, 228, 1128)]
    text = pair_of_ranks("P2P/CUMEM") + "".join(named(n, s, "RING", "LL") for n, s in told) * 3
    assert choices(text) == {(n, "Ring", "LL", 128, 1128) for n, _ in told}


def test_the_row_of_the_table_that_begins_its_line() -> None:
    head = f"{HEAD}  Algorithm   |                            Ring                  |\n"
    text = pair_of_ranks("P2P/CUMEM") + head + f"{HEAD}ReduceScatter |     7.8/ 141.0 |    17.8/ 331.2 |    15.2/ 360.0 |\n"
    (entry,) = support.report("facts", "--from", "-", stdin=text.encode())[1]["facts"]["nccl"]
    assert [(r["collective"], r["protocol"], r["bandwidth_gbs"]) for r in entry["tuning"]] == [("ReduceScatter", "LL", 141.0), ("ReduceScatter", "LL128", 331.2), ("ReduceScatter", "Simple", 360.0)]


def test_of_a_million_sizes_the_smallest_and_the_largest_count() -> None:
    """More than are remembered one by one; those between two that were told are passed over."""
    sizes = [n * 7919 % 65521 for n in range(1, 9000)]
    text = pair_of_ranks("P2P/CUMEM") + "".join(named("AllReduce", s, "RING", "LL" if s < 30_000 else "SIMPLE") for s in sizes)
    low = max(s for s in sizes if s < 30_000), min(s for s in sizes if s >= 30_000)
    assert choices(text) == {("AllReduce", "Ring", "LL", min(sizes), low[0]), ("AllReduce", "Ring", "Simple", low[1], max(sizes))}
