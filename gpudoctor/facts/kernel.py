"""Events from the kernel log, the Fabric Manager log and their like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from gpudoctor.facts.base import Contradiction, Entry, Fact
from gpudoctor.facts.store import STAND_IN, short


class KernelEvent(Entry):
    """One line that matters. kind: xid, sxid, nvswitch (Fabric Manager log), aer, aer-held-back, bandwidth-limited, fell-off,
    driver-load, version-mismatch, iommu-fault, rm-init-failed, refused (the module did not take a card), reset-required, gsp-timeout,
    gsp-heartbeat, uvm-fatal, no-progress, nvlink-mask (what the driver says of a GPU without an Xid), bound and probe-failed
    (the nvidia driver takes a card, or does not)."""

    kind: str
    bdf: str | None = None
    code: int | None = None  # the Xid, SXid or NVSwitch error number
    fatal: bool | None = None  # SXid and NVSwitch say it
    severity: str | None = None  # AER: "correctable", "nonfatal", "fatal"
    driver: str | None = None  # aer, bandwidth-limited, iommu-fault: the driver the line names, "nvidia", "pcieport"
    bridge: str | None = None  # bandwidth-limited: where the narrow link is
    link: int | None = None  # NVLink or NVSwitch port named in the message
    text: str = ""
    held_back: int | None = None  # aer: further reports that the kernel did not write, as it says
    gpu: int | None = None  # the driver's number, where a source gives no address
    stale: bool = False  # before the last driver load or reset that the log shows

    @property
    def subject(self) -> str:
        """`gpu:0000:41:00.0`, `gpu:3`, else the host."""
        return f"gpu:{self.bdf}" if self.bdf is not None else f"gpu:{self.gpu}" if self.gpu is not None else "host"

    @property
    def who(self) -> str:
        """For a reader: `the GPU at 0000:41:00.0`, `GPU3`, `a GPU`."""
        return f"the GPU at {self.bdf}" if self.bdf is not None else f"GPU{self.gpu}" if self.gpu is not None else "a GPU"


class KernelLog(Fact):
    """Events of the kernel log that concern GPUs and their links, in its order."""

    label: ClassVar[str] = "the kernel log"
    hint: ClassVar[str | None] = "sudo dmesg -T"

    events: tuple[KernelEvent, ...]

    def __iter__(self) -> Iterator[KernelEvent]:
        return iter(self.events)

    def of(self, *kinds: str) -> tuple[KernelEvent, ...]:
        return tuple(e for e in self.events if e.kind in kinds)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> KernelLog:
        # The same line in two files (dmesg and journal) is one event: of equal texts the file with the most counts.
        out: list[KernelEvent] = []
        for part in parts:
            held: dict[tuple[str, str | None, str], int] = {}
            for event in out:
                held[event.kind, event.bdf, event.text] = held.get((event.kind, event.bdf, event.text), 0) + 1
            for event in part.events:
                key = (event.kind, event.bdf, event.text)
                if held.get(key, 0) > 0:
                    held[key] -= 1
                else:
                    out.append(event)
        return KernelLog(tuple(out))


class MemoryKill(Entry):
    """A process that the kernel ended for want of memory, by the number that the host has for it."""

    pid: int
    name: str
    host: str | None = None  # the line's own word (syslog, journal), or whose output it is


class MemoryKills(Fact):
    """Whose they were the kernel log does not say: of a job only where a number is a rank's."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "what the kernel's memory killer ended"
    hint: ClassVar[str | None] = None

    kills: tuple[MemoryKill, ...]

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> MemoryKills:
        return MemoryKills(tuple(k for p in parts for k in p.kills))

    def of(self, pid: int, host: str | None) -> MemoryKill | None:
        """What it ended of this number on this host; where either name is not known, or stands for another, it may be."""
        found = [k for k in self.kills if k.pid == pid and _may_be(k.host, host)]
        return next((k for k in found if k.host is not None), found[0] if found else None)


def _may_be(a: str | None, b: str | None) -> bool:
    return a is None or b is None or short(a) == short(b) or STAND_IN.match(a) is not None or STAND_IN.match(b) is not None


class UnsetLinks(Fact):
    """What the driver says of NVLinks that it could not set up; there only where it says so."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "NVLinks that were not set up"
    hint: ClassVar[str | None] = "sudo dmesg -T"

    events: tuple[KernelEvent, ...]
