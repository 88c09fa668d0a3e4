"""nvidia-smi -q -x of several drivers: whole, cut, damaged, hostile."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Driver, Gpu, Gpus
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise


def sample(name: str) -> str:
    return (FIXTURES / "outputs/smi-qx" / f"{name}.txt").read_text()


def gpus(text: str) -> Gpus:
    return next(f for f in parse("smi-qx", text) if isinstance(f, Gpus))


def losses(text: str) -> list[Loss]:
    return [f for f in parse("smi-qx", text) if isinstance(f, Loss)]


def known(gpu: Gpu) -> dict[str, Any]:
    return {n: getattr(gpu, n) for n in gpu._fields if n != "origin" and getattr(gpu, n) is not None}


def test_two_h200_of_driver_580() -> None:
    found = gpus(sample("h200x2-580"))
    assert (found.complete, found.attached, len(found)) == (True, 2, 2)
    assert known(found.gpus[1]) == {
        "index": 1, "bdf": "0000:00:07.0", "uuid": "GPU-00000000-0000-0000-0000-000000000002", "name": "NVIDIA H200",
        "device_id": "10de:2335", "subsystem_id": "10de:18bf", "speed_gts": 32.0, "max_speed_gts": 32.0,
        "card_max_speed_gts": 32.0, "width": 16, "max_width": 16, "utilisation_pct": 0, "pstate": 0, "fb_mib": 143771,
        "bar1_mib": 262144, "persistence": True, "display_active": False, "mig_mode": "disabled",
        "virtualization": "passthrough", "ecc_uncorrectable_volatile": 0, "ecc_uncorrectable_aggregate": 0,
        "remap_correctable": 0, "remap_uncorrectable": 0, "remap_pending": False, "remap_failed": False,
        "throttle": ("idle",), "hw_slowdown": False, "hw_thermal": False, "hw_power_brake": False, "sw_thermal": False,
        "power_limit_w": 700.0, "power_default_w": 700.0, "replays": 0,
        "replay_rollovers": 0, "fabric_state": "completed", "fabric_status": "success", "c2c": False,
    }  # fmt: skip


def test_evidence_names_the_element_and_its_line() -> None:
    text = sample("h200x2-580")
    gpu = gpus(text).gpus[0]
    seen = gpu.at("speed_gts")
    assert seen.where == "gpu 0000:00:06.0 pci/pci_gpu_link_info/pcie_gen/current_link_gen (line 86)"
    assert text.split("\n")[86 - 1].strip() == "<current_link_gen>5</current_link_gen>"
    assert seen.value == "5"


def test_driver_versions() -> None:
    entry = next(f for f in parse("smi-qx", sample("v100-418")) if isinstance(f, Driver)).entry
    assert (entry.version, entry.cuda_version) == ("418.87.01", "10.1")


def test_v100_has_retired_pages_and_double_bit_totals() -> None:
    sick, sound = gpus(sample("v100-418"))
    assert (sick.ecc_uncorrectable_volatile, sick.ecc_uncorrectable_aggregate) == (0, 2)
    assert (sick.retired_single, sick.retired_double, sick.retired_pending) == (4, 2, True)
    assert (sound.ecc_uncorrectable_aggregate, sound.retired_pending) == (0, False)
    assert sick.throttle == ("sw_power_cap", "hw_slowdown", "hw_thermal")
    assert (sick.power_limit_w, sick.power_default_w) == (250.0, 300.0)
    assert sick.remap_pending is None and sick.fabric_state is None and sick.c2c is None
    assert sick.virtualization == "none"


def test_a100_counts_sram_and_dram_and_a_mig_device_is_not_the_gpu() -> None:
    gpu = gpus(sample("a100-mig-470")).gpus[0]
    assert gpu.mig_mode == "enabled"
    assert (gpu.fb_mib, gpu.bar1_mib) == (40536, 65536)
    assert gpu.ecc_uncorrectable_volatile == 1 + 4
    assert (gpu.remap_uncorrectable, gpu.remap_pending, gpu.remap_failed) == (2, True, False)
    assert gpu.retired_single is None and gpu.utilisation_pct is None
    assert gpu.throttle == ()


def test_h100_generation_names_and_a_lost_gpu() -> None:
    sound, broken, lost = gpus(sample("h100-lost-560"))
    assert (sound.speed_gts, sound.max_speed_gts, sound.card_max_speed_gts, sound.slot_max_speed_gts) == (2.5, 32, 32, 16)
    assert (sound.width, sound.max_width) == (8, 16)
    assert sound.ecc_uncorrectable_volatile == 1 + 2 and sound.ecc_uncorrectable_aggregate is None
    assert (sound.power_limit_w, sound.power_default_w) == (None, 700.0), "the module's 900 W is not the GPU's limit"
    assert (sound.fabric_state, sound.fabric_health, sound.recovery_action) == ("completed", "healthy", None)
    assert broken.fabric_state == "in progress" and broken.fabric_status is None
    assert broken.fabric_health == "bandwidth: degraded, route unhealthy: true"
    assert broken.recovery_action == "drain and reset"
    assert known(lost) == {"index": 2, "bdf": "0000:9b:00.0", "error": "GPU is lost"}


def test_grace_hopper() -> None:
    gpu = gpus(sample("gh200-575")).gpus[0]
    assert (gpu.bdf, gpu.c2c, gpu.power_limit_w) == ("0009:01:00.0", True, 900.0)
    assert (gpu.fabric_state, gpu.fabric_health) == ("not supported", "healthy")


@pytest.mark.parametrize("word", ["ERR!", "Unknown Error"])
def test_an_error_counts_on_what_every_gpu_knows_and_not_on_one_sensor(word: str) -> None:
    sensor = sample("h200x2-580").replace("<fan_speed>N/A", f"<fan_speed>{word}")
    assert [g.error for g in gpus(sensor)] == [None, None]
    vital = sample("h200x2-580").replace("<performance_state>P0", f"<performance_state>{word}", 1)
    assert [g.error for g in gpus(vital)] == [word, None]


def test_a_cut_document_keeps_what_was_closed_and_says_where_it_ends() -> None:
    text = sample("h200x2-580")
    cut = text[: text.rindex("<current_link_width>16x") + len("<current_link_width>16x")]
    found = gpus(cut)
    assert not found.complete and found.attached == 2
    assert [g.index for g in found] == [0, 1]
    assert (found.gpus[1].max_width, found.gpus[1].width, found.gpus[1].fb_mib) == (16, None, None)
    assert f"cut at line {cut.count(chr(10)) + 1}" in losses(cut)[0].reason


def test_no_index_where_gpus_are_missing_from_the_list() -> None:
    text = sample("h200x2-580")
    one = text[: text.rindex("<gpu id=")] + "</nvidia_smi_log>\n"
    found = gpus(one)
    assert [(g.index, g.bdf) for g in found] == [(None, "0000:00:06.0")] and not found.complete
    assert any("counts 2, 1" in loss.reason for loss in losses(one))


def test_an_excerpt_of_one_gpu_without_its_root() -> None:
    text = sample("v100-418")
    part = text[text.index("\t<gpu id=") : text.index("</gpu>") + 7]
    assert [s.kind for s in recognise(part)] == ["smi-qx"]
    found = gpus(part)
    assert [(g.index, g.bdf, g.width) for g in found] == [(None, "0000:1a:00.0", 16)] and not found.complete


def test_the_authors_dots_are_no_complete_list() -> None:
    text = sample("h200x2-580").replace("<fan_speed>N/A</fan_speed>", "<pad>...</pad>", 1)
    assert not gpus(text).complete


def test_a_damaged_gpu_does_not_hide_the_next() -> None:
    text = sample("v100-418").replace("<fan_speed>N/A</fan_speed>", "<fan_speed>N/A</fan", 1)
    found = gpus(text)
    assert [(g.bdf, g.fb_mib) for g in found] == [("0000:1a:00.0", None), ("0000:1b:00.0", 16130)]
    assert not found.complete and losses(text)


def test_entities_are_never_expanded() -> None:
    laughs = '<?xml version="1.0"?>\n<!DOCTYPE x [\n<!ENTITY a "lol">\n' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">\n' for n in range(9)
    )
    text = laughs + ']>\n<nvidia_smi_log>\n<attached_gpus>1</attached_gpus>\n<gpu id="00000000:01:00.0">\n'
    text += "<product_name>&j;</product_name>\n</gpu>\n</nvidia_smi_log>\n"
    found = gpus(text)
    assert found.gpus[0].name is None and not found.complete
    outside = text.replace("<!DOCTYPE x [", '<!DOCTYPE x SYSTEM "file:///etc/passwd" [').replace("&j;", "&ext;")
    assert gpus(outside).gpus[0].name is None


def test_hostile_depth_and_number() -> None:
    deep = '<nvidia_smi_log><gpu id="00000000:01:00.0">' + "<a>" * 10_000 + "1" + "</a>" * 10_000 + "</gpu></nvidia_smi_log>"
    assert gpus("\n".join(deep.replace("><", ">\n<").split("\n"))).gpus[0].bdf == "0000:01:00.0"
    many = "<nvidia_smi_log>\n" + '<gpu id="00000000:01:00.0"></gpu>\n' * 5000 + "</nvidia_smi_log>\n"
    assert len(gpus(many)) <= 512 and losses(many)
    torn = "<nvidia_smi_log>\n" + '<gpu id="00000000:01:00.0"><b\n' * 5000
    assert len(gpus(torn)) <= 512


@pytest.mark.parametrize(
    ("text", "bdf", "index", "words"),
    [
        ("Unable to determine the device handle for GPU 0000:04:00.0: Unknown Error\n", "0000:04:00.0", None, "Unknown Error"),
        ("Unable to determine the device handle for GPU3: 0000:5F:00.0: Not Found\n", "0000:5f:00.0", 3, "Not Found"),
        (
            "Unable to determine the device handle for GPU0000:1A:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
            "0000:1a:00.0",
            None,
            "GPU is lost. Reboot the system to recover this GPU",
        ),
        # The line wraps behind its first word of advice; an address that is masked or mistyped names no GPU by its first digits.
        ("Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot\n the system to recover\n", "0000:05:00.0", None, "GPU is lost."),
        ("Unable to determine the device handle for GPU 000:C1:90.0: Unknown Error\n", None, None, "Unknown Error"),
        ("Unable to determine the device handle for GPU 0000:XX:00.0: Unknown Error\n", None, None, "Unknown Error"),
        ("Unable to determine the device handle for GPU2: Unknown Error\n", None, 2, "Unknown Error"),
        ("1. It says `Unable to determine the device handle for GPU2: Unknown Error`\n", None, 2, "Unknown Error"),
    ],
)
def test_error_text_instead_of_xml(text: str, bdf: str | None, index: int | None, words: str) -> None:
    found = gpus(text)
    assert not found.complete
    assert [(g.bdf, g.index) for g in found] == [(bdf, index)]
    assert found.gpus[0].error == f"Unable to determine the device handle: {words}"
    assert [s.kind for s in recognise("some prose\n" + text)] == ["smi-failure"]


def test_the_driver_does_not_answer() -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.183\n"
    facts = parse("smi-qx", text)
    assert [f.entry.failure for f in facts if isinstance(f, Driver)] == [
        "Failed to initialize NVML: Driver/library version mismatch"
    ]
    assert not any(isinstance(f, Gpus) for f in facts)


def test_no_devices_is_an_empty_list_and_no_failure() -> None:
    facts = parse("smi-qx", "No devices were found\n")
    assert [(f.gpus, f.attached) for f in facts if isinstance(f, Gpus)] == [((), 0)]
    assert not any(isinstance(f, Driver) for f in facts)


def test_a_corrupted_inforom_is_said_below_the_xml() -> None:
    text = sample("h200x2-580") + "WARNING: infoROM is corrupted at gpu 0000:00:07.0\n"
    marked = [g for f in parse("smi-qx", text) if isinstance(f, Gpus) for g in f if g.inforom_corrupted]
    assert [g.bdf for g in marked] == ["0000:00:07.0"]


def test_something_else_is_unparsable() -> None:
    with pytest.raises(Unparsable):
        parse("smi-qx", "hello\n")


def test_recognition_between_prose_and_without_an_end() -> None:
    text = sample("v100-418")
    kinds = [(s.kind, len(s.lines)) for s in recognise("Here it is:\n```\n" + text + "```\nthanks\n")]
    assert kinds == [("smi-qx", text[text.index("<nvidia_smi_log>") :].count("\n"))]
    # A document whose end is missing must not swallow the next output.
    after = text[: text.index("<fan_speed>")] + "\n$ nvidia-smi topo -m\n\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\t X \n"
    assert [s.kind for s in recognise(after)] == ["smi-qx", "smi-topo"]


def test_a_log_before_the_drivers_words_is_none_of_them():
    text = "[task 2025-07-01T05:06:30.005+00:00] [nvidia-smi(stdout)] Failed to initialize NVML: Driver/library version mismatch\n"
    (driver,) = parse("smi-failure", text)  # synthetic
    assert driver.entry.failure == "Failed to initialize NVML: Driver/library version mismatch"
    (driver,) = parse("smi-failure", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")
    assert driver.entry.failure == "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


def test_markup_among_the_flags_of_the_fabric_is_no_fault() -> None:
    """A flag's value is a word; anything else came from somewhere else."""
    text = (FIXTURES / "hosts/h200x2-vm/smi-q-x.xml").read_text()
    flags = text.replace("<summary>N/A</summary>", "<script>alert(1)</script>").replace("<bandwidth>N/A</bandwidth>", "<bandwidth>Full</bandwidth>")
    sound = flags.replace("<route_unhealthy>N/A", "<route_unhealthy>False")
    assert sound.count("alert(1)") == 2
    others = ("route_recovery_in_progress", "access_timeout_recovery", "incorrect_configuration")
    for name in others:
        sound = sound.replace(f"<{name}>N/A", f"<{name}>False")
    assert {g.fabric_health for g in gpus(sound)} == {"healthy"}
    bad = sound.replace("<route_unhealthy>False", "<route_unhealthy>True")
    assert {g.fabric_health for g in gpus(bad)} == {"route unhealthy: true"}
