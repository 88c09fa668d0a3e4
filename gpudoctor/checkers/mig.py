"""MIG mode: instances have no peer-to-peer access to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.model import NOTE, CannotTell, Cause, Finding, Step

MIG = Cause(
    "GD106",
    "mig",
    "MIG is on: a GPU is cut into instances",
    "note",
    "With MIG on, a process sees instances instead of the GPU. The driver grants no peer access between them, neither over "
    "NVLink nor over PCIe, and NCCL before 2.30.7 takes two instances of one GPU for the same device. MIG serves many small "
    "jobs; a job over several GPUs needs it off on each of them.",
    "nvidia-smi -q -x; nvidia-smi -L",
    "Switch MIG off on the GPUs of multi-GPU jobs, when nothing runs on them.",
)


class Mig(BaseChecker):
    """One note per GPU; they fold into one for the reader."""

    name: ClassVar[str] = "mig"
    needs = (Gpus,)
    causes = (MIG,)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        gpus = facts[Gpus]
        if gpus.gpus and all(g.mig_mode is None for g in gpus):
            yield CannotTell(MIG.slug, "the input does not say whether MIG is on; needed is nvidia-smi -q -x")
        for gpu in gpus:
            if gpu.mig_mode == "enabled":
                which = gpu.index if gpu.index is not None else gpu.option
                yield Finding(
                    MIG.slug,
                    NOTE,
                    gpu.subject,
                    f"{gpu.opening}: MIG is on, so its instances reach neither each other nor other GPUs directly.",
                    (gpu.at("mig_mode"),),
                    remediation=(
                        Step("See the instances", "nvidia-smi -L"),
                        Step(
                            "If this GPU is meant for multi-GPU jobs, switch MIG off when nothing runs on it; its instances are lost",
                            f"sudo nvidia-smi -i {which} -mig 0",
                            "disruptive",
                            f"nvidia-smi -i {which} --query-gpu=mig.mode.current --format=csv",
                        ),
                    ),
                )
