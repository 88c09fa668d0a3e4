"""Transports that NCCL chose: peer to peer not used, TCP, GPUDirect off, machines split in two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.nccl_causes import GDR_OFF, P2P_NOT_USED, SOCKET_FALLBACK, SPLIT_HOST, VIEW_FACTS
from gpudoctor.checkers.nccl_env import P2P_DISABLED_ENV
from gpudoctor.checkers.nic import NIC_FAR
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform, Settings
from gpudoctor.facts.topology import Nics
from gpudoctor.model import CannotTell, Finding


class NcclTransport(BaseChecker):
    """Every communicator by itself; what the host's own facts say decides what could have been."""

    name: ClassVar[str] = "nccl-transport"
    causes = (GDR_OFF, SOCKET_FALLBACK, P2P_NOT_USED, SPLIT_HOST, P2P_DISABLED_ENV, NIC_FAR)
    needs = (Nccl,)
    wants = (Settings, Nics, Platform, *VIEW_FACTS)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        # Loaded where there is a log to judge: most runs look at a host alone, and need only know what could be said.
        from gpudoctor.checkers.nccl_ways import judged

        yield from judged(facts)
