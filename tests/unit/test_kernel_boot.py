"""How the kernel began: the IOMMU, its command line, a hypervisor below it, and that a log is one."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.checkers.iommu import IommuTranslating
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.system import Iommu, Platform
from gpudoctor.model import CannotTell, Finding
from tests.builders import host
from tests.support import check, parse, recognise

ROOT = "BOOT_IMAGE=/boot/vmlinuz-6.8.0-45-generic root=UUID=00000000-0000-0000-0000-000000000001 ro"
BANNER = "[    0.000000] Linux version 6.8.0-45-generic (buildd@builder) #45-Ubuntu SMP\n"
TRANSLATED, THROUGH = "[    1.205555] iommu: Default domain type: Translated \n", "[    1.205555] iommu: Default domain type: Passthrough \n"
GROUP = "[    1.805555] pci 0000:17:00.0: Adding to iommu group 44\n"
L40S: dict[str, Any] = {"name": "NVIDIA L40S", "device_id": "10de:26b9"}


def told(text: str) -> list[Any]:
    sections = [s for s in recognise(text) if s.kind == "kernel-boot"]
    return [f for s in sections for f in parse(s.kind, "".join(f"{x.text}\n" for x in s))]


def entry(text: str) -> Any:
    return next((f.entry for f in told(text) if isinstance(f, Iommu)), None)


@pytest.mark.parametrize(
    ("text", "translating", "mode"),
    [
        (f"{BANNER}{TRANSLATED}{GROUP}", True, "translating"),
        (f"{TRANSLATED}[    0.012345] DMAR: IOMMU enabled\n", True, "translating"),
        (f"{TRANSLATED}[    0.012345] AMD-Vi: Interrupt remapping enabled\n", True, "translating"),
        (f"{BANNER}{THROUGH}{GROUP}", False, "passthrough"),
        (f"$ cat /proc/cmdline\n{ROOT} intel_iommu=on iommu=pt\n", False, "passthrough"),
        (f"[    0.000000] Command line: {ROOT} iommu.passthrough=1\n", False, "passthrough"),
        (f"[    0.000000] Kernel command line: {ROOT} amd_iommu=off\n", False, "off"),
        (f"{ROOT} intel_iommu=on\n", True, None),
        ("$ cat /sys/kernel/iommu_groups/*/type | sort | uniq -c\n     44 DMA-FQ\n", True, "translating"),
        ("$ cat /sys/kernel/iommu_groups/*/type | sort | uniq -c\n     44 identity\n", False, "passthrough"),
        ("/sys/kernel/iommu_groups/0/type:DMA\n/sys/kernel/iommu_groups/1/type:DMA\n", True, "translating"),
        # Some of the devices: which ones is not said. The kernel names its default also where there is no unit.
        ("     40 DMA-FQ\n      4 identity\n", None, None),
        (f"{BANNER}[    0.000000] Command line: {ROOT}\n{TRANSLATED}", None, None),
    ],
)
def test_what_the_iommu_does(text: str, translating: bool | None, mode: str | None) -> None:
    assert (entry(text).translating, entry(text).mode) == (translating, mode)


def test_units_and_groups_are_counted() -> None:
    assert entry("$ ls /sys/class/iommu\ndmar0  dmar1  dmar2\n").units == 3
    assert entry(f"{TRANSLATED}{GROUP}{GROUP.replace('44', '45')}").groups == 2
    assert entry("[    0.7] iommu: Adding device 0000:81:00.0 to group 23\n").groups == 1  # before 5.3


@pytest.mark.parametrize(
    "text",
    [
        'GRUB_CMDLINE_LINUX="quiet iommu=off amd_iommu=off"\n',  # what somebody means to set
        "Add intel_iommu=on to the kernel's command line.\n",
        "menuentry Linux {\n  linux /boot/vmlinuz root=/dev/sda1 intel_iommu=on\n}\n",
        "identity\n",
    ],
)
def test_what_says_nothing_of_this_host(text: str) -> None:
    assert told(text) == []


def test_what_is_judged_of_it() -> None:
    two = host(**L40S)
    (found,) = check(IommuTranslating(), *two.facts(), *told(f"{TRANSLATED}{GROUP}"))
    assert isinstance(found, Finding) and (found.severity, found.confidence) == ("warning", "certain")
    (found,) = check(IommuTranslating(), *two.facts(), *told(f"{ROOT} intel_iommu=on\n"))
    assert isinstance(found, Finding) and (found.severity, found.confidence) == ("warning", "likely")
    assert check(IommuTranslating(), *two.facts(), *told(f"{BANNER}{THROUGH}{GROUP}")) == []
    assert check(IommuTranslating(), *two.facts(), *told(f"{ROOT} iommu=pt\n")) == []
    (open_,) = check(IommuTranslating(), *two.facts(), *told(f"{ROOT}\n{TRANSLATED}"))
    assert isinstance(open_, CannotTell)


def test_without_the_gpus_nothing_is_said_of_their_traffic() -> None:
    (found,) = check(IommuTranslating(), *told(f"{BANNER}{TRANSLATED}{GROUP}"))
    assert isinstance(found, Finding) and (found.severity, found.confidence) == ("note", "possible")
    assert "not in the input" in found.message


def test_a_log_from_its_first_line_is_one_though_nothing_is_in_it() -> None:
    assert KernelLog(()) in told(BANNER)
    assert KernelLog(()) in told("Feb 23 16:24:18 node07 kernel: Linux version 6.8.0-45-generic (buildd@builder)\n")
    assert told("Linux version 6.8.0-45-generic (buildd@builder)\n") == []  # /proc/version


def test_a_hypervisor_below() -> None:
    (platform,) = [f for f in told(f"{BANNER}[    0.000000] Hypervisor detected: KVM\n") if isinstance(f, Platform)]
    assert (platform.entry.vm, platform.entry.hypervisor) == (True, "kvm")
    assert not any(isinstance(f, Platform) for f in told(f"{BANNER}[    0.000000] Hypervisor detected: Xen PV\n"))  # dom0


@pytest.mark.parametrize("end", range(0, 120, 7))
def test_a_cut_makes_no_other_setting_of_it(end: int) -> None:
    text = f"{ROOT} iommu.passthrough=10 intel_iommu=only_this\n"
    cut = text[: len(text) - 1 - end % 60]
    facts = parse("kernel-boot", cut)
    assert all(f.entry.mode is None and f.entry.translating is None for f in facts if isinstance(f, Iommu))
