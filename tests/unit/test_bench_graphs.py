"""How the worker captures CUDA graphs, over a stand-in for torch.cuda: no GPU takes part."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "gpudoctor" / "probe"))
worker = import_module("bench_task")
sys.path.pop(0)


class Store(dict[str, str]):
    def set(self, key: str, value: str) -> None:
        self[key] = value

    def get(self, key: str, default: Any = None) -> Any:
        return self[key].encode()


def task(fails: bool, other: str = "-", graph_to: int = 1 << 20) -> Any:
    """A task of rank 0 of two; `other` is what rank 1 says of its capture."""
    one = worker.Task.__new__(worker.Task)
    calls: list[str] = []

    @contextmanager
    def capture(graph: Any, stream: Any, capture_error_mode: str) -> Any:
        assert capture_error_mode == "thread_local"
        calls.append("capture")
        yield
        if one.fails:
            raise RuntimeError("operation not permitted when stream is capturing")

    graph = SimpleNamespace(replay=lambda: calls.append("replay"))
    cuda = SimpleNamespace(CUDAGraph=lambda: graph, graph=capture, synchronize=lambda: None)
    one.fails = fails
    one.calls = calls
    one.torch = SimpleNamespace(cuda=cuda)
    one.stream = object()
    one.task = {"graph_to": graph_to}
    one.name = "0.0"
    one.comm = SimpleNamespace(rank=0, size=2)
    one.rank = SimpleNamespace(store=Store({"graph/0.0/1": other}))
    one.graphs_work, one.no_graphs = False, None
    return one


def test_a_capture_that_works_everywhere_is_replayed_once_before_it_is_timed() -> None:
    one = task(False)
    graph, why = one._captured(lambda: one.calls.append("op"), 3, 8)
    assert graph is not None and why == "" and one.calls == ["capture", "op", "op", "op", "replay"]
    one.calls.clear()
    one._captured(lambda: None, 1, 8)
    assert one.calls == ["capture", "replay"]


def test_one_rank_that_cannot_keeps_all_from_replaying() -> None:
    one = task(False, other="RuntimeError: no")
    assert one._captured(lambda: None, 3, 8) == (None, "RuntimeError: no")
    assert "replay" not in one.calls
    one.calls.clear()
    assert one._captured(lambda: None, 3, 8) == (None, "RuntimeError: no") and one.calls == []  # not tried again


def test_a_failure_of_our_own_is_told_to_the_others() -> None:
    one = task(True)
    graph, why = one._captured(lambda: None, 3, 8)
    assert graph is None and "capturing" in why and "capturing" in one.rank.store["graph/0.0/0"]


def test_a_later_failure_ends_the_run_since_the_others_would_wait() -> None:
    one = task(False)
    one._captured(lambda: None, 1, 8)
    one.fails = True
    with pytest.raises(RuntimeError, match="after it had worked"):
        one._captured(lambda: None, 1, 8)


def test_large_sizes_are_timed_by_calls() -> None:
    one = task(False)
    assert one._captured(lambda: None, 3, 2 << 20) == (None, None) and one.calls == []
