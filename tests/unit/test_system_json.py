"""The host's own answers to facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Driver
from gpudoctor.facts.system import (
    Cpu,
    FabricManager,
    Grant,
    Limits,
    Modules,
    Numa,
    OwnAffinity,
    Platform,
    Settings,
    Shm,
    Software,
)
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

HEAD = {"probe": "gpudoctor.system", "schema": 1}
POD = (FIXTURES / "outputs/system-json/pod-on-two-sockets.txt").read_text()


def told(**parts: Any) -> dict[type[Any], Any]:
    return {type(f): f for f in parse("system-json", json.dumps({**HEAD, **parts}))}


@pytest.fixture(name="pod")
def _pod() -> dict[type[Any], Any]:
    return {type(f): f for f in parse("system-json", POD)}


def test_a_pasted_line_is_recognised() -> None:
    assert [s.kind for s in recognise(POD)] == ["system-json"]


def test_machine_and_container(pod: dict[type[Any], Any]) -> None:
    machine = pod[Platform].entry
    assert (machine.vm, machine.hypervisor, machine.wsl, machine.container) == (False, None, False, "kubernetes")
    assert (machine.kernel, machine.uid, machine.uptime_s, machine.cmdline) == (
        "6.8.0-60-generic",
        1000,
        93211.4,
        "iommu=pt pci=realloc=off",
    )
    assert machine.at("cmdline").where == "/proc/cmdline"
    cpu = pod[Cpu].entry
    assert (cpu.vendor, cpu.family, cpu.model, cpu.sockets, cpu.online) == ("AuthenticAMD", 25, 17, 2, "0-383")


def test_a_node_without_processors_is_kept_apart_from_an_unknown_one(pod: dict[type[Any], Any]) -> None:
    assert [(n.id, n.cpus) for n in pod[Numa]] == [(0, "0-95,192-287"), (1, "96-191,288-383"), (2, "")]
    assert [n.id for n in pod[Numa].with_cpus()] == [0, 1]
    assert told(numa={"0": {"cpus": None, "memory_kib": None}})[Numa].nodes[0].cpus is None


def test_affinity_limits_and_shared_memory(pod: dict[type[Any], Any]) -> None:
    own = pod[OwnAffinity].entry
    assert (own.cpus, own.mems, own.cpuset_cpus) == ("0-3,8-9", "0-1", "0-3,8-9")
    limits = pod[Limits].entry
    assert (limits.memlock_bytes, limits.memlock_unlimited, limits.stack_unlimited) == (65536, False, True)
    shm = pod[Shm].entry
    assert (shm.size_bytes, shm.free_bytes, shm.writable, shm.mounted, shm.noexec) == (67108864, 67104768, True, True, True)


def test_unlimited_is_no_number() -> None:
    limits = told(limits={"memlock": -1, "stack": 8388608})[Limits].entry
    assert (limits.memlock_bytes, limits.memlock_unlimited, limits.stack_unlimited) == (None, True, False)
    assert Limits not in told(limits={"memlock": None})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"exists": True, "mount": None, "writable": True, "size_bytes": 1}, (True, False, None)),
        ({"exists": True, "mount": {"options": "ro,size=1"}, "writable": True}, (False, True, False)),
        ({"exists": False, "mount": None, "writable": False}, (False, False, None)),
    ],
)
def test_shared_memory_that_is_not_as_it_should_be(said: dict[str, Any], expected: tuple[Any, ...]) -> None:
    shm = told(shm=said)[Shm].entry
    assert (shm.writable, shm.mounted, shm.noexec) == expected


def test_settings_come_with_their_line_and_as_nccl_reads_them(pod: dict[type[Any], Any]) -> None:
    settings = pod[Settings]
    assert settings.get("NCCL_DEBUG").scope == "environment"
    hca = settings.get("NCCL_IB_HCA")
    # The first of two lines wins, and a name with a blank before it is another name.
    assert (hca.value, hca.scope, hca.at("value").source, hca.at("value").where) == ("mlx5", "/etc/nccl.conf", "/etc/nccl.conf", "line 2")
    assert settings.get("NCCL_ALGO") is None
    assert [s.name for s in settings if s.scope == "/etc/nccl.conf"] == ["NCCL_IB_HCA", "NCCL_DEBUG"]


def test_grant(pod: dict[type[Any], Any]) -> None:
    grant = pod[Grant].entry
    assert (grant.nvidia_visible, grant.cuda_visible, grant.slurm_gpus) == ("all", "0,1", "0,1")
    assert (grant.device_nodes, grant.unopenable) == ((0, 1, 2), (2,))
    assert grant.at("slurm_gpus").where == "SLURM_JOB_GPUS"
    empty = told(environment={"CUDA_VISIBLE_DEVICES": ""})[Grant].entry
    assert (empty.cuda_visible, empty.device_nodes, empty.nvidia_visible) == ("", None, None)


def test_driver_modules_and_software(pod: dict[type[Any], Any]) -> None:
    driver = pod[Driver].entry
    assert (driver.module_version, driver.open_module, driver.version) == ("570.124.06", True, None)
    assert pod[Modules].loaded["nvidia_peermem"] == "570.124.06" and pod[Modules].loaded["ib_core"] == ""
    assert pod[Software].versions == {"nvidia-ml-py": "13.580.82", "pynvml": "13.0.1", "torch": "2.8.0", "nccl": "2.27.3"}
    manager = pod[FabricManager].entry
    assert (manager.installed, manager.version, manager.switches) == (True, "570.124.06", 2)


@pytest.mark.parametrize(
    ("line", "version", "is_open"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023", "535.54.03", False),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build  (x)", "580.65.06", True),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.0", "535.54.0", False),
        ("NVRM version: something else", None, None),
    ],
)
def test_kernel_module_version(line: str, version: str | None, is_open: bool | None) -> None:
    found = told(driver={"version": line}).get(Driver)
    assert (found and found.entry.module_version, found and found.entry.open_module) == (version, is_open)


def test_the_module_directory_stands_in_for_the_version_file() -> None:
    entry = told(modules={"nvidia": "550.54.15"})[Driver].entry
    assert (entry.module_version, entry.open_module, entry.at("module_version").where) == ("550.54.15", None, "/sys/module/nvidia/version")


@pytest.mark.parametrize(
    ("machine", "flag", "vm", "hypervisor"),
    [
        ({"sys_vendor": "QEMU", "product_name": "Standard PC (Q35 + ICH9, 2009)"}, True, True, "kvm"),
        ({"sys_vendor": "VMware, Inc.", "product_name": "VMware7,1"}, True, True, "vmware"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, True, True, "hyperv"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Surface Book"}, False, False, None),
        ({"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"}, True, True, None),
        ({"sys_vendor": "Amazon EC2", "product_name": "p4d.metal"}, False, False, None),
        ({"sys_vendor": "QEMU", "product_name": "x"}, False, True, "kvm"),  # the bit is hidden
        ({"sys_vendor": None}, None, None, None),  # Arm without DMI: not known
    ],
)
def test_virtual_machines(machine: dict[str, Any], flag: bool | None, vm: bool | None, hypervisor: str | None) -> None:
    entry = told(machine=machine, processor={"hypervisor_flag": flag})[Platform].entry
    assert (entry.vm, entry.hypervisor) == (vm, hypervisor)


def test_wsl() -> None:
    version = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x)"
    assert told(machine={"version": version})[Platform].entry.wsl is True
    assert told(machine={})[Platform].entry.wsl is None


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"marks": ["podman"], "variables": [], "cgroups": []}, "podman"),
        ({"marks": [], "variables": ["APPTAINER_CONTAINER"], "cgroups": []}, "apptainer"),
        ({"marks": ["docker"], "variables": [], "cgroups": ["kubernetes"]}, "kubernetes"),
        ({"marks": [], "variables": [], "cgroups": [], "systemd": "lxc"}, "lxc"),
        ({"marks": [], "variables": ["container"], "cgroups": []}, "container"),
        ({"marks": [], "variables": [], "cgroups": []}, None),
    ],
)
def test_containers(said: dict[str, Any], kind: str | None) -> None:
    assert told(machine={}, container=said)[Platform].entry.container == kind


def test_arm_vendor() -> None:
    assert told(processor={"first": {"CPU implementer": "0x41"}, "architecture": "aarch64"})[Cpu].entry.vendor == "ARM"


def test_fabric_manager_absent_in_a_container_is_unknown_not_absent() -> None:
    assert FabricManager not in told(fabric_manager={"binary": False, "package_version": None}, nodes={"switches": 0})
    only = told(fabric_manager={"binary": False}, nodes={"switches": 4})[FabricManager].entry
    assert (only.installed, only.switches) == (None, 4)


def test_parts_that_failed_are_said() -> None:
    assert Loss("the part limits2 of the host", "ValueError: odd") in parse("system-json", POD)


def test_nothing_but_its_head_gives_nothing() -> None:
    assert told() == {}
    with pytest.raises(Unparsable):
        parse("system-json", '{"probe": "gpudoctor.system", "schema": 1')
