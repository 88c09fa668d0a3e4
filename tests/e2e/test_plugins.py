"""Checkers of other packages: found, listed, explained, run, and contained when they break."""

import json
import shutil
import textwrap

import pytest

from tests.support import ROOT, gpudoctor, report

MATRIX = b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-31\t0\nGPU1\tSYS\t X \t32-63\t1\n"


@pytest.fixture
def package(tmp_path):
    """Install a package beside gpudoctor the way pip leaves it: its files and a dist-info with entry points."""

    def install(name: str, target: str, source: str | None = None) -> dict[str, str]:
        module = target.split(":")[0]
        if source is None:
            shutil.copytree(ROOT / "tests" / "example_plugin" / module, tmp_path / module)
        else:
            (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[gpudoctor.checkers]\n{name} = {target}\n")
        return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}

    return install


def test_it_shows_up_everywhere(package):
    env = package("uptime", "gpudoctor_uptime:LongUptime")
    assert "long-uptime" in gpudoctor("checks", env=env).stdout.decode()
    explained = gpudoctor("explain", "UPT001", env=env).stdout.decode()
    assert "house rule of this example" in explained
    status, got = report("check", "--from", "-", stdin=MATRIX, env=env)
    mine = next(r for r in got["results"] if r["slug"] == "long-uptime")
    assert (status, mine["status"], mine["code"]) == (0, "skipped", "UPT001")
    assert "machine, container and kernel" in mine["reason"]


def test_it_finds(package):
    env = package("uptime", "gpudoctor_uptime:LongUptime")
    lines = json.dumps({"probe": "gpudoctor.system", "schema": 1, "machine": {"uptime": f"{400 * 86400}.00 1.00"}}) + "\n"
    _, got = report("check", "--from", "-", stdin=lines.encode(), env=env)
    mine = next(r for r in got["results"] if r["slug"] == "long-uptime")
    assert mine["status"] == "found" and "400 days" in mine["findings"][0]["message"]


HEAD = """
from gpudoctor.checkers.base import BaseChecker
from gpudoctor.model import *
from gpudoctor.facts.topology import Pairs
"""
BROKEN = {
    "raises while it is imported": "raise RuntimeError('boom at import')",
    "is no checker": "class C: pass",
    "takes a code that is taken": HEAD
    + "class C(BaseChecker):\n    causes = (Cause('GD201', 'mine', 't', 'note', 'r', 'e', 'm'),)\n    needs = (Pairs,)\n",
    "has no causes": HEAD + "class C(BaseChecker):\n    pass\n",
    "raises while it checks": HEAD
    + "class C(BaseChecker):\n    causes = (Cause('XX001', 'mine', 't', 'note', 'r', 'e', 'm'),)\n    needs = (Pairs,)\n"
    + "    def check(self, facts):\n        raise RuntimeError('boom')\n        yield\n",
    "exits the process": HEAD
    + "class C(BaseChecker):\n    causes = (Cause('XX001', 'mine', 't', 'note', 'r', 'e', 'm'),)\n    needs = (Pairs,)\n"
    + "    def check(self, facts):\n        raise SystemExit(0)\n        yield\n",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_one_is_named_and_stops_nobody(package, how):
    env = package("bad", "bad_plugin:C", BROKEN[how])
    status, got = report("check", "--from", "-", stdin=MATRIX, env=env)
    assert status == 3, "a checker broke: never a pass"
    broken = [r for r in got["results"] if r["status"] == "error"]
    assert len(broken) == 1 and broken[0]["reason"]
    assert next(r for r in got["results"] if r["slug"] == "path-sys")["status"] == "found"


def test_a_fault_beats_a_broken_plugin(package):
    env = package("bad", "bad_plugin:C", BROKEN["raises while it is imported"])
    text = b"GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000001)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n"
    status, _ = report("check", "--from", "-", stdin=text, env=env)
    assert status == 1
