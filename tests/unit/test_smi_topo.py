from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.topology import Pairs
from tests.support import parse

MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV18\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \t0-31\t0\t\tN/A\n"


def facts(text: str, command: str | None = None) -> dict[type, object]:
    return {type(f): f for f in parse("smi-topo", text, command)}


def test_matrix_gives_pairs_and_affinity():
    got = facts(MATRIX)
    pair = got[Pairs].pairs[0]
    assert (pair.a, pair.b, pair.path, pair.nvlinks) == (0, 1, "NVL", 18)
    assert [g.cpu_affinity for g in got[Gpus]] == ["0-31", "0-31"]


def test_cut_anywhere_gives_no_other_link_count():
    for end in range(len(MATRIX)):
        for fact in parse_or_nothing(MATRIX[:end]):
            if isinstance(fact, Pairs):
                assert {(p.path, p.nvlinks) for p in fact} <= {("NVL", 18)}
            if isinstance(fact, Gpus):
                assert {g.cpu_affinity for g in fact} <= {"0-31", None}


def parse_or_nothing(text: str) -> list[object]:
    from gpudoctor.read.section import Unparsable

    try:
        return parse("smi-topo", text)
    except Unparsable:
        return []
