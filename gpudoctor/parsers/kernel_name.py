"""The name of the kernel, wherever a text has it: WSL2's says what it is."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section

WSL = lazy(r"\b\d+\.\d+\.\d+(?:\.\d+)?-microsoft-standard\b")


def wsl_of(section: Section, line: Line) -> Platform | None:
    """The fact that this is WSL2, where the line names its kernel (microsoft/WSL2-Linux-Kernel, CONFIG_LOCALVERSION)."""
    found = WSL.search(line.text)
    return Platform(PlatformEntry(wsl=True, origin={"*": section.at(line, found[0])})) if found else None


def parse(section: Section) -> Iterator[Fact | Loss]:
    for line in section:
        platform = wsl_of(section, line)
        if platform is not None:
            yield platform
            return
