"""What is said of a switch of peer to peer that NCCL printed: under which names to look for it, and where the bytes go. Synthetic."""

from __future__ import annotations

import pytest

from gpudoctor.model import Finding
from tests.unit.test_homes import log, report


def said(version: str, name: str, value: str, via: str) -> Finding:
    text = log({"vm": via}, env={name: value}).replace("2.28.9", version).replace(f" to {value}.", f" to {value}")
    return next(d.finding for d in report(text).diagnoses if d.finding.slug == "p2p-disabled-env")


@pytest.mark.parametrize(
    ("version", "name", "value", "commands"),
    [
        ("2.18.3", "NCCL_P2P_LEVEL", "LOC", ["env | grep -E 'NCCL_P2P_(LEVEL|DISABLE)'", "unset NCCL_P2P_LEVEL NCCL_P2P_DISABLE"]),
        ("2.28.9", "NCCL_P2P_LEVEL", "LOC", ["env | grep NCCL_P2P_LEVEL", "unset NCCL_P2P_LEVEL"]),
        ("2.18.3", "NCCL_P2P_DISABLE", "1", ["env | grep NCCL_P2P_DISABLE", "unset NCCL_P2P_DISABLE"]),
    ],
)
def test_an_old_release_shows_the_switch_as_a_level(version: str, name: str, value: str, commands: list[str]) -> None:
    steps = [step.command or "" for step in said(version, name, value, "SHM/direct/direct").remediation]
    assert steps[0].startswith(commands[0]) and steps[1] == commands[1]


@pytest.mark.parametrize(("via", "words"), [("SHM/direct/direct", "NCCL goes through host memory."), ("NET/Socket/0", "NCCL goes over NET/Socket/0.")])
def test_where_the_bytes_go(via: str, words: str) -> None:
    assert words in said("2.28.9", "NCCL_P2P_DISABLE", "1", via).message
