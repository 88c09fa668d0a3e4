"""GD101 driver-unavailable: does the driver answer at all?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.outcomes import Outcome, Outcomes
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.presence import granted_nodes
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Grant, Modules, Platform
from gpudoctor.model import CERTAIN, ERROR, LIKELY, WARNING, CannotTell, Cause, Evidence, Finding, Step

DRIVER_UNAVAILABLE = Cause(
    "GD101",
    "driver-unavailable",
    "The NVIDIA driver does not answer",
    "error; nvidia-smi that only hangs: warning, and the command ends with status 3",
    "GPUs are on the PCI bus, but the kernel module is not loaded, another driver holds them, or nvidia-smi and NVML "
    "give "
    "an error. No CUDA program can run then, and nothing else about the GPUs can be judged. A list of the bus alone "
    "is no "
    "such sign: nobody asked the driver. GPUs bound to vfio-pci belong to virtual machines and are left out. A query "
    "that "
    "hangs usually means one GPU or its firmware is stuck; what NVML may still say then is not trusted to be the "
    "whole truth.",
    "nvidia-smi's own message and exit status, lspci -k (driver in use), lsmod, the kernel log",
    "Load the module, or repair what keeps it from loading (secure boot, a kernel without a built module, nouveau); "
    "after an update, reboot or reload.",
)
_HUNG = ("timeout", "stuck")
_NOT_NVIDIA = ("nouveau", "nova_core")  # in-tree drivers that keep the nvidia module off the card


class DriverAnswers(BaseChecker):
    """A hang first, then whether any source has the driver's answer, then why none has."""

    name: ClassVar[str] = "driver"
    causes = (DRIVER_UNAVAILABLE,)
    any_of = (Gpus, Driver, PciTree, Outcomes, KernelLog)
    wants = (Modules, Grant, Platform, KernelLog)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        slug = DRIVER_UNAVAILABLE.slug
        hung = [o for o in facts.get(Outcomes) or () if o.probe.startswith("smi-") and o.status in _HUNG]
        if hung:
            yield _hang(hung)
            return
        gpus, driver, tree = facts.get(Gpus), facts.get(Driver), facts.get(PciTree)
        entry = driver.entry if driver is not None else None
        if facts.recorded and gpus is not None and gpus.listed and entry is not None and entry.failure is not None:
            yield _both(entry, gpus)
            return
        if (gpus is not None and gpus.listed) or (
            entry is not None and entry.version is not None and entry.failure is None
        ):
            return
        on_bus = tree.gpus() if tree is not None else ()
        ours = [d for d in on_bus if d.driver != "vfio-pci"]
        if tree is not None and tree.complete and not ours:
            yield CannotTell(
                slug,
                "every NVIDIA GPU on the bus is handed to virtual machines (vfio-pci)"
                if on_bus
                else "no NVIDIA GPU on the PCI bus",
            )
            return
        if _given_none(facts):
            yield CannotTell(slug, "this container was given no GPU; the driver outside it was not asked")
            return
        other = [d for d in ours if d.driver in _NOT_NVIDIA]
        log = facts.get(KernelLog)
        refused = [e for e in log.of("refused") if not e.stale] if log is not None else []
        if log is not None and any(not e.stale for e in log.of("rm-init-failed", "fell-off")):
            refused = [e for e in refused if "None of the" not in e.text]  # gpu-missing says which, and why
        if refused and (entry is None or entry.failure is None):
            yield _refused(refused)
            return
        if gpus is not None and gpus.attached == 0:
            yield from _finds_none(ours, gpus.complete)
            return
        if entry is not None and entry.failure is not None:
            yield _failed(entry, ours, other)
        elif other:
            yield _held(other)
        else:
            yield from _silent(facts, ours)


def _hang(hung: list[Outcome]) -> Finding:
    words = "; ".join(f"`{' '.join(o.argv)}`: {o.at('status').value}" for o in hung[:2])
    return Finding(
        DRIVER_UNAVAILABLE.slug,
        WARNING,
        "host",
        f"nvidia-smi hangs ({words}). A GPU or the driver may be stuck: do not start a job before it answers.",
        tuple(o.at("status") for o in hung[:4]),
        remediation=(
            Step(
                "See whether a process waits in the driver, and what the kernel says",
                "ps -eo pid,stat,wchan:30,cmd | awk '$2 ~ /D/'; sudo dmesg -T | grep -iE 'nvrm|xid' | tail -20",
            ),
            Step(
                "Keep the driver loaded: without persistence mode every first query loads it anew, which takes "
                "seconds a GPU",
                "sudo nvidia-smi -pm 1",
                "reversible",
            ),
            Step("Still no answer: drain the host and reboot it", "sudo reboot", "disruptive", "nvidia-smi -L"),
        ),
    )


def _both(entry: DriverEntry, gpus: Gpus) -> Finding:
    """Before and after, or inside and outside of a container or guest: what is pasted does not say which holds."""
    words = (entry.failure or "").strip()
    return Finding(
        DRIVER_UNAVAILABLE.slug,
        WARNING,
        "host",
        f"In one place of the input the driver does not answer ({words.rstrip('.')}), in another it lists GPUs. A container, virtual machine or WSL "
        "beside its host looks so, and so does a driver that was repaired, or that broke, in between.",
        (entry.at("failure"), gpus.listed[0].at("name" if gpus.listed[0].name else "index")),
        LIKELY,
        "where it does not answer no CUDA program can run",
        (Step("Ask again in the place where the job runs.", "nvidia-smi -L"), *_steps(words, False)),
    )


def _failed(entry: DriverEntry, ours: list[PciDevice], other: list[PciDevice]) -> Finding:
    words = (entry.failure or "").strip()
    evidence = [entry.at("failure"), *(d.at("driver") for d in other[:1])]
    count = f"{len(ours)} NVIDIA GPU{'s are' if len(ours) != 1 else ' is'} on the PCI bus, but the" if ours else "The"
    return Finding(
        DRIVER_UNAVAILABLE.slug,
        ERROR,
        "host",
        f"{count} driver does not answer: {words}"
        + (f" ({other[0].bdf} is bound to {other[0].driver})" if other else ""),
        tuple(evidence),
        CERTAIN if ours else LIKELY,
        "no CUDA program can run",
        _steps(words, bool(other)),
    )


def _refused(events: list[KernelEvent]) -> Finding:
    """The module's own words in the kernel log; those that give a reason come before the count."""
    event = min(events, key=lambda e: "None of the" in e.text)
    where = f"the GPU at {event.bdf}" if event.bdf else "a GPU"
    held = "was not called" in event.text
    if held:
        words, steps = "another driver holds the GPUs, so NVIDIA's cannot take them", _steps("", True)
    elif "requires use" in event.text:
        words = f"{where} works only with NVIDIA's open kernel modules, and the closed ones are installed"
        steps = _another("Install the open modules of the same version")
    elif "not supported" in event.text:
        words, steps = f"this version does not support {where}", _another("Install a version that lists this card as supported")
    else:
        words, steps = "none of the cards could be started", _steps("", False)
    return Finding(
        DRIVER_UNAVAILABLE.slug,
        ERROR,
        f"gpu:{event.bdf}" if event.bdf else "host",
        f"The driver was loaded and did not take the hardware: {words}.",
        (event.at("text"),),
        LIKELY,
        "no CUDA program can run on it",
        steps,
    )


def _another(what: str) -> tuple[Step, ...]:
    return (
        Step("See the card and the module that is loaded", "lspci -nn -d 10de:; modinfo nvidia | grep -E '^(version|license)'"),
        Step(what, None, "disruptive", "nvidia-smi -L"),
    )


def _finds_none(ours: list[PciDevice], complete: bool) -> Iterator[Finding | CannotTell]:
    """`No devices were found`: module and nvidia-smi work, and no card came up."""
    if any(d.driver == "nvidia" for d in ours):
        return  # gpu-missing speaks of each
    if not ours or not complete:
        yield CannotTell(
            DRIVER_UNAVAILABLE.slug,
            "the driver answers and finds no device; whether GPUs are on the bus is not in the input",
        )
        return
    yield Finding(
        DRIVER_UNAVAILABLE.slug,
        ERROR,
        "host",
        f"{len(ours)} NVIDIA GPU{'s are' if len(ours) != 1 else ' is'} on the PCI bus, but the driver finds no device.",
        tuple(d.at("bdf") for d in ours[:8]),
        LIKELY,
        "no CUDA program can run",
        _steps("", any(d.driver in _NOT_NVIDIA for d in ours)),
    )


def _held(other: list[PciDevice]) -> Finding:
    held = ", ".join(str(d.bdf) for d in other)
    return Finding(
        DRIVER_UNAVAILABLE.slug,
        ERROR,
        "host",
        f"The kernel's own driver {other[0].driver} holds {held}; NVIDIA's driver cannot take it and CUDA cannot use "
        "it.",
        tuple(d.at("driver") for d in other),
        CERTAIN,
        "no CUDA program can run on it",
        _steps("", True),
    )


def _silent(facts: FactView, ours: list[PciDevice]) -> Iterator[Finding | CannotTell]:
    """No word from the driver and none of failure: was it asked at all?"""
    slug = DRIVER_UNAVAILABLE.slug
    modules = facts.get(Modules)
    unloaded = modules is not None and modules.complete and not any(m.startswith("nvidia") for m in modules.loaded)
    asked = [o for o in facts.get(Outcomes) or () if o.probe in ("smi-q-x", "nvml") and o.status != "ok"]
    if not ours or not (unloaded or (asked and not facts.recorded)):
        yield CannotTell(
            slug,
            "nothing in the input asked the driver"
            if facts.recorded
            else "no GPU on the bus was seen and the driver gave no list",
        )
        return
    evidence: list[Evidence] = [o.at("status") for o in asked[:2]]
    if unloaded and modules is not None and isinstance(modules.origin, Evidence):
        evidence.append(modules.origin)
    evidence.append(ours[0].at("bdf"))
    state = (
        "the nvidia kernel module is not loaded"
        if unloaded
        else "; ".join(f"{o.at('status').source}: {o.at('status').value}" for o in asked[:2])
    )
    yield Finding(
        slug,
        ERROR,
        "host",
        f"{len(ours)} NVIDIA GPU{'s are' if len(ours) != 1 else ' is'} on the PCI bus, but {state}.",
        tuple(evidence),
        CERTAIN if not facts.recorded else LIKELY,
        "no CUDA program can run",
        _steps("not loaded" if unloaded else "", False),
    )


def _steps(words: str, other_driver: bool) -> tuple[Step, ...]:
    low = words.lower()
    verify = "nvidia-smi -L"
    if other_driver:
        return (
            Step(
                "Keep the in-tree driver off the cards",
                "printf 'blacklist nouveau\\nblacklist nova_core\\noptions nouveau modeset=0\\n' | sudo tee "
                "/etc/modprobe.d/blacklist-nouveau.conf; sudo update-initramfs -u || sudo dracut -f",
                "reversible",
            ),
            Step("Reboot, with NVIDIA's driver installed", "sudo reboot", "disruptive", verify),
        )
    if "version mismatch" in low:
        return (
            Step(
                "See which program still uses the old module",
                "sudo lsof /dev/nvidia* 2>/dev/null | head; cat /proc/driver/nvidia/version",
            ),
            Step("Reboot, so that module and libraries are of one version", "sudo reboot", "disruptive", verify),
        )
    if "unknown error" in low or "permission" in low:
        return (
            Step(
                "In a container: the cgroup may have lost the devices (a `systemctl daemon-reload` on the host does "
                "that); start the container again",
                "ls -l /dev/nvidia*; docker restart CONTAINER",
                "disruptive",
                verify,
            ),
            Step("On the host: see whether this user may open the devices", "ls -l /dev/nvidia* /dev/nvidiactl"),
        )
    return (
        Step(
            "See why the module did not load: a kernel without a built module, secure boot, or an error of the card",
            "sudo dmesg -T | grep -iE 'nvrm|nvidia|module verification|key was rejected' | tail -30; dkms status; "
            "mokutil --sb-state",
        ),
        Step("Load it", "sudo modprobe nvidia", "reversible", verify),
        Step(
            "Not found: build it for the running kernel, or install the driver",
            'sudo dkms autoinstall -k "$(uname -r)"',
            "reversible",
            verify,
        ),
    )


def _given_none(facts: FactView) -> bool:
    """A container without any device node: the driver lives outside and may be in the best of health."""
    grant, platform = facts.get(Grant), facts.get(Platform)
    inside = platform is not None and platform.entry.container is not None
    return inside and grant is not None and granted_nodes(grant.entry) == 0
