"""The GPU processes now running, as one line of JSON: binding, allowed environment, GPUs held, their own /dev/shm.

Which processes: NVML's list, and every process that holds /dev/nvidia-uvm and a GPU's node open (inside a container NVML
often lists none). What this user may not read of a process stays null, with the reason.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from typing import Any

process: Any = importlib.import_module("process")  # beside this file
NODE = re.compile(r"^/dev/nvidia(\d+)$")
MOST = 256  # processes described; a host with more is not understood better by the rest
BUDGET_S = 8.0
PROC = "/proc"


def from_nvml() -> tuple[dict[int, set[str]], str | None]:
    """Process id -> addresses of the GPUs it computes on; and why this list is not there."""
    found: dict[int, set[str]] = {}
    try:
        import pynvml as nvml
    except ImportError:
        return found, "pynvml is not installed (pip install nvidia-ml-py)"
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except Exception as error:
        return found, f"NVML: {str(error)[:200]}"
    problem = None
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            bus = nvml.nvmlDeviceGetPciInfo(handle).busId
            for user in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                address = bus.decode() if isinstance(bus, bytes) else str(bus)
                found.setdefault(int(user.pid), set()).add(address)
        except Exception as error:  # a lost GPU must not hide the jobs on the others
            problem = f"GPU {index}: {str(error)[:200]}"
    return found, problem


def open_nodes(pid: int) -> tuple[set[int], bool] | None:
    """Minor numbers of the GPUs whose nodes the process holds open, and whether it holds UVM; None: may not be read."""
    base = f"{PROC}/{pid}/fd"
    minors, uvm = set(), False
    try:
        names = os.listdir(base)
    except OSError:
        return None
    for name in names:
        try:
            path = os.readlink(f"{base}/{name}")
        except OSError:
            continue
        node = NODE.match(path)
        if node:
            minors.add(int(node[1]))
        uvm = uvm or path == "/dev/nvidia-uvm"
    return minors, uvm


def minor_addresses() -> dict[str, str]:
    """Minor number -> PCI address, from the driver's own table."""
    base = f"{PROC}/driver/nvidia/gpus"
    out: dict[str, str] = {}
    try:
        names = os.listdir(base)
    except OSError:
        return out
    for address in names:
        minor = re.search(r"^Device Minor:\s*(\d+)", process.read(f"{base}/{address}/information") or "", re.M)
        if minor:
            out[minor[1]] = address
    return out


def sibling(pid: int) -> bool:
    """Is it another probe of the gpudoctor that started us? They run at the same time and open the GPUs as well."""
    rest = (process.read(f"{PROC}/{pid}/stat") or "").rpartition(")")[2].split()
    return len(rest) > 1 and rest[1] == str(os.getppid())


def scan(until: float) -> dict[int, tuple[set[int], bool]]:
    """Every process whose open files may be read and that computes with CUDA, but for the probes running beside us."""
    out = {}
    for name in os.listdir(PROC):
        if time.monotonic() > until:
            break
        if name.isdigit() and int(name) != os.getpid():
            held = open_nodes(int(name))
            if held is not None and held[0] and held[1] and not sibling(int(name)):
                out[int(name)] = held
    return out


def environment(pid: int) -> dict[str, str] | None:
    """Its variables, allowed names only; None: may not be read."""
    text = process.read(f"{PROC}/{pid}/environ", 1 << 20)
    if text is None:
        return None
    out = {}
    for entry in text.split("\0"):
        name, sign, value = entry.partition("=")
        if sign and process.allowed(name):
            out[name] = value[:4096]
    return out


def shared_memory(pid: int) -> dict[str, Any] | None:
    """Its own /dev/shm, seen through its root: the one NCCL uses in that container."""
    path = f"{PROC}/{pid}/root/dev/shm"
    try:
        space = os.statvfs(path)
        return {
            "size_bytes": space.f_blocks * space.f_frsize,
            "free_bytes": space.f_bavail * space.f_frsize,
            "mounted": os.stat(path).st_dev != os.stat(f"{PROC}/{pid}/root/dev").st_dev,
            "device": os.stat(path).st_dev,
        }
    except OSError:
        return None


def container(pid: int) -> dict[str, Any]:
    """The kind of container it runs in, and whether it has a root of its own."""
    kind = next(iter(process.containers(process.read(f"{PROC}/{pid}/cgroup") or "")), None)
    # By its root directory: services with a private /tmp have a mount namespace of their own as well.
    try:
        theirs, ours = os.stat(f"{PROC}/{pid}/root"), os.stat("/")
        other = (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)
    except OSError:
        other = None
    return {"kind": kind, "own_root": other}


def describe(pid: int, buses: set[str], held: tuple[set[int], bool] | None) -> dict[str, Any]:
    """Everything about one process."""
    out: dict[str, Any] = {"pid": pid, "nvml_gpus": sorted(buses), "unreadable": None}
    about = process.bound_to(process.read(f"{PROC}/{pid}/status") or "")
    if not about:
        # NVML may give process ids of the host to a container.
        out["unreadable"] = "no such process here: it ended, or runs in another PID namespace"
        return out
    held = held if held is not None else open_nodes(pid)
    if buses and held is not None and not held[0]:
        out["unreadable"] = "the process of this number holds no GPU: NVML's number is of another PID namespace"
        return out
    out.update(
        name=about.get("Name"),
        cpus=about.get("Cpus_allowed_list"),
        mems=about.get("Mems_allowed_list"),
        open_minors=None if held is None else sorted(held[0]),
        environment=environment(pid),
        shm=shared_memory(pid),
        container=container(pid),
    )
    lacking = [
        word
        for word, key in (("environment", "environment"), ("/dev/shm", "shm"), ("open files", "open_minors"))
        if out[key] is None
    ]
    if lacking:
        out["unreadable"] = f"this user may not read its {', '.join(lacking)}"
    return out


def main() -> int:
    """Print the answer; 3 where /proc cannot be read."""
    until = time.monotonic() + BUDGET_S
    listed, problem = from_nvml()
    try:
        scanned = scan(until)
    except OSError as error:
        print(f"{PROC} cannot be read: {error.strerror}", file=sys.stderr)
        return 3
    processes = [
        describe(pid, listed.get(pid, set()), scanned.get(pid))
        for pid in sorted({*listed, *scanned})[:MOST]
        if pid != os.getpid()
    ]
    answer = {
        "probe": "gpudoctor.job",
        "schema": 1,
        "nvml_problem": problem,
        "minors": minor_addresses(),
        "processes": processes,
        "more": max(0, len({*listed, *scanned}) - MOST),
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
