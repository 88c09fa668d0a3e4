"""Children that end with us, and what is tidied up after them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudoctor.bandwidth import guard, python
from gpudoctor.bandwidth.guard import Child, room
from gpudoctor.bandwidth.work import CannotStart

SPAWN = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_killing_a_child_kills_what_it_started(tmp_path: Path) -> None:
    child = Child((sys.executable, "-c", SPAWN), os.environ, folder=str(tmp_path))
    grandchild = int(child.read(time.monotonic() + 20) or b"0")
    assert running(grandchild)
    assert child.kill()
    assert not running(grandchild) and not running(child.process.pid)


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1]); from gpudoctor.bandwidth.guard import Child\n"
        "c = Child(('sleep', '60'), os.environ, folder=sys.argv[2]); print(c.process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen((sys.executable, "-c", code, str(Path(__file__).parents[2]), str(tmp_path)), stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert running(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10
    while running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not running(pid)


def test_reading_ends_at_its_moment_and_at_the_end_of_the_output(tmp_path: Path) -> None:
    child = Child(("sh", "-c", "printf a; sleep 30"), os.environ, folder=str(tmp_path))
    assert child.read(time.monotonic() + 20) == b"a"
    assert child.read(time.monotonic() + 0.05) is None
    child.kill()
    done = Child(("sh", "-c", "printf oops >&2"), os.environ, folder=str(tmp_path))
    assert done.read(time.monotonic() + 20) == b"" and done.wait(5) == 0 and done.errors() == "oops"
    done.kill()


def test_the_end_of_the_program_is_the_end_of_its_output_whoever_holds_the_pipe(tmp_path: Path) -> None:
    child = Child(("sh", "-c", "sleep 60 & printf done"), os.environ, folder=str(tmp_path))
    got = b"".join(iter(lambda: child.read(time.monotonic() + 30) or b"", b""))
    assert got == b"done" and child.wait(5) == 0
    assert child.kill()


@pytest.mark.parametrize("script", ["yes", "yes >&2"])
def test_a_flood_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(guard, "MOST_OUTPUT", 1 << 20)
    child = Child(("sh", "-c", script), os.environ, folder=str(tmp_path))
    while child.read(time.monotonic() + 30):
        pass
    assert child.flooded and child.kill()


def test_those_that_left_the_group_are_gone_with_the_room(tmp_path: Path) -> None:
    with room() as folder:
        child = Child(("sh", "-c", "setsid sleep 60 & echo $!; wait"), os.environ, folder=folder)
        pid = int(child.read(time.monotonic() + 20) or b"0")
        assert running(pid) and child.kill()
    assert not running(pid)


@pytest.mark.parametrize("script", ["exec yes", "setsid sleep 60 & exit 9", "trap '' TERM; sleep 60"])
def test_a_sick_python_is_asked_for_a_moment_only(tmp_path: Path, script: str) -> None:
    tool = tmp_path / "python"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    assert not python.has_torch(str(tool), os.environ, time.monotonic() + 1)


def test_the_folder_and_its_own_shared_memory_go_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_SHM", f"{tmp_path}/nccl-*")
    (tmp_path / "nccl-theirs").touch()
    with pytest.raises(KeyboardInterrupt), room() as folder:
        Path(folder, "file").touch()
        (tmp_path / "nccl-ours").touch()
        raise KeyboardInterrupt
    assert not os.path.exists(folder)
    assert [p.name for p in tmp_path.glob("nccl-*")] == ["nccl-theirs"]


def test_shared_memory_that_is_mapped_is_left_alone(tmp_path: Path) -> None:
    import mmap

    path = tmp_path / "nccl-mapped"
    path.write_bytes(b"\0" * 4096)
    with open(path, "r+b") as stream, mmap.mmap(stream.fileno(), 4096):
        guard.remove_shm({str(path)})
        assert path.exists()
    guard.remove_shm({str(path)})
    assert not path.exists()


def test_the_python_of_the_active_environment_goes_first(tmp_path: Path) -> None:
    for name in ("venv", "conda"):
        (tmp_path / name / "bin").mkdir(parents=True)
        tool = tmp_path / name / "bin" / "python"
        tool.write_text("#!/bin/sh\nexit 9\n")
        tool.chmod(0o755)
    environ = {"VIRTUAL_ENV": str(tmp_path / "venv"), "CONDA_PREFIX": str(tmp_path / "conda"), "PATH": "/nowhere"}
    assert python.candidates(environ)[:2] == [f"{tmp_path}/venv/bin/python", f"{tmp_path}/conda/bin/python"]
    (tmp_path / "conda" / "bin" / "python").write_text("#!/bin/sh\nexit 0\n")
    assert python.find(None, environ) == f"{tmp_path}/conda/bin/python"


def test_where_none_has_pytorch_the_command_that_helps_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "has_torch", lambda path, environ, until: False)
    with pytest.raises(CannotStart, match=r"--nccl-tests DIR, .*-m pip install torch$"):
        python.find(None, {"PATH": "/nowhere"})
    with pytest.raises(CannotStart, match="no such program"):
        python.find(str(tmp_path / "none"), {})
