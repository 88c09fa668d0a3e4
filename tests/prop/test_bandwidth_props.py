"""Cut a table at every byte, and mix it with anything: no row may say what the whole does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRun, HostCopies, PairRates
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise
from tests.tables import FACTORS, LAYOUTS, header, row, table

OUTPUTS = FIXTURES / "outputs"
MIB = 1 << 20
RATES = [(0, 0.0), (8, 0.0), (MIB, 24.31), (1024 * MIB, 331.93)]
HEADLESS = "".join(row(layout, size, rate, 1.75) + "\n" for layout in LAYOUTS for size, rate in RATES)
CAPTURED = [
    (kind, path.read_text())
    for kind in ("nccl-tests", "nccl-tests-json", "nvbandwidth")
    for path in sorted((OUTPUTS / kind).glob("*.*"))
    if path.suffix != ".md" and len(path.read_text()) < 4000
]
SAMPLES = [
    *CAPTURED,
    *(("nccl-tests", table(RATES, layout=layout, nranks=12)) for layout in LAYOUTS),
    ("nccl-tests", HEADLESS),
    ("nccl-tests", "# nccl-tests version 2.20.0 (b4d5bee) nccl-headers=23102 nccl-library=23102\n"
     "Invalid number of GPUs: 16 requested but only 12 were found.\n .. vm pid 1843: Test failure common.cu:1454\n"
     "vm: Test NCCL failure common.cu:958 'unhandled cuda error'\nsrun: error: vm: task 3: Exited with exit code 13\n"),
]  # fmt: skip
# What a later line may still change: the run's own verdict, and what a failure line says in full.
LATER = {"origin", "rows", "members", "failures", "wrong", "completed", "settings", "checked"}


def runs(kind: str, text: str) -> list[BandwidthRun]:
    try:
        return [r for f in parse(kind, text) if isinstance(f, Bandwidth) for r in f.runs]
    except Unparsable:
        return []


def statements(found: list[BandwidthRun]) -> Iterator[tuple[Any, ...]]:
    for place, run in enumerate(found):
        for name in run._fields:
            value = getattr(run, name)
            if name not in LATER and value is not None:
                yield (place, name, value)
        for n, one in enumerate(run.rows):
            yield from ((place, "row", n, name, value) for name, value in one.__dict__.items() if value is not None)
        for n, member in enumerate(run.members):
            yield from ((place, "member", n, name, value) for name, value in member.__dict__.items() if value is not None)
        for n, failure in enumerate(run.failures):
            yield from ((place, "failure", n, name, getattr(failure, name)) for name in ("asked", "found", "status") if getattr(failure, name) is not None)


@pytest.mark.parametrize("sample", range(len(SAMPLES)))
def test_cut_at_every_byte(sample: int) -> None:
    kind, text = SAMPLES[sample]
    whole = set(statements(runs(kind, text)))
    assert whole or kind == "nvbandwidth"
    for cut in range(len(text)):
        extra = set(statements(runs(kind, text[:cut]))) - whole
        assert not extra, f"cut at {cut}, after {text[:cut][-40:]!r}: {sorted(map(str, extra))[:3]}"


def test_copies_cut_at_every_byte() -> None:
    text = (OUTPUTS / "nvbandwidth" / "two-gpus.txt").read_text()

    def said(part: str) -> set[tuple[Any, ...]]:
        try:
            facts = parse("nvbandwidth", part)
        except Unparsable:
            return set()
        copies = [c for f in facts if isinstance(f, HostCopies) for c in f]
        rates = [r for f in facts if isinstance(f, PairRates) for r in f]
        return {(c.bdf, c.name, n, getattr(c, n)) for c in copies for n in ("to_device_gbs", "from_device_gbs") if getattr(c, n) is not None} | {
            (r.a, r.b, r.what, r.gbs) for r in rates
        }

    whole = said(text)
    assert len(whole) == 3
    for cut in range(len(text)):
        assert said(text[:cut]) <= whole, f"cut at {cut}"


sizes = st.lists(st.integers(3, 34), min_size=1, max_size=8, unique=True).map(lambda powers: [1 << p for p in sorted(powers)])


@settings(max_examples=60, deadline=None)
@given(sizes, st.floats(2.0, 900.0), st.sampled_from(sorted(LAYOUTS)), st.sampled_from(sorted(FACTORS)), st.integers(2, 16), st.randoms())
def test_any_table_gives_its_numbers(shown: list[int], top: float, layout: str, collective: str, nranks: int, random: Any) -> None:
    rates = [(size, round(top * size / (size + (1 << 20)), 2)) for size in shown]
    lines = table(rates, collective, nranks, layout).splitlines()
    mixed = []
    for line in lines:
        mixed.append(line)
        if random.random() < 0.3:
            mixed.append(random.choice(["vm:17:18 [0] NCCL INFO Channel 00/24 : 0 1", "", "a b c", "10 20 thirty 40", "# a comment"]))
    found = runs("nccl-tests", "\n".join(mixed) + "\n")
    assert len(found) == 1
    run = found[0]
    assert (run.collective, run.completed, len(run.rows)) == (collective, True, len(rates))
    assert run.nranks == nranks
    for one, (size, rate) in zip(run.rows, rates, strict=True):
        assert one.size == size
        assert one.busbw_out_gbs == pytest.approx(rate, abs=0.06)


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="#0123456789. \n\tfloatsumNAe+-:RankPid[]x", max_size=400))
def test_noise_breaks_nothing(text: str) -> None:
    for kind in ("nccl-tests", "nccl-tests-json", "nvbandwidth"):
        for run in runs(kind, text):
            assert run.plateau_busbw_gbs is None or run.plateau_busbw_gbs > 0
    recognise(header("2.19") + "\n" + text)
