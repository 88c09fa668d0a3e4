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
