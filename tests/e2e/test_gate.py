"""`gpudoctor gate` as a prolog calls it: one line, one status, over recorded hosts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support import FIXTURES, ROOT, gpudoctor

FAKE_TESTS = ROOT / "tests" / "fakes" / "nccl_tests"
WELL, BOARD, HANGS = "h100x8-nvswitch-healthy", "a100x4-sxm-gpu2-nvlinks-down", "h100x8-nvidia-smi-hangs"
CARDS, CONSUMER, ACS = "a100x2-pcie-no-bridge", "rtx4090x2-healthy", "l40sx2-acs-redirect"


def gate(host: str, *words: str, env: dict[str, str] | None = None) -> Any:
    probes = {"GPUDOCTOR_PROBE_DIR": str(FIXTURES / "hosts" / host)}
    done = gpudoctor("gate", "--test", *words, env={**probes, **(env or {})})
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def line(done: Any) -> str:
    text: str = done.stdout.decode()
    assert text.count("\n") == 1 and text.startswith("gpudoctor: "), text
    return text.rstrip("\n")


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "p.toml"
        path.write_text(text)
        return str(path)

    return write


def test_without_a_policy_it_is_the_check_in_one_line() -> None:
    for host, status, word in ((WELL, 0, "PASS"), (BOARD, 1, "FAIL"), (HANGS, 3, "UNKNOWN"), (ACS, 0, "PASS")):
        done = gate(host)
        assert done.returncode == status and line(done).startswith(f"gpudoctor: {word} node07 ")
    assert "2 warnings: acs" in line(gate(ACS)) and gate(ACS, "--fail-on", "warning").returncode == 1


def test_the_shipped_policy_of_its_kind_passes_and_of_another_fails() -> None:
    assert gate(WELL, "--policy", "h100-sxm-x8", "--no-bandwidth").returncode == 0
    assert gate(CONSUMER, "--policy", "rtx4090-x2", "--no-bandwidth").returncode == 0
    wrong = gate(WELL, "--policy", "h200-sxm-x8", "--no-bandwidth")
    assert wrong.returncode == 1
    assert "policy gpu:0000:13:00.0 (NVIDIA H100 80GB HBM3, policy wants H200) +7 more" in line(wrong)


def test_a_broken_rule_is_named_by_the_check_that_says_why(policy: Any) -> None:
    done = gate(CARDS, "--policy", policy("[pairs]\npath = 'NVL'"))
    assert done.returncode == 1
    assert line(done) == "gpudoctor: FAIL node07 no-nvlink-path pair:0-1 (NODE, policy wants NVL)"


def test_a_long_line_is_cut_between_words_and_says_so(policy: Any) -> None:
    said = line(gate(WELL, "--policy", policy(f"name = '{'node ' * 80}'\n[gpus]\ncount = 8")))
    assert len(said) <= 240 and said.endswith(" node node...")


def test_a_warning_of_the_policy_holds_nothing_back(policy: Any) -> None:
    done = gate(CARDS, "--policy", policy("[pairs]\npath = 'NVL'\nseverity = 'warning'"))
    assert done.returncode == 0 and "1 warning" in line(done)


def test_an_idle_pcie_reading_is_no_pass(policy: Any) -> None:
    for host, generation in ((CONSUMER, 4), (WELL, 5)):
        done = gate(host, "--policy", policy(f"on_unknown = 'let-through'\n[pcie]\ngeneration = {generation}"))
        assert done.returncode == 3, "on_unknown is the prolog's to obey: the gate's status stays"
        assert line(done).startswith("gpudoctor: UNKNOWN node07 pcie.generation of the policy (GPU0 (")
    assert gate(CONSUMER, "--policy", policy("[pcie]\ngeneration = 5")).returncode == 1  # these cards are Gen4 at most


def test_what_must_be_readable(policy: Any, tmp_path: Path) -> None:
    text = policy("require_readable = ['kernel-log']")
    assert gate(WELL, "--policy", text).returncode == 0
    host = tmp_path / "host"
    host.mkdir()
    for file in (FIXTURES / "hosts" / WELL).iterdir():
        if file.is_file() and file.name != "dmesg.out":
            (host / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((host / "manifest.json").read_text())
    manifest["probes"] = [p for p in manifest["probes"] if p["id"] != "dmesg"]
    (host / "manifest.json").write_text(json.dumps(manifest))
    done = gate(str(host), "--policy", text)
    assert done.returncode == 3 and "require_readable kernel-log of the policy" in line(done)
    assert gate(str(host)).returncode == 0


def test_accepted_until_a_day(policy: Any) -> None:
    def accept(until: str) -> Any:
        return gate(
            BOARD,
            "--format",
            "json",
            "--policy",
            policy(f"[[accept]]\nslug = 'nvlink-down'\nreason = 'board on order'\nuntil = {until}"),
        )

    still, past = accept("2999-01-01"), accept("2020-01-01")
    assert (still.returncode, past.returncode) == (0, 1)
    (entry,) = json.loads(past.stdout)["gate"]["accepted"]
    assert entry["expired"] and entry["slug"] == "nvlink-down" and entry["reason"] == "board on order"
    told = json.loads(still.stdout)
    assert told["gate"]["accepted"][0]["expired"] is False
    notes = [f for r in told["results"] for f in r["findings"] if f["slug"] == "nvlink-down"]
    assert [f["severity"] for f in notes] == ["note"] and "Accepted until 2999-01-01: board on order" in notes[0][
        "message"
    ]


def test_only_the_jobs_gpus_hold_it_back() -> None:
    assert gate(BOARD, env={"SLURM_JOB_GPUS": "0,1"}).returncode == 0
    assert gate(BOARD, env={"SLURM_JOB_GPUS": "0,2"}).returncode == 1
    assert gate(HANGS, env={"SLURM_JOB_GPUS": "0,2"}).returncode == 3, "a driver that hangs has lost no GPU"
    gone = gate(BOARD, env={"SLURM_JOB_GPUS": "0,7"})
    assert gone.returncode == 1 and "gpu:7 (not in the driver's list, policy wants GPU 7 (SLURM_JOB_GPUS=0,7))" in line(
        gone
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gpus]\ncuont = 8", b"p.toml:2: gpus.cuont: unknown key; did you mean gpus.count?"),
        ("[measured]\nmin_busbw = '280 GiB/s'", b"p.toml:2: measured.min_busbw: '280 GiB/s'"),
        ("[gpus", b"p.toml:1: no TOML"),
    ],
)
def test_a_bad_policy_is_2_with_nothing_on_stdout(policy: Any, text: str, said: bytes) -> None:
    for words in ((), ("--validate",)):
        done = gate(WELL, "--policy", policy(text), *words)
        assert (done.returncode, done.stdout) == (2, b"") and said in done.stderr


@pytest.mark.parametrize(
    "words",
    [("--policy", "/nonexistent.toml"), ("--policy", "h100"), ("--validate",), ("--learn", "--policy", "h100-sxm-x8"), ("-o", "x.toml"),
     ("-o", "x.doc"), ("--nonsense",)],
)  # fmt: skip
def test_wrong_usage_is_2_with_nothing_on_stdout(words: tuple[str, ...]) -> None:
    done = gate(WELL, *words)
    assert (done.returncode, done.stdout) == (2, b"") and done.stderr


def test_a_recorded_host_is_refused_without_test() -> None:
    done = gpudoctor("gate", env={"GPUDOCTOR_PROBE_DIR": str(FIXTURES / "hosts" / WELL)})
    assert (done.returncode, done.stdout) == (2, b"") and b"--test" in done.stderr
    assert b"answered from" in gate(WELL, "-v").stdout.replace(b"\n      ", b" ")


def test_validate(policy: Any) -> None:
    done = gpudoctor("gate", "--validate", "--policy", policy("[gpus]\ncount = 8"))
    assert done.returncode == 0 and b"in order" in done.stdout
    assert gpudoctor("gate", "--list").stdout.split() == [
        b"a100-sxm-x8",
        b"h100-sxm-x8",
        b"h200-sxm-x8",
        b"l40s-x4",
        b"rtx4090-x2",
    ]


def test_learn_and_hold_against_it(tmp_path: Path) -> None:
    path = tmp_path / "learned.toml"
    done = gate(WELL, "--learn", "-o", str(path))
    assert done.returncode == 0 and line(done).endswith(f"; written: {path}")
    assert gate(WELL, "--policy", str(path)).returncode == 0
    assert gate("h100x8-one-nvlink-down", "--policy", str(path)).returncode == 1


def test_nothing_is_learned_from_a_sick_or_unread_node(tmp_path: Path) -> None:
    for host, status in ((BOARD, 1), (HANGS, 3)):
        done = gate(host, "--learn", "-o", str(tmp_path / "learned.toml"))
        assert done.returncode == status and line(done).endswith("; no policy was written")
        assert list(tmp_path.iterdir()) == []


def test_every_format_at_once(tmp_path: Path) -> None:
    names = ("r.json", "r.xml", "r.prom", "r.txt")
    done = gate(BOARD, "--policy", "a100-sxm-x8", *(w for n in names for w in ("-o", str(tmp_path / n))))
    assert done.returncode == 1 and line(done).startswith("gpudoctor: FAIL node07 nvlink-down gpu:0000:81:00.0")
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["gate"]["line"] == line(done) and told["gate"]["rules"]["broken"] > 0 and told["verdict"] == "fail"
    (own,) = [r for r in told["results"] if r["slug"] == "policy"]
    assert own["code"] == "GD901" and own["status"] == "found"
    assert any("nothing was measured" in note for note in told["notes"])
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()[0]
    assert "GD901 policy" in {c.attrib["name"] for c in suite.findall("testcase") if c.find("failure") is not None}
    assert 'slug="policy",severity="error"' in (tmp_path / "r.prom").read_text()
    assert (tmp_path / "r.txt").read_text().startswith(line(done))


def test_nagios_numbers(policy: Any) -> None:
    for host, status in ((WELL, 0), (ACS, 1), (BOARD, 2), (HANGS, 3)):
        done = gate(host, "--format", "nagios")
        assert done.returncode == status and done.stdout.startswith(b"GPUDOCTOR ")
    assert gate(WELL, "--format", "nagios", "--policy", policy("[gpu")).returncode == 3


def measured(folder: Path, text: str, **env: str) -> tuple[int, dict[str, Any]]:
    """With a fake all_reduce_perf: eight GPUs of a recorded host."""
    path = folder / "m.toml"
    path.write_text(text)
    words = ("--format", "json", "--policy", str(path), "--nccl-tests", str(FAKE_TESTS))
    done = gate(WELL, *words, env={"FAKE_DIR": str(folder), "TMPDIR": str(folder), **env})
    return done.returncode, json.loads(done.stdout)


def test_the_policy_says_what_is_measured(tmp_path: Path) -> None:
    status, told = measured(tmp_path, "[measured]\ngpus = 2\nmin_busbw = '1 GB/s'")
    assert status == 0, told["gate"]
    assert told["gate"]["rules"] == {"met": 1, "broken": 0, "unknown": 0} and told["bandwidth"]["ranks"] == 2
    assert {r["slug"]: r["status"] for r in told["results"]}["busbw-low"] in ("ok", "skipped", "found")
    status, told = measured(tmp_path, "[measured]\ngpus = 2\nmin_busbw = '900 GB/s'")
    assert status == 1 and "policy wants 900 GB/s" in told["gate"]["line"]


def test_a_generation_waits_for_the_measurement(tmp_path: Path) -> None:
    """The open question is no reason against measuring; without a reading under load it stays open."""
    status, told = measured(tmp_path, "[pcie]\ngeneration = 5\n[measured]\ngpus = 2\nmin_busbw = '1 GB/s'")
    assert status == 3 and told["bandwidth"]["ranks"] == 2
    assert {o["rule"] for o in told["gate"]["not_met"]} == {"pcie.generation"}


def test_bandwidth_without_a_policy(tmp_path: Path) -> None:
    probes = {"FAKE_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = gate(WELL, "--bandwidth", "--nccl-tests", str(FAKE_TESTS), "--format", "json", env=probes)
    told = json.loads(done.stdout)
    assert told["bandwidth"]["ranks"] == 8 and told["gate"]["policy"] is None and done.returncode == told["exit_code"]


def test_only_the_jobs_gpus_are_measured(tmp_path: Path) -> None:
    status, told = measured(tmp_path, "[measured]\nmin_busbw = '1 GB/s'", SLURM_JOB_GPUS="4,6")
    assert [g["index"] for g in told["bandwidth"]["gpus"]] == [4, 6] and told["gate"]["gpus"]["judged"] == [4, 6]
    assert status == 0, told["gate"]


def test_what_cannot_be_measured_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text("[measured]\nmin_busbw = '1 GB/s'")
    done = gate(WELL, "--policy", str(path), "--python", "/nowhere/python", env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 3 and line(done).startswith("gpudoctor: UNKNOWN ")


def test_the_catalogue_has_what_the_gate_says() -> None:
    assert b"GD901" in gpudoctor("explain", "policy").stdout and b"GD901" in gpudoctor("checks").stdout


def test_a_policy_is_read_whole_or_refused(tmp_path: Path) -> None:
    """Of one that was cut, or came to nothing on its way here, no rule would hold the node back."""
    long = tmp_path / "long.toml"
    long.write_text("#" + (1 << 20) * "x" + "\n[gpus]\ncount = 99\n")
    empty = tmp_path / "empty.toml"
    empty.write_text("\n")
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path, words in ((long, b"larger than 1024 KiB"), (empty, b"is empty"), (pipe, b"a pipe that was not closed")):
        done = gate(WELL, "--policy", str(path), "--no-bandwidth")
        assert (done.returncode, done.stdout) == (2, b"") and words in done.stderr
    marked = tmp_path / "marked.toml"
    marked.write_bytes(b"\xef\xbb\xbf[gpus]\r\ncount = 9\r\n")  # as an editor of Windows writes it
    assert gate(WELL, "--policy", str(marked)).returncode == 1


def test_one_gpu_has_nothing_to_reach_with_others(policy: Any) -> None:
    assert gate("h100-pod-one-of-eight", "--policy", policy('[measured]\nmin_busbw = "280 GB/s"')).returncode == 0
    asked = gate("h100-pod-one-of-eight", "--policy", policy('[measured]\ngpus = 8\nmin_busbw = "280 GB/s"'))
    assert asked.returncode == 3 and "8 GPUs were asked for" in line(asked)


def test_an_allocation_that_cannot_be_read_is_not_known() -> None:
    done = gate(WELL, env={"SLURM_JOB_GPUS": "gpu:2"})
    assert done.returncode == 3 and "gpu:2 is neither a GPU's number nor its UUID" in line(done)


def test_what_is_learned_goes_where_it_was_asked_to_go_or_nowhere(tmp_path: Path) -> None:
    for words in (("-o", str(tmp_path / "p.json")), ("-o", str(tmp_path / "p.toml"), "-o", str(tmp_path / "p.txt")), ("--format", "json")):
        done = gate(WELL, "--learn", *words)
        assert (done.returncode, done.stdout) == (2, b"") and not list(tmp_path.iterdir())
