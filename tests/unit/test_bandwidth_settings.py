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
    files += [in_file("NCCL_NET", "Socket", "~/.nccl.conf"), in_file("NCCL_SHM_DISABLE", "1")]
    environ |= others
    site = site_of(*files, nccl="2.28.9", **environ)
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


def site_of(*files: Setting, nccl: str | None = None, **environ: str) -> Site:
    site = Site(environ, Settings(files))
    site.nccl = nccl
    return site


def test_a_name_in_the_users_file_goes_by_leaving_the_file_out_and_the_rest_of_it_stays() -> None:
    files = [in_file("NCCL_NET", "Socket", "~/.nccl.conf"), in_file("NCCL_BUFFSIZE", "65536", "~/.nccl.conf")]
    seen = child(site_of(*files, nccl="2.28.9"), ["NCCL_NET"], {}, files)
    assert "NCCL_NET" not in seen and seen["NCCL_BUFFSIZE"] == "65536" and seen["NCCL_CONF_FILE"] == "/dev/null"


@pytest.mark.parametrize("nccl", [None, "2.22.3"])
def test_no_release_before_2_23_leaves_the_users_file_out(nccl: str | None) -> None:
    site = site_of(in_file("NCCL_NET", "Socket", "~/.nccl.conf"), nccl=nccl)
    assert "takes any value of NCCL_NET for a name" in (site.why_not(site.candidates()[0], True) or "")


@pytest.mark.parametrize(
    "name, value, nccl, word",
    [
        ("NCCL_ALGO", "Tree", None, "^"),
        ("NCCL_PROTO", "LL", "2.28.9", ""),
        ("NCCL_SOCKET_IFNAME", "lo", None, ""),
        ("NCCL_P2P_LEVEL", "PIX", None, ""),
        ("NCCL_TOPO_FILE", "/opt/topo.xml", "2.19.3", "/var/run/nvidia-topologyd/virtualTopology.xml"),
        ("NCCL_SYM_KERNEL", "AllReduce_AGxLL_R", "2.27.3", "^"),
        ("NCCL_CTA_POLICY", "EFFICIENCY", "2.30.7", "0"),
    ],
)
def test_a_word_of_the_systems_file_is_overridden_by_what_means_the_default(name: str, value: str, nccl: str | None, word: str) -> None:
    files = [in_file(name, value)]
    site = site_of(*files, nccl=nccl)
    assert site.why_not(site.candidates()[0], True) is None
    assert child(site, [name], {}, files)[name] == word


@pytest.mark.parametrize(
    "name, value, nccl, why",
    [
        ("NCCL_PROTO", "LL", "2.21.5", "from NCCL 2.24 on only, and this is NCCL 2.21.5"),
        ("NCCL_PROTO", "LL", None, "an unknown one"),
        ("NCCL_NET", "IB", "2.28.9", "for a name"),
        ("NCCL_GRAPH_FILE", "/opt/graph.xml", "2.28.9", "for a name"),
        ("NCCL_OF_TOMORROW", "fast", "2.28.9", "not known"),
    ],
)
def test_a_word_without_such_a_value_is_left_alone_and_said(name: str, value: str, nccl: str | None, why: str) -> None:
    site = site_of(in_file(name, value), nccl=nccl)
    said = site.why_not(site.candidates()[0], True) or ""
    assert why in said and "take the line out of /etc/nccl.conf" in said


def test_a_policy_that_asks_whether_an_algorithm_is_set_at_all_keeps_it_from_being_neutral() -> None:
    site = site_of(in_file("NCCL_ALGO", "Tree"), nccl="2.28.9", NCCL_CTA_POLICY="1")
    by_name = {s.name: s for s in site.candidates()}
    assert "NCCL_CTA_POLICY=1" in (site.why_not(by_name["NCCL_ALGO"], True) or "")
    assert site.why_not(by_name["NCCL_CTA_POLICY"], True) is None


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
