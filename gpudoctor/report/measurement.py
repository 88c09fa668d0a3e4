"""A live bandwidth run as a reader sees it: verdict, what holds it back, the table, copies, pairs, what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gpudoctor
from gpudoctor import pcie
from gpudoctor.facts.bandwidth import CPU, HostCopies, PairRate, PairRates
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.trials import Trials
from gpudoctor.model import NOTE, Report
from gpudoctor.report.bandwidth import view
from gpudoctor.report.blocks import block
from gpudoctor.report.layout import Style, hanging, listed

_INDENT = " " * 9
_WORDS = {"pass": "PASS", "fail": "FAULT", "unknown": "UNKNOWN"}
MATRIX_MOST = 16


def render(report: Report, extra: Mapping[str, Any], verdict: str, style: Style) -> str:
    """The whole page. verdict: the one sentence that a reader takes away."""
    parts = [_head(report, extra, style), verdict_lines(report, verdict, style)]
    parts += [block([d], style) for d in report.diagnoses if d.finding.severity != NOTE]
    for store in report.hosts:
        assert isinstance(store, FactStore)
        parts += [view(store, style), tried(store, style), copies(store, style), matrix(store, style)]
    parts.append(_measured(extra, style))
    parts.append([line for note in extra.get("notes", ()) for line in hanging("  - ", "    ", str(note), style)])
    # What the verdict says already is not said again.
    unread = [m for m in report.missing if m.reason[1:].rstrip(".") not in verdict]
    parts.append([line for m in unread for line in hanging("Not read: ", "  ", f"{m.fact}: {m.reason}", style)])
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def verdict_lines(report: Report, verdict: str, style: Style) -> list[str]:
    """The verdict's word, coloured, before the sentence of a measurement."""
    word = _WORDS[report.verdict]
    if report.verdict == "pass" and report.diagnoses and report.diagnoses[0].finding.severity != NOTE:
        word = "WARNING"
    lines = hanging(f"{word:<9}", _INDENT, verdict, style)
    return [style.paint(lines[0][: len(word)], report.verdict) + lines[0][len(word) :], *lines[1:]]


def _head(report: Report, extra: Mapping[str, Any], style: Style) -> list[str]:
    words = [f"gpudoctor {gpudoctor.__version__}", f"bandwidth of {extra.get('collective')}"]
    if extra.get("program"):
        words.append(str(extra["program"]))
    if report.seconds:
        words.append(f"{report.seconds:.1f} s")
    return hanging("", "  ", listed(words, style), style) + [
        line for note in report.notes for line in hanging("Note: ", "      ", note, style)
    ]


def _measured(extra: Mapping[str, Any], style: Style) -> list[str]:
    spread = extra.get("spread_pct")
    return [] if spread is None else hanging("", "  ", f"The repeats of the large sizes lie within {spread:g} %.", style)


def tried(store: FactStore, style: Style) -> list[str]:
    """What was varied after a miss, and what it brought."""
    lines = []
    for trial in store.get(Trials) or ():
        if trial.why_not is not None:
            result = trial.why_not
        else:
            result = f"{trial.after_gbs:.4g} GB/s" if trial.after_gbs is not None else "no level"
            result += f" instead of {trial.before_gbs:.4g}" if trial.before_gbs is not None else ""
            result += "   <- this is it" if trial.culprit else ""
        lines += hanging(f"  {trial.what} ".ljust(44, "."), " " * 6, f" {result}", style) if len(trial.what) < 41 else hanging("  ", " " * 6, f"{trial.what}: {result}", style)
    return ["Tried", *lines] if lines else []


def copies(store: FactStore, style: Style) -> list[str]:
    """Host copies in GB/s each way, and the link as it was while they ran."""
    lines = []
    for copy in store.get(HostCopies) or ():
        to = f"{copy.to_device_gbs:.1f}" if copy.to_device_gbs is not None else "?"
        back = f"{copy.from_device_gbs:.1f}" if copy.from_device_gbs is not None else "?"
        link = pcie.name(copy.speed_gts, copy.width)
        lines.append(style.plain(f"  GPU{copy.gpu}   to the GPU {to} GB/s, from it {back} GB/s" + (f"   (link while busy: {link})" if link else "")))
    return ["Host copies, pinned memory", *lines] if lines else []


def matrix(store: FactStore, style: Style) -> list[str]:
    """One table per kind of rate; a list where there are too many GPUs for the width."""
    kinds: dict[str, list[PairRate]] = {}
    for rate in store.get(PairRates) or ():
        kinds.setdefault(rate.what, []).append(rate)
    lines: list[str] = []
    for what, rates in kinds.items():
        lines += [*([""] if lines else []), *_table(what, rates, style)]
    return lines


def _table(what: str, rates: Sequence[PairRate], style: Style) -> list[str]:
    indices = sorted({i for r in rates for i in (r.a, r.b)})
    known = {(r.a, r.b): r.gbs for r in rates}
    noun = "rank " if all(r.path == CPU for r in rates) else "GPU"
    missing = len(indices) * (len(indices) - 1) // 2 - len(known)
    if len(known) < 3 or len(indices) > MATRIX_MOST or missing > len(known):
        return [f"Pairs, {what} in GB/s", *(style.plain(f"  {noun}{a} and {noun}{b}   {_rate(gbs)}") for (a, b), gbs in sorted(known.items()))]
    lines = [f"Pairs, {what} in GB/s", " " * 9 + "".join(f"{noun + str(i):>7}" for i in indices)]
    for row in indices:
        cells = []
        for column in indices:
            value = known.get((min(row, column), max(row, column)))
            cells.append(f"{style.plain('·'):>7}" if row == column else f"{_rate(value):>7}" if value is not None else f"{'?':>7}")
        lines.append(f"  {noun + str(row):<7}" + "".join(cells))
    return [*lines, f"  ? not measured ({missing} of {missing + len(known)})"] if missing else lines


def _rate(gbs: float) -> str:
    return f"{gbs:.1f}" if gbs >= 10 else f"{gbs:.3g}"
