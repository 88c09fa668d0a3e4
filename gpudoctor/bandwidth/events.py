"""The events of the bandwidth worker to facts."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

from gpudoctor.bandwidth.guard import Child
from gpudoctor.bandwidth.rows import event_rows, spread_pct
from gpudoctor.bandwidth.work import Measured, Progress, Work
from gpudoctor.facts.bandwidth import CPU, BandwidthRow, BandwidthRun, Failure, HostCopy, Member, PairRate
from gpudoctor.model import Evidence

_LINE = 1 << 20  # bytes; the worker's are under 4 KiB


class Lines:
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
                if isinstance(event, dict) and isinstance(event.get("event"), str):
                    return event
                continue
            if len(self.held) > _LINE:
                self.held = b""  # none of ours
            part = self.child.read(until)
            if not part:
                return None
            self.held += part


class Heard:
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
        self.late = False

    def listen(self, lines: Lines, progress: Progress) -> None:
        while True:
            until = min(self.work.until, time.monotonic() + self.work.hang_s)
            event = lines.next(until)
            if event is None:
                if lines.child.flooded:
                    self.died = "the measuring process printed too much and was stopped"
                elif lines.child.process.poll() is not None:
                    self.died = "the measuring process ended"
                else:
                    self.late = time.monotonic() >= self.work.until
                    self.hung = "the time allowed was over" if self.late else f"nothing moved for {self.work.hang_s:g} s"
                return
            if event["event"] == "end":
                return
            try:
                self._take(event, progress)
            except (KeyError, TypeError, ValueError):  # a library that prints lines of JSON of its own
                continue

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
        ways = (
            1 if self.work.backend == "gloo" and self.work.collective != "all_gather" else 2
        )  # in place and out of it
        return len(places) / max(1, ways * len(self.work.sizes) * groups)

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
        if self.late:  # it may have been about to end: no fault of the links
            return Measured(
                stopped="the run was not done when --timeout was over: allow more, or take fewer --sizes",
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
        rows = (
            event_rows([r for r in self.rows if r["task"] == "0.0"], work.collective, world) if not work.pairs else ()
        )
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
            self._pair(p["a"], p["b"], round(p["copy_gbs"], 1), "copy write", label)
            for p in self.proofs
            if p.get("copy_gbs")
        )

    def _pair(self, low: int, high: int, rate: float, what: str, label: str) -> PairRate:
        a, b = sorted((self.work.targets[low], self.work.targets[high]), key=lambda t: t.index)
        return PairRate(
            a=a.index, b=b.index, gbs=rate, what=what, a_bdf=a.bdf, b_bdf=b.bdf, a_name=a.name, b_name=b.name,
            path=CPU if a.on_cpu else None,
            origin={"*": Evidence(label, f"{what} between {a.label} and {b.label}", f"{rate:.4g} GB/s")},
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


def _words(failures: list[Failure], rows: tuple[BandwidthRow, ...]) -> str:
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
