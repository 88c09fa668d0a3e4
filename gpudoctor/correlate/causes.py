"""Which cause explains which effect, and when two subjects are close enough for it."""

from __future__ import annotations

from typing import Literal, NamedTuple

# How near the effect must be:
#   host  anywhere on the same host
#   gpu   the effect's subject is the same GPU, one of its links, or a pair it is part of
#   same  exactly the same subject
Scope = Literal["host", "gpu", "same"]

# Errors of these ended a run or keep any from starting: to a reader with a dead job they come before what only slows it.
ENDS_A_RUN = frozenset(
    (
        "driver-unavailable", "version-mismatch", "gpu-missing", "gpu-not-visible", "no-interface", "duplicate-gpu", "rank-mismatch",
        "peer-died", "network-error", "cuda-error", "collective-timeout", "shm", "memlock", "wrong-results",
    )
)  # fmt: skip


# What ends a job shows on other hosts too.
JOB_WIDE_CAUSES = frozenset(("network-error", "cuda-error", "peer-died", "rank-mismatch", "shm", "memlock"))
JOB_WIDE_EFFECTS = frozenset(("collective-timeout", "peer-died", "bandwidth-failed"))

# What a job's own log tells of that job; of the host, whoever saw it, is all else.
OF_A_JOB = frozenset(
    (
        "p2p-disabled-env", "nccl-env", "split-host", "p2p-not-used", "socket-fallback", "gdr-off", "no-interface", "duplicate-gpu",
        "gpu-not-visible", "rank-mismatch", "peer-died", "network-error", "cuda-error", "collective-timeout", "shm", "memlock",
        "bandwidth-failed", "busbw-low",
    )
)  # fmt: skip
# Of those, what is the host's where anything but a job's log shows it.
HOSTS_TOO = frozenset(("p2p-disabled-env", "nccl-env", "shm", "memlock"))
# A setting that several jobs have is told once.
SETTINGS = frozenset(("p2p-disabled-env", "nccl-env"))


class Explains(NamedTuple):
    """The effects that one cause accounts for, within its scope."""

    cause: str
    effects: tuple[str, ...]
    scope: Scope


_PATHS = ("no-nvlink-path", "path-phb", "path-node", "path-sys")

# A failure that has a name of its own explains the run that it ended.
_ENDS_A_RUN = (
    "driver-unavailable", "version-mismatch", "fabric", "shm", "memlock", "no-interface", "duplicate-gpu", "rank-mismatch",
    "p2p-unsupported", "split-host", "network-error", "peer-died", "collective-timeout", "cuda-error", "gpu-missing", "xid", "ecc-remap", "nccl-env",
)  # fmt: skip
# Settings and states of the whole host that keep traffic off the fast path.
_SLOWS_ALL = (
    "p2p-disabled-env", "fabric", "nvlink-down", "p2p-unsupported", "split-host", "p2p-not-used", "socket-fallback", "shm", "nccl-env",
    "iommu", "acs", "gdr-off", "numa-mismatch",
)  # fmt: skip
# Faults of one GPU's links; what is measured there shows them.
_SLOWS_A_GPU = (
    "pcie-width", "slot-width", "pcie-speed", "pcie-upstream", "chipset-slot", "slot-speed", "nvlink-errors", "pcie-errors", "throttled",
)  # fmt: skip

TABLE: tuple[Explains, ...] = (
    Explains("driver-unavailable", ("gpu-missing", "fabric", "gpu-not-visible"), "host"),
    Explains("version-mismatch", ("driver-unavailable", "fabric", "gpu-missing"), "host"),
    Explains("fabric", ("fabric", "nvlink-down", "p2p-unsupported", *_PATHS), "host"),
    Explains("nvlink-down", ("p2p-unsupported", "nvlink-errors", *_PATHS), "gpu"),
    Explains("gpu-missing", ("xid", "pcie-errors", "nvlink-down", "gpu-not-visible"), "gpu"),
    Explains("xid", ("gpu-missing", "nvlink-errors"), "gpu"),
    Explains("ecc-remap", ("xid",), "gpu"),
    Explains("nvlink-errors", ("xid",), "gpu"),
    Explains("mig", ("p2p-unsupported", "gpu-not-visible", *_PATHS), "host"),
    Explains("no-nvlink-path", ("path-phb", "path-node", "path-sys"), "same"),
    Explains("vm-topology", ("numa-unknown", "path-phb", "path-node", "path-sys"), "host"),
    Explains("slot-width", ("chipset-slot", "pcie-upstream", "slot-speed"), "gpu"),
    Explains("pcie-upstream", ("chipset-slot",), "gpu"),
    Explains("pcie-errors", ("aspm",), "gpu"),
    Explains("chipset-slot", ("nic-far", "slot-speed"), "gpu"),
    Explains("p2p-unsupported", ("small-bar",), "gpu"),
    Explains("throttled", ("pcie-speed",), "same"),
    # What NCCL chose, by what left it no better choice.
    Explains("fabric", ("p2p-not-used", "socket-fallback"), "host"),
    Explains("nvlink-down", ("p2p-not-used",), "host"),
    Explains("p2p-disabled-env", ("p2p-not-used", "split-host", "socket-fallback"), "host"),
    Explains("split-host", ("p2p-not-used", "socket-fallback", "gdr-off"), "host"),
    Explains("p2p-unsupported", ("p2p-not-used", "socket-fallback"), "host"),
    Explains("nccl-env", ("socket-fallback", "gdr-off"), "host"),
    Explains("mig", ("p2p-not-used",), "host"),
    # A run that ended: what each fault looks like to the ranks that did not cause it.
    *(
        Explains(cause, ("peer-died", "network-error", "cuda-error"), "host")
        for cause in ("version-mismatch", "rank-mismatch", "shm", "memlock", "fabric", "duplicate-gpu", "gpu-not-visible", "p2p-unsupported", "xid", "gpu-missing")
    ),
    Explains("cuda-error", ("peer-died",), "host"),
    Explains("network-error", ("peer-died",), "host"),
    # Of one rank by its launcher and by the ranks that lost it.
    Explains("peer-died", ("peer-died",), "same"),
    # A rank that is gone does not come; ranks that a watchdog ended are gone for the others.
    Explains("peer-died", ("collective-timeout",), "same"),
    *(Explains(cause, ("collective-timeout",), "host") for cause in ("rank-mismatch", "network-error", "cuda-error", "gpu-missing", "xid")),
    Explains("collective-timeout", ("peer-died",), "host"),
    # What was measured, by what holds it back; the first row that fits takes the effect.
    Explains("gpu-not-visible", ("bandwidth-failed",), "host"),
    *(Explains(cause, ("bandwidth-failed",), "host") for cause in _ENDS_A_RUN),
    *(Explains(cause, ("busbw-low", "pair-slow"), "host") for cause in _SLOWS_ALL),
    *(Explains(cause, ("busbw-low", "pair-slow", "host-copy-slow"), "gpu") for cause in _SLOWS_A_GPU),
    # A run over several GPUs is the host's; its slowest member is one of them.
    *(Explains(cause, ("busbw-low",), "host") for cause in (*_SLOWS_A_GPU, "pair-slow")),
)
