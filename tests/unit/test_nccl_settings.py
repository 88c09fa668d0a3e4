"""Settings that one rank printed and another did not: a fault, or a line that was lost on the way."""

from __future__ import annotations

import re

import pytest

from tests.support import FIXTURES
from tests.unit.test_homes import report

LOGS = FIXTURES / "outputs" / "nccl-log"


def without(name: str, setting: str, nth: int) -> str:
    """The log of one process without its line of a setting. Where a process printed it is told by its number."""
    lines = (LOGS / f"{name}.txt").read_text().splitlines(keepends=True)
    pids = list(dict.fromkeys(found[1] for line in lines if (found := re.match(r"\S+?:(\d+):\d+ .*\brank \d+ nranks", line))))
    kept = [line for line in lines if not (f"{setting} set by environment" in line and re.match(rf"\S+?:{pids[nth]}:", line))]
    assert len(kept) < len(lines)
    return "".join(kept)


def mismatch(text: str) -> list[str]:
    return [d.finding.message for d in report(text).diagnoses if d.finding.slug == "rank-mismatch"]


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize(
    ("name", "setting"),
    [("h200x2-2.28.9-p2p-disabled", "NCCL_P2P_DISABLE"), ("h200x2-2.18.3-socket", "NCCL_P2P_LEVEL"), ("h200x2-2.18.3-socket", "NCCL_SHM_DISABLE")],
)
def test_a_setting_by_which_all_ranks_evidently_went_was_only_lost_in_the_log(name: str, setting: str, nth: int) -> None:
    assert mismatch(without(name, setting, nth)) == []


def test_ranks_that_reach_each_other_in_different_ways_do_differ() -> None:
    text = without("h200x2-2.28.9-p2p-disabled", "NCCL_P2P_DISABLE", 1)
    odd = re.sub(r"(: 1\[1\] -> 0\[0\] via )SHM\S*", r"\1P2P/CUMEM", text)
    assert odd != text
    assert mismatch(odd) and "NCCL_P2P_DISABLE is" in mismatch(odd)[0]


def test_what_chooses_no_way_is_still_told_apart() -> None:
    assert mismatch((LOGS / "h200x2-2.28.9-env-mismatch.txt").read_text())
