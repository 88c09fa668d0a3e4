"""Why a bandwidth run failed, by CUDA's or NCCL's words that nccl-tests prints in its own error line."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.bandwidth import BandwidthRun, Failure
from gpudoctor.model import ERROR, LIKELY, POSSIBLE, Finding, Step
from gpudoctor.nccl_messages import ECHO, Family, classify

_RESULT_ONLY = "torch-cuda"  # "unhandled cuda error": a call of CUDA's failed, and not which


def cause(run: BandwidthRun, told: Iterable[Failure]) -> Finding | None:
    """One finding beside `bandwidth-failed`; None where the line names nothing but a result."""
    known = [(family, failure) for failure in told if (family := _family(failure)) is not None]
    if not known:
        return None
    family, failure = min(known, key=lambda k: k[0].tier)
    name = run.program or run.collective
    return Finding(
        family.slug or "",
        ERROR,
        "host",
        f"{name or 'The run'} failed ({failure.text}). {family.meaning}",
        (run.at("failures"),),
        POSSIBLE if family.id == _RESULT_ONLY else LIKELY,
        "the run has no result" if not run.rows else None,
        (Step(family.remedy), *((Step("If the test's own buffers did not fit: end at a smaller size", run.again("8", "256M")),) if "out of memory" in failure.text and not run.sample else ())),
    )


def _family(failure: Failure) -> Family | None:
    if failure.kind not in ("cuda", "nccl"):
        return None
    quoted = failure.text.partition("'")[2].rstrip().removesuffix("'")
    # From 2.13 on NCCL's last warning stands behind its result.
    result, _, last = quoted.partition(" / ")
    text = f"Cuda failure '{result}'" if failure.kind == "cuda" else last.strip() or result
    found = classify(text + "\n")
    if found is None or found[0].slug is None:
        return None
    return found[0] if found[0].tier < ECHO and (last.strip() or failure.kind == "cuda") or found[0].id == _RESULT_ONLY else None
