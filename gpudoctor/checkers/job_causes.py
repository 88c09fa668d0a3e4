"""Causes that the log of NCCL and the framework's own lines both tell of: one entry of the catalogue each."""

from __future__ import annotations

from gpudoctor.model import Cause

RANK_MISMATCH = Cause(
    "GD610",
    "rank-mismatch",
    "Ranks disagree about what they do together",
    "error",
    "Every rank of a communicator must make the same calls in the same order, with the same sizes and the same settings. NCCL "
    "does not check that: ranks that differ wait for each other until something stops them, or return wrong data. Usual "
    "reasons are a branch that only some ranks take, batches of different length at the end of an epoch, a parameter that is "
    "unused on one rank, and environment variables that a launcher passed to some hosts only.",
    "The logs of all ranks; PyTorch's flight recorder dumps of all ranks, which show operation and size call by call.",
    "Make the calls alike: the same code path, sizes and NCCL_* settings on every rank. TORCH_DISTRIBUTED_DEBUG=DETAIL checks "
    "shapes and order at every call, at a cost.",
)
PEER_DIED = Cause(
    "GD611",
    "peer-died",
    "Another rank went away",
    "error",
    "When one process of a job ends or its host fails, the others see a closed connection, an error of the network adapter, or "
    "nothing but silence. Their own messages are consequences: the cause stands in the log of the process that ended first, or "
    "in the kernel log of its host (the memory killer, an Xid).",
    "The log of every rank; the launcher's table of exit codes; the kernel log of the host whose rank ended.",
    "Find the rank that ended first and read the end of its own log, then the kernel log of its host.",
)
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
