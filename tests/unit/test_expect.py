"""What a run should reach: each opinion, their order, and what is not comparable."""

import pytest

from gpudoctor import shipped
from gpudoctor.expect import reference
from gpudoctor.expect.opinion import at, limits
from gpudoctor.expect.opinions import assess
from gpudoctor.expect.seats import Around
from gpudoctor.facts.bandwidth import BandwidthRun, Curve, Wanted
from gpudoctor.facts.trials import Estimate, Trials
from gpudoctor.parts import find
from gpudoctor.record import replace
from tests.expecting import GIB, H200, HGX, MIB, comm, gpus, pairs, run
from tests.support import HERE

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
