"""Outputs of several machines in one document that names none. All texts are synthetic."""

from __future__ import annotations

from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.ingest import Intake, take
from gpudoctor.read.source import Document


def intake(*texts: str) -> Intake:
    return take(sources=[Document(name=f"dir/{n}.md", chunks=lambda text=text: iter([text.encode()])) for n, text in enumerate(texts)])


def matrix(count: int, cell: str, **pairs: str) -> str:
    """pairs: `p01="SYS"` for single ones."""
    names = [f"GPU{n}" for n in range(count)]
    rows = ["\t" + "\t".join([*names, "CPU Affinity"])]
    for a in range(count):
        cells = [" X " if a == b else pairs.get(f"p{min(a, b)}{max(a, b)}", cell) for b in range(count)]
        rows.append("\t".join([names[a], *cells, "0-23"]))
    return "\n".join(rows) + "\n\nand\n\n"


def links(serial: int) -> str:
    return f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-{serial:08x}-1111-2222-3333-444455556666)\n\t Link 0: 25 GB/s\n\n"


def counts(got: Intake) -> list[tuple[str | None, int]]:
    return [(s.host, len(list(s.get(Pairs) or ()))) for s in got.stores]


def test_matrices_of_unlike_machines_stay_apart():
    got = intake(matrix(2, "NV2") + matrix(4, "NV12") + matrix(4, "NV12"))
    assert counts(got) == [(None, 1), ("another machine (0.md, line 7)", 6)]
    assert not [m for m in got.missing if "disagree" in m.reason]


def test_the_part_tells_machines_apart():
    assert [n for _, n in counts(intake(matrix(4, "NV12") + matrix(4, "NV18")))] == [6, 6]


def test_a_fault_that_went_away_is_one_machine():
    got = intake(matrix(4, "NV12", p01="SYS") + matrix(4, "NV12"))
    assert counts(got) == [(None, 6)]
    assert [m for m in got.missing if "disagree" in m.reason]


def test_part_of_a_matrix_is_the_same_machine():
    assert counts(intake(matrix(4, "NV12") + matrix(2, "NV12"))) == [(None, 6)]


def test_pcie_alone_is_the_same_machine():
    pcie = "nvidia-smi topo -mp\n" + matrix(4, "SYS")
    assert counts(intake(matrix(2, "NV12") + pcie)) == [(None, 6)]


def test_other_cards_are_another_machine_in_any_file():
    got = intake(links(1), links(2), links(1))
    assert [len(s.get(NvLinks).gpus) for s in got.stores] == [1, 1]


def test_another_machine_never_takes_the_name_of_a_host():
    got = intake("root@node07:~# nvidia-smi topo -m\n" + matrix(2, "NV2") + matrix(4, "NV12"))
    assert [h for h, _ in counts(got)] == ["node07", "another machine (0.md, line 8)"]


def test_a_text_that_numbers_no_gpu_goes_with_the_first():
    got = intake(matrix(2, "NV2") + matrix(4, "NV12") + "[ 1.0] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n")
    assert [len(list(s.get(Gpus))) for s in got.stores] == [2, 4]
    assert len(got.stores) == 2
