"""NCCL's own estimate out of the log of a run that no setting held down."""

from __future__ import annotations

from gpudoctor.expect.opinions import restriction, ring_of
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.trials import Estimate
from gpudoctor.model import Evidence


def estimate(log: bytes, nranks: int, without: tuple[str, ...]) -> Estimate | None:
    """None where the log shows no ring of so many ranks, or a setting that was in force all the same."""
    from gpudoctor.ingest import take
    from gpudoctor.read.source import Document

    name = f"NCCL's log of a run without {', '.join(without)}" if without else "NCCL's log of a run"
    intake = take(sources=[Document(name=name, chunks=lambda: iter((log,)))])
    for store in intake.stores:
        for comm in store.get(Nccl) or ():
            ring = ring_of(comm)
            if ring is None or comm.nranks != nranks or restriction(comm) is not None:
                continue
            words = f"ring: {ring.channels} channels of {ring.bw_intra:g} GB/s over {ring.type_intra}"
            return Estimate(
                nranks=nranks,
                channels=ring.channels,
                bw_gbs=ring.bw_intra,
                type_intra=ring.type_intra,
                without=without,
                origin={"*": Evidence(name, "Pattern 4", words)},
            )
    return None
