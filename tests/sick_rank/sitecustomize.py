"""First on the path of a measuring child, it makes one rank fail on purpose: how the tests prove that gpudoctor notices it.

SICK_RANK says which and how, as JSON: {"kind": "hang", "rank": 1, "size": 65536}. Nothing of this is in what is shipped.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from types import ModuleType
from typing import Any

_load = importlib.import_module


class WrongOnce:
    """Stands for bench_comm: the result is damaged right before it is checked."""

    def __init__(self, ops: Any, task: Any, size: int) -> None:
        self.ops, self.task, self.size = ops, task, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)

    def wrong(self, *args: Any) -> Any:
        self.task.recv[: self.size // 4][-1] += 1
        return self.ops.wrong(*args)


def sick(module: ModuleType, how: dict[str, Any]) -> None:
    """Give one rank's measurements the fault."""
    measure = module.Task._measure

    def measured(self: Any, op: Any, size: int, in_place: bool, share: float) -> bool:
        kind, ops = how["kind"], self.ops
        if self.rank.rank != how["rank"] or size < how.get("size", 0):
            return measure(self, op, size, in_place, share)
        if kind == "hang":
            time.sleep(3600)
        if kind == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if kind == "raise":
            raise RuntimeError("raised on purpose")
        if kind == "wrong":
            self.ops = WrongOnce(ops, self, size)
        call = op
        if kind == "slow" and ("pair" not in how or len(self.group) == 2 and how["pair"] in self.group):

            def call() -> None:
                time.sleep(float(how["seconds"]))
                op()

        try:
            return measure(self, call, size, in_place, share)
        finally:
            self.ops = ops

    module.Task._measure = measured


def _loaded(name: str, package: str | None = None) -> ModuleType:
    known = name in sys.modules
    module = _load(name, package)
    if name == "bench_task" and not known:
        sick(module, json.loads(os.environ["SICK_RANK"]))
    return module


if "SICK_RANK" in os.environ and any(os.path.basename(word) == "bench_worker.py" for word in sys.orig_argv[1:3]):
    importlib.import_module = _loaded
