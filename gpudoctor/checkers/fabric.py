"""NVSwitch fabric: registration of each GPU, and the Fabric Manager that sets the switches up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Driver, Gpu, Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import FabricManager, FabricManagerEntry, Platform
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Finding, Step, Threshold
from gpudoctor.parts import find

SETTLE = Threshold(
    "uptime under which a registration still in progress is only likely to be stuck", 300, "s",
    "our choice: registration takes seconds once the driver and Fabric Manager are up", "2026",
)

FABRIC = Cause(
    "GD403",
    "fabric",
    "The NVSwitch fabric is not set up",
    "error; bandwidth degraded or a recovery under way: warning",
    "On boards with NVSwitches the switches carry nothing until Fabric Manager has programmed them; from Hopper on each GPU then "
    "registers with the fabric, and CUDA does not start before that: cuInit fails with error 802 (system not yet initialized). "
    "Fabric Manager must be of exactly the driver's version, and it refuses to start with any other. On such a system the "
    "driver offers no peer to peer over PCIe in place of NVLink. In a virtual machine the Fabric Manager may run outside: that "
    "the service is not seen is no fault where the GPUs say `completed`. PCIe cards, bridged cards and consumer cards have no "
    "fabric and say `not supported` or N/A.",
    "nvidia-smi -q -x (fabric); systemctl status nvidia-fabricmanager; /var/log/fabricmanager.log",
    "Install the Fabric Manager of the driver's version and start it.",
    (SETTLE,),
)
_BOARD = 5  # GPUs; boards of four are joined directly
_UNFINISHED = ("in progress", "not started")
_FINE = ("healthy", "n/a", "not supported", "full")
# A bandwidth that is down or a recovery that is under way leaves the fabric working.
_LESSER = ("degraded", "limited capacity", "recovery")


class Fabric(BaseChecker):
    """The GPUs' own word comes first; the service is judged where switches are on the bus."""

    name: ClassVar[str] = "fabric"
    any_of = (Gpus, FabricManager)
    wants = (Driver, Platform)
    causes = (FABRIC,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus = tuple(facts.get(Gpus) or ())
        platform = facts.get(Platform)
        uptime = platform.entry.uptime_s if platform is not None else None
        young = uptime is not None and uptime < SETTLE.value
        outside = platform is not None and (platform.entry.vm is True or platform.entry.container is not None)
        told: set[str] = set()
        for gpu in gpus:
            for finding in _gpu(gpu, young):
                if finding.message not in told:  # GPUs that an excerpt does not name would say it once each
                    told.add(finding.message)
                    yield finding
        manager, driver = facts.get(FabricManager), facts.get(Driver)
        entry = manager.entry if manager is not None else None
        said = False
        if entry is not None:
            version = (driver.entry.module_version or driver.entry.version) if driver is not None else None
            for finding in _service(entry, version, gpus, outside):
                said = True
                yield finding
        if entry is not None and entry.found_no_switch and _open(gpus):
            yield _no_switch(entry)
        if not said and not any(g.fabric_state for g in gpus) and _needs_fabric(gpus) and _silent(entry):
            yield CannotTell(
                FABRIC.slug, "the input shows neither the GPUs' fabric state nor the Fabric Manager; needed is nvidia-smi -q -x"
            )


def _no_switch(entry: FabricManagerEntry) -> Finding:
    return Finding(
        FABRIC.slug,
        NOTE,
        "host",
        "Fabric Manager found no NVSwitch and ended (NV_WARN_NOTHING_TO_DO). On a host without NVSwitches of its own (PCIe, bridged and "
        "consumer cards, boards of four, trays of an NVL72 rack, a virtual machine) that is right: it is not needed there, and its failure keeps "
        "nothing from working. On eight SXM GPUs it is a fault: the switches are not on the bus, or on boards of the B200 generation the NVLink subnet manager (nvlsm) is missing.",
        (entry.at("found_no_switch"),),
        POSSIBLE,
        remediation=(
            Step("See which GPUs these are, and whether switches are on the bus", "nvidia-smi -L; lspci -nn -d 10de: | grep 0680"),
            Step("No switches by design: switch the service off", "sudo systemctl disable nvidia-fabricmanager", "reversible"),
        ),
    )


def _needs_fabric(gpus: tuple[Gpu, ...]) -> bool:
    """Eight SXM GPUs of the kind that is joined by switches; boards of four are joined directly."""
    parts = [find(g.device_id, g.name) for g in gpus]
    return sum(1 for p in parts if p is not None and p.required and (p.nvlink_gen or 0) >= 3) >= _BOARD


def _silent(entry: FabricManagerEntry | None) -> bool:
    return entry is None or (entry.active is None and entry.state is None)


def _gpu(gpu: Gpu, young: bool) -> Iterator[Finding]:
    part = find(gpu.device_id, gpu.name)
    if part is not None and not part.required and part.form != "superchip":
        return  # a card without switches; what it says of a fabric means nothing
    state, status, health = gpu.fabric_state, gpu.fabric_status, gpu.fabric_health
    unknown = "" if part is not None or gpu.name is None else f" ({gpu.name}, a part that gpudoctor does not know)"
    if state in _UNFINISHED:
        yield Finding(
            FABRIC.slug,
            ERROR,
            gpu.subject,
            f"{gpu.opening}{unknown}: registration with the NVSwitch fabric is {state}. CUDA programs fail to start on it until "
            "it is completed (error 802).",
            (gpu.at("fabric_state"),),
            LIKELY if young else CERTAIN,
            remediation=_start_steps(None),
        )
        return
    if state == "completed" and status is not None and status not in ("success", "n/a"):
        yield Finding(
            FABRIC.slug,
            ERROR,
            gpu.subject,
            f"{gpu.opening}{unknown}: registration with the NVSwitch fabric ended with `{status}`.",
            (gpu.at("fabric_status"),),
            remediation=_start_steps(None),
        )
    if state != "not supported" and health is not None and health not in _FINE:
        lesser = all(any(word in part for word in _LESSER) for part in health.split(","))
        yield Finding(
            FABRIC.slug,
            WARNING if lesser else ERROR,
            gpu.subject,
            f"{gpu.opening}{unknown}: the fabric's health is `{health}`.",
            (gpu.at("fabric_health"),),
            remediation=(
                Step("See which link or switch the Fabric Manager complains of", "sudo tail -n 50 /var/log/fabricmanager.log"),
                Step("See which links are up", f"nvidia-smi nvlink -s -i {gpu.index if gpu.index is not None else gpu.option}"),
                Step(
                    "Drain the host, stop everything that holds a GPU, and reset all GPUs together",
                    "sudo nvidia-smi --gpu-reset",
                    "disruptive",
                    "nvidia-smi -q | grep -A 12 Fabric",
                ),
            ),
        )


def _open(gpus: tuple[Gpu, ...]) -> bool:
    """Does the input leave it open whether switches join the GPUs? Too few of them, or one known part, settles it."""
    if not gpus:
        return True
    named = any(g.name for g in gpus)
    known = any(find(g.device_id, g.name) is not None or "GeForce" in (g.name or "") for g in gpus)
    return not known and not (named and len(gpus) < _BOARD)


def _service(
    entry: FabricManagerEntry, driver: str | None, gpus: tuple[Gpu, ...], outside: bool
) -> Iterator[Finding]:
    done = bool(gpus) and all(g.fabric_state == "completed" for g in gpus)
    switches = entry.switches or 0
    down = entry.active is False or _not_running(entry.state)
    if entry.refused_driver is not None and (switches or _needs_fabric(gpus) or _open(gpus)):
        yield Finding(
            FABRIC.slug,
            ERROR,
            "host",
            f"Fabric Manager {entry.version} refuses to start with the driver {entry.refused_driver}: it runs only with its own version.",
            (entry.at("refused_driver"),),
            remediation=_start_steps(entry.refused_driver),
        )
        return
    if down and not switches and _open(gpus) and not entry.found_no_switch and entry.installed is not False and entry.switches is None:
        yield Finding(
            FABRIC.slug,
            ERROR,
            "host",
            f"Fabric Manager is not running ({entry.state or 'stopped'}). Where NVSwitches join the GPUs (eight SXM GPUs of one "
            "board), NVLink between them does not work without it; on other hosts it is not needed.",
            (entry.at("state" if entry.state else "active"),),
            POSSIBLE,
            remediation=_start_steps(driver),
        )
        return
    # Without switches in sight the service may rightly not run; GPUs that need one, and do not say `completed`, decide.
    if down and (switches or (entry.switches is None and _needs_fabric(gpus) and not done)) and not (outside and done):
        seen = f"{switches} NVSwitches are on the PCI bus" if switches else "these GPUs are joined by NVSwitches"
        if entry.installed is False:
            state = "is not installed"
        else:
            state = f"is not running ({entry.state})" if entry.state else "is not running"
        yield Finding(
            FABRIC.slug,
            ERROR,
            "host",
            f"{seen}, but the Fabric Manager {state}. Without it NVLink between the GPUs does not work, or its next failure "
            "is not handled.",
            (entry.at("state" if entry.state else "active"),),
            CERTAIN if switches and not outside else LIKELY,
            remediation=_start_steps(driver),
        )
    if entry.version and driver and entry.version != driver and (switches or _needs_fabric(gpus)):
        yield Finding(
            FABRIC.slug,
            ERROR,
            "host",
            f"Fabric Manager is of version {entry.version}, the driver of {driver}. It runs only with its own version.",
            (entry.at("version"),),
            remediation=_start_steps(driver),
        )


def _not_running(state: str | None) -> bool:
    words = (state or "").lower().replace("(", " ").split()
    return bool(words) and words[0] in ("failed", "inactive", "dead")


def _start_steps(driver: str | None) -> tuple[Step, ...]:
    package = f"of version {driver}" if driver else "of the driver's version (nvidia-smi prints it)"
    return (
        Step("See why it does not run", "systemctl status nvidia-fabricmanager; sudo tail -n 50 /var/log/fabricmanager.log"),
        Step(f"Install the Fabric Manager {package}, if another one or none is installed", "cat /proc/driver/nvidia/version"),
        Step(
            "Start it now and at every boot",
            "sudo systemctl enable --now nvidia-fabricmanager",
            "reversible",
            "systemctl is-active nvidia-fabricmanager; nvidia-smi -q | grep -A 3 Fabric",
        ),
        Step(
            "If GPUs stay unregistered although it runs, drain the host and reset all GPUs together, or reboot",
            "sudo nvidia-smi --gpu-reset",
            "disruptive",
            "nvidia-smi -q | grep -A 3 Fabric",
        ),
    )
