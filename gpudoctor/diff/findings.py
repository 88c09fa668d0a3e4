"""What the checks say of both sides: findings that appeared, went, or weigh otherwise."""

from __future__ import annotations

from gpudoctor.diff.match import Seats
from gpudoctor.diff.model import BETTER, NODES, OTHER, WORSE, Change, Notes, Side
from gpudoctor.model import FOUND, OK, CheckResult, Finding, severity_rank


def compare(a: Side, b: Side, host_a: str | None, host_b: str | None, seats: Seats, notes: Notes) -> list[Change]:
    """Findings are facts of second hand: they are joined to the changes that explain them, so they are given back."""
    if not a.results or not b.results:
        if a.results or b.results:
            notes.only("what the checks say", "A" if a.results else "B", why="a report of `facts` judges nothing")
        return []
    out: list[Change] = []
    others = {r.slug: r for r in b.results}
    for one in a.results:
        other = others.get(one.slug)
        if other is None:
            notes.only("the check", "A", one.slug)
            continue
        before = {_in_b(f, seats): f for f in _of(one, host_a)}
        after = {f.subject: f for f in _of(other, host_b)}
        for subject in dict.fromkeys((*before, *after)):
            out += _one(one, other, before.get(subject), after.get(subject), subject, notes)
    for slug in others.keys() - {r.slug for r in a.results}:
        notes.only("the check", "B", slug)
    return out


def _of(result: CheckResult, host: str | None) -> list[Finding]:
    return [f for f in result.findings if f.host is None or f.host == host]


def _in_b(finding: Finding, seats: Seats) -> str:
    """The finding's subject as B numbers it."""
    kind, _, rest = finding.subject.partition(":")
    if kind == "gpu" and not rest.isdigit():
        gpu = seats.of_bdf(rest)
        return gpu.subject if gpu is not None else finding.subject
    numbers = rest.split("/")[0].split("-") if kind in ("pair", "nvlink", "gpu") else []
    if not numbers or not all(n.isdigit() and len(n) < 6 for n in numbers):
        return finding.subject
    new = [seats.to_b(int(n)) for n in numbers]
    if None in new:
        return finding.subject
    if kind == "pair":
        return "pair:" + "-".join(str(n) for n in sorted(n for n in new if n is not None))
    return f"{kind}:{new[0]}" + (f"/{rest.split('/', 1)[1]}" if "/" in rest else "")


def _one(one: CheckResult, other: CheckResult, before: Finding | None, after: Finding | None, subject: str, notes: Notes) -> list[Change]:
    finding = after or before
    assert finding is not None
    if before is not None and after is not None:
        if before.severity == after.severity:
            return []
        worse = severity_rank(after.severity) < severity_rank(before.severity)
        weighs = f"{_a(after.severity)} now, was {_a(before.severity)}"
        if notes.mode == NODES:
            weighs = f"{_a(before.severity)} on A and {_a(after.severity)} on B"
        words = f"{finding.slug} ({_subject(subject)}) is {weighs}: {after.message}"
        direction = WORSE if worse else BETTER
    else:
        silent = one if before is None else other
        # What could not be judged has neither come nor gone.
        if silent.status not in (OK, FOUND) or silent.status == FOUND and silent.reason:
            side = "A" if before is None else "B"
            notes.lack(
                f"{finding.slug} ({_subject(subject)})", f"{_a(finding.severity)} in {'B' if side == 'A' else 'A'}, and {side} could not judge it: {silent.reason}"
            )
            return []
        came = "appeared" if before is None else "is no longer found"
        if notes.mode == NODES:
            came = f"is found on {'B' if before is None else 'A'} only"
        words = f"{finding.slug} ({_subject(subject)}) {came}: {finding.message}"
        direction = WORSE if before is None else BETTER
    return [
        Change(
            kind="finding", subject=subject, message=words, direction=direction if finding.severity != "note" else OTHER,
            severity=finding.severity, before=before.severity if before else None, after=after.severity if after else None,
            evidence=tuple((side, e) for side, f in (("A", before), ("B", after)) if f for e in f.evidence[:2]),
            about=frozenset((subject,)), slug=finding.slug,
        )
    ]  # fmt: skip


def _subject(subject: str) -> str:
    return subject.replace(":", " ", 1)


def _a(severity: str) -> str:
    return f"an {severity}" if severity == "error" else f"a {severity}"
