"""What NCCL decided: a few lines for each communicator, readable from two ranks to thousands."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.nccl import Graph, Nccl, NcclComm, kind_of
from gpudoctor.facts.store import FactStore
from gpudoctor.nccl_diagnostics import FAULT, PASSED, REMARK, STRANGE, UNABLE, read
from gpudoctor.nccl_messages import DOES_WITHOUT, ECHO, ending, family
from gpudoctor.report.layout import Style, counted, hanging, spans
from gpudoctor.report.nccl_choices import line as choices

_COLUMN = 13
_SHOWN = 8  # communicators; the rest are counted
_SLOW_INIT = 1.0  # s; below that nobody waits for it
_ALIKE = 3  # communicators of one shape are one line
OLDEST = (2, 4)  # releases before it print too little to judge


def view(store: FactStore, style: Style) -> list[str]:
    """Lines of the picture; empty without a log of NCCL's."""
    nccl = store.get(Nccl)
    comms = [c for c in nccl or () if c.procs and (c.nranks or c.transports or c.counts or c.version or c.channels)]
    lines: list[str] = []
    groups: dict[tuple[object, ...], list[NcclComm]] = {}
    for comm in comms:
        groups.setdefault(_shape(comm), []).append(comm)
    for number, same in enumerate(groups.values()):
        if number == _SHOWN:
            lines.append(f"{'':<{_COLUMN}}and {counted(sum(map(len, list(groups.values())[number:])), 'communicator')} more (--format json)")
            break
        lines += _comm(same, style)
    chosen = choices(nccl.procs) if nccl is not None else ""
    if chosen:
        lines += hanging(f"{'' if lines else 'NCCL':<{_COLUMN}}", " " * _COLUMN, chosen, style)
    if nccl is not None and nccl.diagnostics:
        lines += hanging(f"{'' if lines else 'NCCL':<{_COLUMN}}", " " * _COLUMN, _diagnostics(nccl), style)
    warned = (m for m in (nccl.messages if nccl is not None else ()) if m.family == "unknown" and m.level in ("WARN", "ATTN"))
    unknown = list({m.text: m for m in reversed([*warned])}.values())[::-1]
    if nccl is not None and unknown and not any(m.slug for m in nccl.messages):
        said = "; ".join(f"`{m.text[:160]}` (line {m.line})" for m in unknown[:_ALIKE])
        more = f" and {len(unknown) - _ALIKE} more" if len(unknown) > _ALIKE else ""
        lines += hanging(f"{'' if lines else 'NCCL':<{_COLUMN}}", " " * _COLUMN, f"warns of something that gpudoctor does not know: {said}{more}", style)
    return lines + _goes_on(nccl, bool(lines), style)


def _goes_on(nccl: Nccl | None, under: bool, style: Style) -> list[str]:
    """What NCCL complains of, and no check judges: what it goes on without, and what only follows from something that is not here."""
    said = nccl.messages if nccl is not None else ()
    alone = not any(m.slug is not None and m.tier <= ECHO for m in said)  # nothing says what ended the run, if it ended
    told = {
        m.family: m
        for m in reversed(said)
        if m.tier == DOES_WITHOUT and (m.slug is None or m.level != "INFO" and m.family in ending()) or m.tier == ECHO and alone and m.level == "WARN"
    }
    lines: list[str] = []
    for name, message in [*told.items()][::-1][:_ALIKE]:
        known = family(name)
        if known is not None:
            lines += hanging(f"{'' if under or lines else 'NCCL':<{_COLUMN}}", " " * _COLUMN, f"`{message.text[:160]}` (line {message.line}): {known.meaning}", style)
    return lines


def _diagnostics(nccl: Nccl) -> str:
    """How NCCL's own look at itself ended. Lines that only give a value of what another names are left out."""
    said: dict[str, list[str]] = {}
    for d in nccl.diagnostics:
        line = read(d.status, d.text)
        if line.name not in ("env-value", "env-count"):
            said.setdefault(line.kind, []).append(d.text.partition(";")[0][:120])
    wrong = [*said.get(FAULT, ()), *said.get(STRANGE, ())]
    parts = [f"{len(said.get(PASSED, ()))} of NCCL's own diagnostics passed" + ("" if wrong or REMARK in said else ", none complains")]
    for words, texts in (("not in order", wrong), ("could not be made", said.get(UNABLE, [])), ("worth a look", said.get(REMARK, []))):
        if texts:
            parts.append(f"{words}: {', '.join(texts[:4])}" + (f" and {len(texts) - 4} more" if len(texts) > 4 else ""))
    return "; ".join(parts)


def _shape(comm: NcclComm) -> tuple[object, ...]:
    """Communicators that read alike: pipelines and tensor groups come in dozens."""
    return (comm.version, comm.nranks, comm.nnodes, comm.channels, _transports(comm), comm.failure, _state(comm))


def _comm(same: list[NcclComm], style: Style) -> list[str]:
    """Communicators that read alike."""
    comm = same[0]
    head = f"{len(same)} x " if len(same) > 1 else ""
    version = f"NCCL {comm.version}" if comm.version else "version unknown"
    if comm.version and tuple(int(p) for p in comm.version.split(".")[:2]) < OLDEST:
        version += " (too old: it prints too little to judge, and no present GPU is made for it)"
    size = counted(comm.nranks, "rank") if comm.nranks else "ranks unknown"
    nodes = f" on {counted(comm.nnodes, 'node')}" if comm.nnodes else ""
    network = next((p.network for p in comm.procs if p.network), None)
    words = [f"{head}{size}{nodes}", version, f"network {network}" if network else "", _channels(comm)]
    text = ", ".join(w for w in words if w)
    lines = hanging(f"{'NCCL':<{_COLUMN}}", " " * _COLUMN, text, style)
    for part in (_transports(comm), _expected(comm), _nics(comm), _init(same), _state(comm)):
        if part:
            lines += hanging(" " * _COLUMN, " " * _COLUMN, part, style)
    return lines


def _channels(comm: NcclComm) -> str:
    if comm.channels is None:
        return ""
    nvls = next((r.nvls_channels for r in comm.ranks if r.nvls_channels), None)
    return counted(comm.channels, "channel") + (f" ({nvls} NVLS)" if nvls else "")


def _transports(comm: NcclComm) -> str:
    """`0-1 P2P/CUMEM`, or per kind how many pairs."""
    if comm.truncated:
        return "transports: " + ", ".join(f"{via} {n} pairs" for via, n in _summed(comm.counts.items()))
    kinds: dict[str, list[tuple[int, int]]] = {}
    for t in comm.transports:
        pairs = kinds.setdefault(kind_of(t.via), [])
        if not pairs or pairs[-1] != (t.a, t.b):
            pairs.append((t.a, t.b))
    parts = []
    for kind, pairs in sorted(kinds.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(f"{a}-{b}" for a, b in pairs) if len(pairs) <= 6 else f"{len(pairs)} pairs of ranks {spans(sorted({n for p in pairs for n in p}))[:24]}"
        parts.append(f"{shown} {kind}")
    return "; ".join(parts)


def _summed(items: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    out: dict[str, int] = {}
    for via, number in items:
        out[kind_of(via)] = out.get(kind_of(via), 0) + number
    return sorted(out.items(), key=lambda item: -item[1])


def ring(comm: NcclComm) -> Graph | None:
    """NCCL's plan of the ring (pattern 4)."""
    return next((g for r in comm.ranks for g in r.graphs if g.pattern == 4), None)


def _expected(comm: NcclComm) -> str:
    plan = ring(comm)
    if plan is None or plan.channels == 0:
        return ""
    inside = plan.channels * plan.bw_intra
    if comm.nnodes == 1:
        return f"NCCL expects about {inside:g} GB/s bus bandwidth of its rings ({plan.channels} x {plan.bw_intra:g}, worst path {plan.type_intra})"
    across = plan.channels * min(plan.bw_intra, plan.bw_inter)
    return f"NCCL expects about {across:g} GB/s bus bandwidth of its rings ({plan.channels} x {min(plan.bw_intra, plan.bw_inter):g}, worst path {plan.type_intra} inside, {plan.type_inter} to the network)"


def _nics(comm: NcclComm) -> str:
    nics = list(dict.fromkeys(n for p in comm.procs for n in p.nics))
    if not nics:
        return ""
    direct = sum("GDRDMA" in t.via for t in comm.transports)
    net = sum(t.via.startswith("NET/") for t in comm.transports)
    use = f", GPUDirect RDMA on {direct} of {net} connections" if net else ""
    return f"adapters {', '.join(nics[:4])}{f' and {len(nics) - 4} more' if len(nics) > 4 else ''}{use}"


def _init(same: list[NcclComm]) -> str:
    """How long the slowest rank took to start and what with, where that is worth reading."""
    slowest = max((c.slowest for c in same if c.slowest is not None), key=lambda r: r.init_seconds or 0.0, default=None)
    if slowest is None or slowest.init_seconds is None or slowest.init_seconds <= _SLOW_INIT:
        return ""
    large = sorted((p for p in slowest.init_parts if p[1] >= slowest.init_seconds / 4), key=lambda p: -p[1])
    with_ = f", {' and '.join(f'{seconds:g} s of it {name}' for name, seconds in large[:2])}" if large else ""
    return f"init took {slowest.init_seconds:g} s on rank {slowest.rank}, the slowest{with_}"


def _state(comm: NcclComm) -> str:
    """What did not come to its end; nothing is said where the log shows too little."""
    started = [r for r in comm.ranks if r.started]
    if comm.failure is not None or not started or comm.nranks is None:
        return ""
    unfinished = [r.rank for r in started if not r.completed and r.rank is not None]
    if not unfinished:
        return ""
    seen = {r.rank for r in comm.ranks}
    absent = sorted(set(range(comm.nranks)) - seen) if comm.nranks <= 65536 else []
    text = f"init did not finish on rank{'s' if len(unfinished) > 1 else ''} {spans(sorted(unfinished))} before the log ends"
    return text + (f"; rank{'s' if len(absent) > 1 else ''} {spans(absent)} never appear{'s' if len(absent) == 1 else ''} in it" if absent else "")
