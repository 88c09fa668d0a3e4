"""What to do about an Xid or SXid, in steps for the GPU or switch that reported it."""

from __future__ import annotations

from gpudoctor.model import Step

_LOG = "sudo dmesg -T | grep -E 'Xid|SXid'"


def steps(remedy: str, bdf: str | None, links: tuple[int, ...] = (), index: int | None = None) -> tuple[Step, ...]:
    """Steps for one remedy key of data/xid.tsv. index: the driver's number, where the address is not known."""
    at = bdf or "GPU-ADDRESS"
    gpu = bdf or ("GPU-ADDRESS" if index is None else str(index))
    show = "nvidia-smi -q" if gpu == "GPU-ADDRESS" else f"nvidia-smi -q -i {gpu}"
    reset = Step(
        "Move the jobs off this GPU, then reset it; restart the host where the reset is refused.",
        f"sudo nvidia-smi --gpu-reset -i {gpu}",
        "disruptive",
        f"{show}; {_LOG}",
    )
    report = Step("Keep the evidence for the vendor.", "sudo nvidia-bug-report.sh")
    replace = Step("If it comes back after a reset, have the GPU tested and replaced.", "dcgmi diag -r 3", "hardware")
    nvlink = Step("See which links are down or count errors.", "nvidia-smi nvlink -s; nvidia-smi nvlink -e")
    named = f" (links named: {', '.join(map(str, links))})" if links else ""
    fabric = Step(
        "Restart the jobs and the Fabric Manager; where the link stays down, reset all GPUs and NVSwitches by restarting the host.",
        "sudo systemctl restart nvidia-fabricmanager",
        "disruptive",
        "nvidia-smi nvlink -s; nvidia-smi -q | grep -A3 Fabric",
    )
    reboot = Step("Restart the host.", "sudo systemctl reboot", "disruptive", _LOG)
    table: dict[str, tuple[Step, ...]] = {
        "app": (
            Step("Find the faulty program by the pid in the line and run it under the memory checker.", "compute-sanitizer PROGRAM"),
            Step("If different programs fault on this one GPU only, test it.", "dcgmi diag -r 3", "disruptive"),
        ),
        "follow": (Step("Look at the Xid just before it: this one only cleans up after a fault.", _LOG),),
        "none": (Step("Nothing to do unless it comes often.", _LOG),),
        "watch": (Step("Watch the counts; replace the GPU when uncorrectable errors follow.", f"nvidia-smi -q -d ECC,ROW_REMAPPER -i {gpu}"),),
        "watch-switch": (Step("Watch for a fatal SXid of the same link.", _LOG), nvlink),
        "reset": (reset, replace, report),
        "remap": (reset,),
        "replace": (
            reset,
            Step("If the failure stays, take the GPU out of service and have the vendor test or replace it.", None, "hardware"),
            report,
        ),
        "reboot": (reboot, report),
        "driver": (Step("Update the driver; if it comes back, report it.", None, "disruptive", _LOG), report),
        "support": (report,),
        "gsp": (
            reset,
            Step("If it comes back, update the driver (its GSP firmware comes with it).", None, "disruptive", "nvidia-smi -q | grep GSP"),
            report,
        ),
        "power": (Step("Power off and check the auxiliary power cables of the card.", None, "hardware", _LOG),),
        "fallen": (
            Step("Look whether the bus still sees it (rev ff means that it does not answer).", f"lspci -s {at}"),
            Step("Before the power goes: keep the evidence for the vendor.", "sudo nvidia-bug-report.sh"),
            Step("Power off fully and on again; a warm restart may not bring it back.", None, "disruptive", f"nvidia-smi -i {gpu}"),
            Step("If it comes back: power supply and cables, seating, riser, cooling; then replace the GPU.", None, "hardware"),
        ),
        "nvlink": (nvlink, reset, Step(f"If it comes back, check the bridge or baseboard connection{named}.", None, "hardware"), report),
        "nvlink5": (nvlink, reset, Step(f"If it comes back, check the baseboard, in a rack the switch tray and cable cartridge{named}.", None, "hardware"), report),
        "recovery": (Step("Do what the driver asks for.", f"{show} | grep -A1 -i recovery"), reset),
        "fabric": (nvlink, fabric, report),
        "switch-reboot": (reboot, Step("If it comes back, have the baseboard replaced.", None, "hardware"), report),
        "cool": (Step("Check fans, air flow and inlet temperature of the host.", "sudo ipmitool sdr type temperature", "hardware"),),
    }
    return table[remedy]
