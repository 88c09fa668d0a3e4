"""Lines in the shapes of NCCL's releases, as its sources print them: each is read, and what only looks like it is not."""

from __future__ import annotations

import pytest

from tests.nccl_logs import prefix, start
from tests.unit.test_nccl_log import one, read, via

IB = "NET/IB : Using"


def log(*said: str) -> str:
    """A start of two ranks, then what the first of them says."""
    return "\n".join([*start(0, 2), *start(1, 2), *(prefix(0) + line for line in said)]) + "\n"


@pytest.mark.parametrize(
    ("line", "nics"),
    [
        # 2.20 to 2.23: ports taken together. Read one by one, an index behind them would mean another adapter.
        (
            f"{IB} [0]={{[0] mlx5_0:1/IB, [1] mlx5_1:1/IB}} [2]mlx5_2:1/RoCE [RO]; OOB eth0:10.1.0.1<0>",
            ("mlx5_0+mlx5_1:1/IB", "mlx5_2:1/RoCE"),
        ),
        # Since 2.30.7: rail and plane, plane alone.
        (f"{IB} [0]mlx5_0:1:3/IB [1]mlx5_1:1::0/IB [2]mlx5_2:1:3:1/RoCE [RO]; OOB eth0:10.1.0.1<0>", ("mlx5_0:1/IB", "mlx5_1:1/IB", "mlx5_2:1/RoCE")),
        (f"{IB} [0]mlx5_0:1/IB [1]mlx5_0+mlx5_1:1/IB [RO]; OOB eth0:10.1.0.1<0>", ("mlx5_0:1/IB", "mlx5_0+mlx5_1:1/IB")),
    ],
)
def test_adapters_of_the_list(line: str, nics: tuple[str, ...]) -> None:
    assert next(p.nics for p in read(log(line)).procs) == nics


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("NET/IB/0/GDRDMA/flush=Always", "NET/IB/0/GDRDMA"),
        ("NET/IB/0/GDRDMA(PCI)/Shared/flush=C2c", "NET/IB/0/GDRDMA(PCI)/Shared"),
    ],
)
def test_a_receiver_that_says_how_it_flushes(way: str, said: str) -> None:
    """2.31: only the receiving end says it, and both ends speak of one way."""
    text = log(f"Channel 00/0 : 0[0] -> 1[1] [send] via {said}", f"Channel 00/0 : 1[1] -> 0[0] [receive] via {way}")
    assert via(one(text)) == {(0, 1, said)}


def test_a_way_that_was_cut_is_none() -> None:
    assert not via(one(log() + prefix(0) + "Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA/flush=Al"))
    assert not via(one(log("Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA/flush")))




HEAD = "Latency/AlgBw |" + "".join(f" {a:>7}/{p:>6} |" for a in ("Tree", "Ring") for p in ("LL", "LL128", "Simple"))  # 2.6 to 2.17
ROW = "".join(f"{lat:8.1f}/{bw:6.1f} |" for lat, bw in ((11.2, 1.4), (16.0, 0.0), (56.2, 20.0), (8.4, 2.0), (14.4, 0.0), (30.1, 24.0)))


def test_the_table_of_the_model_in_its_older_form() -> None:
    proc = next(iter(read(log(HEAD, " Max NThreads |" + " 512 |" * 6, f"    AllReduce |{ROW}")).procs))
    assert proc.tuning == {
        ("AllReduce", "Tree", "LL"): (11.2, 1.4), ("AllReduce", "Tree", "Simple"): (56.2, 20.0),
        ("AllReduce", "Ring", "LL"): (8.4, 2.0), ("AllReduce", "Ring", "Simple"): (30.1, 24.0),
    }  # fmt: skip


def test_a_row_of_another_width_than_its_head_is_not_read() -> None:
    short = HEAD.replace(f" {'Ring':>7}/{'Simple':>6} |", "")
    assert not next(iter(read(log(short, f"    AllReduce |{ROW}")).procs)).tuning
