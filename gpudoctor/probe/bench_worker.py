"""Measures collectives and copies: one process a GPU, forked from one that has imported PyTorch once.

Run by path with the user's Python, which need not have gpudoctor. Jobs come on standard input, one line of JSON each;
what happens goes to standard output, one line of JSON per event. Nothing here decides what is good: that is gpudoctor's.

Nobody stays behind: every process asks the kernel to be killed when the one above it ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

SCHEMA = 1
LOST_GRACE_S = 4.0  # after one rank failed the others may say why they cannot go on
_PR_SET_PDEATHSIG = 1

_channel = 1


def say(event: str, **values: Any) -> None:
    """One event. A line under PIPE_BUF is written whole, so that the ranks may share the pipe."""
    line = json.dumps({"event": event, **values}).encode()
    os.write(_channel, line[:4000] + b"\n" if len(line) > 4000 else line + b"\n")


def die_with_parent(parent: int) -> None:
    """Ask the kernel to end this process with the one that started it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before we had asked
        os._exit(1)


class Stop(Exception):
    """The run cannot be made here, which is nobody's fault: no CUDA, too little memory."""

    def __init__(self, reason: str, **values: Any) -> None:
        super().__init__(reason)
        self.values = {"reason": reason, **values}


class Rank:
    """One process of a job, and how it agrees with the others (a file: no port to be taken)."""

    def __init__(self, torch: Any, job: dict[str, Any], rank: int) -> None:
        self.torch = torch
        self.job = job
        self.rank = rank
        self.world = int(job["world"])
        self.cuda = job["backend"] == "nccl"
        self.device = f"cuda:{rank}" if self.cuda else "cpu"
        self.store = torch.distributed.FileStore(job["store"], self.world)
        self.lib: Any = None
        self.plain: Any = None  # the process group, where NCCL is not called directly

    def run(self) -> None:
        torch = self.torch
        if self.cuda:
            self._open_gpu()
        if self.job.get("host_copies"):
            self._host_copies()
        if self.job.get("proof"):
            self._proof()
        if not self.job["tasks"]:
            return
        self._connect()
        for number, task in enumerate(self.job["tasks"]):
            for at, group in enumerate(task["groups"]):
                comm = self._group(f"{number}.{at}", group)
                if comm is not None:
                    importlib.import_module("bench_task").Task(self, comm, group, task, f"{number}.{at}").run()
            self.meet(f"task{number}")
        if self.cuda:
            torch.cuda.synchronize()

    def meet(self, name: str) -> None:
        """Wait until every rank has come this far."""
        if self.store.add(f"meet/{name}", 1) == self.world:
            self.store.set(f"met/{name}", b"1")
        self.store.wait([f"met/{name}"])

    def stage(self, name: str) -> None:
        say("stage", rank=self.rank, stage=name)

    def say(self, event: str, **values: Any) -> None:
        say(event, rank=self.rank, **values)

    def _open_gpu(self) -> None:
        torch = self.torch
        self.stage("opening the GPU")
        if torch.version.cuda is None:
            raise Stop("this PyTorch is built without CUDA")
        if not torch.cuda.is_available():
            raise Stop("PyTorch sees no CUDA GPU: " + _why_no_cuda(torch), no_gpu=True)
        if torch.cuda.device_count() < self.world:
            raise Stop(f"PyTorch sees {torch.cuda.device_count()} of the {self.world} GPUs", no_gpu=True)
        torch.cuda.set_device(self.rank)
        free, total = torch.cuda.mem_get_info(self.rank)
        need = int(self.job["memory"])
        say("gpu", rank=self.rank, name=torch.cuda.get_device_name(self.rank), free=free, total=total)
        if free < need:
            raise Stop("too little GPU memory is free", short=True, free=free, total=total, need=need, rank=self.rank)

    def _host_copies(self) -> None:
        copies = importlib.import_module("bench_copies")
        # One GPU after the other: together they would share the memory bus and hide a slow link.
        for turn in range(self.world):
            if turn == self.rank:
                self.stage("copying to and from the host")
                link = copies.Link(self.job.get("nvml"), (self.job.get("uuids") or [None] * self.world)[self.rank])
                say("host_copy", rank=self.rank, **copies.host_copies(self.torch, self.rank, link))
            self.meet(f"copy{turn}")
        self._release()

    def _proof(self) -> None:
        """Neighbours of the ring, and of every pair that is measured alone."""
        copies = importlib.import_module("bench_copies")
        for turn, (a, b) in enumerate(self.job["proof"]):
            if a == self.rank:
                self.stage(f"proving peer to peer {a}-{b}")
                try:
                    said = copies.proof(self.torch, a, b)
                except RuntimeError as error:
                    # Compute mode Exclusive_Process: only the GPU's own rank may open it. Nothing is wrong with that.
                    if "busy or unavailable" not in str(error):
                        raise
                    said = {"peer": None, "why": "the GPUs are in exclusive compute mode"}
                say("proof", a=a, b=b, **said)
                if said.get("wrong_written") or said.get("wrong_read"):
                    raise RuntimeError(f"peer to peer between ranks {a} and {b} mangles data")
            self.meet(f"proof{turn}")
        self._release()

    def _release(self) -> None:
        """Give back what the copies used: NCCL allocates beside PyTorch."""
        if self.cuda:
            self.torch.cuda.empty_cache()

    def _connect(self) -> None:
        self.stage("connecting the ranks")
        comm = importlib.import_module("bench_comm")
        if self.cuda:
            self.lib = comm.loaded_nccl()
        if self.lib is not None:
            say("library", rank=self.rank, nccl=comm.Nccl.version_of(self.lib), direct=True)
            return
        if self.cuda:
            version = self.torch.cuda.nccl.version()
            say(
                "library",
                rank=self.rank,
                nccl=".".join(str(v) for v in version) if isinstance(version, tuple) else str(version),
                direct=False,
            )
        self.torch.distributed.init_process_group(
            self.job["backend"], store=self.store, rank=self.rank, world_size=self.world
        )
        self.plain = self.torch.distributed

    def _group(self, name: str, group: list[int]) -> Any:
        """The communicator of some ranks; None for a rank outside it. Every rank must call this."""
        comm = importlib.import_module("bench_comm")
        if self.plain is not None:
            handle = self.plain.new_group(group) if len(group) < self.world else self.plain.group.WORLD
            return (
                comm.Distributed(self.torch, self.job["backend"], group.index(self.rank), len(group), handle)
                if self.rank in group
                else None
            )
        if self.rank not in group:
            return None

        def share(mine: bytes | None) -> bytes:
            if mine is not None:
                self.store.set(f"id/{name}", mine.hex())
            return bytes.fromhex(self.store.get(f"id/{name}").decode())

        return comm.Nccl(self.lib, self.torch, group.index(self.rank), len(group), share)


def _why_no_cuda(torch: Any) -> str:
    try:
        torch.cuda.init()
        return "no device is visible"
    except Exception as error:
        return str(error).split("\n")[0][:300]


def be_rank(torch: Any, job: dict[str, Any], rank: int) -> int:
    """One rank from fork to exit status."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # gpudoctor decides
        for name in job.get("unset", ()):
            os.environ.pop(name, None)
        os.environ.update(job.get("set", {}))
        if job.get("all_cpus"):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        Rank(torch, job, rank).run()
        return 0
    except Stop as stop:
        say("stop", rank=rank, **stop.values)
        return 3
    except BaseException as error:
        say("error", rank=rank, kind=type(error).__name__, words=str(error)[:1500])
        traceback.print_exc()
        return 1


def run_job(torch: Any, job: dict[str, Any]) -> None:
    """Fork the ranks, wait for all; once one fails the others get a moment to say what they see, and are then killed."""
    mine = os.getpid()
    ranks: dict[int, int] = {}
    for rank in range(int(job["world"])):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                die_with_parent(mine)
                status = be_rank(torch, job, rank)
            finally:
                sys.stderr.flush()
                os._exit(status)
        ranks[pid] = rank
    doomed: float | None = None
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in ranks:
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            say("exit", rank=ranks.pop(pid), code=code, killed=doomed is not None and code == -signal.SIGKILL)
            if code != 0 and doomed is None:
                doomed = time.monotonic() + LOST_GRACE_S
            continue
        if doomed is not None and time.monotonic() > doomed:
            for left in ranks:
                os.kill(left, signal.SIGKILL)
        time.sleep(0.005)
    say("end")


def main() -> int:
    """Load PyTorch once, then run every job that standard input asks for."""
    global _channel
    _channel = os.dup(1)
    os.dup2(2, 1)  # what libraries print to standard output must not mix with the events
    if "--parent" in sys.argv:
        die_with_parent(int(sys.argv[sys.argv.index("--parent") + 1]))
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [here, *(p for p in sys.path if os.path.abspath(p or ".") != here)]
    for name in ("bench_comm", "bench_copies", "bench_task"):
        importlib.import_module(name)
    sys.path.remove(here)  # our file names must not shadow anybody's modules
    began = time.monotonic()
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.distributed")
    except Exception as error:
        say("no_torch", words=f"{type(error).__name__}: {str(error)[:500]}")
        return 3
    if not torch.distributed.is_available():
        say("no_torch", words="this PyTorch is built without torch.distributed")
        return 3
    say(
        "ready",
        schema=SCHEMA,
        torch=torch.__version__,
        cuda=torch.version.cuda,
        python=sys.version.split()[0],
        import_s=round(time.monotonic() - began, 3),
    )
    for line in sys.stdin.buffer:
        run_job(torch, json.loads(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
