"""deploy/slurm over recorded hosts, without Slurm: what the prolog and the health check do on each status of the gate.

scontrol and logger are stand-ins that write down how they were called; gpudoctor is the real one unless a test says so. The
environment is the bare one that slurmd gives its programs. `make test-slurm` runs the same scripts under a real Slurm.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import FIXTURES, ROOT

SCRIPTS = ROOT / "deploy" / "slurm"
WELL, LINK_DOWN, HANGS = "h100x8-nvswitch-healthy", "h100x8-one-nvlink-down", "h100x8-nvidia-smi-hangs"  # GPU5 has it down
IDLE = "NodeName=n1 Arch=x86_64\n   State=IDLE ThreadsPerCore=1 Weight=1\n"


class Node:
    """A node with the scripts set up, and what they did to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.settings: dict[str, str] = {"STATE": str(folder / "state"), "ALARM": str(self.bin / "ring")}
        self.is_now("IDLE")
        at = shlex.quote(str(folder))
        self.program("scontrol", f'[ "$1" = show ] && exec cat {at}/node\nprintf "%s|" "$@" >>{at}/scontrol\necho >>{at}/scontrol')
        self.program("logger", f'printf "%s|" "$@" >>{at}/log\necho >>{at}/log')
        self.program("ring", f'echo "$1" >>{at}/rung')
        self.program("gpudoctor", f'PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m gpudoctor "$@"')

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def is_now(self, state: str, reason: str | None = None) -> None:
        text = IDLE.replace("IDLE", state)
        (self.folder / "node").write_text(text + (f"   Reason={reason} [root@2026-11-29T10:00:00]\n" if reason else ""))

    def host(self, name: str) -> None:
        self.settings["RECORDED"] = str(FIXTURES / "hosts" / name)

    def run(self, script: str, *, scripts: Path = SCRIPTS, conf: str | None = None, **env: str) -> int:
        lines = [f"{k}={shlex.quote(v)}" for k, v in self.settings.items()]
        text = "\n".join([f"PATH={shlex.quote(str(self.bin))}:$PATH", *lines, conf or "", ""])
        (self.folder / "gpudoctor.conf").write_text(text)
        env = {"SLURMD_NODENAME": "n1", "GPUDOCTOR_CONF": str(self.folder / "gpudoctor.conf"), **env}
        done = subprocess.run([str(scripts / script)], env=env, capture_output=True, timeout=50, cwd="/")
        assert (done.stdout, done.stderr) == (b"", b""), done
        left = [p.name for p in (self.folder / "state").glob("*-n1-*")] if (self.folder / "state").is_dir() else []
        assert left == [], "files of the run were left"
        return done.returncode

    def prolog(self, gpus: str = "4,5", **more: Any) -> int:
        job = {"SLURM_JOB_ID": "17", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}
        status = self.run("prolog.sh", **{**job, **({"SLURM_JOB_GPUS": gpus} if gpus else {}), **more})
        assert not (self.folder / "scontrol").exists(), "a prolog must not call Slurm"
        return status

    def health(self, **more: Any) -> list[str]:
        """What scontrol was told to change."""
        (self.folder / "scontrol").unlink(missing_ok=True)
        assert self.run("healthcheck.sh", **more) == 0
        return self.told("scontrol")

    def told(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def state(self, name: str) -> Path:
        return self.folder / "state" / name


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.host(WELL)
    return made


def fake_gate(node: Node, status: int, line: str, err: str = "") -> None:
    (node.folder / "line").write_text(line + "\n")
    (node.folder / "err").write_text(err)
    at = shlex.quote(str(node.folder))
    node.program("gpudoctor", f"env >{at}/env; echo x >>{at}/runs; cat {at}/line; cat {at}/err >&2; exit {status}")


def test_the_example_names_every_setting_with_its_default() -> None:
    shown = dict(re.findall(r"^#([A-Z_]+)=(.*)$", (SCRIPTS / "gpudoctor.conf").read_text(), re.M))
    script = 'here=/nonexistent script=t; . "$0"; mkdir() { false; }; settings; set'
    done = subprocess.run(["sh", "-c", script, str(SCRIPTS / "judge.sh")], env={"SLURMD_NODENAME": "n1"}, capture_output=True, text=True)
    real = {k: v.strip("'") for k, v in re.findall(r"^([A-Z_]+)=(.*)$", done.stdout, re.M)}
    inside = re.findall(r"\b([A-Z_]+)=\S", (SCRIPTS / "judge.sh").read_text().partition("settings() {")[2].partition("NODE=")[0])
    assert set(inside) == set(shown) and {k: real[k] for k in shown} == shown


# --- prolog


def test_a_healthy_node_takes_the_job_in_silence(node: Node) -> None:
    assert node.prolog() == 0
    assert node.told("log") == [] and list((node.folder / "state").iterdir()) == []


def test_a_fault_of_the_jobs_gpus_refuses_it_and_says_why(node: Node) -> None:
    node.host(LINK_DOWN)
    assert node.prolog("0,1") == 0, "GPU5 is not this job's"
    assert node.prolog("4,5") == 1
    (said,) = node.told("log")
    assert "|daemon.err|" in said and "job 17: gpudoctor: FAIL node07 nvlink-down gpu:0000:8b:00.0" in said
    report = json.loads(node.state("prolog-n1.json").read_text())
    assert [m["fact"] for m in report["missing"] if m["fact"].startswith("the job's environment")], "not seen by a prolog"
    assert "SLURM_SCRIPT_CONTEXT=prolog_slurmd" in node.state("prolog-n1.txt").read_text()
    assert node.state("held-n1").read_text().startswith("gpudoctor: FAIL node07 nvlink-down")


def test_a_job_without_gpus_is_nobodys_business_unless_so_configured(node: Node) -> None:
    node.host(LINK_DOWN)
    assert node.prolog("") == 0 and node.told("log") == []
    node.settings["WITHOUT_GPUS"] = "judge"  # a cluster whose slurm.conf names no GPUs
    assert node.prolog("") == 1


@pytest.mark.parametrize(
    ("own", "of_policy", "status"),
    [("", None, 1), ("hold", "let-through", 1), ("let-through", "hold", 0), ("", "let-through", 0), ("", "hold", 1)],
)
def test_unknown_does_what_settings_or_policy_say(node: Node, own: str, of_policy: str | None, status: int) -> None:
    node.host(HANGS)
    node.settings |= {"ON_UNKNOWN": own, "RETRY_AFTER": "0"}
    if of_policy is not None:
        (node.folder / "p.toml").write_text(f'name = \'a, "on_unknown": "x" b\'\non_unknown = "{of_policy}"\n')
        node.settings["POLICY"] = str(node.folder / "p.toml")
    assert node.prolog() == status
    (said,) = node.told("log")
    assert "gpudoctor: UNKNOWN node07 nvidia-smi -q -x: no answer in 30 s" in said
    assert ("starts unjudged" in said) is (status == 0) and node.state("held-n1").exists() is (status == 1)


def test_unknown_is_asked_once_more(node: Node) -> None:
    node.settings["RETRY_AFTER"] = "0"
    at = shlex.quote(str(node.folder))
    node.program("gpudoctor", f'[ -e {at}/again ] && {{ echo "gpudoctor: PASS n1"; exit; }}; >{at}/again; echo "gpudoctor: UNKNOWN n1 x"; exit 3')
    assert node.prolog() == 0 and node.told("log") == []
    fake_gate(node, 3, "gpudoctor: UNKNOWN n1 x")
    assert node.prolog() == 1 and len(node.told("runs")) == 2


def test_a_policy_with_mistakes_alarms_and_drains_nothing(node: Node) -> None:
    node.host(LINK_DOWN)
    (node.folder / "p.toml").write_text("[gpus]\ncout = 8\n")
    node.settings["POLICY"] = str(node.folder / "p.toml")
    assert node.prolog() == 0 and node.prolog() == 0
    assert len(node.told("log")) == 2 and all("|daemon.alert|" in said and "starts unjudged" in said for said in node.told("log"))
    (rung,) = node.told("rung")  # once in LOG_EVERY
    assert "unknown key, did you mean" in rung and "job 17" in rung
    assert node.health() == [] and len(node.told("rung")) == 1


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("ON_UNKNOWN=maybe", "ON_UNKNOWN=maybe, but may be one of"),
        ("PROLOG_SECONDS=5m", "PROLOG_SECONDS=5m, but must be a whole number"),
        ("PROLOG_SECONDS=19", "PROLOG_SECONDS=19, but must be a whole number from 20"),
        ("LOG_EVERY=hourly", "LOG_EVERY=hourly"),
        ("if then", "the shell cannot read it"),
        ("POLICY=$OF_NOBODY", "the shell cannot read it"),
        ("exit 0", "the shell cannot read it"),  # and not: nothing was asked, so the job starts in silence
        ("POLICY = h200-sxm-x8", "the shell cannot read it"),
        ("POLICY= /etc/policy.toml", "the shell cannot read it"),
        ('POLICY="h200-sxm-x8', "the shell cannot read it"),
        ("exec 2>/dev/null; unset POLICY", "ended early"),
        ("RETRY_AFTER=08", "RETRY_AFTER=08, but must be a whole number"),
        ("STATE=state", "STATE=state: cannot write there"),
        ("STATE=/dev/null/x", "STATE=/dev/null/x: cannot write there"),
        ('mkdir -p "$STATE"; chmod o+w "$STATE"', "anybody can write there"),
        ("GPUDOCTOR=/nonexistent/gpudoctor", "ended with status 127"),
    ],
)
@pytest.mark.parametrize("shell", ["sh", "bash --posix"])
def test_a_mistake_in_the_settings_drains_nothing(node: Node, tmp_path: Path, conf: str, said: str, shell: str) -> None:
    if not shutil.which(shell.split()[0]):
        pytest.skip(f"no {shell} here")
    copy = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, copy, ignore=shutil.ignore_patterns("test*"))
    for script in ("prolog.sh", "healthcheck.sh"):
        text = (copy / script).read_text()
        (copy / script).write_text(text.replace("#!/bin/sh", f"#!/usr/bin/env -S {shell}", 1))
    node.host(LINK_DOWN)
    readable = said != "the shell cannot read it"
    path = {} if readable else {"PATH": f"{node.bin}:/usr/bin:/bin"}
    if not readable:  # then the stand-ins are not on the path either
        (copy / "judge.sh").write_text((copy / "judge.sh").read_text().replace("PATH=/usr/local", f"PATH={node.bin}:/usr/local", 1))
    assert node.prolog(scripts=copy, conf=conf, **{**path, "PATH": "/usr/bin:/bin"}) == 0
    assert node.health(scripts=copy, conf=conf, PATH="/usr/bin:/bin") == []
    assert len(node.told("log")) == 2 and all(said in line and "|daemon.alert|" in line for line in node.told("log"))


def test_a_gpudoctor_that_crashes_is_no_fault_of_the_node(node: Node) -> None:
    fake_gate(node, 1, "", "Traceback (most recent call last):\nImportError: click")
    assert node.prolog() == 0 and node.health() == []
    assert all("ended with status 1: Traceback" in said and "|daemon.alert|" in said for said in node.told("log"))
    fake_gate(node, 0, "")
    assert node.prolog() == 0 and "ended with status 0" in node.told("log")[-1], "a status without a line is no pass either"


def test_without_its_other_half_it_lets_the_job_through(node: Node, tmp_path: Path) -> None:
    for script in ("prolog.sh", "healthcheck.sh"):
        shutil.copy(SCRIPTS / script, tmp_path)
        assert node.run(script, scripts=tmp_path, SLURM_JOB_GPUS="0") == 0


def test_what_slurmd_was_started_with_is_not_judged(node: Node) -> None:
    fake_gate(node, 0, "gpudoctor: PASS n1")
    assert node.prolog(NCCL_P2P_DISABLE="1", TORCH_NCCL_X="1", CUDA_VISIBLE_DEVICES="0") == 0
    env = (node.folder / "env").read_text()
    assert not re.search(r"^(\w*NCCL_|CUDA_)", env, re.M) and "\nSLURM_JOB_GPUS=4,5\n" in f"\n{env}"


# --- health check


def test_a_sick_node_is_drained_with_gpudoctors_reason(node: Node) -> None:
    node.host(LINK_DOWN)
    (told,) = node.health()
    assert told.startswith("update|nodename=n1|state=drain|reason=gpudoctor: node07 nvlink-down gpu:0000:8b:00.0: GPU5 ")
    assert "looked by a service of the node" in node.state("health-n1.txt").read_text().replace("\n  ", " ")
    node.is_now("MIXED+DRAIN", "gpudoctor: node07 nvlink-down gpu:0000:8b:00.0")
    assert node.health() == [], "drained already"


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "MIXED+DRAIN", "DOWN", "DOWN*+DRAIN"])
@pytest.mark.parametrize("reason", ["fan replaced by ops", "Prolog error", "not gpudoctor: x", "site Prolog error"])
def test_anothers_reason_is_left_alone(node: Node, state: str, reason: str) -> None:
    node.settings |= {"RESUME": "yes", "RESUME_AFTER": "1"}
    node.is_now(state, reason)
    if reason != "Prolog error":  # that of another prolog, where ours left no mark
        node.state("held-n1").parent.mkdir()
        node.state("held-n1").write_text("gpudoctor: FAIL n1 xid gpu:0\n")
    fake_gate(node, 1, "gpudoctor: FAIL n1 xid gpu:0")
    assert node.health() == []
    fake_gate(node, 0, "gpudoctor: PASS n1")
    assert node.health() == []


def test_the_reason_is_only_words(node: Node) -> None:
    fake_gate(node, 1, "gpudoctor: FAIL xid gpu:0: \"$(reboot)`x`'; \x1b[31m \u202e| state=resume \\ " + "long " * 60)
    (told,) = node.health()
    reason = told.split("|")[3]
    assert re.fullmatch(r"reason=gpudoctor: xid gpu:0: \(reboot\)x, 31m state=resume long [long ]*\.\.\.", reason), reason
    assert len(reason) <= len("reason=") + 160


def test_unknown_drains_only_where_configured_and_only_twice_in_a_row(node: Node) -> None:
    node.host(HANGS)
    assert node.health() == [] and node.health() == []
    node.settings["DRAIN_ON_UNKNOWN"] = "yes"
    node.host(WELL)
    assert node.health() == []
    node.host(HANGS)
    assert node.health() == []
    (told,) = node.health()
    assert "state=drain|reason=gpudoctor: UNKNOWN node07 nvidia-smi -q -x" in told


def test_what_does_not_answer_is_stopped(node: Node) -> None:
    node.program("gpudoctor", "trap '' TERM; while :; do sleep 30; done")
    node.settings["HEALTH_SECONDS"] = "1"
    assert node.health() == []
    (said,) = node.told("log")
    assert "gpudoctor: UNKNOWN no answer in 3 s, stopped" in said


def test_its_own_drain_is_undone_where_configured(node: Node) -> None:
    fake_gate(node, 0, "gpudoctor: PASS n1")
    node.is_now("IDLE+DRAIN", "gpudoctor: node07 nvlink-down gpu:5")
    assert node.health() == [] and node.health() == [] and node.health() == []
    node.settings |= {"RESUME": "yes", "RESUME_AFTER": "3"}
    fake_gate(node, 1, "gpudoctor: FAIL n1 nvlink-down gpu:5")
    assert node.health() == []
    fake_gate(node, 0, "gpudoctor: PASS n1")
    assert node.health() == [] and node.health() == []
    assert node.health() == ["update|nodename=n1|state=undrain|"]
    node.is_now("DOWN+DRAIN", "gpudoctor: node07 nvlink-down gpu:5")
    assert node.health() == [], "a node that is down is not gpudoctor's to bring back"


def test_a_prolog_error_of_ours_gets_its_reason(node: Node) -> None:
    node.host(LINK_DOWN)
    assert node.prolog() == 1
    node.is_now("IDLE+DRAIN", "Prolog error")
    assert node.health()[0].startswith("update|nodename=n1|reason=gpudoctor: node07 nvlink-down gpu:0000:8b:00.0")
    assert node.health() == [], "once: the next may be another prolog's"


def test_the_same_is_logged_once(node: Node) -> None:
    node.is_now("IDLE+DRAIN", "gpudoctor: x")
    fake_gate(node, 1, "gpudoctor: FAIL n1 xid gpu:0")
    for _ in range(3):
        node.health()
    assert len(node.told("log")) == 1
    fake_gate(node, 3, "gpudoctor: UNKNOWN n1 y")
    node.health()
    fake_gate(node, 1, "gpudoctor: FAIL n1 xid gpu:0")
    node.health()
    assert [("FAIL" in said, "UNKNOWN" in said) for said in node.told("log")] == [(True, False), (False, True), (True, False)]


def test_a_controller_that_does_not_answer_changes_nothing(node: Node) -> None:
    node.program("scontrol", "echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1")
    fake_gate(node, 1, "gpudoctor: FAIL n1 xid gpu:0")
    assert node.health() == [] and "scontrol does not tell the state of n1; gpudoctor found: gpudoctor: FAIL" in node.told("log")[0]
