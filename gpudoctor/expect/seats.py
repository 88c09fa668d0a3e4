"""Who ran: the ranks of a table, or of NCCL's log, to the host's own GPUs."""

from __future__ import annotations

from collections import Counter

from gpudoctor import bdf
from gpudoctor.facts.bandwidth import BandwidthRun, Member
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactStore, FactView
from gpudoctor.facts.system import Cpu
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.facts.trials import Trials
from gpudoctor.record import KeyedRecord


class Around(KeyedRecord):
    """The facts of the host beside a run; each may be absent."""

    gpus: Gpus | None = None
    pairs: Pairs | None = None
    nvlinks: NvLinks | None = None
    tree: PciTree | None = None
    nccl: Nccl | None = None
    cpu: Cpu | None = None
    trials: Trials | None = None


def around_of(facts: FactView | FactStore) -> Around:
    """The facts of a host that expectations rest on."""
    return Around(
        gpus=facts.get(Gpus),
        pairs=facts.get(Pairs),
        nvlinks=facts.get(NvLinks),
        tree=facts.get(PciTree),
        nccl=facts.get(Nccl),
        cpu=facts.get(Cpu),
        trials=facts.get(Trials),
    )


def comm_of(run: BandwidthRun, nccl: Nccl | None) -> NcclComm | None:
    """The communicator in NCCL's log that is this run's: of the same source and size, else the only one of that size."""
    if nccl is None or run.nranks is None:
        return None
    same = [c for c in nccl if c.nranks == run.nranks]
    source = run.at("rows").source
    near = [c for c in same if c.source == source]
    return near[0] if near else same[0] if len(same) == 1 else None


def team_of(run: BandwidthRun, comm: NcclComm | None) -> tuple[Member, ...]:
    """The ranks that ran. Where the table does not list them all, NCCL's log may: it has each one's address."""
    if len(run.team) == run.nranks or comm is None:
        return run.team
    seats = {r.rank: r for r in comm.ranks if r.rank is not None and r.bus_id is not None}
    if len(seats) != run.nranks:
        return run.team
    procs = comm.by_rank()
    return tuple(
        Member(
            rank=rank,
            device=seat.nvml_dev if seat.nvml_dev is not None else seat.cuda_dev,
            host=procs[rank].host if rank in procs else None,
            bdf=bdf.from_nccl_busid(int(seat.bus_id or "0", 16)),
        )
        for rank, seat in sorted(seats.items())
    )


def one_host_of(team: tuple[Member, ...], nranks: int | None) -> bool | None:
    """Several machines may bear one name (`localhost`): the same device twice gives them away. A list cut short proves nothing."""
    seats = Counter((m.host, m.bdf if m.device is None else m.device) for m in team)
    if len({m.host for m in team if m.host}) > 1 or seats and max(seats.values()) > 1:
        return False
    return True if nranks is not None and len(team) == nranks else None


def gpus_of(team: tuple[Member, ...], around: Around) -> tuple[Gpu, ...]:
    """The host's own entries of the GPUs that ran; () where the host at hand is another, or they cannot be told."""
    if around.gpus is None:
        return ()
    found = [_gpu(member, around.gpus) for member in team]
    known = tuple(g for g in found if g is not None)
    if len(known) != len(found):
        return ()
    kinds = {(p.path, p.nvlinks) for p in around.pairs or ()}
    # CUDA_VISIBLE_DEVICES shifts CUDA's numbers: without an address they count only where it makes no difference.
    sure = (
        len(team) == len(around.gpus)
        or len(kinds) < 2
        or all(m.bdf or m.bus is not None for m in team)
        and any(g.bdf for g in around.gpus)
    )
    return known if sure else ()


def _gpu(member: Member, gpus: Gpus) -> Gpu | None:
    if member.bdf is not None and any(g.bdf for g in gpus):
        return gpus.by_bdf(member.bdf)
    if member.bus is not None and any(g.bdf for g in gpus):
        same = [g for g in gpus if g.bdf is not None and int(g.bdf.split(":")[1], 16) == member.bus]
        if len(same) == 1:
            return same[0]
    # CUDA's number is nvidia-smi's only where all GPUs are alike (both then count by address) and none is hidden.
    alike = {g.name or g.device_id for g in gpus}
    named = member.name is None or alike == {member.name} or alike == {None}
    return gpus.by_index(member.device) if member.device is not None and len(alike) == 1 and named else None
