"""The PyTorch engine: drives probe/bench_worker.py in the user's own Python, one job a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from glob import glob
from typing import Any

from gpudoctor import shipped
from gpudoctor.bandwidth.events import Heard, Lines
from gpudoctor.bandwidth.guard import Child
from gpudoctor.bandwidth.work import CannotStart, Measured, Progress, Work

IMPORT_S = 120.0  # a cold disk and a shared file system take that long to import PyTorch
# Bytes. Up to here a call is over before the next is launched, so that plain calls would time the launches: two H200 give
# half of what the link does at 1 MiB without graphs, and the same with and without from 2 MiB on (2026-11-29).
GRAPH_TO = 1 << 20
CHECKED_AT_ONCE = 1 << 24  # elements (bench_comm._BLOCK): what checking a result needs beside the buffers
_CONTEXT = 768 << 20  # what NCCL and the libraries take beside the buffers
LOG_MOST = 8 << 20
SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,GRAPH,NET,P2P,SHM,NVLS,TUNING"


class TorchEngine:
    """One interpreter that has imported PyTorch; each run forks its ranks from it."""

    name = "pytorch"

    def __init__(self, python: str, environ: Mapping[str, str], folder: str) -> None:
        self.python = python
        self.environ = dict(environ)
        self.folder = folder
        self.child: Child | None = None
        self.ready: dict[str, Any] = {}
        self.runs = 0

    def launch(self) -> None:
        """Let the import of PyTorch begin; `start` waits for it."""
        if self.child is not None:
            return
        try:
            # The order of nvidia-smi: without it CUDA counts the fastest GPU first.
            env = {**self.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1"}
            self.child = Child((*shipped.child(self.python, "bench_worker"), "--parent", str(os.getpid())), env, stdin=True, folder=self.folder)
        except OSError as error:
            raise CannotStart(f"{self.python}: {error.strerror or error}") from error
        self.ready = {}

    def start(self, until: float) -> None:
        self.launch()
        if self.ready:
            return
        assert self.child is not None
        lines = Lines(self.child)
        event = lines.next(min(until, time.monotonic() + IMPORT_S))
        if event is None or event.get("event") != "ready":
            words = (event or {}).get("words") or self.child.errors()[-400:].strip() or "it did not answer"
            if self.child.flooded:
                words = "it printed too much and was stopped"
            late = event is None and self.child.process.poll() is None and not self.child.flooded
            self.close()
            if late:
                raise CannotStart(f"{self.python} took longer than allowed to import PyTorch")
            raise CannotStart(f"{self.python} cannot import PyTorch ({words}). Install it:  {self.python} -m pip install torch")
        self.ready = event
        self.lines = lines

    @property
    def label(self) -> str:
        return f"PyTorch {self.ready.get('torch', '?')}"

    def close(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child = None

    def run(self, work: Work, progress: Progress) -> Measured:
        began = time.monotonic()
        self.start(work.until)
        assert self.child is not None
        self.runs += 1
        heard = Heard(work)
        if work.backend == "nccl" and self.ready.get("cuda") is None:
            return Measured(
                stopped=f"the PyTorch {self.ready.get('torch')} of {self.python} is built without CUDA. Install one with it:  "
                f"{self.python} -m pip install --force-reinstall torch"
            )
        try:
            self.child.send(json.dumps(self._job(work)).encode() + b"\n")
            heard.listen(self.lines, progress)
        except BrokenPipeError:
            heard.died = "the measuring process ended"
        errors = ""
        if heard.hung is not None or heard.died is not None:
            errors = self.child.errors()
            if not self.child.kill():
                heard.notes.append("a measuring process could not be ended: it hangs in a call of the driver")
            self.child = None  # the next run starts anew
        log = self._log()
        return heard.result(log, f"{self.label} ({self.python})", time.monotonic() - began, errors, _last_line(log))

    def _job(self, work: Work) -> dict[str, Any]:
        world = len(work.targets)
        rounds = work.pairs or ((tuple(range(world)),),)
        steps = [[list(group) for group in groups] for groups in rounds]
        visible = {}
        if work.backend == "nccl":
            names = [t.uuid for t in work.targets]
            if all(names):
                visible["CUDA_VISIBLE_DEVICES"] = ",".join(str(n) for n in names)
            elif "CUDA_VISIBLE_DEVICES" not in self.environ:
                visible["CUDA_VISIBLE_DEVICES"] = ",".join(str(t.index) for t in work.targets)
        return {
            "world": world,
            "backend": work.backend,
            "store": os.path.join(self.folder, f"store-{self.runs}"),
            "memory": memory_needed(work.sizes),
            "uuids": [t.uuid for t in work.targets],
            "nvml": _nvml_path(),
            "host_copies": work.host_copies,
            "proof": _proof(work, steps) if work.proof else [],
            "all_cpus": work.all_cpus,
            "unset": list(work.unset),
            "set": {
                **work.set,
                **visible,
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
                "NCCL_DEBUG_FILE": os.path.join(self.folder, f"nccl-{self.runs}-%p.log"),
            },
            "tasks": []
            if not work.sizes
            else [
                {
                    "groups": groups,
                    "collective": work.collective,
                    "sizes": list(work.sizes),
                    "repeats": work.repeats,
                    "rounds": work.rounds,
                    "round_s": work.round_s,
                    "seconds": work.seconds / len(steps),
                    "graph_to": GRAPH_TO,
                }
                for groups in steps
            ],
        }

    def _log(self) -> bytes:
        parts = []
        for path in sorted(glob(os.path.join(self.folder, f"nccl-{self.runs}-*.log"))):
            try:
                with open(path, "rb") as stream:
                    parts.append(stream.read(LOG_MOST))
                os.unlink(path)
            except OSError:
                continue
        return b"".join(parts)


def memory_needed(sizes: tuple[int, ...]) -> int:
    """Bytes of one GPU: two buffers, what checking takes (an int64 and two float32 a value), libraries."""
    most = max(sizes, default=0)
    return 2 * most + min(most // 4, CHECKED_AT_ONCE) * 16 + _CONTEXT


def _proof(work: Work, steps: list[list[list[int]]]) -> list[list[int]]:
    """Which two ranks write to each other first: neighbours in the ring of every group."""
    out: list[list[int]] = []
    for group in (g for groups in steps for g in groups):
        for place, rank in enumerate(group):
            other = group[(place + 1) % len(group)]
            if rank != other and sorted((rank, other)) not in [sorted(p) for p in out]:
                out.append([rank, other])
    return out


def _nvml_path() -> str | None:
    """Where ours is, for a Python that has no pynvml: one file without dependencies. Not imported here."""
    from importlib.util import find_spec

    if shipped.ARCHIVE:
        return shipped.ARCHIVE
    spec = find_spec("pynvml")
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else None


def _last_line(log: bytes) -> str | None:
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if "NCCL" in line]
    return lines[-1].strip()[:300] if lines else None
