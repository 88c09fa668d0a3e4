"""The Kubernetes manifests: valid, without privileges, and their commands do what their README says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudoctor.collect.stage import STAGES
from tests.support import FIXTURES, ROOT, gpudoctor

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
HOSTS = FIXTURES / "hosts"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def pods() -> list[tuple[str, Any]]:
    return [(p.name, d["spec"]["template"]["spec"]) for p in FILES for d in documents(p) if d["kind"] in ("Job", "DaemonSet")]


def containers(pod: Any) -> list[Any]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def of(path: str, name: str) -> Any:
    return next(c for p, pod in pods() if p == path for c in containers(pod) if c["name"] == name)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_the_api_takes_them(path: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="not validated: pip install 'gpudoctor[deploy]'")
    for document in documents(path):
        validator.validate(document, "1.37", strict=True)
        for wrong in ({**document, "sepc": {}}, {**document, "metadata": {"name": 7}}):
            with pytest.raises(validator.ValidationError):
                validator.validate(wrong, "1.37", strict=True)


def test_there_are_the_three_that_the_readme_names() -> None:
    assert [p.name for p in FILES] == ["daemonset.yaml", "job.yaml", "trainer.yaml"]
    assert len(pods()) == 3 and all(f"`{p.name}`" in (FOLDER / "README.md").read_text() for p in FILES)


@pytest.mark.parametrize(("name", "pod"), pods())
def test_no_privileges(name: str, pod: Any) -> None:
    """The rules of Kubernetes' restricted policy (kubernetes.io/docs/concepts/security/pod-security-standards), and more."""
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(pod)
    whole = pod["securityContext"]
    assert whole["runAsNonRoot"] is True and whole["runAsUser"] > 0 and whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all(set(v) <= {"name", "emptyDir", "configMap"} for v in pod["volumes"])
    for container in containers(pod):
        own = container["securityContext"]
        assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert {"cpu", "memory"} <= set(container["resources"]["limits"])
        assert "ports" not in container and not container["image"].endswith(":latest") and ":" in container["image"]
        mounted = {m["name"] for m in container["volumeMounts"]}
        assert "tmp" in mounted and mounted <= {v["name"] for v in pod["volumes"]}


def test_nobody_is_given_rights_in_the_cluster() -> None:
    kinds = {d["kind"] for p in FILES for d in documents(p)}
    assert kinds == {"Job", "DaemonSet", "ConfigMap", "Namespace"}


def test_the_init_container_looks_at_what_the_trainer_gets() -> None:
    first, trainer = of("trainer.yaml", "gpudoctor"), of("trainer.yaml", "trainer")
    gpus = [c["resources"]["limits"]["nvidia.com/gpu"] for c in (first, trainer)]
    assert gpus[0] == gpus[1] and first["envFrom"] == trainer["envFrom"]
    shared = [next(m["name"] for m in c["volumeMounts"] if m["mountPath"] == "/dev/shm") for c in (first, trainer)]
    volume = next(v for _, pod in pods() for v in pod["volumes"] if v["name"] == shared[0])
    assert shared[0] == shared[1] and volume["emptyDir"]["medium"] == "Memory"
    (job,) = (d for d in documents(FOLDER / "trainer.yaml") if d["kind"] == "Job")
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onExitCodes": {"containerName": "gpudoctor", "operator": "In", "values": [2]}}
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"  # podFailurePolicy asks for it


def test_the_daemon_takes_no_gpu_and_the_job_ends() -> None:
    assert "nvidia.com/gpu" not in of("daemonset.yaml", "gpudoctor")["resources"]["limits"]
    (job,) = documents(FOLDER / "job.yaml")
    words = of("job.yaml", "gpudoctor")["args"]
    assert job["spec"]["activeDeadlineSeconds"] > float(words[words.index("--timeout") + 1])
    (daemons,) = (d for d in documents(FOLDER / "daemonset.yaml") if d["kind"] == "DaemonSet")
    assert daemons["spec"]["selector"]["matchLabels"].items() <= daemons["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("name", ["job.yaml", "trainer.yaml"])
@pytest.mark.parametrize(("host", "status"), [("h100x8-nvswitch-healthy", 0), ("a100x4-sxm-gpu2-nvlinks-down", 1), ("h100x8-nvidia-smi-hangs", 3)])
def test_the_container_ends_with_the_verdict(name: str, host: str, status: int) -> None:
    container = of(name, "gpudoctor")
    environment = {e["name"]: e["value"] for e in container.get("env", ())}
    assert environment.get("GPUDOCTOR_STAGE", "init") in STAGES
    done = gpudoctor(*container["args"], env={**environment, "GPUDOCTOR_PROBE_DIR": str(HOSTS / host)})
    assert done.returncode == status, done.stderr
    assert (b"looked in an init" in b" ".join(done.stdout.split())) == (name == "trainer.yaml")


def daemon(tmp_path: Path, host: str) -> tuple[subprocess.Popen[bytes], list[str]]:
    """The script of the DaemonSet and the command of its probe, over a folder of ours."""
    container = of("daemonset.yaml", "gpudoctor")
    assert container["command"] == ["/bin/sh", "-c"]
    (tmp_path / "gpudoctor").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpudoctor "$@"\n')
    (tmp_path / "gpudoctor").chmod(0o755)
    environment = {
        **{e["name"]: e["value"] for e in container["env"]},
        "GPUDOCTOR_PROBE_DIR": str(HOSTS / host),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    script = container["args"][0].replace("/run/gpudoctor", str(tmp_path))
    running = subprocess.Popen(["/bin/sh", "-c", script], env=environment, stdout=subprocess.PIPE, start_new_session=True)
    probe = [w.replace("/run/gpudoctor", str(tmp_path)) for w in container["readinessProbe"]["exec"]["command"]]
    return running, probe


@pytest.mark.parametrize(("host", "ready"), [("h100x8-nvswitch-healthy", True), ("a100x4-sxm-gpu2-nvlinks-down", False)])
def test_the_daemon_is_ready_while_its_node_is_in_order(host: str, ready: bool, tmp_path: Path) -> None:
    running, probe = daemon(tmp_path, host)
    try:
        assert subprocess.run(probe, stderr=subprocess.DEVNULL).returncode != 0 or (tmp_path / "status").exists()
        until = time.monotonic() + 60
        while not (tmp_path / "status").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert (subprocess.run(probe).returncode == 0) == ready
        old = time.time() - 36 * 60
        os.utime(tmp_path / "status", (old, old))
        assert subprocess.run(probe).returncode != 0  # what is old says nothing of now
        running.terminate()
        assert running.wait(10) == 0
    finally:
        try:
            os.killpg(running.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        assert running.stdout is not None
        running.stdout.close()
