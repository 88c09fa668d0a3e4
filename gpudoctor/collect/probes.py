"""Every command gpudoctor runs on a host. All of them only look."""

from __future__ import annotations

from gpudoctor.collect.capture import Probe


def _smi(id: str, *words: str, kind: str | None, needed: bool = False) -> Probe:
    return Probe(
        id=id,
        argv=("nvidia-smi", *words),
        kind=kind,
        shown=" ".join(("nvidia-smi", *words)),
        driver=True,
        needed=needed,
    )


def _child(name: str, driver: bool = False, optional: bool = False) -> Probe:
    """A Python file of gpudoctor/probe run by this interpreter: prints one line of JSON."""
    return Probe(
        id=name,
        argv=("{python}", f"{{probe}}/{name}.py"),
        kind=f"{name}-json",
        shown=f"gpudoctor probe {name}",
        driver=driver,
        optional=optional,
    )


PROBES: tuple[Probe, ...] = (
    _smi("smi-q-x", "-q", "-x", kind="smi-qx", needed=True),
    _smi("smi-topo-m", "topo", "-m", kind="smi-topo", needed=True),
    _smi("smi-topo-p2p-r", "topo", "-p2p", "r", kind="smi-topo"),
    _smi("smi-topo-p2p-w", "topo", "-p2p", "w", kind="smi-topo"),
    _smi("smi-topo-p2p-n", "topo", "-p2p", "n", kind="smi-topo"),
    _smi("smi-topo-p2p-a", "topo", "-p2p", "a", kind="smi-topo"),
    _smi("smi-nvlink-s", "nvlink", "-s", kind="smi-nvlink"),
    _smi("smi-nvlink-e", "nvlink", "-e", kind="smi-nvlink"),
    _child("nvml", driver=True),
    _child("pci"),
    _child("system"),
    Probe(id="lspci", argv=("lspci", "-vv", "-D", "-nn"), kind="lspci", shown="lspci -vv -D -nn"),
    Probe(id="dmesg", argv=("dmesg", "--time-format", "iso"), kind="kernel-log", shown="dmesg --time-format iso"),
    Probe(
        id="fabricmanager",
        argv=("systemctl", "show", "nvidia-fabricmanager", "--property=LoadState,ActiveState,SubState,Result,ExecMainStatus"),
        kind="fm-service",
        shown="systemctl show nvidia-fabricmanager",
        timeout_s=10.0,
    ),
    _child("job", optional=True),
)


def by_id(probe_id: str) -> Probe | None:
    """The probe of this name, if today's program has it."""
    return next((p for p in PROBES if p.id == probe_id), None)
