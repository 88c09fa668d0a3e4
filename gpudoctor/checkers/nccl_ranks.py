"""What differs between ranks, and what the log says of the host: versions, settings, affinity, peer access, paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.acs import ACS
from gpudoctor.checkers.bandwidth_run import WRONG_RESULTS
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.ecc_remap import ECC_REMAP
from gpudoctor.checkers.fabric import FABRIC
from gpudoctor.checkers.iommu import IOMMU
from gpudoctor.checkers.nccl_causes import NETWORK_ERROR, RANK_MISMATCH, VIEW_FACTS
from gpudoctor.checkers.nccl_env import NCCL_ENV
from gpudoctor.checkers.nic import NIC_LINK
from gpudoctor.checkers.numa import NUMA_MISMATCH
from gpudoctor.checkers.nvlink_down import DOWN
from gpudoctor.checkers.p2p import UNSUPPORTED
from gpudoctor.checkers.pair_path import PHB, SYS
from gpudoctor.checkers.pcie_link import SPEED, WIDTH
from gpudoctor.checkers.version_mismatch import VERSION_MISMATCH
from gpudoctor.checkers.visibility import GPU_NOT_VISIBLE
from gpudoctor.checkers.xid import XID
from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Settings
from gpudoctor.facts.topology import Nics
from gpudoctor.model import CannotTell, Finding


class NcclRanks(BaseChecker):
    """Compares what every process printed; nothing is concluded from a line that an excerpt may have left out."""

    name: ClassVar[str] = "nccl-ranks"
    causes = (
        RANK_MISMATCH, VERSION_MISMATCH, NCCL_ENV, UNSUPPORTED, FABRIC, GPU_NOT_VISIBLE, NUMA_MISMATCH, PHB, SYS, WIDTH, SPEED,
        WRONG_RESULTS, NETWORK_ERROR, NIC_LINK, ECC_REMAP, DOWN, ACS, IOMMU, XID,  # of NCCL's own diagnostics
    )  # fmt: skip
    needs = (Nccl,)
    wants = (Settings, Nics, Bandwidth, *VIEW_FACTS)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        # Loaded where there is a log to judge: most runs look at a host alone, and need only know what could be said.
        from gpudoctor.checkers.nccl_differences import judged

        yield from judged(facts)
