"""What gpudoctor's own child probes print on a made-up host (synthetic)."""

from __future__ import annotations

import copy
import json
from typing import Any

from gpudoctor.cpulist import parse
from tests.hosts.outputs import Gpu, Spec

_ANCESTOR = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
_STATUS = {"OK": 0, "CNS": 1, "GNS": 2, "TNS": 3, "DR": 4, "NS": 5}


def nvml_json(spec: Spec) -> str:
    answer = {
        "probe": "gpudoctor.nvml",
        "schema": 1,
        "driver_version": spec.driver,
        "nvml_version": f"12.{spec.driver}",
        "cuda_version": int(spec.cuda.split(".")[0]) * 1000 + int(spec.cuda.split(".")[1]) * 10,
        "count": len(spec.gpus),
        "gpus": [_gpu(spec, g, i) for i, g in enumerate(spec.gpus)],
        "skipped": [],
        "pairs": [_pair(spec, a, b) for a in range(len(spec.gpus)) for b in range(a + 1, len(spec.gpus))],
        "errors": {},
    }
    return json.dumps(answer) + "\n"


def _gpu(spec: Spec, gpu: Gpu, index: int) -> dict[str, Any]:
    dev = gpu.dev
    port = next((d for d in spec.devices if d.bdf == dev.parent), None)
    reading = {"generation": dev.gen, "width": dev.width, "utilisation_pct": gpu.util, "tx_bytes": None, "rx_bytes": None}
    out: dict[str, Any] = {
        "index": index,
        "errors": {},
        "samples": [{**reading, "at_s": 100.0 + 0.03 * n} for n in range(3)],
        "name": dev.name,
        "uuid": gpu.uuid,
        "minor": index if gpu.minor is None else gpu.minor,
        "bus_id": gpu.long_bdf,
        "pci_device_id": int(dev.device + "10de", 16),
        "pci_subsystem_id": int("".join(reversed(dev.subsystem.split(":"))), 16),
        "pcie_max_generation": min(dev.max_gen, port.max_gen) if port else dev.max_gen,
        "pcie_gpu_max_generation": dev.max_gen,
        "pcie_max_width": dev.max_width,
        "pcie_replays": 0,
        "performance_state": 0 if gpu.util else 8,
        "persistence": 1,
        "display_active": 0,
        "utilisation_pct": gpu.util,
        "fb_bytes": gpu.fb_mib << 20,
        "bar1_bytes": dev.bar1_mib << 20,
        "mig_mode": 0,
        "virtualization_mode": 0,
        "clocks_event_reasons": 0 if gpu.util else 1,
        "power_limit_mw": gpu.power_w * 1000,
        "power_default_mw": gpu.power_w * 1000,
        "power_max_mw": gpu.power_w * 1000,
        "cpu_affinity": _words(gpu.cpus),
        "nvlink_count": len(gpu.links) or None,
        "nvlinks": [
            {"link": n, "active": int(s is not None), "state": int(s is not None), "speed_mbs": s and int(s * 1000)}
            for n, s in enumerate(gpu.links)
        ]
        or None,
    }
    if spec.fabric == "Completed":
        out["fabric"] = {"state": 3, "status": 0, "clique_id": 0, "health_mask": 0}
    return out


def _words(cpus: str) -> list[int]:
    numbers = parse(cpus) or frozenset()
    return [sum(1 << n - 64 * w for n in numbers if n // 64 == w) for w in range(max(numbers, default=0) // 64 + 1)]


def _pair(spec: Spec, a: int, b: int) -> dict[str, Any]:
    cell = spec.paths[a, b]
    linked = cell.startswith("NV")
    status = _STATUS[spec.p2p.get((a, b), "OK")]
    return {
        "a": a,
        "b": b,
        "ancestor": 50 if linked else _ANCESTOR[cell],
        "read": [status, status],
        "write": [status, status],
        "nvlink": [0, 0] if linked else [5, 5],
        "atomics": [0, 0] if linked else [5, 5],
    }


def system_json(spec: Spec) -> str:
    cpus = sorted(set().union(*(parse(c) or frozenset() for c in spec.nodes.values())))
    online = f"0-{cpus[-1]}"
    answer: dict[str, Any] = {
        "probe": "gpudoctor.system",
        "schema": 1,
        "machine": {
            "hostname": "node07",
            "kernel": "6.8.0-45-generic",
            "version": "Linux version 6.8.0-45-generic",
            "cmdline": "",
            "uptime": "864000.00 20000000.00",
            "uid": 1000,
            "sys_vendor": "synthetic",
            "product_name": spec.name,
            "hypervisor_type": None,
        },
        "container": {"marks": [], "variables": [], "cgroups": [], "systemd": None},
        "processor": {
            "first": {"vendor_id": "AuthenticAMD", "model name": "AMD EPYC 9354", "cpu family": "25", "model": "17"},
            "hypervisor_flag": False,
            "sockets": len(spec.nodes),
            "architecture": "x86_64",
            "online": online,
        },
        "numa": {str(n): {"cpus": c, "memory_kib": 256 << 20} for n, c in spec.nodes.items()},
        "affinity": {"cpus": cpus, "status": {"Cpus_allowed_list": online, "Mems_allowed_list": "0"}, "cpuset_cpus": online},
        "limits": {"memlock": -1, "stack": 8388608},
        "shm": {
            "exists": True,
            "mount": {"type": "tmpfs", "options": "rw,nosuid,nodev"},
            "writable": True,
            "size_bytes": 128 << 30,
            "free_bytes": 128 << 30,
        },
        "modules": {"nvidia": spec.driver, "nvidia_uvm": spec.driver},
        "driver": {
            "version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {spec.driver}  Release Build",
            "gpus": [g.dev.bdf for g in spec.gpus],
            "switches": [],
            "persistenced": True,
        },
        "nodes": {"gpus": {str(i if g.minor is None else g.minor): True for i, g in enumerate(spec.gpus)}, "control": True, "uvm": True, "switches": 0, "imex_channels": 0},
        "environment": {},
        "settings_files": {},
        "fabric_manager": {"binary": spec.fabric is not None, "package_version": None},
        "distributions": {"nvidia-ml-py": "12.570.86"},
        "failed": {},
    }
    return json.dumps(_over(answer, spec.system)) + "\n"


def _over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    out = copy.deepcopy(base)
    for key, value in changes.items():
        out[key] = _over(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) and value else value
    return out
