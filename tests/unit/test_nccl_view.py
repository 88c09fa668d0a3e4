"""What the picture and the JSON of a communicator say beside its transports: how long it took to start. Synthetic."""

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
