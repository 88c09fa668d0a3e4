"""The settings of the ranks of one communicator, held against each other."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor import cpulist
from gpudoctor.checkers.nccl_causes import RANK_MISMATCH
from gpudoctor.checkers.nccl_view import Ranks
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.model import CERTAIN, ERROR, LIKELY, Finding, Step

# Settings that all ranks must have alike: they choose algorithm, protocol, transport, buffers.
ALIKE = frozenset(
    "NCCL_" + n
    for n in (
        "ALGO", "PROTO", "P2P_DISABLE", "P2P_LEVEL", "SHM_DISABLE", "NVLS_ENABLE", "CUMEM_ENABLE", "CUMEM_HOST_ENABLE", "MIN_NCHANNELS",
        "MAX_NCHANNELS", "MIN_CTAS", "MAX_CTAS", "MIN_NRINGS", "MAX_NRINGS", "NCHANNELS_PER_NET_PEER", "BUFFSIZE", "LL_BUFFSIZE",
        "LL128_BUFFSIZE", "NTHREADS", "LL128_NTHREADS", "MAX_P2P_NCHANNELS", "MIN_P2P_NCHANNELS", "P2P_NVL_CHUNKSIZE", "P2P_NET_CHUNKSIZE",
        "P2P_PCI_CHUNKSIZE", "CROSS_NIC", "COLLNET_ENABLE", "NET", "IB_DISABLE", "NET_GDR_LEVEL", "NET_GDR_READ", "NET_SHARED_BUFFERS",
        "MNNVL_ENABLE", "PXN_DISABLE", "P2P_PXN_LEVEL", "RUNTIME_CONNECT", "GRAPH_FILE", "LL_THRESHOLD", "TREE_THRESHOLD", "SINGLE_RING_THRESHOLD",
        "P2P_USE_CUDA_MEMCPY", "P2P_READ_ENABLE", "LAUNCH_MODE", "WORK_FIFO_BYTES",
    )
)  # fmt: skip
# Those by which a rank chooses how it reaches another.
_OF_WAYS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")
# What every process prints of itself, and of a communicator.
_OF_PROCESS = ("cuda_driver", "address", "network", "interfaces", "affinity", "fabric_state")
_OF_RANK = ("comm_id", "nnodes", "started", "completed", "channels", "init_seconds", "transports")


def settings(comm: NcclComm, nccl: Nccl, told_of: set[str]) -> Iterator[Finding]:
    ranks = Ranks(comm)
    values: dict[str, dict[str | None, list[int]]] = {}
    names = sorted({n for p in ranks.proc.values() for n in p.env} & ALIKE)
    whole = len(ranks.rank) == comm.nranks and all(r.completed for r in ranks.rank.values())
    for name in names:
        for number, proc in sorted(ranks.proc.items()):
            if name in proc.env or whole:
                values.setdefault(name, {}).setdefault(proc.env.get(name), []).append(number)
    differing = {n: v for n, v in values.items() if len(v) > 1}
    # Printed by some and not by others: only settings whose line no option of the log leaves out.
    sure = {n: v for n, v in differing.items() if None not in v}
    partly = {n: v for n, v in differing.items() if None in v and _always_printed(n) and not _gaps(ranks, v[None]) and not _went_alike(ranks, n)}
    if not sure and not partly:
        return
    told_of.update(sure, partly)
    told = []
    odd: set[int] = set()
    for name, by_value in {**sure, **partly}.items():
        by_size = sorted(by_value.items(), key=lambda item: -len(item[1]))
        told.append(f"{name} is " + ", ".join(f"{'not set' if v is None else v} on rank{'s' if len(r) > 1 else ''} {some(r)}" for v, r in by_size))
        odd.update(n for _, members in by_size[1:] for n in members)
    evidence = [
        nccl.settings[n, v]
        for n, by in {**sure, **partly}.items()
        for v in by
        if v is not None and (n, v) in nccl.settings
    ]
    alone = next(iter(odd)) if len(odd) == 1 and len(ranks.rank) > 2 else None
    yield Finding(
        RANK_MISMATCH.slug, ERROR, f"rank:{alone}" if alone is not None else "host",
        f"The ranks run with different settings: {'; '.join(told[:4])}. They choose algorithms and transports by them, so a collective hangs or breaks.",
        tuple(evidence[:6]) or (comm.at("env"),), CERTAIN if sure else LIKELY, "the first collective may hang",
        (Step("Start every rank with the same environment (mpirun -x, srun --export=ALL, one image)", "env | grep NCCL_ | sort   # on every host", "none"),),
    )  # fmt: skip


def _gaps(ranks: Ranks, without: list[int]) -> bool:
    """Do these ranks lack more than the setting of what others printed? Then lines of theirs are lost, and its line may be one."""
    others = [n for n in ranks.proc if n not in without]
    for part, names in (ranks.proc, _OF_PROCESS), (ranks.rank, _OF_RANK):
        for name in names:
            told = {n for n in part if getattr(part[n], name) not in (None, (), {}, False)}
            if told.intersection(others) and not told.issuperset(without):
                return True
    return False


def _went_alike(ranks: Ranks, name: str) -> bool:
    """Does each rank reach the others as those do by whom the setting was printed? With another value, or none, it would not: its line is lost."""
    if name not in _OF_WAYS:
        return False
    ways = [frozenset(via.partition("/")[0] for vias in rank.transports.values() for via in vias) for rank in ranks.rank.values()]
    return bool(ways) and all(ways) and len(set(ways)) == 1


def _always_printed(name: str) -> bool:
    """Read by every process that finishes init, whatever the topology."""
    return name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_LEVEL")


def some(numbers: list[int]) -> str:
    return cpulist.render(set(numbers)) if len(numbers) > 1 else str(numbers[0])
