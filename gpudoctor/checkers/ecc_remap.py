"""GD301 ecc-remap: faulty GPU memory: repairs that wait for a reset or failed, uncorrectable errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.xid_remedy import steps
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.store import FactView
from gpudoctor.model import ERROR, NOTE, WARNING, CannotTell, Cause, Evidence, Finding, Threshold, severity_rank

_PAGES = Threshold(
    "retired pages", 60, "pages",
    "NVIDIA DCGM before 2022, dcgm_gpu_hardware_limits.h, DCGM_LIMIT_MAX_RETIRED_PAGES (63 since; we keep the earlier warning)", "2022",
)  # fmt: skip

ECC_REMAP = Cause(
    "GD301", "ecc-remap", "GPU memory has faulty rows or pages",
    "error: a repair failed, or an uncorrectable error since the last reset; warning: a repair waits for a reset, or the table "
    "of retired pages is nearly full; note: finished repairs, events before the last reset, a corrupted infoROM",
    "ECC memory corrects single-bit errors and detects double-bit ones. A row (Ampere and newer) or page (before) that fails is "
    "replaced by a spare one; the replacement takes effect at the next reset of the GPU. While it is pending, work goes on, since "
    "the driver keeps off the bad place, but an uncorrectable error ends the program that hit it, and with it every rank of the job. "
    "A failed replacement means that no spare is left there: the GPU has to go. Corrected errors alone are normal.",
    "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT; Xid 48, 63, 64, 92, 94, 95, 140, 156, 157, 160, 161, 171, 172",
    "Pending: reset the GPU. Failed, or uncorrectable errors that come back: replace it.",
    (_PAGES,),
)  # fmt: skip

_PENDING = frozenset((63, 92, 156, 160, 168))
_FAILED = frozenset((64, 157, 161))
_UNCORRECTABLE = frozenset((48, 94, 95, 140, 171, 172))
_FIELDS = (
    "ecc_uncorrectable_volatile", "ecc_uncorrectable_aggregate", "remap_pending", "remap_failed", "remap_uncorrectable",
    "retired_pending", "retired_single", "retired_double",
)  # fmt: skip


class _Said:
    """What is known of one GPU's memory, worst first."""

    def __init__(self) -> None:
        self.items: list[tuple[str, str, tuple[Evidence, ...], str]] = []

    def add(self, severity: str, words: str, evidence: tuple[Evidence, ...], remedy: str) -> None:
        self.items.append((severity, words, evidence, remedy))


class EccRemap(BaseChecker):
    """One finding per GPU, with all that its counters and the kernel log say of its memory."""

    name: ClassVar[str] = "ecc-remap"
    any_of = (Gpus, KernelLog)
    wants = (Gpus, KernelLog)
    causes = (ECC_REMAP,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus, log = facts.get(Gpus), facts.get(KernelLog)
        by_bdf: dict[str | None, list[KernelEvent]] = {}
        for event in log.of("xid") if log is not None else ():
            if event.code in _PENDING | _FAILED | _UNCORRECTABLE:
                by_bdf.setdefault(event.bdf if event.gpu is None else event.subject, []).append(event)
        silent = 0
        for gpu in gpus or ():
            said = _Said()
            _counters(gpu, said)
            events = by_bdf.pop(gpu.bdf if gpu.bdf is not None else gpu.subject, [])
            _logged(events, gpu, said)
            # A source that shows BAR1 (nvidia-smi -q, NVML) shows the counters too: N/A there is a part without ECC.
            silent += not said.items and gpu.bar1_mib is None and all(getattr(gpu, f) is None for f in _FIELDS)
            yield from _finding(said, gpu.subject, gpu.label, gpu.bdf, gpu.index)
        for events in by_bdf.values():
            said = _Said()
            _logged(events, Gpu(bdf=events[0].bdf), said)
            label = events[0].who if events[0].subject != "host" else "a GPU whose address the log does not give"
            yield from _finding(said, events[0].subject, label, events[0].bdf, events[0].gpu)
        if gpus is None:
            yield CannotTell(ECC_REMAP.slug, "the GPUs' ECC and remapping counters are not at hand, only the kernel log")
        elif silent:
            yield CannotTell(
                ECC_REMAP.slug, f"{silent} of {len(gpus)} GPUs show no ECC or remapping counters"
            )


def _counters(gpu: Gpu, said: _Said) -> None:
    if gpu.remap_failed:
        said.add(ERROR, "a faulty memory row could not be replaced", (gpu.at("remap_failed"),), "replace")
    if gpu.ecc_uncorrectable_volatile:
        count = gpu.ecc_uncorrectable_volatile
        words = f"{count} uncorrectable memory error{'s' if count > 1 else ''} since the last reset"
        said.add(ERROR, words, (gpu.at("ecc_uncorrectable_volatile"),), "reset")
    if gpu.remap_pending:
        said.add(WARNING, "a faulty memory row waits for a reset to be replaced", (gpu.at("remap_pending"),), "remap")
    if gpu.retired_pending:
        said.add(WARNING, "faulty memory pages wait for a reset to be retired", (gpu.at("retired_pending"),), "remap")
    pages = (gpu.retired_single or 0) + (gpu.retired_double or 0)
    if pages >= _PAGES.value:
        words = f"{pages} memory pages are retired; NVIDIA's DCGM fails a GPU at 63"
        said.add(WARNING, words, (gpu.at("retired_single"), gpu.at("retired_double")), "replace")
    elif gpu.retired_double:
        said.add(NOTE, f"{gpu.retired_double} memory pages were retired after double-bit errors", (gpu.at("retired_double"),), "watch")
    if gpu.remap_uncorrectable and not gpu.remap_pending:
        words = f"memory rows replaced after uncorrectable errors: {gpu.remap_uncorrectable}"
        said.add(NOTE, words, (gpu.at("remap_uncorrectable"),), "watch")
    if gpu.inforom_corrupted:
        words = "its infoROM, which keeps the records of bad memory, is corrupted, so these records cannot be trusted"
        said.add(NOTE, words, (gpu.at("inforom_corrupted"),), "support")


def _logged(events: list[KernelEvent], gpu: Gpu, said: _Said) -> None:
    """The log's part. A counter read now knows better than an old line: what it shows as done is history."""
    repaired = gpu.remap_pending is False or gpu.retired_pending is False
    for codes, severity, words, remedy, over in (
        (_FAILED, ERROR, "a faulty row or page could not be replaced", "replace", gpu.remap_failed is False),
        (_UNCORRECTABLE, ERROR, "uncorrectable memory error", "reset", gpu.ecc_uncorrectable_volatile == 0),
        (_PENDING, WARNING, "faulty memory noticed; a replacement waits for the next reset", "remap", repaired),
    ):
        mine = [e for e in events if e.code in codes]
        if not mine:
            continue
        numbers = ", ".join(f"Xid {n}" for n in sorted({e.code for e in mine if e.code is not None}))
        old = over or all(e.stale for e in mine)
        if codes is _PENDING and all(e.code == 92 for e in mine):
            words = "many corrected single-bit errors"
        shown = f"{words} ({numbers}, {len(mine)} time{'s' if len(mine) > 1 else ''}{'; before the last reset' if old else ''})"
        said.add(NOTE if old else severity, shown, (mine[0].at("text"), mine[-1].at("text")), remedy)


def _finding(said: _Said, subject: str, label: str, bdf: str | None, index: int | None) -> Iterator[Finding]:
    if not said.items:
        return
    items = sorted(said.items, key=lambda item: severity_rank(item[0]))
    severity, _, _, remedy = items[0]
    evidence = tuple(dict.fromkeys(e for _, _, many, _ in items for e in many))
    message = f"{label[0].upper()}{label[1:]}: {'; '.join(words for _, words, _, _ in items)}."
    cost = "an uncorrectable error ends the program that meets it, and the whole job with it" if severity != NOTE else None
    yield Finding(ECC_REMAP.slug, severity, subject, message, evidence, cost=cost, remediation=steps(remedy, bdf, index=index))
