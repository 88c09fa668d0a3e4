"""Rows of `nvidia-smi --query-gpu=… --format=csv,noheader`: read only under the command that names the columns."""

from __future__ import annotations

import importlib

import pytest

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.read.section import Unparsable, parser_module
from tests.support import recognise

ROWS = """\
0, NVIDIA RTX A5000, 00000000:21:00.0, 4, 16
1, NVIDIA RTX A5000, 00000000:4B:00.0, 3, 8
"""
COMMAND = "$ nvidia-smi --query-gpu=index,name,pci.bus_id,pcie.link.gen.max,pcie.link.width.current --format=csv,noheader\n"


def gpus(text: str) -> list[Gpu]:
    read = [f for s in recognise(text) if s.kind == "smi-csv" for f in importlib.import_module(parser_module(s.kind)).parse(s)]
    return [g for f in read if isinstance(f, Gpus) for g in f]


def test_the_columns_are_those_the_command_asked_for() -> None:
    assert [(g.index, g.bdf, g.max_speed_gts, g.width) for g in gpus(COMMAND + ROWS)] == [
        (0, "0000:21:00.0", 16.0, 16),
        (1, "0000:4b:00.0", 8.0, 8),
    ]


def test_without_the_command_no_column_is_guessed() -> None:
    with pytest.raises(Unparsable):
        gpus(ROWS)


def test_prose_is_no_table() -> None:
    assert recognise("We have 2, maybe 3, NVIDIA cards, said the vendor\nand, as of now, NVIDIA Drivers 550, we hope\n") == []


# Synthetic: outputs below the command that asked for them.
WIDTHS = "user@node07:~$ nvidia-smi --query-gpu=pcie.link.width.current --format=csv,noheader\n16\n8\n"
LINKS = "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max --format=csv,noheader\n4, 4, 16, 16\n4, 4, 4, 16\n"


def below(text: str) -> list[tuple[int | None, float | None, int | None, int | None]]:
    return [(g.index, g.speed_gts, g.width, g.max_width) for g in gpus(text)]


def test_rows_of_numbers_below_the_command_that_asked_for_them() -> None:
    assert below(WIDTHS) == [(0, None, 16, None), (1, None, 8, None)]
    assert below(LINKS) == [(0, 16.0, 16, 16), (1, 16.0, 4, 16)]
    chosen = "$ nvidia-smi --query-gpu=index,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max --format=csv,noheader\n3, 4, 16, 16\n5, 4, 4, 16\n"
    assert below(chosen) == [(3, None, 16, 16), (5, None, 4, 16)]


@pytest.mark.parametrize("option", ["-i 1", "--id=1", "-l 1", "-lms 500", "--loop=5"])
def test_rows_of_some_gpus_or_of_a_loop_are_not_counted(option: str) -> None:
    assert below(WIDTHS.replace("--format", f"{option} --format")) == []


def test_a_command_in_prose_begins_no_table() -> None:
    said = "You can check with nvidia-smi --query-gpu=pcie.link.width.current --format=csv,noheader and tell us.\n16\n8\n"
    assert not [s for s in recognise(said) if s.kind == "smi-csv"]
    assert below("$ nvidia-smi --query-gpu=pcie.link.width.current --format=csv,noheader | sort\n16\n8\n") == []


@pytest.mark.parametrize(("text", "rows"), [(WIDTHS, [(0, None, 16, None), (1, None, 8, None)]), (LINKS, [(0, 16.0, 16, 16), (1, 16.0, 4, 16)])])
def test_rows_below_a_command_cut_anywhere(text: str, rows: list[tuple[int, float | None, int | None, int | None]]) -> None:
    for end in range(len(text)):
        try:
            found = below(text[:end])
        except Unparsable:
            continue
        for got, whole in zip(found, rows, strict=False):
            assert all(value in (None, right) for value, right in zip(got, whole, strict=True))
