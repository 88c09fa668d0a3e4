"""GD217 aspm: the links on a GPU's path are allowed to sleep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.gpu_links import GpuLink, gpu_links, no_gpu
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Aspm, Platform
from gpudoctor.model import CERTAIN, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Evidence, Finding, Step

ASPM = Cause(
    "GD217", "aspm", "Active State Power Management is on somewhere on a GPU's path",
    "note; warning where the same path also reports growing link errors",
    "ASPM lets a PCIe link nap between packets (L0s, L1). Waking costs microseconds, which small messages feel, and on a link "
    "with marginal signals the changes bring correctable errors. NCCL has no handshake that ASPM could break; it is not a cause "
    "of hangs by itself. That a device supports ASPM means nothing, only what its link control register enables. "
    "pcie_aspm=off does not disable it: it stops Linux from managing it, and what firmware set stays.",
    "LnkCtl of the GPU and the bridges above it (lspci -vv), sysfs link/l1_aspm, the kernel's policy, AER lines in the kernel log",
    "The kernel's policy `performance`, at run time or at boot; firmware setup.",
)  # fmt: skip


class AspmEnabled(BaseChecker):
    """Enabled ASPM on the GPU or any bridge above it."""

    name: ClassVar[str] = "aspm"
    needs = (PciTree,)
    wants = (Gpus, PciTree, Platform, Aspm, KernelLog)
    causes = (ASPM,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        policy = facts.get(Aspm)
        links = list(gpu_links(facts))
        for link in links:
            path = [d for d in (link.card, *link.above) if d is not None]
            awake = [d for d in path if d.aspm_enabled is not None]
            asleep = [d for d in awake if d.aspm_enabled]
            if asleep:
                yield _finding(link, asleep, policy, _errors(path, facts.get(KernelLog)))
            elif not awake:
                denied = any(d.access_denied for d in path)
                reason = (
                    "lspci without root does not show it"
                    if denied
                    else "the link control registers are not in the input"
                )
                yield CannotTell("aspm", reason, link.subject)
        strays = [d for d in facts[PciTree] if d.bdf is None and d.aspm_enabled and d.class_code is None]
        strays = [d for d in strays if not any(link.card is d for link in links)]
        if strays:
            yield _stray(strays, policy)
        else:
            yield from no_gpu("aspm", facts)


def _errors(path: list[PciDevice], log: KernelLog | None) -> Evidence | None:
    """Proof that correctable errors keep coming on this path: at least two AER lines since the driver was loaded."""
    names = {d.bdf for d in path if d.bdf}
    lines = [e for e in log.of("aer") if e.bdf in names and not e.stale] if log is not None else []
    return lines[-1].at("text") if len(lines) >= 2 else None


def _finding(link: GpuLink, asleep: list[PciDevice], policy: Aspm | None, errors: Evidence | None) -> Finding:
    states = " and ".join(sorted({s for d in asleep for s in d.aspm_enabled or ()}))
    where = ", ".join("the GPU itself" if d is link.card else f"bridge {d.bdf}" for d in asleep)
    said = f" The kernel's policy is {policy.policy}." if policy is not None else ""
    bad = " The kernel log shows link errors on this path again and again." if errors else ""
    evidence = tuple(dict.fromkeys(d.at("aspm_enabled") for d in asleep))
    if policy is not None and policy.origin is not None:
        evidence += (policy.origin,)
    return Finding(
        "aspm",
        WARNING if errors else NOTE,
        link.subject,
        f"{link.label}: ASPM {states} is enabled on its path ({where}).{said}{bad}",
        (*evidence, *((errors,) if errors else ())),
        CERTAIN if link.placed else POSSIBLE,
        "some microseconds each time the link wakes; none for large transfers",
        _steps(link.gpu.bdf),
    )


def _stray(strays: list[PciDevice], policy: Aspm | None) -> Finding:
    return Finding(
        "aspm",
        NOTE,
        "host",
        f"ASPM is enabled on {len(strays)} device(s) whose address is not in the input, so whether a GPU's path is meant "
        "cannot be said.",
        tuple(dict.fromkeys(d.at("aspm_enabled") for d in strays[:4])),
        POSSIBLE,
        None,
        (Step("Show it with addresses.", "sudo lspci -vv -D > lspci.txt; gpudoctor check --from lspci.txt"), *_steps(None)),
    )


def _steps(bdf: str | None) -> tuple[Step, ...]:
    look = f"sudo lspci -vv -s {bdf} | grep LnkCtl:" if bdf else "sudo lspci -vv | grep LnkCtl:"
    return (
        Step("Until the next boot: keep links awake.",
             "echo performance | sudo tee /sys/module/pcie_aspm/parameters/policy", "reversible", look),
        Step("For good: kernel command line pcie_aspm.policy=performance (pcie_aspm=off would only keep what firmware set).",
             None, "disruptive", "cat /sys/module/pcie_aspm/parameters/policy   (wants [performance])"),
        Step("Where the policy cannot be written, firmware keeps ASPM to itself: firmware setup, PCIe ASPM off.", None, "disruptive"),
    )  # fmt: skip
