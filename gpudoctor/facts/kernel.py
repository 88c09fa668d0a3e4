"""Events from the kernel log, the Fabric Manager log and their like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from gpudoctor.facts.base import Contradiction, Entry, Fact


class KernelEvent(Entry):
    """One line that matters. kind: xid, sxid, nvswitch (Fabric Manager log), aer, bandwidth-limited, fell-off,
    driver-load, version-mismatch, iommu-fault, rm-init-failed."""

    kind: str
    bdf: str | None = None
    code: int | None = None  # the Xid, SXid or NVSwitch error number
    fatal: bool | None = None  # SXid and NVSwitch say it
    severity: str | None = None  # AER: "correctable", "nonfatal", "fatal"
    link: int | None = None  # NVLink or NVSwitch port named in the message
    text: str = ""
    stale: bool = False  # before the last driver load or reset that the log shows


class KernelLog(Fact):
    label: ClassVar[str] = "the kernel log"
    hint: ClassVar[str | None] = "sudo dmesg -T"

    events: tuple[KernelEvent, ...]

    def __iter__(self) -> Iterator[KernelEvent]:
        return iter(self.events)

    def of(self, *kinds: str) -> tuple[KernelEvent, ...]:
        return tuple(e for e in self.events if e.kind in kinds)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> KernelLog:
        # The same line in two files (dmesg and journal) would count twice: keep a part's lines once by text.
        out: list[KernelEvent] = []
        for number, part in enumerate(parts):
            earlier = {e.text for e in out} if number else set()
            out.extend(e for e in part.events if e.text not in earlier)
        return KernelLog(tuple(out))
