"""The catalogue of causes as a table, as one entry, and as JSON."""

from __future__ import annotations

from typing import Any

from gpudoctor.discover import Plugins
from gpudoctor.facts.base import Fact
from gpudoctor.model import SEVERITIES, Cause
from gpudoctor.report.layout import Style, hanging

_STYLE = Style()


def table(plugins: Plugins) -> str:
    """Code, slug, the gravest severity and title of every cause."""
    from tabulate import tabulate

    rows = [(c.code, c.slug, gravest(c), c.title) for c in plugins.causes]
    lines = [tabulate(rows, headers=("code", "slug", "up to", "says"), tablefmt="plain", maxcolwidths=[None, None, None, 40]), ""]
    for failure in plugins.failures:
        lines += hanging(f"{failure.name}: ", "  ", f"could not be loaded: {failure.reason}", _STYLE)
    lines.append(f"{len(plugins.causes)} causes from {len(plugins.checkers)} checks. `gpudoctor explain SLUG` has the details.")
    return "\n".join(_STYLE.plain(part) for line in lines for part in line.split("\n")) + "\n"


def gravest(cause: Cause) -> str:
    """Of the severities that its rule names."""
    return next((severity for severity in SEVERITIES if severity in cause.severity), "-")


def entry(plugins: Plugins, cause: Cause) -> str:
    """Everything about one cause, for a person."""
    lines = [f"{cause.code}  {cause.slug}", cause.title, ""]
    for label, text in (
        ("Severity", cause.severity),
        ("Why", cause.reasoning),
        ("Seen in", cause.evidence),
        ("Remedy", cause.remedy),
        ("Needs", needs(plugins, cause)),
    ):
        for place, paragraph in enumerate(text.split("\n")):
            lines += hanging(f"{label if place == 0 else '':<10}", " " * 10, paragraph, _STYLE)
    for t in cause.thresholds:
        lines += hanging(f"{'Limit':<10}", " " * 10, f"{t.name}: {t.value:g} {t.unit} ({t.source}, {t.date})", _STYLE)
    return "\n".join(lines) + "\n"


def markdown(plugins: Plugins) -> str:
    """The whole catalogue as one page."""
    lines = ["# What gpudoctor can say", "", "Written by `make catalogue` from the checks themselves.", ""]
    lines += ["| code | slug | severity |", "|---|---|---|"]
    lines += [f"| {c.code} | [`{c.slug}`](#{c.slug}) | {c.severity} |" for c in plugins.causes]
    for cause in plugins.causes:
        lines += ["", f"## {cause.slug}", "", f"{cause.code}: {cause.title}.", "", cause.reasoning, ""]
        lines += [f"- **Severity**: {cause.severity}", f"- **Seen in**: {cause.evidence}", f"- **Remedy**: {cause.remedy}"]
        lines += [f"- **Needs**: {needs(plugins, cause)}"]
        lines += [f"- **Limit**: {t.name}: {t.value:g} {t.unit} ({t.source}, {t.date})" for t in cause.thresholds]
    return "\n".join(lines) + "\n"


def needs(plugins: Plugins, cause: Cause) -> str:
    """What each check of this cause must have, with a command that shows it; of several checks any one will do."""
    ways = []
    # The check that has the cause's name first: the others come upon it while they look at something else.
    for checker in sorted(plugins.checkers, key=lambda c: c.name != cause.slug):
        if any(c.slug == cause.slug for c in checker.causes):
            all_of = [_shown(kind) for kind in checker.needs]
            one_of = " or ".join(_shown(kind) for kind in checker.any_of)
            ways.append("; ".join([*all_of, one_of] if one_of else all_of))
    return "; or ".join(dict.fromkeys(w for w in ways if w)) or "nothing in particular"


def _shown(kind: type[Fact]) -> str:
    return f"{kind.label} ({kind.hint})" if kind.hint else kind.label


def cause_json(plugins: Plugins, cause: Cause) -> dict[str, Any]:
    """One entry of the catalogue."""
    return {
        "code": cause.code,
        "slug": cause.slug,
        "title": cause.title,
        "severity": cause.severity,
        "reasoning": cause.reasoning,
        "evidence": cause.evidence,
        "remedy": cause.remedy,
        "needs": needs(plugins, cause),
        "thresholds": [
            {"name": t.name, "value": t.value, "unit": t.unit, "source": t.source, "date": t.date} for t in cause.thresholds
        ],
    }


def as_json(plugins: Plugins) -> dict[str, Any]:
    """The whole catalogue, and the plugins that could not be loaded."""
    return {
        "schema_version": 1,
        "checks": [cause_json(plugins, c) for c in plugins.causes],
        "failures": [{"name": f.name, "reason": f.reason} for f in plugins.failures],
    }
