"""The PyTorch engine: drives probe/bench_worker.py in the user's own Python and turns its events into facts."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from glob import glob
from typing import Any

from gpudoctor.bandwidth.guard import Child
from gpudoctor.bandwidth.rows import event_rows, spread_pct
from gpudoctor.bandwidth.work import CannotStart, Measured, Progress, Work
from gpudoctor.facts.bandwidth import BandwidthRun, Failure, HostCopy, Member, PairRate
from gpudoctor.model import Evidence

WORKER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "probe", "bench_worker.py")
IMPORT_S = 120.0  # a cold disk and a shared file system take that long to import PyTorch
GRAPH_TO = 8 << 20  # bytes: below this a call is over before the next is launched, so that plain calls time the launches
CHECKED_AT_ONCE = 1 << 24  # elements (bench_comm._BLOCK): what checking a result needs beside the buffers
_CONTEXT = 768 << 20  # what NCCL and the libraries take beside the buffers
LOG_MOST = 8 << 20
SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,GRAPH,NET,P2P,SHM,NVLS,TUNING"


class TorchEngine:
    """One interpreter that has imported PyTorch; each run forks its ranks from it."""

    name = "pytorch"

    def __init__(self, python: str, environ: Mapping[str, str], folder: str, fault: object = None, plain: bool = False) -> None:
        self.python = python
        self.environ = dict(environ)
        self.folder = folder
        self.fault = fault
        self.plain = plain
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
            self.child = Child((self.python, WORKER, "--parent", str(os.getpid())), env, stdin=True, folder=self.folder)
        except OSError as error:
            raise CannotStart(f"{self.python}: {error.strerror or error}") from error
        self.ready = {}

    def start(self, until: float) -> None:
        self.launch()
        if self.ready:
            return
        assert self.child is not None
        lines = _Lines(self.child)
        event = lines.next(min(until, time.monotonic() + IMPORT_S))
        if event is None or event.get("event") != "ready":
            words = (event or {}).get("words") or self.child.errors()[-400:].strip() or "it did not answer"
            late = event is None and self.child.process.poll() is None
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
        heard = _Heard(work)
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
            "plain": self.plain,
            "fault": self.fault,
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
    """Ours, for a Python that has no pynvml: one file without dependencies. Not imported here."""
    from importlib.util import find_spec

    spec = find_spec("pynvml")
    return spec.origin if spec is not None else None


def _last_line(log: bytes) -> str | None:
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if "NCCL" in line]
    return lines[-1].strip()[:300] if lines else None


class _Lines:
    """Events as they come."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.held = b""

    def next(self, until: float) -> dict[str, Any] | None:
        """The next event; None at the end of the output, or where none came in time."""
        while True:
            line, newline, rest = self.held.partition(b"\n")
            if newline:
                self.held = rest
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if isinstance(event, dict):
                    return event
                continue
            part = self.child.read(until)
            if not part:
                return None
            self.held += part


class _Heard:
    """The events of one run."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.rows: list[dict[str, Any]] = []
        self.stages: dict[int, str] = {}
        self.failures: list[Failure] = []
        self.echoes: list[str] = []  # what the other ranks said of it
        self.copies: list[dict[str, Any]] = []
        self.proofs: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.stop: dict[str, Any] | None = None
        self.done: set[tuple[int, str]] = set()
        self.exits: dict[int, int] = {}
        self.nccl: str | None = None
        self.hung: str | None = None
        self.died: str | None = None

    def listen(self, lines: _Lines, progress: Progress) -> None:
        while True:
            until = min(self.work.until, time.monotonic() + self.work.hang_s)
            event = lines.next(until)
            if event is None:
                if lines.child.process.poll() is not None:
                    self.died = "the measuring process ended"
                else:
                    late = time.monotonic() >= self.work.until
                    self.hung = "the time allowed was over" if late else f"nothing moved for {self.work.hang_s:g} s"
                return
            if event["event"] == "end":
                return
            self._take(event, progress)

    def _take(self, event: dict[str, Any], progress: Progress) -> None:
        kind, rank = event["event"], event.get("rank")
        if kind == "stage":
            self.stages[event["rank"]] = event["stage"]
            if rank == 0:
                progress(event["stage"], self._share())
        elif kind == "row":
            self.rows.append(event)
            if event["how"] == "calls" and event["why"]:
                self._once(f"CUDA graphs could not be used ({event['why']}): small sizes also time the launch of each call")
        elif kind == "host_copy":
            self.copies.append(event)
        elif kind == "proof":
            self.proofs.append(event)
            if event["peer"] is None:
                self._once(f"peer to peer was not proven by a copy: {event['why']}")
        elif kind == "skipped":
            self._once(f"sizes from {event['size']} bytes on were left out: {event['reason']}")
        elif kind == "library":
            self.nccl = event["nccl"]
            if not event["direct"]:
                self._once("NCCL is linked into this PyTorch: measured through torch.distributed, in place only")
        elif kind == "stop":
            self.stop = self.stop or event
        elif kind == "error":
            words = f"rank {rank}, {self.stages.get(event['rank'], 'starting')}: {event['words']}"
            self._failed(Failure(kind=_kind(event["words"]), text=words), root=False)
        elif kind == "task_done":
            self.done.add((event["rank"], event["task"]))
        elif kind == "exit":
            self.exits[event["rank"]] = event["code"]
            if event["code"] < 0 and not event["killed"]:
                at = self.stages.get(event["rank"], "starting")
                words = f"rank {rank} was ended by {_signal(-event['code'])}, {at}"
                self._failed(Failure(kind="exit", text=words, status=event["code"]), root=True)

    def _failed(self, failure: Failure, root: bool) -> None:
        """The first failure counts; the others are what it looks like from elsewhere. A rank that was killed is never an echo."""
        if not self.failures:
            self.failures = [failure]
        elif root and self.failures[0].kind != "exit":
            self.echoes.insert(0, self.failures[0].text)
            self.failures = [failure]
        else:
            self.echoes.append(failure.text)

    def _once(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)

    def _share(self) -> float:
        places = {(r["task"], r["size"], r["in_place"]) for r in self.rows}
        groups = max(1, sum(len(groups) for groups in self.work.pairs))
        return len(places) / max(1, 2 * len(self.work.sizes) * groups)

    def result(self, log: bytes, engine: str, seconds: float, errors: str, last: str | None) -> Measured:
        work = self.work
        label = engine.replace(" (", f", NCCL {self.nccl} (", 1) if self.nccl else engine
        if self.stop is not None and not self.rows:
            return Measured(
                stopped=_stopped(self.stop, work),
                short_of_memory=bool(self.stop.get("short")),
                no_gpu=bool(self.stop.get("no_gpu")),
                log=log,
                engine=label,
                seconds=seconds,
            )
        if self.hung is not None:
            at = "; ".join(f"rank {r}: {s}" for r, s in sorted(self.stages.items())) or "before any rank had started"
            said = f" NCCL's last line: {last}" if last else ""
            self.failures.insert(0, Failure(kind="timeout", text=f"the run hung and was stopped: {self.hung}. {at}.{said}"))
        if self.died is not None:
            self.failures.append(Failure(kind="exit", text=f"{self.died}: {errors[-300:].strip() or 'without a word'}"))
        for proof in self.proofs:
            if proof.get("wrong_written") or proof.get("wrong_read"):
                a, b = work.targets[proof["a"]], work.targets[proof["b"]]
                self.failures.insert(
                    0,
                    Failure(
                        kind="test",
                        text=f"peer to peer between {a.label} and {b.label} mangles data: of {1 << 20} numbers written "
                        f"{proof['wrong_written']} arrived wrong, and {proof['wrong_read']} came back wrong",
                    ),
                )
        self.notes += [f"after it, {echo[:200]}" for echo in self.echoes[:2]]
        # Without sizes only copies were asked for: no collective ran, unless it failed before.
        main = self._run(label) if self.failures or work.sizes and not work.pairs else None
        return Measured(
            run=main,
            pairs=(*self._peer_rates(label), *self._pair_rates(label)),
            copies=self._copies(label),
            spread_pct=spread_pct(self.rows, main) if main is not None else None,
            log=log,
            notes=tuple(self.notes),
            engine=label,
            seconds=seconds,
            stopped=None,
        )

    def _run(self, label: str) -> BandwidthRun:
        work = self.work
        world = len(work.targets)
        finished = len([1 for rank, task in self.done if task == "0.0"]) == world and not any(self.exits.values())
        rows = event_rows([r for r in self.rows if r["task"] == "0.0"], work.collective, world) if not work.pairs else ()
        mangled = any(p.get("wrong_written") or p.get("wrong_read") for p in self.proofs)
        wrong = True if mangled else any(r.wrong_in or r.wrong_out for r in rows) if rows else None
        return BandwidthRun(
            engine="pytorch",
            program=None,
            collective=work.collective,
            nranks=world,
            rows=rows,
            wrong=wrong,
            completed=finished and not self.failures,
            members=tuple(
                Member(rank=r, device=t.index, bdf=t.bdf, name=t.name) for r, t in enumerate(work.targets)
            )
            if work.backend == "nccl"
            else (),
            failures=tuple(self.failures),
            nccl_version=self.nccl,
            min_bytes=min(work.sizes, default=None),
            max_bytes=max(work.sizes, default=None),
            checked=True,
            backend=work.backend,
            settings=work.settings,
            origin={"*": Evidence(label, f"{work.collective} of {world} ranks", _words(self.failures, rows))},
        )

    def _pair_rates(self, label: str) -> tuple[PairRate, ...]:
        out = []
        for number, groups in enumerate(self.work.pairs):
            for at, (low, high) in enumerate(groups):
                rows = event_rows([r for r in self.rows if r["task"] == f"{number}.{at}"], self.work.collective, 2)
                run = BandwidthRun(collective=self.work.collective, nranks=2, rows=rows)
                rate = run.plateau_busbw_gbs or max((r.busbw_gbs or 0 for r in rows), default=0)
                if rate:
                    out.append(self._pair(low, high, rate, f"{self.work.collective} busbw", label))
        return tuple(out)

    def _peer_rates(self, label: str) -> tuple[PairRate, ...]:
        return tuple(
            self._pair(p["a"], p["b"], round(p["copy_gbs"], 1), "copy write", label) for p in self.proofs if p.get("copy_gbs")
        )

    def _pair(self, low: int, high: int, rate: float, what: str, label: str) -> PairRate:
        a, b = sorted((self.work.targets[low], self.work.targets[high]), key=lambda t: t.index)
        return PairRate(
            a=a.index, b=b.index, gbs=rate, what=what, a_bdf=a.bdf, b_bdf=b.bdf, a_name=a.name, b_name=b.name,
            origin={"*": Evidence(label, f"{what} between {a.label} and {b.label}", f"{rate:.1f} GB/s")},
        )  # fmt: skip

    def _copies(self, label: str) -> tuple[HostCopy, ...]:
        out = []
        for event in self.copies:
            target = self.work.targets[event["rank"]]
            words = f"{event['to_device_gbs']:.1f} GB/s to the GPU, {event['from_device_gbs']:.1f} GB/s from it"
            out.append(
                HostCopy(
                    gpu=target.index,
                    bdf=target.bdf,
                    name=target.name,
                    to_device_gbs=round(event["to_device_gbs"], 2),
                    from_device_gbs=round(event["from_device_gbs"], 2),
                    speed_gts=event["speed_gts"],
                    width=event["width"],
                    origin={"*": Evidence(label, f"pinned copies of {target.label}", words)},
                )
            )
        return tuple(out)


def _signal(number: int) -> str:
    name = signal.Signals(number).name if number in signal.Signals._value2member_map_ else f"signal {number}"
    return name + (" (out of memory? the kernel log says: dmesg)" if number == signal.SIGKILL else "")


def _words(failures: list[Failure], rows: tuple[Any, ...]) -> str:
    return failures[0].text if failures else f"{len(rows)} sizes measured"


def _kind(words: str) -> str:
    if words.startswith("nccl") or "NCCL" in words:
        return "nccl"
    return "cuda" if "CUDA" in words else "test"


def _stopped(stop: dict[str, Any], work: Work) -> str:
    if not stop.get("short"):
        return str(stop["reason"])
    target = work.targets[stop["rank"]]
    return (
        f"{target.label} has {stop['free'] / 2**30:.1f} of {stop['total'] / 2**30:.1f} GiB free, "
        f"{stop['need'] / 2**30:.1f} GiB are needed for buffers"
    )
