"""Report to the JSON envelope of the contract (schema_version 1: fields are added, never renamed)."""

from __future__ import annotations

import json
from typing import Any

import gpudoctor
from gpudoctor.model import Diagnosis, Evidence, Finding, Report, Step
from gpudoctor.report.facts import facts_json

SCHEMA_VERSION = 1


def render(report: Report, extra: dict[str, Any] | None = None) -> str:
    """The report as one JSON object and a newline. extra: a command's own key (`bandwidth`, `gate`, …)."""
    return json.dumps({**envelope(report), **(extra or {})}, ensure_ascii=False) + "\n"


def envelope(report: Report) -> dict[str, Any]:
    """The keys that every JSON report has, as the contract names them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "gpudoctor", "version": gpudoctor.__version__},
        "source": dict(report.source),
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "facts": facts_json(report.hosts),  # type: ignore[arg-type]
        "results": [
            {
                "code": r.code,
                "slug": r.slug,
                "status": r.status,
                **({"reason": r.reason} if r.reason else {}),
                "findings": [_finding(f, r.code) for f in r.findings],
            }
            for r in report.results
        ],
        "diagnoses": [_diagnosis(d) for d in report.diagnoses],
        "missing": [{"fact": m.fact, "reason": m.reason, **({"hint": m.hint} if m.hint else {})} for m in report.missing],
        "unrecognised": list(report.unknown_input),
        "notes": list(report.notes),
    }


def of_no_host(exit_code: int) -> dict[str, Any]:
    """The envelope of what speaks of no host: the catalogue."""
    verdict = "pass" if exit_code == 0 else "unknown"
    return envelope(
        Report(
            source={"kind": "recorded", "paths": []}, hosts=(), results=(), diagnoses=(), missing=(), verdict=verdict,
            exit_code=exit_code,
        )
    )  # fmt: skip


def _evidence(evidence: tuple[Evidence, ...]) -> list[dict[str, str]]:
    return [{"source": e.source, "where": e.where, "value": e.value} for e in evidence]


def _finding(finding: Finding, code: str) -> dict[str, Any]:
    return {
        "code": code,
        "slug": finding.slug,
        "severity": finding.severity,
        "subject": finding.subject,
        "message": finding.message,
        "evidence": _evidence(finding.evidence),
        **({"host": finding.host} if finding.host else {}),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "step": step.step,
        **({"command": step.command} if step.command else {}),
        "risk": step.risk,
        **({"verify": step.verify} if step.verify else {}),
    }


def _diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    finding = diagnosis.finding
    return {
        "cause": finding.slug,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "subject": "host" if diagnosis.alike else finding.subject,
        "summary": finding.message,
        "explains": list(dict.fromkeys(f.slug for f in diagnosis.explains)),
        "evidence": _evidence(finding.evidence),
        "remediation": [_step(s) for s in finding.remediation],
        **({"gain": {"from": finding.gain.before, "to": finding.gain.after, "unit": finding.gain.unit}} if finding.gain else {}),
        **({"cost": finding.cost} if finding.cost else {}),
        **({"host": finding.host} if finding.host else {}),
        **({"subjects": [finding.subject, *(f.subject for f in diagnosis.alike)]} if diagnosis.alike else {}),
    }
