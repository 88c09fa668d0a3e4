"""Probes to captures: every way a child can end, and that none holds the run up or stays behind."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gpudoctor.collect import runner
from gpudoctor.collect.capture import Probe
from gpudoctor.collect.runner import run
from tests.support import ROOT

FAR = 120.0  # seconds: a limit that is not the one to act


def probe(*argv, id="p"):
    return Probe(id=id, argv=argv, kind=None, shown=" ".join(argv))


def sh(script, seconds=20.0, **options):
    """One shell script under a limit."""
    return run([(probe("sh", "-c", script), seconds)], grace_s=0.3, **options)[0]


def gone(pid):
    """Ended, or at most waiting for its parent."""
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as stream:
                if stream.read().rpartition(")")[2].split()[0] in "ZX":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_ok_keeps_both_streams_apart():
    got = sh("echo out; echo err >&2")
    assert (got.status, got.rc, got.out, got.err) == ("ok", 0, b"out\n", b"err\n")


def test_exit_status_is_data_and_the_output_is_kept():
    got = sh("echo half; exit 9")
    assert (got.status, got.rc, got.out) == ("exit", 9, b"half\n")


def test_death_by_signal():
    got = sh("echo before; kill -SEGV $$")
    assert (got.status, got.rc, got.out) == ("signal", -signal.SIGSEGV, b"before\n")


def test_no_output():
    got = sh(":")
    assert (got.status, got.out, got.err) == ("ok", b"", b"")


def test_hang_that_heeds_sigterm():
    got = sh("echo first; exec sleep 600", seconds=0.3)
    assert (got.status, got.rc, got.out, got.timeout_s) == ("timeout", None, b"first\n", 0.3)


def test_hang_that_ignores_sigterm():
    got = sh("trap '' TERM; echo first; while :; do sleep 0.1; done", seconds=0.4)
    assert (got.status, got.out) == ("timeout", b"first\n")


def test_a_child_that_cannot_be_killed_is_given_up(monkeypatch):
    """An uninterruptible system call outlives SIGKILL; played by signals that do not arrive."""
    monkeypatch.setattr(os, "killpg", lambda pid, number: None)
    got = sh("echo $$; exec sleep 5", seconds=0.3)
    assert got.status == "stuck" and got.rc is None
    assert gone(int(got.out))  # by another way: as one of those that left their group


@pytest.mark.parametrize("script", ["yes", "while :; do printf '%s' aaaaaaaaaaaaaaaa; done", "yes >&2"])
def test_flood_is_stopped_at_the_size_limit(script):
    got = sh(script, max_output=1 << 16)
    assert got.status == "oversize"
    assert len(got.out) <= 1 << 16 and len(got.err) <= 1 << 16


def test_flood_is_stopped_where_the_kernel_sets_no_limit(monkeypatch):
    monkeypatch.setattr(runner, "_limit", lambda pid, most: None)
    assert sh("yes", max_output=1 << 16).status == "oversize"


def test_what_is_kept_of_a_flood_is_little():
    got = sh("yes", max_output=4 << 20)
    assert got.status == "oversize" and len(got.out) == runner.KEPT


def test_slow_drip_ends_at_its_limit_with_what_came():
    got = sh("while :; do printf x; sleep 0.05; done", seconds=0.6)
    assert got.status == "timeout" and set(got.out) == {ord("x")}


def test_grandchild_that_keeps_the_output_open_neither_delays_nor_survives():
    got = sh("sleep 600 & echo $!", seconds=30.0)
    assert got.status == "ok"
    assert gone(int(got.out))


@pytest.mark.parametrize("script", ["setsid sleep 600 & echo $!", "setsid sh -c 'setsid sleep 600 & echo $!; sleep 600' & sleep 0.5", "setsid sleep 600 & echo $!; sleep 600"])
def test_those_that_left_the_group_are_ended_too(script):
    got = sh(script, seconds=1.5)
    assert got.status in ("ok", "timeout")
    assert gone(int(got.out))


def test_a_child_of_ours_that_is_no_probe_stays():
    mine = subprocess.Popen(("sleep", "600"), start_new_session=True)
    sh("setsid sleep 600 & echo $!")
    assert mine.poll() is None
    mine.kill()
    mine.wait()


def test_few_descriptors_are_a_reason_and_no_crash(monkeypatch):
    monkeypatch.setattr(runner, "two_files", lambda: os.open("/no/such/folder", os.O_RDONLY))
    got = sh("echo out")
    assert got.status == "unrunnable" and b"no file for its output" in got.err


def test_a_folder_of_that_name_is_said(monkeypatch, tmp_path):
    (tmp_path / "tool").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    got = run([(probe("tool"), 5.0)])[0]
    assert got.status == "unrunnable" and b"is a directory" in got.err


def test_the_whole_group_is_stopped_at_the_limit():
    got = sh("sleep 600 & echo $!; wait", seconds=0.3)
    assert got.status == "timeout"
    assert gone(int(got.out))


def test_bytes_come_through_as_they_are(tmp_path):
    (tmp_path / "raw").write_bytes(bytes(range(256)) * 40)
    assert sh(f"cat {tmp_path}/raw").out == bytes(range(256)) * 40


def test_absent_program(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    got, by_path = run([(probe("no-such-tool-anywhere"), 5.0), (probe(str(tmp_path / "nowhere"), id="q"), 5.0)])
    assert got.status == by_path.status == "absent"


@pytest.mark.parametrize(
    ("content", "mode", "word"),
    [
        (b"#!/bin/sh\n", 0o644, b"not executable"),
        (b"\x7fELF no program at all", 0o755, b""),
        (b"#!/no/such/interpreter\n", 0o755, b"interpreter"),
        (b"", 0o755, b""),
    ],
)
def test_unrunnable_program(monkeypatch, tmp_path, content, mode, word):
    tool = tmp_path / "tool"
    tool.write_bytes(content)
    tool.chmod(mode)
    monkeypatch.setenv("PATH", str(tmp_path))
    got = run([(probe("tool"), 5.0)])[0]
    assert got.status == "unrunnable" and got.err and word in got.err


def test_a_later_folder_of_path_is_used_where_an_earlier_one_bars(monkeypatch, tmp_path):
    for name, mode in (("one", 0o644), ("two", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("#!/bin/sh\necho two\n")
        (tmp_path / name / "tool").chmod(mode)
    monkeypatch.setenv("PATH", f"{tmp_path}/one:{tmp_path}/two:/bin:/usr/bin")
    assert run([(probe("tool"), 5.0)])[0].out == b"two\n"


@pytest.mark.parametrize("entry", [".", "", "bin"])
def test_nothing_is_run_from_the_current_folder(monkeypatch, tmp_path, entry):
    for place in (tmp_path / "lurking-tool", tmp_path / "bin" / "lurking-tool"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("#!/bin/sh\necho lurking\n")
        place.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{entry}:/bin:/usr/bin")
    assert run([(probe("lurking-tool"), 5.0)])[0].status == "absent"


def test_children_speak_c_and_read_nothing(monkeypatch):
    monkeypatch.setenv("LC_ALL", "xx_YY.garbage")
    monkeypatch.setenv("LC_MESSAGES", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    got = sh("cat; echo $LC_ALL/$LANG/$LC_MESSAGES/$LANGUAGE; ulimit -c")
    assert got.out.split() == [b"C/C//C", b"0"]


def test_placeholders_of_child_probes(tmp_path):
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    got = run([(probe("{python}", "{probe}/pci.py", str(tmp_path)), 20.0)])[0]
    assert json.loads(got.out)["probe"] == "gpudoctor.pci" and json.loads(got.out)["devices"] == {}


def test_captures_come_in_the_order_of_the_jobs():
    jobs = [(probe("sh", "-c", f"sleep {s}; echo {s}", id=str(s)), 20.0) for s in (0.2, 0, 0.1)]
    assert [c.out for c in run(jobs)] == [b"0.2\n", b"0\n", b"0.1\n"]


def test_probes_run_at_once(tmp_path):
    """Each waits for the other's file: one after the other would end neither."""
    script = "touch {0}/{1}; until [ -e {0}/{2} ]; do sleep 0.02; done"
    jobs = [(probe("sh", "-c", script.format(tmp_path, a, b), id=a), 20.0) for a, b in (("x", "y"), ("y", "x"))]
    assert [c.status for c in run(jobs)] == ["ok", "ok"]


def test_one_that_hangs_takes_nothing_from_the_others():
    hung, well = run([(probe("sleep", "600"), 0.4), (probe("sh", "-c", "echo well", id="q"), 20.0)], grace_s=0.3)
    assert (hung.status, well.status, well.out) == ("timeout", "ok", b"well\n")


def test_the_common_end_bounds_every_probe():
    got = run([(probe("sleep", "600", id=str(n)), FAR) for n in range(3)], end=time.monotonic() + 0.3, grace_s=0.3)
    assert {c.status for c in got} == {"timeout"}
    assert all(c.timeout_s < 1 for c in got)


def test_no_pidfd(monkeypatch):
    monkeypatch.setattr(runner, "_pidfd", lambda pid: None)
    assert [sh("echo a").out, sh("exit 3").rc, sh("exec sleep 600", seconds=0.2).status] == [b"a\n", 3, "timeout"]


def test_no_memfd(monkeypatch):
    def forbidden(*args):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    assert sh("echo a; echo b >&2; sleep 0.1; echo c").out == b"a\nc\n"


def test_no_descriptor_is_left_open():
    before = os.listdir("/proc/self/fd")
    run([(probe("true"), 5.0), (probe("no-such-tool-anywhere", id="q"), 5.0), (probe("sleep", "9", id="r"), 0.1)])
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_an_interrupt_stops_all_children(tmp_path):
    def interrupt():
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.02)
        raise KeyboardInterrupt

    script = f"trap '' TERM INT; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done"
    with pytest.raises(KeyboardInterrupt):
        run([(probe("sh", "-c", script), FAR)], meanwhile=interrupt)
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_to_the_program_leaves_nobody_behind(tmp_path, number, status):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ntrap '' TERM INT HUP\necho $$ >> {tmp_path}/pids\nwhile :; do sleep 0.1; done\n")
    tool.chmod(0o755)
    program = subprocess.Popen(
        [sys.executable, "-m", "gpudoctor", "check"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # ignored under nohup, and then rightly left so
    )
    pids = tmp_path / "pids"
    while not pids.exists() or len(pids.read_text().split()) < 8:
        assert program.poll() is None
        time.sleep(0.02)
    program.send_signal(number)
    assert program.wait(60) == status
    assert b"Traceback" not in program.stderr.read()
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_an_inherited_ignored_sigchld_hides_no_exit_status():
    code = (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from tests.unit.test_runner import sh\n"
        "print(sh('sleep 0.1; exit 9').rc, signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, timeout=60)
    assert done.stdout.split() == [b"9", b"True"], done.stderr
