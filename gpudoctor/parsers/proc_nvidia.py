"""/proc/driver/nvidia/version and gpus/*/information, as nvidia-bug-report shows them, to Driver and Gpus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.bdf import normalise
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.model import Evidence
from gpudoctor.read.section import Section, Unparsable

# `NVIDIA UNIX x86_64 Kernel Module  535.104.05  …`, `NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build`
_VERSION = re.compile(r"^\s*NVRM version:\s+NVIDIA UNIX (?P<open>Open )?[\w .-]{0,60}?\s{1,8}(?P<version>\d+\.\d+(?:\.\d+)?)\s")
_MODEL = re.compile(r"^\s*Model:\s+(\S.{1,78}?)\s*$")
_UUID = re.compile(r"^\s*GPU UUID:\s+(GPU-[0-9a-fA-F-]{36})\s*$")
_PLACE = re.compile(r"^\s*Bus Location:\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")


def parse(section: Section) -> Iterator[Fact | Loss]:
    values: dict[str, Any] = {}
    origin: dict[str, Evidence] = {}
    for line in section:
        version = _VERSION.match(line.text)
        if version:
            yield Driver(
                DriverEntry(
                    module_version=version["version"], open_module=bool(version["open"]), origin={"*": section.at(line)}
                )
            )
            return
        for field, pattern in (("name", _MODEL), ("uuid", _UUID), ("bdf", _PLACE)):
            found = pattern.match(line.text)
            if found and not (line.cut and field == "name"):
                values[field] = normalise(found[1]) if field == "bdf" else found[1]
                origin[field] = section.at(line)
    if values.get("bdf") is None:  # a model alone names no card
        raise Unparsable(f"{section.source}: no version and no address in what looks like /proc/driver/nvidia")
    yield Gpus((Gpu(**values, origin=origin),), complete=False)
