"""The table of chipset bridges."""

from __future__ import annotations

import pytest

from gpudoctor import chipsets


@pytest.mark.parametrize(
    ("device_id", "word"),
    [("8086:7a30", "700"), ("8086:7a4b", "700"), ("8086:a2ee", "X299"), ("8086:a190", "C620"), ("1022:43f5", "600/800"),
     ("1022:57ad", "X570")],
)  # fmt: skip
def test_ids_of_a_range(device_id: str, word: str) -> None:
    found = chipsets.find(device_id)
    assert found is not None
    assert word in found.name


@pytest.mark.parametrize("device_id", ["8086:7a4c", "8086:7a2f", "1022:1483", "8086:a70d", "10de:22a3", "1000:c030", "8086:zz", "x"])
def test_ids_outside_every_range(device_id: str) -> None:
    assert chipsets.find(device_id) is None


def test_name_where_there_is_no_id() -> None:
    found = chipsets.find(None, "Intel Corporation Cannon Lake PCH PCI Express Root Port #21 (rev f0)")
    assert found is not None
    assert "300" in found.name
    assert chipsets.find(None, "Advanced Micro Devices, Inc. [AMD] Matisse PCIe GPP Bridge") is not None
    # The processor's own ports of the same generation.
    assert chipsets.find(None, "Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge") is None
    assert chipsets.find(None, "Intel Corporation 12th Gen Core Processor PCI Express x16 Controller #1 (rev 02)") is None
    assert chipsets.find(None, None) is None
    # An id that is known beats a name.
    assert chipsets.find("8086:a70d", "Cannon Lake PCH PCI Express Root Port #21") is None


def test_rows_are_sourced_and_do_not_overlap() -> None:
    rows = sorted(chipsets.table(), key=lambda c: (c.vendor, c.first))
    assert rows
    for row in rows:
        assert row.first <= row.last
        assert row.source
        assert row.date
    for one, other in zip(rows, rows[1:], strict=False):
        assert one.vendor != other.vendor or one.last < other.first
