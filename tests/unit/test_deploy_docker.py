"""The Dockerfile: what it copies is there and enough to build the package, and it keeps to its own promises."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import ROOT

TEXT = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", " ", "\n".join(line for line in TEXT.split("\n") if not line.startswith("#")))
    return [(words[0], words[1]) for words in (line.split(maxsplit=1) for line in joined.split("\n")) if words]


def copied() -> list[str]:
    """Paths of the sources that go into the builder."""
    copies = [words.split() for name, words in instructions() if name == "COPY" and not words.startswith("--from")]
    return [path for words in copies for path in words[:-1]]


def test_what_is_copied_is_there_and_is_let_through() -> None:
    lines = [x for x in (ROOT / ".dockerignore").read_text().split("\n") if x and not x.startswith("#")]
    assert lines[0] == "*"  # nothing goes to the builder but what is named
    let_through = {line[1:] for line in lines if line.startswith("!")}
    assert set(copied()) == let_through and all((ROOT / path).exists() for path in copied())


def test_what_is_copied_builds_the_whole_package(tmp_path: Path) -> None:
    """As the build stage does: pip, over nothing but what was copied."""
    source = tmp_path / "src"
    source.mkdir()
    for path in copied():
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, source / path, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "*.so"))
        else:
            shutil.copy(ROOT / path, source / path)
    wanted = {str(p.relative_to(source)) for p in (source / "gpudoctor").rglob("*") if p.is_file() and p.suffix not in (".c", ".h")}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "dist"), str(source)]
    if _builds_wheels():
        pip.append("--no-build-isolation")  # spares the tests a download
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (tmp_path / "dist").iterdir()
    names = set(zipfile.ZipFile(wheel).namelist())
    assert sorted(wanted - names) == []
    assert any(fnmatch(n, "gpudoctor-*.dist-info/licenses/LICENSE") or fnmatch(n, "gpudoctor-*.dist-info/LICENSE") for n in names)


def _builds_wheels() -> bool:
    """Setuptools from 70.1 on does so by itself."""
    try:
        return find_spec("setuptools.command.bdist_wheel") is not None
    except ModuleNotFoundError:
        return False


def test_it_keeps_its_promises() -> None:
    said = instructions()
    stages = [words for name, words in said if name == "FROM"]
    assert stages == ["${BASE} AS build", "${BASE}"]
    base = next(words for name, words in said if name == "ARG" and words.startswith("BASE="))
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+", base)  # a tag that names version and release
    last = said[len(said) - [n for n, _ in reversed(said)].index("FROM") :]
    assert [w for n, w in last if n == "USER"] == ["65532:65532"]
    assert [n for n, _ in last].index("USER") > max(i for i, (n, _) in enumerate(last) if n in ("RUN", "COPY"))
    assert ("ENTRYPOINT", '["gpudoctor"]') in last and ("CMD", '["check"]') in last
    assert ("ARG", "TORCH=") in said  # none unless it is asked for
    extras = re.findall(r"'\.\[(\w+)\]'", TEXT)
    assert extras == ["html"] and re.search(r"^html = ", (ROOT / "setup.cfg").read_text(), re.M)


@pytest.mark.parametrize(("torch", "said"), [("", ""), ("2.8.0", "-m pip install --no-cache-dir torch==2.8.0\n")])
def test_torch_is_installed_only_where_it_is_asked_for(torch: str, said: str) -> None:
    step = next(words for name, words in instructions() if name == "RUN" and "TORCH" in words)
    shown = step.replace("/opt/gpudoctor/bin/python", "echo")
    done = subprocess.run(["/bin/sh", "-c", shown], env={"TORCH": torch}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, said)
