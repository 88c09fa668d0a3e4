"""Synthetic NCCL logs of jobs of any size, in the line shapes of 2.28: no machine printed them."""

from __future__ import annotations

from collections.abc import Iterator

PER_NODE = 8


def node(rank: int) -> str:
    return f"node{rank // PER_NODE:03d}"


def prefix(rank: int) -> str:
    pid = 20000 + rank
    return f"{node(rank)}:{pid}:{pid + 7} [{rank % PER_NODE}] NCCL INFO "


def start(rank: int, ranks: int, comm: int = 1, version: str = "2.28.9", env: dict[str, str] | None = None) -> Iterator[str]:
    """What one rank prints until its communicator is about to be built."""
    head, local = prefix(rank), rank % PER_NODE
    yield f"{head}cudaDriverVersion 13000"
    yield f"{head}NCCL version {version}+cuda13.0"
    yield f"{head}Bootstrap: Using eth0:10.1.{rank // PER_NODE // 250}.{rank // PER_NODE % 250 + 1}<0>"
    yield f"{head}NET/IB : Using " + " ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(8)) + " [RO]; OOB eth0:10.1.0.1<0>"
    yield f"{head}Using network IB"
    for name, value in {"NCCL_IB_TIMEOUT": "22.", "NCCL_DEBUG": "INFO", **(env or {})}.items():
        yield f"{head}{name} set by environment to {value}"
    yield f"{head}ncclCommInitRank comm 0x{0x5500000 + 64 * rank + comm:x} rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {local + 1}8000 commId 0x{0xABC000 + comm:x} - Init START"
    yield f"{head}NCCL_CUMEM_ENABLE set by environment to 1."
    nodes = (ranks + PER_NODE - 1) // PER_NODE
    yield f"{head}comm 0x{0x5500000 + 64 * rank + comm:x} rank {rank} nRanks {ranks} nNodes {nodes} localRanks {min(ranks, PER_NODE)} localRank {local} MNNVL 0"


def connect(rank: int, ranks: int, channels: int = 16) -> Iterator[str]:
    """Rings and trees: neighbours over NVLink inside a node, the network between nodes."""
    head, local = prefix(rank), rank % PER_NODE
    yield f"{head}Trees " + " ".join(f"[{c}] {(rank + 1) % ranks}/-1/-1->{rank}->{rank - 1}" for c in range(channels))
    yield f"{head}P2P Chunksize set to 131072"
    following, former = (rank + 1) % ranks, (rank - 1) % ranks
    for channel in range(channels):
        if ranks == 1:
            break
        if node(following) == node(rank):
            yield f"{head}Channel {channel:02d}/0 : {rank}[{local}] -> {following}[{following % PER_NODE}] via P2P/CUMEM"
        else:
            yield f"{head}Channel {channel:02d}/0 : {rank}[{local}] -> {following}[{following % PER_NODE}] [send] via NET/IB/{channel % 8}/GDRDMA"
        if node(former) != node(rank):
            yield f"{head}Channel {channel:02d}/0 : {former}[{former % PER_NODE}] -> {rank}[{local}] [receive] via NET/IB/{channel % 8}/GDRDMA"


def finish(rank: int, ranks: int, comm: int = 1) -> Iterator[str]:
    head, local = prefix(rank), rank % PER_NODE
    yield f"{head}Connected all rings, use ring PXN 0 GDR 1"
    yield f"{head}threadThresholds 8/8/64 | {8 * ranks}/8/64 | 512 | 512"
    yield f"{head}16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer"
    yield f"{head}ncclCommInitRank comm 0x{0x5500000 + 64 * rank + comm:x} rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {local + 1}8000 commId 0x{0xABC000 + comm:x} - Init COMPLETE"
    yield f"{head}Init timings - ncclCommInitRank: rank {rank} nranks {ranks} total 2.21 (kernels 0.33, alloc 0.03, bootstrap 0.13, allgathers 0.10, topo 0.90, graphs 0.31, connections 0.40, rest 0.01)"


def together(writers: list[Iterator[str]]) -> Iterator[str]:
    """Lines of several writers in turn, as a launcher collects them."""
    while writers:
        left = []
        for writer in writers:
            line = next(writer, None)
            if line is not None:
                yield line
                left.append(writer)
        writers = left


def communicators(ranks: int, comms: int, channels: int = 16) -> Iterator[str]:
    """A healthy start of a job that makes several communicators: what each process says of itself stands there once."""
    for comm in range(1, comms + 1):
        for phase in (lambda r: start(r, ranks, comm), lambda r: connect(r, ranks, channels), lambda r: finish(r, ranks, comm)):  # noqa: B023
            for line in together([phase(rank) for rank in range(ranks)]):
                if comm == 1 or " comm 0x" in line or "Channel " in line or "Trees " in line or "channels, " in line or "Init timings" in line:
                    yield line


def job(ranks: int, channels: int = 16, comm: int = 1, version: str = "2.28.9") -> Iterator[str]:
    """A healthy start, ranks interleaved as a launcher collects them."""
    for phase in (lambda r: start(r, ranks, comm, version), lambda r: connect(r, ranks, channels), lambda r: finish(r, ranks, comm)):
        yield from together([phase(rank) for rank in range(ranks)])


def training(lines: Iterator[str] | list[str], every: int = 20) -> Iterator[str]:
    """NCCL's lines among those of a training job: one of `every` is NCCL's."""
    step = 0
    for line in lines:
        for _ in range(every - 1):
            step += 1
            yield f"[2026-03-01 12:{step // 60 % 60:02d}:{step % 60:02d}] step {step} | loss {2.5 + 1 / (step + 1):.4f} | lr 1.0e-04 | grad norm {0.9 + step % 7 / 100:.3f} | tokens/s {120000 + step * 37 % 9000}"
        yield line
