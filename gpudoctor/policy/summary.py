"""The `gate` key of the JSON: which rules there were, and what became of them."""

from __future__ import annotations

from typing import Any

from gpudoctor.policy.allocation import Allocation
from gpudoctor.policy.model import Policy
from gpudoctor.policy.outcome import BROKEN, MET, UNKNOWN, Outcome
from gpudoctor.policy.weigh import Weighed


def summary(
    policy: Policy | None,
    source: str | None,
    outcomes: tuple[Outcome, ...],
    weighed: Weighed,
    given: Allocation,
    line: str,
) -> dict[str, Any]:
    return {
        "policy": {"name": policy.name, "source": source} if policy is not None else None,
        "line": line,
        "on_unknown": policy.on_unknown if policy is not None else "hold",
        "rules": {status: sum(o.status == status for o in outcomes) for status in (MET, BROKEN, UNKNOWN)},
        "not_met": [_outcome(o) for o in outcomes if o.status != MET],
        "gpus": {"judged": "all" if given.ours is None else sorted(given.ours), "told_by": given.told_by or None},
        "accepted": [
            {"slug": f.slug, "subject": f.subject, "reason": a.reason, "until": a.until, "expired": expired}
            for expired, entries in ((False, weighed.accepted), (True, weighed.expired))
            for a, f in entries
        ],
        "of_other_jobs": [{"slug": f.slug, "severity": f.severity, "subject": f.subject} for f in weighed.of_others],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "rule": outcome.rule,
        "subject": outcome.subject,
        "status": outcome.status,
        "wants": outcome.wants or None,
        "seen": outcome.seen or None,
        "reason": outcome.reason or None,
    }
