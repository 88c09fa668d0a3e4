"""Runs that ended: which of NCCL's complaints names the cause, on which rank, and which only follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.driver import DRIVER_UNAVAILABLE
from gpudoctor.checkers.ecc_remap import ECC_REMAP
from gpudoctor.checkers.fabric import FABRIC
from gpudoctor.checkers.memlock import MEMLOCK
from gpudoctor.checkers.nccl_causes import (
    CUDA_ERROR,
    DUPLICATE_GPU,
    NETWORK_ERROR,
    NO_INTERFACE,
    PEER_DIED,
    RANK_MISMATCH,
    SPLIT_HOST,
)
from gpudoctor.checkers.nccl_env import NCCL_ENV
from gpudoctor.checkers.nvlink_errors import ERRORS as NVLINK_ERRORS
from gpudoctor.checkers.p2p import UNSUPPORTED
from gpudoctor.checkers.shm import SHM
from gpudoctor.checkers.version_mismatch import VERSION_MISMATCH
from gpudoctor.checkers.visibility import GPU_NOT_VISIBLE
from gpudoctor.facts.hang import LogEnds, Watchdog
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactView
from gpudoctor.model import Cause, Finding


class NcclFailure(BaseChecker):
    """One finding for each cause, with the ranks that named it; echoes of other ranks are told with it."""

    name: ClassVar[str] = "nccl-failure"
    causes: ClassVar[tuple[Cause, ...]] = (
        NO_INTERFACE, DUPLICATE_GPU, RANK_MISMATCH, PEER_DIED, NETWORK_ERROR, CUDA_ERROR, SHM, MEMLOCK, FABRIC, UNSUPPORTED, VERSION_MISMATCH,
        GPU_NOT_VISIBLE, NCCL_ENV, ECC_REMAP, NVLINK_ERRORS, SPLIT_HOST, DRIVER_UNAVAILABLE,
    )  # fmt: skip
    needs = (Nccl,)
    wants = (Watchdog, LogEnds, MemoryKills)

    def check(self, facts: FactView) -> Iterator[Finding]:
        # Loaded where there is a log to judge: most runs look at a host alone, and need only know what could be said.
        from gpudoctor.checkers.nccl_endings import judged

        yield from judged(facts)
