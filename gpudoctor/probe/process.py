"""What /proc says of one process, and which variables of its environment may be taken: for the probes beside this file.

They are programs that are run by their path, so this folder is the first place where they look for a module.
"""

from __future__ import annotations

PREFIXES = ("NCCL_", "TORCH_NCCL_")
NAMES = frozenset(
    (
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST",
        "NVSHMEM_DISABLE_NVLS",
        "OMP_NUM_THREADS",
        "SLURM_JOB_GPUS",
        "SLURM_STEP_GPUS",
        "SLURM_GPUS_ON_NODE",
        "LOCAL_RANK",
        "RANK",
        "WORLD_SIZE",
    )
)
_CGROUP_WORDS = (
    ("kubernetes", "kubepods"),
    ("docker", "docker"),
    ("podman", "libpod"),
    ("lxc", "/lxc"),
    ("containerd", "containerd"),
)


def read(path: str, limit: int = 1 << 16) -> str | None:
    """A file's text; None where it is absent or forbidden."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").rstrip()
    except OSError:
        return None


def allowed(name: str) -> bool:
    """May this variable be taken?"""
    return name.startswith(PREFIXES) or name in NAMES


def bound_to(status: str) -> dict[str, str]:
    """Of a `status` file: the name, and the processors and memory nodes that the process may use."""
    out = {}
    for line in status.split("\n"):
        name, _, value = line.partition(":")
        if name in ("Name", "Cpus_allowed_list", "Mems_allowed_list"):
            out[name] = value.strip()
    return out


def containers(cgroup: str) -> list[str]:
    """The kinds of container that a `cgroup` file names."""
    return [name for name, word in _CGROUP_WORDS if word in cgroup]
