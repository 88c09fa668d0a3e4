import pytest

from gpudoctor.checkers.p2p import PeerToPeer
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CannotTell
from tests.support import HERE, check, findings


def pair(path="PHB", **more):
    return Pairs((Pair(a=0, b=1, path=path, origin=HERE, **more),))


def two(name, **more):
    return Gpus(tuple(Gpu(index=i, name=name, origin=HERE, **more) for i in (0, 1)))


def said(*facts):
    return {slug: (f.severity, f.confidence) for (slug, _), f in findings(PeerToPeer(), *facts).items()}


def test_ok_is_in_order():
    assert check(PeerToPeer(), pair(p2p_read="OK", p2p_write="OK"), two("NVIDIA L40S")) == []
    assert check(PeerToPeer(), pair(p2p_read="OK", p2p_nvlink="NS", p2p_atomics="NS"), two("NVIDIA L40S")) == []


@pytest.mark.parametrize("word", ["CNS", "GNS", "TNS", "NS", "DR"])
def test_severity_by_path_and_part(word):
    refused = {"p2p_read": word, "p2p_write": word}
    assert said(pair(**refused), two("NVIDIA L40S")) == {"p2p-unsupported": ("warning", "certain")}
    assert said(pair(**refused)) == {"p2p-unsupported": ("warning", "certain")}
    assert said(pair("NVL", **refused), two("NVIDIA H200")) == {"p2p-unsupported": ("error", "certain")}
    assert said(pair(**refused), two("NVIDIA GeForce RTX 4090")) == {"p2p-unsupported": ("note", "certain")}
    assert said(pair(**refused), two("NVIDIA GeForce RTX 3090")) == {"p2p-unsupported": ("note", "certain")}
    assert said(pair("NVL", **refused), two("NVIDIA GeForce RTX 3090")) == {"p2p-unsupported": ("error", "certain")}


def test_one_direction_is_enough_and_named():
    found = findings(PeerToPeer(), pair(p2p_read="OK", p2p_write="CNS"))["p2p-unsupported", "pair:0-1"]
    assert "write CNS (chipset not supported)" in found.message and "read" not in found.message.split(".")[0]


def test_registry_key_has_its_own_remedy():
    found = findings(PeerToPeer(), pair(p2p_read="DR"), two("NVIDIA L40S"))["p2p-unsupported", "pair:0-1"]
    assert any("RegistryDwords" in (s.command or "") for s in found.remediation)


def test_virtual_machine_and_mig():
    vm = Platform(PlatformEntry(vm=True, origin=HERE))
    found = findings(PeerToPeer(), pair(p2p_read="NS"), two("NVIDIA A10G"), vm)["p2p-unsupported", "pair:0-1"]
    assert found.severity == "warning" and "hypervisor" in found.message
    cut = two("NVIDIA A100-SXM4-80GB", mig_mode="enabled")
    assert said(pair("NVL", p2p_read="NS"), cut) == {"p2p-unsupported": ("note", "certain")}


def test_capability_that_is_not_named():
    assert {type(x) for x in check(PeerToPeer(), pair(p2p_unstated="NS"))} == {CannotTell}
    assert said(pair(p2p_unstated="GNS")) == {"p2p-unsupported": ("warning", "possible")}
    assert said(pair(p2p_unstated="GNS"), two("NVIDIA GeForce RTX 5090")) == {"p2p-unsupported": ("note", "possible")}
    assert check(PeerToPeer(), pair(p2p_unstated="OK")) == []


def test_unknown_answer_and_no_answer():
    assert [type(x) for x in check(PeerToPeer(), pair(p2p_read="U"))] == [CannotTell]
    assert {(type(x), x.slug) for x in check(PeerToPeer(), pair())} == {
        (CannotTell, "p2p-unsupported"),
        (CannotTell, "p2p-patched"),
    }


def test_patched_driver():
    ok = {"p2p_read": "OK", "p2p_write": "OK"}
    assert said(pair(**ok), two("NVIDIA GeForce RTX 4090")) == {"p2p-patched": ("note", "certain")}
    assert said(pair(p2p_read="OK"), two("NVIDIA GeForce RTX 4090")) == {}
    assert said(pair(**ok), two("NVIDIA RTX A6000")) == {}
    # A bridge gives a 3090 its peer access.
    assert said(pair("NVL", **ok), two("NVIDIA GeForce RTX 3090")) == {}


def test_display_card_is_left_out():
    cards = Gpus((Gpu(index=0, name="NVIDIA L40S", origin=HERE), Gpu(index=1, name="NVIDIA T400", origin=HERE)))
    assert said(pair(p2p_read="CNS"), cards) == {}


def messages(*facts):
    return [f.message for f in findings(PeerToPeer(), *facts).values()]


def test_the_part_that_is_refused_is_the_one_that_is_named():
    mixed = Gpus((Gpu(index=0, name="NVIDIA RTX A6000", origin=HERE), Gpu(index=1, name="NVIDIA GeForce RTX 5090", origin=HERE)))
    (said_of,) = messages(pair(p2p_read="OK", p2p_write="OK"), mixed)
    assert "refuses it to NVIDIA GeForce RTX 5090:" in said_of
    (alike,) = messages(pair(p2p_read="OK", p2p_write="OK"), two("NVIDIA GeForce RTX 5090"))
    assert "refuses it to this part:" in alike


def test_a_part_that_is_named_is_not_called_unknown():
    (named,) = messages(pair(p2p_read="CNS", p2p_write="CNS"), two("NVIDIA Made Up 9000"))
    assert "NVIDIA Made Up 9000" in named and "The part is not known" not in named
    (nameless,) = messages(pair(p2p_read="CNS", p2p_write="CNS"))
    assert "The part is not known" in nameless
