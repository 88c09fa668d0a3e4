"""GD804 wrong-results, GD805 bandwidth-failed, GD105 gpu-not-visible: what a bandwidth run says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.nccl_failure import NcclFailure
from gpudoctor.checkers.visibility import GPU_NOT_VISIBLE
from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRun, Failure
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.nccl import Nccl, NcclMessage
from gpudoctor.facts.store import FactView
from gpudoctor.model import CERTAIN, ERROR, CannotTell, Cause, Evidence, Finding, Step

WRONG_RESULTS = Cause(
    "GD804",
    "wrong-results",
    "A collective returned wrong data",
    "error",
    "The program compares every result with what it must be. Wrong values are silent corruption: a training run with them does not "
    "stop, it learns from them. Between GPUs it is mostly peer-to-peer traffic that an IOMMU or ACS redirects or drops, or a driver "
    "changed to allow peer to peer on cards without it; within one GPU it is memory or an overclocked or failing chip. Speed does "
    "not matter before this is found.",
    "all_reduce_perf -c 1 (the #wrong columns and `Out of bounds values`); NCCL_RUN_DIAGNOSTICS=1 (2.31 and later: `p2p: write mismatch`, "
    "`p2p: read mismatch`; NCCL marks these [INFO] and goes on)",
    "Do not train on these GPUs. Find out whether it needs peer to peer, then which pair; then IOMMU and ACS, Xid and ECC, the GPU.",
)
BANDWIDTH_FAILED = Cause(
    "GD805",
    "bandwidth-failed",
    "A bandwidth run did not finish",
    "error",
    "An error line of the program, of NCCL or CUDA below it, or the launcher's word of an exit status says that the run ended before "
    "its own end. The line names the call that failed, seldom the reason: that stands in NCCL's log. A table that just stops, or has "
    "no footer, is an excerpt and no failure.",
    "the run's own output and exit status; NCCL_DEBUG=INFO",
    "Run it again with NCCL_DEBUG=INFO and read the first warning, not the last.",
)
# nccl-tests ends with these words for wrong values or a missed NCCL_TESTS_MIN_BW too: then the run itself finished.
_OF_ITSELF = ("test", "exit")


class BandwidthRunState(BaseChecker):
    """Wrong data, error lines and exit statuses of measured runs."""

    name: ClassVar[str] = "bandwidth-run"
    needs = (Bandwidth,)
    wants = (Gpus, Nccl)
    causes = (WRONG_RESULTS, BANDWIDTH_FAILED, *NcclFailure.causes)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        nccl = facts.get(Nccl) or Nccl()
        for run in facts[Bandwidth]:
            if run.wrong:
                yield _wrong(run)
            elif run.rows and (run.wrong is None or run.checked is False):
                yield CannotTell(WRONG_RESULTS.slug, "results were not compared (-c 0), or the excerpt does not show it")
            short = next((f for f in run.failures if f.kind == "gpus"), None)
            if short is not None:
                yield _too_few(run, short, facts.get(Gpus))
            told = [f for f in run.failures if f.kind not in _OF_ITSELF or not run.completed]
            if told or run.exit_status and not run.completed:
                yield _failed(run, told, nccl)
            if told and short is None and not any(m.slug for m in nccl.messages):
                from gpudoctor.checkers.bandwidth_causes import cause

                named = cause(run, told)
                if named is not None:
                    yield named


def _who(run: BandwidthRun) -> str:
    """At the beginning of a sentence."""
    return run.program or run.collective or "The run"


def _subject(run: BandwidthRun) -> str:
    """The one GPU of a run on one, else the host."""
    if run.nranks == 1 and len(run.team) == 1:
        member = run.team[0]
        return f"gpu:{member.bdf}" if member.bdf else f"gpu:{member.device}" if member.device is not None else "host"
    return "host"


def _wrong(run: BandwidthRun) -> Finding:
    bad = [r for r in run.rows if r.wrong_out or r.wrong_in]
    count = sum((r.wrong_out or 0) + (r.wrong_in or 0) for r in bad)
    where = f" at {len(bad)} of {len(run.rows)} sizes ({count} elements)" if bad else ""
    alone = run.nranks == 1
    steps = [Step("Stop jobs on these GPUs until this is found.", risk="disruptive")]
    again = run.again("1M", "256M", check=True)
    if alone:
        steps += [
            Step("One rank uses no link: look at the GPU itself (ECC, Xid)", "nvidia-smi -q -d ECC,ROW_REMAPPER; sudo dmesg | grep -i xid"),
            Step("Run its memory test; a GPU that fails it goes back", "dcgmi diag -r 3", "disruptive", again),
        ]
    elif run.sample:  # it copies from GPU to GPU itself, so that NCCL's settings do nothing to it
        steps += [
            Step("IOMMU and ACS are the first suspects; a driver changed for peer to peer is the next", "gpudoctor check --select iommu,acs,p2p-patched,p2p-unsupported"),
            Step("Else the GPUs' memory", "nvidia-smi -q -d ECC,ROW_REMAPPER; sudo dmesg | grep -i xid", verify=again),
        ]  # fmt: skip
    else:
        steps += [
            Step("See whether it needs peer to peer", f"NCCL_P2P_DISABLE=1 {again}", "reversible"),
            Step("If that is right: IOMMU and ACS are the first suspects; a driver changed for peer to peer is the next", "gpudoctor check --select iommu,acs,p2p-patched,p2p-unsupported"),
            Step("If it is wrong too: the GPUs' memory", "nvidia-smi -q -d ECC,ROW_REMAPPER; sudo dmesg | grep -i xid", verify=again),
        ]  # fmt: skip
    return Finding(
        WRONG_RESULTS.slug,
        ERROR,
        _subject(run),
        f"{_who(run)} returned wrong data{where}." + (" With one rank no link took part: it is the GPU or its memory." if alone else ""),
        _places(run, "wrong"),
        CERTAIN,
        "results of any job on these GPUs cannot be trusted",
        tuple(steps),
    )


def _too_few(run: BandwidthRun, failure: Failure, gpus: Gpus | None) -> Finding:
    have = len(gpus.listed) if gpus is not None and gpus.complete else None
    more = f" The driver lists {have}." if have is not None else ""
    hidden = have is not None and failure.asked is not None and have >= failure.asked
    steps = [Step("See what this process is given", "nvidia-smi -L; env | grep -E 'VISIBLE|SLURM.*GPU'; ls -l /dev/nvidia[0-9]*")]
    if hidden or have is None:
        steps.append(Step("If the host has more: unset the variable, or ask the scheduler or container for them", "unset CUDA_VISIBLE_DEVICES", "reversible"))
    steps.append(Step("Else ask for those there are", f"{run.program or 'all_reduce_perf'} -g {failure.found}", verify="gpudoctor bandwidth --gpus all"))
    return Finding(
        GPU_NOT_VISIBLE.slug,
        ERROR,
        "host",
        f"{_who(run)} asked for {failure.asked} GPUs and CUDA shows {failure.found}.{more}",
        _places(run, "failures"),
        CERTAIN,
        "nothing was measured",
        tuple(steps),
    )


def _own_words(run: BandwidthRun, nccl: Nccl) -> NcclMessage | None:
    """NCCL's first warning in the run's output, where none names a cause."""
    source = run.at("failures").source
    own = [m for m in nccl.messages if m.source == source and m.level == "WARN" and m.family in ("unknown", "no-sysfs")]
    return min(own, key=lambda m: (m.family != "unknown", m.line), default=None)


def _failed(run: BandwidthRun, told: list[Failure], nccl: Nccl) -> Finding:
    # The first line that names a call says most; "Test failure" and the launcher come after it.
    order = ("gpus", "cuda", "nccl", "timeout", "test", "exit")
    first = min(told, key=lambda f: order.index(f.kind)) if told else None
    words = f": {first.text}" if first is not None else f" with exit status {run.exit_status}"
    from gpudoctor.nccl_messages import family  # which only a job's log needs

    own = _own_words(run, nccl) if told else None
    known = family(own.family) if own is not None else None
    if own is not None:
        words += f". NCCL's own words are `{own.text[:160]}`" + (f". {known.meaning}" if known is not None else "")
    rows = f" after {len(run.rows)} row{'s' if len(run.rows) > 1 else ''}" if run.rows else " before its first row"
    return Finding(
        BANDWIDTH_FAILED.slug,
        ERROR,
        "host",
        f"{_who(run)} failed{rows}{words}",
        (*_places(run, "failures"), *((own.at("text"),) if own is not None else ())),
        CERTAIN,
        "the run has no result" if not run.rows else None,
        (
            *(
                (Step("Its buffers did not fit: see what is on the GPUs" + ("" if run.sample else ", and end at a smaller size (-e)"), "nvidia-smi", verify=run.again("8", "256M")),)
                if any("out of memory" in f.text for f in told)
                else ()
            ),
            *((Step(known.remedy),) if known is not None else ()),
            Step(
                "Run it again with nothing else on these GPUs" + ("" if run.sample else "; NCCL's log is read with it"),
                run.again("8", "256M"),
                verify=run.again("8", "256M"),
            )
            if run.own or run.sample
            else Step(
                "Run it again with NCCL's log, and read the first warning in it",
                f"NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log {run.again('8', '256M')}",
                verify="gpudoctor check --from /tmp/nccl.*.log",
            ),
        ),
    )


def _places(run: BandwidthRun, name: str) -> tuple[Evidence, ...]:
    return (run.at(name),)
