"""GD105 gpu-not-visible: GPUs of this host that this process, container or job is not given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.presence import absent, comparable, granted_nodes
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Grant, Platform, Settings
from gpudoctor.model import CERTAIN, NOTE, CannotTell, Cause, Evidence, Finding, Step

GPU_NOT_VISIBLE = Cause(
    "GD105",
    "gpu-not-visible",
    "Some GPUs of the host are not visible here",
    "error when a job asked for more than it sees; nobody asked: note",
    "A container, a cgroup, a scheduler or CUDA_VISIBLE_DEVICES gives a process only some of the host's GPUs. That "
    "is mostly "
    "as intended, and it is a fault only when the job counts on more. CUDA numbers the visible GPUs anew from 0 and, "
    "unless "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID is set, fastest first, so its numbers need not be nvidia-smi's. nvidia-smi itself "
    "ignores "
    "CUDA_VISIBLE_DEVICES.",
    "lspci against nvidia-smi -L, ls -l /dev/nvidia*, CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES, SLURM_JOB_GPUS",
    "Ask for the GPUs the job needs (docker run --gpus, nvidia.com/gpu in Kubernetes, --gres in Slurm), or unset the "
    "variable.",
)

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NONE = ("", "-1", "NoDevFiles", "none", "void")


class Visibility(BaseChecker):
    """Compares the bus with the driver's list, and the driver's list with what CUDA programs are told to use."""

    name: ClassVar[str] = "visibility"
    causes = (GPU_NOT_VISIBLE,)
    any_of = (Grant, PciTree, Settings)
    wants = (Gpus, Platform)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        slug = GPU_NOT_VISIBLE.slug
        gpus, tree, grant, platform = facts.get(Gpus), facts.get(PciTree), facts.get(Grant), facts.get(Platform)
        looked = False
        if gpus is not None and tree is not None and comparable(gpus, tree, facts.recorded):
            looked = True
            hidden = [
                a
                for a in absent(gpus, tree, grant.entry if grant else None, platform.entry if platform else None)
                if not a.lost
            ]
            if hidden:
                reasons = "; ".join(dict.fromkeys(a.why for a in hidden))
                names = ", ".join(str(a.device.bdf) for a in hidden)
                yield Finding(
                    slug,
                    NOTE,
                    "host",
                    f"The driver shows {len(gpus.listed) or 'none'} of the {len(gpus.listed) + len(hidden)} NVIDIA "
                    "GPUs on the bus; "
                    f"{names} cannot be used here: {reasons}.",
                    (*(g.at("bdf") for g in gpus.listed[:1]), *(a.device.at("bdf") for a in hidden[:8])),
                    min((a.confidence for a in hidden), key=("possible", "likely", "certain").index),
                    remediation=_ask(),
                )
        elif grant is not None and granted_nodes(grant.entry) == 0 and tree is not None and tree.gpus():
            looked = True
            inside = platform.entry.container if platform is not None else None
            if inside is not None:
                yield Finding(
                    slug,
                    NOTE,
                    "host",
                    f"This {inside} container was given none of the host's {len(tree.gpus())} NVIDIA GPUs.",
                    (grant.entry.at("device_nodes"), tree.gpus()[0].at("bdf")),
                    CERTAIN,
                    remediation=_ask(),
                )
        variable = _variable(facts)
        if variable is not None:
            looked = True
            yield from _told(variable, gpus)
        elif grant is not None:
            looked = True
        if not looked:
            yield CannotTell(
                slug, "neither the driver's whole list beside the bus nor what this process was granted is known"
            )


def _ask() -> tuple[Step, ...]:
    return (
        Step(
            "Only if this job should see more: ask for them. Kubernetes: nvidia.com/gpu in the pod's limits; Slurm: "
            "--gpus=N; Docker:",
            "docker run --gpus all IMAGE",
            "reversible",
            "nvidia-smi -L",
        ),
    )


def _variable(facts: FactView) -> tuple[str, Evidence] | None:
    """CUDA_VISIBLE_DEVICES as set here; an empty value counts, since it hides all."""
    grant, settings = facts.get(Grant), facts.get(Settings)
    if grant is not None and grant.entry.cuda_visible is not None:
        return grant.entry.cuda_visible, grant.entry.at("cuda_visible")
    found = settings.get(_VARIABLE) if settings is not None else None
    return (found.value, found.at("value")) if found is not None else None


def _told(variable: tuple[str, Evidence], gpus: Gpus | None) -> Iterator[Finding | CannotTell]:
    value, evidence = variable
    step = Step(
        "Only if this job should see them: unset it, or name more",
        f"unset {_VARIABLE}",
        "reversible",
        "python3 -c 'import torch; print(torch.cuda.device_count())'",
    )
    if value.strip() in _NONE:
        yield Finding(
            GPU_NOT_VISIBLE.slug,
            NOTE,
            "host",
            f"{_VARIABLE} is set to {value.strip()!r}, which hides every GPU from CUDA programs started here.",
            (evidence,),
            remediation=(step,),
        )
        return
    if gpus is None or not gpus.complete or not gpus.listed:
        yield CannotTell(GPU_NOT_VISIBLE.slug, f"{_VARIABLE}={value}, but how many GPUs the driver lists is not known")
        return
    if "MIG-" in value:
        return  # instances, not whole GPUs: the MIG finding speaks of them
    chosen = _chosen(value, gpus)
    hidden = [g for g in gpus.listed if g not in chosen]
    if not hidden:
        return
    order = ""
    if len({g.device_id or g.name for g in gpus.listed}) > 1:
        order = " The GPUs are of different parts: CUDA counts the fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set, so the numbers may mean others."
    yield Finding(
        GPU_NOT_VISIBLE.slug,
        NOTE,
        "host",
        f"{_VARIABLE}={value} hides {', '.join(g.label for g in hidden)} from CUDA programs started here.{order}",
        (evidence,),
        CERTAIN if not order else "possible",
        remediation=(step,),
    )


def _chosen(value: str, gpus: Gpus) -> list[Gpu]:
    """CUDA reads from the left and stops at the first entry that names no device (CUDA C++ Programming Guide)."""
    out: list[Gpu] = []
    for word in (w.strip() for w in value.split(",")):
        if re.fullmatch(r"\d{1,4}", word):
            found = gpus.by_index(int(word))
        else:
            found = next((g for g in gpus.listed if g.uuid is not None and word and g.uuid.startswith(word)), None)
        if found is None:
            break
        out.append(found)
    return out
