"""What a policy makes of the checks' findings: whose they are, what they count for, which of them somebody answers for."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.model import ERROR, FOUND, NOTE, OK, SKIPPED, WARNING, CheckResult, Finding
from gpudoctor.policy.allocation import Allocation
from gpudoctor.policy.cause import POLICY
from gpudoctor.policy.model import Acceptance, Policy
from gpudoctor.policy.outcome import BROKEN, UNKNOWN, Outcome
from gpudoctor.record import KeyedRecord, replace


class Weighed(KeyedRecord):
    """The results as the policy counts them, and what a reader has to know of it."""

    results: tuple[CheckResult, ...]
    accepted: tuple[tuple[Acceptance, Finding], ...] = ()
    expired: tuple[tuple[Acceptance, Finding], ...] = ()
    of_others: tuple[Finding, ...] = ()  # of GPUs that this job was not given


def weigh(
    results: Iterable[CheckResult],
    policy: Policy | None,
    given: Allocation,
    outcomes: tuple[Outcome, ...],
    today: str,
) -> Weighed:
    """today: YYYY-MM-DD. Without a policy only what is of other jobs is left out."""
    everything = [*results, *([_own(outcomes)] if policy is not None or outcomes else [])]
    accepted: list[tuple[Acceptance, Finding]] = []
    expired: list[tuple[Acceptance, Finding]] = []
    others: list[Finding] = []
    out = []
    for result in everything:
        kept = []
        for finding in result.findings:
            # An allocated GPU that is not there is of this job, whatever the list of its GPUs says.
            if finding.slug != POLICY.slug and not given.concerns(finding):
                others.append(finding)
                continue
            finding = _counted(finding, policy)
            entry = _entry(finding, policy)
            if entry is not None and entry.until < today:
                expired.append((entry, finding))
            elif entry is not None:
                accepted.append((entry, finding))
                words = f"{finding.message} Accepted until {entry.until}: {entry.reason}"
                finding = replace(finding, severity=NOTE, message=words)
            kept.append(finding)
        if len(kept) < len(result.findings) and not kept:
            result = replace(result, status=OK, reason="what was found concerns GPUs that this job was not given")
        out.append(replace(result, findings=tuple(kept)))
    return Weighed(results=tuple(out), accepted=tuple(accepted), expired=tuple(expired), of_others=tuple(others))


def _own(outcomes: tuple[Outcome, ...]) -> CheckResult:
    broken = [o.finding for o in outcomes if o.status == BROKEN]
    unread = list(dict.fromkeys(f"{o.missing.fact}: {o.reason}" for o in outcomes if o.status == UNKNOWN))
    reason = "; ".join(unread[:4]) + (f"; and {len(unread) - 4} more" if len(unread) > 4 else "") if unread else None
    status = FOUND if broken else SKIPPED if unread else OK
    return CheckResult(POLICY.code, POLICY.slug, status, reason, tuple(broken))


def _counted(finding: Finding, policy: Policy | None) -> Finding:
    rules = policy.findings if policy is not None else None
    if rules is not None and finding.slug in rules.fail:
        return replace(finding, severity=ERROR)
    if rules is not None and finding.slug in rules.warn:
        return replace(finding, severity=WARNING)
    return finding


def _entry(finding: Finding, policy: Policy | None) -> Acceptance | None:
    """The acceptance that lasts longest, so that a renewed one may stand beside the old."""
    fitting = [
        a for a in (policy.accept if policy else ()) if a.slug == finding.slug and a.subject in (None, finding.subject)
    ]
    return max(fitting, key=lambda a: a.until) if fitting and finding.severity != NOTE else None
