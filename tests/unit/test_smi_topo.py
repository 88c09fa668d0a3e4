"""Topology matrices: whole, wrapped, cut, elided, without header, PCIe-only, peer to peer."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import Nics, Pairs
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

TOPO = FIXTURES / "outputs/smi-topo"
MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV18\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \t0-31\t0\t\tN/A\n"
FOUR = """        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      PIX     SYS     SYS     NODE    0-15    0
GPU1    PIX      X      SYS     SYS     NODE    0-15    0
GPU2    SYS     SYS      X      PHB     SYS     16-31   1
GPU3    SYS     SYS     PHB      X      SYS     16-31   1
NIC0    NODE    NODE    SYS     SYS      X

NIC Legend:

  NIC0: mlx5_2
"""


def facts(text: str, command: str | None = None) -> FactStore:
    return FactStore(None, parse("smi-topo", text, command))


def whole(text: str | bytes) -> FactStore:
    """By way of recognition, as a file is read."""
    return FactStore(None, [f for s in recognise(text) if s.kind == "smi-topo" for f in parse("smi-topo", s.text, s.command)])


def paths(store: FactStore) -> dict[tuple[int, int], str | None]:
    found = store.get(Pairs)
    return {(p.a, p.b): f"NV{p.nvlinks}" if p.nvlinks else p.path for p in found} if found else {}


def test_matrix_gives_pairs_and_affinity():
    got = facts(MATRIX)
    assert paths(got) == {(0, 1): "NV18"}
    gpus = got.get(Gpus)
    assert gpus is not None and gpus.complete
    assert [(g.cpu_affinity, g.numa_node) for g in gpus] == [("0-31", 0), ("0-31", 0)]
    assert not got.losses and not got.contradictions


def test_cut_anywhere_gives_no_other_link_count():
    for end in range(len(MATRIX)):
        try:
            got = facts(MATRIX[:end])
        except Unparsable:
            continue
        assert set(paths(got).values()) <= {"NV18"}
        assert {g.cpu_affinity for g in got.get(Gpus) or ()} <= {"0-31", None}


def test_every_cell_of_sixteen_gpus_and_the_nics():
    got = whole((TOPO / "nvswitch-16gpu-4nic.txt").read_text())
    assert paths(got) == {(a, b): "NV18" for a in range(16) for b in range(a + 1, 16)}
    nics = got.get(Nics)
    assert [(n.name, n.device) for n in nics] == [(f"NIC{i}", f"mlx5_{i + 9}") for i in range(4)]
    by = {(p.gpu, p.nic): p.path for p in nics.paths}
    assert len(by) == 64
    assert (by[0, "NIC0"], by[1, "NIC1"], by[0, "NIC2"], by[8, "NIC3"]) == ("PIX", "NODE", "SYS", "PIX")
    assert got.get(Gpus).by_index(15).cpu_affinity == "56-111,168-223"


def _hard(text: str, width: int) -> str:
    """As a terminal breaks: at its width, in the middle of a word."""
    lines = [line.expandtabs(8) for line in text.splitlines()]
    return "\n".join(line[n : n + width] for line in lines for n in range(0, max(1, len(line)), width)) + "\n"


def _soft(text: str, width: int) -> str:
    """As a mail program breaks: between words."""
    out: list[str] = []
    for line in text.splitlines():
        out.append("")
        for word in line.expandtabs(8).split():
            if len(out[-1]) + len(word) + 1 > width:
                out.append("")
            out[-1] += (" " if out[-1] else "") + word
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("width", [72, 80, 100, 120, 132])
@pytest.mark.parametrize("breaking", [_hard, _soft])
@pytest.mark.parametrize("name", ["nvswitch-16gpu-4nic.txt", "h200x2-m.txt"])
def test_broken_at_a_width_reads_the_same(name, breaking, width):
    text = (TOPO / name).read_text()
    legend = text.index("\nLegend")  # its prose breaks too, but that is not what is asked here
    expected, got = whole(text[:legend]), whole(breaking(text[:legend], width))
    assert paths(got) == paths(expected)
    assert [(g.index, g.cpu_affinity, g.numa_node) for g in got.get(Gpus)] == [
        (g.index, g.cpu_affinity, g.numa_node) for g in expected.get(Gpus)
    ]
    before, after = expected.get(Nics), got.get(Nics)
    assert (before is None) == (after is None)
    if before is not None:
        assert {(p.gpu, p.nic, p.path) for p in after.paths} == {(p.gpu, p.nic, p.path) for p in before.paths}


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace("\t", "    "),
        lambda t: t.replace("\n", "\r\n"),
        lambda t: "".join(f"> {line}\n" for line in t.splitlines()),
        lambda t: t.lstrip(),
        lambda t: "    " + t.replace("\n", "\n    "),
        lambda t: "".join(f"\x1b[4m{line}\x1b[0m\n" for line in t.splitlines()),
    ],
    ids=["spaces", "CRLF", "quoted", "header lost its tab", "indented", "underlined"],
)
def test_mangled_pastes_read_the_same(change):
    got = whole(change((TOPO / "h200x2-m.txt").read_text()))
    assert paths(got) == {(0, 1): "NV18"}
    assert [(g.cpu_affinity, g.numa_node) for g in got.get(Gpus)] == [("0-31", 0), ("0-31", 0)]


def test_two_matrices_under_each_other_are_two():
    p2p = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"
    got = facts("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n\n" + p2p)
    pair = got.get(Pairs).of(0, 1)
    assert (pair.path, pair.p2p_unstated, pair.p2p_read) == ("PHB", "GNS", None)
    assert [loss.fact for loss in got.losses] == ["which peer-to-peer capability a matrix shows"]
    # The same without headers: a row that comes again begins the next matrix.
    rows = "GPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\nGPU0\tX\tOK\nGPU1\tOK\tX\n"
    pair = facts(rows).get(Pairs).of(0, 1)
    assert (pair.path, pair.p2p_unstated) == ("PHB", "OK")


@pytest.mark.parametrize(
    ("letter", "field"), [("r", "p2p_read"), ("w", "p2p_write"), ("n", "p2p_nvlink"), ("a", "p2p_atomics"), ("p", "p2p_pcie"), ("rw", "p2p_read")]
)
def test_the_command_says_which_capability(letter, field):
    text = (TOPO / "h200x2-p2p-p.txt").read_text()
    pair: Any = facts(text, f"nvidia-smi topo -p2p {letter}").get(Pairs).of(0, 1)
    given = {name: getattr(pair, name) for name in pair._fields if name.startswith("p2p_") and getattr(pair, name)}
    assert given == {field: "NS"}
    assert pair.path is None


def test_a_pcie_only_matrix_is_told_by_command_or_legend():
    legend = facts((TOPO / "h200x2-mp.txt").read_text()).get(Pairs).of(0, 1)
    assert (legend.path, legend.pcie_only) == ("PHB", True)
    body = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
    assert facts(body, "nvidia-smi topo -mp").get(Pairs).of(0, 1).pcie_only
    assert facts(body, "nvidia-smi topo -m").get(Pairs).of(0, 1).pcie_only is None
    # A legend that an author shortened proves nothing, and NV# in it proves `topo -m`.
    for legend_text in ("\nLegend:\n\n  X    = Self\n  SYS  = Connection\n", "\nLegend:\n\n  PIX  = Connection\n  NV#  = Connection\n"):
        assert facts(body + legend_text).get(Pairs).of(0, 1).pcie_only is None


def test_both_matrices_of_one_host_join_to_one_pair():
    got = whole((TOPO / "h200x2-mp.txt").read_text() + "\n" + (TOPO / "h200x2-m.txt").read_text())
    pair = got.get(Pairs).of(0, 1)
    assert (pair.path, pair.nvlinks, pair.pcie_path) == ("NVL", 18, "PHB")
    assert not got.contradictions


def test_cells_that_ran_together_are_taken_apart():
    got = facts(FOUR.replace("SYS     SYS     NODE", "SYSSYS  NODE").replace("GPU2    GPU3", "GPU2GPU3"))
    assert paths(got) == paths(facts(FOUR)) and not got.losses


def test_a_row_that_lacks_cells_gives_only_what_x_proves():
    got = facts(FOUR.replace("GPU2    SYS     SYS      X      PHB     SYS", "GPU2    SYS     SYS      X      SYS"))
    assert [loss.fact for loss in got.losses] == ["row GPU2 of the topology matrix"]
    assert paths(got) == paths(facts(FOUR))  # the other rows say it all
    assert not got.get(Gpus).complete
    # Cells on the wrong side of X are not read: GPU2 alone, with one cell lost before X.
    alone = facts("\tGPU0\tGPU1\tGPU2\tGPU3\nGPU2\tSYS\t X \tPHB\n")
    assert paths(alone) == {(2, 3): "PHB"}


def test_extra_or_misplaced_cells_are_no_reading():
    got = facts("\tGPU0\tGPU1\tGPU2\nGPU0\tPIX\t X \tSYS\n")
    assert paths(got) == {}
    assert got.losses


def test_rows_and_columns_that_the_author_left_out():
    rows = FOUR.replace("GPU1    PIX      X      SYS     SYS     NODE    0-15    0\n", "...\n")
    got = whole(rows)
    assert paths(got)[0, 1] == "PIX" and paths(got)[2, 3] == "PHB"
    gpus = got.get(Gpus)
    assert len(gpus) == 4 and not gpus.complete and gpus.by_index(1).cpu_affinity is None
    columns = "        GPU0    GPU1    ...     GPU7\nGPU0     X      NV12    ...     NV12\nGPU1    NV12     X      ...     NV12\n"
    got = whole(columns)
    assert paths(got) == {(0, 1): "NV12", (0, 7): "NV12", (1, 7): "NV12"}
    assert not got.get(Gpus).complete


def test_without_header_the_place_of_x_names_the_columns():
    tail = "GPU2\tSYS\tSYS\t X \tPHB\tNODE\t16-31\t1\nGPU3\tSYS\tSYS\tPHB\t X \tNODE\t16-31\t1\nNIC0\tSYS\tSYS\tNODE\tNODE\t X \n"
    got = whole(tail)
    assert paths(got) == {(0, 2): "SYS", (1, 2): "SYS", (2, 3): "PHB", (0, 3): "SYS", (1, 3): "SYS"}
    assert {(p.gpu, p.nic): p.path for p in got.get(Nics).paths}[0, "NIC0"] == "SYS"
    assert not got.get(Gpus).complete


def test_without_header_and_nic_rows_no_column_is_guessed():
    got = facts("GPU0\t X \tPHB\tNODE\tSYS\t0-7\nGPU1\tPHB\t X \tNODE\tSYS\t0-7\n")
    assert paths(got) == {(0, 1): "PHB"}  # the last two columns may be GPUs or adapters
    assert len(got.get(Gpus)) == 2
    with pytest.raises(Unparsable):
        facts("GPU4\t X \tPHB\nGPU1\tPHB\t X \n")  # rows of a chosen few: their columns cannot be known


def test_old_words_and_adapters_named_by_device():
    got = facts("\tGPU0\tGPU1\tmlx4_0\tCPU Affinity\nGPU0\t X \tSOC\tPIX\t0-9,20-29\nGPU1\tSOC\t X \tSOC\t10-19\nmlx4_0\tPIX\tSOC\t X \t\n")
    assert paths(got) == {(0, 1): "SYS"}
    assert [(n.name, n.device) for n in got.get(Nics)] == [("mlx4_0", "mlx4_0")]
    assert {(p.gpu, p.nic): p.path for p in got.get(Nics).paths} == {(0, "mlx4_0"): "PIX", (1, "mlx4_0"): "SYS"}


def test_cpu_columns_are_neither_gpu_nor_adapter():
    got = facts("\tGPU0\tGPU1\tCPU0\tCPU Affinity\nGPU0\t X \tNODE\tPHB\t0-7\nGPU1\tNODE\t X \tPHB\t0-7\nCPU0\tPHB\tPHB\t X \n")
    assert paths(got) == {(0, 1): "NODE"}
    assert len(got.get(Gpus)) == 2 and got.get(Nics) is None


@pytest.mark.parametrize(
    ("behind", "affinity", "node", "nodes"),
    [
        ("0-71\t0,3-9,11-17\t\t2", "0-71", None, "0,3-9,11-17"),
        ("0-47\t\tN/A", "0-47", None, None),
        ("N/A\tN/A\t\tN/A", None, None, None),
        ("0\t1\t\tN/A", "0", 1, None),
        ("\t1\t\tN/A", None, None, None),  # a blank affinity: 1 may be either
        ("6,14,22,30\t3\t\tN/A", "6,14,22,30", 3, None),
    ],
)
def test_affinity_columns(behind, affinity, node, nodes):
    gpu = facts(f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS\t{behind}\n").get(Gpus).by_index(0)
    assert (gpu.cpu_affinity, gpu.numa_node, gpu.numa_list) == (affinity, node, nodes)


def test_help_and_a_header_alone_are_nothing():
    assert recognise((TOPO / "help.txt").read_text()) == []
    with pytest.raises(Unparsable):
        parse("smi-topo", "\tGPU0\tGPU1\tCPU Affinity\n")


def test_contradicting_cells_are_said():
    got = facts("\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV6\t X \n")
    assert len(got.contradictions) == 1
    assert not any(isinstance(f, Loss) for f in parse("smi-topo", MATRIX))


def test_a_name_that_ran_into_the_first_label():
    text = FOUR.replace("NIC0    CPU Affinity", "NIC0CPU Affinity")
    got = whole(text)
    assert [n.name for n in got.get(Nics)] == ["NIC0"]
    assert [(g.cpu_affinity, g.numa_node) for g in got.get(Gpus)] == [("0-15", 0), ("0-15", 0), ("16-31", 1), ("16-31", 1)]
    assert {p.nic for p in got.get(Nics).paths} == {"NIC0"}


@pytest.mark.parametrize(
    ("behind", "affinity", "node"),
    [
        ("0-55,112-167 0N/A", "0-55,112-167", 0),
        ("56-111,168-2231               N/A", "56-111,168-223", 1),  # the node stands at the end of the list
        ("56-111,168-223  1             N/A", "56-111,168-223", 1),
        ("56-111,168-223                N/A", "56-111,168-223", None),  # no node was printed
        ("0-23,48-712                   N/A", "0-23,48-71", 2),
        ("0-7,20-30                     N/A", "0-7,20-30", None),  # not siblings: nothing is taken off
    ],
)
@pytest.mark.parametrize("header", [True, False])
def test_columns_behind_a_row_whose_blanks_were_eaten(behind, affinity, node, header):
    head = "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n" if header else ""
    got = whole(f"{head}GPU0     X      NV18    {behind}\nGPU1    NV18     X      {behind}\n").get(Gpus)
    assert [(g.cpu_affinity, g.numa_node) for g in got] == [(affinity, node)] * 2


@pytest.mark.parametrize(("listed", "affinity"), [("112-127,240-255", "112-127,240-255"), ("112-127,240-25", None), ("31-3", None), ("0-3,8", "0-3,8")])
def test_a_list_of_cpus_that_runs_backwards_lost_its_end(listed: str, affinity: str | None) -> None:
    """Synthetic: a page that was cut in a row and pasted with a line end behind it."""
    got = facts(f"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-15\nGPU1\tNV12\t X \t{listed}\n")
    found = got.get(Gpus)
    assert found is not None
    assert [g.cpu_affinity for g in found] == ["0-15", affinity]


@pytest.mark.parametrize(
    ("rows", "affinity"),
    [
        # Synthetic: the page ends in the row of GPU1, and GPU2 has none.
        ("GPU0\t X \tNV6\tNV6\t0-23,48-71\nGPU1\tNV6\t X \tNV6\t0-23,4\n", ["0-23,48-71", None]),
        ("GPU0\t X \tNV6\tNV6\t0-23,48-71\nGPU1\tNV6\t X \tNV6\t24-47\n", ["0-23,48-71", "24-47"]),
        # Whole: the last GPU may share a part of the others' processors.
        ("GPU0\t X \tNV6\tNV6\t0-23,48-71\nGPU1\tNV6\t X \tNV6\t0-23,48-71\nGPU2\tNV6\tNV6\t X \t0-23\n", ["0-23,48-71", "0-23,48-71", "0-23"]),
    ],
)
def test_the_last_row_before_missing_ones_may_have_lost_its_end(rows: str, affinity: list[str | None]) -> None:
    found = facts(f"\tGPU0\tGPU1\tGPU2\tCPU Affinity\n{rows}").get(Gpus)
    assert found is not None
    assert [g.cpu_affinity for g in found][: len(affinity)] == affinity
