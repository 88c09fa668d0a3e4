"""How the program ends where its streams, its memory or itself are at fault: never with a status that looks like a verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import FIXTURES, ROOT

HEALTHY = {"GPUDOCTOR_PROBE_DIR": str(FIXTURES / "hosts" / "rtx4090x2-healthy")}


def redirected(shell: str, *words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The program under a redirection of a shell."""
    command = f'"$@" {shell}'
    return subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-m", "gpudoctor", *words],
        capture_output=True,
        env={**os.environ, **HEALTHY, "PYTHONPATH": str(ROOT), **env},
    )


@pytest.mark.parametrize("words", [("check",), ("check", "-q"), ("checks",), ("facts", "--format", "json"), ("--help",)])
def test_a_full_disk_behind_standard_output_is_said_and_is_no_verdict(words: tuple[str, ...]) -> None:
    done = redirected(">/dev/full", *words)
    assert done.returncode == 2
    assert done.stderr.decode().count("No space left") == 1 and b"Traceback" not in done.stderr and b"ignored" not in done.stderr


def test_a_full_disk_is_no_critical_host_for_nagios() -> None:
    assert redirected(">/dev/full", "check", "--format", "nagios").returncode == 3


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-", "2>/dev/full"])
def test_closed_streams_change_no_status(closed: str) -> None:
    sound, usage = redirected(closed, "check"), redirected(closed, "check", "--no-such-option")
    assert (sound.returncode, usage.returncode) == (0, 2)
    assert b"Traceback" not in sound.stderr + usage.stderr


@pytest.mark.parametrize("words", ["check", "check -q", "checks", "check --format json", "--help", "gate --help"])
def test_a_reader_that_went_away_gets_no_verdict(words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudoctor", *words.split()],
        stdout=write,
        stderr=subprocess.PIPE,
        env={**os.environ, **HEALTHY, "PYTHONPATH": str(ROOT)},
    )
    os.close(write)
    assert process.communicate(timeout=60)[1] == b"" and process.returncode == 141


def test_what_the_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}
    odd = tmp_path / "caf\u00e9 \U0001f600"
    odd.write_text("no output of any tool\n")
    done = redirected("", "check", "--from", str(odd), "--format", "json", **bare)
    assert done.returncode == 3 and b"Traceback" not in done.stderr
    (said,) = json.loads(done.stdout)["source"]["paths"]
    assert os.fsencode(said.encode("utf-8", "surrogateescape")) == os.fsencode(odd)


def test_a_bug_is_no_verdict() -> None:
    code = (
        "import sys; sys.argv[:] = ['gpudoctor', 'checks']; import gpudoctor.discover as d\n"
        "def load(*a): raise RuntimeError('played')\n"
        "d.load = load; from gpudoctor.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 3 and b"gpudoctor broke: RuntimeError: played" in done.stderr and b"Traceback" not in done.stderr


def test_a_folder_that_cannot_be_had_is_no_bug_and_no_verdict() -> None:
    code = (
        "import sys; sys.argv[:] = ['gpudoctor', 'checks']; import gpudoctor.discover as d\n"
        "def load(*a): raise OSError(30, 'Read-only file system', '/played')\n"
        "d.load = load; from gpudoctor.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 3 and b"Read-only file system: '/played'" in done.stderr and b"bug" not in done.stderr


@pytest.mark.parametrize("name, status", [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.parametrize("at", ["gpudoctor.cli.main", "click", "gpudoctor.judge", "gpudoctor.report.text", "gpudoctor.collect.runner"])
def test_a_signal_while_modules_are_imported_has_no_traceback(at: str, name: str, status: int) -> None:
    """The signal comes when the module begins to be imported, as early as the first line of ours."""
    code = (
        "import importlib.abc, os, signal, sys\n"
        # Under nohup, or in the background of a script, these are ignored, and a program rightly leaves them so.
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Hook(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {at!r}: os.kill(os.getpid(), signal.{name})\n"
        "sys.meta_path.insert(0, Hook()); sys.argv[:] = ['gpudoctor', 'check']\n"
        "from gpudoctor.__main__ import main; main()"
    )
    sick = {k: v for k, v in HEALTHY.items() if at != "gpudoctor.collect.runner"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={**os.environ, **sick, "PYTHONPATH": str(ROOT)})
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr and b"ignored" not in done.stderr
