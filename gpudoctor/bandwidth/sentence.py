"""The one sentence that a reader takes away from a measurement: what was reached, whether that is right, and what to blame."""

from __future__ import annotations

from gpudoctor.bandwidth.session import Session
from gpudoctor.expect.opinion import LIMIT, Verdict
from gpudoctor.model import NOTE, Report

_MEASURED = ("busbw-low", "bandwidth-failed")  # say that, and not why


def sentence(session: Session, report: Report, verdict: Verdict | None) -> str:
    """The verdict of a measurement: what was reached in GB/s, whether that is right, and what to blame."""
    run = session.measured.run
    if run is None or verdict is None:
        return _one_gpu(session, report)
    if run.failures or report.diagnoses and report.diagnoses[0].finding.slug == "wrong-results":
        return _failed(session, report)
    level = f"{_who(session)} reach {run.plateau_busbw_gbs:.4g} GB/s in {run.collective}" if run.plateau_busbw_gbs else "No level was reached"
    if verdict.used is None or verdict.ratio is None:
        return f"{level}. Whether that is right is not known: {_reason(verdict)}. Your own limit settles it: --min-busbw GB/s."
    share = _share(verdict)
    if verdict.severity is None:
        also = _cause(report)
        return f"{level}, as they should: {share}." + (f" But: {also}." if also else "")
    low = f"{level}, {share}"
    culprits = [t for t in session.trials or () if t.culprit]
    if culprits:
        words = "; ".join(f"{t.name}={t.value} costs {t.loss_pct or 0:.0f} %, without it {t.after_gbs or 0:.3g} GB/s" for t in culprits)
        return f"{low}. This holds it back: {words}."
    cause = _cause(report)
    if cause:
        return f"{low}. {cause}."
    if session.trials is None:
        return f"{low}. Why was not looked into (--no-bisect)." if not session.options.bisect else f"{low}."
    tried = sum(t.why_not is None for t in session.trials)
    found = next((n for n in session.notes if " instead of " in n), None)
    if found:
        return f"{low}. No setting is to blame; what helped: {found}."
    variations = f"{tried} variation{'s' if tried != 1 else ''}"
    again = "measure again with nothing else running (nvidia-smi, uptime)"
    return f"{low}. Neither the facts of this host nor {variations} of the run explain it: {again}."


def _who(session: Session) -> str:
    count = len(session.targets)
    if session.options.backend == "gloo":
        return f"{count} processes on CPUs"
    names = {t.name for t in session.targets}
    name = names.pop() if len(names) == 1 else None
    return f"{count} x {name}" if name else f"{count} GPUs"


def _share(verdict: Verdict) -> str:
    assert verdict.used is not None and verdict.ratio is not None
    if verdict.used.kind == LIMIT:
        under = "under" if verdict.severity is not None else "not under"
        words = f"{under} the limit of {verdict.used.gbs:.4g} GB/s that was given"
        other = next((o for o in verdict.opinions if o.kind != LIMIT and o.gbs and o.why_not is None), None)
        if other is None or other.gbs is None or not verdict.measured_gbs:
            return words
        return f"{words}, and {100 * verdict.measured_gbs / other.gbs:.0f} % of the {other.words.removeprefix('the ')}"
    fine = f"fine from {100 * (verdict.warn_below or 0):.0f} % on"
    return f"{100 * verdict.ratio:.0f} % of the {verdict.expected_gbs or 0:.4g} GB/s of the {verdict.used.words.removeprefix('the ')}; {fine}"


def _reason(verdict: Verdict) -> str:
    return (verdict.why_not or "there is nothing to compare it with").removesuffix(".")


def _cause(report: Report) -> str | None:
    """The first diagnosis that says why, in its first sentence."""
    for diagnosis in report.diagnoses:
        if diagnosis.finding.severity != NOTE and diagnosis.finding.slug not in _MEASURED:
            return diagnosis.finding.message.split(". ")[0].rstrip(".")
    return None


def _failed(session: Session, report: Report) -> str:
    run = session.measured.run
    first = report.diagnoses[0].finding.message.split(". ")[0].rstrip(".") if report.diagnoses else ""
    words = first or f"The run failed: {run.failures[0].text if run is not None else ''}"
    for trial in session.trials or ():
        if trial.name is None and trial.why_not is None:
            words += ". Without peer to peer (NCCL_P2P_DISABLE=1) the same run works: peer to peer is what fails here"
    return f"{words}."


def _one_gpu(session: Session, report: Report) -> str:
    cause = _cause(report)
    copies = [c for part in session.parts for c in part.copies]
    rates = [(c.to_device_gbs, c.from_device_gbs) for c in copies if c.to_device_gbs and c.from_device_gbs]
    told = f" Its copies run at {rates[0][0]:.3g} GB/s to it and {rates[0][1]:.3g} GB/s from it" if len(rates) == 1 else ""
    if cause:
        return f"One GPU: nothing to measure between GPUs. {cause}."
    return f"One GPU: nothing to measure between GPUs.{told}{', as they should.' if told and report.verdict == 'pass' else '.' if told else ''}"
