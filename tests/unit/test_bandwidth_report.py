"""The table with its curve: which sizes, how long a bar, and what stands below."""

import pytest

from gpudoctor.expect.opinions import assess
from gpudoctor.expect.seats import Around
from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRow, BandwidthRun, Member
from gpudoctor.report.bandwidth import MAX_RUNS, bar, chosen, duration, table, view
from gpudoctor.report.layout import Style
from tests.support import HERE, gpudoctor, store
from tests.tables import table as printed

GIB = 1 << 30
PLAIN, RICH = Style(unicode=False), Style()


def run(sizes, rate=300.0, **more):
    rows = tuple(BandwidthRow(size=s, busbw_out_gbs=rate, time_out_us=s / rate / 1e3, wrong_out=0) for s in sizes)
    members = tuple(Member(rank=n, device=n, host="vm", name="NVIDIA H200") for n in range(2))
    fields = {"collective": "all_reduce", "nranks": 2, "rows": rows, "members": members, "wrong": False, "completed": True, "origin": HERE}
    return BandwidthRun(**{**fields, **more})


def lines(measured, style=RICH):
    return table(measured, *assess(measured, Around()), style)


@pytest.mark.parametrize("powers", [range(3, 31), range(20, 31, 2), (30,), (3, 30), range(0, 35)])
def test_six_sizes_at_most_and_always_the_largest(powers):
    sizes = [1 << p for p in powers]
    shown = [r.size for r in chosen(run(sizes))]
    assert shown == sorted(set(shown)) and len(shown) <= 6 and shown[-1] == max(sizes)
    assert len(sizes) < 6 or len(shown) >= 5


def test_of_a_size_measured_twice_the_better_is_shown():
    measured = run([GIB], rows=(BandwidthRow(size=GIB, busbw_out_gbs=90.0), BandwidthRow(size=GIB, busbw_out_gbs=100.0)))
    assert [r.busbw_gbs for r in chosen(measured)] == [100.0]


@pytest.mark.parametrize(("value", "shown"), [(100.0, "█" * 16), (50.0, "█" * 8), (1.0, "▏"), (0.0, ""), (None, "")])
def test_bars(value, shown):
    assert bar(value, 100.0, RICH) == shown


def test_bars_without_glyphs():
    assert bar(50.0, 100.0, PLAIN) == "########"


@pytest.mark.parametrize(("us", "shown"), [(None, "?"), (8.37, "8.37 us"), (893.0, "893 us"), (12375.0, "12.4 ms"), (2.5e6, "2.5 s")])
def test_durations(us, shown):
    assert duration(us) == shown


def test_what_stands_below():
    text = " ".join(" ".join(lines(run([8, GIB // 2, GIB], average_busbw_gbs=84.95))).split())
    assert "plateau" in text and "300 GB/s" in text and "latency" in text
    assert "84.95 averages in the small sizes" in text and "results right" in text
    assert "wire (at least 6 NVLinks" in text and "in order" in text


def test_wrong_results_and_excerpts_are_said():
    text = "\n".join(lines(run([GIB], wrong=True, completed=False)))
    assert "WRONG RESULTS" in text and "excerpt" in text


def test_one_rank_is_not_judged():
    text = "\n".join(lines(run([8, GIB], rate=0.1, nranks=1, members=(Member(rank=0, device=0),))))
    assert "none: one rank" in text and "not judged" in text and "█" not in text


@pytest.mark.parametrize("style", [PLAIN, RICH])
def test_no_line_is_too_wide(style):
    for line in lines(run([1 << p for p in range(3, 33)], average_busbw_gbs=12.5, nccl_version="2.28.9", tests_version="2.19.6"), style):
        assert len(line) <= style.width
        assert style.unicode or line.isascii()


def test_many_runs_are_counted():
    shown = view(store(Bandwidth(tuple(run([GIB]) for _ in range(MAX_RUNS + 3)))), RICH)
    assert "and 3 more measurements" in shown[-1]


def test_a_failure_without_rows_has_no_table():
    assert view(store(Bandwidth((run([], rows=()),))), RICH) == []


def test_check_shows_it(tmp_path):
    (tmp_path / "run.txt").write_text(printed([(8, 0.0), (GIB // 2, 290.0), (GIB, 300.0)]))
    text = gpudoctor("check", "--from", str(tmp_path / "run.txt")).stdout.decode()
    assert "all_reduce" in text and "1 GiB" in text and "plateau" in text
