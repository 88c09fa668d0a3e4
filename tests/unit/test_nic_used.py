"""Which adapter each rank takes by NCCL's log, against the matrix of its host. Synthetic."""

from __future__ import annotations

import pytest

from gpudoctor.model import Finding
from tests.unit.test_homes import report

BUSES = ("1b", "43", "52", "61")


def matrix(nics: list[str], pairs: str = "SYS", name: str = "node07") -> str:
    """Four GPUs; a column of words for each adapter, `PIX SYS SYS SYS`."""
    rows = [n.split() for n in nics]
    head = "\t" + "\t".join([*(f"GPU{i}" for i in range(4)), *(f"NIC{i}" for i in range(len(rows)))]) + "\tCPU Affinity\n"
    body = "".join(
        f"GPU{a}\t" + "\t".join([*(" X " if a == b else pairs for b in range(4)), *(row[a] for row in rows)]) + "\t0-31\n" for a in range(4)
    )
    legend = "\nNIC Legend:\n\n" + "".join(f"  NIC{i}: mlx5_{i}\n" for i in range(len(rows)))
    bus = "".join(f"{i}, 00000000:{b.upper()}:00.0\n" for i, b in enumerate(BUSES))
    return f"root@{name}:~# nvidia-smi --query-gpu=index,pci.bus_id --format=csv\nindex, pci.bus_id\n{bus}root@{name}:~# nvidia-smi topo -m\n{head}{body}{legend}"


def log(takes: dict[int, int | None], nics: int = 4, version: str = "2.28.9", env: dict[str, str] | None = None, host: str = "node07", listed: str = "", base: int = 0) -> str:
    """Four ranks of eight, each with a connection to its fellow on another host over the adapter that `takes` says."""
    using = listed or " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(nics))
    lines = []
    for rank in range(4):
        head = f"{host}:{100 + base + rank}:{200 + base + rank} [{rank}] NCCL INFO "
        lines += [f"{head}NCCL version {version}+cuda13.0", f"{head}NET/IB : Using {using} [RO]; OOB eth0:10.0.0.1<0>", f"{head}Using network IB"]
        lines += [f"{head}{n} set by environment to {v}." for n, v in (env or {}).items()]
        own, other = base + rank, (base + rank + 4) % 8
        comm = f"comm 0x55{own:02x} rank {own} nranks 8 cudaDev {rank} nvmlDev {rank} busId {BUSES[rank]}000 commId 0xab"
        lines += [f"{head}ncclCommInitRank {comm} - Init START"]
        if takes.get(rank) is not None:
            lines += [f"{head}Channel 00/0 : {own}[{rank}] -> {other}[{rank}] [send] via NET/IB/{takes[rank]}/GDRDMA"]
            lines += [f"{head}Channel 01/0 : {other}[{rank}] -> {own}[{rank}] [receive] via NET/IB/{takes[rank]}/GDRDMA"]
        lines += [f"{head}ncclCommInitRank {comm} - Init COMPLETE"]
    return "\n".join(lines) + "\n"


EACH_ITS_OWN = ["PIX SYS SYS SYS", "SYS PIX SYS SYS", "SYS SYS PIX SYS", "SYS SYS SYS PXB"]
OWN = {0: 0, 1: 1, 2: 2, 3: 3}


def far(*texts: str) -> list[Finding]:
    return [f for r in report(*texts).results for f in r.findings if f.slug == "nic-far"]


def test_each_takes_its_own() -> None:
    assert far(matrix(EACH_ITS_OWN) + log(OWN)) == []


def test_a_rank_that_takes_a_far_one_although_a_near_one_is_there() -> None:
    (finding,) = far(matrix(EACH_ITS_OWN), log({**OWN, 2: 0}))
    assert (finding.subject, finding.severity) == ("rank:2", "warning")
    assert finding.message == "Rank 2 reaches other hosts over mlx5_0 (SYS) although its GPU2 has mlx5_2 at PIX."
    said = " ".join(f"{e.source} {e.value}" for e in finding.evidence)
    assert "f0.txt" in said and "f1.txt" in said and "NET/IB : Using mlx5_0:1/IB" in said and "f1.txt ranks 2-6 via NET/IB/0/GDRDMA" in said


def test_several_ranks_are_told_once() -> None:
    (finding,) = far(matrix(EACH_ITS_OWN), log({0: 0, 1: 0, 2: 0, 3: 0}))
    assert finding.subject == "host" and finding.message.startswith("Ranks 1-3 reach other hosts over far adapters")


def test_one_near_connection_is_enough() -> None:
    text = log({**OWN, 2: 0}).replace("[receive] via NET/IB/0/GDRDMA", "[receive] via NET/IB/2/GDRDMA")
    assert far(matrix(EACH_ITS_OWN), text) == []


@pytest.mark.parametrize(
    ("pairs", "version", "env", "said"),
    [
        ("NV18", "2.28.9", {}, False),  # a GPU beside the adapter may do it for this one
        ("NV18", "2.28.9", {"NCCL_PXN_DISABLE": "1"}, True),
        ("NV18", "2.10.3", {}, True),
        ("SYS", "2.28.9", {}, True),
    ],
)
def test_nvlink_may_lead_to_the_gpu_beside_the_adapter(pairs: str, version: str, env: dict[str, str], said: bool) -> None:
    assert bool(far(matrix(EACH_ITS_OWN, pairs), log({**OWN, 2: 0}, version=version, env=env))) is said


def test_an_adapter_that_nccl_was_told_to_leave_out() -> None:
    """Which of the adapters carry a job's traffic NCCL says itself: the nearest one of three GPUs is not among them."""
    text = log(dict.fromkeys(range(4), 0), nics=1, env={"NCCL_IB_HCA": "mlx5_0"})
    (finding,) = far(matrix(EACH_ITS_OWN, "NV18"), text)
    assert finding.subject == "host" and "NCCL_IB_HCA=mlx5_0" in finding.message and "ranks 1-3" in finding.message
    assert finding.remediation[0].command == "unset NCCL_IB_HCA"


def test_below_a_switch_is_near_however_many_bridges() -> None:
    assert far(matrix(["PXB PXB PXB PXB", "PIX PIX PIX PIX"]), log(dict.fromkeys(range(4), 0), nics=2)) == []


def test_without_a_near_one_the_host_is_told_and_no_rank() -> None:
    told = far(matrix(["SYS SYS SYS SYS"]), log(dict.fromkeys(range(4), 0), nics=1))
    assert [(f.subject, f.severity) for f in told] == [("nic:mlx5_0", "note")]


@pytest.mark.parametrize(
    "text",
    [
        log({**OWN, 2: 9}),  # a number that the list has not
        log({**OWN, 2: 0}, listed="[0]mlx5_7:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB"),  # one that the matrix has not
        log({**OWN, 2: 0}).replace("NET/IB : Using", "NET/IB : Found"),
        log({**OWN, 2: None}),  # a rank in the middle of its host's chain
        log({**OWN, 2: 0}, host="node08"),  # another machine
    ],
)
def test_what_cannot_be_placed_is_not_judged(text: str) -> None:
    other = matrix(["PIX PIX PIX PIX"] * 4, name="node09")
    assert far(matrix(EACH_ITS_OWN), text, *([other] if "node08" in text else [])) == []


def test_bonded_ports_count_with_the_nearer_one() -> None:
    bonded = "[0]mlx5_0+mlx5_1:1/IB [1]mlx5_2+mlx5_3:1/IB"
    assert [f.subject for f in far(matrix(EACH_ITS_OWN), log({0: 0, 1: 0, 2: 0, 3: 1}, listed=bonded))] == ["rank:2"]


def test_each_host_by_its_own_matrix() -> None:
    hosts = (matrix(EACH_ITS_OWN), matrix([EACH_ITS_OWN[i] for i in (3, 2, 1, 0)], name="node08"))
    first, second = log(OWN), log(OWN, host="node08", base=4)
    (finding,) = far(*hosts, first, second)
    assert (finding.host, finding.subject) == ("node08", "host") and finding.message.startswith("Ranks 4-7 reach")
    assert far(*hosts, first, log({0: 3, 1: 2, 2: 1, 3: 0}, host="node08", base=4)) == []
