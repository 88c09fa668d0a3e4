"""Switches that cost something where they stand at this value: named, never advised against, for a site may have its reason.

Meanings and defaults were read in NCCL's source, 2.4 to 2.31.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.checkers.nccl_rules import RULES as _OTHERS
from gpudoctor.checkers.nccl_rules import Advice, Around, Rule
from gpudoctor.facts.system import Settings
from gpudoctor.model import LIKELY, NOTE
from gpudoctor.nccl_defaults import strtol


class Switch(NamedTuple):
    """One value, or all numbers from the least that does something to the most."""

    name: str
    least: int
    most: int
    words: str
    between_hosts: bool = False  # nothing is lost in a job on one host
    since: tuple[int, ...] = ()  # before this release the default is no better


SWITCHES = (
    Switch("NCCL_PXN_DISABLE", 1, 1, "what a GPU sends to an adapter beside another GPU goes over PCIe and the CPU and not over NVLink first, and a large alltoall opens more connections.", True),
    Switch("NCCL_NVB_DISABLE", 1, 1, "two GPUs without an NVLink of their own no longer go through a third one that both have links to."),
    Switch("NCCL_P2P_DIRECT_DISABLE", 1, 1, "the GPUs of one process no longer write into each other's buffers directly: one more copy."),
    Switch("NCCL_P2P_USE_CUDA_MEMCPY", 1, 1, "transfers between GPUs are made by a thread with copies and not by kernels: latency grows, and buffers are not registered."),
    Switch("NCCL_CUMEM_ENABLE", 0, 0, "NVLink between hosts (MNNVL) and windows (symmetric memory) are off; it is often left over from a hang of an older release."),
    Switch("NCCL_MNNVL_ENABLE", 0, 0, "GPUs of different hosts do not use an NVLink that joins them (GB200 NVL72 and the like) but the network.", True),
    Switch("NCCL_DMABUF_ENABLE", 0, 0, "GPUDirect RDMA then needs the module nvidia_peermem, and is off where that is not loaded.", True),
    Switch("NCCL_CHECK_POINTERS", 1, 1, "every buffer of every call is looked up in CUDA, which costs latency; meant for hunting a bug."),
    Switch("NCCL_IB_TIMEOUT", 1, 17, "the adapter gives up sooner than by default (18, from 2.23 on 20; each step halves the time): a switch that takes another way needs longer, and the run ends with completion status 12.", True, (2, 14)),
    Switch("NCCL_IB_RETRY_CNT", 0, 6, "the adapter tries fewer times than by default (7) before the run ends with completion status 12.", True),
    Switch("NCCL_NTHREADS", 32, 255, "kernels have fewer threads than by default (at least 256), which lowers the bandwidth of each channel."),
)  # fmt: skip


def switches(settings: Settings, around: Around) -> Iterator[Advice]:
    """A number as NCCL reads it; an empty one counts as not given."""
    for switch in SWITCHES:
        setting = settings.get(switch.name)
        if setting is None or not setting.value.strip()[:1].isdigit() or switch.between_hosts and around.one_host:
            continue
        if around.release and around.release < switch.since:
            continue
        if switch.least <= strtol(setting.value) <= switch.most:
            yield Advice(setting=setting, severity=NOTE, words=switch.words, confidence=LIKELY)


RULES: tuple[Rule, ...] = (*_OTHERS, switches)
