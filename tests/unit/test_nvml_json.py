"""NVML's answers to facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise, store

HEAD = {"probe": "gpudoctor.nvml", "schema": 1}


def fixture(name: str) -> str:
    return (FIXTURES / "outputs/nvml-json" / f"{name}.txt").read_text()


def facts(text: str) -> dict[type[Any], Any]:
    return {type(f): f for f in parse("nvml-json", text)}


def told(gpus: list[dict[str, Any]], **more: Any) -> dict[type[Any], Any]:
    return facts(json.dumps({**HEAD, "count": len(gpus), "gpus": gpus, **more}))


def one(**values: Any) -> Any:
    return told([{"index": 0, "bus_id": "00000000:41:00.0", **values}])[Gpus].by_index(0)


def test_a_pasted_line_is_recognised_and_read() -> None:
    (section,) = recognise("some log\n" + fixture("h200x2-vm") + "more\n")
    assert section.kind == "nvml-json"


def test_two_h200_behind_a_hidden_switch() -> None:
    found = facts(fixture("h200x2-vm"))
    gpu = found[Gpus].by_index(1)
    assert (gpu.bdf, gpu.device_id, gpu.subsystem_id) == ("0000:00:07.0", "10de:2335", "10de:18be")
    assert (gpu.speed_gts, gpu.max_speed_gts, gpu.card_max_speed_gts, gpu.width, gpu.max_width) == (32.0, 32.0, 32.0, 16, 16)
    assert (gpu.numa_node, gpu.cpu_affinity, gpu.mig_mode, gpu.virtualization) == (0, "0-31", "disabled", "passthrough")
    assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_health) == ("completed", "success", None)
    assert (gpu.fb_mib, gpu.bar1_mib, gpu.pstate, gpu.power_limit_w) == (143771, 262144, 0, 700.0)
    assert (gpu.remap_correctable, gpu.remap_pending, gpu.retired_single, gpu.display_active) == (0, False, None, None)
    assert gpu.at("width").where == "gpus[1].samples[1].width"
    assert (found[Driver].entry.version, found[Driver].entry.cuda_version) == ("580.159.04", "13.0")
    assert found[Gpus].complete and found[Gpus].attached == 2
    assert found[Pairs].of(0, 1).path == "NVL"


def test_a_lost_gpu_keeps_its_place_and_the_drivers_words() -> None:
    found = facts(fixture("gpu-lost"))
    assert found[Gpus].by_index(1).error == "GPU is lost" and found[Gpus].by_index(0).error is None
    assert found[Gpus].complete and found[Pairs].pairs == ()


def test_cards_below_one_switch() -> None:
    pair = facts(fixture("pcie-cards"))[Pairs].of(0, 1)
    assert (pair.path, pair.pcie_only, pair.p2p_nvlink, pair.p2p_read) == ("PIX", None, "NS", "OK")


@pytest.mark.parametrize(
    ("level", "path"), [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"), (60, None), (None, None)]
)
def test_levels_of_the_common_ancestor(level: int | None, path: str | None) -> None:
    pair = told([{"index": 0}, {"index": 1}], pairs=[{"a": 0, "b": 1, "ancestor": level}])[Pairs].of(0, 1)
    # Nothing is known of NVLink here, so the path is the one over PCIe only.
    assert (pair.path, pair.pcie_only) == (path, True if path else None)


def test_the_direction_that_refuses_decides() -> None:
    row = {"a": 0, "b": 1, "read": [0, 1], "write": [4, 0], "nvlink": [0, 0], "atomics": [None, 6]}
    pair = told([{"index": 0}, {"index": 1}], pairs=[row])[Pairs].of(0, 1)
    assert (pair.p2p_read, pair.p2p_write, pair.p2p_nvlink, pair.p2p_atomics) == ("CNS", "DR", "OK", "U")
    assert pair.path is None  # NVLink is fine by the driver, but no link was listed


def bridged(remote_a: str, remote_b: str, kind: int = 0, counts: tuple[int, int] = (4, 4), **more: Any) -> Any:
    def gpu(index: int, bus: str, remote: str) -> dict[str, Any]:
        rows = [{"link": n, "active": 1, "remote_bus_id": remote, "remote_type": kind} for n in range(counts[index])]
        return {"index": index, "bus_id": bus, "nvlinks": rows}

    pair = {"a": 0, "b": 1, "ancestor": 50, "nvlink": [0, 0], **more}
    gpus = [gpu(0, "00000000:41:00.0", remote_a), gpu(1, "00000000:C1:00.0", remote_b)]
    return told(gpus, pairs=[pair])[Pairs].of(0, 1)


def test_a_bridged_pair_counts_its_own_links() -> None:
    pair = bridged("00000000:C1:00.0", "00000000:41:00.0")
    assert (pair.path, pair.nvlinks, pair.pcie_path, pair.pcie_only) == ("NVL", 4, "SYS", None)


def test_links_that_end_elsewhere_do_not_join_a_pair() -> None:
    pair = bridged("00000000:81:00.0", "00000000:A1:00.0")
    assert (pair.path, pair.pcie_only) == ("SYS", True)


def test_unequal_counts_behind_a_switch_give_no_number() -> None:
    pair = bridged("00000000:05:00.0", "00000000:06:00.0", kind=2, counts=(18, 17))
    assert (pair.path, pair.nvlinks) == ("NVL", None)


def test_nvlink_refused_by_the_driver_is_no_nvlink_path() -> None:
    pair = bridged("00000000:05:00.0", "00000000:05:00.0", kind=2, nvlink=[5, 5])
    assert (pair.path, pair.pcie_only, pair.p2p_nvlink) == ("SYS", True, "NS")


def test_inactive_and_sleeping_links() -> None:
    rows = [{"link": 0, "active": 0, "state": 0}, {"link": 1, "active": 0, "state": 2}, {"link": 2, "active": None, "error": "Unknown Error"}]
    found = told([{"index": 0, "nvlinks": rows}])[NvLinks]
    assert [(k.active, k.sleeping, k.speed_gbs) for k in found] == [(False, None, None), (True, True, None), (None, None, None)]
    assert found.about(0).no_nvlink is None


@pytest.mark.parametrize(
    ("said", "none"),
    [
        ({"nvlink_count": 0}, True),
        ({"errors": {"GetNvLinkState": "Not Supported"}}, True),
        ({"errors": {"GetNvLinkState": "Unknown Error"}}, None),
        ({"nvlink_count": 0, "virtualization_mode": 2}, None),  # a vGPU does not show the part's links
        ({"nvlink_count": 0, "mig_mode": 1}, None),
        ({"nvlink_count": 0, "error": "GPU is lost"}, None),
        ({}, None),
    ],
)
def test_which_parts_have_no_nvlink(said: dict[str, Any], none: bool | None) -> None:
    about = told([{"index": 0, **said}])[NvLinks].about(0)
    assert (about.no_nvlink if about else None) is none


def test_growing_counters_are_kept_together_when_merged() -> None:
    """nvidia-smi read its counter at another moment: the two readings of NVML belong to each other."""
    rows = [{"link": 0, "active": 1, "errors_before": {"replay": 5, "recovery": 0, "crc": 0}, "errors": {"replay": 9, "recovery": 0, "crc": 0}}]
    ours = told([{"index": 0, "nvlinks": rows}])[NvLinks]
    from gpudoctor.facts.topology import NvLink
    from tests.support import HERE

    merged = store(NvLinks((NvLink(gpu=0, link=0, active=True, replay=5, origin=HERE),)), ours).get(NvLinks)
    assert merged is not None
    assert (merged.links[0].errors_before, merged.links[0].replay) == ((5, 0, 0), 9)


def sample(generation: int, tx: float | None, at: float, **more: Any) -> dict[str, Any]:
    return {"generation": generation, "width": 16, "tx_bytes": tx, "rx_bytes": 0, "at_s": at, **more}


def test_busy_is_said_only_of_proven_traffic() -> None:
    # Gen1 x16 carries 4 GB/s; 2 GB/s are over a fifth of it, 0.2 GB/s are not.
    gpu = one(samples=[sample(1, 0, 10.0), sample(1, 0.06e9, 10.03), sample(1, 0.066e9, 10.06)], utilisation_pct=99)
    assert [s.busy for s in gpu.samples] == [None, True, False]
    assert (gpu.speed_gts, gpu.utilisation_pct) == (2.5, 99)
    assert gpu.at("samples").value == "2.5 GT/s x16, 2.5 GT/s x16 busy, 2.5 GT/s x16"


def test_utilisation_alone_proves_no_traffic() -> None:
    gpu = one(samples=[{"generation": 1, "width": 16, "utilisation_pct": 100, "at_s": 1.0}])
    assert gpu.samples[0].busy is None


def test_a_counter_that_starts_anew_is_no_traffic() -> None:
    gpu = one(samples=[sample(5, 9e12, 1.0), sample(5, 0, 1.03)])
    assert gpu.samples[1].busy is False
    # With both directions started anew nothing is known of the traffic.
    assert one(samples=[sample(5, 9e12, 1.0, rx_bytes=9), sample(5, 0, 1.03, rx_bytes=0)]).samples[1].busy is None


def test_the_best_reading_counts() -> None:
    gpu = one(samples=[{"generation": 1, "width": 16}, {"generation": 4, "width": 8}, {"generation": 0, "width": 0}])
    assert (gpu.speed_gts, gpu.width, len(gpu.samples)) == (16.0, 8, 2)


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        ({"state": 3, "status": 0, "health_mask": 0}, ("completed", "success", None)),
        ({"state": 3, "status": 0, "health_mask": 0x12AA, "health_summary": 1}, ("completed", "success", "incorrect system GUID")),
        ({"state": 3, "status": 0, "health_mask": 0x11AA, "health_summary": 1}, ("completed", "success", "healthy")),
        ({"state": 3, "status": 0, "health_mask": 0x1A9}, ("completed", "success", "degraded bandwidth")),
        ({"state": 3, "status": 0, "health_mask": 0x1AA}, ("completed", "success", "healthy")),
        ({"state": 2, "status": 0}, ("in progress", "success", None)),
        ({"state": 3, "status": 999, "status_text": "Unknown Error"}, ("completed", "unknown error", None)),
        ({"state": 0, "status": 0}, ("not supported", None, None)),
        ({"state": 77}, (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_fabric(fabric: Any, expected: tuple[str | None, ...]) -> None:
    gpu = one(fabric=fabric)
    assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_health) == expected


def test_several_memory_nodes_are_no_node() -> None:
    gpu = one(memory_affinity=[3, 0])
    assert (gpu.numa_node, gpu.numa_list) == (None, "0-1")
    assert (one(memory_affinity=[0, 0]).numa_node, one(memory_affinity=[2]).numa_node) == (None, 1)


def test_absent_is_none_and_never_zero() -> None:
    gpu = one()
    unset = {n for n in gpu._fields if getattr(gpu, n) is not None} - {"origin", "index", "bdf"}
    assert unset == set()


def test_throttle_reasons_have_the_names_of_the_other_sources() -> None:
    assert one(clocks_event_reasons=0).throttle == ()
    assert one(clocks_event_reasons=0xC8).throttle == ("hw_slowdown", "hw_thermal", "hw_power_brake")


def test_gpus_left_out_are_said_and_prove_no_absence() -> None:
    found = parse("nvml-json", json.dumps({**HEAD, "count": 3, "gpus": [{"index": 0}, {"index": 0}, 7], "skipped": ["GPU2"]}))
    gpus = next(f for f in found if isinstance(f, Gpus))
    assert len(gpus) == 1 and not gpus.complete and gpus.attached == 3
    assert sum(isinstance(f, Loss) for f in found) == 2


@pytest.mark.parametrize("text", ['{"probe": "gpudoctor.nvml", "schema": 2, "gpus": []}', '{"probe": "gpudoctor.nvml", "schema": 1}', "x"])
def test_what_is_not_its_own_is_refused(text: str) -> None:
    with pytest.raises(Unparsable):
        parse("nvml-json", text)


def test_control_characters_do_not_pass_through_json_escapes() -> None:
    assert one(name="H200\u001b[31m\u0000", error="GPU is\nlost").name == "H200"
    assert one(error="GPU is\nlost").error == "GPU is lost"
