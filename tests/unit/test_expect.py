"""What a run should reach: each opinion, their order, and what is not comparable."""

import pytest

from gpudoctor import shipped
from gpudoctor.expect import reference
from gpudoctor.expect.group import group_of
from gpudoctor.expect.opinion import Opinion, at, judge, levelled, limits
from gpudoctor.expect.opinions import assess
from gpudoctor.expect.seats import Around
from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun, Curve, Member, Wanted
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.nccl import Graph, Nccl, NcclComm, NcclProc, NcclRank, Transport
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import Cpu, CpuEntry
from gpudoctor.facts.topology import NvLink, NvLinks, Pair, Pairs
from gpudoctor.facts.trials import Estimate, Trials
from gpudoctor.parts import find
from gpudoctor.record import replace
from tests.support import HERE

GIB, MIB = 1 << 30, 1 << 20
H200, A100, RTX = "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"


def members(count, name=H200, host="vm", devices=None):
    return tuple(Member(rank=n, device=n if devices is None else devices[n], host=host, name=name, bdf=f"0000:{n + 1:02x}:00.0") for n in range(count))


def run(rate, size=GIB, nranks=2, name=H200, collective="all_reduce", **more):
    rows = tuple(BandwidthRow(size=s, busbw_out_gbs=rate, line=n) for n, s in enumerate((size // 4, size // 2, size)))
    return BandwidthRun(**{"collective": collective, "nranks": nranks, "rows": rows, "members": members(nranks, name), "origin": HERE, **more})


def gpus(count, name=H200, **more):
    entry = {"max_width": 16, "width": 16, "max_speed_gts": 32.0, **more}
    return Gpus(tuple(Gpu(index=n, bdf=f"0000:{n + 1:02x}:00.0", name=name, origin=HERE, **entry) for n in range(count)))


def pairs(count, path="NVL", nvlinks=18, **more):
    return Pairs(tuple(Pair(a=a, b=b, path=path, nvlinks=nvlinks if path == "NVL" else None, origin=HERE, **more) for a in range(count) for b in range(a + 1, count)))


def comm(nranks=2, channels=12, bw=30.0, kind="NVL", env=None, nvls=None, **more):
    graph = Graph(4, channels, bw, bw, kind, "PIX")
    ranks = tuple(NcclRank(rank=n, nranks=nranks, graphs=(graph,), nvls=nvls, nvls_channels=16 if nvls else 0, origin=HERE) for n in range(nranks))
    return Nccl(comms=(NcclComm(source="test", nranks=nranks, ranks=ranks, env=env or {}, origin=HERE, **more),))


HGX = Around(gpus=gpus(2), pairs=pairs(2))


# --- the verdict


@pytest.mark.parametrize(("kind", "warn", "fail"), [("reference", 0.85, 0.70), ("graph", 0.85, 0.70), ("baseline", 0.85, 0.70), ("wire", 0.45, 0.30), ("limit", 1.0, 1.0)])
def test_limits(kind, warn, fail):
    assert limits(kind, None) == (warn, fail)


def test_a_ratio_given_replaces_the_warning_and_never_hides_an_error():
    assert limits("reference", 0.95) == (0.95, 0.70)
    assert limits("reference", 0.5) == (0.5, 0.5)


@pytest.mark.parametrize(("rate", "severity"), [(332.0, None), (283.0, None), (281.0, "warning"), (233.0, "warning"), (231.0, "error")])
def test_severity_by_reference(rate, severity):
    _, verdict = assess(run(rate), HGX)
    assert (verdict.used.kind, verdict.expected_gbs, verdict.size, verdict.severity) == ("reference", 332.0, GIB, severity)


def test_the_order_of_opinions():
    wanted = Wanted(limit_gbs=100.0, baselines=(Curve(collective="all_reduce", nranks=2, devices=(H200, H200), points=((MIB, 20.0), (GIB, 340.0)), source="b.json", date="2026-11-01"),))
    around = Around(gpus=gpus(2), pairs=pairs(2), nccl=comm())
    _, verdict = assess(run(320.0), around, wanted)
    assert [o.kind for o in verdict.opinions] == ["limit", "baseline", "reference", "graph", "wire"]
    assert verdict.used.kind == "limit" and verdict.severity is None
    _, verdict = assess(run(99.0), around, wanted)
    assert verdict.severity == "error"  # below the limit the user gave
    _, verdict = assess(run(280.0), around, Wanted(baselines=wanted.baselines))
    assert (verdict.used.kind, verdict.severity, round(verdict.ratio, 2)) == ("baseline", "warning", 0.82)


def test_a_baseline_of_other_gpus_is_not_used():
    wanted = Wanted(baselines=(Curve(collective="all_reduce", nranks=2, devices=("x", "y"), points=((GIB, 900.0),), source="b", date="d"),))
    _, verdict = assess(run(330.0), HGX, wanted)
    assert verdict.used.kind == "reference"
    assert "other GPUs" in verdict.opinions[0].why_not


def test_a_baseline_survives_its_file():
    saved = reference.to_json(run(330.0), (H200, H200), "2026-11-01")
    curve = reference.from_json(saved, "b.json")
    assert curve.points == ((GIB // 4, 330.0), (GIB // 2, 330.0), (GIB, 330.0))
    assert (curve.collective, curve.nranks, curve.devices) == ("all_reduce", 2, (H200, H200))


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, {"collective": "a", "nranks": "x", "devices": [], "points": [], "date": ""}, {"collective": "a", "nranks": 2, "devices": [], "points": [[1]], "date": ""}])
def test_no_baseline(value):
    assert reference.from_json(value, "b.json") is None


def test_between_two_sizes():
    points = ((MIB, 10.0), (4 * MIB, 20.0))
    assert [at(points, s) for s in (MIB // 2, MIB, 2 * MIB, 4 * MIB, GIB)] == [None, 10.0, 15.0, 20.0, 20.0]


def test_nothing_is_said_of_one_rank_nor_of_small_sizes():
    _, verdict = assess(run(0.0, nranks=1), HGX)
    assert verdict.used is None and "one rank" in verdict.why_not
    _, verdict = assess(run(0.2, size=2048), HGX)
    assert verdict.used is None and "small sizes" in verdict.why_not
    _, verdict = assess(BandwidthRun(nranks=2, origin=HERE), HGX)
    assert verdict.used is None and verdict.severity is None


def test_gloo_has_nothing_to_expect_but_a_limit():
    _, verdict = assess(run(1.0, backend="gloo"), HGX)
    assert verdict.used is None and "CPUs" in verdict.why_not
    _, verdict = assess(run(1.0, backend="gloo"), HGX, Wanted(limit_gbs=2.0))
    assert verdict.severity == "error"


# --- NCCL's own estimate


def graph_only(**more):
    return Around(gpus=gpus(2, "NVIDIA Unheard X1"), pairs=pairs(2, nvlinks=4), nccl=comm(**more))


def test_the_estimate_of_an_unrestricted_run():
    _, verdict = assess(run(250.0, name="NVIDIA Unheard X1"), graph_only())
    assert (verdict.used.kind, verdict.expected_gbs, verdict.severity) == ("graph", 360.0, "error")


@pytest.mark.parametrize("env", [{"NCCL_P2P_DISABLE": "1"}, {"NCCL_MAX_NCHANNELS": "4"}, {"NCCL_ALGO": "Tree"}, {"NCCL_P2P_LEVEL": "LOC"}])
def test_the_suspect_setting_s_own_estimate_is_never_used(env):
    _, verdict = assess(run(25.0, name="NVIDIA Unheard X1"), graph_only(channels=4, bw=7.0, env=env))
    assert verdict.used is None
    assert next(iter(env)) in next(o for o in verdict.opinions if o.kind == "graph").why_not


def test_an_estimate_is_used_with_a_setting_that_is_off():
    _, verdict = assess(run(350.0, name="NVIDIA Unheard X1"), graph_only(env={"NCCL_P2P_DISABLE": "0", "NCCL_DEBUG": "INFO"}))
    assert verdict.used.kind == "graph"


def test_an_estimate_that_counts_on_the_wrong_path_is_not_used():
    _, verdict = assess(run(25.0, name="NVIDIA Unheard X1"), graph_only(channels=2, bw=12.0, kind="PHB"))
    assert verdict.used is None


def test_an_estimate_counts_from_a_gibibyte_on():
    _, verdict = assess(run(200.0, size=256 * MIB, name="NVIDIA Unheard X1"), graph_only())
    assert "1 GiB" in next(o for o in verdict.opinions if o.kind == "graph").why_not


def cleaned(env, clean_kind="NVL", nranks=2):
    """A run under a setting, and the estimate of one without it."""
    around = graph_only(channels=2, bw=11.0, env=env)
    return replace(around, trials=Trials((), Estimate(nranks=nranks, channels=12, bw_gbs=30.0, type_intra=clean_kind, without=tuple(env), origin=HERE)))


def test_the_estimate_of_a_run_without_the_setting_stands_in_for_the_suspect_s_own():
    _, verdict = assess(run(28.0, name="NVIDIA Unheard X1"), cleaned({"NCCL_P2P_DISABLE": "1"}))
    assert (verdict.used.kind, verdict.expected_gbs, verdict.severity) == ("graph", 360.0, "error")
    assert "without NCCL_P2P_DISABLE (12 x 30)" in verdict.used.words


def test_a_reference_comes_before_the_estimate_of_a_clean_run():
    around = replace(cleaned({"NCCL_P2P_DISABLE": "1"}), gpus=gpus(2), pairs=pairs(2))
    _, verdict = assess(run(28.0), around)
    assert verdict.used.kind == "reference" and [o.kind for o in verdict.opinions][:2] == ["reference", "graph"]


@pytest.mark.parametrize("around", [cleaned({"NCCL_P2P_DISABLE": "1"}, "PHB"), cleaned({"NCCL_P2P_DISABLE": "1"}, nranks=4)])
def test_an_estimate_that_does_not_fit_is_not_used(around):
    _, verdict = assess(run(28.0, name="NVIDIA Unheard X1"), around)
    assert verdict.used is None or verdict.used.kind != "graph"


def test_a_value_that_means_the_default_restricts_nothing():
    _, verdict = assess(run(350.0, name="NVIDIA Unheard X1"), graph_only(env={"NCCL_ALGO": "^", "NCCL_PROTO": "", "NCCL_P2P_LEVEL": ""}))
    assert verdict.used.kind == "graph"


def test_an_estimate_of_another_communicator_is_not_used():
    around = Around(gpus=gpus(2, "NVIDIA Unheard X1"), pairs=pairs(2, nvlinks=4), nccl=comm(nranks=8))
    _, verdict = assess(run(25.0, name="NVIDIA Unheard X1"), around)
    assert verdict.used is None and [o.kind for o in verdict.opinions] == ["wire"]


# --- references


def test_in_switch_reduction_is_expected_only_where_it_is_used():
    around = Around(gpus=gpus(8, "NVIDIA H100 80GB HBM3"), pairs=pairs(8))
    _, verdict = assess(run(365.0, 8 * GIB, 8, "NVIDIA H100 80GB HBM3"), around)
    assert (verdict.expected_gbs, verdict.severity) == (370.0, None)
    with_nvls = Around(gpus=around.gpus, pairs=around.pairs, nccl=comm(8, nvls=True))
    _, verdict = assess(run(365.0, 8 * GIB, 8, "NVIDIA H100 80GB HBM3"), with_nvls)
    assert (verdict.expected_gbs, verdict.severity) == (480.0, "warning")


def test_a_ring_collective_without_figures_is_held_against_another():
    found = reference.reference(find(None, "NVIDIA GeForce RTX 2080 Ti"), "NV2", 2, "all_reduce", None, GIB)
    assert found.gbs == 20.0 and "all_gather" in found.words
    assert reference.reference(find(None, "NVIDIA GeForce RTX 2080 Ti"), "NV2", 2, "sendrecv", None, GIB) is None


def test_every_figure_has_a_source_and_a_known_part():
    lines = shipped.rows(reference.TABLE)
    for line in lines[1:]:
        ids, _, link, ranks, collective, nvls, size, gbs, _, source, date = line.split("\t")
        assert all(find(f"10de:{i}") is not None for i in ids.split(",")), line
        assert int(size) >= MIB and float(gbs) > 0 and int(ranks) >= 2 and nvls in "yn", line
        assert ("github.com/" in source or source.startswith("measured")) and date, line
        assert collective in ("all_reduce", "all_gather", "sendrecv") and (link == "SHM" or link.startswith("NV")), line


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
