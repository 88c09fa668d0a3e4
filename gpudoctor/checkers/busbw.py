"""GD801 busbw-low: a measured bus bandwidth under what the links should give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.expect.opinion import THRESHOLDS, Opinion, Verdict, amount
from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRun, PeerCopies, Wanted
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Cpu
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.facts.trials import Trials
from gpudoctor.model import CERTAIN, LIKELY, WARNING, CannotTell, Cause, Finding, Gain, Step

if TYPE_CHECKING:
    from gpudoctor.expect.group import Group

BUSBW_LOW = Cause(
    "GD801",
    "busbw-low",
    "The measured bus bandwidth is under what the links should give",
    "under 85 % of what is expected: warning; under 70 %: error; held against the wire alone: under 45 %, under 30 %",
    "busbw is what each GPU's link carries, whatever the number of GPUs, so it can be held against that link. Judged is the level of "
    "the large sizes, never nccl-tests' footer, which averages in all the small ones. Expected is, in this order: the limit that was "
    "given or a baseline saved on this host; what the same part reached elsewhere with the same links, number of GPUs, collective and "
    "size (each figure with its source); NCCL's own estimate for its rings, from its log, unless a setting held it down; and the wire, "
    "that is links times rate, or PCIe generation times lanes of the narrowest hop. One rank measures nothing, and without a known part "
    "or link nothing is expected. A copy between two peers is held against the same copy through host memory, which takes the same PCIe "
    "links and more of them, and against the wire.",
    "all_reduce_perf -b 8 -e 4G -f 2, p2pBandwidthLatencyTest, nvidia-smi topo -m, NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH",
    "Find what holds it back: a setting that switches peer to peer off, a link that is down or narrow, a pair on a longer path.",
    THRESHOLDS,
)


class BusbwLow(BaseChecker):
    """Holds every measured table, and every pair's copies, against what their links should give."""

    name: ClassVar[str] = "busbw"
    any_of = (Bandwidth, PeerCopies)
    wants = (Gpus, Pairs, NvLinks, PciTree, Nccl, Cpu, Wanted, Trials)
    causes = (BUSBW_LOW,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        # Loaded where something was measured: most runs look at a host alone, and need only know what could be said.
        if facts.get(PeerCopies) is not None:
            from gpudoctor.checkers.peer_copies import slow_copies

            yield from slow_copies(facts)
        from gpudoctor.expect.opinions import assess
        from gpudoctor.expect.seats import around_of

        around = around_of(facts)
        for run in facts.get(Bandwidth) or ():
            if not run.rows and (run.failures or not run.completed):
                continue  # what did not run is bandwidth-failed's to say, or a header in an excerpt
            group, verdict = assess(run, around, facts.get(Wanted))
            if verdict.used is None:
                yield CannotTell(BUSBW_LOW.slug, f"{what(run, group)}: {verdict.why_not}{_min_bw(run)}")
            elif verdict.severity is not None:
                yield _finding(run, group, verdict, verdict.used)


def what(run: BandwidthRun, group: Group) -> str:
    """`all_reduce over 2 x NVIDIA H200 (NV18)`."""
    who = group.name or "GPU" + ("s" if run.nranks != 1 else "")
    count = (
        f"{run.nranks} x "
        if run.nranks is not None and group.name
        else f"{run.nranks} "
        if run.nranks is not None
        else ""
    )
    return f"{run.collective or 'a collective'} over {count}{who}" + (f" ({group.link})" if group.link and group.observed else "")


def subject(run: BandwidthRun, group: Group) -> str:
    """`pair:0-1` where two known GPUs ran, else the host."""
    indices = sorted(g.index for g in group.gpus if g.index is not None)
    return f"pair:{indices[0]}-{indices[1]}" if len(indices) == 2 and run.nranks == 2 else "host"


def _min_bw(run: BandwidthRun) -> str:
    if not run.below_minimum:
        return ""
    return ". NCCL_TESTS_MIN_BW was not met, but it is held against the average of all sizes" + (
        ", which one rank can never raise above 0" if run.nranks == 1 else ""
    )


def _finding(run: BandwidthRun, group: Group, verdict: Verdict, used: Opinion) -> Finding:
    measured, ratio, expected = verdict.measured_gbs or 0.0, verdict.ratio or 0.0, verdict.expected_gbs or 0.0
    reached = f"reaches {measured:.3g} GB/s at {amount(verdict.size)}" if verdict.size else f"levels out at {measured:.3g} GB/s"
    # Links that nobody looked at are no proof: the board is known to have them, this run may not have had them all.
    severity = verdict.severity if group.observed or used.kind in ("limit", "baseline", "graph") else WARNING
    certain = severity == verdict.severity and group.observed
    others = [
        f"{o.words}: {o.gbs:.4g} GB/s"
        for o in verdict.opinions
        if o.kind != used.kind and o.gbs is not None and o.why_not is None
    ]
    also = f" Beside it: {'; '.join(others)}." if others else ""
    if severity != verdict.severity:
        also += " It stays a warning, since the links of this host are not in the input: add `nvidia-smi topo -m`."
    return Finding(
        BUSBW_LOW.slug,
        severity or WARNING,
        subject(run, group),
        f"{what(run, group)} {reached}, {100 * ratio:.0f} % of the {expected:.3g} GB/s of the {used.words.removeprefix('the ')}; "
        f"the limit is {verdict.limit_words}.{also}",
        (run.at("rows"), *group.evidence),
        CERTAIN if certain else LIKELY,
        f"{measured:.3g} of {expected:.3g} GB/s" if used.kind != "wire" else f"{measured:.3g} GB/s where the wire has {expected:.3g}",
        _steps(run, group),
        Gain(round(measured, 1), round(expected, 1), "GB/s") if used.kind != "wire" else None,
        runs=(run.at("*"),),
    )


def _steps(run: BandwidthRun, group: Group) -> tuple[Step, ...]:
    again = run.again("256M", "4G", 4)
    look = f"NCCL_DEBUG=INFO {again} 2>&1 | grep -E ' via |set by environment|NCCL_.* set'"
    if run.own:
        # NCCL's log is read with every run of ours.
        look = f"{again} --format json | python3 -c \"import json, sys; [print(c['transports'], c['env']) for c in json.load(sys.stdin)['facts'].get('nccl', [])]\""
    return (
        Step("See which way NCCL goes (P2P, SHM or NET) and what it was told", look),
        Step("See whether a link, a slot or a setting of this host explains it", "gpudoctor check"),
        Step("Measure again with nothing else on these GPUs, and let gpudoctor try what holds it back", f"gpudoctor bandwidth --gpus {_gpus(run, group)}", verify=again),
    )  # fmt: skip


def _gpus(run: BandwidthRun, group: Group) -> str:
    indices = [str(g.index) for g in group.gpus if g.index is not None]
    return ",".join(indices) if indices else str(run.nranks or 2)
