"""A capture promises two things: it is judged as the host itself was, and nothing private is in it."""

from __future__ import annotations

import base64
import json
import os
import re
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from gpudoctor.cli.main import cli
from gpudoctor.collect.collector import collect, replay
from gpudoctor.collect.redact import redact
from gpudoctor.collect.save import save
from gpudoctor.discover import load
from gpudoctor.ingest import take
from gpudoctor.judge import judge
from gpudoctor.read.source import open_path
from gpudoctor.report.jsonout import envelope
from tests.fakes import BIN, HOST
from tests.golden import HOSTS
from tests.support import FIXTURES, gpudoctor, report

NAMES = sorted(p.name for p in HOSTS.iterdir())


def judged(intake):
    got = envelope(judge(intake, load(), {}))
    return {key: got[key] for key in ("verdict", "facts", "results", "diagnoses", "missing")}


# --- judged as the host itself


# A look starts fourteen interpreters: these three differ most, and the replay below has every host.
@pytest.mark.parametrize("name", ["h200x2-vm", "h100x8-nvidia-smi-hangs", "l40sx2-acs-redirect"])
def test_live_and_captured_are_judged_alike(name, tmp_path, monkeypatch):
    """A look at this machine with nvidia-smi, lspci and dmesg played from a bundled host, then the same look written and read."""
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_HOST", str(HOSTS / name))
    snapshot, _ = collect(job=False, deadline_s=60)
    save(redact(snapshot, hosts=[os.uname().nodename]), str(tmp_path / "s.tar.gz"))
    live = judged(take([snapshot]))
    assert live["results"] and live == judged(take((), open_path(str(tmp_path / "s.tar.gz"))))


@pytest.mark.parametrize("name", NAMES)
def test_replayed_and_captured_are_judged_alike(name, tmp_path):
    """Every probe's answer is the bundled host's own, that of the job included."""
    snapshot = replay(str(HOSTS / name), job=True)
    save(redact(snapshot), str(tmp_path / "s"))
    assert judged(take([snapshot])) == judged(take((), open_path(str(tmp_path / "s"))))


def test_captured_twice_is_the_same_to_the_byte(tmp_path):
    for name in ("a.tar.gz", "b.tar.gz"):
        done = CliRunner(env={"GPUDOCTOR_PROBE_DIR": str(HOST)}).invoke(cli, ["capture", "-o", str(tmp_path / name)])
        assert "Wrote" in done.stdout
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_two_captures_of_one_unchanged_host_show_no_change(tmp_path, monkeypatch):
    env = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    for name in ("a", "b.tar.gz"):
        assert gpudoctor("capture", "-o", str(tmp_path / name), env=env).returncode == 0
    done = CliRunner().invoke(cli, ["diff", str(tmp_path / "a"), str(tmp_path / "b.tar.gz")])
    assert done.exit_code == 0 and "one host over time" in done.stdout, done.stdout


# --- nothing private

UUIDS = ("8932f937-d72c-4106-c12f-20bd9faed9f6", "0e3fd1d4-2b5f-4c50-9a86-5a0d4f3c5e11")
PRIVATE = {
    "host": "qhost7prod", "domain": "corp-internal", "user": "qalice7", "other user": "qmallory9", "uuid 0": UUIDS[0], "uuid 1": UUIDS[1],
    "uuid begun": UUIDS[0][:8], "serial 0": "1650522011234", "serial 1": "1650522019876", "chassis": "1821325190011", "board serial": "MT2224X01234",
    "mac": "3c:ec:ef:12:34:56", "interface": "enx3cecef123456", "guid": "506b:4b03:00c3:d4e6", "guid 0x": "0x506b4b0300c3d4e6",
    "ipv4": "10.77.12.3", "ipv6": "2a01:4f8:c0c:9d21::42", "machine id": "0123456789abcdef0123456789abcdee",
    "HF_TOKEN": "hf_QwErTyUiOpAsDfGh", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENG", "AWS_ACCESS_KEY_ID": "AKIAQ7EXAMPLE77",
    "WANDB_API_KEY": "0a1b2c3d4e5f60718293", "PROJECT_NAME": "secret-merger", "DATABASE_URL": "postgres-qdb7", "password": "hunter2hunter2",
    "program": "/opt/acme/qtrainer7", "argument": "--lr-of-the-secret-run", "mail": "q.person@corp-internal.example",
}  # fmt: skip
P = PRIVATE
VARIABLES = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "WANDB_API_KEY", "PROJECT_NAME", "DATABASE_URL")


def planted(folder: Path) -> Path:
    """The played two H200 with private details wherever tools print such (synthetic), beside children's answers that have them too."""
    folder.mkdir()
    manifest = json.loads((HOST / "manifest.json").read_text())
    manifest["host"] = P["host"]
    xml = (HOST / "smi-q-x.xml").read_text()
    for number in (0, 1):
        xml = xml.replace(f"00000000-0000-0000-0000-00000000000{number + 1}", UUIDS[number])
    xml = xml.replace("1650000000001", P["serial 0"]).replace("1650000000002", P["serial 1"])
    xml = xml.replace("<chassis_serial_number>N/A<", f"<chassis_serial_number>{P['chassis']}<")
    process = f"<process_info><pid>77</pid><type>C</type><process_name>{P['program']} {P['argument']} --data /home/{P['user']}/d</process_name></process_info>"
    xml = xml.replace("<processes>", f"<processes>{process}")
    assert all(P[k] in xml for k in ("serial 0", "serial 1", "chassis", "uuid 0", "uuid 1", "program"))
    links = (HOST / "smi-nvlink-s.out").read_text()
    for number in (0, 1):
        links = links.replace(f"00000000-0000-0000-0000-00000000000{number + 1}", UUIDS[number])
    log = (
        f"2026-01-01T00:00:01,000000+00:00 Linux version 6.8.0 (builder@{P['host']}) root=UUID={UUIDS[1]}\n"
        f"2026-01-01T00:00:02,000000+00:00 systemd[1]: Set hostname to <{P['host']}.{P['domain']}>.\n"
        f"2026-01-01T00:00:03,000000+00:00 NVRM: Xid (PCI:0000:00:06): 31, pid=77, name={P['program']}, Ch 00000010\n"
        f"2026-01-01T00:00:04,000000+00:00 NVRM: GPU at PCI:0000:00:06: GPU-{UUIDS[0]}\n"
        f"2026-01-01T00:00:04,100000+00:00 NVRM: GPU Board Serial Number: {P['serial 0']}\n"
        f"2026-01-01T00:00:05,000000+00:00 mlx5_core 0000:00:06.0 {P['interface']}: link up {P['mac']} {P['ipv4']} {P['ipv6']}\n"
        f"2026-01-01T00:00:06,000000+00:00 pcieport 0000:00:01.0: AER: Corrected error received: 0000:00:06.0 user {P['other user']}\n"
    )
    listing = (
        f"0000:00:06.0 3D controller [0302]: NVIDIA Corporation Device [10de:2335]\n\tCapabilities: [100] Device Serial Number 48-b0-2d-ff-ff-12-34-56\n"
        f"\t\t\t[SN] Serial number: {P['board serial']}\n\t\t\t[V0] Vendor specific: {P['board serial']}X{P['chassis']}\n"
    )
    environment = {**{n: P[n] for n in VARIABLES}, "HOSTNAME": P["host"], "USER": P["user"], "NCCL_SOCKET_IFNAME": P["interface"],
                   "NCCL_DEBUG_FILE": f"/home/{P['user']}/nccl.log", "NCCL_HOSTID": P["host"], "CUDA_VISIBLE_DEVICES": f"GPU-{P['uuid begun']}",
                   "MASTER_ADDR": P["ipv4"], "NVIDIA_VISIBLE_DEVICES": f"GPU-{UUIDS[0]},GPU-{UUIDS[1]}"}  # fmt: skip
    system = json.loads((HOSTS / "h200x2-vm" / "system.json").read_text())
    system["machine"].update(hostname=f"{P['host']}.{P['domain']}", cmdline=f"root=UUID={UUIDS[1]} systemd.machine_id={P['machine id']} ip={P['ipv4']}")
    system.update(environment=environment, settings_files={"~/.nccl.conf": f"NCCL_SOCKET_IFNAME={P['interface']}\nNCCL_NET_API_TOKEN={P['HF_TOKEN']}\n# {P['mail']}\n"})
    job = {
        "probe": "gpudoctor.job", "schema": 1, "nvml_problem": None, "minors": {"0": "0000:00:06.0"}, "more": 0,
        "processes": [{"pid": 77, "name": P["program"], "cmdline": [P["program"], P["argument"], f"/home/{P['user']}/x"], "nvml_gpus": ["0000:00:06.0"],
                       "cpus": "0-31", "mems": "0", "environment": environment, "cwd": f"/home/{P['user']}", "unreadable": None}],
    }  # fmt: skip
    pci = json.loads((HOSTS / "h200x2-vm" / "pci.json").read_text())
    pci["infiniband"] = {"mlx5_0": {"node_guid": P["guid"], "sys_image_guid": P["guid 0x"], "node_desc": f"{P['host']} mlx5_0", "ports": {}}}
    pci["net"][P["interface"]] = "/sys/devices/pci0000:00/0000:00:03.0/virtio2"
    tests = json.loads((FIXTURES / "outputs" / "nccl-tests-json" / "h200x2-nvlink.json").read_text())
    tests["env"] += [f"{n}={P[n]}" for n in VARIABLES] + [f"NCCL_HOSTID={P['host']}"]
    tests["args"][0] = f"/home/{P['user']}/nccl-tests/build/all_reduce_perf"
    tests["hostname"] = P["host"]
    extra = {
        "system": ("system.json", json.dumps(system) + "\n"), "job": ("job.json", json.dumps(job) + "\n"), "pci": ("pci.json", json.dumps(pci) + "\n"),
        "lspci": ("lspci.out", listing), "nccl-tests": ("nccl-tests.out", json.dumps(tests) + "\n"),
        f"extra-of-{P['user']}": ("notes.out", f"{P['user']}@{P['host']}:~$ env\nHF_TOKEN={P['HF_TOKEN']}\npassword: {P['password']}\nhttps://{P['user']}:{P['password']}@mirror/\n/home/{P['other user']}/x {P['mail']}\n"),
    }  # fmt: skip
    texts = {"smi-q-x": xml, "smi-nvlink-s": links, "dmesg": log}
    for probe in manifest["probes"]:
        probe.pop("sha256", None)
        (folder / probe["file"]).write_text(texts.get(probe["id"]) or (HOST / probe["file"]).read_text())
    for probe, (file, content) in extra.items():
        manifest["probes"].append({"id": probe, "argv": [probe, f"--user={P['user']}"] if probe.startswith("extra") else [probe], "file": file, "status": "ok", "rc": 0})
        (folder / file).write_text(content)
    # What a tool complains of stands in its standard error.
    manifest["probes"].append({"id": "nvml", "argv": ["x"], "file": None, "err": "nvml.err", "status": "exit", "rc": 1})
    (folder / "nvml.err").write_text(f"cannot open /home/{P['user']}/.cache on {P['host']}: connect {P['ipv4']}\n")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def disguises(value: str) -> set[bytes]:
    """As it stands, and as programs like to write it."""
    raw = value.encode()
    plain = {raw, raw.upper(), raw.lower(), quote(value, safe="").encode(), json.dumps(value)[1:-1].encode(), raw.hex().encode()}
    for shift in range(3):  # base64 of a longer text that holds it, at any place
        whole = base64.b64encode(b"\0" * shift + raw)
        plain.add(whole[4 if shift else 0 : -4])
    return {p for p in plain if len(p) >= 6}


def found_in(whole: dict[str, bytes]) -> list[str]:
    out = []
    for kind, value in PRIVATE.items():
        for shape in disguises(value):
            out += [f"{kind} in {name}" for name, content in whole.items() if shape in content or shape in name.encode()]
    return sorted(set(out))


def contents_of(path: Path) -> dict[str, bytes]:
    if path.is_dir():
        return {f.name: f.read_bytes() for f in path.iterdir()}
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}


@pytest.mark.parametrize("name", ["s", "s.tar.gz"])
def test_no_planted_detail_is_in_any_file_of_a_capture(tmp_path, name, monkeypatch):
    folder = planted(tmp_path / "host")
    before = contents_of(folder)
    missing = [kind for kind in PRIVATE if not any(f.startswith(f"{kind} in ") for f in found_in(before))]
    assert missing == [], "the search finds all of them where they were planted"
    done = gpudoctor("capture", "--job", "-o", str(tmp_path / name), env={"GPUDOCTOR_PROBE_DIR": str(folder)})
    assert b"Wrote" in done.stdout, done.stderr
    whole = contents_of(tmp_path / name)
    assert len(whole) > 15 and found_in(whole) == []
    assert not [kind for kind, value in PRIVATE.items() if value.encode() in done.stdout.replace(str(tmp_path).encode(), b"")]


def test_stand_ins_still_say_which_is_which(tmp_path):
    """The same UUID, serial and host in many files is still the same; what the judgement rests on stays."""
    folder = planted(tmp_path / "host")
    gpudoctor("capture", "--job", "-o", str(tmp_path / "s"), env={"GPUDOCTOR_PROBE_DIR": str(folder)})
    whole = {n: c.decode() for n, c in contents_of(tmp_path / "s").items()}
    first, second = re.findall("<uuid>(GPU-[^<]*)<", whole["smi-q-x.xml"])
    uuids = json.loads(whole["system.json"])["environment"]
    assert uuids["CUDA_VISIBLE_DEVICES"] == first and uuids["NVIDIA_VISIBLE_DEVICES"] == f"{first},{second}"
    assert first in whole["smi-q-x.xml"] and f"(UUID: {first})" in whole["smi-nvlink-s.out"] and first in whole["dmesg.out"]
    label = json.loads(whole["manifest.json"])["host"]
    assert label.startswith("host-") and uuids["NCCL_HOSTID"] == label and json.loads(whole["system.json"])["machine"]["hostname"] == label
    assert json.loads(whole["system.json"])["environment"]["PROJECT_NAME"] == "redacted"
    status, original = report("check", "--from", str(folder))
    again, covered = report("check", "--from", str(tmp_path / "s"))
    assert status == again and original["facts"]["gpus"] == covered["facts"]["gpus"] and original["facts"]["xid"] == covered["facts"]["xid"]
    assert [(r["slug"], r["status"], len(r["findings"])) for r in original["results"]] == [(r["slug"], r["status"], len(r["findings"])) for r in covered["results"]]


def test_this_machines_own_names_and_environment_stay_here(tmp_path):
    """Live: the children look at this very process's environment, user and host name."""
    env = {**{n: P[n] for n in VARIABLES}, "USER": P["user"], "LOGNAME": P["user"], "HOME": f"/home/{P['user']}", "HOSTNAME": P["host"],
           "SLURMD_NODENAME": P["host"], "NCCL_DEBUG_FILE": f"/home/{P['user']}/nccl.log", "NCCL_SOCKET_IFNAME": P["interface"], "PATH": f"{BIN}:{os.environ['PATH']}"}  # fmt: skip
    done = gpudoctor("capture", "--job", "-o", str(tmp_path / "s"), env=env)
    assert b"Wrote" in done.stdout
    whole = contents_of(tmp_path / "s")
    assert "NCCL_SOCKET_IFNAME" in whole["system.json"].decode() and found_in(whole) == []
    own = os.uname().nodename.split(".")[0].encode()
    assert len(own) < 6 or not [name for name, content in whole.items() if own in content]
