"""`gpudoctor bandwidth` with a FAKE all_reduce_perf on a made-up host: what is run, what is said, what is left behind."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.heroes import healthy_board
from tests.hosts.make import files
from tests.support import FIXTURES, ROOT, gpudoctor, report, slugs

FAKE = ROOT / "tests" / "fakes" / "nccl_tests"
OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
COMMAND = ("bandwidth", "--gpus", "2", "--nccl-tests", str(FAKE), "--no-host-copies", "--python", "/nowhere/python")


class Host:
    """A made-up host in a folder, and the calls that the fake program saw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.probes = folder / "host"
        self.probes.mkdir()
        for name, text in files(healthy_board()).items():
            (self.probes / name).write_text(text)
        self.env = {"GPUDOCTOR_PROBE_DIR": str(self.probes), "FAKE_DIR": str(folder), "TMPDIR": str(folder)}

    def conf(self, text: str) -> None:
        """The host's /etc/nccl.conf: in the facts, and for the fake program to obey."""
        system = self.probes / "system.out"
        said = json.loads(system.read_text())
        said["settings_files"] = {"/etc/nccl.conf": text}
        system.write_text(json.dumps(said) + "\n")
        manifest = json.loads((self.probes / "manifest.json").read_text())
        for probe in manifest["probes"]:
            if probe["id"] == "system":
                probe["bytes"], probe["sha256"] = len(system.read_bytes()), None
        (self.probes / "manifest.json").write_text(json.dumps(manifest))
        (self.folder / "nccl.conf").write_text(text)
        self.env["FAKE_NCCL_CONF"] = str(self.folder / "nccl.conf")

    def run(self, *words: str, **env: str) -> tuple[int, dict[str, Any]]:
        # A Python without PyTorch: these tests are about the programs, and every import of it would cost seconds.
        command = ["/bin/false" if w == "/nowhere/python" else w for w in COMMAND]
        return report(*command, "--engine", "nccl-tests", *words, env={**self.env, **env})

    @property
    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def host(tmp_path: Path) -> Any:
    yield Host(tmp_path)
    assert glob.glob(f"{tmp_path}/gpudoctor-*") == []
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (left := alive(tmp_path)):
        time.sleep(0.05)
    assert not alive(tmp_path), left


def alive(folder: Path) -> list[str]:
    found = []
    for process in glob.glob("/proc/[0-9]*"):
        try:
            if b"all_reduce_perf" in Path(process, "cmdline").read_bytes() and str(folder).encode() in Path(process, "environ").read_bytes():
                found.append(process)
        except OSError:
            continue
    return found


def test_a_sound_host_passes_and_says_by_what_it_is_judged(host: Host) -> None:
    status, said = host.run(**OFF)
    assert (status, said["verdict"]) == (0, "pass")
    (run,) = said["facts"]["bandwidth"]
    assert run["completed"] and run["program"] == "all_reduce_perf" and [g["device"] for g in run["gpus"]] == [0, 1]
    assert max(row["size"] for row in run["rows"]) == 1 << 30
    own = said["bandwidth"]
    assert own["engine"] == "nccl-tests" and own["ratio"] and own["trials"] == [] and own["spread_pct"] == 0.0
    assert [o["kind"] for o in own["expected"] if o["used"]] and {"wire"} <= {o["kind"] for o in own["expected"]}
    first = host.calls[0]["env"]
    assert first["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" and first["NCCL_DEBUG"] == "INFO"
    assert first["CUDA_VISIBLE_DEVICES"].count("GPU-") == 2


def test_a_variable_is_found_and_named_with_its_gain(host: Host) -> None:
    status, said = host.run(NCCL_P2P_DISABLE="1", NCCL_IB_HCA="mlx5", **OFF)
    assert status == 1
    first = said["diagnoses"][0]
    assert first["cause"] == "p2p-disabled-env" and "busbw-low" in first["explains"]
    assert first["gain"]["from"] < 30 and first["gain"]["to"] > 300
    assert "NCCL_P2P_DISABLE=1 costs 9" in said["bandwidth"]["sentence"]
    assert [t["setting"]["name"] for t in said["bandwidth"]["trials"] if t["culprit"]] == ["NCCL_P2P_DISABLE"]


def test_what_nccl_expects_without_the_setting_is_an_opinion_and_never_what_it_expects_with_it(host: Host) -> None:
    _, said = host.run(NCCL_P2P_DISABLE="1", **OFF)
    graph = next(o for o in said["bandwidth"]["expected"] if o["kind"] == "graph")
    assert graph["gbs"] == 360 and graph["why_not"] is None and "a run without NCCL_P2P_DISABLE (12 x 30)" in graph["words"]
    _, said = host.run("--no-bisect", NCCL_P2P_DISABLE="1", **OFF)
    graph = next(o for o in said["bandwidth"]["expected"] if o["kind"] == "graph")
    assert graph["gbs"] == 44 and "made under NCCL_P2P_DISABLE=1" in graph["why_not"] and not graph["used"]


def test_multicast_stays_off_in_every_program_that_is_started(host: Host) -> None:
    status, said = host.run(NCCL_P2P_DISABLE="1", NCCL_IB_HCA="mlx5", NCCL_MAX_NCHANNELS="12", **OFF)
    assert status == 1 and len(host.calls) > 5
    assert any("NCCL_P2P_DISABLE" not in call["env"] for call in host.calls)
    for call in host.calls:
        assert {n: call["env"].get(n) for n in OFF} == OFF
    assert any("stays set in every run" in note and "lowers what can be expected" in note for note in said["bandwidth"]["notes"])


def test_multicast_off_in_the_hosts_file_is_kept_too(host: Host) -> None:
    host.conf("NCCL_NVLS_ENABLE=0\nNCCL_MAX_NCHANNELS=2\n")
    clean = dict.fromkeys(OFF, "")
    status, said = host.run(**{k: v for k, v in clean.items() if k != "NCCL_NVLS_ENABLE"})
    assert status == 1 and said["bandwidth"]["trials"]
    assert all(call["env"]["NCCL_NVLS_ENABLE"] == "0" for call in host.calls)


def test_a_line_of_the_file_is_overridden_and_named(host: Host) -> None:
    host.conf("# by the site\nNCCL_MAX_NCHANNELS=2\n")
    status, said = host.run()
    assert status == 1
    blamed = next(d for d in said["diagnoses"] if d["cause"] == "nccl-env")
    assert "NCCL_MAX_NCHANNELS=2 in /etc/nccl.conf (line 2)" in blamed["summary"] and blamed["gain"]["to"] > 300


def test_peer_to_peer_off_in_the_file_is_tried_on_request_only(host: Host) -> None:
    host.conf("NCCL_P2P_DISABLE=1\n")
    status, said = host.run()
    assert status == 1
    assert all(call["env"]["NCCL_P2P_DISABLE"] == "1" for call in host.calls)
    assert any("--allow-p2p" in (t["reason"] or "") for t in said["bandwidth"]["trials"])
    status, said = host.run("--allow-p2p")
    assert status == 1 and said["diagnoses"][0]["cause"] == "p2p-disabled-env" and said["diagnoses"][0]["gain"]["to"] > 300


def test_a_limit_of_ones_own_counts_first(host: Host) -> None:
    assert host.run("--min-busbw", "300")[0] == 0
    status, said = host.run("--min-busbw", "1000", "--no-bisect")
    assert status == 1 and slugs(said, "error") >= {"busbw-low"}


def test_a_hang_is_ended_with_everything_it_started(host: Host) -> None:
    status, said = host.run("--hang-after", "2", "--no-bisect", FAKE_MODE="hang")
    assert status == 1 and "bandwidth-failed" in slugs(said, "error")
    failure = said["facts"]["bandwidth"][0]["failures"][0]
    assert "hung" in failure and "Connected all rings" in failure  # the last line of NCCL's log


def test_after_a_hang_it_is_said_whether_it_works_without_peer_to_peer(host: Host) -> None:
    status, said = host.run("--hang-after", "2", FAKE_MODE="p2phang")
    assert status == 1 and "bandwidth-failed" in slugs(said, "error")
    assert any("it is peer to peer that fails here" in note for note in said["bandwidth"]["notes"])
    status, said = host.run("--hang-after", "2", FAKE_MODE="hang")
    assert status == 1 and any("does not work either" in note for note in said["bandwidth"]["notes"])


@pytest.mark.parametrize(
    "mode, slug, words", [("crash", "bandwidth-failed", "ended by signal 11"), ("status3", "bandwidth-failed", "unhandled system error"), ("wrong", "wrong-results", "")]
)
def test_each_way_to_fail_has_its_name(host: Host, mode: str, slug: str, words: str) -> None:
    status, said = host.run("--no-bisect", FAKE_MODE=mode)
    assert status == 1 and slug in slugs(said, "error")
    assert words in " ".join(said["facts"]["bandwidth"][0]["failures"])
    if mode == "wrong":
        assert "bandwidth-failed" not in slugs(said)


def test_a_program_that_cannot_start_is_no_fault_of_the_links(host: Host) -> None:
    status, said = host.run(FAKE_MODE="nolib")
    assert status == 3 and "libnccl.so.2" in said["missing"][0]["reason"] and "bandwidth" not in said["facts"]


def test_without_json_the_text_is_read(host: Host) -> None:
    status, said = host.run(FAKE_MODE="oldhelp")
    assert status == 0 and all("-J" not in call["argv"] for call in host.calls)
    assert said["facts"]["bandwidth"][0]["completed"]


def test_more_gpus_than_there_are_cannot_be_told(host: Host) -> None:
    status, said = host.run("--gpus", "9")
    assert status == 3 and "9 GPUs were asked for, 8 are usable here" in said["missing"][0]["reason"] and host.calls == []


def test_a_gpu_that_is_not_there_cannot_be_told_either(host: Host) -> None:
    status, said = host.run("--gpus", "0,99")
    assert status == 3 and "GPU 99 is not on this host, which has GPU 0 to 7" in said["missing"][0]["reason"] and host.calls == []


def test_one_gpu_without_its_copies_has_nothing_to_measure(host: Host) -> None:
    status, said = host.run("--gpus", "1")
    assert status == 3 and "--no-host-copies leaves them out" in said["missing"][0]["reason"] and host.calls == []


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia"), reason="this host has an NVIDIA driver")
def test_without_a_gpu_that_is_said_before_any_program_is_missed(tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path), "VIRTUAL_ENV": "", "CONDA_PREFIX": "", "GPUDOCTOR_PROBE_DIR": ""}
    status, said = report("bandwidth", "--python", "/nowhere/python", env=bare)
    assert status == 3 and said["missing"][0]["fact"] == "an NVIDIA GPU" and "--backend gloo" in said["missing"][0]["reason"]
    done = gpudoctor("bandwidth", "--python", "/nowhere/python", env=bare)
    assert "no NVIDIA GPU here" in " ".join(done.stdout.decode().split()) and "torch" not in done.stdout.decode()


def test_gpus_are_chosen_by_nvidia_smis_index(host: Host) -> None:
    status, said = host.run("--gpus", "5,2", "--no-bisect")
    assert [g["index"] for g in said["bandwidth"]["gpus"]] == [5, 2]


def test_a_busy_gpu_is_named_with_its_process_unless_forced(host: Host) -> None:
    sleeper = subprocess.Popen(("sleep", "60"))
    try:
        bdf = report("facts", env=host.env)[1]["facts"]["gpus"][1]["bdf"]
        process = {"pid": sleeper.pid, "nvml_gpus": [bdf], "name": "train.py", "unreadable": None}
        text = json.dumps({"probe": "gpudoctor.job", "schema": 1, "processes": [process]}) + "\n"
        (host.probes / "job.out").write_text(text)
        manifest = json.loads((host.probes / "manifest.json").read_text())
        manifest["probes"].append({"id": "job", "argv": [], "file": "job.out", "status": "ok", "rc": 0, "seconds": 0.1, "sha256": None, "bytes": len(text)})
        (host.probes / "manifest.json").write_text(json.dumps(manifest))
        status, said = host.run()
        assert status == 3 and f"process {sleeper.pid} (train.py) on GPU1" in said["missing"][0]["reason"] and host.calls == []
        assert host.run("--gpus", "0,3")[0] == 0
        assert host.run("--force")[0] == 0
    finally:
        sleeper.kill()
        sleeper.wait()


def test_pairs_give_a_matrix(host: Host) -> None:
    status, said = host.run("--gpus", "4", "--pairs", "--no-bisect")
    assert len(said["facts"]["pair_bandwidth"]) == 6
    done = gpudoctor(*COMMAND[:-2], "--gpus", "4", "--pairs", "--no-bisect", "--engine", "nccl-tests", env=host.env)
    assert "Pairs, all_reduce busbw in GB/s" in done.stdout.decode()


def test_a_slow_gpu_of_eight_is_found_in_six_pairs_and_named_with_its_links(host: Host) -> None:
    uuid = uuid_of(host, 5)
    status, said = host.run("--gpus", "8", FAKE_SLOW=uuid)
    assert status == 1 and said["bandwidth"]["pair_search"] == {"measured": 6, "of": 28, "slow": [[5]], "ended": None}
    first = said["diagnoses"][0]
    bdf = next(g["bdf"] for g in said["facts"]["gpus"] if g["index"] == 5)
    assert (first["cause"], first["subject"]) == ("pair-slow", f"gpu:{bdf}") and "busbw-low" in first["explains"]
    assert "18 of 18 NVLinks up" in first["summary"]
    # What it is was found: the ways that concern all GPUs are not tried.
    assert said["bandwidth"]["trials"] == []


def test_alike_pairs_send_the_search_on_to_the_other_ways(host: Host) -> None:
    status, said = host.run("--gpus", "4", "--min-busbw", "1000")
    assert status == 1 and said["bandwidth"]["pair_search"]["measured"] == 6 and said["bandwidth"]["pair_search"]["slow"] == []
    assert "pair-slow" not in slugs(said) and [t["what"] for t in said["bandwidth"]["trials"]]
    assert any("none stands out" in note for note in said["bandwidth"]["notes"])


def uuid_of(host: Host, index: int) -> str:
    host.run("--gpus", f"{index},{(index + 1) % 8}", "--no-bisect")
    return str(host.calls[-1]["env"]["CUDA_VISIBLE_DEVICES"].split(",")[0])


def test_a_word_in_the_hosts_file_is_overridden_by_what_means_the_default(host: Host) -> None:
    host.conf("NCCL_ALGO=Tree\nNCCL_NET=Socket\nNCCL_MAX_NCHANNELS=2\n")
    status, said = host.run()
    assert status == 1 and any(call["env"].get("NCCL_ALGO") == "^" for call in host.calls)
    assert all(call["env"]["NCCL_NET"] == "Socket" for call in host.calls)
    (left,) = [t for t in said["bandwidth"]["trials"] if t["reason"]]
    assert left["setting"]["name"] == "NCCL_NET" and "takes any value" in left["reason"]
    assert [t["setting"]["name"] for t in said["bandwidth"]["trials"] if t["culprit"]] == ["NCCL_MAX_NCHANNELS"]


def test_ctrl_c_ends_the_program(host: Host, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **host.env, "FAKE_MODE": "hang"}
    process = subprocess.Popen([sys.executable, "-m", "gpudoctor", *COMMAND[:-2], "--engine", "nccl-tests"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 20
    while time.monotonic() < until and len(alive(tmp_path)) < 2:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130 and out == b"" and b"Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [("--gpus", "x"), ("--gpus", "0,0"), ("--gpus", "0"), ("--sizes", "0"), ("--engine", "nccl-tests", "--backend", "gloo"), ("--min-ratio", "2"), ("--baseline", "/nowhere"), ("--from", "/nowhere/x.txt")],
)
def test_wrong_usage_is_status_2_with_nothing_on_standard_output(host: Host, words: tuple[str, ...]) -> None:
    done = gpudoctor(*COMMAND[:-2], *words, env=host.env)
    assert done.returncode == 2 and done.stdout == b"" and done.stderr


def test_recorded_output_is_judged_as_check_does(host: Host, tmp_path: Path) -> None:
    table = subprocess.run((str(FAKE / "all_reduce_perf"), "-b", "1048576", "-e", "1073741824", "-f", "4", "-g", "2"), capture_output=True, check=True)
    (tmp_path / "run.txt").write_bytes(table.stdout)
    status, said = report("bandwidth", "--from", str(tmp_path / "run.txt"), "--min-busbw", "10000")
    assert status == 1 and "busbw-low" in slugs(said, "error") and said["source"]["kind"] == "recorded"
    assert report("bandwidth", "--from", str(tmp_path / "run.txt"))[0] == 0
    (tmp_path / "nothing.txt").write_text("hello\n")
    assert report("bandwidth", "--from", str(tmp_path / "nothing.txt"))[0] == 3


def test_recorded_output_without_a_measurement_is_no_pass() -> None:
    status, said = report("bandwidth", "--from", str(FIXTURES / "hosts" / "h100x8-nvswitch-healthy"))
    assert status == 3 and said["verdict"] == "unknown"
    assert [m["fact"] for m in said["missing"]][0] == "a bandwidth measurement"
    # A host at fault is told all the same: it says why a measurement would be low.
    assert report("bandwidth", "--from", str(FIXTURES / "hosts" / "h100x8-one-nvlink-down"))[0] == 1
