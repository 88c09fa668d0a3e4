from gpudoctor.checkers.no_nvlink_path import NoNvlinkPath
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.facts.topology import NvLink, NvLinks, Pair, Pairs
from gpudoctor.model import CannotTell
from tests.support import HERE, check, findings


def pairs(*given, **more):
    return Pairs(
        tuple(
            Pair(a=a, b=b, path=path, nvlinks=4 if path == "NVL" else None, origin=HERE, **more) for a, b, path in given
        )
    )


def gpus(*names, **more):
    return Gpus(tuple(Gpu(index=i, name=n, origin=HERE, **more) for i, n in enumerate(names)))


def test_cards_with_a_bridge_to_others_only():
    bridged = pairs((0, 1, "NVL"), (2, 3, "NVL"), (0, 2, "NODE"), (0, 4, "SYS"))
    found = findings(NoNvlinkPath(), bridged)
    # 0 and 2 have NVLink to others, so they can; of GPU4 nothing is known.
    assert {s: f.severity for (_, s), f in found.items()} == {"pair:0-2": "note"}
    assert "not to this one" in found["no-nvlink-path", "pair:0-2"].message


def test_known_cards_without_bridge():
    two = gpus("NVIDIA RTX A6000", "NVIDIA RTX A6000", max_speed_gts=16.0, max_width=16)
    inactive = NvLinks(tuple(NvLink(gpu=g, link=n, active=False, origin=HERE) for g in (0, 1) for n in range(4)))
    found = findings(NoNvlinkPath(), two, pairs((0, 1, "PHB")), inactive)["no-nvlink-path", "pair:0-1"]
    assert found.severity == "note" and "no bridge is fitted" in found.message
    assert found.cost == "at most 31.5 of 56.2 GB/s each way"
    vm = Platform(PlatformEntry(vm=True, origin=HERE))
    assert "hypervisor" in findings(NoNvlinkPath(), two, pairs((0, 1, "PHB")), vm)["no-nvlink-path", "pair:0-1"].message


def test_boards_that_join_all_gpus():
    four = gpus(*["NVIDIA A100-SXM4-80GB"] * 4)
    lost = pairs((0, 1, "NVL"), (0, 2, "NVL"), (1, 2, "SYS"), (0, 3, "NVL"), (1, 3, "NVL"), (2, 3, "NVL"))
    assert "should join them" in findings(NoNvlinkPath(), four, lost)["no-nvlink-path", "pair:1-2"].message
    cube = gpus(*["Tesla V100-SXM2-32GB"] * 4)
    assert "partial meshes" in findings(NoNvlinkPath(), cube, lost)["no-nvlink-path", "pair:1-2"].message


def test_two_of_a_cube_without_a_link():
    two = gpus("Tesla V100-SXM2-32GB", "Tesla V100-SXM2-32GB")
    assert "partial meshes" in findings(NoNvlinkPath(), two, pairs((0, 1, "SYS")))["no-nvlink-path", "pair:0-1"].message


def test_same_unknown_part_as_one_that_has_nvlink():
    three = gpus(*["NVIDIA Q1"] * 3)
    found = findings(NoNvlinkPath(), three, pairs((0, 1, "NVL"), (0, 2, "SYS"), (1, 2, "SYS")))
    assert {(s, f.confidence) for (_, s), f in found.items()} == {("pair:0-2", "likely"), ("pair:1-2", "likely")}


def test_nothing_to_miss():
    assert check(NoNvlinkPath(), pairs((0, 1, "SYS"))) == []
    assert check(NoNvlinkPath(), gpus("NVIDIA L40S", "NVIDIA L40S"), pairs((0, 1, "SYS"))) == []
    assert check(NoNvlinkPath(), gpus("NVIDIA RTX A6000", "NVIDIA L40S"), pairs((0, 1, "SYS"))) == []
    assert check(NoNvlinkPath(), gpus("NVIDIA H200", "NVIDIA H200"), pairs((0, 1, "NVL"))) == []
    assert check(NoNvlinkPath(), gpus("NVIDIA RTX A6000", "NVIDIA T400"), pairs((0, 1, "SYS"))) == []


def test_a_pcie_only_matrix_proves_nothing():
    two = gpus("NVIDIA H200", "NVIDIA H200")
    assert [type(x) for x in check(NoNvlinkPath(), two, pairs((0, 1, "PHB"), pcie_only=True))] == [CannotTell]


def test_unlike_parts_are_not_told_to_be_bridged():
    path = pairs((0, 1, "NODE"), (0, 2, "NODE"), (1, 2, "NVL"))
    found = findings(NoNvlinkPath(), gpus("NVIDIA GeForce RTX 3090", "Tesla V100-SXM2-32GB", "Tesla V100-SXM2-32GB"), path)
    assert [s for _, s in found] == ["pair:0-1", "pair:0-2"]
    assert all("joins parts so unlike" in f.message and "no bridge is fitted" not in f.message and f.cost is None for f in found.values())
    # Memory sizes of one part are no difference.
    found = findings(NoNvlinkPath(), gpus("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"), pairs((0, 1, "NODE")))
    assert all("unlike" not in f.message for f in found.values())
