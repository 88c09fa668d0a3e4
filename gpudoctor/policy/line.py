"""The gate's one line, for a prolog's log and the reason of a drained node."""

from __future__ import annotations

from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.model import FOUND, NOTE, OK, Diagnosis, Report, severity_rank
from gpudoctor.policy.cause import POLICY
from gpudoctor.policy.model import Policy
from gpudoctor.policy.outcome import BROKEN, MET, Outcome
from gpudoctor.read.text import clean

MOST = 240  # characters: a line of a log, and what `scontrol show node` still shows whole
_WORDS = {"pass": "PASS", "fail": "FAIL", "unknown": "UNKNOWN"}
# The section of a policy -> the checks that may say why, the nearest first. Said instead of `policy` where one of them found
# something about the same subject.
_WHY = {
    "allocation": ("gpu-missing", "gpu-not-visible"),
    "gpus": ("gpu-missing", "gpu-not-visible"),
    "pairs": ("nvlink-down", "fabric", "no-nvlink-path", "path-phb", "path-node", "path-sys"),
    "pcie": ("pcie-width", "slot-width", "pcie-speed", "slot-speed"),
    "nvlink": ("nvlink-down", "fabric"),
    "numa": ("numa-unknown", "numa-mismatch"),
    "nics": ("nic-link", "nic-far"),
    "environment": ("p2p-disabled-env", "nccl-env"),
    "measured": ("busbw-low", "pair-slow", "host-copy-slow"),
}


def line(report: Report, outcomes: tuple[Outcome, ...], policy: Policy | None) -> str:
    """`gpudoctor: FAIL node07 no-nvlink-path pair:0-1 (PHB, policy wants NVL) +1 more`."""
    store = report.hosts[0] if report.hosts else None
    assert store is None or isinstance(store, FactStore)
    host = f" {store.host}" if store is not None and store.host else ""
    if report.verdict == "fail":
        words = _fail(report, outcomes)
    elif report.verdict == "unknown":
        words = _unknown(report)
    else:
        words = _pass(report, outcomes, policy, store)
    text = " ".join(clean(f"gpudoctor: {_WORDS[report.verdict]}{host} {words}".replace("\n", " ")).split())
    return _short(text, MOST)


def _short(text: str, most: int) -> str:
    """Cut between words, and with a mark: half a word reads as another one."""
    if len(text) <= most:
        return text
    kept = text[: most - 3]
    at = kept.rfind(" ")
    return (kept[:at] if at > most // 2 else kept).rstrip(" ,;:(") + "..."


def _fail(report: Report, outcomes: tuple[Outcome, ...]) -> str:
    failing = [d for d in report.diagnoses if severity_rank(d.finding.severity) <= severity_rank(report.fail_on)]
    if not failing:
        return "an error that no diagnosis names"
    number = sum(1 + len(d.alike) for d in failing)
    more = f" +{number - 1} more" if number > 1 else ""
    said = _said(failing[0], report, outcomes)
    room = MOST - len(more) - 60  # for the beginning of the line
    return _short(said, room) + more


def _said(diagnosis: Diagnosis, report: Report, outcomes: tuple[Outcome, ...]) -> str:
    finding = diagnosis.finding
    if finding.slug == POLICY.slug:
        # Of several breaches the first in the policy's own order: its severity is as good as any, and GPU0 comes first.
        failing = {d.finding.message for d in report.diagnoses if d.finding.severity == finding.severity}
        for rule in outcomes:
            if rule.status == BROKEN and rule.finding.message in failing:
                return f"{_slug(rule, report)} {rule.subject} ({rule.seen}, policy wants {rule.wants})"
    return f"{finding.slug} {finding.subject}: {_first(finding.message)}"


def _slug(rule: Outcome, report: Report) -> str:
    section = rule.rule.partition(".")[0]
    found = {f.slug for r in report.results for f in r.findings if f.subject == rule.subject}
    return next(
        (slug for slug in _WHY.get("pairs" if section == "pair" else section, ()) if slug in found), POLICY.slug
    )


def _first(message: str) -> str:
    end = message.find(". ")
    return message if end < 0 else message[:end]


def _unknown(report: Report) -> str:
    needed = [m for m in report.missing if m.needed]
    if not needed:
        return "what the verdict needs could not be read"
    more = f" +{len(needed) - 1} more" if len(needed) > 1 else ""
    return f"{needed[0].fact}: {_short(needed[0].reason, 160)}{more}"


def _pass(report: Report, outcomes: tuple[Outcome, ...], policy: Policy | None, store: FactStore | None) -> str:
    counts: dict[str, int] = {}
    for gpu in (store.get(Gpus) if store is not None else None) or ():
        counts[gpu.name or "GPU"] = counts.get(gpu.name or "GPU", 0) + 1
    words = [f"{n} x {name}" for name, n in counts.items()]
    if policy is not None:
        words.append(f"{sum(o.status == MET for o in outcomes)} rules of {policy.name} met")
    made = sum(r.status in (OK, FOUND) for r in report.results)
    words.append(f"{made} of {sum(r.offered for r in report.results)} checks made")
    loud = [d for d in report.diagnoses if d.finding.severity != NOTE]
    if loud:
        number = sum(1 + len(d.alike) for d in loud)
        words.append(f"{number} warning{'s' * (number > 1)}: {loud[0].finding.slug} {loud[0].finding.subject}")
    return ", ".join(words)
