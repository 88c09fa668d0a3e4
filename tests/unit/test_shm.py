import pytest

from gpudoctor.checkers.shm import SharedMemory
from gpudoctor.facts.system import JobProcess, Jobs, Platform, PlatformEntry, Setting, Settings, Shm, ShmEntry
from gpudoctor.model import CannotTell
from tests.builders import host
from tests.support import HERE, check, findings

MIB = 1 << 20


def shm(size=64 * MIB, free=None, **more):
    return Shm(ShmEntry(size_bytes=size, free_bytes=free, origin=HERE, **more))


def said(*facts):
    return findings(SharedMemory(), *facts).get(("shm", "host"))


def env(name, value):
    return Settings((Setting(name=name, value=value, scope="environment", origin=HERE),))


def test_dockers_default_where_shm_carries_all():
    found = said(shm(), *host(name="NVIDIA GeForce RTX 4090", device_id="10de:2684", path="PHB").facts())
    assert (found.severity, found.confidence) == ("warning", "certain")
    assert "64 MiB" in found.message


def test_refused_by_the_driver():
    assert said(shm(), *host(path="PHB").p2p("CNS").facts()).severity == "warning"


@pytest.mark.parametrize("made", [host().nvlink(), host(switches=1).p2p("OK")])
def test_peer_to_peer_carries_it(made):
    assert said(shm(), *made.facts()).severity == "note"


def test_peer_to_peer_switched_off():
    assert said(shm(), *host().nvlink().facts(), env("NCCL_P2P_DISABLE", "1")).severity == "warning"
    assert said(shm(), *host().nvlink().facts(), env("NCCL_P2P_DISABLE", "0")).severity == "note"


def test_allowed_and_still_not_sure():
    """Over the CPU it depends on NCCL's version whether it uses what the driver allows."""
    found = said(shm(), *host(path="PHB").p2p("OK").facts())
    assert (found.severity, found.confidence) == ("warning", "possible")


def test_nothing_known_of_the_gpus():
    assert (said(shm()).severity, said(shm()).confidence) == ("warning", "possible")


@pytest.mark.parametrize("size", [1024 * MIB, 500 * 1024 * MIB])
def test_large_enough(size):
    assert check(SharedMemory(), shm(size), *host().facts()) == []


def test_one_gpu_needs_none():
    assert check(SharedMemory(), shm(), *host(gpus=1).facts()) == []


def test_full():
    found = said(shm(100 * 1024 * MIB, free=3 * MIB))
    assert "is full" in found.message and "nccl-*" in " ".join(s.command or "" for s in found.remediation)
    assert said(shm(100 * 1024 * MIB, free=900 * MIB)) is None


def test_not_writable_and_not_a_mount():
    assert "cannot be written" in said(shm(2048 * MIB, writable=False)).message
    assert "folder on disk" in said(shm(2048 * MIB, mounted=False)).message
    assert said(shm(2048 * MIB, writable=True, mounted=True)) is None


def test_remedies_fit_the_place():
    def commands(kind):
        facts = (Platform(PlatformEntry(container=kind, origin=HERE)),) if kind else ()
        return " ".join(f"{s.step} {s.command}" for s in said(shm(), *facts).remediation)

    assert "--shm-size=1g" in commands("docker") and "remount" not in commands("docker")
    assert "emptyDir" in commands("kubernetes")
    assert "remount" in commands(None)


def test_inside_the_container_of_a_job():
    inside = ShmEntry(size_bytes=64 * MIB, origin=HERE)
    jobs = Jobs((JobProcess(pid=5, container="docker", shm=inside, origin=HERE), JobProcess(pid=6, container="docker", shm=inside, origin=HERE)))
    found = check(SharedMemory(), shm(64 * 1024 * MIB), jobs)
    assert len(found) == 1
    assert "process 5" in found[0].message


def test_size_not_in_the_input():
    assert [type(s) for s in check(SharedMemory(), shm(None))] == [CannotTell]
