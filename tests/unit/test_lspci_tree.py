"""The picture of the PCI tree that `lspci -t` and `-tv` draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.pci import PciTree
from gpudoctor.parsers.lspci import parse as parse_lspci
from gpudoctor.parsers.lspci_tree import parse as parse_tree
from gpudoctor.read.section import Unparsable
from tests.support import parse, recognise, report

# Two GPUs below one switch, a third and a NIC below root ports of another socket; made up, in lspci's shape.
TREE = """-+-[0000:80]-+-00.0  Intel Corporation Device 09a2
 |           +-01.0-[81]----00.0  Mellanox Technologies MT2910 Family [ConnectX-7]
 |           \\-03.0-[82]--+-00.0  NVIDIA Corporation AD102 [GeForce RTX 4090]
 |                        \\-00.1  NVIDIA Corporation AD102 High Definition Audio Controller
 \\-[0000:00]-+-00.0  Intel Corporation Device 09a2
             +-01.0-[15-19]----00.0-[16-19]--+-00.0-[17]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
             |                               +-04.0-[18]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
             |                               \\-08.0-[19]--
             \\-1f.0  Intel Corporation Device 1b81
"""
GPUS = ["0000:82:00.0", "0000:17:00.0", "0000:18:00.0"]


def tree(text: str) -> PciTree:
    found: list[Any] = [f for s in recognise(text) if s.kind == "lspci-tree" for f in parse_tree(s)]
    assert [type(f) for f in found] == [PciTree], found
    result: PciTree = found[0]
    return result


def plain(text: str) -> str:
    """As `lspci -t` draws it, without names."""
    return "".join(line.split("  Intel")[0].split("  NVIDIA")[0].split("  Mellanox")[0].rstrip() + "\n" for line in text.splitlines())


def test_what_hangs_below_what() -> None:
    found = tree(TREE)
    assert [d.bdf for d in found.gpus()] == GPUS
    assert [[d.bdf for d in found.ancestors(g)] for g in GPUS] == [
        ["0000:80:03.0"],
        ["0000:16:00.0", "0000:15:00.0", "0000:00:01.0"],
        ["0000:16:04.0", "0000:15:00.0", "0000:00:01.0"],
    ]
    audio, root = found.by_bdf("0000:82:00.1"), found.by_bdf("0000:80:03.0")
    assert audio is not None and not audio.is_gpu and audio.parent == "0000:80:03.0"
    assert root is not None and root.is_bridge and root.parent is None and root.parent_known
    empty = found.by_bdf("0000:16:08.0")
    assert empty is not None and empty.is_bridge
    assert not found.complete


def test_without_names_the_places_are_the_same() -> None:
    named, bare = tree(TREE), tree(plain(TREE))
    assert [(d.bdf, d.parent) for d in bare] == [(d.bdf, d.parent) for d in named]
    assert all(d.name is None for d in bare) and bare.gpus() == ()


def test_numbers_beside_the_names() -> None:
    text = TREE.replace("GA100 [A100 PCIe 80GB]", "GA100 [A100 PCIe 80GB] [10de:20b5]")
    gpu = tree(text).by_bdf("0000:17:00.0")
    assert gpu is not None and (gpu.device_id, gpu.name) == ("10de:20b5", "NVIDIA Corporation GA100 [A100 PCIe 80GB]")


@pytest.mark.parametrize("change", ["> ", "    "])
def test_quoted_and_indented(change: str) -> None:
    text = "".join(change + line for line in TREE.splitlines(keepends=True))
    assert [(d.bdf, d.parent) for d in tree(text)] == [(d.bdf, d.parent) for d in tree(TREE)]


def test_cut_at_every_byte() -> None:
    whole = {d.bdf: d for d in tree(TREE)}
    for end in range(len(TREE)):
        try:
            found = [f for f in parse("lspci-tree", TREE[:end]) if isinstance(f, PciTree)]
        except Unparsable:
            continue
        for device in found[0]:
            same = whole[device.bdf]
            assert all(getattr(device, n) in (None, getattr(same, n)) for n in device._fields if n != "origin"), TREE[:end]


def test_lines_whose_beginning_was_left_out_are_lost_not_guessed() -> None:
    lines = TREE.splitlines(keepends=True)
    found: list[Any] = list(parse("lspci-tree", "".join([*lines[:4], *lines[5:]])))
    assert all(d.bdf.startswith(("0000:8", "0000:81")) for d in found[0]) and len(found[0].devices) == 6
    assert [type(f) for f in found[1:]] == [Loss]


def acs_findings(path: Path, text: str) -> set[str]:
    path.write_text(text)
    return {f["subject"] for r in report("check", "--from", str(path))[1]["results"] for f in r["findings"] if f["slug"] == "acs"}


def test_it_places_what_another_listing_says(tmp_path: Path) -> None:
    """The switch's ports redirect (ACS): with the picture it is known that they lie between two GPUs."""
    acs = "ACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
    ports = "".join(
        f"0000:16:{port}.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)\n\t\t{acs}\n" for port in ("00", "04")
    )
    assert acs_findings(tmp_path / "acs.txt", ports) == {"host"}
    assert acs_findings(tmp_path / "both.txt", TREE + "\n" + ports) == {"pci:0000:16:00.0", "pci:0000:16:04.0"}


def test_a_picture_is_no_listing_and_a_listing_no_picture() -> None:
    assert {s.kind for s in recognise(TREE)} == {"lspci-tree"}
    text = "41:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
    assert [s.kind for s in recognise(text)] == ["lspci"] and [f for s in recognise(text) for f in parse_lspci(s)]


PART = """\
 |           |                     |               +-03.6  Mellanox Technologies MT27800 Family [ConnectX-5 Virtual Function]
 |           |                     +-08.0-[5c-5f]----00.0  NVIDIA Corporation GV100GL [Tesla V100 PCIe 32GB]
 |           |                     +-0c.0-[60-63]--+-00.0  NVIDIA Corporation GV100GL [Tesla V100 PCIe 32GB]
 |           |                     |               \\-00.1  NVIDIA Corporation Device 10f2
"""


def test_a_part_of_it_knows_the_buses_that_it_names() -> None:
    found = [f for s in recognise(PART) if s.kind == "lspci-tree" for f in parse_tree(s)]
    (picture,) = [f for f in found if isinstance(f, PciTree)]
    assert [(d.bdf, d.parent, d.parent_known) for d in picture] == [
        ("0000:5c:00.0", None, False), ("0000:60:00.0", None, False), ("0000:60:00.1", None, False),
    ]  # fmt: skip
    assert [d.bdf for d in picture.gpus()] == ["0000:5c:00.0", "0000:60:00.0"] and not picture.complete
    # Without a bus of its own a line has no place, and prose with bars is no picture.
    for text in (PART.splitlines()[0] + "\n", " | a +-08.0 b | c |\n", "| +-08.0-[5c] | see |\n"):
        assert [f for s in recognise(text) if s.kind == "lspci-tree" for f in parse_tree(s) if isinstance(f, PciTree)] == []
