"""p2pBandwidthLatencyTest: what each pair reaches with and without peer access, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.checkers.busbw import BusbwLow
from gpudoctor.checkers.p2p import PeerToPeer
from gpudoctor.checkers.pair_slow import PairSlow
from gpudoctor.checkers.peer_copies import seen
from gpudoctor.facts.bandwidth import STAGED, PairRate, PairRates, PeerCopies, PeerCopy
from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CannotTell, Finding
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, HERE, check, findings, parse, recognise, report, slugs, store

OUTPUTS = FIXTURES / "outputs" / "p2p-test"
SLOW = (OUTPUTS / "h100x4-one-slow-pair.txt").read_text()
GEFORCE = (OUTPUTS / "rtx4090x2-no-peer-access.txt").read_text()
# As CUDA 8 printed it, and cut out of a page: headings marked, no list of devices.
OLD = """### Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 250.51  10.21
     1  10.30 251.02

**Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)**
   D\\D     0      1
     0 250.61   3.12
     1   3.10 251.15
P2P=Enabled Latency (P2P Reads) Matrix (us)
   GPU     0      1
     0   3.16  99.00
     1  98.00   3.12
"""
TOPO = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\t X \t{0}\t{0}\t{0}\t0-63\nGPU1\t{0}\t X \t{0}\t{0}\t0-63\nGPU2\t{0}\t{0}\t X \t{0}\t0-63\nGPU3\t{0}\t{0}\t{0}\t X \t0-63\n"


def read(text: str) -> tuple[dict[tuple[int, int], PeerCopy], list[PairRate], list[Loss]]:
    found = parse("p2p-test", text)
    copies = [c for f in found if isinstance(f, PeerCopies) for c in f]
    return {(c.a, c.b): c for c in copies}, [r for f in found if isinstance(f, PairRates) for r in f], [f for f in found if isinstance(f, Loss)]


def copy(a: int, b: int, **more: Any) -> PeerCopy:
    return PeerCopy(a=a, b=b, a_bdf=f"0000:{a + 1:02x}:00.0", b_bdf=f"0000:{b + 1:02x}:00.0", origin=HERE, **more)


def gpus(count: int, name: str, **more: Any) -> Gpus:
    return Gpus(tuple(Gpu(index=i, bdf=f"0000:{i + 1:02x}:00.0", name=name, origin=HERE, **more) for i in range(count)))


def pairs(path: str, count: int = 2, **more: Any) -> Pairs:
    return Pairs(tuple(Pair(a=a, b=b, path=path, origin=HERE, **more) for a in range(count) for b in range(a + 1, count)))


def test_every_matrix_of_the_program() -> None:
    copies, rates, losses = read(SLOW)
    assert losses == [] and sorted(copies) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert {n: getattr(copies[1, 3], n) for n in copies[1, 3]._fields if n != "origin"} == {
        "a": 1, "b": 3, "a_bdf": "0000:43:00.0", "b_bdf": "0000:61:00.0", "a_name": "NVIDIA H100 80GB HBM3", "b_name": "NVIDIA H100 80GB HBM3",
        "access": True, "on_gbs": 121.31, "on_read_gbs": None, "on_both_ways_gbs": 242.11, "off_gbs": 37.41, "off_both_ways_gbs": 41.21,
        # The slower of the two directions; the diagonal is the card's own memory.
        "on_latency_us": 2.37, "off_latency_us": 17.24, "on_cpu_latency_us": 1.32, "off_cpu_latency_us": 9.5,
    }  # fmt: skip
    assert copies[1, 3].at("on_gbs").where == "line 37"
    assert {r.what for r in rates} == {"peer copy", "peer copies both ways"} and len(rates) == 12


def test_without_peer_access_both_headings_are_copies_through_the_host() -> None:
    copies, rates, _ = read(GEFORCE)
    assert copies[0, 1].access is False and [(r.what, r.gbs) for r in rates] == [(STAGED, copies[0, 1].off_gbs)]


def test_old_headings_in_a_page() -> None:
    assert [s.kind for s in recognise(OLD)] == ["p2p-test"]
    copies, rates, _ = read(OLD)
    one = copies[0, 1]
    assert (one.off_gbs, one.on_gbs, one.access) == (10.21, 3.1, None)
    assert one.on_latency_us is None  # that of reads is another thing
    assert rates == []  # the pair may have no access: nobody says


def test_the_same_table_again_is_a_second_run() -> None:
    found = [c for f in parse("p2p-test", OLD + OLD.replace("3.1", "9.1")) if isinstance(f, PeerCopies) for c in f]
    assert [c.on_gbs for c in found] == [3.1, 9.1]


def test_one_gpu_alone_is_read_and_has_no_pair() -> None:
    text = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0 \n     0 1511.12 \n"
    assert [list(f) for f in parse("p2p-test", text) if isinstance(f, PeerCopies)] == [[]]


@pytest.mark.parametrize("text", [SLOW, GEFORCE, OLD], ids=["h100", "geforce", "old"])
def test_cut_at_every_byte(text: str) -> None:
    """A cut leaves pairs and values out and changes none; only whether a pair has access may be untold."""

    def said(part: str) -> set[tuple[Any, ...]]:
        try:
            copies, rates, _ = read(part)
        except Unparsable:
            return set()
        out = {(pair, n, getattr(c, n)) for pair, c in copies.items() for n in c._fields if n != "origin" and getattr(c, n) is not None}
        return out | {(r.a, r.b, r.what, r.gbs) for r in rates if r.what != STAGED}

    whole = said(text)
    assert whole
    for end in range(len(text)):
        assert said(text[:end]) <= whole, (end, text[max(0, end - 60) : end])
        if text[end - 1 : end] == "\n":
            assert {s.kind for s in recognise(text[:end])} <= {"p2p-test"}


def test_the_last_row_without_its_newline_is_read_where_it_is_whole() -> None:
    end = SLOW.index("\n     2", SLOW.index("P2P=Enabled Bandwidth (P2P"))
    whole, _, losses = read(SLOW[:end].rstrip())
    assert whole[0, 1].on_gbs == 372.62 and losses == []
    cut, _, losses = read(SLOW[:end].rstrip()[:-1])
    assert cut[0, 1].on_gbs is None and "cut off" in losses[0].reason


@pytest.mark.parametrize(
    ("words", "said"),
    [("system not yet initialized", {"bandwidth-failed", "fabric"}), ("out of memory", {"bandwidth-failed", "cuda-error"}), ("peer access is not supported between these two devices", {"bandwidth-failed", "p2p-unsupported"})],
)
def test_a_run_that_cuda_ended(words: str, said: set[str]) -> None:
    line = f"Cuda failure /home/me/samples/p2pBandwidthLatencyTest.cu:208: '{words}'\n"
    status, document = report("check", "--from", "-", stdin=(SLOW[: SLOW.index("P2P Conn")] + line).encode())
    assert status == 1 and slugs(document, "error") == said
    assert document["facts"]["bandwidth"][0]["failures"] == [f"Cuda failure p2pBandwidthLatencyTest.cu:208: '{words}'"]
    commands = [s.get("command") or "" for d in document["diagnoses"] for s in d["remediation"]]
    assert not any("perf" in c or "p2pBandwidthLatencyTest -" in c for c in commands)
    alone = [type(f).__name__ for f in parse("p2p-test", line)]
    assert alone == ["Bandwidth"] and [s.kind for s in recognise(line)] == ["p2p-test"]


def test_a_row_with_an_authors_dots_is_passed_over() -> None:
    copies, _, _ = read(OLD.replace("     1   3.10 251.15", "     1   ..."))
    assert copies[0, 1].on_gbs is None and copies[0, 1].off_gbs == 10.21


def test_noise() -> None:
    with pytest.raises(Unparsable):
        parse("p2p-test", "Device=x CAN\n" + "1 " * 9000 + "\n")


# --- what is said


def test_a_slow_pair_of_a_board_is_found_without_its_topology() -> None:
    status, said = report("check", "--from", str(OUTPUTS / "h100x4-one-slow-pair.txt"))
    assert (status, [(d["cause"], d["severity"], d["subject"]) for d in said["diagnoses"]]) == (1, [("pair-slow", "error", "pair:1-3")])
    assert len(said["facts"]["peer_copies"]) == 6 and said["facts"]["peer_copies"][0]["on_gbs"] == 372.62


def test_geforce_without_peer_access_is_in_order() -> None:
    status, said = report("check", "--from", str(OUTPUTS / "rtx4090x2-no-peer-access.txt"))
    assert status == 0 and slugs(said) == {"p2p-unsupported"} and slugs(said, "note") == {"p2p-unsupported"}


@pytest.mark.parametrize(
    ("name", "path", "severity"),
    [("NVIDIA H100 80GB HBM3", "NVL", "error"), ("NVIDIA L40S", "SYS", "warning"), ("NVIDIA GeForce RTX 5090", "PHB", "note"), ("NVIDIA GeForce RTX 3090", "NVL", "error")],
)
def test_refused_access_by_what_joins_the_pair(name: str, path: str, severity: str) -> None:
    said = findings(PeerToPeer(), PeerCopies((copy(0, 1, access=False),)), gpus(2, name), pairs(path, nvlinks=4 if path == "NVL" else None))
    assert said["p2p-unsupported", "pair:0-1"].severity == severity


def test_refused_access_on_a_board_whose_topology_nobody_gave() -> None:
    one = copy(0, 1, access=False, a_name="NVIDIA H200", b_name="NVIDIA H200")
    found = findings(PeerToPeer(), PeerCopies((one,)))["p2p-unsupported", "pair:0-1"]
    assert (found.severity, found.confidence) == ("error", "likely")
    # A cube mesh of V100 joins some pairs only, and the driver refuses the others.
    mesh = copy(0, 5, access=False, a_name="Tesla V100-SXM2-32GB", b_name="Tesla V100-SXM2-32GB")
    assert findings(PeerToPeer(), PeerCopies((mesh,)))["p2p-unsupported", "pair:0-5"].severity == "warning"


def test_the_drivers_own_matrix_is_said_once() -> None:
    said = check(PeerToPeer(), PeerCopies((copy(0, 1, access=False),)), gpus(2, "NVIDIA L40S"), pairs("SYS", p2p_read="CNS", p2p_write="CNS"))
    assert [f.evidence[0].source for f in said if isinstance(f, Finding)] == ["test"] and len(said) == 1


def test_access_of_a_geforce_card_is_a_patched_driver() -> None:
    one = copy(0, 1, access=True, a_name="NVIDIA GeForce RTX 4090", b_name="NVIDIA GeForce RTX 4090")
    assert {(s, f.severity) for (s, _), f in findings(PeerToPeer(), PeerCopies((one,))).items()} == {("p2p-patched", "note")}
    granted = copy(0, 1, access=True, a_name="NVIDIA L40S", b_name="NVIDIA L40S")
    assert check(PeerToPeer(), PeerCopies((granted,))) == []


def test_an_output_without_access_leaves_the_question_open() -> None:
    assert all(isinstance(s, CannotTell) for s in check(PeerToPeer(), PeerCopies((copy(0, 1, on_gbs=20.0),))))


@pytest.mark.parametrize(
    ("path", "on", "severity"),
    [("PIX", 9.9, "error"), ("PIX", 17.0, "warning"), ("PIX", 20.0, None), ("PHB", 9.9, "warning"), ("SYS", 17.0, None), (None, 9.9, "warning"), (None, 26.0, None)],
)
def test_peer_copies_slower_than_through_the_host(path: str | None, on: float, severity: str | None) -> None:
    facts: list[Any] = [PeerCopies((copy(0, 1, access=True, on_gbs=on, off_gbs=22.2),)), gpus(2, "NVIDIA L40S")]
    said = findings(BusbwLow(), *facts, *([pairs(path)] if path else []))
    assert {f.severity for f in said.values()} == ({severity} if severity else set())


def test_without_access_no_copy_is_held_against_anything() -> None:
    said = check(BusbwLow(), PeerCopies((copy(0, 1, access=False, on_gbs=2.0, off_gbs=22.0),)))
    assert all(isinstance(s, CannotTell) for s in said) and said


@pytest.mark.parametrize(("rate", "severity"), [(380.0, None), (180.0, "warning"), (30.0, "error")])
def test_nvlink_that_carries_what_pcie_would(rate: float, severity: str | None) -> None:
    facts = (PeerCopies((copy(0, 1, access=True, on_gbs=rate, off_gbs=20.0),)), gpus(2, "NVIDIA H100 80GB HBM3"), pairs("NVL", nvlinks=18))
    said = findings(BusbwLow(), *facts)
    assert [f.severity for f in said.values()] == ([severity] if severity else [])
    if severity:
        assert "of 18 NVLinks" in said["busbw-low", "pair:0-1"].message


@pytest.mark.parametrize(("rate", "severity"), [(26.0, None), (12.0, "warning"), (7.0, "error")])
def test_a_common_switch_is_held_against_the_narrower_link(rate: float, severity: str | None) -> None:
    facts = (PeerCopies((copy(0, 1, access=True, on_gbs=rate, off_gbs=None),)), gpus(2, "NVIDIA L40S", max_speed_gts=16.0, max_width=16, width=16), pairs("PIX"))
    assert [f.severity for f in findings(BusbwLow(), *facts).values()] == ([severity] if severity else [])


def test_many_slow_pairs_are_one_finding() -> None:
    every = tuple(copy(a, b, access=True, on_gbs=9.0 + a, off_gbs=22.0) for a in range(4) for b in range(a + 1, 4))
    ((slug, subject),) = findings(BusbwLow(), PeerCopies(every), gpus(4, "NVIDIA L40S"), pairs("PIX", 4))
    assert (slug, subject) == ("busbw-low", "host")


def test_staged_copies_blame_a_gpu_and_never_a_pair() -> None:
    def rates(slow: set[tuple[int, int]]) -> PairRates:
        return PairRates(
            tuple(
                PairRate(a=a, b=b, gbs=6.0 if (a, b) in slow else 20.0, what=STAGED, a_name="NVIDIA GeForce RTX 4090", b_name="NVIDIA GeForce RTX 4090", path="PHB", origin=HERE)
                for a in range(4)
                for b in range(a + 1, 4)
            )
        )  # fmt: skip

    assert findings(PairSlow(), rates({(0, 1)})) == {}
    assert {s for _, s in findings(PairSlow(), rates({(0, 3), (1, 3), (2, 3)}))} == {"gpu:3"}


def test_cudas_numbers_meet_nvidia_smis_by_address() -> None:
    """The fastest card first is CUDA's order; nvidia-smi's is that of the bus."""
    text = SLOW.replace("Device: 0, NVIDIA H100 80GB HBM3, pciBusID: 1b", "Device: 0, NVIDIA H100 80GB HBM3, pciBusID: d1")
    made = store(*parse("smi-topo", TOPO.format("NV18")), *parse("p2p-test", text))
    assert [(g.index, g.bdf) for g in made.get(Gpus) or ()] == [(0, "0000:43:00.0"), (1, "0000:52:00.0"), (2, "0000:61:00.0"), (3, "0000:d1:00.0")]
    said = findings(PairSlow(), *parse("smi-topo", TOPO.format("NV18")), *parse("p2p-test", text))
    assert {f.message.split(" reach")[0] for f in said.values()} == {"GPU1 and GPU3"}
    fewer = store(*parse("smi-topo", TOPO.format("NV18").replace("\tGPU3", "", 1)), *parse("p2p-test", GEFORCE))
    assert not any(g.bdf for g in fewer.get(Gpus) or ())  # two measured, three or four in the matrix: which are they?


@pytest.mark.parametrize(
    ("name", "rate", "severity"),
    [
        ("NVIDIA A100-SXM4-80GB", 22.06, "error"),  # of 100 GB/s at least
        ("NVIDIA A100-SXM4-80GB", 244.0, None),
        ("NVIDIA H200", 371.0, None),
        ("Tesla V100-SXM2-32GB", 23.0, None),  # of these boards some pairs have no NVLink
        ("NVIDIA A100 80GB PCIe", 22.06, None),  # may have no bridge
        ("NVIDIA GeForce RTX 4090", 22.06, None),
    ],
)
def test_a_board_whose_topology_nobody_gave_has_some_nvlinks(name: str, rate: float, severity: str | None) -> None:
    facts = (PeerCopies((copy(0, 1, access=True, on_gbs=rate, off_gbs=22.05, a_name=name, b_name=name),)),)
    found = findings(BusbwLow(), *facts).values()
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert all("or more that join any two GPUs" in f.message and "nvlink -s" in str(f.remediation) for f in found)


def test_a_card_keeps_its_number_where_cuda_counts_the_other_way() -> None:
    known = Gpus((Gpu(index=1, bdf="0000:01:00.0", name="NVIDIA H100 80GB HBM3", origin=HERE), Gpu(index=0, bdf="0000:02:00.0", name="NVIDIA L40S", origin=HERE)))
    (one,) = seen([copy(0, 1, access=True, on_gbs=20.0)], known, None)
    assert [(c.index, c.name) for c in one.cards] == [(0, "NVIDIA L40S"), (1, "NVIDIA H100 80GB HBM3")] and one.indices == (0, 1)


# Synthetic, in the shape of CUDA's simpleP2P.
SIMPLE = """[./simpleP2P] - Starting...
Checking for multiple GPUs...
CUDA-capable device count: 2

Checking GPU(s) for support of peer to peer memory access...
> Peer access from NVIDIA L40S (GPU0) -> NVIDIA L40S (GPU1) : {0}
> Peer access from NVIDIA L40S (GPU1) -> NVIDIA L40S (GPU0) : {0}
Enabling peer access between GPU0 and GPU1...
Copy data back to host from GPU0 and verify results...
{1}Disabling peer access...
Shutting down...
"""
DIFFERS = "Verification error @ element 1: val = nan, ref = 4.000000\n"


@pytest.mark.parametrize(
    ("granted", "more", "said"),
    [("Yes", "", {}), ("No", "", {"p2p-unsupported": "warning"}), ("Yes", DIFFERS, {"wrong-results": "error"})],
)
def test_simple_p2p_says_who_reaches_whom_and_whether_data_arrives(granted: str, more: str, said: dict[str, str]) -> None:
    _, found = report("check", "--from", "-", stdin=SIMPLE.format(granted, more).encode())
    assert {d["cause"]: d["severity"] for d in found["diagnoses"] if d["severity"] != "note"} == said
    # NCCL's settings do nothing to a program that copies by itself.
    assert not any("NCCL_" in step.get("command", "") for d in found["diagnoses"] for step in d["remediation"])


def test_simple_p2p_cut_anywhere() -> None:
    whole = SIMPLE.format("Yes", "")
    for end in range(len(whole)):
        try:
            copies, _, _ = read(whole[:end])
        except Unparsable:
            continue
        assert all(c.access in (None, True) for c in copies.values())
