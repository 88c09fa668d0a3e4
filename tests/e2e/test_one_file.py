"""gpudoctor.pyz: the program out of one file, which no other program can read and Python can only import from.

Built here without its packages (they are this environment's), so that no index is needed; `make pyz` puts them in.
"""

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.golden import names
from tests.support import FIXTURES, ROOT
from tools.pyz import pack


def build(folder: Path, output: Path) -> Path:
    """The package as a wheel would lay it out, and packed."""
    info = folder / "gpudoctor-0.1.0.dist-info"
    info.mkdir(parents=True)
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    points = config["options.entry_points"]["gpudoctor.checkers"]
    (info / "entry_points.txt").write_text(f"[gpudoctor.checkers]{points}\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpudoctor\nVersion: 0.1.0\n")
    shutil.copytree(ROOT / "gpudoctor", folder / "gpudoctor", ignore=shutil.ignore_patterns("__pycache__"))
    pack(folder, output, (sys.executable,))
    return output


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one file")
    return build(folder / "tree", folder / "gpudoctor.pyz")


def run(archive: Path, *words: str, python: tuple[str, ...] = (sys.executable,), **options: Any) -> Any:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "GPUDOCTOR_", "CUDA_", "PYTHON"))}
    return subprocess.run([*python, str(archive), *words], capture_output=True, env=env, timeout=120, **options)


def test_two_builds_have_the_same_bytes(archive, tmp_path):
    assert build(tmp_path / "tree", tmp_path / "again.pyz").read_bytes() == archive.read_bytes()


def test_it_is_the_archive_that_runs(archive, tmp_path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import gpudoctor, gpudoctor.shipped as s; print(gpudoctor.__file__, s.ARCHIVE)"
    done = subprocess.run([sys.executable, "-c", code, archive], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.rstrip("\n") == f"{archive}/gpudoctor/__init__.py {archive}"


@pytest.mark.parametrize("name", names()[::3])
def test_a_recorded_host_is_judged_alike(archive, name, tmp_path):
    done = run(archive, "check", "--from", str(FIXTURES / "hosts" / name), "--format", "json", cwd=tmp_path)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    report = json.loads(done.stdout)
    report["tool"]["version"] = "VERSION"
    report["source"] = {"kind": "recorded", "paths": [name]}
    assert report == json.loads((FIXTURES / "hosts" / name / "golden" / "report.json").read_text())
    assert done.returncode == report["exit_code"]
    assert os.listdir(tmp_path) == []


def test_probes_answer_from_inside(archive, tmp_path):
    """All of the child programs start, by a relative path too, and the snapshot holds what they said."""
    (tmp_path / "gpudoctor.pyz").write_bytes(archive.read_bytes())
    done = run(Path("gpudoctor.pyz"), "capture", "-o", "host", cwd=tmp_path)
    assert done.returncode in (0, 3), done.stderr.decode()
    probes = {p["id"]: p for p in json.loads((tmp_path / "host" / "manifest.json").read_text())["probes"]}
    system = json.loads((tmp_path / "host" / probes["system"]["file"]).read_text())
    assert system["probe"] == "gpudoctor.system" and system["failed"] == {}
    for name in ("nvml", "pci"):  # they may have nothing to read here, and say so in their own words
        assert probes[name]["status"] in ("ok", "exit")
        error = probes[name]["err"]
        assert error is None or "Error" not in (tmp_path / "host" / error).read_text()


def test_tables_and_policies_are_found(archive, tmp_path):
    listed = run(archive, "gate", "--list", cwd=tmp_path).stdout.decode().split()
    assert listed == sorted(p.stem for p in (ROOT / "gpudoctor/data/policies").glob("*.toml"))
    assert run(archive, "gate", "--validate", "--policy", listed[0], cwd=tmp_path).returncode == 0
    assert b"NVIDIA" in run(archive, "explain", "xid", cwd=tmp_path).stdout


@pytest.mark.torch
def test_bandwidth_starts_its_children_in_another_python(archive, tmp_path):
    pytest.importorskip("torch")
    words = ("bandwidth", "--backend", "gloo", "--gpus", "2", "--python", sys.executable, "--format", "json")
    done = run(archive, *words, cwd=tmp_path)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    runs = json.loads(done.stdout)["facts"]["bandwidth"]
    assert [(r["nranks"], r["completed"], r["wrong"]) for r in runs] == [(2, True, False)]
    assert os.listdir(tmp_path) == []


def test_an_old_python_is_told_so():
    from tools.pyz import MAIN

    compile(MAIN.replace("COMPILED", "()"), "__main__.py", "exec")
    code = MAIN.replace("COMPILED", "()").replace("import sys\n", "import sys\nsys.version_info = (3, 8, 10)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "needs Python 3.10 or newer, and this is 3.8" in done.stderr
