"""One diagnosis, one block: What, Cost, Seen, Also, Fix, always in this order."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.model import Diagnosis, Evidence, Finding, Step
from gpudoctor.report.layout import LABEL, MARK, Style, counted, hanging, justified, labelled

MAX_SEEN = 4
MAX_SUBJECTS = 8


def block(group: list[Diagnosis], style: Style) -> list[str]:
    """Diagnoses of one cause; the first in full, the others by subject."""
    head = group[0]
    finding = head.finding
    title = f"{MARK[finding.severity]} {finding.slug}   {subject(finding)}" + _more(group)
    line = style.plain(justified(title, finding.confidence, style))
    lines = [style.paint(line, finding.severity)]
    lines += labelled("What", finding.message, style)
    if finding.cost:
        lines += labelled("Cost", finding.cost, style)
    lines += _seen(finding.evidence, style)
    for other in group[1:]:
        lines += labelled("Same", f"{subject(other.finding)}: {other.finding.message}", style)
    also = effects([e for d in group for e in (*d.explains, *d.alike)])
    if also:
        lines += labelled("Also", also, style)
    lines += _fix(finding.remediation, style)
    return lines


def subject(finding: Finding) -> str:
    """`gpu:0000:81:00.0` -> `gpu 0000:81:00.0`, with its host where there are several."""
    kind, _, rest = finding.subject.partition(":")
    shown = f"{kind} {rest}" if rest else kind
    return f"{shown} on {finding.host}" if finding.host else shown


def _more(group: list[Diagnosis]) -> str:
    return f" and {len(group) - 1} more" if len(group) > 1 else ""


def _seen(evidence: tuple[Evidence, ...], style: Style) -> list[str]:
    lines: list[str] = []
    for place, item in enumerate(evidence[:MAX_SEEN]):
        text = f"{item.source}, {item.where}: {item.value}" if item.where else f"{item.source}: {item.value}"
        lines += labelled("Seen" if place == 0 else "", " ".join(text.split()), style)
    if len(evidence) > MAX_SEEN:
        lines += labelled("", f"and {len(evidence) - MAX_SEEN} more places (--format json has all)", style)
    return lines


def effects(findings: Iterable[Finding]) -> str:
    """`no-nvlink-path (3 pairs), path-sys (pair 0-1)`."""
    by_slug: dict[str, list[str]] = {}
    for effect in findings:
        by_slug.setdefault(effect.slug, []).append(effect.subject)
    words = []
    for slug, subjects in by_slug.items():
        unique = list(dict.fromkeys(subjects))
        if len(unique) == 1:
            words.append(f"{slug} ({unique[0].replace(':', ' ', 1)})")
        else:
            kinds = {s.partition(":")[0] for s in unique}
            words.append(f"{slug} ({counted(len(unique), kinds.pop() if len(kinds) == 1 else 'subject')})")
    return ", ".join(words)


def _fix(steps: tuple[Step, ...], style: Style) -> list[str]:
    lines: list[str] = []
    for number, step in enumerate(steps, 1):
        first = f"  {'Fix' if number == 1 else '':<{LABEL - 2}}{number}. "
        rest = " " * len(first)
        risk = f"[{step.risk}]" if step.risk != "none" else ""
        text = step.step.rstrip(".:") + ":" if step.command else step.step
        if step.command and len(first) + len(text) + 2 + len(step.command) + len(risk) + 1 <= style.width and "\n" not in step.command:
            lines.append(style.plain(f"{first}{text}  {step.command}" + (f"  {risk}" if risk else "")))
        else:
            lines += hanging(first, rest, f"{text} {risk}".strip() if risk else text, style)
            for command in (step.command or "").splitlines():
                lines.append(rest + style.plain(command))  # never wrapped: it is there to be copied
        if step.verify:
            lines += [f"{rest[:LABEL]}Verify: {style.plain(part)}" if place == 0 else f"{rest[:LABEL]}        {style.plain(part)}" for place, part in enumerate(step.verify.splitlines())]
    return lines
