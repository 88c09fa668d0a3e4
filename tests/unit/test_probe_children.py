"""The child programs, run as gpudoctor runs them: by file path, in a process of their own, one line of JSON each."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.system import Iommu, Jobs, Numa, OwnAffinity, Platform, Settings, Shm
from gpudoctor.facts.topology import Nics, NvLinks, Pairs
from tests.support import ROOT, parse

PROBES = ROOT / "gpudoctor" / "probe"
FAKE = ROOT / "tests" / "fakes" / "nvml"


def child(name: str, *words: str, path: Path | None = None, **env: str) -> Any:
    base = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "FAKE_", "PYTHONPATH"))}
    extra = {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run(
        [sys.executable, str(PROBES / f"{name}.py"), *words], capture_output=True, text=True, env={**base, **extra, **env}, timeout=60
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def answer(name: str, *words: str, **options: Any) -> str:
    done = child(name, *words, **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1 and done.stdout.startswith(f'{{"probe": "gpudoctor.{name}", "schema": 1,')
    return str(done.stdout)


def fact(kind: type[Any], name: str, text: str) -> Any:
    return next(f for f in parse(f"{name}-json", text) if isinstance(f, kind))


def sysfs(root: Path, devices: dict[str, dict[str, str]]) -> None:
    """A sysfs as the kernel lays it out: real directories below devices/, links below bus/pci/devices."""
    (root / "bus/pci/devices").mkdir(parents=True)
    (root / "bus/pci/drivers/nvidia").mkdir(parents=True)
    for path, attributes in devices.items():
        place = root / "devices" / path
        place.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.relpath(place, root / "bus/pci/devices"), root / "bus/pci/devices" / place.name)
        for name, value in attributes.items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if name == "driver":
                file.symlink_to(root / "bus/pci/drivers" / value)
            elif name == "iommu_group":
                group = root / "kernel/iommu_groups" / value.split()[0]
                group.mkdir(parents=True, exist_ok=True)
                (group / "type").write_text(value.split()[1] + "\n")
                file.symlink_to(group)
            else:
                file.write_text(value + "\n")


BRIDGE = {"class": "0x060400", "vendor": "0x1000", "device": "0xc010", "current_link_width": "16", "max_link_width": "16"}
GPU = {
    "class": "0x030200",
    "vendor": "0x10de",
    "device": "0x2330",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x16c1",
    "current_link_speed": "16.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "8",
    "max_link_width": "16",
    "numa_node": "1",
    "local_cpulist": "32-63",
    "driver": "nvidia",
    "iommu_group": "7 DMA-FQ",
    "link/l0s_aspm": "0",
    "link/l1_aspm": "1",
    "power/control": "on",
    "aer_dev_correctable": "RxErr 3\nBadTLP 1\nTOTAL_ERR_COR 4",
    "resource": "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n0x0 0x0 0x0",
}
SWITCHED = {
    "pci0000:40/0000:40:01.1": BRIDGE,
    "pci0000:40/0000:40:01.1/0000:41:00.0": BRIDGE,
    "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:01.0": BRIDGE,
    "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:01.0/0000:43:00.0": GPU,
    "pci0000:40/0000:40:00.0": {"class": "0x080600", "vendor": "0x1022", "device": "0x14a4"},
}


def test_pci_reads_every_bridge_above_a_gpu_from_a_made_up_sysfs(tmp_path: Path) -> None:
    sysfs(tmp_path, SWITCHED)
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (tmp_path / "class/iommu/dmar0").mkdir(parents=True)
    (tmp_path / "bus/pci/slots/5").mkdir(parents=True)
    (tmp_path / "bus/pci/slots/5/address").write_text("0000:43:00\n")
    text = answer("pci", str(tmp_path))
    tree = fact(PciTree, "pci", text)
    gpu = tree.by_bdf("0000:43:00.0")
    assert [(d.bdf, d.port_type) for d in tree.ancestors(gpu.bdf)] == [
        ("0000:42:01.0", "downstream"),
        ("0000:41:00.0", "upstream"),
        ("0000:40:01.1", "root"),
    ]
    assert (gpu.speed_gts, gpu.max_speed_gts, gpu.width, gpu.max_width) == (16.0, 32.0, 8, 16)
    assert (gpu.numa_node, gpu.driver, gpu.slot, gpu.aer) == (1, "nvidia", "5", {"correctable": 4})
    assert (gpu.aspm_supported, gpu.aspm_enabled, gpu.bar_sizes) == (("L0s", "L1"), ("L1",), (1 << 24,))
    assert gpu.at("width").where == "/sys/bus/pci/devices/0000:43:00.0/current_link_width"
    assert json.loads(text)["devices"]["0000:43:00.0"]["path"].startswith("/sys/devices/pci0000:40/")
    assert tree.complete and tree.by_bdf("0000:40:00.0").width is None
    assert fact(Iommu, "pci", text).entry.mode == "translating"
    nic = fact(Nics, "pci", text).nics[0]
    assert (nic.name, nic.state, nic.rate_gbps) == ("mlx5_0", "active", 400.0)


def test_pci_takes_three_readings_of_a_gpu_and_never_reads_vpd_or_config(tmp_path: Path) -> None:
    sysfs(tmp_path, {**SWITCHED, "pci0000:40/0000:40:00.0": {"class": "0x080600", "vpd": "secret", "config": "secret"}})
    text = answer("pci", str(tmp_path))
    assert len(json.loads(text)["devices"]["0000:43:00.0"]["samples"]) == 3
    assert "secret" not in text


def test_pci_without_sysfs_says_why(tmp_path: Path) -> None:
    done = child("pci", str(tmp_path / "nothing"))
    assert done.returncode == 3 and done.stdout == "" and "cannot be read" in done.stderr


@pytest.mark.skipif(not Path("/sys/bus/pci/devices").is_dir(), reason="no PCI bus in /sys here")
def test_pci_lists_what_this_very_machine_has() -> None:
    tree = fact(PciTree, "pci", answer("pci"))
    assert {d.bdf for d in tree} == set(os.listdir("/sys/bus/pci/devices"))
    assert all(d.class_code and d.device_id and d.parent_known for d in tree)


def test_pci_answers_the_same_without_pyudev(tmp_path: Path) -> None:
    (tmp_path / "pyudev.py").write_text("raise ImportError('no libudev')\n")
    bare = json.loads(answer("pci", path=tmp_path))
    full = json.loads(answer("pci"))
    assert set(bare["devices"]) == set(full["devices"])
    assert not any("names" in d for d in bare["devices"].values())


def test_system_on_this_very_machine() -> None:
    text = answer("system", NCCL_P2P_DISABLE="1", AWS_SECRET_ACCESS_KEY="hunter2", CUDA_VISIBLE_DEVICES="")
    assert "hunter2" not in text
    said = json.loads(text)
    assert said["failed"] == {}
    platform = fact(Platform, "system", text).entry
    assert platform.kernel == os.uname().release and platform.uid == os.getuid() and platform.uptime_s > 0
    assert fact(OwnAffinity, "system", text).entry.cpus
    assert fact(Shm, "system", text).entry.mounted in (True, False)
    settings = fact(Settings, "system", text)
    assert settings.get("NCCL_P2P_DISABLE").value == "1"
    assert settings.get("CUDA_VISIBLE_DEVICES").value == ""  # set and empty hides all GPUs: not the same as unset
    if Path("/sys/devices/system/node/node0").is_dir():
        assert fact(Numa, "system", text).nodes[0].id == 0


def test_system_reads_the_file_that_nccl_would_and_only_known_names(tmp_path: Path) -> None:
    conf = tmp_path / "mine.conf"
    conf.write_text("\nNCCL_IB_HCA=mlx5\nPASSWORD=hunter2\nNCCL_P2P_LEVEL=LOC\n")
    text = answer("system", NCCL_CONF_FILE=str(conf))
    assert "hunter2" not in text
    level = fact(Settings, "system", text).get("NCCL_P2P_LEVEL")
    assert (level.value, level.scope, level.at("value").where) == ("LOC", "~/.nccl.conf", "line 4")
    assert level.at("value").source == str(conf)


def test_nvml_without_pynvml_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    done = child("nvml", path=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "pynvml is not installed (pip install nvidia-ml-py)\n"


def test_nvml_without_a_driver_gives_its_words() -> None:
    done = child("nvml", path=FAKE, FAKE_NVML="absent")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "NVML: Driver/library version mismatch\n")


def test_nvml_of_two_gpus_joined_by_a_hidden_switch() -> None:
    text = answer("nvml", path=FAKE)
    gpus = fact(Gpus, "nvml", text)
    gpu = gpus.by_index(0)
    assert (gpu.bdf, gpu.device_id, gpu.name, gpu.numa_node) == ("0000:00:06.0", "10de:2335", "NVIDIA H200", 0)
    assert [s.speed_gts for s in gpu.samples] == [2.5, 32.0, 32.0]
    assert (gpu.speed_gts, gpu.width, gpu.fabric_state, gpu.throttle) == (32.0, 16, "completed", ("idle",))
    assert gpu.samples[-1].busy is True and gpu.samples[0].busy is None
    assert fact(Driver, "nvml", text).entry.version == "580.159.04"
    pair = fact(Pairs, "nvml", text).of(0, 1)
    assert (pair.path, pair.nvlinks, pair.pcie_path, pair.p2p_read) == ("NVL", 18, "PHB", "OK")
    links = fact(NvLinks, "nvml", text).of(0)
    assert len(links) == 18 and {(k.active, k.speed_gbs, k.remote_kind, k.remote_bdf) for k in links} == {
        (True, 26.562, "switch", None)
    }


def test_nvml_goes_on_when_a_gpu_is_lost() -> None:
    gpus = fact(Gpus, "nvml", answer("nvml", path=FAKE, FAKE_NVML="lost"))
    assert [(g.index, g.error, g.bdf) for g in gpus] == [(0, None, "0000:00:06.0"), (1, "GPU is lost", None)]


def test_nvml_shows_counters_that_grow() -> None:
    links = fact(NvLinks, "nvml", answer("nvml", path=FAKE, FAKE_NVML="growing"))
    grown = [(k.link, k.errors_before, k.replay) for k in links.of(0) if k.errors_before and k.errors_before[0] != k.replay]
    assert grown == [(3, (40, 0, 0), 80)]


def test_nvml_of_cards_without_nvlink_gives_the_pcie_path() -> None:
    text = answer("nvml", path=FAKE, FAKE_NVML="plain")
    pair = fact(Pairs, "nvml", text).of(0, 1)
    assert (pair.path, pair.pcie_only, pair.nvlinks, pair.p2p_nvlink) == ("PIX", None, None, "NS")
    assert [g.no_nvlink for g in fact(NvLinks, "nvml", text).gpus] == [True, True]


def test_nvml_with_a_pynvml_that_knows_almost_nothing() -> None:
    text = answer("nvml", path=FAKE, FAKE_NVML="bare")
    gpu = fact(Gpus, "nvml", text).by_index(0)
    assert (gpu.bdf, gpu.name, gpu.width, gpu.samples, gpu.persistence) == ("0000:00:06.0", None, None, None, None)
    assert "GetName" in json.loads(text)["gpus"][0]["errors"]
    # Nothing was said of NVLink: the path, if any, is no proof against it.
    assert fact(Pairs, "nvml", text).of(0, 1).path is None


def test_job_lists_nothing_here_and_says_that_nvml_is_away(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    text = answer("job", path=tmp_path)
    assert fact(Jobs, "job", text).processes == ()
    assert "pynvml is not installed" in json.loads(text)["nvml_problem"]


def test_job_tells_a_foreign_pid_from_a_process_of_ours() -> None:
    """This very test holds no GPU, so a list that names it means another PID namespace's process of that number."""
    jobs = fact(Jobs, "job", answer("job", path=FAKE, FAKE_PIDS=f"{os.getpid()},4194303"))
    by_pid = {p.pid: p for p in jobs}
    assert "another PID namespace" in by_pid[4194303].unreadable
    assert "holds no GPU" in by_pid[os.getpid()].unreadable and by_pid[os.getpid()].cpus is None
    assert by_pid[os.getpid()].gpus == ("0000:00:06.0", "0000:00:07.0")


def imported(node: ast.AST) -> set[str]:
    """What a program imports anywhere when it runs: what stands under TYPE_CHECKING it never reaches."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return {name for part in node.orelse for name in imported(part)}
    own = {a.name for a in node.names} if isinstance(node, ast.Import) else {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
    return own | {name for child in ast.iter_child_nodes(node) for name in imported(child)}


@pytest.mark.parametrize("name", sorted(path.stem for path in PROBES.glob("*.py")))
def test_no_child_imports_gpudoctor(name: str) -> None:
    names = imported(ast.parse((PROBES / f"{name}.py").read_text()))
    assert {n for n in names if n.partition(".")[0] == "gpudoctor"} == set()


def test_what_a_child_imports_is_seen_wherever_it_stands() -> None:
    program = "if TYPE_CHECKING:\n import gpudoctor.a\nelse:\n import b\ndef f():\n from gpudoctor import c\n"
    assert imported(ast.parse(program)) == {"b", "gpudoctor"}
