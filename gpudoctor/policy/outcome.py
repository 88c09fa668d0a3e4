"""What became of one rule on one subject."""

from __future__ import annotations

from gpudoctor.model import Evidence, Finding, Missing
from gpudoctor.policy.cause import POLICY
from gpudoctor.record import KeyedRecord, replace

MET, BROKEN, UNKNOWN = "met", "broken", "unknown"


class Outcome(KeyedRecord):
    """`seen` and `wants` are short: they stand in the gate's one line."""

    rule: str  # the key of the policy: "pairs.path"
    status: str = UNKNOWN
    subject: str = "host"
    severity: str = "error"
    wants: str = ""
    seen: str = ""
    label: str = ""  # the subject for a reader: "GPU0 (0000:41:00.0)"
    reason: str = ""  # of UNKNOWN: why
    hint: str | None = None
    evidence: tuple[Evidence, ...] = ()

    def judged(self, fits: bool, seen: str, *evidence: Evidence) -> Outcome:
        return replace(self, status=MET if fits else BROKEN, seen=seen, evidence=evidence)

    def unread(self, reason: str, hint: str | None = None) -> Outcome:
        return replace(self, status=UNKNOWN, reason=reason, hint=hint)

    @property
    def finding(self) -> Finding:
        who = f"{self.label}: " if self.label else ""
        return Finding(
            POLICY.slug,
            self.severity,
            self.subject,
            f"{who}{self.rule} of the policy wants {self.wants}; here it is {self.seen}.",
            self.evidence or (Evidence("the policy", self.rule, self.wants),),
        )

    @property
    def missing(self) -> Missing:
        where = "" if self.subject == "host" else f" ({self.label or self.subject})"
        return Missing(f"{self.rule} of the policy{where}", self.reason, self.hint, needed=True)
