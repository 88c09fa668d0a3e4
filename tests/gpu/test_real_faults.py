"""Real all-reduces over two GPUs under settings and faults, and what gpudoctor says of each log.

Needs two NVIDIA GPUs and PyTorch; skipped elsewhere, and never part of the default count. With GPUDOCTOR_KEEP=DIR the
logs stay there, to become fixtures.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.gpu
HERE = Path(__file__).resolve().parent
GPUS = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True).stdout.splitlines()) if shutil.which("nvidia-smi") else 0
needs_two = pytest.mark.skipif(GPUS < 2, reason=f"needs two NVIDIA GPUs, this host has {GPUS}")

# name -> (mode of the ranks, environment of all, environment of rank 1 only, run in a small /dev/shm)
RUNS: dict[str, tuple[str, dict[str, str], dict[str, str], bool]] = {
    "healthy": ("plain", {}, {}, False),
    "all-subsystems": ("plain", {"NCCL_DEBUG_SUBSYS": "ALL"}, {}, False),
    "p2p-off": ("plain", {"NCCL_P2P_DISABLE": "1"}, {}, False),
    "p2p-level-loc": ("plain", {"NCCL_P2P_LEVEL": "LOC"}, {}, False),
    "p2p-and-shm-off": ("plain", {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, {}, False),
    "small-shm": ("plain", {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"}, {}, True),
    "no-such-interface": ("plain", {"NCCL_SOCKET_IFNAME": "doesnotexist0"}, {}, False),
    "two-ranks-on-one-gpu": ("same-gpu", {}, {}, False),
    "rank-absent": ("absent", {}, {}, False),
    "rank-left-out": ("left-out", {"TORCH_FR_BUFFER_SIZE": "2000"}, {}, False),
    "other-size": ("other-size", {}, {}, False),
    "other-order": ("other-order", {"TORCH_FR_BUFFER_SIZE": "2000"}, {}, False),
    "killed-over-p2p": ("killed", {}, {}, False),
    "killed-over-sockets": ("killed", {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, {}, False),
    "other-settings": ("plain", {}, {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}, False),
    "hidden-gpu": ("plain", {"CUDA_VISIBLE_DEVICES": "0"}, {}, False),
}


def run(name: str) -> str:
    """Both ranks' output, each line as torchrun would label it."""
    mode, common, second, small = RUNS[name]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in (0, 1):
        env = {**os.environ, "NCCL_DEBUG": "INFO", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONUNBUFFERED": "1", **common, **(second if rank else {})}
        command = [sys.executable, str(HERE / "allreduce.py"), mode]
        if small:
            command = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=512k none /dev/shm && exec "$@"', "sh", *command]
        out = tempfile.TemporaryFile()  # a pipe that nobody reads would stop a rank that prints much
        children.append((subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True), out))
    texts = []
    for rank, (child, out) in enumerate(children):
        try:
            child.wait(timeout=75)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        out.seek(0)
        texts.append("".join(f"[rank{rank}]:{line}" for line in out.read().decode(errors="replace").splitlines(True)))
    text = "".join(texts)
    keep = os.environ.get("GPUDOCTOR_KEEP")
    if keep:
        Path(keep, f"{name}.log").write_text(text)
    return text


def judged(text: str) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "gpudoctor", "check", "--format", "json", "--from", "-"],
        input=text.encode(),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])},
    )
    assert b"Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


EXPECTED = {
    "healthy": (0, None),
    "all-subsystems": (0, None),
    "p2p-off": (None, "p2p-disabled-env"),
    "p2p-level-loc": (None, "p2p-disabled-env"),
    "p2p-and-shm-off": (1, "p2p-disabled-env"),
    "small-shm": (1, "shm"),
    "no-such-interface": (1, "no-interface"),
    "two-ranks-on-one-gpu": (1, "duplicate-gpu"),
    "rank-absent": (1, "collective-timeout"),
    "rank-left-out": (1, "collective-timeout"),
    "other-size": (None, None),  # NCCL says nothing: whether it hangs depends on the transport
    "other-order": (1, "collective-timeout"),
    "killed-over-p2p": (1, "collective-timeout"),
    "killed-over-sockets": (1, "peer-died"),
    "other-settings": (1, "rank-mismatch"),
    "hidden-gpu": (1, "gpu-not-visible"),
}


@needs_two
@pytest.mark.parametrize("name", RUNS)
def test_named(name):
    status, cause = EXPECTED[name]
    got, report = judged(run(name))
    said = {d["cause"] for d in report["diagnoses"]} | {e for d in report["diagnoses"] for e in d["explains"]}
    assert status is None or got == status, said
    assert cause is None or cause in said
    if status == 0:
        assert not [d for d in report["diagnoses"] if d["severity"] != "note"]


@needs_two
def test_this_host_is_healthy():
    done = subprocess.run([sys.executable, "-m", "gpudoctor", "check", "--format", "json"], capture_output=True)
    report = json.loads(done.stdout)
    assert done.returncode == 0, [d["summary"] for d in report["diagnoses"]]
    assert len(report["facts"]["gpus"]) == GPUS and all(p["path"] for p in report["facts"]["pairs"])
