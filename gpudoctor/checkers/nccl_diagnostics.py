"""What NCCL's own diagnostics (2.31 and later, NCCL_RUN_DIAGNOSTICS and NCCL_RUN_RAS_DIAGNOSTICS) found not in order.

NCCL prints a line for each matter with how it ended: OK and INFO need nothing. Its words for what is not in order are
taken as they stand; only the matter before the colon decides what kind of fault it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.checkers.ecc_remap import ECC_REMAP
from gpudoctor.checkers.iommu import IOMMU
from gpudoctor.checkers.nccl_causes import NETWORK_ERROR, RANK_MISMATCH
from gpudoctor.checkers.nvlink_down import DOWN
from gpudoctor.checkers.p2p import UNSUPPORTED
from gpudoctor.checkers.version_mismatch import VERSION_MISMATCH
from gpudoctor.checkers.xid import XID
from gpudoctor.facts.nccl import Diagnostic, Nccl
from gpudoctor.model import ERROR, LIKELY, WARNING, Cause, Finding, Step

# By the beginning of the matter's name, lower case.
_MATTERS: tuple[tuple[str, Cause, str], ...] = (
    ("p2p", UNSUPPORTED, "nvidia-smi topo -p2p r; nvidia-smi topo -p2p w"),
    ("net bw", NETWORK_ERROR, "ibstat; ib_write_bw -d DEVICE   # on one host; on the other: ib_write_bw -d DEVICE HOST"),
    ("gpu inventory", RANK_MISMATCH, "nvidia-smi -L   # on every host"),
    ("cuda driver version", VERSION_MISMATCH, "nvidia-smi --query-gpu=driver_version --format=csv   # on every host"),
    ("nvidia graphics driver version", VERSION_MISMATCH, "nvidia-smi --query-gpu=driver_version --format=csv   # on every host"),
    ("nccl environment", RANK_MISMATCH, "env | grep NCCL_ | sort   # on every host"),
    ("ecc", ECC_REMAP, "nvidia-smi -q -d ECC,ROW_REMAPPER"),
    ("nvlink", DOWN, "nvidia-smi nvlink -s; nvidia-smi nvlink -e"),
    ("xid", XID, "sudo dmesg -T | grep -i xid"),
    ("iommu mode", IOMMU, "cat /proc/cmdline; ls /sys/class/iommu"),
)
DIAGNOSED: tuple[Cause, ...] = tuple(dict.fromkeys(cause for _, cause, _ in _MATTERS))
_IN_ORDER = frozenset(("OK", "PASS", "INFO", "SKIP", "SKIPPED", "NOTE"))
_MILD = frozenset(("WARN", "WARNING"))


def in_order(diagnostic: Diagnostic) -> bool:
    """Does this line need nothing?"""
    return diagnostic.status in _IN_ORDER


def complained(nccl: Nccl) -> Iterator[Finding]:
    """One finding a line; a matter that is not known stays in the report's picture."""
    for diagnostic in nccl.diagnostics:
        name = diagnostic.text.lower()
        found = next(((c, command) for word, c, command in _MATTERS if name.startswith(word)), None)
        if in_order(diagnostic) or found is None:
            continue
        cause, command = found
        yield Finding(
            cause.slug, WARNING if diagnostic.status in _MILD else ERROR, "host",
            f"NCCL's own diagnostics say {diagnostic.status}: {diagnostic.text[:240]}",
            (diagnostic.at("text"),), LIKELY, None,
            (Step("See the same on the host", command), Step("Let NCCL look again once it is mended", "NCCL_RUN_DIAGNOSTICS=1 NCCL_RUN_RAS_DIAGNOSTICS=1 COMMAND", "none")),
        )  # fmt: skip
