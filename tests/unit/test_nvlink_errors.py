import pytest

from gpudoctor.checkers.nvlink_errors import NvLinkErrors
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.facts.topology import NvLink, NvLinkGpu, NvLinks
from gpudoctor.model import CannotTell
from tests.support import HERE, check, findings


def links(*counters):
    return NvLinks(tuple(NvLink(gpu=0, link=n, origin=HERE, **c) for n, c in enumerate(counters)))


def zero(**more):
    return {"replay": 0, "recovery": 0, "crc": 0, **more}


def said(*counters, **more):
    return {s: (f.severity, f.confidence) for (_, s), f in findings(NvLinkErrors(), links(*counters), **more).items()}


def test_all_zero_and_a_few_crc_errors_are_in_order():
    assert check(NvLinkErrors(), links(zero(), zero(crc=7))) == []
    assert check(NvLinkErrors(), links(zero(replay=3, errors_before=(3, 0, 0)))) == []


def test_replays_and_many_crc_errors():
    found = said(zero(replay=104), zero(), zero(replay=2, crc=45068), zero())
    assert found == {"nvlink:0/0": ("warning", "possible"), "nvlink:0/2": ("warning", "likely")}


def test_crc_errors_on_one_link_alone():
    assert said(zero(crc=45068), zero(), zero()) == {"nvlink:0/0": ("warning", "possible")}


def test_crc_errors_on_all_links_alike_need_a_second_reading():
    assert {type(x) for x in check(NvLinkErrors(), links(zero(crc=5000), zero(crc=5000)))} == {CannotTell}


@pytest.mark.parametrize("before", [(1, 0, 0), (2, 0, 9)])
def test_growth_between_two_readings(before):
    assert said(zero(replay=2, crc=10, errors_before=before)) == {"nvlink:0/0": ("warning", "certain")}


def test_counters_at_their_end_and_failed_recoveries():
    assert said(zero(replay=255)) == {"nvlink:0/0": ("error", "certain")}
    assert said(zero(replay=65535)) == {"nvlink:0/0": ("error", "certain")}
    assert said(zero(recovery_failed=1)) == {"nvlink:0/0": ("error", "certain")}
    assert said(zero(recovery_failed=0)) == {}
    # 255 CRC errors are a number like any other: that counter is wider.
    assert said(zero(crc=255)) == {}
    assert said(zero(crc=0xFFFFFFFF)) == {"nvlink:0/0": ("error", "certain")}


def test_rate_since_the_start_of_a_live_host():
    up = Platform(PlatformEntry(uptime_s=100.0, origin=HERE))
    found = findings(NvLinkErrors(), links(zero(crc=20000)), up, recorded=False)
    assert found["nvlink-errors", "nvlink:0/0"].severity == "warning"
    assert "200 a second" in found["nvlink-errors", "nvlink:0/0"].message
    day = Platform(PlatformEntry(uptime_s=86400.0, origin=HERE))
    assert check(NvLinkErrors(), links(zero(crc=20000)), day, recorded=False) == []


def test_states_alone_say_nothing_of_errors():
    (answer,) = check(NvLinkErrors(), NvLinks((NvLink(gpu=0, link=0, active=True, origin=HERE),)))
    assert isinstance(answer, CannotTell)


def test_cards_without_nvlink_have_nothing_to_count():
    rows = tuple(NvLinkGpu(gpu=i, name="NVIDIA GeForce RTX 4090", no_nvlink=True, origin=HERE) for i in (0, 1))
    assert not list(check(NvLinkErrors(), NvLinks((), rows)))
    dark = tuple(NvLink(gpu=0, link=n, active=False, origin=HERE) for n in range(12))
    assert not list(check(NvLinkErrors(), NvLinks(dark, (NvLinkGpu(gpu=0, origin=HERE),))))
    unread = tuple(NvLink(gpu=0, link=n, active=True, origin=HERE) for n in range(12))
    assert [type(x).__name__ for x in check(NvLinkErrors(), NvLinks(unread, ()))] == ["CannotTell"]


def test_a_crc_counter_of_sixteen_bits_at_its_end():
    assert said(zero(crc=65535)) == {"nvlink:0/0": ("error", "certain")}
    assert said(zero(crc=65534)) == {"nvlink:0/0": ("warning", "possible")}
    assert said(zero(crc=255)) == {}
