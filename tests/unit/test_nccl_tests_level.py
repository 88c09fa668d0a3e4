"""What a table of nccl-tests comes to: how many ranks ran, and the level that they reached."""

import pytest

from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun, factor
from gpudoctor.parsers.nccl_row import ranks
from tests.tables import devices, header, only, row, table

MIB, GIB = 1 << 20, 1 << 30
RATES = [(8, 0.0), (MIB, 24.0), (64 * MIB, 80.0), (256 * MIB, 96.0), (1024 * MIB, 100.0)]


# --- ranks


@pytest.mark.parametrize("nranks", [2, 3, 4, 8, 16, 64])
def test_ranks_from_the_ratio(nranks):
    tail = "".join(row("2.19", size, rate, 2 * (nranks - 1) / nranks) + "\n" for size, rate in [(256 * MIB, 230.12), (1024 * MIB, 412.34)])
    run = only(tail)
    if nranks == 2:
        assert (run.nranks, run.collective) == (None, None)  # could be anything with a factor of 1
    else:
        assert (run.nranks, run.collective) == (nranks, "all_reduce")


def test_ranks_of_a_ratio_below_one():
    run = only(row("2.19", 1024 * MIB, 210.0, 7 / 8) + "\n")
    assert (run.nranks, run.collective) == (8, None)


def test_many_ranks_are_not_told_apart_by_the_ratio():
    fewest, most = ranks([BandwidthRow(size=1, algbw_out_gbs=12.0, busbw_out_gbs=23.98)], "all_reduce")
    assert fewest < 1200 < most
    assert only(row("2.19", 1024 * MIB, 24.0, 2 * 1199 / 1200) + "\n").nranks is None


def test_a_list_of_devices_with_gaps_is_read_with_the_ratio():
    lines = [line for line in table(RATES, nranks=72).splitlines() if "# " not in line or "Rank" not in line or "Rank 71" in line]
    run = only("\n".join(lines) + "\n")
    assert (run.nranks, len(run.members)) == (72, 1)


def test_a_list_that_the_ratio_contradicts():
    text = "\n".join([*devices(4), header("2.19"), row("2.19", 1024 * MIB, 210.0, 1.75)]) + "\n"
    assert only(text).nranks == 8


def test_one_rank_by_its_zeros():
    run = only(row("2.19", 1024 * MIB, 210.0, 0) + "\n")
    assert run.nranks == 1


@pytest.mark.parametrize(("name", "n", "value"), [("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("sendrecv", 8, 1.0), ("other", 8, None)])
def test_factors(name, n, value):
    assert factor(name, n) == value


# --- the level


def level(*rates, nranks=2):
    return BandwidthRun(nranks=nranks, rows=tuple(BandwidthRow(size=s, busbw_out_gbs=v) for s, v in rates)).plateau_busbw_gbs


def test_level_is_not_the_average():
    assert level((8, 0.0), (1 << 29, 98.0), (1 << 30, 100.0), (1 << 31, 99.0)) == 99.0


def test_level_of_a_table_that_still_rises_is_its_end():
    assert level((1 << 28, 60.0), (1 << 29, 80.0), (1 << 30, 110.0)) == 110.0


def test_one_disturbed_size_does_not_decide():
    assert level((1 << 28, 99.0), (1 << 29, 100.0), (1 << 30, 40.0)) == 99.5


def test_the_better_of_both_halves_counts():
    run = BandwidthRun(nranks=2, rows=(BandwidthRow(size=1 << 30, busbw_out_gbs=90.0, busbw_in_gbs=100.0),))
    assert run.plateau_busbw_gbs == 100.0


@pytest.mark.parametrize("rates", [[], [(8, 0.1), (2048, 0.24)], [(1 << 30, 0.0)]])
def test_no_level(rates):
    assert level(*rates) is None


def test_no_level_for_one_rank():
    assert level((1 << 30, 5.0), nranks=1) is None
