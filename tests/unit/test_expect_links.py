"""What the links of a run should carry, by their number and rate, and which GPUs ran."""

import pytest

from gpudoctor.expect.group import group_of
from gpudoctor.expect.opinion import Opinion, judge, levelled
from gpudoctor.expect.opinions import assess
from gpudoctor.expect.seats import Around
from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun, Member
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.nccl import Nccl, NcclComm, NcclProc, NcclRank, Transport
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Cpu, CpuEntry
from gpudoctor.facts.topology import NvLink, NvLinks, Pair, Pairs
from tests.expecting import A100, H200, HGX, MIB, RTX, gpus, members, pairs, run
from tests.support import HERE

# --- links and wires


def wire(measured, around):
    return next((o for o in assess(measured, around)[1].opinions if o.kind == "wire"), None)


def test_nvlink_by_count_and_read_rate():
    assert wire(run(300.0), HGX).gbs == pytest.approx(18 * 26.562)
    links = NvLinks(tuple(NvLink(gpu=g, link=n, active=True, speed_gbs=25.0, origin=HERE) for g in (0, 1) for n in range(18)))
    assert wire(run(300.0), Around(gpus=gpus(2), pairs=pairs(2), nvlinks=links)).gbs == 450.0


def test_nvlink_behind_switches_is_not_counted_per_peer():
    assert wire(run(220.0, nranks=8, name=A100), Around(gpus=gpus(8, A100), pairs=pairs(8, nvlinks=12))).gbs == 300.0


def test_nvlink_mesh_uses_the_links_to_all_peers():
    group = group_of(run(220.0, nranks=4, name=A100), Around(gpus=gpus(4, A100), pairs=pairs(4, nvlinks=4)))
    assert (group.link, group.wire_gbs, group.observed) == ("NV4", 300.0, True)


def test_a_ring_over_a_partial_mesh():
    name = "Tesla V100-SXM2-16GB"
    ring = Pairs(tuple(Pair(a=a, b=b, path="NVL" if (a, b) in ((0, 1), (1, 2), (2, 3), (0, 3)) else "SYS", nvlinks=2, origin=HERE) for a in range(4) for b in range(a + 1, 4)))
    assert group_of(run(40.0, nranks=4, name=name), Around(gpus=gpus(4, name), pairs=ring)).wire_gbs == pytest.approx(2 * 25.781)
    broken = Pairs(tuple(p if (p.a, p.b) != (2, 3) else Pair(a=2, b=3, path="SYS", origin=HERE) for p in ring))
    assert group_of(run(5.0, nranks=4, name=name), Around(gpus=gpus(4, name), pairs=broken)).wire_why_not is not None


def test_a_board_that_lost_its_nvlinks_is_expected_to_have_them():
    group, verdict = assess(run(25.0), Around(gpus=gpus(2), pairs=pairs(2, path="SYS")))
    assert group.observed and verdict.severity == "error" and verdict.used.kind == "wire"


PCIE = {"max_speed_gts": 16.0}
A40 = "NVIDIA A40"


@pytest.mark.parametrize(("rate", "severity"), [(26.0, None), (14.3, None), (14.0, "warning"), (9.5, "warning"), (9.3, "error")])
def test_two_cards_below_a_switch(rate, severity):
    _, verdict = assess(run(rate, name=A40), Around(gpus=gpus(2, A40, **PCIE), pairs=pairs(2, path="PIX")))
    assert (verdict.used.kind, verdict.severity) == ("wire", severity)
    assert verdict.used.gbs == pytest.approx(31.5, abs=0.1)


@pytest.mark.parametrize(("rate", "severity"), [(13.0, None), (6.0, None), (5.5, "warning"), (3.7, "error")])
@pytest.mark.parametrize(("name", "path"), [(RTX, "PIX"), (RTX, "PHB"), (A40, "PHB"), (A40, "NODE")])
def test_two_cards_through_host_memory(name, path, rate, severity):
    group, verdict = assess(run(rate, name=name), Around(gpus=gpus(2, name, **PCIE), pairs=pairs(2, path=path)))
    assert verdict.used.gbs == pytest.approx(12.6, abs=0.1) and "host memory" in verdict.used.words
    assert (verdict.severity, group.link) == (severity, "SHM" if name == RTX else path)


@pytest.mark.parametrize(("via", "env", "expected"), [("P2P/IPC", {}, 31.5), ("SHM/direct/direct", {}, 12.6), ("SHM/direct/direct", {"NCCL_P2P_DISABLE": "1"}, 31.5)])
def test_the_log_tells_which_way_counts(via, env, expected):
    """What a setting forced is not what the links give."""
    nccl = Nccl(comms=(NcclComm(source="test", nranks=2, transports=(Transport(0, 1, via),), env=env, origin=HERE),))
    around = Around(gpus=gpus(2, A40, **PCIE), pairs=pairs(2, path="PIX"), nccl=nccl)
    assert assess(run(5.0, name=A40), around)[1].used.gbs == pytest.approx(expected, abs=0.1)


def test_two_gpus_on_amd_go_directly():
    around = Around(gpus=gpus(2, A40, **PCIE), pairs=pairs(2, path="PHB"), cpu=Cpu(CpuEntry(vendor="AuthenticAMD")))
    assert assess(run(5.0, name=A40), around)[1].used.gbs == pytest.approx(31.5, abs=0.1)


def test_the_narrowest_hop_counts():
    tree = PciTree(
        (
            PciDevice(bdf="0000:00:01.0", max_width=16, max_speed_gts=16.0, parent_known=True, origin=HERE),
            PciDevice(bdf="0000:00:1c.0", max_width=4, max_speed_gts=16.0, parent_known=True, origin=HERE),
            PciDevice(bdf="0000:01:00.0", parent="0000:00:01.0", class_code="030000", device_id="10de:2684", max_width=16, max_speed_gts=16.0, origin=HERE),
            PciDevice(bdf="0000:02:00.0", parent="0000:00:1c.0", class_code="030000", device_id="10de:2684", max_width=16, max_speed_gts=16.0, origin=HERE),
        )
    )
    found = wire(run(6.0, name=A40), Around(gpus=gpus(2, A40, **PCIE), pairs=pairs(2, path="PIX"), tree=tree))
    assert found.gbs == pytest.approx(7.88, abs=0.01) and "x4" in found.words


def test_a_bridge_above_may_be_the_narrowest():
    bridges = (
        PciDevice(bdf="0000:00:01.0", max_width=8, max_speed_gts=16.0, parent_known=True, origin=HERE),
        PciDevice(bdf="0000:0a:00.0", parent="0000:00:01.0", max_width=16, max_speed_gts=16.0, origin=HERE),
    )
    cards = tuple(PciDevice(bdf=f"0000:0{n}:00.0", parent="0000:0a:00.0", class_code="030200", device_id="10de:2235", max_width=16, max_speed_gts=16.0, origin=HERE) for n in (1, 2))
    found = wire(run(10.0, name=A40), Around(gpus=gpus(2, A40, **PCIE), pairs=pairs(2, path="PIX"), tree=PciTree((*bridges, *cards))))
    assert found.gbs == pytest.approx(15.75, abs=0.01) and "bridge 0000:00:01.0" in found.words


def test_a_mixed_pair_is_expected_at_the_slower_member_s_rate():
    mixed = Gpus((*gpus(1, A40, max_speed_gts=16.0).gpus, *gpus(2, "NVIDIA T4", max_speed_gts=8.0).gpus[1:]))
    table = run(5.0, members=(*members(1, A40), *members(2, "NVIDIA T4")[1:]))
    group, verdict = assess(table, Around(gpus=mixed, pairs=pairs(2, path="PIX", p2p_read="OK", p2p_write="OK")))
    assert group.mixed and group.part is None
    assert (verdict.used.gbs, verdict.severity) == (pytest.approx(15.75, abs=0.01), "warning")


def test_links_of_an_unknown_number_give_no_wire():
    around = Around(gpus=gpus(2), pairs=pairs(2, nvlinks=None))
    assert "how many" in wire(run(5.0), around).why_not


def test_many_cards_through_the_host_are_not_judged_by_the_wire():
    _, verdict = assess(run(5.0, nranks=4, name=RTX), Around(gpus=gpus(4, RTX, **PCIE), pairs=pairs(4, path="PHB")))
    assert verdict.used is None and "memory" in verdict.why_not


def test_many_cards_below_one_switch_are():
    _, verdict = assess(run(5.0, nranks=4, name="NVIDIA A40"), Around(gpus=gpus(4, "NVIDIA A40", **PCIE), pairs=pairs(4, path="PIX", p2p_read="OK")))
    assert verdict.severity == "error"


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [(None, None), (CpuEntry(vendor="AuthenticAMD"), 16.0), (CpuEntry(vendor="GenuineIntel", family=6, model=0x55), 10.0), (CpuEntry(vendor="GenuineIntel", family=6, model=0x8F), 22.0), (CpuEntry(vendor="GenuineIntel", family=6, model=0x4F), 6.0), (CpuEntry(vendor="ARM"), None)],
)
def test_the_link_between_sockets(cpu, expected):
    around = Around(gpus=gpus(2, A40, max_speed_gts=64.0), pairs=pairs(2, path="SYS"), cpu=Cpu(cpu) if cpu else None)
    _, verdict = assess(run(5.0, name=A40), around)
    assert (verdict.used.gbs if verdict.used else None) == expected


def test_a_gpu_of_which_only_the_idle_link_is_known_is_not_judged():
    _, verdict = assess(run(5.0, name=RTX), Around(gpus=gpus(2, RTX, max_speed_gts=None, max_width=None, speed_gts=2.5), pairs=pairs(2, path="PHB")))
    assert verdict.used is None


def test_the_wire_needs_large_sizes():
    rising = BandwidthRun(nranks=2, collective="all_reduce", members=members(2), origin=HERE, rows=tuple(BandwidthRow(size=MIB << n, busbw_out_gbs=20.0 * 1.6**n) for n in range(5)))
    _, verdict = assess(rising, Around(pairs=pairs(2), gpus=gpus(2)))
    assert not levelled(rising) and all(o.why_not for o in verdict.opinions if o.kind == "wire")
    flat = run(5.0, size=32 * MIB, name=RTX)
    assert assess(flat, Around(gpus=gpus(2, RTX, **PCIE), pairs=pairs(2, path="PHB")))[1].severity == "warning"


# --- who ran


def test_without_topology_a_board_has_at_least_its_direct_links():
    group, verdict = assess(run(28.0), Around())
    assert (group.observed, verdict.used.gbs, verdict.severity) == (False, pytest.approx(6 * 26.562), "error")
    assert "at least" in verdict.used.words
    assert assess(run(220.0, nranks=8, name=A100), Around())[1].used.kind == "reference"


@pytest.mark.parametrize(
    ("measured", "word"),
    [
        (run(5.0, name=RTX), "which links"),
        (run(5.0, name="NVIDIA Unheard X1"), "part"),
        (run(5.0, members=()), "does not name"),
        (run(5.0, nranks=4, members=members(2)), "does not name"),
        (run(5.0, nranks=4, members=(*members(2), *members(2, host="other"))), "several hosts"),
        (run(5.0, nranks=4, members=members(4, devices=[0, 1, 0, 1])), "several hosts"),
        (run(5.0, members=(*members(1), *members(2, "NVIDIA H100 80GB HBM3")[1:])), "different parts"),
    ],
)
def test_without_a_known_part_nothing_is_expected(measured, word):
    _, verdict = assess(measured, Around())
    assert verdict.used is None and word in verdict.why_not


def test_the_facts_of_another_host_are_not_used():
    around = Around(gpus=Gpus((Gpu(index=0, bdf="0000:aa:00.0", name=RTX, origin=HERE), Gpu(index=1, bdf="0000:ab:00.0", name=RTX, origin=HERE))), pairs=pairs(2, path="PHB"))
    group = group_of(run(300.0), around)
    assert group.gpus == () and not group.observed


def test_old_tables_name_the_bus_and_are_found():
    old = tuple(Member(rank=n, device=1 - n, host="vm", name=H200, bus=n + 1) for n in range(2))
    assert [g.index for g in group_of(run(300.0, members=old), HGX).gpus] == [0, 1]


def test_cuda_s_numbers_count_where_all_gpus_are_alike():
    bare = tuple(Member(rank=n, device=n, host="vm", name=H200) for n in range(2))
    assert [g.index for g in group_of(run(300.0, members=bare), HGX).gpus] == [0, 1]
    mixed = Gpus((*gpus(1).gpus, *gpus(2, RTX).gpus[1:]))
    assert group_of(run(300.0, members=bare), Around(gpus=mixed, pairs=pairs(2))).gpus == ()


def test_shifted_numbers_without_address_are_not_mapped_to_unlike_pairs():
    bare = tuple(Member(rank=n, device=n, host="vm", name=H200) for n in range(2))
    unlike = Pairs(tuple(Pair(a=a, b=b, path="NVL" if (a, b) == (0, 1) else "SYS", nvlinks=4 if (a, b) == (0, 1) else None, origin=HERE) for a in range(4) for b in range(a + 1, 4)))
    four = Gpus(tuple(Gpu(index=n, name=H200, origin=HERE) for n in range(4)))
    assert group_of(run(300.0, members=bare), Around(gpus=four, pairs=unlike)).gpus == ()
    assert len(group_of(run(300.0, members=bare), Around(gpus=four, pairs=pairs(4))).gpus) == 2


def log_of_two(**more):
    ranks = tuple(NcclRank(rank=n, nranks=2, bus_id=f"{n + 1}000", nvml_dev=n, origin=HERE) for n in range(2))
    proc = NcclProc(source="test", host="vm", ranks=ranks, origin=HERE, **more)
    return Nccl(comms=(NcclComm(source="test", nranks=2, ranks=ranks, procs=(proc,), origin=HERE),))


def test_a_table_without_its_devices_is_completed_from_the_log():
    around = Around(gpus=gpus(2), pairs=pairs(2), nccl=log_of_two())
    assert [g.index for g in group_of(run(300.0, members=()), around).gpus] == [0, 1]
    assert assess(run(100.0, members=()), around)[1].severity == "error"


def test_a_completed_fabric_proves_the_switches():
    group = group_of(run(28.0), Around(nccl=log_of_two(fabric_state=3)))
    assert (group.link, group.observed, group.wire_gbs) == ("NV18", True, pytest.approx(18 * 26.562))
    assert not group_of(run(28.0), Around(nccl=log_of_two(fabric_state=0))).observed


def test_only_the_ranks_of_the_first_group_speak():
    split = tuple(Member(rank=n, device=n % 4, host="ab"[n // 4], name=A100, group=n % 2) for n in range(8))
    measured = run(200.0, nranks=4, members=split)
    assert measured.hosts == ("a", "b") and len(measured.team) == 4


def test_an_unusable_opinion_keeps_its_reason():
    verdict = judge(run(5.0), (Opinion(kind="wire", gbs=None, words="wire", source="s", why_not="nobody knows"),))
    assert verdict.used is None and verdict.why_not == "wire: nobody knows"
