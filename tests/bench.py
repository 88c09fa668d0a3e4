"""`make bench`: what gpudoctor costs, each figure beside its limit and beside what it is compared with, in one run.

Machines are noisy: commands run in turn (A B A B …), the median of each and the ratio of the medians are printed.
This prints, it never fails: a time is no test.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOST = ROOT / "fixtures" / "hosts" / "h100x8-nvswitch-healthy"
FAKES = ROOT / "tests" / "fakes" / "bin"
RUNS = 15


def wall(command: list[str], env: dict[str, str] | None = None) -> float:
    """Seconds of one run, whatever it answers."""
    # With byte code, as an installed program has it: compiling 200 modules anew is what no user waits for.
    given = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env={**given, **(env or {})})
    return time.perf_counter() - started


def compare(name: str, command: list[str], base_name: str, base: list[str], limit: float) -> None:
    """One row: medians of both in milliseconds, their ratio, the goal."""
    wall(command), wall(base)  # warm the caches once
    pairs = [(wall(command), wall(base)) for _ in range(RUNS)]
    mine = statistics.median(a for a, _ in pairs)
    other = statistics.median(b for _, b in pairs)
    ratio = mine / other
    print(f"{name:<44}{mine * 1e3:8.0f} ms   {base_name:<40}{other * 1e3:7.0f} ms   x{ratio:4.2f}   goal under x{limit:g}   {'met' if ratio < limit else 'MISSED'}")


def live() -> None:
    """A live check over fake tools against its own slowest probe, as its capture records it."""
    env = {"PATH": f"{FAKES}:{os.environ['PATH']}", "FAKE_HOST": str(HOST)}
    command = [sys.executable, "-m", "gpudoctor"]
    took, slowest, name = [], [], ""
    wall([*command, "check"], env)
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            wall([*command, "capture", "-o", f"{folder}/s"], env)
            probes = json.loads(Path(folder, "s", "manifest.json").read_text())["probes"]
        worst = max(probes, key=lambda p: p["seconds"] or 0)
        slowest.append(worst["seconds"])
        name = worst["id"]
        took.append(wall([*command, "check"], env))
    mine, probe = statistics.median(took), statistics.median(slowest)
    limit = 1.5 * probe + 0.15
    print(f"{'live check (fake tools)':<44}{mine * 1e3:8.0f} ms   {'slowest probe (' + name + ')':<40}{probe * 1e3:7.0f} ms           goal under {limit * 1e3:.0f} ms   {'met' if mine < limit else 'MISSED'}")


def stream() -> None:
    """Half a gigabyte of unrelated output: time, rate, and the peak memory of the process."""
    line = b"step 12345 loss 2.3456 lr 1.0e-4 tokens/s 123456 grad_norm 0.98\n"
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(500):
            file.write(line * ((1 << 20) // len(line)))
        file.flush()
        size = os.path.getsize(file.name)
        code = (
            "import resource,subprocess,sys;"
            "subprocess.run([sys.executable,'-m','gpudoctor','check','-q','--from',sys.argv[1]],stdout=subprocess.DEVNULL);"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code, file.name], capture_output=True, text=True, cwd=ROOT)
        took = time.perf_counter() - started
    print(f"{'500 MiB of unrelated lines':<44}{took * 1e3:8.0f} ms   {size / took / 1e6:.0f} MB/s, peak {int(done.stdout) / 1024:.0f} MiB")


def folder() -> None:
    """A log for each rank of a job, and the same lines in one file."""
    from tests.nccl_logs import job

    logs: dict[str, list[str]] = {}
    for line in job(1024):
        logs.setdefault(line.split(" ")[0], []).append(line + "\n")
    with tempfile.TemporaryDirectory() as within:
        for name, lines in logs.items():
            Path(within, f"{name}.log".replace(":", ".")).write_text("".join(lines))
        with tempfile.NamedTemporaryFile("w", suffix=".log") as whole:
            whole.writelines("".join(lines) for lines in logs.values())
            whole.flush()
            check = [sys.executable, "-m", "gpudoctor", "check", "-q", "--from"]
            compare(f"{len(logs)} logs of a job in a folder", [*check, within], "the same in one file", [*check, whole.name], 6)


def nccl() -> None:
    """NCCL logs made up by tests/nccl_logs.py (synthetic): rates beside `grep -c NCCL` on the same file, and peak memory.

    The rate on one core is of processor time, which neighbours on the machine disturb least; that of `grep` too;
    those by the clock compare one core with all of them.
    """
    from tests.nccl_logs import communicators, job, training

    def run(path: str, cores: int) -> tuple[float, float, int]:
        """Seconds of processor time and of the clock, and the peak memory of the largest process in KiB."""
        code = (
            "import os,resource,subprocess,sys;"
            "os.sched_setaffinity(0,sorted(os.sched_getaffinity(0))[:int(sys.argv[2])]);"
            "subprocess.run([sys.executable,'-m','gpudoctor','check','-q','--timeout','600','--from',sys.argv[1]],stdout=subprocess.DEVNULL);"
            "r=resource.getrusage(resource.RUSAGE_CHILDREN);print(r.ru_utime+r.ru_stime,r.ru_maxrss)"
        )
        given = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code, path, str(cores)], capture_output=True, text=True, cwd=ROOT, env=given)
        seconds, peak = done.stdout.split()
        return float(seconds), time.perf_counter() - started, int(peak)

    def split(path: str, cores: int) -> tuple[float, float]:
        """Processor time of the reading alone on so many cores: of the process that reads, and of its children together.

        The longer of the first and of all of it divided by the cores is what the clock would show on a machine at rest.
        """
        code = (
            "import os,resource,sys\n"
            "from gpudoctor.read.recognise import Recogniser\n"
            "from gpudoctor.read.source import open_path\n"
            "from gpudoctor.read.team import Team\n"
            "team=Team(after=0,members=int(sys.argv[2]))\n"
            "for _ in Recogniser('log',team=team).run(next(open_path(sys.argv[1])).chunks()): pass\n"
            "team.close()\n"
            "print(*(r.ru_utime+r.ru_stime for r in map(resource.getrusage,(resource.RUSAGE_SELF,resource.RUSAGE_CHILDREN))))"
        )
        done = subprocess.run([sys.executable, "-c", code, path, str(cores)], capture_output=True, text=True, cwd=ROOT, check=True)
        own, children = done.stdout.split()
        return float(own), float(children)

    def row(name: str, lines: Iterator[str], size: int, goal: float) -> None:
        with tempfile.NamedTemporaryFile(suffix=".log") as file:
            block = ("\n".join(lines) + "\n").encode()
            written = 0
            while written < size:
                written += file.write(block)
            file.flush()
            run(file.name, 1)  # compiles what has no byte code yet
            times = []
            for _ in range(3):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(["grep", "-c", "NCCL", file.name], capture_output=True)  # to /dev/null it would stop at the first
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                grep = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                alone, clock, peak = run(file.name, 1)
                _, shared, more = run(file.name, 64) if goal and (os.cpu_count() or 1) > 1 else (0.0, 0.0, 0)
                reading = []
                for members in (1, 2):
                    own, children = split(file.name, members) if goal else (0.0, 0.0)
                    reading.append(max(own, (own + children) / members))
                times.append((alone, clock, shared, max(peak, more), grep, *reading))
            alone, clock, shared, _, grep, one, two = (statistics.median(column) for column in zip(*times, strict=True))
            peak = max(t[3] for t in times) / 1024
            rate = written / alone / 1e6
            if not goal:
                print(f"{name:<44}{written >> 20:5d} MiB   peak {peak:4.0f} MiB   goal under 200 MiB   {'met' if peak < 200 else 'MISSED'}")
                return
            print(
                f"{name:<44}{written >> 20:5d} MiB {rate:7.0f} MB/s on one core   grep {written / grep / 1e6:6.0f} MB/s   goal {goal:.0f} MB/s   {'met' if rate >= goal else 'MISSED'}"
                f"   peak {peak:3.0f} MiB   reading alone {written / one / 1e6:.0f}, on two cores at rest {written / two / 1e6:.0f} MB/s"
                + (f"   by the clock {written / clock / 1e6:.0f}, on all cores {written / shared / 1e6:.0f} MB/s" if shared else "")
            )

    row("training output, one line in 20 NCCL's", training(job(256)), 300 << 20, 200)
    row("NCCL start alone, 256 ranks, 20 communicators", communicators(256, 20, channels=32), 100 << 20, 100)
    row("the same 256 ranks started over and over", job(256, channels=32), 100 << 20, 100)
    for ranks in (2, 16, 256, 4096):
        row(f"one job of {ranks} ranks, 32 channels", job(ranks, channels=32), 1, 0)


def main() -> None:
    python = sys.executable
    gpudoctor = [python, "-m", "gpudoctor"]
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {RUNS} runs each, medians")
    compare(
        "check --from (recorded 8-GPU host)",
        [*gpudoctor, "check", "--format", "json", "--from", str(HOST)],
        "import click, json, dataclasses",
        [python, "-c", "import click, json, dataclasses"],
        3,
    )
    compare("--help", [*gpudoctor, "--help"], "import click", [python, "-c", "import click"], 2)
    live()
    stream()
    folder()
    nccl()


if __name__ == "__main__":
    main()
