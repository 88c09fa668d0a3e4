"""`gpudoctor diff` over bundled hosts and changed versions of them (synthetic: made here, by one edit each)."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from click.testing import CliRunner

from gpudoctor.cli.main import cli
from tests.diffs import diff, kinds, messages, run
from tests.golden import HOSTS
from tests.hosts.heroes import REDIRECT, acs_redirect, healthy_4090, no_bridge, sxm_board
from tests.hosts.make import files
from tests.support import gpudoctor

NAMES = sorted(p.name for p in HOSTS.iterdir())
H200 = HOSTS / "h200x2-vm"


def made(folder, hero, change=lambda spec: None):
    """One made-up host, changed, as a snapshot."""
    change(hero.spec)
    folder.mkdir()
    for name, text in files(hero).items():
        (folder / name).write_text(text)
    return folder


def edited(folder, host, **edits):
    """A recorded host with an output changed: the file's name without its suffix -> what is made of its text."""
    shutil.copytree(host, folder)
    for file in folder.iterdir():
        change = edits.pop(file.stem.replace("-", "_"), None)
        if change is not None:
            file.write_text(change(file.read_text()))
    assert not edits, "no such output"
    # The sums are of the outputs as they were recorded; that they no longer fit is another test's business.
    manifest = json.loads((folder / "manifest.json").read_text())
    for probe in manifest["probes"]:
        probe.pop("sha256", None)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_and_itself(name):
    done = run(HOSTS / name, HOSTS / name)
    assert done.exit_code == 0 and "SAME" in done.stdout


# --- one edit, one block, and back the reverse


def narrow(spec):
    spec.gpus[1].dev.width = spec.devices[2].width = 4


def redirect(spec):
    for port in spec.devices[2:4]:
        port.acs = REDIRECT


def no_redirect(spec):
    for port in spec.devices[2:4]:
        port.acs = port.acs.replace("+", "-")


def links_up(spec):
    for gpu in spec.gpus:
        gpu.links = [25.0] * 12
    spec.paths = dict.fromkeys(spec.paths, "NV4")
    spec.p2p = {}


def update(spec):
    spec.driver = "580.95.05"


EDITS = {
    "trained down": (no_bridge, lambda s: None, narrow, "GPU1 (0000:61:00.0): PCIe link 16.0 GT/s x16 -> 16.0 GT/s x4", "16.0 GT/s x4 -> 16.0 GT/s x16", {"pcie-width"}),
    "ACS": (acs_redirect, no_redirect, redirect, "ACS redirect was turned on at 2 bridges: 0000:42:00.0, 0000:42:01.0", "turned off at 2 bridges", {"acs"}),
    "NVLinks": (sxm_board, links_up, lambda s: None, "12 of 12 NVLinks of GPU 2 went down (0-11)", "12 of 12 NVLinks of GPU 2 came up", {"nvlink-down", "path-sys"}),
    "driver": (no_bridge, lambda s: None, update, "driver: 550.54.15 -> 580.95.05", "driver: 580.95.05 -> 550.54.15", set()),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_what_was_changed_is_said_first_and_in_one_block(tmp_path, name):
    host, before, after, words, back, slugs = EDITS[name]
    a, b = made(tmp_path / "a", host(), before), made(tmp_path / "b", host(), after)
    status, got = diff(a, b)
    assert status == 1 and words in messages(got)[0], messages(got)
    first = got["diff"]["changes"][0]
    assert slugs <= {e.get("slug") for e in first["effects"]}
    assert got["diff"]["mode"] == "time" and first["evidence"]
    status, turned = diff(b, a)
    assert status == 1 and any(back in m for m in messages(turned)), messages(turned)
    if slugs:
        assert first["direction"] == "worse" and turned["diff"]["changes"][0]["direction"] == "better"
        assert kinds(got) == [first["kind"]] or name == "NVLinks", messages(got)
    text = run(a, b).stdout
    assert "\nCHANGED  " in text and ("  What   " in text) == bool(slugs) and all(len(x) <= 80 for x in text.splitlines())


def put(**values):
    return lambda text: json.dumps({**(tree := json.loads(text)), "environment": {**tree["environment"], **values}}) + "\n"


def at(key, **values):
    return lambda text: json.dumps({**(tree := json.loads(text)), key: {**tree[key], **values}}) + "\n"


# What is edited in the outputs of two recorded H200, and what is then said first.
RECORDED = {
    "setting": ({"system": put(NCCL_P2P_DISABLE="1")}, "NCCL_P2P_DISABLE=1 was set", "p2p-disabled-env"),
    "shm": ({"system": at("shm", size_bytes=64 << 20)}, "/dev/shm: 256 GiB -> 64 MiB", None),
    "memlock": ({"system": at("limits", memlock=65536)}, "locked memory unlimited: yes -> no", None),
    "kernel": ({"system": at("machine", kernel="6.99.0")}, "kernel: ", None),
    "NCCL": ({"system": at("distributions", **{"nvidia-nccl-cu13": "2.99.1"})}, "NCCL: 2.28.9 -> 2.99.1", None),
    "NVLink": (
        {
            "smi_nvlink_s": lambda text: text.replace("\t Link 3: 26.562 GB/s", "\t Link 3: <inactive>", 1),
            "nvml": lambda text: json.dumps(down(json.loads(text), 0, 3)) + "\n",
            "smi_topo_m": lambda text: text.replace("NV18", "NV17"),
        },
        "NVLink 3 of GPU 0 went down", "nvlink-down",
    ),
    "pair": ({"smi_topo_m": lambda text: text.replace("NV18", "PHB "), "nvml": lambda text: text.replace('"pairs"', '"was"')}, "pair 0-1: NVL -> PHB", "no-nvlink-path"),
    "lanes": (
        {"smi_q_x": lambda text: text.replace("<current_link_width>16x<", "<current_link_width>8x<", 1),
         "nvml": lambda text: text.replace('"width": 16', '"width": 8', 3), "pci": lambda text: text.replace('"current_link_width": "16"', '"current_link_width": "8"', 1)},
        "GPU0 (0000:00:06.0): PCIe link 32.0 GT/s x16 -> 32.0 GT/s x8", None,
    ),
    "Xid": ({"dmesg": lambda text: text + "2026-11-29T20:50:00,000000+00:00 NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus.\n"}, "Xid 79 at GPU0 (0000:00:06.0): 1 new", "xid"),
    "remap": ({"smi_q_x": lambda text: text.replace("<remapped_row_failure>No<", "<remapped_row_failure>Yes<", 1), "nvml": lambda text: text.replace('"remapped_rows"', '"was"')}, "GPU0 (0000:00:06.0): row remap failure no -> yes", "ecc-remap"),
}  # fmt: skip


def down(tree, gpu, link):
    row = next(x for x in tree["gpus"][gpu]["nvlinks"] if x["link"] == link)
    row.update(active=0, state=0)
    return tree


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_edited_on_a_recorded_host_is_what_is_said(tmp_path, name):
    edits, words, slug = RECORDED[name]
    other = edited(tmp_path / "b", H200, **edits)
    status, got = diff(H200, other)
    assert status == 1 and messages(got)[0].startswith(words), messages(got)
    effects = {e.get("slug") for e in got["diff"]["changes"][0]["effects"]}
    assert slug is None or slug in effects, effects
    status, turned = diff(other, H200)
    assert status == 1 and len(turned["diff"]["changes"]) == len(got["diff"]["changes"])


def test_the_same_host_a_minute_later_has_not_changed(tmp_path):
    """What goes on by itself: time, uptime, free memory, work, clocks, small counts."""
    later = edited(
        tmp_path / "b", H200,
        system=lambda t: json.dumps({**(s := json.loads(t)), "shm": {**s["shm"], "free_bytes": s["shm"]["free_bytes"] - (1 << 30)},
                                     "machine": {**s["machine"], "uptime": "99999999.00 1.00"}}) + "\n",
        nvml=lambda t: t.replace('"utilisation_pct": 0', '"utilisation_pct": 97').replace('"at_s": ', '"at_s": 1'),
        manifest=lambda t: t.replace('"captured_at": "2026-11-29T20', '"captured_at": "2026-11-29T21'),
    )  # fmt: skip
    status, got = diff(H200, later)
    assert (status, messages(got), got["missing"]) == (0, [], []) and not got["diff"]["same_recording"]
    assert "Nothing changed" in run(H200, later).stdout


def test_idle_consumer_cards_are_the_same_and_what_that_does_not_prove_is_said(tmp_path):
    a, b = made(tmp_path / "a", healthy_4090()), made(tmp_path / "b", healthy_4090(), lambda s: setattr(s.gpus[0], "util", 1))
    done = run(a, b)
    assert done.exit_code == 0 and "SAME" in done.stdout and "look again while a job runs" in " ".join(done.stdout.split())


def test_idle_beside_busy_is_no_false_alarm(tmp_path):
    def busy(spec):
        for device in spec.devices:
            device.gen = device.max_gen

    a, b = made(tmp_path / "a", healthy_4090(), busy), made(tmp_path / "b", healthy_4090())
    status, got = diff(a, b)
    assert not [m for m in messages(got) if "PCIe" in m and "finding" not in m] or status == 1
    assert "pcie-link" not in kinds(got)
    assert "Expected to vary" in run(a, b, "-v").stdout


# --- two nodes


def test_two_nodes_of_one_kind_are_the_same_but_for_what_differs(tmp_path):
    def renamed(spec):
        spec.system = {"machine": {"hostname": "node08", "uptime": "5.0 1.0"}}

    a, b = made(tmp_path / "a", no_bridge()), made(tmp_path / "b", no_bridge(), renamed)
    manifest = json.loads((b / "manifest.json").read_text())
    (b / "manifest.json").write_text(json.dumps({**manifest, "host": "node08"}))
    status, got = diff(a, b)
    assert (status, got["diff"]["mode"], messages(got)) == (0, "nodes", [])
    assert diff(a, b, "--time")[1]["diff"]["mode"] == "time"


# --- as a command


def test_as_a_user_runs_it(tmp_path):
    sick, well = (str(HOSTS / n) for n in ("h100x8-one-nvlink-down", "h100x8-nvswitch-healthy"))
    done = gpudoctor("diff", well, sick, "-o", "r.json", "-o", "r.txt", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == b"CHANGED NVLink 7 of GPU 5 went down. 1 change, 1 for the worse.\n"
    assert json.loads((tmp_path / "r.json").read_text())["diff"]["changes"] and "CHANGED" in (tmp_path / "r.txt").read_text()
    report = gpudoctor("check", "--from", well, "--format", "json").stdout
    (tmp_path / "well.json").write_bytes(report)
    topo = (HOSTS / "h100x8-nvswitch-healthy" / "smi-topo-m.out").read_bytes()
    (tmp_path / "topo.txt").write_bytes(topo)
    assert gpudoctor("diff", "-", str(tmp_path / "topo.txt"), stdin=topo).returncode == 0
    done = gpudoctor("diff", sick, sick, "--format", "json")
    envelope = json.loads(done.stdout)
    assert set(envelope) >= {"schema_version", "tool", "source", "verdict", "exit_code", "facts", "results", "diagnoses", "missing", "diff"}
    assert envelope["source"] == {"kind": "recorded", "paths": [sick, sick]} and envelope["verdict"] == "pass"


@pytest.mark.parametrize("words", [("a",), (), ("-", "-"), ("/no/such", str(H200)), (str(H200), str(H200), "-o", "r.xml"), (str(H200), str(H200), "--format", "junit")])
def test_wrong_usage(words):
    done = CliRunner().invoke(cli, ["diff", *words])
    assert done.exit_code == 2 and done.stdout == ""


def test_without_utf8_the_page_is_ascii():
    done = gpudoctor("diff", str(H200), str(HOSTS / "h100x8-one-nvlink-down"), env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 1 and done.stdout.isascii()


# --- two nodes: neither was like the other before

OF_TIME = re.compile(r"->|\b(?:went|came|now|was|were|no longer|gone|new|before|since|appeared|changed|added|removed)\b", re.I)
ALL = sorted(p.name for p in HOSTS.iterdir() if (p / "manifest.json").is_file())


@pytest.mark.parametrize(("one", "other"), [*zip(ALL, ALL[1:] + ALL[:1], strict=True), ("h100x8-nvswitch-healthy", "h100x8-one-nvlink-down")])
def test_words_for_two_nodes_speak_of_no_time(one, other):
    _, got = diff(HOSTS / one, HOSTS / other, "--nodes")
    said = [c for change in got["diff"]["changes"] for c in (change, *change["effects"])]
    assert said
    for change in (*said, *got["diff"]["varying"]):
        words = change["message"].partition(":")[0] if change["kind"] == "finding" else change["message"]
        assert not OF_TIME.search(words), change["message"]
    page = run(HOSTS / one, HOSTS / other, "--nodes").stdout
    assert "\nDIFFER   " in page and "worse on B" in page.replace("better on B", "worse on B")
    assert "CHANGED" not in page and "for the worse" not in page


def test_what_is_said_of_two_nodes_and_of_one_host_later():
    a, b = HOSTS / "h100x8-nvswitch-healthy", HOSTS / "h100x8-one-nvlink-down"
    assert "NVLink 7 of GPU 5 is down on B, up on A" in messages(diff(a, b, "--nodes")[1])
    assert "NVLink 7 of GPU 5 is up on B, down on A" in messages(diff(b, a, "--nodes")[1])
    assert "NVLink 7 of GPU 5 went down" in messages(diff(a, b, "--time")[1])
    assert "NVLink 7 of GPU 5 came up" in messages(diff(b, a, "--time")[1])
    assert run(a, a, "--nodes", "-q").stdout.startswith("SAME ")
