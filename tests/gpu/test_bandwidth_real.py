"""`gpudoctor bandwidth` on real GPUs: what it must find, and that values which mean the default to NCCL change nothing.

Needs two NVIDIA GPUs (the search for a slow one: three) and PyTorch; skipped elsewhere, and never part of the default count.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.support import ROOT, report

pytestmark = pytest.mark.gpu
GPUS = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True).stdout.splitlines()) if shutil.which("nvidia-smi") else 0
needs_two = pytest.mark.skipif(GPUS < 2, reason=f"needs two NVIDIA GPUs, this host has {GPUS}")
needs_three = pytest.mark.skipif(GPUS < 3, reason=f"needs three NVIDIA GPUs, this host has {GPUS}")
# In-switch multicast stays off on shared hosts.
OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
BASE = ("bandwidth", "--engine", "torch", "--python", sys.executable, "--no-host-copies")


def measured(*words: str, **env: str) -> tuple[int, dict[str, Any]]:
    return report(*BASE, *words, env={**OFF, **env})


@needs_two
def test_the_setting_is_named_and_nccl_is_asked_what_it_expects_without_it() -> None:
    status, said = measured("--gpus", "2", NCCL_P2P_DISABLE="1")
    assert status == 1 and "NCCL_P2P_DISABLE=1 costs" in said["bandwidth"]["sentence"]
    graph = next(o for o in said["bandwidth"]["expected"] if o["kind"] == "graph")
    assert "a run without NCCL_P2P_DISABLE" in graph["words"] and graph["gbs"] > 2 * said["bandwidth"]["plateau_busbw_gbs"]


@needs_two
@pytest.mark.parametrize("name, value", [("NCCL_ALGO", "^"), ("NCCL_PROTO", ""), ("NCCL_P2P_LEVEL", ""), ("NCCL_TOPO_FILE", "/var/run/nvidia-topologyd/virtualTopology.xml"), ("NCCL_CTA_POLICY", "0"), ("NCCL_SYM_KERNEL", "^"), ("NCCL_NTHREADS", "")])
def test_a_value_that_means_the_default_changes_nothing(name: str, value: str) -> None:
    sizes = ("--gpus", "2", "--sizes", "1K,1M,16M,256M,1G", "--no-bisect", "--min-busbw", "0.001")
    _, plain = measured(*sizes)
    _, neutral = measured(*sizes, **{name: value})
    for before, after in zip(plain["facts"]["bandwidth"][0]["rows"], neutral["facts"]["bandwidth"][0]["rows"], strict=True):
        if before["size"] >= 1 << 20:
            assert after["busbw_out_gbs"] == pytest.approx(before["busbw_out_gbs"], rel=0.15), (name, before["size"])
    assert neutral["facts"]["nccl"][0]["failure"] is None


@needs_three
def test_a_slow_one_of_several_is_found_by_pairs() -> None:
    fault = {"SICK_RANK": json.dumps({"kind": "slow", "rank": 1, "seconds": 0.05}), "PYTHONPATH": f"{ROOT / 'tests' / 'sick_rank'}:{ROOT}"}
    status, said = measured("--gpus", "all", "--sizes", "64M,256M", "--min-busbw", "100000", **fault)
    search = said["bandwidth"]["pair_search"]
    assert status == 1 and search["slow"] == [[1]] and search["measured"] <= GPUS + 2
    assert any(d["cause"] == "pair-slow" for d in said["diagnoses"])
