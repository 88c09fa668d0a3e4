"""Report to what a person reads: verdict, diagnoses, the picture of the host, what was not looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import gpudoctor
from gpudoctor import pcie
from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.hang import FlightRecorder, Watchdog
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.outcomes import ToolTests
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import ERROR, FOUND, NOTE, NOTHING_KNOWN, OK, WARNING, Diagnosis, Report
from gpudoctor.parts import find
from gpudoctor.report.blocks import block, subject
from gpudoctor.report.layout import MARK, Style, counted, hanging, listed
from gpudoctor.report.not_read import not_read
from gpudoctor.report.topology import cell, link, view

_INDENT = " " * 9
MAX_NOTES = 12


def render(report: Report, verbose: int = 0, colour: bool = False, unicode: bool = True) -> str:
    """The whole page. Same words with and without colour; 80 columns."""
    style = Style(colour=colour, unicode=unicode)
    parts = [_head(report, style), _verdict(report, style)]
    loud = [d for d in report.diagnoses if d.finding.severity != NOTE]
    quiet = [d for d in report.diagnoses if d.finding.severity == NOTE]
    parts += [block(group, style) for group in grouped(loud)]
    parts += [block([d], style) for d in quiet] if verbose else [_notes(quiet, style)]
    parts.append(expect(report, style))
    for store in report.hosts:
        parts.append(_picture(store, style, len(report.hosts) > 1))  # type: ignore[arg-type]
        parts += _of_a_job(store, style)  # type: ignore[arg-type]
    parts.append(_all_checks(report, style) if verbose > 1 else [])
    parts.append(not_read(report, style, verbose))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def verdict_line(report: Report) -> str:
    """One line for -q, for standard output beside -o, and for scripts' logs."""
    return " ".join(" ".join(_verdict(report, Style(unicode=False, width=10_000))).split())


def head_words(report: Report) -> list[str]:
    """Program, source, host and time: what every page says first."""
    words = [f"gpudoctor {gpudoctor.__version__}"]
    paths = report.source.get("paths")
    if isinstance(paths, list) and paths:
        words.append(f"{len(paths)} sources" if len(paths) > 1 else "standard input" if paths[0] == "-" else paths[0])
    for store in report.hosts[:1] if len(report.hosts) == 1 else ():
        words += _host_words(store)  # type: ignore[arg-type]
    if len(report.hosts) > 1:
        words.append(counted(len(report.hosts), "host"))
    if report.seconds:
        words.append(f"{report.seconds:.1f} s")
    return words


def _head(report: Report, style: Style) -> list[str]:
    lines = hanging("", "  ", listed(head_words(report), style), style)
    for note in report.notes:
        lines += hanging("Note: ", "      ", note, style)
    return lines


def _host_words(store: FactStore) -> list[str]:
    words = [store.host] if store.host else []
    counts: dict[str, int] = {}
    for gpu in store.get(Gpus) or ():
        counts[gpu.name or "GPU"] = counts.get(gpu.name or "GPU", 0) + 1
    words += [f"{n} x {name}" for name, n in counts.items()]
    driver = store.get(Driver)
    if driver is not None and driver.entry.version:
        words.append(f"driver {driver.entry.version}")
    platform = store.get(Platform)
    if platform is not None and platform.entry.container:
        words.append(f"in a {platform.entry.container} container")
    return words


def headline(report: Report) -> tuple[str, str]:
    """The verdict's word and what a reader takes away."""
    made = sum(r.status in (OK, FOUND) for r in report.results)
    errors = sum(1 + len(d.alike) for d in report.diagnoses if d.finding.severity == ERROR)
    warnings = sum(1 + len(d.alike) for d in report.diagnoses if d.finding.severity == WARNING)
    of = f"{made} of {sum(r.offered for r in report.results)} checks made"
    if report.verdict == "unknown":
        text = f"Could not tell. {_why_unknown(report)} {_capital(of)}."
        word = "UNKNOWN"
    elif errors or warnings:
        top = report.diagnoses[0].finding
        count = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        if report.verdict == "fail" and not errors:
            count = f"{counted(warnings, 'warning')}, which --fail-on {report.fail_on} makes a fault"
        text = f"{_first_sentence(top.message)} {count}, {of}."
        word = "FAULT" if report.verdict == "fail" else "WARNING"
    else:
        # An excerpt without a fault is no healthy host: only a whole look earns the word.
        whole = not any(s.recorded for s in report.hosts)  # type: ignore[attr-defined]
        word = "HEALTHY" if whole else "NO FAULT"
        plain = _no_peers(report)
        if not made and not whole:
            word, text = "UNJUDGED", f"What was given was read, but it is too little for any check: {of}."
        elif whole and plain:
            text = f"As good as these cards get: {plain}. {_capital(of)}."
        else:
            text = f"{_capital(of) if whole else 'in what was given: ' + of}. {_healthy_words(report)}".strip()
    return word, text


def _verdict(report: Report, style: Style) -> list[str]:
    word, text = headline(report)
    lines = hanging(f"{word:<9}", _INDENT, text, style)
    return [style.paint(lines[0][: len(word)], report.verdict) + lines[0][len(word) :], *lines[1:]]


def _no_peers(report: Report) -> str | None:
    """Words for a host whose cards have neither NVLink nor peer to peer, by their make: nothing there is to be fixed."""
    if len(report.hosts) != 1:
        return None
    gpus = list(report.hosts[0].get(Gpus) or ())  # type: ignore[attr-defined]
    parts = [find(g.device_id, g.name) for g in gpus]
    if len(gpus) < 2 or any(p is None or p.nvlink or p.p2p is not False or p.display_only for p in parts):
        return None
    names = {g.name for g in gpus}
    what = f"{len(gpus)} x {names.pop()}" if len(names) == 1 else f"these {len(gpus)} GPUs"
    return f"{what} have no NVLink and no peer to peer; NCCL goes through host memory"


def expect(report: Report, style: Style) -> list[str]:
    """For cards without peers: the rate that bounds them, and where to look when training is slow all the same."""
    if not _no_peers(report) or report.verdict != "pass":
        return []
    gpus = list(report.hosts[0].get(Gpus) or ())  # type: ignore[attr-defined]
    rates = [pcie.gbs(g.max_speed_gts, g.width) for g in gpus]
    lines = []
    if all(rates):
        wire = min(r for r in rates if r)
        lines += hanging(
            "  What to expect   ",
            " " * 19,
            f"every byte crosses PCIe twice, to host memory and back: at most {wire:.1f} GB/s each way a GPU, and all-reduce gets a part of it",
            style,
        )
    lines += hanging("  Training slow?   ", " " * 19, f"gpudoctor bandwidth --gpus {len(gpus)}   measures what they reach", style)
    return lines


def _why_unknown(report: Report) -> str:
    """The one reason to read first: a finding that says it, else the first source that is missing."""
    for d in report.diagnoses[:1]:
        if d.finding.severity != NOTE:
            return _first_sentence(d.finding.message)
    needed = [m for m in report.missing if m.needed]
    if needed and needed[0].fact == NOTHING_KNOWN:
        return _sentence(_capital(needed[0].reason))
    if not needed:
        return "What the verdict needs could not be read."
    return _sentence(f"Missing is {needed[0].fact}: {needed[0].reason}")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."


def _first_sentence(text: str) -> str:
    """Up to the first full stop that is not within a quotation."""
    end = text.find(". ")
    while end >= 0 and text.count("`", 0, end) % 2 and "`" in text[end:]:
        end = text.find(". ", end + 1)
    return _sentence(text if end < 0 else text[: end + 1])


def _healthy_words(report: Report) -> str:
    """What is good, in a few words: `Every pair NV18, every link Gen5 x16.`"""
    words = []
    for store in report.hosts[:1]:
        pairs = [p for p in store.get(Pairs) or () if p.path]  # type: ignore[attr-defined]
        kinds = {cell(p) for p in pairs}
        if len(kinds) == 1:
            words.append(f"{'Every pair' if len(pairs) > 1 else 'The pair is'} {kinds.pop()}")
        gpus = store.get(Gpus) or ()  # type: ignore[attr-defined]
        links = {link(g) for g in gpus}
        if len(links) == 1 and None not in links and " of " not in str(next(iter(links))):
            words.append(f"every link {links.pop()}" if len(gpus) > 1 else f"the link is {links.pop()}")
    text = ", ".join(words)
    return f"{_capital(text)}." if text else ""


def grouped(diagnoses: Iterable[Diagnosis]) -> list[list[Diagnosis]]:
    """Subjects with the same cause, severity and remedy read better as one block; so do three or more in any case."""
    groups: dict[tuple[str, str, str | None], list[Diagnosis]] = {}
    for d in diagnoses:
        groups.setdefault((d.finding.severity, d.finding.slug, d.finding.host), []).append(d)
    out: list[list[Diagnosis]] = []
    for group in groups.values():
        alike = len({d.finding.remediation for d in group}) == 1
        out.extend([group] if len(group) > 2 or alike else [[d] for d in group])
    return out


def _notes(notes: list[Diagnosis], style: Style) -> list[str]:
    if not notes:
        return []
    lines = [style.paint("Worth knowing", "bold") + " (-v shows the evidence)"]
    for d in notes[:MAX_NOTES]:
        subjects = list(dict.fromkeys(subject(f) for f in (d.finding, *d.alike)))
        where = subjects[0] if len(subjects) == 1 else f"{len(subjects)} subjects: {', '.join(subjects[:3])}" + (" …" if len(subjects) > 3 else "")
        # Several of one subject differ in what they say; of several subjects the first speaks for the others.
        messages = list(dict.fromkeys(f.message for f in (d.finding, *d.alike))) if len(subjects) == 1 else [d.finding.message]
        if len(messages) > MAX_NOTES:
            messages[MAX_NOTES:] = [f"and {len(messages) - MAX_NOTES} more (-v)"]
        for place, message in enumerate(messages):
            lines += hanging(f"  {style.plain(MARK[NOTE])} ", "    ", f"{d.finding.slug} ({where}): {message}{'' if place else _therefore(d)}", style)
    if len(notes) > MAX_NOTES:
        lines.append(f"    and {len(notes) - MAX_NOTES} more (-v)")
    return lines


def _therefore(d: Diagnosis) -> str:
    slugs = list(dict.fromkeys(f.slug for f in d.explains))
    return f" (explains {', '.join(slugs)})" if slugs else ""


def _picture(store: FactStore, style: Style, several: bool) -> list[str]:
    lines = view(store, style)
    if Nccl in store:
        from gpudoctor.report.nccl import view as of_nccl

        lines = [*lines, *of_nccl(store, style)]
    return [f"Host {style.plain(store.host or 'unnamed')}", *lines] if several and lines else lines


def _of_a_job(store: FactStore, style: Style) -> Iterator[list[str]]:
    """What was measured, and what hangs. Loaded where it is there to be shown: most reports are of a host alone."""
    if Bandwidth in store:
        from gpudoctor.report.bandwidth import view as measured

        yield measured(store, style)
    if ToolTests in store:
        from gpudoctor.report.tools import view as tested

        yield tested(store, style)
    if Watchdog in store or FlightRecorder in store:
        from gpudoctor.report.hang import view as hangs

        yield hangs(store, style)


def _all_checks(report: Report, style: Style) -> list[str]:
    lines = ["Checks"]
    for r in report.results:
        lines += hanging(f"  {r.code:<7}{r.slug:<20}", " " * 29, r.status + (f": {r.reason}" if r.reason else ""), style)
    return lines
