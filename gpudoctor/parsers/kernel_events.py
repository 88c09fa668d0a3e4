"""Events read from lines of a kernel log to a log: each once, however often it was written down, and the stale ones marked."""

from __future__ import annotations

import re

from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.pattern import lazy
from gpudoctor.record import replace

_DAY = r"(?P<month>[^\W\d_]{3,12}\.?|\d{1,2}[月월]) (?P<day>[ \d]\d) (?P<time>\d\d:\d\d:\d\d)"
# How a line is stamped: `[12.34]`, `[Sun Feb 23 …]`, `Feb 23 16:24:18 host kernel:`, `2025-02-23T…`, or not at all.
_STAMPS = tuple(
    (name, lazy(pattern))
    for name, pattern in (
        # The first is what rsyslog makes of it, `Nov 16 … kernel: [12.34] …`; journalctl writes months in the user's language.
        ("messages", rf"^\s*{_DAY} \S+ kernel: \[ *\d{{1,9}}\.\d{{3,9}}\]"),
        ("syslog", rf"^\s*(?=[A-Z][a-z]{{2}} ){_DAY} "),
        ("journal", rf"^\s*{_DAY} "),
        ("date", r"\[[A-Z][a-z]{2} [A-Z]?[a-z0-9]{2}"),
        ("iso", r"(?P<moment>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)"),
        ("seconds", r"\[ *\d{1,9}\.\d{3,9}\]"),
    )
)
_PATTERNS = dict(_STAMPS)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def as_one_log(events: list[KernelEvent]) -> KernelLog:
    """What a text that may hold one log in several forms says."""
    streams = [_in_time(style, stream) for style, stream in _streams(events).items()]
    return KernelLog.merge([KernelLog(tuple(_aged(_once(stream)))) for stream in streams] or [KernelLog(())], _quiet)


def _quiet(_: object) -> None:
    """Events have no fields in which two logs could contradict each other."""


def _streams(events: list[KernelEvent]) -> dict[str, list[KernelEvent]]:
    """Events by how their lines are stamped: a bug report holds one log in several forms (dmesg, journal, messages).

    Merging counts an event that two forms show once. A stamped line that is there twice to the letter is a copy.
    """
    streams: dict[str, list[KernelEvent]] = {}
    seen: set[str] = set()
    for event in events:
        whole = event.at("text").value
        style = next((name for name, pattern in _STAMPS if pattern.search(whole)), "none")
        if style != "none":
            if whole in seen:
                continue
            seen.add(whole)
        streams.setdefault(style, []).append(event)
    return streams


def _in_time(style: str, events: list[KernelEvent]) -> list[KernelEvent]:
    """Events by their stamps: nvidia-bug-report shows the journal of this boot first and those of earlier boots below it.

    As they came where a stamp does not say which of two comes first: no year in it, or months of an unknown language.
    """
    if style == "iso":
        return sorted(events, key=lambda e: _found(style, e)["moment"].replace("T", " "))
    if style not in ("messages", "syslog", "journal"):
        return events
    stamps = [_found(style, e) for e in events]
    names = {s["month"] for s in stamps}
    months = {name: _month(name) for name in names}
    numbers = set(months.values())
    if len(names) > 1 and (None in numbers or {1, 12} <= numbers):
        return events
    moments = [(months[s["month"]] or 0, int(s["day"]), s["time"]) for s in stamps]
    return [events[n] for n in sorted(range(len(events)), key=moments.__getitem__)]


def _found(style: str, event: KernelEvent) -> re.Match[str]:
    found = _PATTERNS[style].search(event.at("text").value)
    assert found is not None  # the stream is of events in which it was found
    return found


def _month(name: str) -> int | None:
    if name[0].isdigit():
        return int(name[:-1])
    low = name.lower()
    return _MONTHS.index(low) + 1 if low in _MONTHS else None


def _once(events: list[KernelEvent]) -> list[KernelEvent]:
    """One event for what the kernel says in several lines.

    An SXid comes with `Severity …` and `Data {…}` lines that repeat its number, and an AER error with an announcement
    of the root port.
    """
    told = {(e.bdf, e.code) for e in events if e.kind == "sxid" and e.fatal is not None}
    reported = {e.bdf for e in events if e.kind == "aer"}
    out: list[KernelEvent] = []
    held = 0
    for n, event in enumerate(events):
        if event.kind == "aer-held-back":
            held += event.held_back or 0
            continue
        if event.kind == "aer-received" and event.driver is None and [e.kind for e in events[n + 1 : n + 2]] == ["aer"]:
            continue  # its report follows, though the announcement may name another source (`0000:00:00.0`)
        if event.kind == "sxid" and event.fatal is None:
            if (event.bdf, event.code) in told:
                continue
            told.add((event.bdf, event.code))
        if event.kind == "aer-received":
            if event.bdf in reported:
                continue
            event = replace(event, kind="aer")
        if held and event.kind == "aer":
            event, held = replace(event, held_back=held), 0
        out.append(event)
    return out


def _aged(events: list[KernelEvent]) -> list[KernelEvent]:
    """Mark as stale what stands before the last load of the driver: a load starts every GPU anew.

    The module says that it loads after it has tried every card, so a card that fails to start stands above that line.
    """
    loads = [-1, *(n for n, e in enumerate(events) if e.kind == "driver-load")]
    last, before = loads[-1], loads[-2] if len(loads) > 1 else -1

    def stale(n: int, event: KernelEvent) -> bool:
        tried = event.kind in ("refused", "probe-failed") or event.text.startswith(("NVRM: fallen off", "NVRM: BAR"))
        return event.kind != "driver-load" and n < (before if tried else last)

    return [replace(e, stale=True) if stale(n, e) else e for n, e in enumerate(events)]
