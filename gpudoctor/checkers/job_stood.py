"""Where the processes of a job stood, from stacks that somebody took while it hung."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.checkers.job_causes import COLLECTIVE_TIMEOUT
from gpudoctor.facts.hang import Stacks
from gpudoctor.facts.nccl import Nccl
from gpudoctor.hang_dumps import own_frame
from gpudoctor.model import LIKELY, NOTE, Finding

MAX_SHOWN = 64
# Frames within which a rank waits for others, or for its GPU to get there.
_WAITS = ("/distributed/distributed_c10d.py", "/distributed/c10d_logger.py", "/cuda/__init__.py", "/cuda/streams.py")


def stood(stacks: Stacks, nccl: Nccl | None) -> Iterator[Finding]:
    """A rank that stands in a collective waits; one that stands elsewhere may be the one that the others wait for.

    Work on a GPU that waits looks like any other: which lines wait for it, the frames of the program do not tell.
    """
    ranks = {p.pid: n for c in nccl or () if c.nranks is not None for n, p, _ in c.members() if p.pid is not None}
    for stack in stacks.stacks[:MAX_SHOWN]:
        frame = own_frame(stack.frames) or next(iter(stack.frames), None)
        if frame is None:
            continue
        rank = ranks.get(stack.pid) if stack.pid is not None else None
        who = f"Rank {rank}, process {stack.pid}," if rank is not None else f"Process {stack.pid}" if stack.pid is not None else "A process"
        waiting = any(f.file.endswith(_WAITS) for f in stack.frames)
        what = "waits for others, or for its GPU, in a call made" if waiting else "stands"
        then = "It is one of those that wait." if waiting else "Where that line does not wait for its GPU (.item(), .cpu(), a backward pass), this is the rank that others in a collective wait for."
        yield Finding(
            COLLECTIVE_TIMEOUT.slug, NOTE, f"rank:{rank}" if rank is not None else "host", f"{who} {what} in {frame}. {then}", (stack.at("*"),), LIKELY,
        )  # fmt: skip
