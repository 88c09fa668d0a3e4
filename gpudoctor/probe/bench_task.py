"""One collective over one group of ranks at every size: checked, agreed on, timed. A part of the bandwidth worker."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 2
_BARRIER_BYTES = 64


class Task:
    """One collective over one group of ranks, at every size. rank: a bench_worker.Rank, comm: one of bench_comm."""

    def __init__(self, rank: Any, comm: Any, group: list[int], task: dict[str, Any], name: str) -> None:
        self.rank = rank
        self.torch = rank.torch
        self.comm = comm
        self.group = group
        self.task = task
        self.name = name
        self.began = time.monotonic()
        self.rounds = 0  # of the row before
        self.graphs_work = False
        self.no_graphs: str | None = None  # why
        self.ops = importlib.import_module("bench_comm")
        # Only where every rank has a share of its own must the size be a multiple of their number.
        shares = 1 if task["collective"] in ("all_reduce", "sendrecv") else comm.size
        sizes = [_rounded(size, shares) for size in task["sizes"]]
        self.sizes = sorted({size for size in sizes if size})
        most = max(self.sizes, default=_BARRIER_BYTES) // 4
        self.send = self.torch.zeros(most, dtype=self.torch.float32, device=rank.device)
        self.recv = self.torch.zeros(most, dtype=self.torch.float32, device=rank.device)
        self.tiny = [
            self.torch.zeros(_BARRIER_BYTES // 4, dtype=self.torch.float32, device=rank.device) for _ in range(2)
        ]
        self.barrier = comm.op("all_reduce", *self.tiny, _BARRIER_BYTES, True)
        self.stream = self.torch.cuda.Stream() if rank.cuda else None
        self._sync()  # the zeros above are written on another stream

    def run(self) -> None:
        if self.stream is None:
            self._sizes()
        else:
            with self.torch.cuda.stream(self.stream):
                self._sizes()
        self.comm.close()
        self.rank.say("task_done", task=self.name, seconds=round(time.monotonic() - self.began, 3))

    def _sizes(self) -> None:
        for place, size in enumerate(self.sizes):
            for in_place in (False, True):
                self.rank.stage(f"{self.task['collective']} of {size} bytes")
                op = self.comm.op(self.task["collective"], self.send, self.recv, size, in_place)
                if op is not None and not self._measure(op, size, in_place, place / len(self.sizes)):
                    return

    def _measure(self, op: Callable[[], None], size: int, in_place: bool, share: float) -> bool:
        """One row: check the result, agree on how often, time it. False where the time is up for the group."""
        collective = self.task["collective"]
        args = (size, self.comm.rank, self.comm.size, in_place)
        self.ops.prepare(self.torch, collective, self.send, self.recv, *args)
        self._settle()
        op()
        self._sync()
        wrong = self.ops.wrong(self.torch, collective, self.recv, *args)
        # Calls so slow that one filled the last repeat are not made faster by warming up. All ranks know that number.
        for _ in range(0 if self.rounds == 1 else WARM_UP):
            op()
        self._settle()
        first = self._time(op, 1, None)
        rounds = self.rounds = self._agree(size, in_place, first, share)
        if rounds == 0:
            return False
        graph, why = self._captured(op, rounds, size)
        times = []
        for _ in range(int(self.task["repeats"])):
            times.append(round(self._time(op, rounds, graph) * 1e6 / rounds, 3))
        del graph
        self.rank.say(
            "row", task=self.name, group=self.group, collective=collective, size=size, in_place=in_place,
            wrong=wrong, times_us=times, rounds=rounds, how="graph" if why == "" else "calls", why=why,
        )  # fmt: skip
        return True

    def _agree(self, size: int, in_place: bool, seconds: float, share: float) -> int:
        """How many rounds, as the first rank of the group decides; 0 ends the task."""
        key = f"rounds/{self.name}/{size}/{int(in_place)}"
        store = self.rank.store
        if self.comm.rank == 0:
            left = float(self.task["seconds"]) - (time.monotonic() - self.began)
            want = float(self.task["round_s"]) / max(seconds, 1e-7)
            rounds = max(1, min(int(self.task["rounds"]), int(want)))
            # The rest must fit: this row with its warm-up and repeats. The first size is measured in any case.
            if share and seconds * rounds * (int(self.task["repeats"]) + 1) > left:
                rounds = 0
                self.rank.say("skipped", task=self.name, size=size, reason="no time left for this size")
            store.set(key, str(rounds))
            return rounds
        return int(store.get(key))

    def _captured(self, op: Callable[[], None], rounds: int, size: int) -> tuple[Any, str | None]:
        """A CUDA graph of all rounds, so that small sizes time the link and not the launches; and why there is none.

        "" captured; None not asked for at this size; else the library's words, of whichever rank could not.
        """
        if self.stream is None or size > int(self.task["graph_to"]) or self.no_graphs is not None:
            return None, None if self.stream is None or size > int(self.task["graph_to"]) else self.no_graphs
        torch = self.torch
        graph, why = torch.cuda.CUDAGraph(), ""
        try:
            # thread_local: other threads of the libraries may query events meanwhile.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                for _ in range(rounds):
                    op()
        except Exception as error:  # an old PyTorch or NCCL: plain calls are timed instead, and the row says so
            why = f"{type(error).__name__}: {str(error)[:200]}"
        if not self.graphs_work:
            # A graph on one rank and calls on another would wait for each other for ever.
            why = self._first_word(why)
            if why:
                self.no_graphs = why
                return None, why
            self.graphs_work = True
        elif why:
            raise RuntimeError(f"CUDA graph capture failed after it had worked: {why}")
        graph.replay()
        self._sync()
        return graph, ""

    def _first_word(self, mine: str) -> str:
        """Tell the others, and take the first rank's word that is not empty."""
        store = self.rank.store
        store.set(f"graph/{self.name}/{self.comm.rank}", mine or "-")
        said = [store.get(f"graph/{self.name}/{rank}").decode() for rank in range(self.comm.size)]
        return next((words for words in said if words != "-"), "")

    def _settle(self) -> None:
        """All ranks of the group are here, and so are their GPUs."""
        if self.barrier is not None:
            self.barrier()
        self._sync()

    def _sync(self) -> None:
        if self.stream is not None:
            self.torch.cuda.synchronize()

    def _time(self, op: Callable[[], None], rounds: int, graph: Any) -> float:
        """Seconds for all rounds. The barrier ahead lets every rank's clock start at the same moment."""
        self._settle()
        if self.stream is None:
            began = time.perf_counter()
            for _ in range(rounds):
                op()
            return time.perf_counter() - began
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.barrier()
        start.record()
        if graph is None:
            for _ in range(rounds):
                op()
        else:
            graph.replay()
        end.record()
        self._sync()
        return float(start.elapsed_time(end)) / 1e3


def _rounded(size: int, ranks: int) -> int:
    """A size every rank has an equal, aligned share of; small ones at least one element a rank."""
    unit = 4 * ranks if size < 1024 * ranks else 16 * ranks
    return max(size // unit * unit, unit if size > 0 else 0)
