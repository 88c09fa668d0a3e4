from gpudoctor.checkers.pair_path import PairPath
from gpudoctor.facts.topology import Pair, Pairs
from tests.support import HERE, findings


def pair(path: str, **more: object) -> Pairs:
    return Pairs((Pair(a=0, b=1, path=path, origin=HERE, **more),))


def test_each_class_has_its_slug():
    for path, slug in (("PHB", "path-phb"), ("NODE", "path-node"), ("SYS", "path-sys")):
        assert list(findings(PairPath(), pair(path))) == [(slug, "pair:0-1")]


def test_nvlink_and_switch_paths_are_in_order():
    for path in ("NVL", "PIX", "PXB"):
        assert not findings(PairPath(), pair(path))


def test_a_pcie_only_matrix_proves_no_path():
    assert not findings(PairPath(), pair("PHB", pcie_only=True))
