"""What happened and what was measured: Xids, NICs, NCCL's log, bandwidth."""

from __future__ import annotations

from collections import Counter

from gpudoctor.diff.match import Seats
from gpudoctor.diff.model import BETTER, NODES, OTHER, WORSE, Notes, spots
from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRun
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.nccl import Nccl, NcclComm, kind_of
from gpudoctor.facts.topology import PATHS, Nic, Nics
from gpudoctor.facts.trials import TELLING
from gpudoctor.model import ERROR, NOTE, WARNING

_KINDS = ("P2P", "SHM", "NET")  # transports within a host, fastest first


def xids(seats: Seats, a: KernelLog, b: KernelLog, notes: Notes) -> None:
    """More of one kind is new trouble; fewer is a log that was cut or a host that was started anew."""
    first: dict[tuple[str, str | None, int], dict[str, KernelEvent]] = {}
    counts: dict[str, Counter[tuple[str, str | None, int]]] = {"A": Counter(), "B": Counter()}
    for side, log in (("A", a), ("B", b)):
        for event in log.of("xid", "sxid"):
            if event.code is not None:
                gpu = seats.of_bdf(event.bdf)
                key = (event.kind, gpu.bdf if gpu is not None else event.bdf, event.code)
                counts[side][key] += 1
                first.setdefault(key, {})[side] = event
    for key, seen in first.items():
        kind, bdf, code = key
        before, after = counts["A"][key], counts["B"][key]
        if before == after:
            continue
        gpu = seats.of_bdf(bdf)
        name = f"{'SXid' if kind == 'sxid' else 'Xid'} {code}"
        where = gpu.label if gpu is not None else str(bdf) if bdf else "an unnamed device"
        about = (gpu.subject, f"gpu:{gpu.index}") if gpu is not None else ()
        subject = gpu.subject if gpu is not None else f"pci:{bdf}" if bdf else "host"
        if after > before:
            words = f"{name} at {where}: {after - before} new" + (f", {before} before" if before else "")
            if notes.mode == NODES:
                words = f"{name} at {where}: {before or 'none'} in A's log, {after} in B's"
            notes.change(
                "xid", subject, words, before=str(before), after=str(after), direction=WORSE, about=about,
                severity=WARNING, evidence=(("B", seen["B"].at("text")),),
            )  # fmt: skip
        elif after and notes.mode != NODES:
            notes.vary("xid", subject, f"{name} at {where}: {before} lines in the log, now {after}")
        else:
            notes.change(
                "xid", subject, f"{name} at {where}: {before} in A's log, {after or 'none'} in B's", before=str(before), after=str(after),
                direction=BETTER, about=about, evidence=(("A", seen["A"].at("text")),),
            )  # fmt: skip


def nics(seats: Seats, a: Nics, b: Nics, notes: Notes) -> None:
    """NIC by NIC: gone or new, state and rate."""
    theirs = {_name(n): n for n in b}
    for one in a:
        other = theirs.pop(_name(one), None)
        if other is None:
            notes.change(
                "nic-gone", one.subject, f"NIC {_name(one)} is {'gone' if notes.mode != NODES else 'only in A'}", direction=WORSE,
                severity=WARNING, evidence=spots("name", one, None), before=_name(one),
            )  # fmt: skip
        else:
            _nic(one, other, notes)
    for other in theirs.values():
        notes.change(
            "nic-new", other.subject, f"NIC {_name(other)} is {'new' if notes.mode != NODES else 'only in B'}", direction=BETTER,
            evidence=spots("name", None, other), after=_name(other),
        )  # fmt: skip
    _nic_paths(seats, a, b, notes)


def _name(nic: Nic) -> str:
    return nic.device or nic.name


def _nic(one: Nic, other: Nic, notes: Notes) -> None:
    name = f"NIC {_name(other)}"
    if notes.both("the state", name, one.state, other.state) and one.state != other.state:
        lost, back = one.state == "active", other.state == "active"
        notes.change(
            "nic-state", other.subject, f"{name}: {notes.turn(one.state, other.state)}", before=one.state, after=other.state,
            direction=WORSE if lost else BETTER if back else OTHER, severity=ERROR if lost else NOTE, evidence=spots("state", one, other),
        )  # fmt: skip
    if notes.both("the rate", name, one.rate_gbps, other.rate_gbps) and one.rate_gbps != other.rate_gbps:
        before, after = (f"{n.rate_gbps:g} Gb/s" for n in (one, other))
        worse = (other.rate_gbps or 0) < (one.rate_gbps or 0)
        notes.change(
            "nic-rate", other.subject, f"{name}: {notes.turn(before, after)}", before=before, after=after, direction=WORSE if worse else BETTER,
            severity=WARNING if worse else NOTE, evidence=spots("rate_gbps", one, other),
        )  # fmt: skip
    if notes.both("the link layer", name, one.link_layer, other.link_layer) and one.link_layer != other.link_layer:
        notes.change(
            "nic-layer", other.subject, f"{name}: {notes.turn(one.link_layer, other.link_layer)}", before=one.link_layer, after=other.link_layer,
            severity=WARNING, evidence=spots("link_layer", one, other),
        )  # fmt: skip
    if notes.both("the NUMA node", name, one.numa_node, other.numa_node) and one.numa_node != other.numa_node:
        notes.change(
            "numa", other.subject, f"{name}: NUMA node {notes.turn(one.numa_node, other.numa_node)}", before=str(one.numa_node),
            after=str(other.numa_node), severity=WARNING, evidence=spots("numa_node", one, other),
        )  # fmt: skip


def _nic_paths(seats: Seats, a: Nics, b: Nics, notes: Notes) -> None:
    names_a, names_b = ({n.name: _name(n) for n in side} for side in (a, b))
    theirs = {(p.gpu, names_b.get(p.nic, p.nic)): p for p in b.paths}
    for one in a.paths:
        gpu, nic = seats.to_b(one.gpu), names_a.get(one.nic, one.nic)
        other = theirs.get((gpu, nic)) if gpu is not None else None
        if other is None or other.path == one.path or gpu is None:
            continue
        ranks = [PATHS.index(p.path) if p.path in PATHS else len(PATHS) for p in (one, other)]
        worse = ranks[1] > ranks[0]
        notes.change(
            "nic-path", f"nic:{nic}", f"GPU{gpu} to NIC {nic}: {notes.turn(one.path, other.path)}", before=one.path, after=other.path,
            direction=WORSE if worse else BETTER, severity=WARNING if worse else NOTE, about=(f"gpu:{gpu}", seats.subject(gpu)),
            evidence=spots("path", one, other),
        )  # fmt: skip


def nccl(a: Nccl, b: Nccl, notes: Notes) -> None:
    """Communicators in the order in which they were made."""
    if len(a.comms) != len(b.comms):
        notes.lack("NCCL's communicators", f"{len(a.comms)} in A, {len(b.comms)} in B: which is which cannot be told")
        return
    for number, (one, other) in enumerate(zip(a.comms, b.comms, strict=True)):
        _comm(one, other, f"NCCL communicator {number + 1}" if len(a.comms) > 1 else "NCCL", notes)


def _comm(one: NcclComm, other: NcclComm, name: str, notes: Notes) -> None:
    for field, words in (("version", "version"), ("nranks", "ranks"), ("nnodes", "nodes"), ("channels", "channels")):
        before, after = getattr(one, field), getattr(other, field)
        if notes.both(f"{name}: {words}", "", before, after) and before != after:
            fewer = field == "channels" and after < before
            direction = OTHER if field != "channels" else WORSE if fewer else BETTER
            notes.change(
                "nccl", "host", f"{name}: {words} {notes.turn(before, after)}", before=str(before), after=str(after), direction=direction,
                severity=WARNING if fewer else NOTE, evidence=spots(field, one, other),
            )  # fmt: skip
    ways = [{(t.a, t.b): kind_of(t.via) for t in c.transports} for c in (one, other)]
    moved: dict[tuple[str, str], list[str]] = {}
    for pair in sorted(ways[0].keys() & ways[1].keys()):
        if ways[0][pair] != ways[1][pair]:
            moved.setdefault((ways[0][pair], ways[1][pair]), []).append(f"{pair[0]}-{pair[1]}")
    for (before, after), pairs in moved.items():
        ranks = [_KINDS.index(way[:3]) if way[:3] in _KINDS else len(_KINDS) for way in (before, after)]
        worse, better = ranks[1] > ranks[0], ranks[1] < ranks[0]
        which = f"ranks {pairs[0]}" if len(pairs) == 1 else f"{len(pairs)} pairs of ranks ({', '.join(pairs[:4])}{', …' if len(pairs) > 4 else ''})"
        notes.change(
            "transport", f"pair:{pairs[0]}" if len(pairs) == 1 else "host", f"{name}: {which}: {notes.turn(before, after)}", before=before, after=after,
            direction=WORSE if worse else BETTER if better else OTHER, severity=WARNING if worse else NOTE, evidence=spots("transports", one, other),
        )  # fmt: skip
    if one.failure != other.failure:
        notes.change(
            "nccl-failure", "host", f"{name}: {notes.turn(one.failure or 'no failure', other.failure or 'no failure')}", before=one.failure,
            after=other.failure, direction=WORSE if other.failure and not one.failure else BETTER if not other.failure else OTHER,
            severity=ERROR if other.failure else NOTE, evidence=spots("failure", one, other),
        )  # fmt: skip


def bandwidth(a: Bandwidth, b: Bandwidth, notes: Notes) -> None:
    """The plateau of each kind of run, in GB/s; less than a telling difference is expected to vary."""
    ours, theirs = _runs(a), _runs(b)
    for key in ours.keys() ^ theirs.keys():
        notes.only("the bandwidth run", "A" if key in ours else "B", " ".join(str(k) for k in key if k))
    for key in ours.keys() & theirs.keys():
        one, other = ours[key], theirs[key]
        before, after = one.plateau_busbw_gbs, other.plateau_busbw_gbs
        name = f"{one.collective or one.program or 'bandwidth'} of {one.nranks} ranks"
        if not notes.both("the plateau", name, before, after) or not before or not after or before == after:
            continue
        words = f"{name}: busbw {notes.turn(f'{before:.1f}', f'{after:.1f}')} GB/s"
        if max(before, after) <= min(before, after) * TELLING:
            notes.vary("bandwidth", "host", words)
            continue
        worse = after < before
        notes.change(
            "bandwidth", "host", words, before=f"{before:.1f} GB/s", after=f"{after:.1f} GB/s", direction=WORSE if worse else BETTER,
            severity=WARNING if worse else NOTE, evidence=spots("rows", one, other),
        )  # fmt: skip


def _runs(side: Bandwidth) -> dict[tuple[str | None, int | None, str], BandwidthRun]:
    """The last run of each kind."""
    return {(r.collective or r.program, r.nranks, r.backend): r for r in side}
