"""Which links carry traffic between GPUs."""

from __future__ import annotations

from typing import Any

from gpudoctor.checkers.traffic import between_gpus, carries, pcie_peer
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.record import replace
from tests.builders import Host, host
from tests.support import HERE, store

SXM: dict[str, Any] = {"name": "NVIDIA A100-SXM4-40GB", "device_id": "10de:20b0"}
GEFORCE: dict[str, Any] = {"name": "NVIDIA GeForce RTX 4090", "device_id": "10de:2684"}


def answer(made: Host, gpu: int = 0) -> bool | None:
    view = FactView(store(*made.facts()), frozenset((Gpus, Pairs, PciTree)))
    return between_gpus(made.gpus[gpu], view)


def test_by_the_paths_of_its_pairs() -> None:
    assert answer(host(2)) is True
    assert answer(host(2, **SXM).nvlink()) is False
    assert answer(host(4).nvlink((0, 1), (2, 3))) is True


def test_a_lone_gpu_and_a_part_of_a_list() -> None:
    assert answer(host(1)) is False
    part = host(1)
    part.complete = False
    assert answer(part) is None


def test_a_pcie_only_matrix_does_not_say() -> None:
    made = host(2)
    made.pairs = [replace(p, pcie_only=True) for p in made.pairs]
    assert answer(made) is None


def test_without_pairs_the_part_decides() -> None:
    for kind, expected in ((SXM, False), (GEFORCE, True), ({"name": "NVIDIA A100-PCIE-40GB", "device_id": "10de:20f1"}, None)):
        made = host(2, **kind)
        made.pairs = []
        assert answer(made) is expected
    unknown = host(2, name="NVIDIA Something New", device_id="10de:ffff")
    unknown.pairs = []
    assert answer(unknown) is None


def test_some_pairs_missing() -> None:
    made = host(3, **SXM).nvlink()
    made.pairs = made.pairs[:1]
    assert answer(made) is None


def test_peers_over_pcie() -> None:
    data, geforce = Gpus(tuple(host(2).gpus.values())), Gpus(tuple(host(2, **GEFORCE).gpus.values()))
    pair = Pair(a=0, b=1, path="PIX", origin=HERE)
    assert pcie_peer(replace(pair, path="NVL", p2p_read="OK"), data) is False
    assert pcie_peer(replace(pair, p2p_read="OK"), None) is True
    assert pcie_peer(replace(pair, p2p_read="OK", p2p_write="CNS"), None) is False
    assert pcie_peer(pair, data) is True
    assert pcie_peer(pair, geforce) is False
    assert pcie_peer(pair, None) is None


def test_words_for_a_reader() -> None:
    assert len({carries(True), carries(False), carries(None)}) == 3
