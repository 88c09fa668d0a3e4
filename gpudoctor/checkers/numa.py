"""GD230 numa-mismatch, GD231 numa-unknown: do a job's CPUs stand near its GPUs, and is it known which do?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor import cpulist
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import JobProcess, Jobs, Numa, OwnAffinity, Platform
from gpudoctor.model import LIKELY, NOTE, WARNING, CannotTell, Cause, Evidence, Finding, Step

NUMA_MISMATCH = Cause(
    "GD230",
    "numa-mismatch",
    "A process is bound to another NUMA node than its GPU",
    "warning; only the affinity gpudoctor itself was started with: note",
    "Every copy between host and GPU, every kernel launch and all of NCCL's host buffers then cross the link between "
    "the "
    "sockets, which other traffic needs too. PyTorch's documentation puts the usual gain of right placement at 1 to 10 "
    "percent; jobs that go through host memory (SHM, offloading, data loading) feel more. A process that may run on "
    "all nodes, or "
    "on some CPUs of the right one, is not misplaced. Nodes without CPUs (the GPU memory of Grace Hopper) are no "
    "nodes one could bind to.",
    "gpudoctor check --job; taskset -cp PID; nvidia-smi topo -m (CPU Affinity); numactl -H",
    "Start each rank with the CPUs and the memory of its GPU's node.",
)
NUMA_UNKNOWN = Cause(
    "GD231",
    "numa-unknown",
    "The system does not know which NUMA node a GPU belongs to",
    "warning; in a virtual machine: note",
    "The firmware gives the GPU's slot no NUMA node (numa_node -1), while several nodes have CPUs. Kernel, NCCL and "
    "launchers then place buffers and threads anywhere, often on the far socket. On a host with one node there is "
    "nothing to choose.",
    "/sys/bus/pci/devices/BDF/numa_node and local_cpulist, numactl -H",
    "Update the firmware, or look for its NUMA options; until then measure which node is near and bind by hand.",
)


class NumaPlacement(BaseChecker):
    """Compares where processes may run with the CPUs near their GPUs."""

    name: ClassVar[str] = "numa"
    needs = (Gpus,)
    causes = (NUMA_MISMATCH, NUMA_UNKNOWN)
    wants = (Numa, PciTree, OwnAffinity, Jobs, Platform)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        homes = _homes(facts)
        jobs, own = facts.get(Jobs), facts.get(OwnAffinity)
        if jobs is None and own is None:
            yield CannotTell(
                NUMA_MISMATCH.slug,
                "where a process may run is not in the input (neither a running job nor a live look)",
            )
        elif not any(homes.values()):
            if _nodes(facts) != 1:
                yield CannotTell(NUMA_MISMATCH.slug, "which CPUs are near which GPU is not known")
        else:
            for process in jobs or ():
                yield from _process(process, homes, facts)
            yield from _own(own, homes, facts)
        yield from _narrowed(own, homes)
        yield from _unknown(facts, homes)


def _nodes(facts: FactView) -> int | None:
    """How many NUMA nodes have CPUs; None where no source counted them."""
    numa = facts.get(Numa)
    return len(numa.with_cpus()) if numa is not None else None


def _homes(facts: FactView) -> dict[Gpu, frozenset[int]]:
    """The CPUs near each GPU; empty where unknown, or where they are all the CPUs there are."""
    numa = facts.get(Numa)
    every: frozenset[int] = frozenset()
    for node in numa.with_cpus() if numa is not None else ():
        every |= cpulist.parse(node.cpus) or frozenset()
    out: dict[Gpu, frozenset[int]] = {}
    for gpu in facts[Gpus]:
        near = cpulist.parse(gpu.cpu_affinity) or frozenset()
        if every and near >= every:
            near = frozenset()  # "anywhere" is how a driver writes "unknown"
        out[gpu] = near | (numa.cpus_of(gpu.numa_node) if numa is not None else frozenset())
    return out


def _node(gpu: Gpu, near: frozenset[int], facts: FactView) -> int | None:
    numa = facts.get(Numa)
    if numa is None:
        return gpu.numa_node
    if gpu.numa_node is not None and numa.cpus_of(gpu.numa_node):
        return gpu.numa_node
    return numa.node_of(near)


def _process(process: JobProcess, homes: dict[Gpu, frozenset[int]], facts: FactView) -> Iterator[Finding | CannotTell]:
    who = f"process {process.pid}" + (f" ({process.name})" if process.name else "")
    held = set(process.gpus or ((process.gpu_bdf,) if process.gpu_bdf else ()))
    mine = [g for g in homes if g.bdf in held]
    if not mine:
        return
    allowed, memory = cpulist.parse(process.cpus), cpulist.parse(process.mems)
    if allowed is None:
        yield CannotTell(
            NUMA_MISMATCH.slug, f"{who}: {process.unreadable or 'its CPU affinity could not be read'}", mine[0].subject
        )
        return
    if any(not homes[g] for g in mine):
        return  # said once, by numa-unknown
    near = frozenset().union(*(homes[g] for g in mine))
    nodes = sorted({n for n in (_node(g, homes[g], facts) for g in mine) if n is not None})
    names = " and ".join(g.label for g in mine)
    home = (
        f"node {', '.join(map(str, nodes))} (CPUs {cpulist.render(near)})" if nodes else f"CPUs {cpulist.render(near)}"
    )
    if not allowed & near:
        words = (
            f"{who[0].upper()}{who[1:]} uses {names}, which is near {home}, but may only run on CPUs {process.cpus}."
        )
        yield _mismatch(mine[0], words, (process.at("cpus"), mine[0].at("cpu_affinity")), nodes, near, process)
    elif memory and nodes and not memory & set(nodes):
        words = f"{who[0].upper()}{who[1:]} uses {names}, which is near {home}, but its memory may only come from node {process.mems}."
        yield _mismatch(mine[0], words, (process.at("mems"), mine[0].at("numa_node")), nodes, near, process)


def _mismatch(
    gpu: Gpu, words: str, evidence: tuple[Evidence, ...], nodes: list[int], near: frozenset[int], process: JobProcess
) -> Finding:
    verify = f"taskset -cp {process.pid}"
    return Finding(
        NUMA_MISMATCH.slug,
        WARNING,
        gpu.subject,
        words,
        evidence,
        cost="host copies, launches and NCCL's host buffers cross the socket link; by PyTorch's documentation usually 1 to 10 percent",
        remediation=(
            *_launch(gpu, nodes, near),
            Step(
                "Right away, for the running process (memory it has stays where it is)",
                f"taskset -acp {cpulist.render(near)} {process.pid}",
                "reversible",
                verify,
            ),
        ),
    )


def _launch(gpu: Gpu, nodes: list[int], near: frozenset[int]) -> tuple[Step, ...]:
    bind = (
        f"numactl --cpunodebind={nodes[0]} --membind={nodes[0]}"
        if len(nodes) == 1
        else f"taskset -c {cpulist.render(near)}"
    )
    who = f"the rank of GPU{gpu.index}" if gpu.index is not None else "this rank"
    steps = [
        Step(f"Start {who} bound to its node", f"{bind} COMMAND", "reversible"),
        Step(
            "With torchrun (PyTorch 2.9 and later, numactl installed) for all ranks at once",
            "torchrun --numa-binding=node --nproc-per-node=gpu SCRIPT",
            "reversible",
        ),
    ]
    if nodes:
        steps.append(
            Step(
                "Under Slurm: one task a GPU, each on the node of its GPU (list the nodes in the order of the GPUs)",
                f"srun --ntasks-per-node=1 --cpu-bind=map_ldom:{nodes[0]} --mem-bind=local COMMAND",
                "reversible",
            )
        )
    return tuple(steps)


def _narrowed(own: OwnAffinity | None, homes: dict[Gpu, frozenset[int]]) -> Iterator[Finding]:
    """taskset or a launcher left this process less than its container or host has, on the right node or on an only one."""
    if own is None:
        return
    mine, whole = cpulist.parse(own.entry.cpus), cpulist.parse(own.entry.cpuset_cpus)
    if mine is None or whole is None or not mine < whole or any(near and not near & mine for near in homes.values()):
        return
    yield Finding(
        NUMA_MISMATCH.slug,
        NOTE,
        "host",
        f"gpudoctor was started with {len(mine)} of {len(whole)} CPUs ({own.entry.cpus}); no GPU is on another NUMA node than "
        "these. A job started from this shell or launcher inherits the limit, and all its ranks share these CPUs.",
        (own.entry.at("cpus"), own.entry.at("cpuset_cpus")),
        remediation=(Step("See what set it (taskset, numactl, Slurm's --cpu-bind)", "taskset -cp $$"),),
    )


def _own(own: OwnAffinity | None, homes: dict[Gpu, frozenset[int]], facts: FactView) -> Iterator[Finding]:
    """What gpudoctor was started with, a job started from the same shell inherits."""
    mine = cpulist.parse(own.entry.cpus) if own is not None else None
    if own is None or mine is None:
        return
    far = [g for g, near in homes.items() if near and not near & mine]
    if not far:
        return
    nodes = sorted({n for n in (_node(g, homes[g], facts) for g in far) if n is not None})
    where = f" (node {', '.join(map(str, nodes))})" if nodes else ""
    yield Finding(
        NUMA_MISMATCH.slug,
        NOTE,
        "host",
        f"gpudoctor was started with CPUs {own.entry.cpus} only; {', '.join(g.label for g in far)}{where} "
        f"{'is' if len(far) == 1 else 'are'} "
        "near others. A job started from this shell, container or allocation inherits that.",
        (own.entry.at("cpus"), far[0].at("cpu_affinity")),
        LIKELY,
        remediation=(
            Step(
                "See what limits it: a taskset, a cgroup, or the job's allocation",
                "taskset -cp $$; cat /sys/fs/cgroup/cpuset.cpus.effective",
            ),
            *_launch(far[0], nodes, homes[far[0]]),
        ),
    )


def _unknown(facts: FactView, homes: dict[Gpu, frozenset[int]]) -> Iterator[Finding | CannotTell]:
    count = _nodes(facts)
    platform, tree = facts.get(Platform), facts.get(PciTree)
    guest = platform is not None and (platform.entry.vm or platform.entry.wsl)
    if count is None:
        if any(g.numa_node is None and not near for g, near in homes.items()):
            yield CannotTell(NUMA_UNKNOWN.slug, "how many NUMA nodes have CPUs is not known")
        return
    if count < 2:
        return
    for gpu, near in homes.items():
        if near or (gpu.numa_node is not None):
            continue
        device = tree.by_bdf(gpu.bdf) if tree is not None else None
        everywhere = cpulist.parse(gpu.cpu_affinity) is not None  # a list that names all CPUs, see _homes
        if device is not None and device.numa_reported == -1:
            evidence = device.at("numa_reported")
        elif everywhere:
            evidence = gpu.at("cpu_affinity")
        else:
            yield CannotTell(NUMA_UNKNOWN.slug, "no source for its NUMA node was read", gpu.subject)
            continue
        yield _no_node(gpu, count, evidence, bool(guest) or "pass" in (gpu.virtualization or ""))


def _no_node(gpu: Gpu, count: int, evidence: Evidence, guest: bool) -> Finding:
    who = "the hypervisor" if guest else "the firmware"
    steps = [
        Step(
            "Find the near node by measuring host copies from each (the node with the higher rate is the near one)",
            f"for n in $(seq 0 {count - 1}); do numactl --cpunodebind=$n --membind=$n nvbandwidth -d -t "
            "host_to_device_memcpy_ce; done",
        ),
        Step(
            "Bind the ranks of this GPU by hand (N: the node found)",
            "numactl --cpunodebind=N --membind=N COMMAND",
            "reversible",
        ),
    ]
    if guest:
        steps.append(Step("Ask the provider for a virtual NUMA layout that follows the host's"))
    else:
        steps.insert(
            0,
            Step(
                "Update the firmware; where it has an option for NUMA or ACPI SRAT, switch it on",
                None,
                "disruptive",
                f"cat /sys/bus/pci/devices/{gpu.bdf or 'BDF'}/numa_node",
            ),
        )
    return Finding(
        NUMA_UNKNOWN.slug,
        NOTE if guest else WARNING,
        gpu.subject,
        f"{gpu.opening}: {who} names no NUMA node for it, and {count} nodes have CPUs. Threads and buffers may land on "
        "the far one.",
        (evidence,),
        cost="up to the share of traffic that crosses the socket link; by PyTorch's documentation usually 1 to 10 percent",
        remediation=tuple(steps),
    )
