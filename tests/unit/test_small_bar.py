"""small-bar on built hosts."""

from __future__ import annotations

from typing import Any

from gpudoctor.checkers.small_bar import SmallBar
from gpudoctor.model import CannotTell
from tests.builders import Host, host
from tests.support import check, findings

L40S: dict[str, Any] = {"name": "NVIDIA L40S", "device_id": "10de:26b9", "fb_mib": 46068}


def said(made: Host) -> set[str]:
    return {f.severity for f in findings(SmallBar(), *made.facts()).values()}


def test_a_window_as_large_as_memory_is_in_order() -> None:
    assert check(SmallBar(), *host(**L40S).every_gpu(bar1_mib=65536).facts()) == []
    assert check(SmallBar(), *host(**L40S).every_gpu(bar1_mib=46068).facts()) == []


def test_small_where_peers_would_use_it() -> None:
    assert said(host(**L40S).every_gpu(bar1_mib=256)) == {"warning"}
    assert said(host(**L40S).every_gpu(bar1_mib=32768)) == {"warning"}
    assert said(host(**L40S).every_gpu(bar1_mib=256).p2p("CNS")) == {"warning"}


def test_small_where_nobody_would() -> None:
    assert said(host(1, **L40S).every_gpu(bar1_mib=256)) == {"note"}
    assert said(host(name="NVIDIA A100-SXM4-40GB", device_id="10de:20b0").nvlink().every_gpu(bar1_mib=256)) == {"note"}
    assert said(host(name="NVIDIA GeForce RTX 3090", device_id="10de:2204", fb_mib=24576).every_gpu(bar1_mib=256)) == {"note"}
    assert said(host(name="NVIDIA A100-SXM4-40GB", device_id="10de:20b0").nvlink().p2p("NS").every_gpu(bar1_mib=256)) == {"note"}
    # The driver already lets them peer.
    assert said(host(**L40S).every_gpu(bar1_mib=256).p2p("OK")) == {"note"}


def test_without_pairs_the_parts_decide() -> None:
    made = host(**L40S).every_gpu(bar1_mib=256)
    made.pairs = []
    assert said(made) == {"warning"}


def test_the_bus_gives_the_window_where_the_driver_does_not() -> None:
    made = host(1, **L40S).every_gpu(bar1_mib=None)
    made.set(made.bdf(0), bar_sizes=(16 << 20, 256 << 20, 32 << 20))
    (found,) = findings(SmallBar(), *made.facts()).values()
    assert "256 MiB" in found.message
    # 256 MiB is small whatever the memory; a larger window without the memory's size cannot be told.
    assert said(made.every_gpu(fb_mib=None)) == {"note"}
    made.set(made.bdf(0), bar_sizes=(16 << 20, 16 << 30, 32 << 20))
    assert [type(s) for s in check(SmallBar(), *made.facts())] == [CannotTell]


def test_unknown_window_cannot_be_told() -> None:
    assert [type(s) for s in check(SmallBar(), *host(1).every_gpu(bar1_mib=None).facts())] == [CannotTell]


def test_slices_are_left_out() -> None:
    assert check(SmallBar(), *host(**L40S).every_gpu(bar1_mib=256, virtualization="vgpu").facts()) == []
    assert check(SmallBar(), *host(**L40S).every_gpu(bar1_mib=256, mig_mode="enabled").facts()) == []
