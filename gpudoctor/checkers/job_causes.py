"""The catalogue entry of what frameworks and NCCL's RAS service tell of a hang; the others are in nccl_causes."""

from __future__ import annotations

from gpudoctor.model import Cause

COLLECTIVE_TIMEOUT = Cause(
    "GD614",
    "collective-timeout",
    "A collective never ended because a rank did not come to it",
    "error; counters of a running job that were read once: warning",
    "NCCL itself waits for ever: a time-out is the framework's watchdog, and it speaks on the ranks that waited. The one to look "
    "at is the rank that did not come: it has enqueued fewer collectives than the others, called another one, or says nothing. "
    "Its host code stood elsewhere (an exception, a data loader, an evaluation or a checkpoint only some ranks make, a process "
    "stopped by the system) or its GPU never ran the kernel. Only where every rank called the same collective and none finished "
    "are the GPUs or the network to be suspected first. A longer time-out cures none of it but a rank that is merely late.",
    "The watchdog's lines of all ranks, best with `last enqueued work`; PyTorch's flight recorder dumps of all ranks; the answer "
    "of NCCL's RAS service (2.24 and later) while the job hangs.",
    "Look where the suspect's host code stands (py-spy dump), read its own log above the time-out, and check its host.",
)
