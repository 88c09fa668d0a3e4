from gpudoctor.checkers.mig import Mig
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.model import CannotTell
from tests.support import HERE, check, findings


def gpus(*modes):
    return Gpus(tuple(Gpu(index=i, bdf=f"0000:0{i}:00.0", mig_mode=m, origin=HERE) for i, m in enumerate(modes)))


def test_only_gpus_with_mig_on_are_noted():
    found = findings(Mig(), gpus("enabled", "disabled", None))
    assert {(s, f.severity) for (_, s), f in found.items()} == {("gpu:0000:00:00.0", "note")}
    assert check(Mig(), gpus("disabled", None)) == []


def test_not_said_anywhere():
    assert [type(x) for x in check(Mig(), gpus(None, None))] == [CannotTell]
