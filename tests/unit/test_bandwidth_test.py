"""CUDA's bandwidthTest: what copies between the host and one GPU reach, and what is said of it."""

from __future__ import annotations

import pytest

from gpudoctor.checkers.host_copy import HostCopySlow
from gpudoctor.facts.bandwidth import HostCopies, HostCopy
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.read.section import Unparsable
from tests.support import HERE, findings, parse, report, slugs

# Synthetic, in the shape of the program's releases before and after CUDA 10.1.
HEAD = "[CUDA Bandwidth Test] - Starting...\nRunning on...\n\n Device {0}: NVIDIA L40S\n Quick Mode\n\n"
PART = " {0} Bandwidth, {1} Device(s)\n {2} Memory Transfers\n   Transfer Size (Bytes)\tBandwidth({3}B/s)\n   32000000\t\t\t{4}\n\n"


def run(there: str, back: str, device: int = 0, count: int = 1, memory: str = "PINNED", unit: str = "G") -> str:
    ways = (("Host to Device", there), ("Device to Host", back), ("Device to Device", "612.4"))
    return HEAD.format(device) + "".join(PART.format(way, count, memory, unit, rate) for way, rate in ways) + "Result = PASS\n"


def copies(text: str) -> list[HostCopy]:
    return [c for f in parse("bandwidth-test", text) if isinstance(f, HostCopies) for c in f]


def rates(text: str) -> list[tuple[int | None, str | None, float | None, float | None]]:
    return [(c.gpu, c.name, c.to_device_gbs, c.from_device_gbs) for c in copies(text)]


def test_both_directions_in_either_unit() -> None:
    assert rates(run("24.5", "25.9")) == [(0, "NVIDIA L40S", 24.5, 25.9)]
    assert rates(run("12150.7", "12890.6", unit="M", device=1)) == [(1, "NVIDIA L40S", pytest.approx(12.1507), pytest.approx(12.8906))]


def test_what_measures_something_else_is_passed_over() -> None:
    assert rates(run("3.1", "3.2", memory="PAGEABLE")) == []
    assert rates(run("48.1", "49.2", count=2)) == []


def test_of_two_runs_on_one_gpu_the_better_stands_for_its_link() -> None:
    """The other one may have had its memory on the other socket, and is no other GPU of this part."""
    text = run("24.5", "25.9") + "$ numactl -m1 bandwidthTest\n" + run("6.2", "5.1")
    status, document = report("check", "--from", "-", stdin=text.encode())
    assert status == 0 and slugs(document) == set()
    other = run("6.2", "5.1", device=1)
    status, document = report("check", "--from", "-", stdin=(run("24.5", "25.9") + "$ bandwidthTest --device=1\n" + other).encode())
    assert status == 1 and slugs(document, "error") == {"host-copy-slow"}


def test_cut_anywhere() -> None:
    whole = run("24.5", "25.9")
    for end in range(len(whole)):
        try:
            found = rates(whole[:end])
        except Unparsable:
            continue
        assert all(there in (None, 24.5) and back in (None, 25.9) for _, _, there, back in found)


@pytest.mark.parametrize(("rate", "severity"), [("24.5", None), ("19.0", "warning"), ("6.4", "error")])
def test_held_against_the_link(rate: str, severity: str | None) -> None:
    gpu = Gpus((Gpu(index=0, name="NVIDIA L40S", max_speed_gts=16.0, max_width=16, origin=HERE),))
    said = findings(HostCopySlow(), HostCopies(tuple(copies(run(rate, rate)))), gpu)
    assert [f.severity for f in said.values()] == ([severity] if severity else [])
