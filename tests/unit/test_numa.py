import pytest

from gpudoctor.checkers.numa import NumaPlacement
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import (
    AffinityEntry,
    JobProcess,
    Jobs,
    Numa,
    NumaNode,
    OwnAffinity,
    Platform,
    PlatformEntry,
)
from gpudoctor.model import CannotTell
from tests.support import HERE, check, findings

A, B = "0000:41:00.0", "0000:c1:00.0"
TWO = Numa((NumaNode(id=0, cpus="0-31", origin=HERE), NumaNode(id=1, cpus="32-63", origin=HERE)))
ONE = Numa((NumaNode(id=0, cpus="0-63", origin=HERE),))


def gpus(first=0, second=1, **fields):
    return Gpus(tuple(Gpu(index=i, bdf=b, numa_node=n, origin=HERE, **fields) for i, (b, n) in enumerate(((A, first), (B, second)))))


def job(cpus, *held, mems=None, **more):
    return Jobs((JobProcess(pid=77, name="python3", gpus=held, cpus=cpus, mems=mems, origin=HERE, **more),))


def own(cpus):
    return OwnAffinity(AffinityEntry(cpus=cpus, origin=HERE))


def found(*facts):
    return {s: f for (slug, s), f in findings(NumaPlacement(), *facts).items() if slug == "numa-mismatch"}


def test_wholly_on_the_other_node():
    said = found(gpus(), TWO, job("0-15", B))
    assert list(said) == [f"gpu:{B}"]
    finding = said[f"gpu:{B}"]
    assert finding.severity == "warning"
    assert "process 77" in finding.message.lower()
    assert finding.remediation[0].command == "numactl --cpunodebind=1 --membind=1 COMMAND"


@pytest.mark.parametrize(
    ("cpus", "held"),
    [("0-15", (A,)), ("0-63", (B,)), ("16-40", (B,)), ("0-15", (A, B)), ("0-15", ()), ("0-15", ("0000:99:00.0",))],
)
def test_near_enough(cpus, held):
    assert check(NumaPlacement(), gpus(), TWO, job(cpus, *held)) == []


def test_memory_bound_to_the_other_node():
    assert "memory" in found(gpus(), TWO, job("32-63", B, mems="0"))[f"gpu:{B}"].message
    assert found(gpus(), TWO, job("32-63", B, mems="0-1")) == {}


def test_affinity_alone_tells_the_node():
    near = Gpus((Gpu(index=0, bdf=A, cpu_affinity="32-63", origin=HERE),))
    said = found(near, TWO, job("0-3", A))
    assert "--cpunodebind=1" in said[f"gpu:{A}"].remediation[0].command


def test_gpu_memory_nodes_are_no_nodes_to_bind_to():
    """Grace Hopper: node 1 is the GPU's memory and has no CPUs."""
    grace = Numa((NumaNode(id=0, cpus="0-71", origin=HERE), NumaNode(id=1, cpus="", origin=HERE)))
    gpu = Gpus((Gpu(index=0, bdf=A, numa_node=0, cpu_affinity="0-71", origin=HERE),))
    assert check(NumaPlacement(), gpu, grace, job("0-7", A), own("0-7")) == []


def test_a_process_that_may_not_be_read():
    said = check(NumaPlacement(), gpus(), TWO, job(None, A, unreadable="another user's process"))
    assert [(type(s), s.slug) for s in said] == [(CannotTell, "numa-mismatch")]
    assert "another user" in said[0].reason


def test_own_affinity_is_a_note():
    said = found(gpus(), TWO, own("0-7"))
    assert said["host"].severity == "note"
    assert "GPU1" in said["host"].message and "GPU0" not in said["host"].message
    assert check(NumaPlacement(), gpus(), TWO, own("0-63")) == []


def test_fewer_cpus_of_the_only_node_are_a_note():
    bound = OwnAffinity(AffinityEntry(cpus="0", cpuset_cpus="0-31", origin=HERE))
    one = (Gpus((Gpu(index=0, bdf="0000:00:06.0", cpu_affinity="0-31", origin=HERE),)), Numa((NumaNode(id=0, cpus="0-31", origin=HERE),)))
    said = findings(NumaPlacement(), *one, bound)[("numa-mismatch", "host")]
    assert said.severity == "note" and "1 of 32 CPUs" in said.message
    whole = OwnAffinity(AffinityEntry(cpus="0-31", cpuset_cpus="0-31", origin=HERE))
    assert not findings(NumaPlacement(), *one, whole)


def test_neither_job_nor_live():
    said = check(NumaPlacement(), gpus(), TWO)
    assert [(type(s), s.slug) for s in said] == [(CannotTell, "numa-mismatch")]


# --- numa-unknown


def unknown(*facts):
    return {s: f for (slug, s), f in findings(NumaPlacement(), *facts).items() if slug == "numa-unknown"}


def tree(reported):
    return PciTree(tuple(PciDevice(bdf=b, class_code="030200", numa_reported=reported, origin=HERE) for b in (A, B)), complete=True)


def test_no_node_where_several_have_cpus():
    said = unknown(gpus(None, None), TWO, tree(-1), own("0-63"))
    assert {f.severity for f in said.values()} == {"warning"} and len(said) == 2


def test_an_affinity_of_all_cpus_is_none():
    assert len(unknown(gpus(None, None, cpu_affinity="0-63"), TWO, own("0-63"))) == 2


def test_in_a_virtual_machine_a_note():
    said = unknown(gpus(None, None), TWO, tree(-1), Platform(PlatformEntry(vm=True, origin=HERE)))
    assert {f.severity for f in said.values()} == {"note"}


def test_known_or_of_no_matter():
    assert unknown(gpus(), TWO, tree(0)) == {}
    assert unknown(gpus(None, None), ONE, tree(-1)) == {}
    assert unknown(gpus(None, None, cpu_affinity="0-31"), TWO, tree(-1)) == {}
    assert unknown(gpus(None, None)) == {}


def test_a_source_that_does_not_speak_of_nodes():
    said = check(NumaPlacement(), gpus(None, None), TWO, own("0-63"))
    assert unknown(gpus(None, None), TWO, own("0-63")) == {}
    assert {(type(s), s.slug) for s in said} == {(CannotTell, "numa-mismatch"), (CannotTell, "numa-unknown")}
