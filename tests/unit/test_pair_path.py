from gpudoctor.checkers.pair_path import PairPath
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CannotTell
from tests.support import HERE, check, findings


def pair(path, **more):
    return Pairs((Pair(a=0, b=1, path=path, origin=HERE, **more),))


def two(first, second=None, **more):
    return Gpus(tuple(Gpu(index=i, name=n, origin=HERE, **more) for i, n in enumerate((first, second or first))))


def test_each_class_has_its_slug_and_is_a_note():
    for path, slug in (("PHB", "path-phb"), ("NODE", "path-node"), ("SYS", "path-sys")):
        found = findings(PairPath(), pair(path))
        assert {key: f.severity for key, f in found.items()} == {(slug, "pair:0-1"): "note"}


def test_nvlink_and_switch_paths_are_in_order():
    for path in ("NVL", "PIX", "PXB"):
        assert check(PairPath(), pair(path)) == []


def test_cost_is_the_slower_link():
    gpus = Gpus(
        (
            Gpu(index=0, name="NVIDIA L40S", max_speed_gts=16.0, max_width=16, origin=HERE),
            Gpu(index=1, name="NVIDIA L40S", max_speed_gts=8.0, max_width=16, origin=HERE),
        )
    )
    found = findings(PairPath(), pair("SYS"), gpus)["path-sys", "pair:0-1"]
    assert found.cost is not None and found.cost.startswith("at most 15.8 GB/s") and "socket" in found.cost
    assert "no NVLink" in found.message


def test_display_card_is_left_out():
    assert check(PairPath(), pair("SYS"), two("NVIDIA L40S", "NVIDIA T400")) == []
    # Where there are only such cards, they are judged.
    assert findings(PairPath(), pair("SYS"), two("NVIDIA T400"))


def test_a_pcie_only_matrix_proves_no_path_of_a_part_that_has_nvlink():
    for gpus in ((two("NVIDIA H200"),), ()):
        answers = check(PairPath(), pair("PHB", pcie_only=True), *gpus)
        assert {type(x) for x in answers} == {CannotTell}
        assert {x.slug for x in answers} == {"path-phb", "path-node", "path-sys"}
    assert ("path-phb", "pair:0-1") in findings(PairPath(), pair("PHB", pcie_only=True), two("NVIDIA L4"))


def test_no_path_given():
    assert {type(x) for x in check(PairPath(), pair(None))} == {CannotTell}
