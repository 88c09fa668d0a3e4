"""systemd's words on the Fabric Manager."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.system import FabricManager
from gpudoctor.read.section import Unparsable
from tests.support import parse

RUNNING = "LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nExecMainStatus=0\n"


def entry(text: str) -> Any:
    (found,) = parse("fm-service", text)
    assert isinstance(found, FabricManager)
    return found.entry


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RUNNING, (True, True, "active (running)")),
        ("LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\n", (True, False, "failed")),
        ("LoadState=loaded\nActiveState=inactive\nSubState=dead\n", (True, False, "inactive (dead)")),
        ("LoadState=loaded\nActiveState=activating\nSubState=auto-restart\n", (True, False, "activating (auto-restart)")),
        ("LoadState=not-found\nActiveState=inactive\nSubState=dead\n", (False, None, "not-found")),
        ("LoadState=masked\nActiveState=inactive\nSubState=dead\n", (None, False, "masked")),
        ("ActiveState=active\n", (None, True, "active")),
    ],
)
def test_states(text: str, expected: tuple[Any, ...]) -> None:
    found = entry(text)
    assert (found.installed, found.active, found.state) == expected


def test_evidence_points_to_the_line() -> None:
    assert (entry(RUNNING).at("active").where, entry(RUNNING).at("active").value) == ("line 2", "ActiveState=active")


@pytest.mark.parametrize("text", ["", "System has not been booted with systemd as init system (PID 1).\n", "Result=success\n"])
def test_no_state_is_refused(text: str) -> None:
    with pytest.raises(Unparsable):
        parse("fm-service", text)


def test_cut_at_every_byte_no_value_differs() -> None:
    whole = entry(RUNNING)
    for end in range(len(RUNNING)):
        try:
            part = entry(RUNNING[:end])
        except Unparsable:
            continue
        for name in ("installed", "active"):
            assert getattr(part, name) in (None, getattr(whole, name)), (end, name)
        assert part.state in (None, whole.state, "active"), end
