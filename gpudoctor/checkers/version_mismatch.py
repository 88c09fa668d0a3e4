"""GD103 version-mismatch: driver libraries, kernel module and CUDA that cannot work together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpus
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Software
from gpudoctor.model import CERTAIN, ERROR, LIKELY, CannotTell, Cause, Evidence, Finding, Step, Threshold
from gpudoctor.pattern import lazy

VERSION_MISMATCH = Cause(
    "GD103",
    "version-mismatch",
    "Driver, kernel module and CUDA do not fit together",
    "error",
    "NVIDIA's libraries and its kernel module must be of exactly one version; after an update without a reboot the "
    "old module "
    "is still loaded and every new CUDA program fails. A program built for a newer major version of CUDA than the "
    "driver "
    "serves fails at its first call: within a major version newer minor ones work, across majors they do not, unless "
    "the "
    "cuda-compat package is in use (nvidia-smi then shows the newer version).",
    "nvidia-smi's message, /proc/driver/nvidia/version, the kernel log (API mismatch), the version PyTorch was built "
    "for",
    "Reboot, or reload the module; in a container take the libraries of the host's driver; install a driver (or a "
    "build of "
    "PyTorch) of the right CUDA major version.",
    (
        Threshold(
            "oldest driver for CUDA 11",
            450,
            "driver branch",
            "docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility, table 1",
            "2026-07",
        ),
        Threshold(
            "oldest driver for CUDA 12",
            525,
            "driver branch",
            "docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility, table 1",
            "2026-07",
        ),
        Threshold(
            "oldest driver for CUDA 13",
            580,
            "driver branch",
            "docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility, table 1",
            "2026-07",
        ),
    ),
)

_OLDEST = {int(t.name.rsplit(" ", 1)[1]): int(t.value) for t in VERSION_MISMATCH.thresholds}
_BUILT_FOR = lazy(r"\+cu(\d{2})\d\b")  # "2.11.0+cu130": the wheel's CUDA, two digits of major
_CONDITION = lazy(r"unsatisfied condition: ((?:cuda|driver|brand)[<>=]{1,2}[\w.]{1,20}),")
_MAJOR = lazy(r"^(\d+)\.")


class VersionMismatch(BaseChecker):
    """Compares what must be equal, and what must not be newer than the driver."""

    name: ClassVar[str] = "version-mismatch"
    causes = (VERSION_MISMATCH,)
    any_of = (Driver, KernelLog)
    wants = (Software, Gpus)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        driver, gpus = facts.get(Driver), facts.get(Gpus)
        entry = driver.entry if driver is not None else None
        # Where NVML answers in the module's version, a nvidia-smi that complains is another driver's, first on the PATH:
        # it is named among what could not be read, and the host is judged by NVML.
        fits = entry is not None and entry.version is not None and entry.version == entry.module_version
        if entry is not None and entry.failure is not None and not fits and "version mismatch" in entry.failure.lower():
            yield _modules_differ(entry.failure.strip().rstrip("."), (entry.at("failure"),), CERTAIN)
        elif entry is not None and entry.failure is not None and "unsatisfied condition: " in entry.failure:
            yield _wants_newer(entry)
        elif entry is not None and entry.version and entry.module_version and entry.version != entry.module_version:
            words = f"The driver's libraries are of version {entry.version}, the loaded kernel module is {entry.module_version}"
            answers = gpus is not None and bool(gpus.listed)
            yield _modules_differ(
                words, (entry.at("version"), entry.at("module_version")), LIKELY if answers else CERTAIN
            )
        else:
            yield from _from_log(facts)
        yield from _cuda(entry, facts.get(Software))
        if entry is None or (entry.version is None and entry.module_version is None and entry.failure is None):
            yield CannotTell(VERSION_MISMATCH.slug, "the driver's version is not known")


def _wants_newer(entry: DriverEntry) -> Finding:
    """The container toolkit did not start an image that asks for a newer driver (its NVIDIA_REQUIRE_CUDA)."""
    condition = _CONDITION.search(entry.failure or "")
    asked = condition[1] if condition is not None else "a newer driver"
    has = f"; driver {entry.version} is installed" if entry.version else ""
    return Finding(
        VERSION_MISMATCH.slug,
        ERROR,
        "host",
        f"The container was not started: its image asks for {asked}, which this driver does not serve{has}.",
        (entry.at("failure"),),
        CERTAIN,
        "the container does not start",
        (
            Step("See what the driver serves", "nvidia-smi | grep -o 'CUDA.*Version: [0-9.]*'"),
            Step("Take an image that was built for that CUDA or an older one", None, "reversible", "docker run --gpus all IMAGE nvidia-smi"),
            Step("Or update the driver on the host, and reboot", None, "disruptive", "nvidia-smi"),
        ),
    )


def _from_log(facts: FactView) -> Iterator[Finding | CannotTell]:
    log, gpus = facts.get(KernelLog), facts.get(Gpus)
    events = [e for e in log.of("version-mismatch") if not e.stale] if log is not None else []
    if not events:
        return
    if gpus is not None and gpus.listed:
        # The host's own libraries fit. One client's do not: a container image that brings its own libnvidia-*.
        yield CannotTell(
            VERSION_MISMATCH.slug,
            "the kernel log names a client of another version, while nvidia-smi fits: see which program it was",
        )
        return
    yield _modules_differ(
        "The kernel log says that a client and the nvidia module are of different versions",
        (events[-1].at("text"),),
        LIKELY,
    )


def _modules_differ(words: str, evidence: tuple[Evidence, ...], confidence: str) -> Finding:
    return Finding(
        VERSION_MISMATCH.slug,
        ERROR,
        "host",
        f"{words}: no CUDA program can start. Usually the driver was updated and the host not yet rebooted.",
        evidence,
        confidence,
        "no CUDA program can run",
        (
            Step(
                "See both versions",
                "cat /proc/driver/nvidia/version; modinfo -F version nvidia; dpkg -l 'libnvidia-compute*' "
                "2>/dev/null || rpm -qa 'nvidia*'",
            ),
            Step("Reboot, which loads the new module", "sudo reboot", "disruptive", "nvidia-smi"),
            Step(
                "Without a reboot: stop every program that holds a GPU, then reload the modules",
                "sudo systemctl stop nvidia-persistenced nvidia-fabricmanager; sudo rmmod nvidia_drm nvidia_modeset "
                "nvidia_uvm nvidia_peermem nvidia; sudo modprobe nvidia",
                "disruptive",
                "nvidia-smi",
            ),
            Step(
                "Only in a container: it must not bring libcuda or libnvidia-ml of its own; the container toolkit "
                "mounts those of the host",
                "ldconfig -p | grep -E 'libcuda.so|libnvidia-ml'",
            ),
        ),
    )


def _cuda(entry: DriverEntry | None, software: Software | None) -> Iterator[Finding]:
    """A major version of CUDA above the driver's. Lower or equal majors always work."""
    built = _built_for(software)
    if built is None or software is None or entry is None or not isinstance(software.origin, Evidence):
        return
    major, what = built
    served = _MAJOR.match(entry.cuda_version or "")
    branch = _MAJOR.match(entry.version or "")
    if served is not None:
        too_old, evidence = int(served[1]) < major, entry.at("cuda_version")
        has = f"the driver serves CUDA {entry.cuda_version}"
    elif branch is not None and major in _OLDEST and ".nv" not in what:
        # NVIDIA's own images (torch …nv25.09) bring cuda-compat, with which an older driver serves a newer CUDA.
        too_old, evidence = int(branch[1]) < _OLDEST[major], entry.at("version")
        has = f"driver {entry.version} is older than {_OLDEST[major]}, the first for CUDA {major}"
    else:
        return
    if too_old:
        yield Finding(
            VERSION_MISMATCH.slug,
            ERROR,
            "host",
            f"{what} needs CUDA {major}, but {has}: it fails at its first CUDA call.",
            (software.origin, evidence),
            LIKELY,
            "this PyTorch cannot use the GPUs",
            (
                Step(
                    f"Install a driver of branch {_OLDEST.get(major, '?')} or newer",
                    None,
                    "disruptive",
                    "nvidia-smi --version",
                ),
                Step(
                    "Or take a build of PyTorch for the driver's CUDA (CUDA stands for cu126, cu128, …)",
                    "pip install torch --index-url https://download.pytorch.org/whl/CUDA",
                    "reversible",
                    "python3 -c 'import torch; print(torch.cuda.is_available())'",
                ),
            ),
        )


def _built_for(software: Software | None) -> tuple[int, str] | None:
    """The CUDA major version PyTorch was built for, and how to call it."""
    if software is None:
        return None
    torch = software.versions.get("torch")
    wheel = _BUILT_FOR.search(torch or "")
    if wheel is not None:
        return int(wheel[1]), f"PyTorch {torch}"
    stated = _MAJOR.match(software.versions.get("cuda", ""))  # "CUDA used to build PyTorch"
    return (int(stated[1]), f"PyTorch{' ' + torch if torch else ''}") if stated is not None else None
