"""GD101 driver-unavailable, GD102 gpu-missing: does the driver answer, and for every GPU that is there?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.presence import absent, comparable, granted_nodes
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Grant, Modules, Outcome, Outcomes, Platform
from gpudoctor.model import CERTAIN, ERROR, LIKELY, WARNING, CannotTell, Cause, Evidence, Finding, Step

DRIVER_UNAVAILABLE = Cause(
    "GD101",
    "driver-unavailable",
    "The NVIDIA driver does not answer",
    "error; nvidia-smi that only hangs: warning, and the command ends with status 3",
    "GPUs are on the PCI bus, but the kernel module is not loaded, another driver holds them, or nvidia-smi and NVML give "
    "an error. No CUDA program can run then, and nothing else about the GPUs can be judged. A list of the bus alone is no "
    "such sign: nobody asked the driver. GPUs bound to vfio-pci belong to virtual machines and are left out. A query that "
    "hangs usually means one GPU or its firmware is stuck; what NVML may still say then is not trusted to be the whole truth.",
    "nvidia-smi's own message and exit status, lspci -k (driver in use), lsmod, the kernel log",
    "Load the module, or repair what keeps it from loading (secure boot, a kernel without a built module, nouveau); "
    "after an update, reboot or reload.",
)
GPU_MISSING = Cause(
    "GD102",
    "gpu-missing",
    "A GPU does not answer or has fallen off the bus",
    "error",
    "A GPU that the driver had, or that is bound to the nvidia driver and granted to this process, is not in the driver's "
    "list, or the driver itself says that it is lost. Xid 79 in the kernel log is the driver's word for a GPU that no longer "
    "answers on PCIe. A job that counts on this GPU fails to start or hangs. Only whole lists are compared: a cut or elided "
    "output proves no absence, and a GPU that is not given to this container or job is `gpu-not-visible`.",
    "nvidia-smi -q, lspci -k, ls /dev/nvidia*, the kernel log (Xid 79, RmInitAdapter failed)",
    "Drain the host and power it off and on; a reboot alone may not bring the GPU back. If it happens again: seating, power "
    "cables and riser, then the board.",
)

_HUNG = ("timeout", "stuck")
_NOT_NVIDIA = ("nouveau", "nova_core")  # in-tree drivers that keep the nvidia module off the card
_FELL_OFF = 79  # Xid 79 "GPU has fallen off the bus" (NVIDIA Xid Errors, docs.nvidia.com/deploy/xid-errors)


class DriverAnswers(BaseChecker):
    """Asks first whether the driver speaks at all, then whether it speaks for every GPU."""

    name: ClassVar[str] = "driver"
    causes = (DRIVER_UNAVAILABLE, GPU_MISSING)
    any_of = (Gpus, Driver, PciTree, KernelLog)
    wants = (Modules, Outcomes, Grant, Platform)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        yield from _unavailable(facts)
        yield from _missing(facts)


def _unavailable(facts: FactView) -> Iterator[Finding | CannotTell]:
    slug = DRIVER_UNAVAILABLE.slug
    hung = [o for o in facts.get(Outcomes) or () if o.probe.startswith("smi-") and o.status in _HUNG]
    if hung:
        yield _hang(hung)
        return
    gpus, driver, tree = facts.get(Gpus), facts.get(Driver), facts.get(PciTree)
    entry = driver.entry if driver is not None else None
    if (gpus is not None and gpus.listed) or (entry is not None and entry.version is not None and entry.failure is None):
        return
    on_bus = tree.gpus() if tree is not None else ()
    ours = [d for d in on_bus if d.driver != "vfio-pci"]
    if tree is not None and tree.complete and not ours:
        yield CannotTell(slug, "every NVIDIA GPU on the bus is handed to virtual machines (vfio-pci)" if on_bus else "no NVIDIA GPU on the PCI bus")
        return
    if _given_none(facts):
        yield CannotTell(slug, "this container was given no GPU; the driver outside it was not asked")
        return
    other = [d for d in ours if d.driver in _NOT_NVIDIA]
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
            Step("See whether a process waits in the driver, and what the kernel says", "ps -eo pid,stat,wchan:30,cmd | awk '$2 ~ /D/'; sudo dmesg -T | grep -iE 'nvrm|xid' | tail -20"),
            Step("Keep the driver loaded: without persistence mode every first query loads it anew, which takes seconds a GPU", "sudo nvidia-smi -pm 1", "reversible"),
            Step("Still no answer: drain the host and reboot it", "sudo reboot", "disruptive", "nvidia-smi -L"),
        ),
    )


def _failed(entry: DriverEntry, ours: list[PciDevice], other: list[PciDevice]) -> Finding:
    words = (entry.failure or "").strip()
    evidence = [entry.at("failure"), *(d.at("driver") for d in other[:1])]
    count = f"{len(ours)} NVIDIA GPU{'s are' if len(ours) != 1 else ' is'} on the PCI bus, but the" if ours else "The"
    return Finding(
        DRIVER_UNAVAILABLE.slug,
        ERROR,
        "host",
        f"{count} driver does not answer: {words}" + (f" ({other[0].bdf} is bound to {other[0].driver})" if other else ""),
        tuple(evidence),
        CERTAIN if ours else LIKELY,
        "no CUDA program can run",
        _steps(words, bool(other)),
    )


def _held(other: list[PciDevice]) -> Finding:
    held = ", ".join(str(d.bdf) for d in other)
    return Finding(
        DRIVER_UNAVAILABLE.slug,
        ERROR,
        "host",
        f"The kernel's own driver {other[0].driver} holds {held}; NVIDIA's driver cannot take it and CUDA cannot use it.",
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
        yield CannotTell(slug, "nothing in the input asked the driver" if facts.recorded else "no GPU on the bus was seen and the driver gave no list")
        return
    evidence: list[Evidence] = [o.at("status") for o in asked[:2]]
    if unloaded and modules is not None and isinstance(modules.origin, Evidence):
        evidence.append(modules.origin)
    evidence.append(ours[0].at("bdf"))
    state = "the nvidia kernel module is not loaded" if unloaded else "; ".join(f"{o.at('status').source}: {o.at('status').value}" for o in asked[:2])
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
            Step("Keep the in-tree driver off the cards", "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf; sudo update-initramfs -u || sudo dracut -f", "reversible"),
            Step("Reboot, with NVIDIA's driver installed", "sudo reboot", "disruptive", verify),
        )
    if "version mismatch" in low:
        return (
            Step("See which program still uses the old module", "sudo lsof /dev/nvidia* 2>/dev/null | head; cat /proc/driver/nvidia/version"),
            Step("Reboot, so that module and libraries are of one version", "sudo reboot", "disruptive", verify),
        )
    if "unknown error" in low or "permission" in low:
        return (
            Step("In a container: the cgroup may have lost the devices (a `systemctl daemon-reload` on the host does that); start the container again", "ls -l /dev/nvidia*; docker restart CONTAINER", "disruptive", verify),
            Step("On the host: may this user open the devices?", "ls -l /dev/nvidia* /dev/nvidiactl"),
        )
    return (
        Step("Why did the module not load? A kernel without a built module, secure boot, or an error of the card", "sudo dmesg -T | grep -iE 'nvrm|nvidia|module verification|key was rejected' | tail -30; dkms status; mokutil --sb-state"),
        Step("Load it", "sudo modprobe nvidia", "reversible", verify),
        Step("Not found: build it for the running kernel, or install the driver", "sudo dkms autoinstall -k \"$(uname -r)\"", "reversible", verify),
    )


def _given_none(facts: FactView) -> bool:
    """A container without any device node: the driver lives outside and may be in the best of health."""
    grant, platform = facts.get(Grant), facts.get(Platform)
    inside = platform is not None and platform.entry.container is not None
    return inside and grant is not None and granted_nodes(grant.entry) == 0


def _missing(facts: FactView) -> Iterator[Finding | CannotTell]:
    gpus, tree = facts.get(Gpus), facts.get(PciTree)
    said: set[str] = set()
    for gpu in gpus or ():
        if gpu.error is not None:
            said.add(gpu.bdf or "")
            yield _lost(gpu.subject, f"{gpu.label} does not answer: {gpu.error}", (gpu.at("error"),), gpu.bdf)
    well = {g.bdf for g in gpus.listed if g.error is None} if gpus is not None else set()
    for event in _last_losses(facts.get(KernelLog)):
        if event.bdf not in well and (event.bdf or "") not in said:
            said.add(event.bdf or "")
            yield _from_log(event)
    for device in tree.gpus() if tree is not None else ():
        if device.all_ones and device.bdf not in well and (device.bdf or "") not in said and device.runtime_status != "suspended":
            said.add(device.bdf or "")
            words = f"The GPU at {device.bdf or 'an address that is not in the input'} does not answer on the bus: its registers read all ones."
            yield _lost(f"gpu:{device.bdf}" if device.bdf else "host", words, (device.at("all_ones"),), device.bdf, LIKELY)
    if gpus is None or tree is None or not comparable(gpus, tree, facts.recorded):
        if not said:
            yield CannotTell(GPU_MISSING.slug, "the driver's whole list and the PCI bus are both needed to tell whether one is missing")
        return
    if not facts.recorded and gpus.listed and gpus.attached is not None and gpus.attached > len(gpus.listed):
        counter = gpus.listed[0]
        yield _lost("host", f"The driver counts {gpus.attached} GPUs and describes only {len(gpus.listed)}.", (counter.at("bdf"),), None)
    grant, platform = facts.get(Grant), facts.get(Platform)
    for one in absent(gpus, tree, grant.entry if grant else None, platform.entry if platform else None):
        bdf = one.device.bdf or ""
        if one.lost and bdf not in said:
            others = f"the driver lists {len(gpus.listed)} others and not this one" if gpus.listed else "the driver finds no device"
            message = f"The GPU at {bdf} is on the bus and {one.why}, but {others}."
            yield _lost(f"gpu:{bdf}", message, (one.device.at("driver"), *(g.at("bdf") for g in gpus.listed[:1])), bdf, one.confidence)


def _last_losses(log: KernelLog | None) -> tuple[KernelEvent, ...]:
    if log is None:
        return ()
    lost = [
        e
        for e in log.of("xid", "fell-off", "rm-init-failed")
        if not e.stale and (e.kind != "xid" or e.code == _FELL_OFF)
    ]
    return tuple({e.bdf: e for e in lost}.values())


def _from_log(event: KernelEvent) -> Finding:
    where = f"the GPU at {event.bdf}" if event.bdf else "a GPU"
    words = {
        "rm-init-failed": f"The driver could not start {where} (RmInitAdapter failed).",
    }.get(event.kind, f"{where[0].upper()}{where[1:]} has fallen off the PCI bus" + (" (Xid 79)." if event.code == _FELL_OFF else "."))
    return _lost(f"gpu:{event.bdf}" if event.bdf else "host", words, (event.at("text"),), event.bdf, LIKELY)


def _lost(subject: str, message: str, evidence: tuple[Evidence, ...], bdf: str | None, confidence: str = CERTAIN) -> Finding:
    look = f"lspci -s {bdf} -vv; " if bdf else ""
    slot = f"sudo lspci -vv -s {bdf}" if bdf else "sudo lspci -vv -d 10de:"
    return Finding(
        GPU_MISSING.slug,
        ERROR,
        subject,
        message,
        evidence,
        confidence,
        "a job that counts on this GPU cannot start, or hangs",
        (
            Step("Keep the traces before anything else; `rev ff` in lspci means that the card does not answer at all", f"{look}sudo dmesg -T | grep -iE 'xid|nvrm|aer' | tail -40; sudo nvidia-bug-report.sh"),
            Step("Drain the host, shut it down and cut its power for a moment: a warm reboot may leave the card as it is", "sudo poweroff", "disruptive", "nvidia-smi -L"),
            Step("It happens again: seat card, riser and power cables anew; then the same card in another slot", None, "hardware", slot),
        ),
    )
