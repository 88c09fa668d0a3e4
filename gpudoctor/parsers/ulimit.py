"""`ulimit -a`, /proc/PID/limits and the number below an echoed `ulimit -l` to Limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Limits, LimitsEntry
from gpudoctor.model import Evidence
from gpudoctor.read.section import Section, Unparsable

_VALUE = r"(?P<value>unlimited|\d+)\s*$"
_ROWS = (
    # bash, then zsh (`-l: locked-in-memory size (kbytes)`) and dash (`locked memory (kbytes)`)
    ("memlock", re.compile(rf"^\s*max locked memory\s+\((?P<unit>kbytes), -l\)\s+{_VALUE}")),
    ("memlock", re.compile(rf"^\s*(?:-l: )?locked(?:-in-memory| memory)(?: size)?\s+\((?P<unit>kbytes|kb)\)\s+{_VALUE}", re.I)),
    ("stack", re.compile(rf"^\s*stack size\s+\((?P<unit>kbytes), -s\)\s+{_VALUE}")),
    ("memlock", re.compile(r"^\s*Max locked memory\s+(?P<value>unlimited|\d+)\s+\S+\s+(?P<unit>bytes)")),
    ("stack", re.compile(r"^\s*Max stack size\s+(?P<value>unlimited|\d+)\s+\S+\s+(?P<unit>bytes)")),
)
# Below the command alone stands a number without a name or a unit; bash, zsh, dash and ksh all count in 1024 bytes.
_COMMAND = re.compile(r"\bulimit -l['\"]?\s*$")
_BARE = re.compile(r"^\s*(?P<value>unlimited|\d{1,18})\s*$")


def parse(section: Section) -> Iterator[Fact | Loss]:
    values: dict[str, Any] = {}
    origin: dict[str, Evidence] = {}
    lost = False
    asked = False
    for line in section:
        bare = _BARE.match(line.text) if asked else None
        asked = asked and bare is not None or _COMMAND.search(line.text) is not None
        if bare is not None and line.cut and bare["value"].isdigit():
            yield Loss("the limit of memlock", f"{section.source}, line {line.number}: cut off")
            lost = True
        elif bare is not None:
            _lower(values, bare["value"])
            origin["memlock_unlimited"] = origin["memlock_bytes"] = section.at(line, f"ulimit -l: {bare['value']}")
        for what, pattern in _ROWS:
            row = pattern.match(line.text)
            if row is None:
                continue
            value = row["value"]
            if line.cut and value.isdigit() and line.text.endswith(value):
                yield Loss(f"the limit of {what}", f"{section.source}, line {line.number}: cut off")
                lost = True
                continue
            origin[f"{what}_unlimited"] = section.at(line)
            values[f"{what}_unlimited"] = value == "unlimited"
            if what == "memlock" and value.isdigit():
                values["memlock_bytes"] = int(value) * (1 if row["unit"] == "bytes" else 1024)
                origin["memlock_bytes"] = section.at(line)
    if not values and not lost and all(_COMMAND.search(line.text) for line in section):
        return  # asked, and the answer is not in the paste
    if not values and not lost:
        raise Unparsable(f"{section.source}: no limit that matters here")
    if values:
        yield Limits(LimitsEntry(**values, origin=origin))


def _lower(values: dict[str, Any], said: str) -> None:
    """Ranks that all print their limit: the lowest is where it fails."""
    if said == "unlimited":
        values.setdefault("memlock_unlimited", True)
        return
    values["memlock_unlimited"] = False
    values["memlock_bytes"] = min(int(said) * 1024, values.get("memlock_bytes", int(said) * 1024))
