"""GD102 gpu-missing: a GPU that was there, and does not answer any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.xid_remedy import steps
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.presence import absent, comparable
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Grant, Platform
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Evidence, Finding, Step
from gpudoctor.parts import is_laptop
from gpudoctor.record import replace
from gpudoctor.xids import lookup

GPU_MISSING = Cause(
    "GD102",
    "gpu-missing",
    "A GPU does not answer or has fallen off the bus",
    "error",
    "A GPU that the driver had, or that is bound to the nvidia driver and granted to this process, is not in the "
    "driver's "
    "list, or the driver itself says that it is lost. Xid 79 in the kernel log is the driver's word for a GPU that "
    "no longer "
    "answers on PCIe. A job that counts on this GPU fails to start or hangs. Only whole lists are compared: a cut or "
    "elided "
    "output proves no absence, and a GPU that is not given to this container or job is `gpu-not-visible`.",
    "nvidia-smi -q, lspci -k, ls /dev/nvidia*, the kernel log (Xid 79, RmInitAdapter failed)",
    "Drain the host and power it off and on; a reboot alone may not bring the GPU back. If it happens again: "
    "seating, power "
    "cables and riser, then the board.",
)

_FELL_OFF = 79  # Xid 79 "GPU has fallen off the bus" (NVIDIA Xid Errors, docs.nvidia.com/deploy/xid-errors)


class GpuMissing(BaseChecker):
    """The driver's own words, the kernel log, the bus that reads all ones, and whole lists held against the bus."""

    name: ClassVar[str] = "gpu-missing"
    causes = (GPU_MISSING,)
    any_of = (Gpus, PciTree, KernelLog)
    wants = (Grant, Platform)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus, tree = facts.get(Gpus), facts.get(PciTree)
        said: set[str] = set()
        for gpu in gpus or ():
            if gpu.error is not None:
                said.add(gpu.bdf or "")
                yield _lost(
                    gpu.subject,
                    f"{gpu.label[0].upper()}{gpu.label[1:]} does not answer: {gpu.error}",
                    (gpu.at("error"),),
                    gpu.bdf,
                )
            elif gpu.recovery_action is not None:
                yield _wants(gpu, gpu.recovery_action)
        well = {g.bdf for g in gpus.listed if g.error is None} if gpus is not None else set()
        for event in _last_losses(facts.get(KernelLog)):
            if event.bdf not in well and (event.bdf or "") not in said:
                said.add(event.bdf or "")
                yield _from_log(event)
        yield from _mute(facts.get(KernelLog), gpus)
        for device in tree.gpus() if tree is not None else ():
            if (
                device.all_ones
                and device.bdf not in well
                and (device.bdf or "") not in said
                and device.runtime_status != "suspended"
            ):
                said.add(device.bdf or "")
                words = f"The GPU at {device.bdf or 'an address that is not in the input'} does not answer on the bus: its registers read all ones."
                found = _lost(
                    f"gpu:{device.bdf}" if device.bdf else "host", words, (device.at("all_ones"),), device.bdf, LIKELY
                )
                yield _asleep(found) if is_laptop(device.name) else found
        if gpus is None or tree is None or not comparable(gpus, tree, facts.recorded):
            if not said:
                yield CannotTell(
                    GPU_MISSING.slug,
                    "the driver's whole list and the PCI bus are both needed to tell whether one is missing",
                )
            return
        if not facts.recorded and gpus.listed and gpus.attached is not None and gpus.attached > len(gpus.listed):
            counter = gpus.listed[0]
            yield _lost(
                "host",
                f"The driver counts {gpus.attached} GPUs and describes only {len(gpus.listed)}.",
                (counter.at("bdf"),),
                None,
            )
        grant, platform = facts.get(Grant), facts.get(Platform)
        for one in absent(gpus, tree, grant.entry if grant else None, platform.entry if platform else None):
            bdf = one.device.bdf or ""
            if one.lost and bdf not in said:
                others = (
                    f"the driver lists {len(gpus.listed)} others and not this one"
                    if gpus.listed
                    else "the driver finds no device"
                )
                message = f"The GPU at {bdf} is on the bus and {one.why}, but {others}."
                yield _lost(
                    f"gpu:{bdf}",
                    message,
                    (one.device.at("driver"), *(g.at("bdf") for g in gpus.listed[:1])),
                    bdf,
                    one.confidence,
                )


def _last_losses(log: KernelLog | None) -> tuple[KernelEvent, ...]:
    if log is None:
        return ()
    lost = [
        e
        for e in sorted(log.of("xid", "fell-off", "rm-init-failed", "probe-failed"), key=lambda e: e.kind != "probe-failed")
        if not e.stale and (e.kind != "xid" or e.code == _FELL_OFF)
    ]
    if any(not e.stale for e in log.of("refused")):
        lost = [e for e in lost if e.kind != "probe-failed"]  # driver-unavailable says why the card was not taken
    if any(e.bdf is not None for e in lost):
        lost = [e for e in lost if e.bdf is not None or "fallen off" in e.text]  # an assertion names no card: it is that one
    return tuple({e.subject: e for e in lost}.values())


def _wants(gpu: Gpu, action: str) -> Finding:
    """`GPU Recovery Action`: what the driver asks for before the GPU is good for work again."""
    words = action.replace("_", " ")
    drain = "drain" in words  # it goes on working, and should not be given new work
    return Finding(
        GPU_MISSING.slug,
        WARNING if drain else ERROR,
        gpu.subject,
        f"{gpu.opening}: the driver asks for a recovery, `{words}`, after an error that the GPU did not get over by itself.",
        (gpu.at("recovery_action"),),
        CERTAIN,
        "jobs on it fail, or lose what they did, until that is done",
        steps("reboot" if "reboot" in words else "reset", gpu.bdf, (), gpu.index),
    )


_MUTE = {
    "uvm-fatal": "it stopped in a way that the driver's unified memory (nvidia-uvm) does not survive; no CUDA program starts before nvidia-uvm is loaded anew or the host restarted",
    "reset-required": "the driver refuses every call to it until it is reset (NV_ERR_RESET_REQUIRED)",
    "gsp-timeout": "its system processor (GSP) does not answer the driver",
    "gsp-heartbeat": "its system processor (GSP) gave no sign of life in time. By itself, after a wake-up, it may pass; with calls that hang, it has stopped",
    "no-progress": "it does not work on the commands of the display part; a GPU that hangs says so every five seconds",
}
_STOPPED = ("gpu-hardware", "fallen-off")


def _mute(log: KernelLog | None, gpus: Gpus | None) -> Iterator[Finding]:
    """What the driver says of a GPU that stopped, where no Xid of the log says so."""
    live = [e for e in log or () if not e.stale]
    if any(e.kind in ("fell-off", "rm-init-failed") or e.kind == "xid" and lookup("xid", e.code).family in _STOPPED for e in live):
        return
    worst: dict[str, KernelEvent] = {}
    for kind in _MUTE:
        for event in (e for e in live if e.kind == kind):
            if not (event.gpu is None and worst):
                worst.setdefault(event.subject, event)
    answers = gpus is not None and bool(gpus.listed) and all(g.error is None for g in gpus.listed)
    for event in worst.values():
        beside = " The driver's list shows every GPU: it was taken before, or the GPU has been reset since." if answers else ""
        where = "a GPU that the line does not name" if event.gpu is None else event.who
        yield Finding(
            GPU_MISSING.slug,
            NOTE if answers else WARNING if event.kind in ("gsp-heartbeat", "no-progress") else ERROR,
            event.subject,
            f"{where[0].upper()}{where[1:]}: {_MUTE[event.kind]}.{beside}",
            (event.at("text"),),
            LIKELY,
            "jobs and nvidia-smi fail or hang on this GPU",
            steps({"reset-required": "reset", "uvm-fatal": "reboot"}.get(event.kind, "gsp"), None, (), event.gpu),
        )


def _from_log(event: KernelEvent) -> Finding:
    where = event.who
    unmapped = event.text.startswith("NVRM: BAR")
    why = "its memory windows (BARs) are not mapped" if unmapped else "RmInitAdapter failed"
    words = {
        "rm-init-failed": f"The driver could not start {where} ({why}).",
        "probe-failed": f"The driver was offered {where} and did not take it (probe failed); what stands above this line in the kernel log says why.",
    }.get(
        event.kind,
        f"{where[0].upper()}{where[1:]} has fallen off the PCI bus"
        + (" (Xid 79)." if event.code == _FELL_OFF else "."),
    )
    found = _lost(event.subject, words, (event.at("text"),), event.bdf, LIKELY)
    return replace(found, remediation=_MAP) if unmapped else found


def _asleep(found: Finding) -> Finding:
    """A laptop switches its GPU off while nothing uses it, and a switched-off card reads the same as a lost one."""
    return replace(
        found,
        severity=NOTE,
        confidence=POSSIBLE,
        message=f"{found.message} Laptops switch it off while nothing uses it, which looks the same.",
        cost=None,
        remediation=(Step("Wake it, and look again", f"nvidia-smi; lspci -s {found.subject.removeprefix('gpu:')}"),),
    )


_MAP = (
    Step("Firmware setup: Above 4G Decoding on, and an update of the firmware itself.", None, "disruptive", "nvidia-smi -L"),
    Step("Or let the kernel map anew: this parameter on its command line, then reboot.", "pci=realloc", "disruptive", "nvidia-smi -L"),
)


def _lost(
    subject: str, message: str, evidence: tuple[Evidence, ...], bdf: str | None, confidence: str = CERTAIN
) -> Finding:
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
            Step(
                "Keep the traces before anything else; `rev ff` in lspci means that the card does not answer at all",
                f"{look}sudo dmesg -T | grep -iE 'xid|nvrm|aer' | tail -40; sudo nvidia-bug-report.sh",
            ),
            Step(
                "Drain the host, shut it down and cut its power for a moment: a warm reboot may leave the card as it "
                "is",
                "sudo poweroff",
                "disruptive",
                "nvidia-smi -L",
            ),
            Step(
                "It happens again: seat card, riser and power cables anew; then the same card in another slot",
                None,
                "hardware",
                slot,
            ),
        ),
    )
