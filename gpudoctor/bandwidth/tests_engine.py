"""The nccl-tests engine: runs `all_reduce_perf` or a sibling and leaves reading its output to the parser."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from glob import escape, glob

from gpudoctor.bandwidth.guard import MOST_OUTPUT, Child
from gpudoctor.bandwidth.torch_engine import LOG_MOST, SUBSYSTEMS
from gpudoctor.bandwidth.work import CannotStart, Measured, Progress, Target, Work
from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRun, Failure, PairRate
from gpudoctor.model import Evidence
from gpudoctor.record import replace

_SUFFIX = "_perf"
_HELP_S = 15.0
_SLOWER = 12  # a size may take this many times the one before it until it counts as hanging
_CANNOT = re.compile(r"error while loading shared libraries: [^\n]*|no CUDA-capable device is detected[^\n]*")
_LONG = re.compile(rb"[^\n]{65536}[^\n]*")
_LATE = "the time allowed was over"
_FLOOD = f"its output passed {MOST_OUTPUT >> 20} MiB"
# What an exit status means (nccl-tests src/common.h, testResult_t of 2.17.3 and later; before, 1 was every failure).
_STATUSES = {
    1: "an error of its own, or (before 2.17.3) wrong values", 2: "a CUDA error", 3: "an NCCL error", 4: "its own timeout",
    5: "not implemented", 6: "wrong usage", 7: "wrong values or a missed NCCL_TESTS_MIN_BW",
}  # fmt: skip


class TestsEngine:
    """nccl-tests as a user would run it: one process for all GPUs."""

    __test__ = False  # not a test class
    name = "nccl-tests"

    def __init__(self, programs: str, environ: Mapping[str, str], folder: str) -> None:
        self.programs = programs
        self.environ = dict(environ)
        self.folder = folder
        self.json = False
        self.runs = 0

    def start(self, until: float) -> None:
        """Learn whether it can write JSON (-J, 2.17.3 and later), without touching a GPU."""
        program = _program(self.programs, "all_reduce")
        if program is None:
            raise CannotStart(f"{self.programs}: no all_reduce{_SUFFIX} in it")
        status, out, _ = self._output((program, "-h"), self.environ, min(until, time.monotonic() + _HELP_S), None)
        said = _CANNOT.search(out)
        if said is not None:
            raise CannotStart(f"{program}: {said[0].strip()}")
        if status is None:
            raise CannotStart(f"{program} -h did not answer in {_HELP_S:g} s")
        self.json = "output_file" in out or re.search(r"\[-J\b", out) is not None

    def close(self) -> None:
        """Nothing is kept running between two runs."""

    def run(self, work: Work, progress: Progress) -> Measured:
        began = time.monotonic()
        if work.pairs:
            return self._pairs(work, progress, began)
        measured = self._once(work, work.targets, work.sizes, progress)
        if measured.run is None or measured.run.failures or not measured.run.rows or work.repeats < 2:
            return replace(measured, seconds=time.monotonic() - began)
        plateaus = [measured.run.plateau_busbw_gbs]
        level = tuple(row.size for row in measured.run.level())
        runs = [measured.run]
        for repeat in range(1, work.repeats):
            if not level or time.monotonic() - began > work.seconds:
                break
            progress(f"repeat {repeat + 1} of the large sizes", repeat / work.repeats)
            again = self._once(work, work.targets, level, progress)
            if again.run is not None and again.run.rows and not again.run.failures:
                plateaus.append(again.run.plateau_busbw_gbs)
                runs.append(again.run)
        known = sorted(p for p in plateaus if p)
        spread = round(100 * (known[-1] - known[0]) / known[len(known) // 2], 2) if len(known) > 1 else None
        middle = sorted(runs, key=lambda r: r.plateau_busbw_gbs or 0)[len(runs) // 2]
        return replace(measured, run=_with_level(runs[0], middle), spread_pct=spread, seconds=time.monotonic() - began)

    def _pairs(self, work: Work, progress: Progress, began: float) -> Measured:
        """One pair after the other: two programs at once would each time the start of the other."""
        rates: list[PairRate] = []
        logs, notes, last = [], [], None
        every = [pair for some in work.pairs for pair in some]
        for place, (low, high) in enumerate(every):
            a, b = work.targets[low], work.targets[high]
            progress(f"pair {a.index}-{b.index}", place / len(every))
            last = self._once(work, (a, b), work.sizes, progress)
            if last.stopped is not None:
                return last
            logs.append(last.log)
            rate = last.run.plateau_busbw_gbs if last.run is not None else None
            if last.run is None or rate is None:
                notes.append(f"pair {a.index}-{b.index} could not be measured: {_first(last.run)}")
                continue
            rates.append(
                PairRate(
                    a=a.index, b=b.index, gbs=rate, what=f"{work.collective} busbw", a_bdf=a.bdf, b_bdf=b.bdf, a_name=a.name, b_name=b.name,
                    origin={"*": Evidence(last.engine, f"{work.collective} of GPU{a.index} and GPU{b.index}", f"{rate:.1f} GB/s")},
                )  # fmt: skip
            )
        engine = last.engine if last is not None else self.name
        return Measured(
            pairs=tuple(rates), log=b"".join(logs), notes=tuple(notes), engine=engine, seconds=time.monotonic() - began
        )

    def _once(self, work: Work, targets: Sequence[Target], sizes: Sequence[int], progress: Progress) -> Measured:
        program = _program(self.programs, work.collective)
        if program is None:
            return Measured(stopped=f"{self.programs}: no {work.collective}{_SUFFIX} in it")
        self.runs += 1
        base = os.path.join(self.folder, f"tests-{self.runs}")
        factor = _factor(sizes)
        argv = [program, "-b", str(_first_size(sizes, factor)), "-e", str(max(sizes)), "-f", str(factor), "-g", str(len(targets))]
        argv += ["-c", "1", "-n", str(work.rounds), "-w", "5"]
        shown = " ".join((os.path.basename(program), *argv[1:]))
        argv += ("-J", f"{base}.json") if self.json else ()
        env = {k: v for k, v in self.environ.items() if k not in work.unset}
        env.update(work.set)
        env.update(
            CUDA_DEVICE_ORDER="PCI_BUS_ID", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS=SUBSYSTEMS, NCCL_DEBUG_FILE=f"{base}-%p.log"
        )  # fmt: skip
        if all(t.uuid for t in targets):
            env["CUDA_VISIBLE_DEVICES"] = ",".join(str(t.uuid) for t in targets)
        elif "CUDA_VISIBLE_DEVICES" not in self.environ:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(str(t.index) for t in targets)
        limit = work.until
        status, out, hung = self._output(
            argv,
            env,
            limit,
            work.hang_s,
            lambda text: progress(_doing(text), _rows(text) / max(1, len(sizes))),
            work.all_cpus,
        )
        log = b"".join(_contents(path) for path in sorted(glob(f"{escape(base)}-*.log")))
        said = _CANNOT.search(out)
        if status is None and hung is None or said is not None or status == 127:
            return Measured(stopped=f"{program}: {said[0].strip() if said else 'could not be started'}", engine=self.name)
        if hung == _LATE:  # it may have been about to end: no fault of the links
            return Measured(
                stopped=f"{shown} was not done when --timeout was over: allow more, or take fewer --sizes", engine=self.name
            )
        run = self._read(out, f"{base}.json", shown, targets)
        failures = list(run.failures)
        if hung == _FLOOD:
            failures.insert(0, Failure(kind="exit", text=f"the run was stopped: {hung}"))
        elif hung is not None:
            last = [x for x in log.decode("utf-8", "replace").splitlines() if "NCCL" in x][-1:] or [""]
            words = f"the run hung and was stopped: {hung}." + (
                f" NCCL's last line: {last[0].strip()[:300]}" if last[0] else ""
            )
            failures.insert(0, Failure(kind="timeout", text=words))
        elif status and not failures and not run.wrong and not run.below_minimum:
            words = f"ended by signal {-status}" if status < 0 else f"exit status {status}, {_STATUSES.get(status, 'unknown')}"
            failures.append(Failure(kind="exit", text=words, status=status))
        run = replace(
            run,
            program=os.path.basename(program),
            collective=work.collective,
            nranks=run.nranks or len(targets),
            failures=tuple(failures),
            exit_status=status,
            completed=run.completed and hung is None and not failures,
            settings=work.settings,
        )
        version = f" {run.tests_version}" if run.tests_version else ""
        nccl = f", NCCL {run.nccl_version}" if run.nccl_version else ""
        return Measured(run=run, log=log, engine=f"nccl-tests{version}{nccl} ({program})")

    def _read(self, out: str, json_path: str, source: str, targets: Sequence[Target]) -> BandwidthRun:
        """The run as the parsers see it: the text, which has the devices and every failure."""
        from gpudoctor.ingest import take
        from gpudoctor.read.source import Document

        text = _contents(json_path) if self.json and os.path.exists(json_path) else b""
        for content in (text, out.encode()):
            if not content:
                continue
            intake = take(sources=[Document(name=source, chunks=lambda content=content: iter((content,)))])  # type: ignore[misc]
            runs = [run for store in intake.stores for run in store.get(Bandwidth) or ()]
            if runs and (runs[0].rows or content is not text):
                members = tuple(
                    replace(m, device=t.index, bdf=t.bdf or m.bdf)
                    for m, t in zip(runs[0].members, targets, strict=False)
                )  # the program's numbers are those of the GPUs it was shown
                return replace(runs[0], members=members)
        words = out.strip().splitlines()[-1:] or ["it printed nothing"]
        return BandwidthRun(origin={"*": Evidence(source, "output", words[0][:300])})

    def _output(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        until: float,
        hang_s: float | None,
        heard: Callable[[str], None] | None = None,
        all_cpus: bool = False,
    ) -> tuple[int | None, str, str | None]:
        """(exit status, both outputs, why it was stopped). Status None without a reason: it could not be started."""
        words = (
            ("taskset", "-c", f"0-{(os.cpu_count() or 1) - 1}", *argv)
            if all_cpus and shutil.which("taskset")
            else tuple(argv)
        )
        try:
            child = Child(words, env, folder=self.folder)
        except OSError as error:
            return None, error.strerror or str(error), None
        out = bytearray()
        why: str | None = None
        quiet_s = 0.0  # between the last two signs of life: the next size takes longer by the factor of the sizes
        try:
            while True:
                began = time.monotonic()
                allowed = until - began if hang_s is None else max(hang_s, _SLOWER * quiet_s)
                part = child.read(min(until, began + allowed))
                quiet_s = time.monotonic() - began
                if part is None:
                    why = (
                        _LATE
                        if time.monotonic() >= until
                        else f"nothing moved for {allowed:.0f} s"
                    )
                    break
                if not part:
                    why = _FLOOD if child.flooded else None
                    break
                out += part
                if heard is not None:
                    heard(out[-2000:].decode("utf-8", "replace"))
            status = child.wait(5.0) if why is None else None
            errors = child.errors()
        finally:
            child.kill()
        return status, _LONG.sub(b"[a line too long to be one of the table]", out).decode("utf-8", "replace") + "\n" + errors, why


def find(named: str | None, environ: Mapping[str, str]) -> str | None:
    """The folder of the programs: as named, NCCL_TESTS_HOME (with or without build/), PATH. CannotStart for a wrong name."""
    if named is not None:
        for folder in (named, os.path.join(named, "build")):
            if _program(folder, "all_reduce"):
                return folder
        raise CannotStart(f"--nccl-tests {named}: no all_reduce{_SUFFIX} in it or in its build folder. Build it:  make -C {named}")
    home = environ.get("NCCL_TESTS_HOME")
    for folder in ((home, os.path.join(home, "build")) if home else ()):
        if _program(folder, "all_reduce"):
            return folder
    path = shutil.which(f"all_reduce{_SUFFIX}", path=environ.get("PATH"))
    return os.path.dirname(os.path.abspath(path)) if path else None


def _program(folder: str, collective: str) -> str | None:
    path = os.path.join(folder, collective + _SUFFIX)
    return os.path.abspath(path) if os.access(path, os.X_OK) and os.path.isfile(path) else None


def _factor(sizes: Sequence[int]) -> int:
    """nccl-tests goes from one size to another by a factor: the one between the largest two of ours."""
    ordered = sorted(sizes)
    return max(2, ordered[-1] // ordered[-2]) if len(ordered) > 1 else 2


def _first_size(sizes: Sequence[int], factor: int) -> int:
    """Where it must begin so that the largest size is one of its steps."""
    first = max(sizes)
    while first // factor >= min(sizes):
        first //= factor
    return first


def _rows(text: str) -> int:
    return len(re.findall(r"^\s*\d+\s+\d+\s+\w+\s", text, re.M))


def _doing(text: str) -> str:
    found = re.findall(r"^\s*(\d+)\s+\d+\s+\w+\s", text, re.M)
    return f"{found[-1]} bytes" if found else "starting nccl-tests"


def _contents(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(LOG_MOST)
    except OSError:
        return b""


def _first(run: BandwidthRun | None) -> str:
    return run.failures[0].text if run is not None and run.failures else "no rows of large sizes"


def _with_level(whole: BandwidthRun, middle: BandwidthRun) -> BandwidthRun:
    """The whole table, with the large sizes of the run in the middle."""
    better = {row.size: row for row in middle.rows}
    return replace(whole, rows=tuple(better.get(row.size, row) for row in whole.rows))
