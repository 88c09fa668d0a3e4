"""GD603 shm: /dev/shm, through which NCCL sends what cannot go peer to peer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.traffic import pcie_peer
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Jobs, Platform, Settings, Shm, ShmEntry
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CERTAIN, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Finding, Step, Threshold

SHM = Cause(
    "GD603",
    "shm",
    "/dev/shm is too small, full, or cannot be written",
    "failed a run: error; too small while SHM carries traffic: warning; where peer to peer carries it: note",
    "GPUs of one host that cannot use peer to peer exchange data through files in /dev/shm, some megabytes for every "
    "channel and "
    "rank; even with peer to peer NCCL keeps small segments there, and so do PyTorch's data loader workers. Docker "
    "gives a container "
    "64 MiB unless told otherwise, which is soon full: NCCL then fails with `No space left on device`. NCCL 2.24 and "
    "later can do "
    "without /dev/shm where the driver serves CUDA 12.6.",
    "df -B1 /dev/shm inside the container that runs the job",
    "Give the container more (--shm-size, --ipc=host, a memory volume in Kubernetes), or remove what is left over in "
    "it.",
    (
        Threshold(
            "a mount smaller than this is too small",
            1024,
            "MiB",
            "NCCL 2.30.7 user guide, troubleshooting, shared memory: --shm-size=1g",
            "2026-06",
        ),
        Threshold(
            "less free than this is full",
            64,
            "MiB",
            "our choice: what Docker gives a container by default (--shm-size)",
            "2026-11",
        ),
    ),
)

_SMALL_BYTES, _FULL_BYTES = (int(t.value) << 20 for t in SHM.thresholds)


class SharedMemory(BaseChecker):
    """The size of /dev/shm here and in the containers of running jobs, weighed by what has to go through it."""

    name: ClassVar[str] = "shm"
    any_of = (Shm, Jobs)
    causes = (SHM,)
    wants = (Gpus, Pairs, Platform, Settings)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        shm, jobs, platform = facts.get(Shm), facts.get(Jobs), facts.get(Platform)
        container = platform.entry.container if platform is not None else None
        places: list[tuple[ShmEntry, str, str | None]] = []
        if shm is not None:
            places.append((shm.entry, f" of this {container} container" if container else "", container))
        seen = set()
        for process in jobs or ():
            if process.shm is not None and (process.container, process.shm.size_bytes) not in seen:
                seen.add((process.container, process.shm.size_bytes))
                inside = (
                    f" in the container of process {process.pid}" if process.container else f" of process {process.pid}"
                )
                places.append((process.shm, inside, process.container))
        if all(e.size_bytes is None and e.writable is None and e.mounted is None for e, _, _ in places):
            yield CannotTell(SHM.slug, "the size of /dev/shm is not in the input")
            return
        for entry, where, kind in places:
            wrong = _wrong(entry, where)
            if wrong is not None:
                yield from _weigh(wrong, entry, kind, facts)


def _wrong(entry: ShmEntry, where: str) -> tuple[str, str] | None:
    """What is wrong with it in words, and the field that shows it."""
    if entry.writable is False:
        return f"/dev/shm{where} cannot be written", "writable"
    if entry.size_bytes is not None and entry.size_bytes < _SMALL_BYTES and entry.mounted is not False:
        return f"/dev/shm{where} holds only {_size(entry.size_bytes)}", "size_bytes"
    if entry.mounted is False:
        return f"/dev/shm{where} is no memory file system of its own but a folder on disk", "mounted"
    if entry.free_bytes is not None and entry.free_bytes < _FULL_BYTES:
        return f"/dev/shm{where} is full: {_size(entry.free_bytes)} are free", "free_bytes"
    return None


def _size(count: int) -> str:
    return f"{count / (1 << 20):.4g} MiB" if count >= 1 << 20 else f"{count / 1024:.4g} KiB"


def _weigh(wrong: tuple[str, str], entry: ShmEntry, container: str | None, facts: FactView) -> Iterator[Finding]:
    words, field = wrong
    carries = _shm_carries(facts)
    if carries is None:
        return  # one GPU: nothing goes between GPUs here
    needed, why, confidence = carries
    yield Finding(
        SHM.slug,
        WARNING if needed else NOTE,
        "host",
        f"{words}. {why}",
        (entry.at(field),),
        confidence,
        "NCCL fails to start (No space left on device)" if needed else None,
        _steps(field, container),
    )


def _shm_carries(facts: FactView) -> tuple[bool, str, str] | None:
    """Does NCCL's traffic between this host's GPUs go through /dev/shm? None: there is no such traffic."""
    gpus, pairs, settings = facts.get(Gpus), facts.get(Pairs), facts.get(Settings)
    known = [p for p in pairs or () if p.path is not None or p.p2p_read is not None]
    if gpus is not None and gpus.complete and len(gpus) == 1 and not known:
        return None
    switch = settings.get("NCCL_P2P_DISABLE") if settings is not None else None
    if switch is not None and switch.value.strip() == "1":
        return True, "NCCL_P2P_DISABLE=1 sends all traffic between the GPUs through it.", CERTAIN
    direct = [_direct(p, gpus) for p in known]
    if any(d is False for d in direct):
        pair = known[direct.index(False)]
        return True, f"GPU{pair.a} and GPU{pair.b} cannot use peer to peer, so their traffic goes through it.", CERTAIN
    if direct and all(direct):
        return (
            False,
            "Peer to peer carries the traffic between the GPUs; PyTorch's data loaders may still need it.",
            LIKELY,
        )
    return (
        True,
        "Pairs that cannot use peer to peer send everything through it, and PyTorch's data loaders need it too.",
        POSSIBLE,
    )


def _direct(pair: Pair, gpus: Gpus | None) -> bool | None:
    """Will NCCL use peer to peer for this pair? Past PXB its default depends on version and processor (None)."""
    if pair.path == "NVL":
        return True
    able = pcie_peer(pair, gpus)
    return None if able and pair.path not in ("PIX", "PXB", None) else able


def _steps(field: str, container: str | None) -> tuple[Step, ...]:
    verify = "df -h /dev/shm"
    if field == "free_bytes":
        return (
            Step(
                "See what fills it: files of processes that are gone stay there (nccl-*, torch_*)",
                "ls -lat /dev/shm | head -20; sudo lsof +D /dev/shm | head",
            ),
            Step("Remove those that no process holds open", "rm -i /dev/shm/nccl-*", "reversible", verify),
        )
    if field == "writable":
        return (Step("Its mode must be 1777", "ls -ld /dev/shm; sudo chmod 1777 /dev/shm", "reversible", verify),)
    if container == "kubernetes":
        return (
            Step(
                "In the pod's spec, a memory volume on /dev/shm: volumes: [{name: shm, emptyDir: {medium: Memory, "
                "sizeLimit: 8Gi}}], volumeMounts: [{name: shm, mountPath: /dev/shm}]",
                "kubectl edit deployment NAME",
                "disruptive",
                verify,
            ),
        )
    steps = [
        Step("Docker, Podman: start the container with more", "docker run --shm-size=1g IMAGE", "reversible", verify),
        Step(
            "Or share the host's, where the container may be trusted with it",
            "docker run --ipc=host IMAGE",
            "reversible",
            verify,
        ),
    ]
    if container is None:
        steps.append(
            Step(
                "Where no container is in use: enlarge it (and in /etc/fstab)",
                "sudo mount -o remount,size=50% /dev/shm",
                "reversible",
                verify,
            )
        )
    return tuple(steps)
