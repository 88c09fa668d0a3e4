"""How to see where a rank's code stands. A process number of a log is of no use for it: the process may be gone, and within a
container it has another number than on the host."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.hang import Frame
from gpudoctor.facts.nccl import NcclRank, bdf_of
from gpudoctor.model import Step

# sudo has a PATH of its own, which a virtual environment's programs are not on.
_SPY = 'sudo "$(command -v py-spy || echo py-spy)" dump'
_SHOW = f"| xargs -rn1 {_SPY} --pid"
_GET = "py-spy: pip install py-spy"
_OTHERS = "mpirun calls RANK OMPI_COMM_WORLD_RANK, srun by itself SLURM_PROCID"


def of_rank(rank: int | None, again: bool, host: str | None = None, seat: NcclRank | None = None, frames: Iterable[Frame] = (), native: bool = False) -> Step:
    """again: this run was ended, and with it the process. seat: where NCCL's log has the rank; frames: a stack of the job."""
    when = "Next time, while it hangs" if again else "While it hangs"
    who = f"rank {rank}" if rank is not None else "the rank"
    where = f" on {host}" if host else " on its host"
    show = _SHOW.replace("--pid", "--native --pid") if native else _SHOW
    bdf = bdf_of(seat.bus_id) if seat is not None else None
    if bdf is not None and any(f.file.endswith("/multiprocessing/spawn.py") for f in frames):
        # The environment that such processes were started with has no rank, their GPU tells them.
        return Step(
            f"{when}: where does the code of {who} stand? Its process{where}, outside a container, by its GPU ({_GET})",
            f"nvidia-smi -i {bdf} --query-compute-apps=pid --format=csv,noheader {show}",
        )
    return Step(
        f"{when}: where does the code of {who} stand? Its process{where} by its rank ({_OTHERS}; {_GET})",
        f"sudo grep -lzx RANK={rank if rank is not None else 'N'} /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 {show}",
    )


def of_process(pid: int | None, who: str, host: str | None) -> Step:
    """A process that runs, by the number it has for itself."""
    where = f" on {host}" if host else " on its host"
    if pid is None:
        return Step(f"While it hangs: where does the code of {who} stand{where} ({_GET})", f"{_SPY} --pid PID")
    return Step(
        f"While it hangs: where does the code of {who} stand? Its process{where}, in a container or not ({_GET})",
        f"grep -lP '^NSpid:.*\\t{pid}$' /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3 {_SHOW}",
    )
