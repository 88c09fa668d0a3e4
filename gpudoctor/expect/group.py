"""Which GPUs a run used and what joins them: a run, the host's facts and NCCL's log in; one `Group` out."""

from __future__ import annotations

from gpudoctor import pcie
from gpudoctor.expect.opinion import THROUGH_HOST
from gpudoctor.expect.seats import Around, comm_of, gpus_of, one_host_of, team_of
from gpudoctor.facts.bandwidth import BandwidthRun
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.nccl import NcclComm
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.system import CpuEntry
from gpudoctor.facts.topology import PATHS, NvLinks, Pair, Pairs
from gpudoctor.model import Evidence
from gpudoctor.parts import Part, find
from gpudoctor.record import KeyedRecord, replace

_COMPLETED = 3  # the fabric state that NCCL logs of a GPU on NVSwitches whose fabric is up
_SWITCHED = 3  # from this NVLink generation on every SXM board joins all its GPUs; V100 boards are partial meshes
NEAR = ("PIX", "PXB")  # below one PCIe switch: peer to peer never leaves it


class Group(KeyedRecord):
    """The GPUs of one run. What is not known is None, and `unknown` says which fact is lacking."""

    gpus: tuple[Gpu, ...] = ()  # of this host, one a rank, where they could be told
    part: Part | None = None
    name: str | None = None
    devices: tuple[str, ...] = ()  # device ids or names, sorted: what a baseline is saved under
    one_host: bool | None = None
    mixed: bool = False
    link: str | None = None  # "NV18", "PIX", "PHB", "SHM" (through host memory: no peer to peer), …
    observed: bool = False  # the link was read on this host, not inferred from the part
    wire_gbs: float | None = None
    wire_words: str = ""
    wire_why_not: str | None = None
    nvls: bool | None = None  # in-switch reduction, by NCCL's log
    comm: NcclComm | None = None
    evidence: tuple[Evidence, ...] = ()
    unknown: str | None = None


def group_of(run: BandwidthRun, around: Around) -> Group:
    """Everything that expectations rest on."""
    comm = comm_of(run, around.nccl)
    team = team_of(run, comm)
    one_host = one_host_of(team, run.nranks)
    gpus = gpus_of(team, around) if one_host else ()
    # The host's own word for each GPU first; a matrix alone has no names, and then the table's count.
    told = gpus or tuple(Gpu() for _ in team)
    seats = [
        (gpu.device_id, gpu.name or member.name)
        for gpu, member in zip(told, team, strict=True)
        if gpu.device_id or gpu.name or member.name
    ]
    names = [name for _, name in seats if name]
    # A mixed group is expected at its slower member's rate, and which that is depends on the link: no part speaks for it.
    mixed = len({device or name for device, name in seats}) > 1
    part = find(*seats[0]) if seats and not mixed else None
    ids = [device or name or "?" for device, name in seats]
    common = Group(
        gpus=gpus,
        part=part,
        name=names[0] if names else None,
        devices=tuple(sorted(ids)),
        one_host=one_host,
        mixed=mixed,
        comm=comm,
        nvls=any((r.nvls_channels or 0) > 0 and r.nvls for r in comm.ranks)
        if comm is not None and comm.ranks
        else None,
    )
    if one_host is False:
        return replace(common, unknown="the run spans several hosts: what their network gives is not in any table here")
    if one_host is None:
        return replace(common, unknown="the table does not name all its GPUs")
    nranks = run.nranks or len(gpus)
    pairs = _pairs(gpus, around.pairs, nranks)
    if pairs and all(p.path is not None for p in pairs):
        return _by_pairs(common, pairs, nranks, around)
    return _by_part(common, nranks)


def _pairs(gpus: tuple[Gpu, ...], pairs: Pairs | None, nranks: int) -> tuple[Pair, ...]:
    """The pairs of the group; without knowing the members, all of the host's where they are alike."""
    if pairs is None:
        return ()
    indices = [g.index for g in gpus if g.index is not None]
    if indices:
        found = [pairs.of(a, b) for place, a in enumerate(indices) for b in indices[place + 1 :]]
        whole = tuple(p for p in found if p is not None and not p.pcie_only)
        return whole if len(whole) == len(found) else ()
    return ()


def _by_pairs(group: Group, pairs: tuple[Pair, ...], nranks: int, around: Around) -> Group:
    evidence = (min(pairs, key=lambda p: (p.path == "NVL", p.nvlinks or 0)).at("path"),)
    if all(p.path == "NVL" for p in pairs):
        return _nvlink(group, pairs, evidence, around.nvlinks)
    if any(p.path == "NVL" for p in pairs) and _ring(pairs, nranks):
        links = min(p.nvlinks or 1 for p in pairs if p.path == "NVL")
        return _nvlink_wire(replace(group, observed=True, evidence=evidence), links, f"NV{links}")
    part = group.part
    if part is not None and part.required and part.nvlink_gen is not None and part.nvlink_gen >= _SWITCHED:
        # What these GPUs must have is gone: expected is what the board gives, and the path they are left with is the loss.
        return replace(_by_part(group, nranks), observed=True, evidence=evidence)
    far = max((p.path or "NVL" for p in pairs), key=PATHS.index)
    said = {w for p in pairs for w in (p.p2p_read, p.p2p_write) if w is not None}
    able = (said == {"OK"}) if said else (group.part.p2p if group.part is not None else None)
    link = "SHM" if able is False else far
    return _pcie(replace(group, observed=True, evidence=evidence, link=link), far, able, nranks, around)


def _nvlink(group: Group, pairs: tuple[Pair, ...], evidence: tuple[Evidence, ...], links: NvLinks | None) -> Group:
    """All pairs have NVLink. Behind switches every pair shows all links; in a mesh they are shared out."""
    total: dict[int, int] = {}
    for pair in pairs:
        for end in (pair.a, pair.b):
            total[end] = total.get(end, 0) + (pair.nvlinks or 0)
    most = group.part.links if group.part is not None and group.part.links else max(p.nvlinks or 0 for p in pairs)
    fewest = min(p.nvlinks or 0 for p in pairs)
    if not fewest:
        return replace(
            group,
            observed=True,
            evidence=evidence,
            link="NVL",
            wire_why_not="how many NVLinks a pair has is not in the input",
        )
    count = min(min(total.values()), max(most, fewest))
    speeds = [x.speed_gbs for x in links or () if x.active and x.speed_gbs]
    return _nvlink_wire(
        replace(group, observed=True, evidence=evidence), count, f"NV{fewest}", min(speeds) if speeds else None
    )


def _nvlink_wire(group: Group, links: int, label: str, speed: float | None = None) -> Group:
    each = speed or (group.part.link_gbs if group.part is not None else None)
    if each is None or not links:
        return replace(group, link=label, wire_why_not="the rate of one NVLink of this part is not known")
    return replace(group, link=label, wire_gbs=links * each, wire_words=f"{links} NVLinks x {each:.1f} GB/s")


def _ring(pairs: tuple[Pair, ...], nranks: int) -> bool:
    """Can a ring through all GPUs stay on NVLink? Boards are small; a search that grows too long says no."""
    near: dict[int, set[int]] = {}
    for pair in pairs:
        if pair.path == "NVL":
            near.setdefault(pair.a, set()).add(pair.b)
            near.setdefault(pair.b, set()).add(pair.a)
    if len(near) < nranks or nranks < 3 or nranks > 16:
        return False
    start = min(near)
    budget = 20_000
    stack: list[tuple[int, tuple[int, ...]]] = [(start, (start,))]
    while stack and budget:
        budget -= 1
        here, path = stack.pop()
        if len(path) == nranks:
            if start in near[here]:
                return True
            continue
        stack += [(there, (*path, there)) for there in near[here] if there not in path]
    return False


def _pcie(group: Group, far: str, able: bool | None, nranks: int, around: Around) -> Group:
    """The narrowest PCIe hop of the group, by what its ends could do: a link trained below that is the fault looked for."""
    hops = [hop for g in group.gpus for hop in _hops(g, around.tree)]
    if not hops:
        return replace(group, wire_why_not="what the PCIe links of these GPUs could do is not in the input")
    rate, words, evidence = min(hops, key=lambda hop: hop[0])
    if not _direct(group, far, able, nranks, around):
        rate *= THROUGH_HOST.value
        words = f"{words}, {100 * THROUGH_HOST.value:.0f} % of it through host memory"
    group = replace(group, wire_gbs=rate, wire_words=words, evidence=(*group.evidence, evidence))
    if far == "SYS":
        planned = _socket(around.cpu.entry if around.cpu is not None else None)
        if planned is None:
            return replace(group, wire_why_not="the traffic crosses the link between CPU sockets, and the CPU is not known")
        if planned < rate:
            group = replace(group, wire_gbs=planned, wire_words=f"the link between the CPU sockets, NCCL's planning rate {planned:g} GB/s")
    if nranks > 2 and not (able and far in NEAR):
        return replace(group, wire_why_not=f"{nranks} GPUs share the host bridges and the memory, whose rate is not known")
    return group


def _direct(group: Group, far: str, able: bool | None, nranks: int, around: Around) -> bool:
    """Does NCCL go from GPU to GPU here, by its log or, unrestricted, by its own rules (2.23: PXB, two GPUs on AMD any)?"""
    vias = {t.via.partition("/")[0] for t in group.comm.transports} if group.comm is not None else set()
    if vias and group.comm is not None and not group.comm.env.keys() & {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"}:
        return vias == {"P2P"}
    amd = around.cpu is not None and around.cpu.entry.vendor == "AuthenticAMD" and nranks == 2
    return bool(able) and (far in NEAR or amd)


def _hops(gpu: Gpu, tree: PciTree | None) -> list[tuple[float, str, Evidence]]:
    """(GB/s, words, evidence) of the GPU's own link and of every bridge above it."""
    out = []
    width, speed = gpu.max_width or gpu.width, gpu.max_speed_gts
    above = tree.ancestors(gpu.bdf) if tree is not None else ()
    for device in above[:1]:
        width = min(width or 99, device.max_width or 99)
        speed = min(speed or 999.0, device.max_speed_gts or 999.0)
    rate = pcie.gbs(speed, width)
    if rate is not None:
        out.append((rate, f"PCIe {pcie.name(speed, width)} of {gpu.label}", gpu.at("max_width")))
    for device in above[1:]:
        rate = None if device.virtual else pcie.gbs(device.max_speed_gts, device.max_width)
        if rate is not None:
            out.append((rate, f"PCIe {pcie.name(device.max_speed_gts, device.max_width)} of the bridge {device.bdf}", device.at("max_width")))
    return out


def _socket(cpu: CpuEntry | None) -> float | None:
    """NCCL's planning rate between sockets (src/graph/topo.h of 2.30); None where the CPU is not one it knows."""
    if cpu is None:
        return None
    if cpu.vendor == "AuthenticAMD":
        return 16.0
    if cpu.vendor == "GenuineIntel" and cpu.family == 6 and cpu.model is not None:
        return 40.0 if cpu.model >= 0xCF else 22.0 if cpu.model >= 0x8F else 10.0 if cpu.model >= 0x55 else 6.0
    return None


def _by_part(group: Group, nranks: int) -> Group:
    """Nobody looked at the links. A board that must join all its GPUs has at least so many of them between any two."""
    part = group.part
    if part is None:
        why = "GPUs of different parts are in it" if group.mixed else "the part is not known"
        return replace(group, unknown=f"nothing to compare with: {why}")
    if not part.required or not part.pair_links or part.links is None:
        return replace(group, unknown="nothing to compare with: which links join these GPUs is not in the input")
    fewest, most = min(part.pair_links), max(part.pair_links)
    switched = (
        next((p for p in group.comm.procs if p.fabric_state == _COMPLETED), None) if group.comm is not None else None
    )
    if switched is not None:
        return _nvlink_wire(replace(group, observed=True, evidence=(switched.at("fabric_state"),)), most, f"NV{most}")
    # More GPUs than a mesh of direct links holds sit behind switches, where every pair has all links.
    count = most if nranks > 4 else min(part.links, fewest * (nranks - 1))
    found = _nvlink_wire(replace(group, observed=False), count, f"NV{count}")
    return replace(found, wire_words=f"at least {found.wire_words}") if found.wire_words else found
