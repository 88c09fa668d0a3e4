"""A real host captured: judged as live, changed by nothing in a minute, and nothing of it that is private in the capture.

Needs an NVIDIA GPU; skipped elsewhere, and never part of the default count. `pytest -m gpu -s tests/gpu/test_real_capture.py`
prints a line of what was compared. GPUDOCTOR_PAUSE_S: seconds between the two captures (60).
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.gpu.test_real_faults import GPUS
from tests.support import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(GPUS < 1, reason="needs an NVIDIA GPU")]
PAUSE_S = float(os.environ.get("GPUDOCTOR_PAUSE_S", "60"))
LONG = 8  # shorter values (a `1`, a language) stand in every output
PLANTED = {"HF_TOKEN": "hf_PlantedTokenOfThisTest", "PLANTED_PROJECT": "planted-project-of-this-test"}
ENV = {**os.environ, **PLANTED, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def run(*words: str, env: dict[str, str] = ENV) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([sys.executable, "-m", "gpudoctor", *words], capture_output=True, env=env, timeout=300)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def report(*words: str, env: dict[str, str] = ENV) -> dict[str, object]:
    return dict(json.loads(run(*words, "--format", "json", env=env).stdout))


def told(*command: str) -> str:
    """What a command of the host prints; nothing where it is not there."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True).stdout.decode(errors="replace")


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """Two captures with a pause between them, and a live judgement beside the first."""
    folder = tmp_path_factory.mktemp("captures")
    first = run("capture", "--job", "-o", str(folder / "first.tar.gz"))
    assert b"Wrote" in first.stdout, first.stderr.decode()
    live = report("check", "--job")
    time.sleep(PAUSE_S)
    assert b"Wrote" in run("capture", "--job", "-o", str(folder / "second.tar.gz")).stdout
    return folder, live


def steady(got: dict[str, object]) -> dict[str, object]:
    """A report without what goes on between two looks: how busy a link was, counters, the words that quote them."""
    facts = json.loads(json.dumps(got["facts"]))
    for gpu in facts.get("gpus", []):
        gpu["pcie"].pop("speed_gts")
    for link in facts.get("nvlinks", []):
        link.pop("errors")
    for device in facts.get("pci", []):
        device.pop("speed_gts")
    results = [(r["slug"], r["status"], sorted((f["severity"], f["subject"]) for f in r["findings"])) for r in got["results"]]
    diagnoses = [(d["cause"], d["severity"], d["confidence"], d["subject"], d["explains"]) for d in got["diagnoses"]]
    return {"facts": facts, "results": results, "diagnoses": diagnoses, "missing": sorted(m["fact"] for m in got["missing"]), "verdict": got["verdict"]}


def clean_environment() -> dict[str, str]:
    """Another place: no GPU tools, no variables of this host."""
    return {"PATH": "/nonexistent", "PYTHONPATH": ENV["PYTHONPATH"], "LC_ALL": "C.UTF-8"}


def test_the_capture_is_judged_as_the_host_was(taken):
    folder, live = taken
    recorded = report("check", "--from", str(folder / "first.tar.gz"), env=clean_environment())
    a, b = steady(live), steady(recorded)
    for key in a:
        assert a[key] == b[key], key
    print(f"\ngpudoctor capture: {len(a['facts']['gpus'])} GPUs, {len(a['results'])} checks, {len(a['diagnoses'])} diagnoses and {len(a['missing'])} missing facts are those of the live look; verdict {a['verdict']}")


def test_nothing_changed_in_a_minute(taken):
    folder, _ = taken
    done = run("diff", str(folder / "first.tar.gz"), str(folder / "second.tar.gz"), "-v", env=clean_environment())
    verdict = next((x for x in done.stdout.decode().splitlines() if x.startswith(("SAME", "CHANGED", "UNKNOWN"))), "no verdict")
    print(f"\ngpudoctor diff after {PAUSE_S:g} s: exit {done.returncode}, {verdict}")
    assert done.returncode == 0, done.stdout.decode()


def private() -> dict[str, set[str]]:
    """kind -> values of this host that must not leave it."""
    details = told("nvidia-smi", "-q")
    names = {told("hostname").strip(), told("hostname", "-f").strip(), os.uname().nodename}
    users = {pwd.getpwuid(os.getuid()).pw_name, os.environ.get("USER", ""), os.environ.get("SUDO_USER", "")} - {"root"}
    addresses = {p.read_text().strip() for p in Path("/sys/class/net").glob("*/address")}
    guids = {p.read_text().strip() for p in Path("/sys/class/infiniband").glob("*/*_guid")}
    sys.path.insert(0, str(ROOT / "gpudoctor" / "probe"))
    from process import allowed  # the child probes' own list: by its path, as they read it

    everything = {**os.environ, **PLANTED}
    values = {v for n, v in everything.items() if not allowed(n) and len(v) >= LONG}
    # An image tells NCCL's version in several variables, of which one may be kept.
    values -= {v for n, v in everything.items() if allowed(n)}
    return {
        "host name": {n for n in names if len(n) > 3 and n.split(".")[0] != "localhost"},
        "user": {u for u in users if len(u) > 3},
        "UUID": set(re.findall(r"(?:GPU|MIG)-([0-9a-f-]{36})", told("nvidia-smi", "-L") + details)),
        "serial": {s for s in re.findall(r"Serial Number\s*: (\S+)", details) if len(s) >= 5 and s != "N/A"},
        "MAC": {a for a in addresses if a and set(a) - set("0:")},
        "GUID": {g for g in guids if g.strip("0:")},
        "IP": {a for a in told("hostname", "-I").split() if not a.startswith(("127.", "::1"))},
        # Directories of programs are everybody's, and evidence may name one (a library that was loaded).
        "variable": {v for v in values if not re.fullmatch(r"(?:/(?:usr|opt|bin|sbin|lib|etc|root|home|tmp)[\w./:+-]*)+", v)},
    }


def test_nothing_private_is_in_the_capture(taken):
    folder, _ = taken
    whole: dict[str, bytes] = {}
    for archive in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                whole[f"{archive.name}/{member.name}"] = content.read()
    kinds = private()
    assert kinds["UUID"] and kinds["variable"], "what is looked for must be known"
    leaks = []
    for kind, values in kinds.items():
        for value in values:
            raw = value.encode(errors="surrogateescape")
            for shape in {raw, raw.lower(), raw.upper(), raw.replace(b":", b""), base64.b64encode(raw)[:-4] or raw}:
                # As a word of its own: `worker` is no host name where it is a part of another word.
                pattern = re.compile(rb"(?<![A-Za-z0-9])" + re.escape(shape) + rb"(?![A-Za-z0-9])" if len(shape) < 12 else re.escape(shape))
                leaks += [f"{kind} in {name}" for name, content in whole.items() if pattern.search(content) or pattern.search(name.encode())]
    searched = {kind: len(values) for kind, values in kinds.items()}
    size = sum(map(len, whole.values())) >> 10
    print(f"\ngpudoctor capture: {size} KiB in {len(whole)} files searched for {searched}: {len(leaks)} found")
    assert sorted(set(leaks)) == []  # the kinds and files, never the values: this may be printed in a log
