"""The host around the GPUs, as one line of JSON: processors, limits, container, kernel modules, settings, versions.

Reads files and asks the kernel about this very process; opens no device, runs no program, needs no privileges. Of the
environment only the names listed in process.py are taken.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

process: Any = importlib.import_module("process")  # beside this file
read: Callable[..., str | None] = process.read

# Of the kernel's command line: what decides over PCI, IOMMU, NUMA and the driver. The rest is nobody's business.
PARAMETERS = re.compile(
    r"^(?:iommu|intel_iommu|amd_iommu|pcie?|pcie_\w+|nvidia|nouveau|numa|numa_\w+|nomodeset|vfio|isolcpus|hugepages"
    r"|default_hugepagesz|\w+\.blacklist|module_blacklist|rd\.driver\.blacklist)(?:[=.\-_]|$)"
)
MODULES = re.compile(r"^(?:nvidia\w*|nouveau|gdrdrv|nv_peer_mem|ib_\w+|rdma_\w+|mlx\d\w*|irdma|efa|bnxt_re|vfio\w*)$")
DISTRIBUTIONS = re.compile(r"^(?:nvidia-ml-py|pynvml|torch|nvidia-nccl-cu\d+|cupy-cuda\d+x)$", re.I)
CONTAINER_MARKS = (
    ("docker", "/.dockerenv"),
    ("podman", "/run/.containerenv"),
    ("apptainer", "/.singularity.d"),
)
LIMIT = 1 << 16


def listing(path: str) -> list[str] | None:
    """The names in a directory; None where it is not there."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return None


def environment() -> dict[str, str]:
    """The allowed variables of this process."""
    return {name: value[:LIMIT] for name, value in sorted(os.environ.items()) if process.allowed(name)}


def settings_files() -> dict[str, str]:
    """The files NCCL reads settings from; NCCL_CONF_FILE replaces the one in the home directory (since 2.23)."""
    own = os.environ.get("NCCL_CONF_FILE")
    places = {"/etc/nccl.conf": "/etc/nccl.conf", own or "~/.nccl.conf": own or os.path.expanduser("~/.nccl.conf")}
    out = {}
    for shown, path in places.items():
        text = read(path)
        if text is not None:
            # Only known names, each on its line: this is a file in somebody's home.
            out[shown] = "\n".join(line if process.allowed(line.partition("=")[0]) else "" for line in text.split("\n"))
    return out


def affinity() -> dict[str, Any]:
    """The CPUs and memory nodes this process may use."""
    cpuset = None
    for path in ("/sys/fs/cgroup/cpuset.cpus.effective", "/sys/fs/cgroup/cpuset/cpuset.effective_cpus"):
        cpuset = cpuset or read(path)
    return {
        "cpus": sorted(os.sched_getaffinity(0)),
        "status": {n: v for n, v in process.bound_to(read("/proc/self/status") or "").items() if n != "Name"},
        "cpuset_cpus": cpuset,
    }


def limits() -> dict[str, int | None]:
    """Soft limits in bytes; -1 is unlimited."""
    out: dict[str, int | None] = {}
    for name, which in (("memlock", resource.RLIMIT_MEMLOCK), ("stack", resource.RLIMIT_STACK)):
        soft = resource.getrlimit(which)[0]
        out[name] = -1 if soft == resource.RLIM_INFINITY else soft
    return out


def shared_memory() -> dict[str, Any]:
    """/dev/shm: its mount, its size, and whether it may be written."""
    path = "/dev/shm"
    mount = None
    for line in (read("/proc/self/mounts", 1 << 20) or "").split("\n"):
        words = line.split()
        if len(words) > 3 and words[1] == path:
            mount = {"type": words[2], "options": words[3]}  # the last one lies on top
    out: dict[str, Any] = {
        "exists": os.path.isdir(path),
        "mount": mount,
        "writable": os.access(path, os.W_OK | os.X_OK),
    }
    try:
        space = os.statvfs(path)
        out["size_bytes"], out["free_bytes"] = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    except OSError as error:
        out["error"] = error.strerror
    return out


def numa() -> dict[str, Any] | None:
    """The NUMA nodes; None where the kernel shows none."""
    base = "/sys/devices/system/node"
    names = listing(base)
    if names is None:
        return None
    out = {}
    for name in names:
        if re.match(r"^node\d+$", name):
            total = re.search(r"MemTotal:\s*(\d+) kB", read(f"{base}/{name}/meminfo") or "")
            out[name[4:]] = {"cpus": read(f"{base}/{name}/cpulist"), "memory_kib": int(total[1]) if total else None}
    return out


def processor() -> dict[str, Any]:
    """The first processor's entry of cpuinfo, and how many sockets all of them name."""
    text = read("/proc/cpuinfo", 1 << 22) or ""
    first: dict[str, str] = {}
    for line in text.split("\n\n")[0].split("\n"):
        name, _, value = line.partition(":")
        first[name.strip()] = value.strip()
    keep = ("vendor_id", "model name", "cpu family", "model", "CPU implementer", "CPU part")
    flags = first.get("flags") or first.get("Features")
    return {
        "first": {name: first[name] for name in keep if name in first},
        "hypervisor_flag": "hypervisor" in flags.split() if flags and "flags" in first else None,
        "sockets": len(set(re.findall(r"^physical id\s*:\s*(\d+)", text, re.M))) or None,
        "architecture": platform.machine(),
        "online": read("/sys/devices/system/cpu/online"),
    }


def container() -> dict[str, Any]:
    """Marks of every kind of container; which of them decides is for the reader."""
    marks = [name for name, path in CONTAINER_MARKS if os.path.exists(path)]
    variables = [
        v
        for v in ("KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "container")
        if os.environ.get(v)
    ]
    groups = (read("/proc/1/cgroup") or "") + "\n" + (read("/proc/self/cgroup") or "")
    return {
        "marks": marks,
        "variables": variables,
        "cgroups": process.containers(groups),
        "systemd": read("/run/systemd/container"),
    }


def machine() -> dict[str, Any]:
    """Kernel and machine."""
    dmi, cmdline = "/sys/class/dmi/id", read("/proc/cmdline")
    return {
        "hostname": socket.gethostname(),
        "kernel": platform.release(),
        # The rest of the line names who built the kernel, and where.
        "version": " ".join((read("/proc/version") or "").split()[:3]) or None,
        "cmdline": None if cmdline is None else " ".join(word for word in cmdline.split() if PARAMETERS.match(word)),
        "uptime": read("/proc/uptime"),
        "uid": os.getuid(),
        "sys_vendor": read(f"{dmi}/sys_vendor"),
        "product_name": read(f"{dmi}/product_name"),
        "hypervisor_type": read("/sys/hypervisor/type"),
    }


def modules() -> dict[str, str] | None:
    """Loaded modules of the kinds that matter, with their versions."""
    text = read("/proc/modules", 1 << 20)
    if text is None:
        return None
    names = [line.split()[0] for line in text.split("\n") if line.split()]
    return {name: read(f"/sys/module/{name}/version") or "" for name in names if MODULES.match(name)}


def driver() -> dict[str, Any]:
    """The driver's own files in /proc."""
    base = "/proc/driver/nvidia"
    return {
        "version": read(f"{base}/version"),
        "gpus": listing(f"{base}/gpus"),
        "switches": listing("/proc/driver/nvidia-nvswitch/devices"),
        "persistenced": os.path.exists("/run/nvidia-persistenced/socket")
        or os.path.exists("/var/run/nvidia-persistenced/socket"),
    }


def nodes() -> dict[str, Any]:
    """Device nodes and which of them this process may open. os.access asks the device cgroup too, and opens nothing."""
    names = listing("/dev") or []
    gpus = {
        m[1]: os.access(f"/dev/{m[0]}", os.R_OK | os.W_OK) for m in (re.match(r"^nvidia(\d+)$", n) for n in names) if m
    }
    return {
        "gpus": gpus,
        "control": os.access("/dev/nvidiactl", os.R_OK | os.W_OK) if os.path.exists("/dev/nvidiactl") else None,
        "uvm": os.access("/dev/nvidia-uvm", os.R_OK | os.W_OK) if os.path.exists("/dev/nvidia-uvm") else None,
        "switches": sum(1 for n in names if re.match(r"^nvidia-nvswitch\d+$", n)),
        "imex_channels": len(listing("/dev/nvidia-caps-imex-channels") or ()),
    }


def fabric_manager() -> dict[str, Any]:
    """Is it here, and which package: the program is not run, the package list of Debian names its version."""
    version = None
    text = read("/var/lib/dpkg/status", 1 << 26) or ""
    for block in re.finditer(r"^Package: nvidia-fabricmanager(?:-\d+)?$(?:\n.+)*", text, re.M):
        found = re.search(r"^Version: (\S+)", block[0], re.M)
        if found and re.search(r"^Status: .* installed$", block[0], re.M):
            version = found[1]
    return {"binary": os.path.exists("/usr/bin/nv-fabricmanager"), "package_version": version}


def distributions() -> dict[str, str]:
    """Versions of this interpreter's packages by their metadata; nothing is imported."""
    from importlib import metadata

    out: dict[str, str] = {}
    try:
        for found in metadata.distributions():
            name = found.metadata["Name"]
            if name and DISTRIBUTIONS.match(name):
                out.setdefault(name.lower(), found.version)
    except Exception:  # a broken package directory breaks the iteration: what was found until then stays
        pass
    return out


def main() -> int:
    """Print the answer; a part that fails is named in it."""
    answer: dict[str, Any] = {"probe": "gpudoctor.system", "schema": 1}
    failed: dict[str, str] = {}
    for name, ask in (
        ("machine", machine),
        ("container", container),
        ("processor", processor),
        ("numa", numa),
        ("affinity", affinity),
        ("limits", limits),
        ("shm", shared_memory),
        ("modules", modules),
        ("driver", driver),
        ("nodes", nodes),
        ("environment", environment),
        ("settings_files", settings_files),
        ("fabric_manager", fabric_manager),
        ("distributions", distributions),
    ):
        try:
            answer[name] = ask()
        except Exception as error:  # one odd file must not cost the rest
            failed[name] = f"{type(error).__name__}: {error}"[:200]
    answer["failed"] = failed
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
