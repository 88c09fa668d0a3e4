"""GD604 memlock: the locked-memory limit where RDMA devices are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.nccl import NcclMessage
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Limits, Modules, Platform
from gpudoctor.facts.topology import Nics
from gpudoctor.model import WARNING, CannotTell, Cause, Evidence, Finding, Step, Threshold

MEMLOCK = Cause(
    "GD604",
    "memlock",
    "The locked-memory limit is low",
    "failed a run: error; low with RDMA devices: warning",
    "RDMA needs memory that the kernel may not move, and counts it against the limit of locked memory. With a small "
    "limit NCCL's "
    "registrations fail (ibv_reg_mr, ibv_create_qp: Cannot allocate memory) once enough connections are open: small "
    "jobs run, larger "
    "ones do not. NCCL's user guide asks for no limit. Without RDMA devices the limit does not matter to NCCL. "
    "Processes with "
    "CAP_IPC_LOCK (root outside containers) are not bound by it.",
    "ulimit -l in the shell or container that starts the job",
    "Set it to unlimited where the job is started: limits.conf, the unit of the scheduler's daemon, or the "
    "container's ulimit.",
    (
        Threshold(
            "a limit at or under this is low",
            64,
            "MiB",
            "our choice above the defaults of Linux (64 KiB, 8 MiB since 5.16) and systemd (8 MiB); NCCL's guide asks for unlimited",
            "2026-11",
        ),
    ),
)

_LOW_BYTES = int(MEMLOCK.thresholds[0].value) << 20
_RDMA_MODULES = ("ib_uverbs", "mlx5_ib", "mlx4_ib", "bnxt_re", "irdma", "efa", "hfi1", "qedr")


class Memlock(BaseChecker):
    """Low and RDMA there: a warning. Low and no RDMA: nothing."""

    name: ClassVar[str] = "memlock"
    needs = (Limits,)
    causes = (MEMLOCK,)
    wants = (Nics, Modules, Platform)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        entry = facts[Limits].entry
        if entry.memlock_unlimited or (entry.memlock_bytes is not None and entry.memlock_bytes > _LOW_BYTES):
            return
        if entry.memlock_bytes is None:
            yield CannotTell(MEMLOCK.slug, "the limit itself is not in the input")
            return
        nics, modules, platform = facts.get(Nics), facts.get(Modules), facts.get(Platform)
        if nics is None and modules is None:
            yield CannotTell(MEMLOCK.slug, "low, but whether the host has RDMA devices is not known")
            return
        rdma = _rdma(nics, modules)
        if rdma is None:
            return
        container = platform.entry.container if platform is not None else None
        if platform is not None and platform.entry.uid == 0 and container is None:
            yield CannotTell(MEMLOCK.slug, "seen as root, whom the limit does not bind: look again as the job's user")
            return
        words, evidence = rdma
        size = entry.memlock_bytes
        shown = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
        yield Finding(
            MEMLOCK.slug,
            WARNING,
            "host",
            f"Only {shown} of memory may be locked here, and {words}. NCCL over InfiniBand or RoCE fails once its "
            "buffers pass that.",
            (entry.at("memlock_bytes"), *evidence),
            cost="the job fails with `Cannot allocate memory`, or only when it grows",
            remediation=_steps(container),
        )


def by_words(messages: Iterable[NcclMessage]) -> Iterator[Finding]:
    """A limit that a library names where a call met it: nothing says that the run ended over it."""
    from gpudoctor.nccl_messages import family  # which only a job's log needs

    told = [m for m in messages if m.family == "memlock-told"]
    known = family("memlock-told") if told else None  # a healthy log needs none of the table
    if known is not None:
        yield Finding(
            MEMLOCK.slug, WARNING, "host", f"Only {told[0].fields['kib']} KiB of memory may be locked. {known.meaning}",
            tuple(m.at("text") for m in told[:3]), cost="NCCL over RDMA fails with `Cannot allocate memory`", remediation=_steps(None),
        )  # fmt: skip


def _rdma(nics: Nics | None, modules: Modules | None) -> tuple[str, tuple[Evidence, ...]] | None:
    """How the host shows that it has RDMA devices."""
    if nics is not None and nics.nics:
        first = nics.nics[0]
        return f"the host has {len(nics.nics)} RDMA adapter{'s' if len(nics.nics) != 1 else ''}", (first.at("name"),)
    # An empty list of adapters was read: the modules are only loaded.
    if nics is None and modules is not None:
        loaded = [m for m in modules.loaded if m in _RDMA_MODULES and m != "ib_uverbs"]
        if loaded:
            return f"the RDMA module {loaded[0]} is loaded", (modules.origin,) if isinstance(
                modules.origin, Evidence
            ) else ()
    return None


def _steps(container: str | None) -> tuple[Step, ...]:
    verify = "ulimit -l"
    if container == "kubernetes":
        return (
            Step(
                "Kubernetes has no field for it: raise the limit of the container runtime on the node, or give the "
                "container IPC_LOCK (securityContext.capabilities.add)",
                "sudo systemctl edit containerd   # [Service] LimitMEMLOCK=infinity; then: sudo systemctl restart containerd",
                "disruptive",
                verify,
            ),
        )
    if container is not None:
        return (
            Step("Start the container without the limit", "docker run --ulimit memlock=-1 IMAGE", "reversible", verify),
        )
    return (
        Step(
            "For logins",
            "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee "
            "/etc/security/limits.d/rdma.conf",
            "reversible",
            verify,
        ),
        Step(
            "For jobs of a scheduler: its daemon hands its own limit on (Slurm: slurmd)",
            "sudo systemctl edit slurmd   # [Service] LimitMEMLOCK=infinity; then: sudo systemctl restart slurmd",
            "disruptive",
            "srun bash -c 'ulimit -l'",
        ),
    )
