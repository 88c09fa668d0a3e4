"""What differs between ranks, and what the log says of the host: versions, settings, affinity, peer access, paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.fabric import FABRIC
from gpudoctor.checkers.nccl_causes import RANK_MISMATCH, VIEW_FACTS
from gpudoctor.checkers.nccl_diagnostics import DIAGNOSED
from gpudoctor.checkers.nccl_env import NCCL_ENV
from gpudoctor.checkers.numa import NUMA_MISMATCH
from gpudoctor.checkers.p2p import UNSUPPORTED
from gpudoctor.checkers.pair_path import PHB, SYS
from gpudoctor.checkers.pcie_link import SPEED, WIDTH
from gpudoctor.checkers.version_mismatch import VERSION_MISMATCH
from gpudoctor.checkers.visibility import GPU_NOT_VISIBLE
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Settings
from gpudoctor.facts.topology import Nics
from gpudoctor.model import Finding


class NcclRanks(BaseChecker):
    """Compares what every process printed; nothing is concluded from a line that an excerpt may have left out."""

    name: ClassVar[str] = "nccl-ranks"
    causes = tuple(
        dict.fromkeys((RANK_MISMATCH, VERSION_MISMATCH, NCCL_ENV, UNSUPPORTED, FABRIC, GPU_NOT_VISIBLE, NUMA_MISMATCH, PHB, SYS, WIDTH, SPEED, *DIAGNOSED))
    )
    needs = (Nccl,)
    wants = (Settings, Nics, *VIEW_FACTS)

    def check(self, facts: FactView) -> Iterator[Finding]:
        # Loaded where there is a log to judge: most runs look at a host alone, and need only know what could be said.
        from gpudoctor.checkers.nccl_differences import judged

        yield from judged(facts)
