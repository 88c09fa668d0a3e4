"""Which cause explains which effect, and when two subjects are close enough for it."""

from __future__ import annotations

from typing import NamedTuple

# How near the effect must be:
#   host  anywhere on the same host
#   gpu   the effect's subject is the same GPU, one of its links, or a pair it is part of
#   same  exactly the same subject
SCOPES = ("host", "gpu", "same")


class Explains(NamedTuple):
    cause: str
    effects: tuple[str, ...]
    scope: str


_PATHS = ("no-nvlink-path", "path-phb", "path-node", "path-sys")

TABLE: tuple[Explains, ...] = (
    Explains("driver-unavailable", ("gpu-missing", "fabric", "gpu-not-visible"), "host"),
    Explains("version-mismatch", ("driver-unavailable", "fabric", "gpu-missing"), "host"),
    Explains("fabric", ("nvlink-down", "p2p-unsupported", *_PATHS), "host"),
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
)
