"""The systemd units: what systemd says of them, and that the command in them writes what node_exporter reads."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpudoctor.collect.stage import STAGES
from tests.support import FIXTURES, ROOT, gpudoctor

UNITS = ROOT / "deploy" / "systemd"
SERVICE, TIMER = UNITS / "gpudoctor.service", UNITS / "gpudoctor.timer"
HOSTS = FIXTURES / "hosts"


def unit(path: Path) -> configparser.ConfigParser:
    # Not strict: DeviceAllow may stand there several times.
    read = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",), delimiters=("=",), strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(path.read_text())
    return read


def command() -> list[str]:
    return shlex.split(unit(SERVICE)["Service"]["ExecStart"])


def test_systemd_takes_them(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (apt-get install systemd): the units were not verified")
    program = tmp_path / "gpudoctor"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in (SERVICE, TIMER):
        (tmp_path / path.name).write_text(path.read_text().replace(command()[0], str(program)))
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    paths = [str(tmp_path / p.name) for p in (SERVICE, TIMER)]
    done = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, env=environment)
    ours = [line for line in done.stderr.splitlines() if "gpudoctor" in line]  # and not of a host's own broken units
    assert (done.returncode, ours) == (0, [])
    (tmp_path / SERVICE.name).write_text((tmp_path / SERVICE.name).read_text().replace("ProtectHome=yes", "ProtectHme=yes"))
    wrong = subprocess.run(["systemd-analyze", "verify", paths[0]], capture_output=True, text=True, env=environment)
    assert "ProtectHme" in wrong.stderr  # it would have said so


@pytest.mark.parametrize(("host", "status"), [("h100x8-nvswitch-healthy", 0), ("a100x4-sxm-gpu2-nvlinks-down", 1), ("h100x8-nvidia-smi-hangs", 3)])
def test_the_command_of_the_unit_writes_the_file(host: str, status: int, tmp_path: Path) -> None:
    service = unit(SERVICE)["Service"]
    words = command()[1:]
    places = [n + 1 for n, word in enumerate(words) if word == "-o"]
    for n in places:
        words[n] = str(tmp_path / Path(words[n]).name)
    name, _, stage = service["Environment"].partition("=")
    done = gpudoctor(*words, env={name: stage, "GPUDOCTOR_PROBE_DIR": str(HOSTS / host)})
    assert done.returncode == status, done.stderr
    samples = [s for f in text_string_to_metric_families((tmp_path / "gpudoctor.prom").read_text()) for s in f.samples]
    assert [s.value for s in samples if s.name == "gpudoctor_exit_status"] == [status]
    assert (name, stage) == ("GPUDOCTOR_STAGE", "node") and stage in STAGES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gpudoctor.prom", "report.txt"]
    assert "by a service of the node" in " ".join((tmp_path / "report.txt").read_text().split())
    assert done.stdout.count(b"\n") == 1  # what the journal gets


def test_what_depends_on_one_another_agrees() -> None:
    service, words = unit(SERVICE)["Service"], command()
    metrics, report = (os.path.dirname(words[n + 1]) for n, word in enumerate(words) if word == "-o")
    assert service["ReadWritePaths"] == metrics and f"/var/lib/{service['StateDirectory']}" == report
    assert int(service["TimeoutStartSec"]) > float(words[words.index("--timeout") + 1])
    assert "SuccessExitStatus" not in service  # a fault and a could-not-tell are failures to be seen
    page = (UNITS / "README.md").read_text()
    assert metrics in page and report in page and words[0].removesuffix("/bin/gpudoctor") in page
    assert f"after {service['TimeoutStartSec']} s" in page


def test_what_the_probes_need_is_not_taken_away() -> None:
    """Each of these hides something that a probe reads (the unit's own comment says what)."""
    service = unit(SERVICE)["Service"]
    for name in ("ProtectKernelLogs", "PrivateDevices", "PrivateNetwork", "ProcSubset", "ProtectProc", "User", "DynamicUser"):
        assert name not in service, name
    assert service["CapabilityBoundingSet"].split() == ["CAP_SYSLOG", "CAP_SYS_ADMIN"]
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "MemoryDenyWriteExecute", "RestrictNamespaces"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
