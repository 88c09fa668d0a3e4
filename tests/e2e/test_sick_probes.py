"""The program on a host whose tools are sick: it ends, says so, and never calls such a host healthy."""

import os
import shutil
import time

import pytest

from tests.fakes import BIN, HOST
from tests.support import gpudoctor, report

NEEDED = "nvidia-smi -q -x"
TOPO = "nvidia-smi topo -m"


def host(sick="", path=BIN, **more):
    """Environment in which every tool is played."""
    return {"PATH": f"{path}:{os.environ['PATH']}", "FAKE_SICK": sick, **more}


def check(sick, *words, **more):
    return report("check", *words, env=host(sick, **more))


def reasons(got):
    """fact -> everything said of it."""
    out = {}
    for missing in got["missing"]:
        out[missing["fact"]] = f"{out.get(missing['fact'], '')} {missing['reason']}"
    return out


def judged(got):
    """What has to be the same however the host was looked at."""
    return {key: got[key] for key in ("verdict", "exit_code", "results", "diagnoses", "missing", "facts")}


def test_a_sound_host_is_in_order():
    status, got = check("")
    assert (status, got["verdict"]) == (0, "pass")
    assert len(got["facts"]["gpus"]) == 2 and got["facts"]["pairs"][0]["path"] == "NVL"
    assert got["source"]["kind"] == "live" and got["source"]["captured_at"]


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("exit", "exit status 9"),
        ("signal", "signal 11"),
        ("empty", "printed nothing"),
        ("random", ""),
        ("cut", ""),
        ("flood", "size limit"),
    ],
)
def test_all_of_nvidia_smi_sick(fault, word):
    status, got = check(f"nvidia-smi={fault}")
    assert status in (1, 3), "nothing that the driver says could be read"
    assert got["exit_code"] == status and got["verdict"] == {1: "fail", 3: "unknown"}[status]
    assert word in reasons(got).get(NEEDED, "")


def test_a_hang_of_all_of_nvidia_smi_ends_with_the_command():
    began = time.monotonic()
    status, got = check("nvidia-smi=hang", "--timeout", "3")
    assert time.monotonic() - began < 60  # the played hang lasts ten minutes
    assert status == 3
    assert "no answer" in reasons(got)[NEEDED]
    assert any("--timeout" in reason for reason in reasons(got).values())


@pytest.mark.parametrize(("command", "fault"), [(NEEDED, "hang"), (TOPO, "sleep"), ("nvidia-smi nvlink -s", "drip")])
def test_one_command_that_does_not_end(command, fault):
    status, got = check(f"{command}={fault}", "--timeout", "3")
    assert status == 3, "a driver that hangs is no healthy driver"
    assert "no answer" in reasons(got)[command]


@pytest.mark.parametrize("fault", ["exit", "signal", "empty", "random", "flood", "cut"])
def test_sources_that_are_not_needed_change_no_status(fault):
    optional = ("lspci", "dmesg", "systemctl", "nvidia-smi nvlink -e", "nvidia-smi topo -p2p a")
    status, got = check(";".join(f"{command}={fault}" for command in optional))
    assert status == 0
    assert got["facts"]["pairs"][0]["path"] == "NVL"


def test_what_the_list_of_gpus_said_before_it_was_cut_is_used():
    status, got = check(f"{NEEDED}=cut")
    assert status in (1, 3) or len(got["facts"]["gpus"]) == 2
    assert got["facts"]["pairs"][0]["path"] == "NVL"


def test_a_matrix_that_was_cut_gives_no_wrong_path():
    _, got = check(f"{TOPO}=cut")
    assert all(p["path"] in ("NVL", None) for p in got["facts"].get("pairs", []))


def test_a_grandchild_that_keeps_the_output_open_costs_nothing():
    status, got = check("nvidia-smi=grandchild")
    assert (status, got["verdict"]) == (0, "pass")
    assert NEEDED not in reasons(got)


def test_bytes_that_are_no_utf8():
    status, got = check("nvidia-smi=latin1")
    assert status == 0 and got["facts"]["pairs"][0]["path"] == "NVL"


def test_a_garbage_locale_does_not_reach_the_tools():
    status, got = check("nvidia-smi=locale", LC_ALL="xx_YY.garbage", LANG="ru_RU.KOI8-R")
    assert status == 0 and len(got["facts"]["gpus"]) == 2


def only(folder, *names):
    """A folder of tools: a name alone is the played tool, `name!` one that may not be executed."""
    folder.mkdir()
    for name in names:
        shutil.copy(BIN / "fake-tool", folder / name.rstrip("!"))
        if name.endswith("!"):
            (folder / name.rstrip("!")).chmod(0o644)
    return folder


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this host has an nvidia-smi of its own")
@pytest.mark.parametrize(("tool", "word"), [("", "not installed"), ("nvidia-smi!", "not executable")])
def test_nvidia_smi_absent_or_barred(tmp_path, tool, word):
    tools = only(tmp_path / "bin", "dmesg", "systemctl", *([tool] if tool else []))
    status, got = report("check", env=host(path=tools, FAKE_HOST=str(HOST)))
    assert status in (1, 3)
    assert word in reasons(got)[NEEDED]


@pytest.mark.parametrize(
    ("name", "sick"),
    [
        ("snap", ""),
        ("snap.tar.gz", f"nvidia-smi=exit;{TOPO}=cut"),
        ("snap", f"{NEEDED}=random"),
        ("snap.tar.gz", "dmesg=signal;lspci=flood;nvidia-smi nvlink -s=cut"),
    ],
)
def test_recorded_is_judged_as_live(tmp_path, name, sick):
    path = str(tmp_path / name)
    made = gpudoctor("capture", "-o", path, env=host(sick))
    assert b"Traceback" not in made.stderr and made.returncode in (0, 3), made.stderr
    replayed_status, replayed = report("check", env={"GPUDOCTOR_PROBE_DIR": path})
    recorded_status, recorded = report("check", "--from", path)
    assert (recorded_status, judged(recorded)) == (replayed_status, judged(replayed))
    if "random" not in sick:  # that differs from run to run
        live_status, live = check(sick)
        assert live_status == recorded_status
        for key in ("verdict", "facts", "results", "missing", "diagnoses"):
            assert live[key] == recorded[key], key


def test_capture_says_what_it_could_not_read(tmp_path):
    path = tmp_path / "s"
    done = gpudoctor("capture", "-o", str(path), env=host("nvidia-smi=exit"))
    text = done.stdout.decode()
    assert done.returncode == 3
    assert f"Wrote {path}" in text and "nvidia-smi -q -x: exit status 9" in text and "stand-ins" in text
    assert (path / "manifest.json").exists()


def test_capture_of_a_sound_host(tmp_path):
    path = tmp_path / "s"
    done = gpudoctor("capture", "-o", str(path), env=host())
    assert done.returncode == 0
    whole = b"".join(f.read_bytes() for f in path.iterdir())
    assert b"node07" not in whole and b"1650000000001" not in whole


def test_capture_with_a_hang_is_written_all_the_same(tmp_path):
    path = tmp_path / "s.tar.gz"
    done = gpudoctor("capture", "-o", str(path), "--timeout", "3", env=host(f"{TOPO}=hang"))
    assert done.returncode == 3
    status, got = report("check", "--from", str(path))
    assert status == 3 and "no answer" in reasons(got)[TOPO]


@pytest.mark.parametrize("place", ["full", "file"])
def test_capture_overwrites_nothing_else(tmp_path, place):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    (tmp_path / "file").write_text("x")
    done = gpudoctor("capture", "-o", str(tmp_path / place), env=host())
    assert done.returncode == 2 and done.stdout == b"" and str(tmp_path / place) in done.stderr.decode()


def test_capture_that_cannot_be_written(tmp_path):
    done = gpudoctor("capture", "-o", str(tmp_path / "no" / "such" / "s.tar.gz"), env=host())
    assert done.returncode == 2 and b"cannot write" in done.stderr and b"Traceback" not in done.stderr


def test_replay_of_nothing_is_wrong_usage(tmp_path):
    done = gpudoctor("check", env={"GPUDOCTOR_PROBE_DIR": str(tmp_path)})
    assert done.returncode == 2 and b"manifest.json" in done.stderr


def test_a_replay_says_so():
    _, got = report("check", env={"GPUDOCTOR_PROBE_DIR": str(HOST)})
    assert any("GPUDOCTOR_PROBE_DIR" in note for note in got["notes"])


def test_a_path_that_cannot_be_opened_is_said_before_the_probes_run():
    done = gpudoctor("check", "--live", "--from", "/no/such/file", env=host("nvidia-smi=sleep"))
    assert done.returncode == 2 and b"/no/such/file" in done.stderr


def test_an_empty_answer_is_named(tmp_path):
    """Exit status 0 and not a byte: nothing was read, and the report says so."""
    status, got = check("nvidia-smi=empty;dmesg=empty")
    assert "printed nothing" in reasons(got)[NEEDED] and "printed nothing" in reasons(got)["dmesg --time-format iso"]
    done = gpudoctor("capture", "-o", str(tmp_path / "s"), env=host("dmesg=empty"))
    assert done.returncode == 0 and b"printed nothing" in done.stdout
