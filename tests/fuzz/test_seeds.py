"""Every seed, and everything that fuzzing once found, keeps its promises; and a promise that is broken is noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpudoctor.parsers import smi_topo
from gpudoctor.read.section import Section
from tests.fuzz.families import FAMILIES, OUTPUTS, Broken


@pytest.mark.parametrize("name", FAMILIES)
def test_seeds(name: str) -> None:
    family = FAMILIES[name]
    seeds = list(family.seeds())
    assert seeds, "a family without seeds fuzzes nothing"
    for seed in seeds:
        family.examine(seed)
        family.examine(seed[: len(seed) // 2])
        family.examine(b"\xff" + seed[::-1])


def test_every_bundled_output_is_a_seed() -> None:
    driven = {kind for family in FAMILIES.values() for kind in family.kinds}
    assert {path.name for path in OUTPUTS.iterdir() if path.is_dir()} <= driven


def test_a_parser_that_breaks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(section: Section) -> Iterator[object]:
        raise KeyError("a bug")

    monkeypatch.setattr(smi_topo, "parse", parse)
    with pytest.raises(Broken, match="KeyError"):
        FAMILIES["topology"].examine((OUTPUTS / "smi-topo" / "h200x2-m.txt").read_bytes())
