"""The collectives that the bandwidth worker times: NCCL called directly, or torch.distributed (gloo; NCCL as fallback).

NCCL is called through the very library that PyTorch loaded: out-of-place and in-place, on a stream of ours, as nccl-tests
does it. torch.distributed has no out-of-place all_reduce and adds its own bookkeeping to every call.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

FLOAT32, SUM = 7, 0  # ncclDataType_t, ncclRedOp_t (nccl.h)
ELEMENT = 4  # bytes of a float32
_ID_BYTES = 128  # NCCL_UNIQUE_ID_BYTES

Op = Callable[[], None]


class CommError(Exception):
    """A library call that failed, with the library's own words."""


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * _ID_BYTES),)


def loaded_nccl() -> Any:
    """The NCCL that PyTorch brought into this process; None where it is linked into PyTorch itself."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            found = re.search(r"(/\S*/libnccl\.so[.\d]*)$", maps.read(), re.M)
        return ctypes.CDLL(found[1]) if found else None
    except OSError:
        return None


class Nccl:
    """One communicator of NCCL's C interface. Every call raises CommError with NCCL's own words."""

    kind = "nccl"

    def __init__(self, lib: Any, torch: Any, rank: int, size: int, share: Callable[[bytes | None], bytes]) -> None:
        self.lib = lib
        self.torch = torch
        self.rank = rank
        self.size = size
        for name in ("ncclGetErrorString", "ncclGetLastError"):
            if hasattr(lib, name):
                getattr(lib, name).restype = ctypes.c_char_p
        self.comm = ctypes.c_void_p()
        uid = _UniqueId()
        if rank == 0:
            self._do("ncclGetUniqueId", ctypes.byref(uid))
        uid = _UniqueId.from_buffer_copy(share(bytes(uid) if rank == 0 else None))
        lib.ncclCommInitRank.argtypes = (ctypes.c_void_p, ctypes.c_int, _UniqueId, ctypes.c_int)
        self._do("ncclCommInitRank", ctypes.byref(self.comm), size, uid, rank)

    @staticmethod
    def version_of(lib: Any) -> str | None:
        number = ctypes.c_int()
        if lib.ncclGetVersion(ctypes.byref(number)) != 0:
            return None
        value = number.value  # 22809 from 2.9 on, 2804 before (nccl.h: NCCL_VERSION)
        return f"{value // 10000}.{value // 100 % 100}.{value % 100}" if value >= 10000 else f"{value // 1000}.{value // 100 % 10}.{value % 100}"

    def _do(self, name: str, *args: Any) -> None:
        status = getattr(self.lib, name)(*args)
        if status != 0:
            words = self.lib.ncclGetErrorString(status).decode("utf-8", "replace")
            last = ""
            if hasattr(self.lib, "ncclGetLastError"):
                last = (self.lib.ncclGetLastError(None) or b"").decode("utf-8", "replace").strip()
            raise CommError(f"{name}: {words}" + (f" ({last})" if last else ""))

    def _stream(self) -> Any:
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)

    def op(self, collective: str, send: Any, recv: Any, size: int, in_place: bool) -> Op | None:
        """One call of the collective over `size` bytes as nccl-tests counts them; None where it has no such form."""
        count = size // ELEMENT
        part = count // self.size
        src, dst = send.data_ptr(), recv.data_ptr()
        own = dst + self.rank * part * ELEMENT  # this rank's share of the large buffer

        def call(name: str, *args: Any) -> Op:
            pointers = [
                ctypes.c_void_p(a) if i < 2 else ctypes.c_size_t(a) if i == 2 else ctypes.c_int(a)
                for i, a in enumerate(args)
            ]
            return lambda: self._do(name, *pointers, self.comm, self._stream())

        if collective == "all_reduce":
            return call("ncclAllReduce", dst if in_place else src, dst, count, FLOAT32, SUM)
        if collective == "all_gather":
            return call("ncclAllGather", own if in_place else src, dst, part, FLOAT32)
        if collective == "reduce_scatter":
            # In place the large buffer is the one sent, and the result is this rank's share of it.
            return call("ncclReduceScatter", dst if in_place else src, own if in_place else dst, part, FLOAT32, SUM)
        if in_place:
            return None
        if collective == "alltoall":
            return lambda: self._exchange(
                [
                    (src + peer * part * ELEMENT, dst + peer * part * ELEMENT, part, peer, peer)
                    for peer in range(self.size)
                ]
            )
        if collective == "sendrecv":
            return lambda: self._exchange([(src, dst, count, (self.rank + 1) % self.size, (self.rank - 1) % self.size)])
        raise CommError(f"unknown collective {collective}")

    def _exchange(self, parts: list[tuple[int, int, int, int, int]]) -> None:
        stream = self._stream()
        self._do("ncclGroupStart")
        for src, dst, count, to, from_ in parts:
            self._do("ncclSend", ctypes.c_void_p(src), ctypes.c_size_t(count), FLOAT32, to, self.comm, stream)
            self._do("ncclRecv", ctypes.c_void_p(dst), ctypes.c_size_t(count), FLOAT32, from_, self.comm, stream)
        self._do("ncclGroupEnd")

    def close(self) -> None:
        self._do("ncclCommDestroy", self.comm)


class Distributed:
    """The same collectives by torch.distributed: gloo on CPUs, and NCCL where its library cannot be called directly."""

    def __init__(self, torch: Any, backend: str, rank: int, size: int, group: Any) -> None:
        self.torch = torch
        self.dist = torch.distributed
        self.kind = backend
        self.rank = rank
        self.size = size
        self.group = group

    def op(self, collective: str, send: Any, recv: Any, size: int, in_place: bool) -> Op | None:
        count = size // ELEMENT
        part = count // self.size
        dist, group = self.dist, self.group
        whole = recv[:count]
        own = recv[self.rank * part : (self.rank + 1) * part]
        if collective == "all_reduce":
            # This interface reduces in place only.
            return (lambda: dist.all_reduce(whole, group=group)) if in_place else None
        if collective == "all_gather":
            return lambda: dist.all_gather_into_tensor(whole, own if in_place else send[:part], group=group)
        if in_place:
            return None
        if collective == "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(recv[:part], send[:count], group=group)
        if collective == "alltoall":
            return lambda: dist.all_to_all_single(whole, send[:count], group=group)
        if collective == "sendrecv":
            return lambda: self._ring(send[:count], whole)
        raise CommError(f"unknown collective {collective}")

    def _ring(self, send: Any, recv: Any) -> None:
        ranks = self.dist.get_process_group_ranks(self.group)
        to, from_ = ranks[(self.rank + 1) % self.size], ranks[(self.rank - 1) % self.size]
        ops = [
            self.dist.P2POp(self.dist.isend, send, to, self.group),
            self.dist.P2POp(self.dist.irecv, recv, from_, self.group),
        ]
        for work in self.dist.batch_isend_irecv(ops):
            work.wait()

    def close(self) -> None:
        """The process ends right after: tearing a group down costs time and can itself hang."""


def pattern(torch: Any, start: int, count: int, rank: int, device: Any) -> Any:
    """What a rank sends: small whole numbers, so that any sum of them is exact in float32."""
    values = torch.arange(start, start + count, dtype=torch.int64, device=device).remainder_(251)
    return values.add_(rank + 1).to(torch.float32)


def prepare(
    torch: Any, collective: str, send: Any, recv: Any, size: int, rank: int, ranks: int, in_place: bool
) -> None:
    """Fill the buffers for one checked call."""
    count = size // ELEMENT
    part = count // ranks
    recv[:count].fill_(-1)
    if collective == "all_gather":
        into = recv[rank * part : (rank + 1) * part] if in_place else send[:part]
        _fill(torch, into, 0, rank)
    else:
        _fill(torch, (recv if in_place else send)[:count], 0, rank)


def wrong(torch: Any, collective: str, recv: Any, size: int, rank: int, ranks: int, in_place: bool) -> int:
    """Elements of this rank's result that are not what they must be."""
    count = size // ELEMENT
    part = count // ranks
    if collective == "all_reduce":
        return _differ(torch, recv[:count], 0, None, ranks)
    if collective == "reduce_scatter":
        at = rank * part if in_place else 0
        return _differ(torch, recv[at : at + part], rank * part, None, ranks)
    if collective == "all_gather":
        return sum(_differ(torch, recv[r * part : (r + 1) * part], 0, r, ranks) for r in range(ranks))
    if collective == "alltoall":
        return sum(_differ(torch, recv[r * part : (r + 1) * part], rank * part, r, ranks) for r in range(ranks))
    return _differ(torch, recv[:count], 0, (rank - 1) % ranks, ranks)


_BLOCK = 1 << 24  # elements compared at once: bounds the memory that checking takes


def _fill(torch: Any, into: Any, start: int, rank: int) -> None:
    for at in range(0, into.numel(), _BLOCK):
        some = into[at : at + _BLOCK]
        some.copy_(pattern(torch, start + at, some.numel(), rank, into.device))


def _differ(torch: Any, got: Any, start: int, rank: int | None, ranks: int) -> int:
    """rank None: the sum over all ranks is expected, else what that rank sent."""
    out = 0
    for at in range(0, got.numel(), _BLOCK):
        some = got[at : at + _BLOCK]
        want = pattern(torch, start + at, some.numel(), rank or 0, got.device)
        if rank is None:
            want = want.sub_(1).mul_(ranks).add_(ranks * (ranks + 1) // 2)
        out += int((some != want).sum().item())
    return out
