"""Copies that the bandwidth worker makes on one GPU's behalf: to and from pinned host memory, and to a neighbour GPU."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

HOST_BYTES = 128 << 20
HOST_ROUNDS = 16  # about 40 ms each way at 55 GB/s: long enough to read the link's state meanwhile
PEER_BYTES = 256 << 20
PROOF_BYTES = 4 << 20
SLOW_S = 0.35  # of copies in one direction: a link that is this slow needs no more rounds
GENERATION_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


class Link:
    """The PCIe link of one GPU as NVML sees it. Every answer may be None."""

    def __init__(self, nvml_path: str | None, uuid: str | None) -> None:
        self.nvml: Any = None
        self.handle: Any = None
        try:
            self.nvml = _nvml(nvml_path)
            self.nvml.nvmlInit()
            self.handle = self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode() if uuid else b"")
        except Exception:  # no pynvml, no driver, a UUID it does not know: copies are measured all the same
            self.nvml = None

    def read(self) -> tuple[float | None, int | None] | None:
        """Speed in GT/s and width, now."""
        if self.nvml is None:
            return None
        try:
            generation = self.nvml.nvmlDeviceGetCurrPcieLinkGeneration(self.handle)
            return GENERATION_GTS.get(int(generation)), int(self.nvml.nvmlDeviceGetCurrPcieLinkWidth(self.handle))
        except Exception:
            return None


def _nvml(path: str | None) -> Any:
    """The user's own pynvml, or gpudoctor's out of the folder or archive it lies in (one file without dependencies)."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        if path is None:
            raise
        sys.path.append(path)
        try:
            return importlib.import_module("pynvml")
        finally:
            sys.path.remove(path)


def host_copies(torch: Any, device: int, link: Link) -> dict[str, Any]:
    """GB/s each way through pinned memory, and the link as it was while the copies ran."""
    host = torch.empty(HOST_BYTES, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(HOST_BYTES, dtype=torch.uint8, device=f"cuda:{device}")
    seen: list[tuple[float | None, int | None]] = []
    out: dict[str, Any] = {}
    for name, copy in (
        ("to_device_gbs", lambda: card.copy_(host, non_blocking=True)),
        ("from_device_gbs", lambda: host.copy_(card, non_blocking=True)),
    ):
        out[name] = _rate(torch, copy, HOST_BYTES, HOST_ROUNDS, lambda: _note(seen, link))
    speeds = [s for s, _ in seen if s is not None]
    widths = [w for _, w in seen if w is not None]
    # Under load: the last reading, since a link that was asleep may take the first copies to wake.
    out["speed_gts"] = max(speeds) if speeds else None
    out["width"] = widths[-1] if widths else None
    return out


def _note(seen: list[tuple[float | None, int | None]], link: Link) -> None:
    state = link.read()
    if state is not None:
        seen.append(state)


def _rate(
    torch: Any, copy: Callable[[], Any], size: int, rounds: int, meanwhile: Callable[[], None] | None = None
) -> float:
    """GB/s of repeated copies, timed on the device. meanwhile is called for as long as they run."""
    copy()
    torch.cuda.synchronize()
    began = time.monotonic()
    copy()
    torch.cuda.synchronize()
    rounds = max(1, min(rounds, int(SLOW_S / max(time.monotonic() - began, 1e-6))))
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(rounds):
        copy()
    end.record()
    while meanwhile is not None and not end.query():
        meanwhile()
        time.sleep(0.001)
    torch.cuda.synchronize()
    return float(size * rounds / start.elapsed_time(end) / 1e6)


def proof(torch: Any, own: int, other: int) -> dict[str, Any]:
    """Write to a neighbour's memory and read it back: peer to peer may be offered and still lose or mangle data.

    `peer` False: the driver offers none between the two, so nothing was written and NCCL will not use it either.
    """
    if not torch.cuda.can_device_access_peer(own, other):
        return {"peer": False}
    count = PROOF_BYTES // 4
    here = torch.arange(count, dtype=torch.int32, device=f"cuda:{own}") * 7 + own
    want = here.cpu()
    there = torch.zeros(count, dtype=torch.int32, device=f"cuda:{other}")
    there.copy_(here)
    torch.cuda.synchronize(own)
    torch.cuda.synchronize(other)
    written = int((there.cpu() != want).sum())
    back = torch.zeros(count, dtype=torch.int32, device=f"cuda:{own}")
    back.copy_(there)
    torch.cuda.synchronize(own)
    torch.cuda.synchronize(other)
    read = int((back.cpu() != want).sum())
    out: dict[str, Any] = {"peer": True, "wrong_written": written, "wrong_read": read}
    if not written and not read:
        src = torch.empty(PEER_BYTES, dtype=torch.uint8, device=f"cuda:{own}")
        dst = torch.empty(PEER_BYTES, dtype=torch.uint8, device=f"cuda:{other}")
        with torch.cuda.device(own):
            out["copy_gbs"] = _rate(torch, lambda: dst.copy_(src, non_blocking=True), PEER_BYTES, 20)
    return out
