"""`systemctl status nvidia-fabricmanager` and what the Fabric Manager and systemd say of it in the journal, to FabricManager.

The last word counts, and the status that systemctl prints more than the lines of the journal below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import FabricManager, FabricManagerEntry
from gpudoctor.model import Evidence
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Section

_UNIT = lazy(r"nvidia-fabricmanager\.service\s+-\s")
_OTHER_UNIT = lazy(r"(?!nvidia-fabricmanager)\b[\w@-]+\.(?:service|timer|socket)\s+-\s")
_ACTIVE = lazy(r"^\W*Active: (?P<state>active|inactive|failed|activating|deactivating|reloading)(?: \((?P<sub>[^()]{1,60})\))?(?=(.?))")
# `fabric manager NVIDIA GPU driver interface version 530.30.02 don't match with driver version 530.41.03. Please update …`
_REFUSED = lazy(
    r"driver interface version (?P<own>\d{3}(?:\.\d+)+) do(?:n|esn).?t match with driver version (?P<driver>\d{3}(?:\.\d+)+)\.?\s+Please"
)
_NO_SWITCH = lazy(r"NV_WARN_NOTHING_TO_DO")
_ABSENT = lazy(r"Unit nvidia-fabricmanager(?:\.service)? could not be found")
_ENDED = (
    ("failed", lazy(
        r"Failed to start (?:nvidia-fabricmanager|NVIDIA [Ff]abric)|Job for nvidia-fabricmanager\.service failed"
        r"|nvidia-fabricmanager\.service: (?:Failed with result|(?:Main|Control) process exited, code=(?!exited, status=0))"
        # Its own words: a setting it cannot read, switches it cannot ask, and what its starting script sees.
        r"|fabric manager config file item: \w{2,60} has an invalid value|query NVSwitch device information .{0,80}failed with error:(?!\s*(?:WARNING Nothing|NV_WARN|$))"
        r"|detected number of NVSwitches do(?:n|esn).?t match with any supported system topology"
        r"|nv-fabricmanager -c \S{1,200} failed! Exit code: [1-9]"
    )),
    ("stopped", lazy(r"Stopped (?:nvidia-fabricmanager|NVIDIA [Ff]abric)|nvidia-fabricmanager\.service: (?:Deactivated|Succeeded)")),
    ("active", lazy(r"Started (?:nvidia-fabricmanager|NVIDIA [Ff]abric)")),
)  # fmt: skip


def parse(section: Section) -> Iterator[Fact | Loss]:
    values: dict[str, Any] = {}
    origin: dict[str, Evidence] = {}

    def take(at: Evidence, **more: Any) -> None:
        values.update(more)
        origin.update(dict.fromkeys(more, at))

    shown = False  # below the head of this unit
    settled = False  # systemctl's own word was there
    for line in section:
        text, at = line.text, section.at(line)
        if _UNIT.search(text):
            shown = True
            continue
        if _OTHER_UNIT.search(text):
            shown = False
        state = _ACTIVE.match(text) if shown else None
        if state is not None:
            if not line.cut or state[3]:
                sub = f" ({state['sub']})" if state["sub"] and ":" not in state["sub"] else ""
                take(at, installed=True, active=state["state"] in ("active", "reloading"), state=state["state"] + sub)
                settled = True
            shown = False
            continue
        refused = _REFUSED.search(text)
        if refused is not None:
            take(at, installed=True, version=refused["own"], refused_driver=refused["driver"])
        if _NO_SWITCH.search(text):
            take(at, installed=True, found_no_switch=True)
        if _ABSENT.search(text):
            take(at, installed=False, state="not-found")
        for word, pattern in () if settled else _ENDED:
            if pattern.search(text):
                take(at, installed=True)
                if word == "stopped":  # by hand, and a start may follow below the excerpt
                    _forget(values, "active", "state")
                else:
                    take(at, active=word == "active", state=word)
                if word == "active":  # what it complained of before is mended
                    _forget(values, "refused_driver", "found_no_switch")
                break
    if values:
        yield FabricManager(FabricManagerEntry(**values, origin={"*": next(iter(origin.values())), **origin}))


def _forget(values: dict[str, Any], *fields: str) -> None:
    for field in fields:
        values.pop(field, None)
