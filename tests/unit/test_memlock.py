import pytest

from gpudoctor.checkers.memlock import Memlock
from gpudoctor.facts.system import Limits, LimitsEntry, Modules, Platform, PlatformEntry
from gpudoctor.facts.topology import Nic, Nics
from gpudoctor.model import CannotTell, Evidence
from tests.support import HERE, check, findings

NICS = Nics((Nic(name="mlx5_0", origin=HERE),))
LOADED = Modules({"nvidia": "", "mlx5_ib": "", "ib_uverbs": ""}, Evidence("lsmod", "line 4", "mlx5_ib"))
LOW = 64 << 10


def limit(count=LOW, unlimited=False):
    return Limits(LimitsEntry(memlock_bytes=count, memlock_unlimited=unlimited, origin=HERE))


def where(**fields):
    return Platform(PlatformEntry(origin=HERE, **fields))


def warning(*facts):
    return findings(Memlock(), *facts).get(("memlock", "host"))


@pytest.mark.parametrize("rdma", [NICS, LOADED])
def test_low_beside_rdma(rdma):
    said = warning(limit(), rdma)
    assert said.severity == "warning"
    assert "64 KiB" in said.message


@pytest.mark.parametrize("enough", [limit(None, True), limit(1 << 30)])
def test_enough(enough):
    assert check(Memlock(), enough, NICS) == []


def test_the_limit_itself_is_low():
    assert warning(limit(64 << 20), NICS) is not None
    assert warning(limit((64 << 20) + 1), NICS) is None


def test_no_rdma_no_matter():
    assert check(Memlock(), limit(), Nics((), states_read=True)) == []
    assert check(Memlock(), limit(), Nics((), states_read=True), LOADED) == []
    assert check(Memlock(), limit(), Modules({"nvidia": "", "ib_uverbs": ""}, LOADED.origin)) == []


def test_root_is_not_bound_by_it():
    assert [type(s) for s in check(Memlock(), limit(), NICS, where(uid=0))] == [CannotTell]
    assert warning(limit(), NICS, where(uid=1000)) is not None
    assert "--ulimit memlock=-1" in warning(limit(), NICS, where(uid=0, container="docker")).remediation[0].command


def test_containers_have_their_own_remedy():
    assert "containerd" in warning(limit(), NICS, where(container="kubernetes")).remediation[0].command
    assert "limits.d" in warning(limit(), NICS).remediation[0].command


@pytest.mark.parametrize("facts", [(limit(None, None), NICS), (limit(),)])
def test_not_known(facts):
    assert [type(s) for s in check(Memlock(), *facts)] == [CannotTell]
