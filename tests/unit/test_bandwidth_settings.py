"""What a child's environment loses, and what it never loses."""

from __future__ import annotations

import itertools

import pytest

from gpudoctor.bandwidth.settings import KEPT, Site
from gpudoctor.facts.system import Setting, Settings
from tests.support import HERE

OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def in_file(name: str, value: str, scope: str = "/etc/nccl.conf") -> Setting:
    return Setting(name=name, value=value, scope=scope, origin=HERE)


def child(site: Site, names: list[str], environ: dict[str, str], files: list[Setting]) -> dict[str, str]:
    """The environment as NCCL sees it in the end: ours, changed, then the files where nothing is set (param.cc)."""
    change = site.without(names)
    out = {k: v for k, v in environ.items() if k not in change.unset}
    out.update(change.put)
    for s in sorted(files, key=lambda s: s.scope != "~/.nccl.conf"):
        if s.scope == "/etc/nccl.conf" or out.get("NCCL_CONF_FILE") is None:
            out.setdefault(s.name, s.value)
    return out


PLACES = [dict(zip(OFF, where, strict=True)) for where in itertools.product(("environment", "/etc/nccl.conf", "~/.nccl.conf"), repeat=3)]


@pytest.mark.parametrize("places", PLACES)
def test_what_keeps_multicast_off_stays_set_in_every_child(places: dict[str, str]) -> None:
    environ = {n: v for n, v in OFF.items() if places[n] == "environment"}
    files = [in_file(n, v, places[n]) for n, v in OFF.items() if places[n] != "environment"]
    others = {"NCCL_P2P_DISABLE": "1", "NCCL_MAX_NCHANNELS": "2"}
    files += [in_file("NCCL_ALGO", "Tree", "~/.nccl.conf"), in_file("NCCL_SHM_DISABLE", "1")]
    environ |= others
    site = Site(environ, Settings(tuple(files)))
    names = [s.name for s in site.candidates()]
    assert not set(names) & set(KEPT)
    for chosen in ([], names, [*names, *KEPT], *([n] for n in (*names, *KEPT))):
        seen = child(site, chosen, environ, files)
        assert {n: seen[n] for n in KEPT} == OFF, chosen
    assert "stays set in every run" in site.kept_words()[0] and "lowers what can be expected" in site.kept_words()[0]


def test_multicast_is_never_switched_on_where_nobody_said_anything() -> None:
    site = Site({"NCCL_P2P_DISABLE": "1"}, None)
    assert not set(site.without(["NCCL_P2P_DISABLE", *KEPT]).put) & set(KEPT)
    assert site.kept_words() == ()


def test_a_variable_is_taken_away_and_a_line_of_a_file_overridden() -> None:
    environ = {"NCCL_P2P_LEVEL": "LOC", "NCCL_DEBUG": "INFO", "PATH": "/bin"}
    files = [in_file("NCCL_MAX_NCHANNELS", "1"), in_file("NCCL_P2P_DISABLE", "1", "~/.nccl.conf")]
    site = Site(environ, Settings(tuple(files)))
    assert [s.name for s in site.candidates()] == ["NCCL_MAX_NCHANNELS", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"]
    seen = child(site, ["NCCL_P2P_LEVEL"], environ, files)
    assert "NCCL_P2P_LEVEL" not in seen and seen["NCCL_P2P_DISABLE"] == "1" and seen["NCCL_DEBUG"] == "INFO"
    # NCCL takes an empty number for not given (ncclLoadParam), and 0 for a switch that is off.
    assert child(site, ["NCCL_MAX_NCHANNELS"], environ, files)["NCCL_MAX_NCHANNELS"] == ""
    assert child(site, ["NCCL_P2P_DISABLE"], environ, files)["NCCL_P2P_DISABLE"] == "0"


def test_a_name_in_the_environment_and_in_a_file_is_neutral_in_both() -> None:
    environ = {"NCCL_MAX_NCHANNELS": "2"}
    files = [in_file("NCCL_MAX_NCHANNELS", "4")]
    assert child(Site(environ, Settings(tuple(files))), ["NCCL_MAX_NCHANNELS"], environ, files)["NCCL_MAX_NCHANNELS"] == ""


def test_a_word_of_the_users_file_goes_by_leaving_the_file_out_and_the_rest_of_it_stays() -> None:
    files = [in_file("NCCL_ALGO", "Tree", "~/.nccl.conf"), in_file("NCCL_BUFFSIZE", "65536", "~/.nccl.conf")]
    seen = child(Site({}, Settings(tuple(files))), ["NCCL_ALGO"], {}, files)
    assert "NCCL_ALGO" not in seen and seen["NCCL_BUFFSIZE"] == "65536" and seen["NCCL_CONF_FILE"] == "/dev/null"


def test_a_word_of_the_systems_file_cannot_be_neutralised_and_that_is_said() -> None:
    site = Site({}, Settings((in_file("NCCL_PROTO", "LL"),)))
    (setting,) = site.candidates()
    assert "no value that means the default" in (site.why_not(setting, True) or "")


@pytest.mark.parametrize("name, value", [("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC"), ("NCCL_P2P_LEVEL", "PIX")])
def test_peer_to_peer_that_a_file_switches_off_is_tried_on_request_only(name: str, value: str) -> None:
    site = Site({}, Settings((in_file(name, value),)))
    (setting,) = site.candidates()
    assert site.p2p_off_by_site() is not None
    assert "--allow-p2p" in (site.why_not(setting, False) or "")
    assert site.why_not(setting, True) is None


def test_the_environment_does_not_uncover_a_file_that_keeps_peer_to_peer_off() -> None:
    site = Site({"NCCL_P2P_LEVEL": "PIX"}, Settings((in_file("NCCL_P2P_DISABLE", "1"),)))
    assert {s.name: site.why_not(s, False) is None for s in site.candidates()} == {"NCCL_P2P_DISABLE": False, "NCCL_P2P_LEVEL": False}


def test_peer_to_peer_switched_off_in_the_environment_may_be_tried() -> None:
    site = Site({"NCCL_P2P_DISABLE": "1"}, Settings((in_file("NCCL_P2P_DISABLE", "0"), in_file("NCCL_P2P_LEVEL", "SYS"))))
    assert site.p2p_off() and site.p2p_off_by_site() is None
    assert all(site.why_not(s, False) is None for s in site.candidates())
