"""Findings to diagnoses: walk the table of causes, keep the roots, rank them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gpudoctor.correlate.causes import ENDS_A_RUN, JOB_WIDE_CAUSES, JOB_WIDE_EFFECTS, TABLE, Explains
from gpudoctor.model import CONFIDENCES, ERROR, NOTE, Diagnosis, Finding, severity_rank


def diagnose(
    findings: Iterable[Finding],
    gpus_of: Mapping[tuple[str | None, str], frozenset[str]] | None = None,
    table: tuple[Explains, ...] = TABLE,
    jobs_of: Callable[[Finding], frozenset[str]] | None = None,
) -> tuple[Diagnosis, ...]:
    """Roots with what they explain, most important first. Independent of the order of the findings; none is lost.

    gpus_of: (host, subject) -> the GPUs a subject concerns, each under all its names (`gpu:0000:41:00.0`, `gpu:3`).
    jobs_of: the jobs that a finding is of; none: of the host, or of any of them (correlate.jobs).
    """
    ordered = sorted(findings, key=_key)
    jobs = [jobs_of(finding) if jobs_of is not None else frozenset() for finding in ordered]
    near = _nearness(gpus_of or {})
    # A cause of less weight does not swallow an effect of more: a note that explains an error would hide the error.
    parents: dict[int, int] = {}
    for effect_at, effect in enumerate(ordered):
        for rule in table:
            if effect.slug not in rule.effects:
                continue
            for cause_at, cause in enumerate(ordered):
                if (
                    cause.slug == rule.cause
                    and cause_at != effect_at
                    and effect_at not in parents
                    and (cause.host == effect.host or cause.slug in JOB_WIDE_CAUSES and effect.slug in JOB_WIDE_EFFECTS)
                    and severity_rank(cause.severity) <= severity_rank(effect.severity)
                    and near(rule.scope, cause, effect)
                    and _of_its_kind(cause, effect)
                    and (not jobs[cause_at] or not jobs[effect_at] or jobs[cause_at] & jobs[effect_at])
                    and (not cause.runs or not effect.runs or set(cause.runs) & set(effect.runs))
                    and not _above(parents, effect_at, cause_at)
                ):
                    parents[effect_at] = cause_at
    explained: dict[int, list[Finding]] = {}
    for effect_at, cause_at in parents.items():
        while cause_at in parents:
            cause_at = parents[cause_at]
        explained.setdefault(cause_at, []).append(ordered[effect_at])
    roots = [
        (finding, tuple(sorted(explained.get(place, ()), key=_key)))
        for place, finding in enumerate(ordered)
        if place not in parents
    ]
    return tuple(sorted(_folded(roots), key=_weight))


_TOLD = "CUDA error 802"
# What is not measured, and which settings can be behind it.
_BY_NETWORK = frozenset(("socket-fallback", "gdr-off"))
_NETWORK = ("NCCL_IB", "NCCL_NET", "NCCL_SOCKET", "NCCL_OOB", "NCCL_DMABUF", "NCCL_CROSS", "NCCL_TOPO", "NCCL_GRAPH")


def _of_its_kind(cause: Finding, effect: Finding) -> bool:
    """A protocol that somebody pinned takes no adapter away. The fabric explains itself only where a program was told that the
    fabric is not set up, and the service or the driver says why."""
    if cause.slug == effect.slug == "fabric":
        return _TOLD in effect.message and _TOLD not in cause.message
    return cause.slug != "nccl-env" or effect.slug not in _BY_NETWORK or any(name in cause.message for name in _NETWORK)


def _key(finding: Finding) -> tuple[object, ...]:
    return (
        severity_rank(finding.severity),
        finding.slug,
        finding.host or "",
        _natural(finding.subject),
        finding.message,
    )


def _natural(subject: str) -> tuple[object, ...]:
    """`pair:2-10` after `pair:2-9`; PCI addresses are hexadecimal, of equal length, and go as texts: 07, 0f, 18."""
    import re

    if re.search(r"(?:^|:)[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", subject):
        kind, _, address = subject.partition(":")
        return ((1, 0, f"{kind}:"), (1, 0, address))
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", subject))


def _weight(diagnosis: Diagnosis) -> tuple[object, ...]:
    """Severity first, then what ended a run itself or by what it explains, then how sure, then how much it explains."""
    finding = diagnosis.finding
    ended = any(f.severity == ERROR and f.slug in ENDS_A_RUN for f in (finding, *diagnosis.explains))
    return (
        severity_rank(finding.severity),
        not (finding.severity == ERROR and ended),
        CONFIDENCES.index(finding.confidence),
        -len(diagnosis.explains),
        *_key(finding)[1:],
    )


def _above(parents: Mapping[int, int], ancestor: int, place: int) -> bool:
    """Is `ancestor` a cause of `place` already? Stops two findings that explain each other from both vanishing."""
    while place in parents:
        place = parents[place]
        if place == ancestor:
            return True
    return False


def _nearness(gpus_of: Mapping[tuple[str | None, str], frozenset[str]]) -> Callable[[str, Finding, Finding], bool]:
    def concerned(finding: Finding) -> frozenset[str]:
        return gpus_of.get((finding.host, finding.subject), frozenset((finding.subject,)))

    def near(scope: str, cause: Finding, effect: Finding) -> bool:
        if scope == "host":
            return True
        if scope == "same":
            return cause.subject == effect.subject
        if cause.subject == "host":  # said of all GPUs at once
            return True
        return bool(concerned(cause) & concerned(effect))

    return near


def _folded(roots: list[tuple[Finding, tuple[Finding, ...]]]) -> list[Diagnosis]:
    """Notes of one slug on one host become one diagnosis: 120 pairs over the socket link are one fact to a reader."""
    out: list[Diagnosis] = []
    notes: dict[tuple[str | None, str], list[tuple[Finding, tuple[Finding, ...]]]] = {}
    for finding, explains in roots:
        if finding.severity == NOTE:
            notes.setdefault((finding.host, finding.slug), []).append((finding, explains))
        else:
            out.append(Diagnosis(finding, explains))
    for same in notes.values():
        first, explains = same[0]
        rest = tuple(f for f, _ in same[1:])
        also = tuple(e for _, effects in same[1:] for e in effects)
        out.append(Diagnosis(first, explains + also, rest))
    return out
