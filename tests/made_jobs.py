"""Synthetic logs of jobs that hang, made from the shapes of real lines (PyTorch 2.11, NCCL 2.28.9).

Nothing here was printed by a machine: hosts, addresses and times are made up, the words of every line are as the
programs print them.
"""

from __future__ import annotations

import pickle
import random
from typing import Any

FIRST_LINE = "# synthetic: a made-up job of {ranks} ranks on {nodes} nodes\n"


class Job:
    """One job: `behind` never calls the collective that the others wait in; `silent` prints nothing from then on."""

    def __init__(
        self,
        ranks: int = 64,
        nodes: int = 8,
        behind: tuple[int, ...] = (),
        silent: tuple[int, ...] = (),
        odd: dict[int, tuple[str, int]] | None = None,
        seq: int = 1207,
        prefix: bool = True,
        nccl: bool = True,
    ) -> None:
        self.ranks, self.nodes, self.behind, self.silent = ranks, nodes, behind, silent
        self.odd = odd or {}
        self.seq = seq
        self.prefix = prefix
        self.nccl = nccl

    def rank_log(self, rank: int) -> list[str]:
        per_node = self.ranks // self.nodes
        node, local = divmod(rank, per_node)
        head = f"node{node}:{4000 + local}:{4000 + local} [{local}] NCCL INFO "
        lines = []
        if self.nccl:
            for word in ("START", "COMPLETE"):
                lines.append(
                    f"{head}ncclCommInitRankConfig comm 0x{0x55D000000000 + rank * 4096:x} rank {rank} nranks {self.ranks} cudaDev {local} "
                    f"nvmlDev {local} busId {(local + 1) * 0x1B:x}000 commId 0x9f2d6a8e1c3b5d70 - Init {word}"
                )
            lines.insert(0, f"{head}NCCL version 2.28.9+cuda13.0")
        return lines + self.trouble(rank)

    def trouble(self, rank: int) -> list[str]:
        if rank in self.silent:
            return []
        start = f"[rank{rank}]:" if self.prefix else ""
        glog = f"{start}[E1129 18:35:2{rank % 10}.74780{rank:04d} ProcessGroupNCCL.cpp:"
        group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        waiter = next(r for r in range(self.ranks) if r not in self.behind and r not in self.silent)
        dump = (
            "{glog}1914] {group} Received a dump signal due to a collective timeout from {whom} and we will try our best to dump the debug "
            "info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely caused by incorrect usages "
            "of collectives, e.g., wrong sizes used across ranks, the order of collectives is not same for all ranks or the scheduled "
            "collective, for some reason, didn't run. Additionally, this can be caused by GIL deadlock or other reasons such as network "
            "errors or bugs in the communications library (e.g. NCCL), etc. "
        )
        done = self.seq - 1
        if rank in self.behind:
            return [
                f"{glog}1849] {group} Observed flight recorder dump signal from another rank via TCPStore.",
                dump.format(glog=glog, group=group, whom=f" rank {waiter}", enqueued=done, completed=done),
            ]
        op, count = self.odd.get(rank, ("ALLREDUCE", 26214400))
        return [
            f"{glog}689] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={self.seq}, OpType={op}, "
            f"NumelIn={count}, NumelOut={count}, Timeout(ms)=600000) ran for 6000{rank % 90 + 10} milliseconds before timing out.",
            f"{glog}2303] {group}  failure detected by watchdog at work sequence id: {self.seq} PG status: last enqueued work: "
            f"{self.seq}, last completed work: {done}",
            f"{glog}733] Stack trace of the failed collective: ",
            "#0 all_reduce from /opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:3068",
            "#1 wrapper from /opt/venv/lib/python3.12/site-packages/torch/distributed/c10d_logger.py:83",
            f"#2 train_step from /opt/train/loop.py:{211 if rank not in self.odd else 230}",
            "#3 <module> from <string>:1",
            "",
            dump.format(glog=glog, group=group, whom="this local rank", enqueued=self.seq, completed=done),
        ]

    def merged(self, seed: int = 1) -> str:
        """All ranks through one pipe: whole lines of different ranks in any order, those of one rank in theirs."""
        shuffle = random.Random(seed)
        logs = [self.rank_log(rank) for rank in range(self.ranks)]
        order = [rank for rank, log in enumerate(logs) for _ in log]
        shuffle.shuffle(order)
        queues = [iter(log) for log in logs]
        body = "\n".join(next(queues[rank]) for rank in order)
        return FIRST_LINE.format(ranks=self.ranks, nodes=self.nodes) + body + "\n"

    def dump(self, rank: int) -> dict[str, Any]:
        """The flight recorder of one rank, as torch 2.11 writes it."""
        missing = rank in self.behind
        last = self.seq - 1 if missing else self.seq
        return {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(self.ranks)))}},
            "comm_lib_version": "2.28.9",
            "pg_status": {
                "0": {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": self.seq - 1}
            },
            "entries": [
                entry(number, rank, *self._call(rank, number), "completed" if number < self.seq else "scheduled")
                for number in range(max(1, self.seq - 5), last + 1)
            ],
        }

    def _call(self, rank: int, number: int) -> tuple[str, int]:
        op, count = self.odd.get(rank, ("ALLREDUCE", 26214400)) if number == self.seq else ("ALLREDUCE", 26214400)
        return {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "BROADCAST": "broadcast"}[op], count

    def pickled(self, rank: int) -> bytes:
        return pickle.dumps(self.dump(rank), protocol=2)


def entry(number: int, rank: int, op: str, count: int, state: str, group: str = "0", name: str = "default_pg") -> dict[str, Any]:
    return {
        "frames": [
            {"name": op, "filename": "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", "line": 3068},
            {"name": "train_step", "filename": "/opt/train/loop.py", "line": 200 + number % 20},
        ],
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": (group, name),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": 1795977302007627946 + number,
        "input_sizes": [[count]],
        "input_dtypes": ["Float"],
        "output_sizes": [[count]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 1795977302194247719 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": False,
    }
