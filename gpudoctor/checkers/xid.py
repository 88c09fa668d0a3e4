"""GD104 xid: errors that the driver (Xid) or an NVSwitch (SXid) wrote into the kernel or Fabric Manager log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import xids
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.xid_remedy import steps
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.store import FactView
from gpudoctor.model import ERROR, NOTE, WARNING, CannotTell, Cause, Finding
from gpudoctor.pattern import lazy

XID = Cause(
    "GD104", "xid", "The driver or an NVSwitch logged an error (Xid, SXid)",
    "error: link, memory, GPU hardware, fallen off the bus, fatal SXid; note: a program's fault (13, 31, 43, 45), "
    "or before the last load of the driver; warning: the rest, and link errors that the driver itself calls non-fatal",
    "Each Xid is a numbered message of the NVIDIA driver, each SXid one of an NVSwitch. The number says what kind of part failed: "
    "a program (13, 31, 43, 45), memory (48, 64, 94, 95), an NVLink (74, 144 to 150), the GPU or its firmware (62, 119), "
    "the PCIe connection (79). Repeats of one number on one GPU are one event with a count. Some numbers only follow from "
    "another (45 cleans up, 154 says what the driver wants done), so the first one in time is the one to read. "
    "A load of the driver starts every GPU anew: what stands before it is history.",
    f"dmesg, the journal, nvidia-bug-report, /var/log/fabricmanager.log. Meanings: {xids.SOURCE}, state of {xids.DATE}",
    "By number: fix the program, reset or replace the GPU, look after the link. See the steps of the finding.",
)  # fmt: skip

_ERRORS = frozenset(("memory", "link", "gpu-hardware", "fallen-off", "switch-fatal", "always-fatal"))
_SWITCH = ("sxid", "nvswitch")
# A program that repeats the driver's words may give them another number (71 for 74).
_ON_LINK = lazy(r"\bNVLink: .{0,40}error.{0,40}on link \d")
_PREVIOUS = lazy(r"caused by previous Xid (\d{1,5})\b")


class Xid(BaseChecker):
    """One finding per device and number, with how often and the first and last line."""

    name: ClassVar[str] = "xid"
    needs = (KernelLog,)
    wants = (Gpus,)
    causes = (XID,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        groups: dict[tuple[str, str | None, int | None], list[KernelEvent]] = {}
        for event in facts[KernelLog].of("xid", *_SWITCH):
            where = event.bdf if event.gpu is None else event.subject
            groups.setdefault((event.kind, where, event.code), []).append(event)
        for events in groups.values():
            yield _finding(events, facts.get(Gpus))
        yield from _only_named(groups, facts.get(Gpus))
        if not groups and facts.recorded:
            yield CannotTell(XID.slug, "the lines of the kernel log at hand hold no Xid, but they may not be the whole log")


def _only_named(
    groups: dict[tuple[str, str | None, int | None], list[KernelEvent]], gpus: Gpus | None
) -> Iterator[Finding]:
    """`Xid … 45, … caused by previous Xid 149`: the cause is told even where its own line is not in the excerpt."""
    named: dict[tuple[str | None, int], list[KernelEvent]] = {}
    for event in (e for events in groups.values() for e in events):
        cause = _PREVIOUS.search(event.text)
        if cause is not None and ("xid", event.bdf, int(cause[1])) not in groups:
            named.setdefault((event.bdf, int(cause[1])), []).append(event)
    for (_, code), events in named.items():
        known = xids.lookup("xid", code)
        live = any(not e.stale for e in events)
        yield Finding(
            XID.slug,
            NOTE if not live or known.family == "application" else ERROR if known.family in _ERRORS else WARNING,
            _subject(events[0]),
            f"{_who(events[0], gpus)}: Xid {code}, named as the cause by a later line while its own is not in the input: {known.meaning}.",
            (events[0].at("text"),),
            remediation=steps(known.remedy, events[0].bdf, ()),
        )


def _known(event: KernelEvent) -> xids.Known:
    """The number's meaning, or that of an NVLink error where the message names a link."""
    known = xids.lookup(event.kind, event.code)
    if event.kind == "xid" and known.family != "link" and _ON_LINK.search(event.text):
        return xids.lookup("xid", 74)
    return known


def severity(events: list[KernelEvent]) -> str:
    """By the worst of the events that are not history."""
    live = [e for e in events if not e.stale]
    family = _known(events[0]).family
    if not live or family == "application":
        return NOTE
    if events[0].kind in _SWITCH:
        said = [e.fatal for e in live]
        fatal = True in said or (None in said and family in _ERRORS)
        return ERROR if fatal else WARNING
    # NVLink 5 marks each event itself; what it calls Nonfatal did not take a link down.
    mild = family == "link" and all(e.fatal is False for e in live)
    return ERROR if family in _ERRORS and not mild else WARNING


def _finding(events: list[KernelEvent], gpus: Gpus | None) -> Finding:
    first, last = events[0], events[-1]
    known = _known(first)
    links = tuple(sorted({e.link for e in events if e.link is not None}))
    number = f"{'Xid' if first.kind == 'xid' else 'SXid'} {first.code}"
    times = "" if len(events) == 1 else f", {len(events)} times"
    fatal = sum(e.fatal is True for e in events)
    marks = [f"{fatal} fatal" if len(events) > 1 else "fatal"] if fatal else []
    if links:
        marks.append(("port " if first.kind in _SWITCH else "link ") + ", ".join(map(str, links)))
    old = " It stands before the last load of the driver." if all(e.stale for e in events) else ""
    asked = f" Last: {last.text.partition('154, ')[2].strip()}." if known.remedy == "recovery" else ""
    marked = f" ({'; '.join(marks)})" if marks else ""
    message = f"{_who(first, gpus)}: {number}{times}{marked}: {known.meaning}.{asked}{old}"
    evidence = tuple(dict.fromkeys((first.at("text"), last.at("text"))))
    return Finding(
        XID.slug,
        severity(events),
        _subject(first),
        message,
        evidence,
        remediation=steps(known.remedy, first.bdf, links, first.gpu),
    )


def _subject(event: KernelEvent) -> str:
    return f"pci:{event.bdf}" if event.bdf is not None and event.kind in _SWITCH else event.subject


def _who(event: KernelEvent, gpus: Gpus | None) -> str:
    if event.bdf is None:
        return f"GPU{event.gpu}" if event.gpu is not None else "A GPU whose address the line does not give"
    if event.kind in _SWITCH:
        return f"NVSwitch {event.bdf}"
    gpu = gpus.by_bdf(event.bdf) if gpus is not None else None
    label = gpu.label if gpu is not None else f"the GPU at {event.bdf}"
    return label[0].upper() + label[1:]
