"""The calls that the worker makes to NCCL, against a stand-in that does in memory what NCCL promises (threads for ranks)."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]
sys.path.insert(0, str(Path(__file__).parents[2] / "gpudoctor" / "probe"))
bench_comm = import_module("bench_comm")
sys.path.pop(0)


def floats(pointer: Any, count: int) -> Any:
    return (ctypes.c_float * count).from_address(getattr(pointer, "value", pointer))


class StandIn:
    """What ncclAllReduce and the others do, for ranks that are threads. Not NCCL: CPU memory, float32, sum."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.barrier = threading.Barrier(ranks, timeout=20)
        self.given: dict[int, Any] = {}
        self.mail: dict[tuple[int, int], list[list[float]]] = {}

    def of(self, rank: int) -> Any:
        def exchange(value: list[float]) -> list[list[float]]:
            self.given[rank] = value
            self.barrier.wait()
            everything = [self.given[r] for r in range(self.ranks)]
            self.barrier.wait()
            return everything

        def all_reduce(src: Any, dst: Any, count: Any, kind: Any, op: Any, comm: Any, stream: Any) -> int:
            assert (kind.value, op.value) == (7, 0)
            out = [sum(column) for column in zip(*exchange(list(floats(src, count.value))), strict=True)]
            floats(dst, count.value)[:] = out
            return 0

        def all_gather(src: Any, dst: Any, count: Any, kind: Any, comm: Any, stream: Any) -> int:
            out = [value for part in exchange(list(floats(src, count.value))) for value in part]
            floats(dst, len(out))[:] = out
            return 0

        def reduce_scatter(src: Any, dst: Any, count: Any, kind: Any, op: Any, comm: Any, stream: Any) -> int:
            n = count.value
            out = [sum(column) for column in zip(*exchange(list(floats(src, n * self.ranks))), strict=True)]
            floats(dst, n)[:] = out[rank * n : (rank + 1) * n]
            return 0

        def send(src: Any, count: Any, kind: Any, peer: int, comm: Any, stream: Any) -> int:
            self.mail.setdefault((rank, peer), []).append(list(floats(src, count.value)))
            return 0

        waiting: list[Callable[[], None]] = []

        def recv(dst: Any, count: Any, kind: Any, peer: int, comm: Any, stream: Any) -> int:
            def take() -> None:
                floats(dst, count.value)[:] = self.mail[peer, rank].pop(0)

            waiting.append(take)
            return 0

        def group_end() -> int:
            self.barrier.wait()
            for take in waiting:
                take()
            waiting.clear()
            self.barrier.wait()
            return 0

        class Init:
            argtypes: Any = None

            def __call__(self, *args: Any) -> int:
                assert args[1] == ranks and args[3] == rank and bytes(args[2])[:3] == b"id!"
                return 0

        def unique_id(pointer: Any) -> int:
            ctypes.memmove(pointer, b"id!\0x", 5)  # a NUL inside must not cut it
            return 0

        ranks = self.ranks
        return SimpleNamespace(
            ncclGetErrorString=lambda status: b"unhandled system error",
            ncclGetUniqueId=unique_id,
            ncclCommInitRank=Init(),
            ncclAllReduce=all_reduce,
            ncclAllGather=all_gather,
            ncclReduceScatter=reduce_scatter,
            ncclSend=send,
            ncclRecv=recv,
            ncclGroupStart=lambda: 0,
            ncclGroupEnd=group_end,
            ncclCommDestroy=lambda comm: 0,
        )


def torch_without_cuda() -> Any:
    stream = SimpleNamespace(cuda_stream=0)
    return SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: stream))


def run(ranks: int, collective: str, in_place: bool, spoil: int | None = None) -> list[int | None]:
    """Wrong elements per rank; None where the collective has no such form."""
    torch = import_module("torch")
    shared = StandIn(ranks)
    out: list[int | None] = [None] * ranks
    box: dict[str, bytes] = {}
    told = threading.Event()

    def share(mine: bytes | None) -> bytes:
        if mine is not None:
            box["id"] = mine
            told.set()
        assert told.wait(20)
        return box["id"]

    def one(rank: int) -> None:
        comm = bench_comm.Nccl(shared.of(rank), torch_without_cuda(), rank, ranks, share)
        size = 4 * ranks * 300  # more than one round of the 251 values
        send, recv = torch.zeros(size // 4), torch.zeros(size // 4)
        op = comm.op(collective, send, recv, size, in_place)
        if op is None:
            return
        bench_comm.prepare(torch, collective, send, recv, size, rank, ranks, in_place)
        op()
        if spoil == rank:
            recv[rank * 300 if collective in ("reduce_scatter",) and in_place else 0] += 1
        out[rank] = bench_comm.wrong(torch, collective, recv, size, rank, ranks, in_place)
        comm.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return out


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_call_gives_what_the_check_expects_in_and_out_of_place(collective: str, ranks: int) -> None:
    assert run(ranks, collective, False) == [0] * ranks
    inside = run(ranks, collective, True)
    assert inside == ([None] * ranks if collective in ("alltoall", "sendrecv") else [0] * ranks)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_wrong_element_is_seen_on_its_rank_alone(collective: str) -> None:
    assert run(2, collective, False, spoil=1) == [0, 1]


def test_a_call_that_fails_says_it_in_nccls_words() -> None:
    lib = StandIn(1).of(0)
    lib.ncclCommDestroy = lambda comm: 2
    lib.ncclGetLastError = lambda comm: b"Call to ibv_reg_mr failed"
    comm = bench_comm.Nccl(lib, torch_without_cuda(), 0, 1, lambda mine: mine)
    with pytest.raises(bench_comm.CommError, match=r"ncclCommDestroy: unhandled system error \(Call to ibv_reg_mr failed\)"):
        comm.close()


@pytest.mark.parametrize("number, version", [(22809, "2.28.9"), (20304, "2.3.4"), (2804, "2.8.4"), (21903, "2.19.3")])
def test_the_version_number_is_read_as_nccl_h_makes_it(number: int, version: str) -> None:
    def get(pointer: Any) -> int:
        pointer._obj.value = number
        return 0

    assert bench_comm.Nccl.version_of(SimpleNamespace(ncclGetVersion=get)) == version
