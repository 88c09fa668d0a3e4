"""The Fabric Manager in the words of systemctl, systemd and its own. All synthetic, in the shape of what people paste."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.system import FabricManager, FabricManagerEntry
from gpudoctor.parsers.fm_log import parse
from tests.support import recognise, report

HEAD = "● nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled)\n"
REFUSED = (
    "Nov 05 13:55:26 node07 nv-fabricmanager[104]: fabric manager NVIDIA GPU driver interface version 550.127.05 don't match with "
    "driver version 550.120. Please update with matching NVIDIA driver package.\n"
)
FAILED = "Nov 05 13:55:26 node07 systemd[1]: nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE\n"
STARTED = "Nov 05 14:55:26 node07 systemd[1]: Started NVIDIA fabric manager service.\n"
NOTHING = (
    "Nov 15 14:15:47 node07 nv-fabricmanager[41]: request to query NVSwitch device information from NVSwitch driver failed with "
    "error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n"
)


def entry(text: str) -> FabricManagerEntry | None:
    facts = [f for s in recognise(text) if s.kind == "fm-log" for f in parse(s)]
    assert all(isinstance(f, FabricManager) for f in facts) and len(facts) < 2
    return facts[0].entry if facts and isinstance(facts[0], FabricManager) else None


def gpus(name: str, count: int) -> str:
    return "".join(f"GPU {n}: NVIDIA {name} (UUID: GPU-0000000{n})\n" for n in range(count))


def said(text: str) -> tuple[int, list[tuple[str, str, str]]]:
    code, result = report("check", "--from", "-", stdin=text.encode())
    return code, [(d["cause"], d["severity"], d["confidence"]) for d in result["diagnoses"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{HEAD}     Active: active (running) since Mon 2026-03-02 10:00:00 UTC; 3s ago\n", (True, True, "active (running)")),
        (f"{HEAD}     Active: failed (Result: exit-code) since Mon 2026-03-02\n", (True, False, "failed")),
        (f"{HEAD}     Active: inactive (dead)\n{STARTED}", (True, False, "inactive (dead)")),
        ("Unit nvidia-fabricmanager.service could not be found.\n", (False, None, "not-found")),
        (FAILED + STARTED, (True, True, "active")),
        (STARTED + FAILED, (True, False, "failed")),
        (f"{STARTED}Nov 05 15:32:16 node07 systemd[1]: nvidia-fabricmanager.service: Deactivated successfully.\n", (True, None, None)),
    ],
)
def test_states(text: str, expected: tuple[Any, ...]) -> None:
    found = entry(text)
    assert found is not None and (found.installed, found.active, found.state) == expected


def test_another_unit_below_is_not_its_state() -> None:
    found = entry(f"{HEAD}○ other.service - Another\n     Active: inactive (dead)\n{STARTED}")
    assert found is not None and found.active is True


@pytest.mark.parametrize("text", ["Look at systemctl status nvidia-fabricmanager.\n", "The Fabric Manager programs the switches.\n"])
def test_who_only_speaks_of_it_says_nothing(text: str) -> None:
    assert recognise(text) == []


def test_of_another_version_it_refuses_by_itself() -> None:
    found = entry(REFUSED)
    assert found is not None and (found.version, found.refused_driver) == ("550.127.05", "550.120")
    assert said(REFUSED + FAILED) == (1, [("fabric", "error", "certain")])
    # Started since, or a host that has no use for it: no fault.
    assert said(REFUSED + FAILED + STARTED) == (0, [])
    assert said(REFUSED + FAILED + gpus("GeForce RTX 4090", 2)) == (0, [])
    assert entry(REFUSED[: REFUSED.index("20. Please")]) in (None, FabricManagerEntry())


def test_down_it_matters_where_switches_are() -> None:
    assert said(FAILED) == (1, [("fabric", "error", "possible")])
    assert said(FAILED + gpus("H100 80GB HBM3", 8)) == (1, [("fabric", "error", "likely")])
    assert said(FAILED + gpus("GeForce RTX 4090", 2)) == said(FAILED + gpus("H100 80GB HBM3", 1)) == (0, [])
    assert said(f"{HEAD}     Active: active (running)\n") == (0, [])


def test_without_a_switch_there_is_nothing_to_do() -> None:
    assert said(NOTHING + FAILED) == said(NOTHING) == (0, [("fabric", "note", "possible")])  # which GPUs there are is not known
    assert said(NOTHING + FAILED + gpus("A40", 2)) == said(NOTHING + FAILED + STARTED) == (0, [])
    assert said(NOTHING + FAILED + gpus("B200", 8)) == (1, [("fabric", "error", "likely")])


@pytest.mark.parametrize(
    "line",
    [
        "fabric manager config file item: FABRIC_NODE_CONFIG_FILE has an invalid value\n",
        "request to query NVSwitch device information from NVSwitch driver failed with error:Unknown Error [NV_ERR_GENERIC]\n",
        "detected number of NVSwitches don't match with any supported system topology\n",
        '"/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg" failed! Exit code: 1\n',
    ],
)
def test_its_own_words_for_a_start_that_failed(line: str) -> None:
    for stamp in ("", "10.1.2.3: ", "Nov 05 13:55:26 node07 nv-fabricmanager[104]: "):
        assert said(stamp + line) == (1, [("fabric", "error", "possible")]), stamp
    assert said(line + STARTED) == (0, [])
    assert said(NOTHING + line if "Exit code" in line else line + gpus("GeForce RTX 4090", 2))[0] == 0


def test_nothing_to_do_is_no_other_error_however_it_is_spaced() -> None:
    spaced = NOTHING.replace("error:WARNING", "error: WARNING")
    assert said(spaced) == said(NOTHING) == (0, [("fabric", "note", "possible")])


def test_a_setting_that_is_read_is_no_failure() -> None:
    assert said("fabric manager config file item: LOG_LEVEL has value 4\n") in ((0, []), (3, []))
    assert said('"/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg" started\n') == (3, [])
