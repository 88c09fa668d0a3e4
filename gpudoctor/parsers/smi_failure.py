"""What nvidia-smi prints instead of an answer, and the container toolkit instead of a start, to Driver; a GPU named as lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.bdf import PATTERN, normalise
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section

FAILURE = lazy(
    r"NVIDIA-SMI has failed|(?:couldn't|could not) communicate with the NVIDIA driver|Failed to initialize NVML"
    r"|Driver/library version mismatch|NVIDIA-SMI couldn't find|Failed to properly shut down NVML"
    r"|nvidia-container-cli: (?:initialization error: (?:nvml error: (?:driver/library version mismatch|driver not loaded)|load library failed: libnvidia-ml)"
    r"|requirement error: unsatisfied condition: (?:cuda|driver|brand)[<>=])"
)
_ALONE = lazy(r"^\s*(?!docker: )[A-Za-z][^\[\]:]*(?:$|[:.])")
# One of them stands in each such line, and in no line of a sound GPU.
_WORDS = ("NVIDIA-SMI", "NVIDIA driver", "NVML", "Driver/library", "device handle", "infoROM", "nvidia-container-cli: ")
_NONE_FOUND = "no devices were found"
# `… for GPU 0000:04:00.0: Unknown Error`, `GPU3: 0000:5F:00.0: GPU is lost.  Reboot …`, `GPU2: Unknown Error`
_HANDLE = lazy(
    rf"Unable to determine the device handle for\s+(?:GPU|gpu)\s?(?:(?P<bdf>{PATTERN})(?![\w.])|(?P<index>\d{{1,3}})(?::\s+(?P<at>{PATTERN}))?(?=:\s)"
    r"|[\w*]+(?::[\w*]+){1,2}\.[\w*])"  # an address with a part made unreadable: `0000:XX:00.0`
    r":\s*(?P<words>\S.{0,200})"
)
_WRAPPED = lazy(r"\. Reboot(?: the(?: system)?)?$")  # the rest of that advice is on the next line
_INFOROM = lazy(rf"WARNING: infoROM is corrupted at gpu (?P<bdf>{PATTERN})", re.I)


def parse(section: Section) -> Iterator[Fact | Loss]:
    """Such lines on their own, in any text."""
    yield from failures(section)


def failures(section: Section) -> Iterator[Fact]:
    """Facts of the failure lines in one output; nothing where there are none."""
    silent: list[Line] = []
    said: list[str] = []
    lost: list[Gpu] = []
    for line in section:
        if not any(word in line.text for word in _WORDS):
            continue
        failure = FAILURE.search(line.text)
        if failure is not None:
            silent.append(line)
            # What a launcher or a log put before nvidia-smi's words is none of them.
            words = " ".join(line.text[0 if _ALONE.match(line.text) else failure.start() :].split())
            if words not in said:  # a bug report asks nvidia-smi ten times
                said.append(words)
        handle = _HANDLE.search(line.text)
        if handle is not None and not line.cut:
            words = " ".join(handle["words"].strip(" `\"*").split())  # of a quotation
            words = _WRAPPED.sub(".", words)
            lost.append(
                Gpu(
                    index=int(handle["index"]) if handle["index"] else None,
                    bdf=normalise(handle["bdf"] or handle["at"] or ""),
                    error=f"Unable to determine the device handle: {words}",
                    origin={"*": section.at(line)},
                )
            )
        inforom = _INFOROM.search(line.text)
        if inforom is not None:
            lost.append(Gpu(bdf=normalise(inforom["bdf"]), inforom_corrupted=True, origin={"*": section.at(line)}))
    if silent:
        yield Driver(DriverEntry(failure=" ".join(said)[:400], origin={"*": section.at(silent[0])}))
    if lost:
        yield Gpus(tuple(lost), complete=False)
    elif any(line.text.lstrip().lower().startswith(_NONE_FOUND) for line in section):
        yield Gpus((), attached=0)
