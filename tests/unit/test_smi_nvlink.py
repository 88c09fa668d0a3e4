"""`nvidia-smi -L` and all of `nvidia-smi nvlink`: states, counters old and new, remote ends, what authors leave out."""

from __future__ import annotations

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.topology import NvLinks
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

NVLINK = FIXTURES / "outputs/smi-nvlink"
HEAD = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
NEXT = "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000002)\n"


def links(text: str, command: str | None = None) -> NvLinks:
    return next(f for f in parse("smi-nvlink", text, command) if isinstance(f, NvLinks))


def of_file(name: str) -> NvLinks:
    sections = recognise((NVLINK / name).read_text())
    assert [s.kind for s in sections] == ["smi-nvlink"]
    return links(sections[0].text)


def test_states_of_two_healthy_gpus():
    got = of_file("h200x2-s.txt")
    assert {(x.gpu, x.link, x.active, x.speed_gbs) for x in got} == {(g, n, True, 26.562) for g in (0, 1) for n in range(18)}
    about = got.about(1)
    assert (about.name, about.uuid[-1], about.elided, about.all_inactive) == ("NVIDIA H200", "2", None, None)


@pytest.mark.parametrize(
    ("value", "active", "speed", "sleeping"),
    [
        ("25 GB/s", True, 25.0, None),
        ("53.125 GB/s", True, 53.125, None),
        ("<inactive>", False, None, None),
        ("inactive", False, None, None),
        ("Sleep", True, None, True),
        ("<N/A>", None, None, None),
    ],
)
def test_words_for_a_state(value, active, speed, sleeping):
    link = links(HEAD + f"\t Link 3: {value}\n").of(0)[0]
    assert (link.link, link.active, link.speed_gbs, link.sleeping) == (3, active, speed, sleeping)


def test_error_counters_three_lines_a_link():
    got = of_file("h200x2-e.txt")
    assert len(got.links) == 36
    assert {(x.replay, x.recovery, x.crc) for x in got} == {(0, 0, 0)}
    assert got.links[0].at("crc").where == "line 4"


def test_equal_links_written_as_one():
    got = links(HEAD + "  Link 3: Replay Errors: 104\n  Links 0-2, 4-5: Replay/Recovery/CRC Errors: 0\n")
    assert {x.link: (x.replay, x.recovery, x.crc) for x in got} == {
        3: (104, None, None), **{n: (0, 0, 0) for n in (0, 1, 2, 4, 5)}
    }  # fmt: skip


def test_nvlink5_has_other_counters():
    got = of_file("b200x2-e.txt")
    good, bad = got.of(0)[0], got.of(1)[1]
    assert (good.replay, good.crc, good.recovery, good.recovery_failed) == (None, None, 0, 0)
    assert (bad.recovery, bad.recovery_failed) == (4, 1)
    assert dict(bad.counters)["Rx Errors"] == 12 and dict(bad.counters)["Link recovery successful events"] == 3
    # Corrected codewords and raw lane errors run into billions on a healthy link.
    assert not {name for name, _ in bad.counters if "FEC" in name or "Raw" in name or "BER" in name or "packets" in name}


def test_a_second_reading_keeps_the_first():
    text = HEAD + "\t Link 0: Replay Errors: 2\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: 7\n"
    link = links(text + text.replace("Errors: 7", "Errors: 90")).of(0)[0]
    assert (link.replay, link.crc, link.errors_before) == (2, 90, (2, 0, 7))


def test_states_and_counters_of_one_gpu_add_up():
    link = links(HEAD + "\t Link 0: 25 GB/s\n" + NEXT + HEAD + "\t Link 0: CRC Errors: 5\n").of(0)[0]
    assert (link.active, link.crc, link.errors_before) == (True, 5, None)


def test_remote_ends_are_no_states():
    got = links(HEAD + "\t Link 3: Remote Device 00000000:08:00.0: Link 51\n\t Link 4: 00000000:C4:00.0\n")
    assert {x.link: (x.remote_bdf, x.active) for x in got} == {3: ("0000:08:00.0", None), 4: ("0000:c4:00.0", None)}


@pytest.mark.parametrize("name", ["h200x2-R.txt", "h200x2-p.txt"])
def test_a_hidden_remote_end_is_unknown(name):
    assert {x.remote_bdf for x in of_file(name)} == {None}


def test_capabilities_and_encryption_say_nothing_of_states():
    assert {x.active for x in of_file("h200x2-c.txt")} == {None}
    facts = parse("smi-nvlink", (NVLINK / "h200x2-info.txt").read_text())
    assert [type(f) for f in facts] == [Gpus]


def test_all_inactive_in_nvidia_smis_words():
    got = links(HEAD + "NVML: Unable to retrieve NVLink information as all links are inactive\n" + NEXT + "\t Link 0: 25 GB/s\n")
    assert (got.about(0).all_inactive, got.about(1).all_inactive) == (True, None)
    assert got.about(0).at("all_inactive").where == "line 2"
    assert got.about(0).no_nvlink is None and not got.of(0)


@pytest.mark.parametrize("words", ["NVLink information as all links are inActive", "Nvlink information as all links are inActive"])
def test_all_inactive_as_other_drivers_spell_it(words):
    (section,) = recognise(HEAD + f"NVML: Unable to retrieve {words}\n" + NEXT + "\t Link 0: 25 GB/s\n")  # synthetic
    got = links(section.text)
    assert (got.about(0).all_inactive, got.about(1).all_inactive) == (True, None)


def test_a_part_without_nvlink_between_others_does_not_end_the_list():
    # synthetic
    (section,) = recognise(HEAD + "Device does not have or support Nvlink\n" + NEXT + "\t Link 0: 25 GB/s\n")
    got = links(section.text)
    assert [(x.gpu, x.link, x.active) for x in got] == [(1, 0, True)] and not got.about(0).all_inactive


@pytest.mark.parametrize("dots", ["[...]", "....", "…", "         [...]"])
def test_links_that_the_author_left_out(dots):
    text = "$ nvidia-smi nvlink -s\n" + HEAD + f"\t Link 0: 25 GB/s\n{dots}\n\t Link 11: 25 GB/s\n" + NEXT + "\t Link 0: 25 GB/s\n"
    (section,) = recognise(text)
    got = links(section.text, section.command)
    assert (got.about(0).elided, got.about(1).elided) == (True, None)
    assert [x.link for x in got.of(0)] == [0, 11]


def test_a_gap_in_the_numbers_is_an_omission_too():
    assert links(HEAD + "\t Link 0: 25 GB/s\n\t Link 5: 25 GB/s\n").about(0).elided


def test_links_before_the_first_gpu_belong_to_nobody():
    facts = parse("smi-nvlink", "\t Link 16: 25 GB/s\n" + HEAD + "\t Link 0: 25 GB/s\n")
    assert [f.fact for f in facts if isinstance(f, Loss)] == ["NVLinks of a GPU whose own line is missing"]
    assert [(x.gpu, x.link) for f in facts if isinstance(f, NvLinks) for x in f] == [(0, 0)]
    assert [type(f) for f in parse("smi-nvlink", "\t Link 16: 25 GB/s\n")] == [Loss]


def test_a_part_without_nvlink_needs_proof():
    both = HEAD + NEXT
    assert links(both, "nvidia-smi nvlink -s").about(0).no_nvlink
    assert links(both, "nvidia-smi nvlink -s").about(1).no_nvlink is None  # the text may have been cut here
    assert [type(f) for f in parse("smi-nvlink", both)] == [Gpus]


def test_list_of_gpus():
    text = (NVLINK / "h200x2-L.txt").read_text()
    (gpus,) = parse("smi-nvlink", text)
    assert [(g.index, g.name, g.uuid[-1]) for g in gpus] == [(0, "NVIDIA H200", "1"), (1, "NVIDIA H200", "2")]
    assert not gpus.complete
    (gpus,) = parse("smi-nvlink", text, "nvidia-smi -L")
    assert gpus.complete


def test_mig_devices_and_private_ids_in_the_list():
    (gpus,) = parse("smi-nvlink", "GPU 0: NVIDIA A100 (UUID: ...)\n  MIG 3g.40gb     Device  0: (UUID: MIG-0000)\n", "nvidia-smi -L")
    assert [(g.index, g.name, g.uuid) for g in gpus] == [(0, "NVIDIA A100", None)]
    assert (gpus.gpus[0].mig_mode, gpus.gpus[0].at("mig_mode").where) == ("enabled", "line 2")
    # Of a GPU without an instance the list does not say whether MIG is off.
    (gpus,) = parse("smi-nvlink", "GPU 0: NVIDIA A100 (UUID: ...)\nGPU 1: NVIDIA A100 (UUID: ...)\n", "nvidia-smi -L")
    assert [g.mig_mode for g in gpus] == [None, None]


def test_help_and_foreign_links_are_nothing():
    assert recognise((NVLINK / "help.txt").read_text()) == []
    assert recognise("Link 1: https://example.org\nLink 2: see below\n") == []
    with pytest.raises(Unparsable):
        parse("smi-nvlink", "nothing here\n")


def test_a_hostile_range_is_not_spelled_out():
    assert len(links(HEAD + "  Links 0-99999999: 25 GB/s\n").links) == 0
