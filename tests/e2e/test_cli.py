"""The command as a script and as a person use it."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.support import FIXTURES, ROOT, gpudoctor, report

SICK = str(FIXTURES / "hosts" / "a100x4-sxm-gpu2-nvlinks-down")
WELL = str(FIXTURES / "hosts" / "h100x8-nvswitch-healthy")
WARNED = str(FIXTURES / "hosts" / "l40sx2-acs-redirect")


def test_exit_statuses():
    assert gpudoctor("check", "--from", WELL).returncode == 0
    assert gpudoctor("check", "--from", SICK).returncode == 1
    assert gpudoctor("check", "--from", WARNED).returncode == 0
    assert gpudoctor("check", "--from", WARNED, "--fail-on", "warning").returncode == 1
    assert gpudoctor("check", "--from", SICK, "--ignore", "nvlink-down,GD204").returncode == 0
    assert gpudoctor("check", "--from", SICK, "--select", "GD401").returncode == 1
    assert gpudoctor("check", "--from", "-", stdin=b"nothing known\n").returncode == 3


@pytest.mark.parametrize(
    "words",
    [("check", "--from", "/nonexistent"), ("check", "--select", "nvlink-dwn"), ("check", "--format", "yaml"), ("nonsense",),
     ("check", "-o", "report.doc", "--from", SICK), ("explain", "nvlink-dwn"), ("check", "--timeout", "-1")],
)  # fmt: skip
def test_wrong_usage_is_2_with_nothing_on_stdout(words):
    done = gpudoctor(*words)
    assert done.returncode == 2 and done.stdout == b"" and done.stderr
    assert b"Traceback" not in done.stderr


def test_a_near_miss_is_named():
    assert b"did you mean nvlink-down" in gpudoctor("check", "--select", "nvlink-dwn").stderr
    assert b"did you mean nvlink-down" in gpudoctor("explain", "nvlink-dwn").stderr


def test_what_is_not_known_is_answered_with_what_is():
    done = gpudoctor("check", "--from", "-", stdin=b"nothing known\n")
    assert b"standard input" in done.stdout and b"Known are: nvidia-smi" in done.stdout


def test_an_xid_is_explained_by_its_number():
    done = gpudoctor("explain", "Xid 79")
    assert done.returncode == 0 and b"GD104" in done.stdout
    assert done.stdout.startswith(b"Xid 79: the GPU has fallen off the bus")
    assert json.loads(gpudoctor("explain", "xid-79", "--format", "json").stdout)["slug"] == "xid"


def test_what_is_read_but_too_little_for_any_check_is_not_called_free_of_faults():
    alone = (FIXTURES / "outputs" / "lscpu" / "h200x2-vm.txt").read_bytes()
    done = gpudoctor("check", "--from", "-", stdin=alone)
    assert done.returncode == 0 and b"UNJUDGED" in done.stdout and b"NO FAULT" not in done.stdout
    done = gpudoctor("check", "--from", "-", stdin=(FIXTURES / "outputs" / "smi-topo" / "h200x2-m.txt").read_bytes())
    assert b"NO FAULT" in done.stdout and b"UNJUDGED" not in done.stdout


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "prose.txt").write_bytes(b"nothing known\n")
    for name, said in (("empty.txt", True), ("prose.txt", False)):
        status, got = report("check", "--from", str(tmp_path / name))
        assert status == 3 and any("it is empty" in m["reason"] for m in got["missing"]) == said


def test_a_source_that_gave_nothing_is_named_once():
    pasted = b"NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, remote process exited\n"
    assert b"standard input: standard input" not in gpudoctor("check", "--from", "-", stdin=pasted).stdout


def test_the_json_envelope_has_what_the_contract_promises():
    status, got = report("check", "--from", SICK)
    assert status == got["exit_code"] == 1 and got["verdict"] == "fail" and got["schema_version"] == 1
    assert got["source"] == {"kind": "recorded", "paths": [SICK], "captured_at": "2026-11-29T00:00:00Z"}
    assert set(got["tool"]) == {"name", "version"}
    for result in got["results"]:
        assert result["status"] in ("ok", "found", "skipped", "error")
        assert result["status"] in ("ok", "found") or result["reason"]
    codes = [r["code"] for r in got["results"]]
    assert len(codes) == len(set(codes))
    top = got["diagnoses"][0]
    assert top["cause"] == "nvlink-down" and top["subject"] == "gpu:0000:81:00.0" and top["confidence"] == "certain"
    assert all({"step", "risk"} <= set(s) for s in top["remediation"]) and top["evidence"]
    gpu = got["facts"]["gpus"][0]
    assert set(gpu) == {"index", "bdf", "name", "device_id", "numa_node", "cpu_affinity", "pcie"}


def test_files_by_suffix_leave_only_the_verdict_on_stdout(tmp_path):
    done = gpudoctor("check", "--from", SICK, "-o", str(tmp_path / "r.json"), "-o", str(tmp_path / "r.txt"))
    assert done.returncode == 1
    assert done.stdout.decode().count("\n") == 1 and done.stdout.startswith(b"FAULT ")
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "fail"
    assert "nvlink-down" in (tmp_path / "r.txt").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.json", "r.txt"]


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    done = gpudoctor("check", "--from", WELL, "-o", str(tmp_path / "no" / "r.json"))
    assert done.returncode != 0 and b"cannot write" in done.stderr and b"Traceback" not in done.stderr


def test_colour_only_at_a_terminal_and_never_with_no_color():
    def run(**env):
        primary, secondary = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-m", "gpudoctor", "check", "--from", SICK],
            stdout=secondary,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **env},
        )
        os.close(secondary)
        out = b""
        try:
            while chunk := os.read(primary, 65536):
                out += chunk
        except OSError:
            pass  # the other end of a pseudo-terminal closes with an error
        child.wait()
        os.close(primary)
        return out

    assert b"\x1b[" in run(NO_COLOR="")
    assert b"\x1b[" not in run(NO_COLOR="1")
    assert b"\x1b[" not in gpudoctor("check", "--from", SICK).stdout


def test_without_utf8_the_page_is_ascii():
    done = gpudoctor("check", "--from", SICK, env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 1 and done.stdout.isascii() and b"x nvlink-down" in done.stdout


def test_a_closed_pipe_is_no_traceback():
    child = subprocess.Popen(
        [sys.executable, "-m", "gpudoctor", "check", "-v", "--from", SICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert b"Traceback" not in child.stderr.read()
    child.wait()


def test_ctrl_c_is_130():
    child = subprocess.Popen(
        [sys.executable, "-m", "gpudoctor", "check", "--from", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130 and b"Traceback" not in err


def test_escapes_and_markup_of_the_input_do_not_reach_the_page():
    hostile = b"GPU 0: \x1b[31mNVIDIA A100-SXM4-80GB\x1b]0;owned\x07 (UUID: GPU-00000000-0000-0000-0000-000000000001)\n\t Link 0: <inactive>\n"
    done = gpudoctor("check", "--from", "-", stdin=hostile)
    assert b"\x1b" not in done.stdout and b"\x07" not in done.stdout


def test_facts_judges_nothing():
    done = gpudoctor("facts", "--from", SICK)
    assert done.returncode == 0 and b"GPUs" in done.stdout and b"nvlink-down" not in done.stdout
    status, got = report("facts", "--from", SICK)
    assert status == 0 and got["results"] == [] and len(got["facts"]["pairs"]) == 6
    assert gpudoctor("facts", "--from", "-", stdin=b"x\n").returncode == 3


def test_explain_by_slug_and_code():
    by_slug, by_code = gpudoctor("explain", "nvlink-down"), gpudoctor("explain", "gd401")
    assert by_slug.stdout == by_code.stdout and by_slug.returncode == 0
    for label in (b"Severity", b"Why", b"Seen in", b"Remedy", b"Needs"):
        assert label in by_slug.stdout
    # What one check needs, then what another would do with: nobody is to think that it takes both.
    assert b"the kernel log (sudo dmesg -T); or NCCL's log" in gpudoctor("explain", "xid").stdout


def test_a_replayed_host_says_so_everywhere():
    env = {"GPUDOCTOR_PROBE_DIR": SICK}
    text = gpudoctor("check", env=env)
    assert text.returncode == 1 and b"GPUDOCTOR_PROBE_DIR" in text.stdout
    status, got = report("check", env=env)
    assert status == 1 and got["source"]["kind"] == "live" and any("GPUDOCTOR_PROBE_DIR" in n for n in got["notes"])
    assert gpudoctor("check", env={"GPUDOCTOR_PROBE_DIR": "/nonexistent"}).returncode == 2


def completed(words: str, shell: str = "bash") -> list[tuple[str, str]]:
    """(kind, value) of what the shell is offered behind these words; the last one is being typed."""
    typed = words.split(" ")
    env = {"_GPUDOCTOR_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(typed) - 1)}
    code = "import sys; sys.argv[0] = 'gpudoctor'; from gpudoctor.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT), **env})
    assert done.stderr == ""
    return [(kind, value) for kind, _, value in (line.partition(",") for line in done.stdout.splitlines() if line)]


def test_completion_knows_the_commands():
    assert {("plain", "check"), ("plain", "checks")} <= set(completed("gpudoctor ch"))


def test_completion_knows_the_catalogue():
    offered = [value for _, value in completed("gpudoctor explain ")]
    assert offered == sorted(offered) and {"acs", "nvlink-down", "policy", "xid"} <= set(offered)
    assert completed("gpudoctor explain nvlink-d") == [("plain", "nvlink-down")]
    assert completed("gpudoctor explain gd24") == [("plain", "GD240"), ("plain", "GD241")]
    assert completed("gpudoctor explain nothing-like") == []


def test_completion_of_a_list_goes_on_behind_the_comma():
    assert ("plain", "pcie-width") in completed("gpudoctor check --select pcie-")
    assert ("plain", "acs,pcie-width") in completed("gpudoctor check --ignore acs,pcie-w")
    assert completed("gpudoctor check --select acs,ac") == []  # it is there already
    assert ("plain", "policy") not in completed("gpudoctor check --select po")  # what a gate says is no check


def test_completion_of_what_is_a_file():
    for words in ("check --from ", "check -o r", "capture -o x", "diff a", "diff a b", "bandwidth --baseline b"):
        assert [kind for kind, _ in completed(f"gpudoctor {words}")] == ["file"]
    offered = completed("gpudoctor gate --policy ")
    shipped = gpudoctor("gate", "--list").stdout.decode().split()
    assert [value for kind, value in offered if kind == "plain"] == shipped and ("file", "") in offered


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--timeout", "nan"),
        ("bandwidth", "--min-busbw", "nan"),
        ("bandwidth", "--min-ratio", "nan"),
        ("bandwidth", "--min-busbw", "inf"),
        ("check", "--select", "acs", "--ignore", "acs"),
    ],
)
def test_what_nothing_can_be_held_against_is_refused(words: tuple[str, ...]) -> None:
    done = gpudoctor(*words)
    assert (done.returncode, done.stdout) == (2, b"")
