"""Rates and lanes to names and GB/s."""

from __future__ import annotations

import pytest

from gpudoctor import pcie
from gpudoctor.model import Gain


@pytest.mark.parametrize(
    ("speed", "gen", "x16"),
    # One direction of a x16 link after line coding, as the PCI-SIG's tables round it.
    [(2.5, 1, 4.0), (5.0, 2, 8.0), (8.0, 3, 15.75), (16.0, 4, 31.51), (32.0, 5, 63.02), (64.0, 6, 121.0)],
)
def test_every_generation(speed: float, gen: int, x16: float) -> None:
    assert pcie.generation(speed) == gen
    assert pcie.gbs(speed, 16) == pytest.approx(x16, abs=0.01)
    assert pcie.gbs(speed, 4) == pytest.approx(x16 / 4, abs=0.01)


def test_what_is_unknown_stays_unknown() -> None:
    assert pcie.generation(None) is None
    assert pcie.generation(7.0) is None
    assert pcie.gbs(None, 16) is None
    assert pcie.gbs(16.0, None) is None
    assert pcie.gbs(7.0, 16) is None
    assert pcie.cost(None, 31.5) is None


def test_words() -> None:
    assert pcie.name(16.0, 8) == "Gen4 x8"
    assert pcie.name(7.0, None) == "7 GT/s"
    assert pcie.name(None, 4) == "x4"
    assert pcie.cost(pcie.gbs(16.0, 4), pcie.gbs(16.0, 16)) == "at most 7.9 of 31.5 GB/s each way"
    assert pcie.amount(pcie.gbs(2.5, 1) or 0) == "0.25"


def test_the_gain_is_the_cost_in_numbers():
    assert pcie.gain(7.88, 31.51) == Gain(7.9, 31.5, "GB/s each way")
    assert pcie.gain(None, 31.5) is pcie.gain(7.9, None) is None
