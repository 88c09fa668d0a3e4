"""In WSL2 Windows owns the GPU and its driver: what the remedies say for Linux cannot be done there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Platform
from gpudoctor.model import CheckResult, Finding, Step
from gpudoctor.record import replace

# Modules, resets, PCI registers, power and kernel log of the card: none of them is in the virtual machine.
_NOT_THERE = re.compile(
    r"\b(?:modprobe|dkms|mokutil|setpci|lspci|systemctl|poweroff|reboot|modinfo|nvidia-bug-report|update-initramfs|aer_dev)\b"
    r"|--gpu-reset|-mig |NVRM|nvrm|/proc/driver/nvidia|/var/log/fabricmanager|/sys/bus/pci"
)
_INSTEAD = Step(
    "WSL has no driver of its own, it uses that of Windows: look there whether the GPU answers (in TCC mode WSL does not see it), "
    "install or update the driver there, never one inside WSL, and start WSL anew",
    "nvidia-smi.exe; wsl.exe --update; wsl.exe --shutdown   # in Windows",
    "disruptive",
    "nvidia-smi -L",
)


def fit_to_wsl(results: tuple[CheckResult, ...], stores: Sequence[FactStore]) -> tuple[CheckResult, ...]:
    """The results with the steps of hosts in WSL2 replaced by what can be done there."""
    inside = {s.host if len(stores) > 1 else None for s in stores if _in_wsl(s)}
    if not inside:
        return results
    return tuple(
        replace(r, findings=tuple(_fitted(f) if (f.host if len(stores) > 1 else None) in inside else f for f in r.findings)) if r.findings else r
        for r in results
    )


def _in_wsl(store: FactStore) -> bool:
    platform = store.get(Platform)
    return platform is not None and bool(platform.entry.wsl)


def _fitted(finding: Finding) -> Finding:
    kept = tuple(s for s in finding.remediation if s.risk != "hardware" and not _NOT_THERE.search(s.command or ""))
    if len(kept) == len(finding.remediation):
        return finding
    return replace(finding, remediation=(*kept, _INSTEAD))
