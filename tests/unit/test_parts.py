import re

import pytest

from gpudoctor import parts, shipped


@pytest.mark.parametrize(
    ("name", "form", "links", "needed"),
    [
        ("NVIDIA A100-SXM4-80GB", "SXM", 12, True),
        ("A100-SXM-80GB", "SXM", 12, True),
        ("Tesla V100-SXM2-32GB-LS", "SXM", 6, True),
        ("NVIDIA H100 80GB HBM3", "SXM", 18, True),
        ("NVIDIA H200", "SXM", 18, True),
        ("NVIDIA H200 NVL", "NVL", 18, False),
        ("NVIDIA H100 NVL", "NVL", 12, False),
        ("NVIDIA A100 80GB PCIe", "PCIe", 12, False),
        ("GA100 [A100 SXM4 80GB]", "SXM", 12, True),
        ("NVIDIA GeForce RTX 3090", "PCIe", 4, False),
        ("NVIDIA GeForce RTX 4090", "PCIe", None, False),
        ("NVIDIA RTX 6000 Ada Generation", "PCIe", None, False),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "PCIe", None, False),
        ("NVIDIA DGX Display", "display", None, False),
    ],
)
def test_found_by_name_alone(name, form, links, needed):
    part = parts.find(None, name)
    assert part is not None and (part.form, part.links, parts.needs_all_links(part, name)) == (form, links, needed)
    assert part.nvlink is (links is not None)


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce RTX 4090 Laptop GPU", "GRID A100-10C", "NVIDIA A100-40C", "NVIDIA L40S-48Q", "Quadro Nothing", "", "NVIDIA", "MIG 1g.10gb"],
)
def test_other_silicon_limits_are_not_guessed(name):
    assert parts.find(None, name) is None


def test_id_beats_name_and_other_vendors_have_none():
    found = parts.find("10de:2335", "NVIDIA GeForce RTX 4090")
    assert found is not None and found.links == 18
    assert parts.find("1002:2335") is None
    assert parts.find("10de:ffff") is None
    assert parts.find(None) is None


def test_an_unknown_sxm_board_needs_its_links():
    assert parts.find(None, "NVIDIA X900-SXM8-1TB") is None
    assert parts.needs_all_links(None, "NVIDIA X900-SXM8-1TB")
    assert not parts.needs_all_links(None, "NVIDIA X900 PCIe")
    assert not parts.needs_all_links(None)


def test_peer_access_classes():
    def p2p(name):
        return parts.find(None, name).p2p

    assert p2p("NVIDIA L40S") is True
    assert p2p("NVIDIA GeForce RTX 5090") is False
    assert p2p("NVIDIA GeForce RTX 3090") is False  # only over its bridge
    assert p2p("NVIDIA TITAN V") is None


def test_every_row_is_whole_and_sourced():
    header, *rows = shipped.rows(parts.TABLE)
    columns = header.split("\t")
    assert len(rows) > 100
    seen: set[str] = set()
    for row in rows:
        cells = dict(zip(columns, row.split("\t"), strict=True))
        ids = [i for i in cells["ids"].split(",") if i]
        names = [n for n in cells["names"].split(";") if n]
        assert ids or names
        assert all(re.fullmatch(r"[0-9a-f]{4}", i) for i in ids)
        assert not seen.intersection(ids + names), row
        seen.update(ids + names)
        assert all(parts.normalised(n.rstrip("*")) == n.rstrip("*") for n in names), row
        assert cells["source"] and re.fullmatch(r"20\d\d-\d\d-\d\d", cells["date"])
        part = parts.find(f"10de:{ids[0]}" if ids else None, names[0].rstrip("*") if names else None)
        assert part is not None
        # A board that needs its links has a known number of them, and no part without NVLink has any.
        assert not part.required or (part.nvlink and part.links)
        assert part.nvlink or (part.links is None and not part.pair_links and part.link_gbs is None)


def test_laptop_parts_by_their_names() -> None:
    for name in (
        "NVIDIA GeForce RTX 4060 Laptop GPU", "Quadro T2000 with Max-Q Design", "NVIDIA Corporation TU117M [GeForce GTX 1650 Ti Mobile]",
        "NVIDIA Corporation GM107M", "GeForce GTX 970M", "NVIDIA GeForce 940MX", "GA107GLM [RTX A2000 Mobile]",
    ):  # fmt: skip
        assert parts.is_laptop(None, name), name
    for name in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "AD102 [GeForce RTX 4090]", "GH100 [H100 SXM5 80GB]", "Tesla M40", None):
        assert not parts.is_laptop(name), name
