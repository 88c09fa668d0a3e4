"""Report to what a person reads (placeholder layout, see the verdict first)."""

from __future__ import annotations

from gpudoctor.discover import Plugins
from gpudoctor.model import ERROR, FOUND, OK, WARNING, Report


def verdict_line(report: Report) -> str:
    word = {"pass": "HEALTHY", "fail": "FAULT", "unknown": "UNKNOWN"}[report.verdict]
    made = sum(r.status in (OK, FOUND) for r in report.results)
    errors = sum(d.finding.severity == ERROR for d in report.diagnoses)
    warnings = sum(d.finding.severity == WARNING for d in report.diagnoses)
    return f"{word}  {errors} errors, {warnings} warnings, {made} of {len(report.results)} checks made."


def render(report: Report, plugins: Plugins, verbose: int = 0, colour: bool = False, unicode: bool = True) -> str:
    lines = [verdict_line(report)]
    for d in report.diagnoses:
        lines.append(f"{d.finding.severity} {d.finding.slug} {d.finding.subject}: {d.finding.message}")
    return "\n".join(lines) + "\n"
