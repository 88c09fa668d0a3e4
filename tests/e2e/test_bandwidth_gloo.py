"""`gpudoctor bandwidth --backend gloo`: the PyTorch engine for real, on CPUs. What fails, fails on purpose."""

from __future__ import annotations

import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, gpudoctor, report, slugs

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: pip install torch"),
]
BASE = ("bandwidth", "--backend", "gloo", "--gpus", "2", "--python", sys.executable)
SMALL = ("--sizes", "8,64K,1M", "--min-busbw", "0.00001")


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Temporary files go where they can be counted, and every process of the run must be gone at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    assert wait_for(lambda: not workers(tmp_path)), workers(tmp_path)
    assert glob.glob(f"{tmp_path}/gpudoctor-*") == []
    assert glob.glob("/dev/shm/nccl-*") == []


def workers(tmp_path: Path) -> list[str]:
    """Measuring processes of this test: they have its TMPDIR in their environment."""
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            command = Path(folder, "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if "bench_worker.py" in command and str(tmp_path).encode() in Path(folder, "environ").read_bytes():
                found.append(f"{folder}: {command}")
        except OSError:
            continue
    return found


def wait_for(condition: Any, seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def fault(**what: object) -> dict[str, str]:
    """The environment in which one rank fails on purpose."""
    return {"SICK_RANK": json.dumps(what), "PYTHONPATH": f"{ROOT / 'tests' / 'sick_rank'}:{ROOT}"}


def test_two_processes_measure_and_the_rates_follow_from_the_times() -> None:
    status, said = report(*BASE, *SMALL)
    (run,) = said["facts"]["bandwidth"]
    assert (status, said["verdict"], run["nranks"], run["collective"], run["engine"]) == (0, "pass", 2, "all_reduce", "pytorch")
    assert [row["size"] for row in run["rows"]] == [8, 65536, 1 << 20]
    for row in run["rows"]:
        # Two ranks: the factor of all_reduce is 1, so busbw is size over time.
        assert row["busbw_in_gbs"] == pytest.approx(row["size"] / row["time_in_us"] / 1e3, rel=1e-3)
        assert row["wrong_in"] == 0 and row["busbw_out_gbs"] is None
    assert run["completed"] and run["wrong"] is False and run["backend"] == "gloo"
    own = said["bandwidth"]
    assert own["engine"] == "pytorch" and "PyTorch" in own["program"] and own["ranks"] == 2 and own["gpus"] == []
    assert own["spread_pct"] is not None and own["plateau_busbw_gbs"] == run["plateau_busbw_gbs"]


def test_without_a_limit_a_run_on_cpus_cannot_be_judged() -> None:
    status, said = report(*BASE, "--sizes", "8,1M")
    assert (status, said["verdict"]) == (3, "unknown")
    assert said["facts"]["bandwidth"][0]["completed"]
    assert "CPUs" in said["missing"][0]["reason"]


def test_a_limit_above_what_is_reached_is_an_error_and_is_looked_into() -> None:
    status, said = report(*BASE, "--sizes", "8,64K,1M", "--min-busbw", "100000")
    assert status == 1 and "busbw-low" in slugs(said, "error")
    assert [t["what"] for t in said["bandwidth"]["trials"]] == ["every CPU of this host allowed"]
    status, said = report(*BASE, "--sizes", "1M", "--min-busbw", "100000", "--no-bisect")
    assert status == 1 and said["bandwidth"]["trials"] == []


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "alltoall", "sendrecv"])
def test_every_collective_gives_right_results(collective: str) -> None:
    status, said = report(*BASE, *SMALL, "--collective", collective)
    (run,) = said["facts"]["bandwidth"]
    assert status == 0 and run["wrong"] is False and run["completed"]
    last = run["rows"][-1]
    share = 1.0 if collective == "sendrecv" else 0.5
    assert last["busbw_out_gbs"] == pytest.approx(share * last["size"] / last["time_out_us"] / 1e3, rel=1e-3)


def test_a_hang_is_a_finding_and_everything_is_ended() -> None:
    status, said = report(*BASE, *SMALL, "--hang-after", "3", env=fault(kind="hang", rank=1, size=65536))
    assert status == 1 and slugs(said, "error") == {"bandwidth-failed"}
    (run,) = said["facts"]["bandwidth"]
    assert not run["completed"] and "hung" in run["failures"][0] and "all_reduce of 65536 bytes" in run["failures"][0]
    assert [row["size"] for row in run["rows"]] == [8]


def test_a_crash_of_one_rank_is_named_and_its_echo_is_not_the_cause() -> None:
    status, said = report(*BASE, *SMALL, env=fault(kind="crash", rank=1, size=65536))
    assert status == 1 and slugs(said, "error") == {"bandwidth-failed"}
    (run,) = said["facts"]["bandwidth"]
    assert run["failures"] == ["rank 1 was ended by SIGSEGV, all_reduce of 65536 bytes"]


def test_an_error_of_one_rank_ends_the_other() -> None:
    status, said = report(*BASE, *SMALL, env=fault(kind="raise", rank=0, size=8))
    assert status == 1
    assert "rank 0, all_reduce of 8 bytes: raised on purpose" in said["facts"]["bandwidth"][0]["failures"][0]


def test_wrong_data_is_found_at_the_sizes_that_have_it() -> None:
    status, said = report(*BASE, *SMALL, env=fault(kind="wrong", rank=1, size=65536))
    assert status == 1 and slugs(said, "error") == {"wrong-results"}
    (run,) = said["facts"]["bandwidth"]
    assert [row["wrong_in"] for row in run["rows"]] == [0, 1, 1] and run["wrong"] is True


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_however_it_is_stopped_no_process_stays(tmp_path: Path, number: int, status: int) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **fault(kind="hang", rank=1, size=8)}
    process = subprocess.Popen([sys.executable, "-m", "gpudoctor", *BASE, *SMALL], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert wait_for(lambda: len(workers(tmp_path)) == 3)  # the one that imported PyTorch, and two ranks
    time.sleep(0.3)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == status and out == b"" and b"Traceback" not in err
    assert wait_for(lambda: not workers(tmp_path))
    if number == signal.SIGKILL:  # nobody was left to tidy up
        for folder in glob.glob(f"{tmp_path}/gpudoctor-*"):
            subprocess.run(("rm", "-r", folder), check=True)


def test_a_busy_port_does_not_matter() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        status, said = report(*BASE, *SMALL, env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    assert status == 0 and said["facts"]["bandwidth"][0]["completed"]


def test_every_pair_of_three_is_measured_alone() -> None:
    status, said = report("bandwidth", "--backend", "gloo", "--gpus", "3", "--python", sys.executable, *SMALL, "--pairs", "--sizes", "1M")
    assert status in (0, 1)  # three busy processes on a small machine may differ by much
    assert sorted((p["a"], p["b"]) for p in said["facts"]["pair_bandwidth"]) == [(0, 1), (0, 2), (1, 2)]


def test_after_a_miss_the_slow_one_of_four_is_found_in_a_few_pairs() -> None:
    four = ("bandwidth", "--backend", "gloo", "--gpus", "4", "--python", sys.executable, "--sizes", "1M", "--min-busbw", "100000")
    status, said = report(*four, env=fault(kind="slow", rank=2, seconds=0.2))
    assert status == 1 and said["bandwidth"]["pair_search"]["slow"] == [[2]]
    assert said["bandwidth"]["pair_search"]["measured"] == 4
    first = said["diagnoses"][0]
    assert (first["cause"], first["subject"]) == ("pair-slow", "rank:2") and "busbw-low" in first["explains"]
    # The pair of ranks 0 and 3 alone is slow: neither of them is blamed.
    status, said = report(*four, env=fault(kind="slow", rank=3, pair=0, seconds=0.4))
    assert status == 1 and said["bandwidth"]["pair_search"]["slow"] == [[0, 3]]
    assert said["diagnoses"][0]["subject"] == "pair:0-3"


def test_the_table_and_the_verdict_line() -> None:
    done = gpudoctor(*BASE, *SMALL)
    text = done.stdout.decode()
    assert done.returncode == 0 and done.stderr == b""
    assert text.splitlines()[0].startswith("gpudoctor") and "PASS" in text and "plateau" in text
    quiet = gpudoctor(*BASE, *SMALL, "-q").stdout.decode()
    assert quiet.startswith("PASS ") and quiet.count("\n") == 1


def test_a_python_without_pytorch_is_named_with_the_command_that_helps(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    status, said = report("bandwidth", "--backend", "gloo", "--gpus", "2", "--python", str(bare))
    assert status == 3 and f"{bare} -m pip install torch" in said["missing"][0]["reason"]


def test_a_baseline_is_saved_and_compared_with(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    status, said = report(*BASE, *SMALL, "--save-baseline", str(file))
    assert status == 0 and file.exists(), said["bandwidth"]["notes"]
    saved = json.loads(file.read_text())
    saved[0]["points"] = [[size, 1e6] for size, _ in saved[0]["points"]]
    file.write_text(json.dumps(saved))
    status, said = report(*BASE, "--sizes", "8,64K,1M", "--baseline", str(file), "--no-bisect")
    assert status == 1 and "busbw-low" in slugs(said, "error")


def test_a_host_with_errors_saves_no_baseline(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    status, said = report(*BASE, *SMALL, "--save-baseline", str(file), env=fault(kind="wrong", rank=0, size=8))
    assert status == 1 and not file.exists() and any("was not written" in n for n in said["bandwidth"]["notes"])
