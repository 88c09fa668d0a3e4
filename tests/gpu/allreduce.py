"""One rank of a small all-reduce, healthy or with a fault on purpose: `allreduce.py MODE`. Needs RANK, WORLD_SIZE, MASTER_*."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

MODE = sys.argv[1]
RANK = int(os.environ["RANK"])
WAIT = datetime.timedelta(seconds=float(os.environ.get("WAIT_S", "20")))


def main() -> None:
    device = 0 if MODE == "same-gpu" else RANK
    if MODE == "absent" and RANK == 1:
        time.sleep(WAIT.total_seconds() + 15)
        return
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=WAIT, device_id=None)
    tensor = torch.ones(1 << 20, device=f"cuda:{device}")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if MODE == "killed" and RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "left-out" and RANK == 1:
        time.sleep(WAIT.total_seconds() + 20)
        return
    if MODE == "other-size":
        tensor = torch.ones((1 << 20) + RANK * 4096, device=f"cuda:{device}")
    if MODE == "other-order" and RANK == 1:
        dist.broadcast(tensor, 0)
    else:
        dist.all_reduce(tensor)
    if MODE == "other-order":
        dist.all_reduce(tensor) if RANK == 1 else dist.broadcast(tensor, 0)
    torch.cuda.synchronize()
    print(f"rank {RANK} sum {tensor[0].item():g}", flush=True)
    dist.destroy_process_group()


main()
