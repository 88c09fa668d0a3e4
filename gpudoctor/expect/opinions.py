"""All opinions on one run, side by side."""

from __future__ import annotations

from gpudoctor.expect import reference as figures
from gpudoctor.expect.group import Group, group_of
from gpudoctor.expect.opinion import GRAPH, LIMIT, WIRE, Opinion, Verdict, judge
from gpudoctor.expect.seats import Around
from gpudoctor.facts.bandwidth import SHARE, TWICE, BandwidthRun, Wanted
from gpudoctor.facts.nccl import Graph, NcclComm
from gpudoctor.nccl_defaults import means_default
from gpudoctor.record import replace

RING = 4  # NCCL's number for the ring pattern in its graph lines
# A run under one of these gets what NCCL was told to do, and its own estimate follows: it cannot vouch for itself.
RESTRICTING = (
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MAX_RINGS",
    "NCCL_MAX_CTAS", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_IGNORE_DISABLED_P2P", "NCCL_P2P_DIRECT_DISABLE",
)  # fmt: skip


def assess(run: BandwidthRun, around: Around, wanted: Wanted | None = None) -> tuple[Group, Verdict]:
    """What the run should have reached by each source, and the verdict of the first that can be used."""
    group = group_of(run, around)
    largest = max((row.size for row in run.rows), default=0)
    found = [
        _limit(wanted),
        figures.baseline(wanted.baselines, run, group.devices, largest) if wanted is not None else None,
        *([] if run.backend != "nccl" else _of_links(run, group, around, largest)),
    ]
    verdict = judge(run, tuple(o for o in found if o is not None), wanted.min_ratio if wanted is not None else None)
    if verdict.used is None and verdict.measured_gbs is not None:
        why = "a run on CPUs says nothing of GPU links" if run.backend != "nccl" else group.unknown
        verdict = replace(verdict, why_not=why or verdict.why_not)
    return group, verdict


def _limit(wanted: Wanted | None) -> Opinion | None:
    if wanted is None or wanted.limit_gbs is None:
        return None
    return Opinion(kind=LIMIT, gbs=wanted.limit_gbs, words="the limit given", source="command line or policy")


def _of_links(run: BandwidthRun, group: Group, around: Around, largest: int) -> list[Opinion | None]:
    if group.unknown is not None:
        return []
    known = group.part is not None and group.link is not None and run.nranks is not None and run.collective is not None
    named = group.observed or (run.nranks or 0) > 4
    return [
        figures.reference(group.part, group.link or "", run.nranks or 0, run.collective or "", group.nvls, largest)
        if known and named and group.part is not None
        else None,
        _graph(run, group, around),
        _wire(group),
    ]


def _graph(run: BandwidthRun, group: Group, around: Around) -> Opinion | None:
    """NCCL's own estimate of its rings: channels x bandwidth of the pattern-4 line in its log.

    Where a setting held this run down, that of a run without the setting, if one was made.
    """
    if run.collective not in (*TWICE, *SHARE[:2]):
        return None
    own = _own_graph(group)
    clean = around.trials.estimate if around.trials is not None else None
    if clean is None or clean.nranks != run.nranks or own is not None and own.why_not is None:
        return own
    without = f" without {', '.join(clean.without)}" if clean.without else ""
    return Opinion(
        kind=GRAPH,
        gbs=clean.channels * clean.bw_gbs,
        words=f"NCCL graph estimate of a run{without} ({clean.channels} x {clean.bw_gbs:g})",
        source=clean.at("bw_gbs").source,
        why_not=_detour(group, clean.type_intra),
    )


def _own_graph(group: Group) -> Opinion | None:
    comm = group.comm
    best = ring_of(comm) if comm is not None else None
    if comm is None or best is None:
        return None
    return Opinion(
        kind=GRAPH,
        gbs=best.channels * best.bw_intra,
        words=f"NCCL graph estimate ({best.channels} x {best.bw_intra:g})",
        source=comm.source,
        why_not=restriction(comm) or _detour(group, best.type_intra),
    )


def ring_of(comm: NcclComm) -> Graph | None:
    """The ring that NCCL's search found; where its ranks differ, the least."""
    rings = [g for r in comm.ranks for g in r.graphs if g.pattern == RING and g.channels > 0 and g.bw_intra > 0]
    return min(rings, key=lambda g: g.channels * g.bw_intra, default=None)


def restriction(comm: NcclComm) -> str | None:
    """Why this run's own estimate is no measure: a setting in force."""
    name = next((n for n in RESTRICTING if n in comm.env and not means_default(n, comm.env[n])), None)
    return f"made under {name}={comm.env[name]}, so it expects what that setting leaves" if name is not None else None


def _detour(group: Group, type_intra: str) -> str | None:
    if group.link is not None and group.link.startswith("NV") and type_intra not in ("NVL", "NVB"):
        return f"it counts on {type_intra}, not on the NVLinks that are there"
    return None


def _wire(group: Group) -> Opinion | None:
    if group.wire_gbs is None and group.wire_why_not is None:
        return None
    return Opinion(
        kind=WIRE,
        gbs=group.wire_gbs,
        words=f"wire ({group.wire_words})" if group.wire_words else "wire",
        source="links as read on this host" if group.observed else f"what a board with {group.name} must have",
        why_not=group.wire_why_not,
    )
