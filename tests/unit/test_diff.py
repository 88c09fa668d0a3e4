"""What two looks differ in: every kind of change, and beside each the difference that is none."""

from __future__ import annotations

import pytest

from gpudoctor.diff.model import BETTER, WORSE
from gpudoctor.facts.gpu import LinkSample
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.system import (
    AffinityEntry,
    Aspm,
    FabricManager,
    FabricManagerEntry,
    Grant,
    GrantEntry,
    Iommu,
    IommuEntry,
    Limits,
    LimitsEntry,
    Modules,
    Numa,
    NumaNode,
    OwnAffinity,
    Platform,
    PlatformEntry,
    Shm,
    ShmEntry,
    Software,
)
from gpudoctor.facts.topology import Nics, NvLinkGpu, NvLinks, Pairs
from gpudoctor.model import ERROR, WARNING
from gpudoctor.report.diff import verdict_of
from tests.sides import (
    REDIRECT,
    VALID,
    comm,
    diff,
    driver,
    gpu,
    gpus,
    missing,
    nic_card,
    nics,
    nvlinks,
    pair,
    run,
    settings,
    side,
    switched,
    told,
    tree,
    under,
    xids,
)
from tests.support import HERE

# what it is: A, B, the sentence from A to B, the sentence back
CHANGES = {
    "lanes": (gpus(gpu()), gpus(gpu(width=4)), "GPU0 (0000:41:00.0): PCIe link 16.0 GT/s x16 -> 16.0 GT/s x4", "GPU0 (0000:41:00.0): PCIe link 16.0 GT/s x4 -> 16.0 GT/s x16"),
    "speed under load": (
        gpus(gpu()), gpus(gpu(speed_gts=8.0, samples=(LinkSample(speed_gts=8.0, width=16, busy=True),))),
        "GPU0 (0000:41:00.0): PCIe link 16.0 GT/s x16 -> 8.0 GT/s x16", "GPU0 (0000:41:00.0): PCIe link 8.0 GT/s x16 -> 16.0 GT/s x16",
    ),
    "limit": (
        gpus(gpu()), gpus(gpu(speed_gts=8.0, max_speed_gts=8.0)),
        "GPU0 (0000:41:00.0): PCIe link 16.0 GT/s x16 -> 8.0 GT/s x16", "GPU0 (0000:41:00.0): PCIe link 8.0 GT/s x16 -> 16.0 GT/s x16",
    ),
    "pair": (Pairs((pair(0, 1, "NVL", nvlinks=4),)), Pairs((pair(0, 1, "PHB"),)), "pair 0-1: NVL -> PHB", "pair 0-1: PHB -> NVL"),
    "count of links": (Pairs((pair(0, 1, "NVL", nvlinks=18),)), Pairs((pair(0, 1, "NVL", nvlinks=17),)), "pair 0-1: NV18 -> NV17", "pair 0-1: NV17 -> NV18"),
    "p2p": (
        Pairs((pair(0, 1, "PIX", p2p_read="OK", p2p_write="OK"),)), Pairs((pair(0, 1, "PIX", p2p_read="CNS", p2p_write="OK"),)),
        "pair 0-1: peer to peer read OK -> CNS", "pair 0-1: peer to peer read CNS -> OK",
    ),
    "nvlink": (nvlinks(True, True, True, True, number=1), nvlinks(True, True, True, False, number=1), "NVLink 3 of GPU 1 went down", "NVLink 3 of GPU 1 came up"),
    "nvlinks": (nvlinks(True, True, True), nvlinks(True, False, False), "2 of 3 NVLinks of GPU 0 went down (1-2)", "2 of 3 NVLinks of GPU 0 came up (1-2)"),
    "all links in one sentence": (
        nvlinks(True, True), NvLinks((), (NvLinkGpu(gpu=0, all_inactive=True, origin=HERE),)),
        "2 of 2 NVLinks of GPU 0 went down (0-1)", "2 of 2 NVLinks of GPU 0 came up (0-1)",
    ),
    "acs": (under(acs=VALID), under(acs=REDIRECT), "ACS redirect was turned on at bridge 0000:40:01.1", "ACS redirect was turned off at bridge 0000:40:01.1"),
    "aspm": (under(aspm_enabled=()), under(aspm_enabled=("L1",)), "ASPM of 0000:40:01.1: off -> L1", "ASPM of 0000:40:01.1: L1 -> off"),
    "uplink": (under(width=16), under(width=8), "bridge 0000:40:01.1: PCIe link x16 -> x8", "bridge 0000:40:01.1: PCIe link x8 -> x16"),
    "uplink's speed": (
        switched(16.0), switched(8.0), "bridge 0000:40:01.1: PCIe link 16.0 GT/s x16 -> 8.0 GT/s x16", "bridge 0000:40:01.1: PCIe link 8.0 GT/s x16 -> 16.0 GT/s x16",
    ),
    "link of a NIC": (tree(nic_card(width=16)), tree(nic_card(width=8)), "NIC 0000:c1:00.0: PCIe link x16 -> x8", "NIC 0000:c1:00.0: PCIe link x8 -> x16"),
    "command line": (
        Platform(PlatformEntry(cmdline="BOOT_IMAGE=/vmlinuz-1 root=UUID=1 quiet", origin=HERE)),
        Platform(PlatformEntry(cmdline="BOOT_IMAGE=/vmlinuz-2 root=UUID=2 iommu=pt pci=disable_acs_redir=0000:42:00.0", origin=HERE)),
        "kernel command line: iommu=pt, pci=disable_acs_redir=0000:42:00.0 was added", "kernel command line: iommu=pt, pci=disable_acs_redir=0000:42:00.0 was removed",
    ),
    "place": (
        under("0000:40:01.1"), under("0000:50:01.1"),
        "GPU0 (0000:41:00.0): the bridges above it were 0000:40:01.1, now 0000:50:01.1", "GPU0 (0000:41:00.0): the bridges above it were 0000:50:01.1, now 0000:40:01.1",
    ),
    "gone": (gpus(gpu(0), gpu(1)), gpus(gpu(0)), "GPU1 (0000:61:00.0) (NVIDIA A100) is gone", "GPU1 (0000:61:00.0) (NVIDIA A100) is new"),
    "another card": (gpus(gpu()), gpus(gpu(name="NVIDIA H100")), "GPU0 (0000:41:00.0) is another card: NVIDIA A100 -> NVIDIA H100", "GPU0 (0000:41:00.0) is another card: NVIDIA H100 -> NVIDIA A100"),
    "remap failed": (gpus(gpu(remap_failed=False)), gpus(gpu(remap_failed=True)), "GPU0 (0000:41:00.0): row remap failure no -> yes", "GPU0 (0000:41:00.0): row remap failure yes -> no"),
    "mig": (gpus(gpu(mig_mode="disabled")), gpus(gpu(mig_mode="enabled")), "GPU0 (0000:41:00.0): MIG disabled -> enabled", "GPU0 (0000:41:00.0): MIG enabled -> disabled"),
    "fabric": (gpus(gpu(fabric_state="completed")), gpus(gpu(fabric_state="in progress")), "GPU0 (0000:41:00.0): fabric state completed -> in progress", "GPU0 (0000:41:00.0): fabric state in progress -> completed"),
    "power": (gpus(gpu(power_limit_w=400.0)), gpus(gpu(power_limit_w=250.0)), "GPU0 (0000:41:00.0): power limit 400 W -> 250 W", "GPU0 (0000:41:00.0): power limit 250 W -> 400 W"),
    "bar": (gpus(gpu(bar1_mib=131072)), gpus(gpu(bar1_mib=256)), "GPU0 (0000:41:00.0): BAR1 131072 MiB -> 256 MiB", "GPU0 (0000:41:00.0): BAR1 256 MiB -> 131072 MiB"),
    "node of a GPU": (gpus(gpu(numa_node=0)), gpus(gpu(numa_node=1)), "GPU0 (0000:41:00.0): NUMA node 0 -> 1", "GPU0 (0000:41:00.0): NUMA node 1 -> 0"),
    "lost": (gpus(gpu()), gpus(gpu(error="GPU is lost")), "GPU0 (0000:41:00.0): the driver's answer in order -> GPU is lost", "GPU0 (0000:41:00.0): the driver's answer GPU is lost -> in order"),
    "driver": (driver("550.54.15"), driver("580.95.05"), "driver: 550.54.15 -> 580.95.05", "driver: 580.95.05 -> 550.54.15"),
    "kernel": (Platform(PlatformEntry(kernel="6.8.0", origin=HERE)), Platform(PlatformEntry(kernel="6.11.0", origin=HERE)), "kernel: 6.8.0 -> 6.11.0", "kernel: 6.11.0 -> 6.8.0"),
    "nccl version": (Software({"nccl": "2.21.5"}, HERE["*"]), Software({"nccl": "2.28.9"}, HERE["*"]), "NCCL: 2.21.5 -> 2.28.9", "NCCL: 2.28.9 -> 2.21.5"),
    "setting": (settings(NCCL_DEBUG="INFO"), settings(NCCL_DEBUG="INFO", NCCL_P2P_DISABLE="1"), "NCCL_P2P_DISABLE=1 was set", "NCCL_P2P_DISABLE=1 is no longer set"),
    "value": (settings(NCCL_ALGO="Ring"), settings(NCCL_ALGO="Tree"), "NCCL_ALGO: Ring -> Tree", "NCCL_ALGO: Tree -> Ring"),
    "shm": (Shm(ShmEntry(size_bytes=64 << 30, origin=HERE)), Shm(ShmEntry(size_bytes=64 << 20, origin=HERE)), "/dev/shm: 64 GiB -> 64 MiB", "/dev/shm: 64 MiB -> 64 GiB"),
    "memlock": (
        Limits(LimitsEntry(memlock_unlimited=True, origin=HERE)), Limits(LimitsEntry(memlock_unlimited=False, memlock_bytes=65536, origin=HERE)),
        "locked memory unlimited: yes -> no", "locked memory unlimited: no -> yes",
    ),
    "iommu": (Iommu(IommuEntry(mode="passthrough", origin=HERE)), Iommu(IommuEntry(mode="translating", origin=HERE)), "IOMMU: passthrough -> translating", "IOMMU: translating -> passthrough"),
    "nodes": (Numa((NumaNode(id=0, cpus="0-31", origin=HERE),)), Numa((NumaNode(id=0, cpus="0-63", origin=HERE),)), "NUMA node 0: CPUs 0-31 -> CPUs 0-63", "NUMA node 0: CPUs 0-63 -> CPUs 0-31"),
    "fabric manager": (
        FabricManager(FabricManagerEntry(active=True, origin=HERE)), FabricManager(FabricManagerEntry(active=False, origin=HERE)),
        "Fabric Manager running: yes -> no", "Fabric Manager running: no -> yes",
    ),
    "module": (Modules({"nvidia": "", "nvidia_peermem": ""}, HERE["*"]), Modules({"nvidia": ""}, HERE["*"]), "kernel module nvidia_peermem is no longer loaded", "kernel module nvidia_peermem is loaded now"),
    "policy": (Aspm("default", HERE["*"]), Aspm("powersave", HERE["*"]), "the kernel's ASPM policy: default -> powersave", "the kernel's ASPM policy: powersave -> default"),
    "grant": (Grant(GrantEntry(device_nodes=(0, 1), origin=HERE)), Grant(GrantEntry(device_nodes=(0,), origin=HERE)), "GPU device nodes: 0, 1 -> 0", "GPU device nodes: 0 -> 0, 1"),
    "hidden": (Grant(GrantEntry(origin=HERE)), Grant(GrantEntry(cuda_visible="0", origin=HERE)), "CUDA_VISIBLE_DEVICES: not set -> 0", "CUDA_VISIBLE_DEVICES: 0 -> not set"),
    "affinity": (OwnAffinity(AffinityEntry(cpus="0-31", origin=HERE)), OwnAffinity(AffinityEntry(cpus="0-3", origin=HERE)), "CPUs that this process may use: 0-31 -> 0-3", "CPUs that this process may use: 0-3 -> 0-31"),
    "nic down": (nics(), nics(state="down"), "NIC mlx5_0: active -> down", "NIC mlx5_0: down -> active"),
    "nic rate": (nics(), nics(rate_gbps=200.0), "NIC mlx5_0: 400 Gb/s -> 200 Gb/s", "NIC mlx5_0: 200 Gb/s -> 400 Gb/s"),
    "nic gone": (nics(), Nics(()), "NIC mlx5_0 is gone", "NIC mlx5_0 is new"),
    "transport": (comm("P2P/CUMEM"), comm("SHM/direct/direct"), "NCCL: ranks 0-1: P2P/CUMEM -> SHM/direct/direct", "NCCL: ranks 0-1: SHM/direct/direct -> P2P/CUMEM"),
    "channels": (comm("P2P/CUMEM"), comm("P2P/CUMEM", channels=2), "NCCL: channels 24 -> 2", "NCCL: channels 2 -> 24"),
    "bandwidth": (run(340.0), run(28.0), "all_reduce of 2 ranks: busbw 340.0 -> 28.0 GB/s", "all_reduce of 2 ranks: busbw 28.0 -> 340.0 GB/s"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_said_and_backwards_the_reverse(name):
    a, b, there, back = CHANGES[name]
    first, second = diff(a, b), diff(b, a)
    assert told(first)[0] == there and told(second)[0] == back
    assert first.changes[0].evidence or name == "place"
    assert {first.changes[0].direction, second.changes[0].direction} in ({WORSE, BETTER}, {"changed"})
    assert not diff(a, a).changes and not diff(b, b).missing and diff(a, a).same


WORSENED = [n for n in CHANGES if n in ("lanes", "speed under load", "pair", "p2p", "nvlink", "acs", "uplink", "gone", "remap failed", "mig", "fabric", "power", "bar", "lost", "shm", "memlock", "fabric manager", "nic down", "nic rate", "transport", "bandwidth")]  # fmt: skip


@pytest.mark.parametrize("name", WORSENED)
def test_what_is_worse_is_called_so_and_weighs_more_than_a_note(name):
    change = diff(*CHANGES[name][:2]).changes[0]
    assert change.direction == WORSE and change.severity in (ERROR, WARNING)
    assert diff(*reversed(CHANGES[name][:2])).changes[0].direction == BETTER


IDLE = gpu(speed_gts=2.5, samples=(LinkSample(speed_gts=2.5, width=16, busy=False),))

# Differences that are no change: A, B, and whether -v tells of them.
NEAR_MISSES = {
    "idle link": (gpus(gpu()), gpus(IDLE), True),
    "work and rest": (gpus(gpu(utilisation_pct=0, pstate=8, throttle=("idle",))), gpus(gpu(utilisation_pct=99, pstate=0, throttle=("sw_power_cap",))), False),
    "proven in one of its samples": (gpus(gpu()), gpus(gpu(speed_gts=2.5, samples=(LinkSample(speed_gts=16.0, width=16),))), False),
    "few more replays": (gpus(gpu(replays=100)), gpus(gpu(replays=140)), True),
    "few more NVLink errors": (nvlinks(True, replay=20), nvlinks(True, replay=25), True),
    "sleeping link": (nvlinks(True), nvlinks(True, sleeping=True), False),
    "source validation": (under(acs={"SrcValid": False, "ReqRedir": False}), under(acs=VALID), True),
    "free memory": (Shm(ShmEntry(size_bytes=1 << 30, free_bytes=1, origin=HERE)), Shm(ShmEntry(size_bytes=1 << 30, free_bytes=1 << 29, origin=HERE)), False),
    "uptime": (Platform(PlatformEntry(uptime_s=10.0, origin=HERE)), Platform(PlatformEntry(uptime_s=900.0, origin=HERE)), False),
    "started anew": (Platform(PlatformEntry(uptime_s=9000.0, origin=HERE)), Platform(PlatformEntry(uptime_s=90.0, origin=HERE)), True),
    "another disk and kernel file": (
        Platform(PlatformEntry(cmdline="BOOT_IMAGE=/vmlinuz-1 root=UUID=1 iommu=pt", origin=HERE)),
        Platform(PlatformEntry(cmdline="BOOT_IMAGE=/vmlinuz-2 root=UUID=2 iommu=pt ro", origin=HERE)), False,
    ),
    "rank": (settings(RANK="0", MASTER_ADDR="192.0.2.1"), settings(RANK="1", MASTER_ADDR="192.0.2.2"), True),
    "bandwidth as it varies": (run(340.0), run(331.0), True),
    "without a limit to a locked size": (Limits(LimitsEntry(memlock_unlimited=True, memlock_bytes=5, origin=HERE)), Limits(LimitsEntry(memlock_unlimited=True, origin=HERE)), False),
    "stand-ins": (gpus(gpu(uuid="GPU-00000000-0000-0000-0000-000000000001")), gpus(gpu(uuid="GPU-00000000-0000-0000-0000-000000000002")), False),
    "count told by one matrix only": (Pairs((pair(0, 1, "NVL", nvlinks=4),)), Pairs((pair(0, 1, "NVL"),)), False),
    "another adapter of NCCL": (comm("NET/IB/0/GDRDMA"), comm("NET/IB/3/GDRDMA"), False),
    "a name cut short": (gpus(gpu(name="NVIDIA A100-SXM4-80GB")), gpus(gpu(name="NVIDIA A100-SXM4...")), False),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_difference_that_is_no_change(name):
    a, b, varies = NEAR_MISSES[name]
    for got in (diff(a, b), diff(b, a)):
        assert (told(got), missing(got)) == ([], "")
    assert bool(diff(a, b).varying) is varies


# --- idle links


def test_two_readings_at_rest_tell_nothing():
    got = diff(gpus(IDLE), gpus(IDLE.__class__(**{**IDLE.__dict__, "utilisation_pct": 3})))
    assert told(got) == [] and "speed under load" in missing(got) and "idle" in missing(got)
    assert verdict_of(got) == ("pass", 0), "they are the same as far as both were read"


def test_two_different_readings_of_links_that_may_rest_are_left_open():
    resting = LinkSample(speed_gts=5.0, width=16, busy=False)
    got = diff(gpus(IDLE), gpus(gpu(speed_gts=5.0, samples=(resting,))))
    assert told(got) == [] and verdict_of(got) == ("unknown", 3)


def test_a_drop_that_an_idle_reading_may_hide_is_not_passed_over():
    got = diff(gpus(gpu()), gpus(gpu(speed_gts=8.0)))
    assert told(got) == [] and "perhaps idle" in missing(got)


def test_a_link_seen_faster_than_the_other_under_load_has_changed():
    slow = gpu(speed_gts=5.0, samples=(LinkSample(speed_gts=5.0, width=16, busy=True),))
    got = diff(gpus(slow), gpus(gpu(speed_gts=8.0)))
    assert told(got) == ["GPU0 (0000:41:00.0): PCIe link 5.0 GT/s x16 -> at least 8.0 GT/s x16"]
    assert got.changes[0].direction == BETTER


def test_lanes_are_judged_at_rest_too():
    got = diff(gpus(IDLE), gpus(gpu(speed_gts=2.5, width=4)))
    assert told(got) == ["GPU0 (0000:41:00.0): PCIe link x16 -> x4"]


def test_the_lesser_end_is_the_limit():
    """The card's own register says Gen5; the port has Gen4, which the link does."""
    card = gpus(gpu(max_speed_gts=32.0, card_max_speed_gts=32.0, slot_max_speed_gts=16.0))
    assert told(diff(card, gpus(gpu(max_speed_gts=32.0, card_max_speed_gts=32.0, slot_max_speed_gts=16.0, power_default_w=1.0)))) == []
    assert not diff(card, gpus(gpu(max_speed_gts=32.0, card_max_speed_gts=32.0, slot_max_speed_gts=16.0, fb_mib=1))).changes


# --- read on one side only


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ([gpus(gpu()), driver("1.2")], [gpus(gpu())], "the driver's version: read only in A, not in B"),
        ([gpus(gpu())], [gpus(gpu()), xids(79)], "the kernel log: read only in B, not in A"),
        (gpus(gpu()), gpus(gpu(width=None)), "the PCIe width of GPU0 (0000:41:00.0): read only in A"),
        (under(acs=None), under(acs=VALID), "ACS of 0000:40:01.1: read only in B"),
        (Pairs((pair(0, 1, "NVL"), pair(0, 2, "SYS"))), Pairs((pair(0, 1, "NVL"),)), "the path of pair 0-2: read only in A"),
        (Pairs((pair(0, 1, "NVL", nvlinks=18),)), Pairs((pair(0, 1, "PHB", pcie_only=True),)), "hides NVLink"),
        (gpus(gpu(0), gpu(1)), gpus(gpu(0), complete=False), "the list of B is not whole"),
        (nvlinks(True, True), nvlinks(True), "the state of NVLinks of GPU0: read only in A"),
        (Modules({"nvidia": "", "ib_core": ""}, HERE["*"]), Modules({"nvidia": ""}, HERE["*"], complete=False), "the kernel module of ib_core"),
        (nics(), nics(state=None), "the state of NIC mlx5_0: read only in A"),
        (comm("P2P/CUMEM"), Nccl(comms=(*comm("P2P/CUMEM").comms, *comm("P2P/CUMEM").comms)), "1 in A, 2 in B"),
        (gpus(gpu()), driver("1.2"), "read only in"),
    ],
)  # fmt: skip
def test_what_one_side_does_not_show_is_neither_change_nor_sameness(a, b, words):
    for got in (diff(a, b), diff(b, a)):
        assert told(got) == [] and got.missing
    assert words in missing(diff(a, b))


def test_nothing_on_either_side_is_not_sameness():
    assert missing(diff(side(), side())) and not diff(side(), side()).same
    assert "the host node07: read only in A" in missing(diff(side(gpus(gpu())), side())).replace("of ", "")


def test_one_failed_source_is_one_entry():
    full = gpus(*(gpu(i, remap_failed=False, remap_pending=False, bar1_mib=1, mig_mode="disabled", persistence=True) for i in range(4)))
    assert len(diff(full, gpus(*(gpu(i) for i in range(4)))).missing) == 1
