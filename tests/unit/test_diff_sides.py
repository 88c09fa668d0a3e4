"""Which is which on two sides, what explains what, and what the checks say of both."""

from __future__ import annotations

import pytest

from gpudoctor.diff.compare import compare
from gpudoctor.diff.model import BETTER, NODES, TIME, WORSE, Side
from gpudoctor.facts.pci import PciDevice
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import (
    Modules,
    Platform,
    PlatformEntry,
)
from gpudoctor.facts.topology import Nic, NicPath, Nics, Pairs
from gpudoctor.model import ERROR, NOTE, SKIPPED, WARNING, Diagnosis, Finding
from tests.sides import (
    BDF,
    REDIRECT,
    VALID,
    bridge,
    diff,
    driver,
    finding,
    gpu,
    gpus,
    judged,
    missing,
    nvlinks,
    pair,
    result,
    settings,
    side,
    told,
    tree,
    under,
    xids,
)
from tests.support import HERE

# --- Xids


def test_new_xids_are_said_old_ones_that_left_are_counted_down():
    got = diff([gpus(gpu()), xids(31)], [gpus(gpu()), xids(31, 79, 79)])
    assert told(got) == ["Xid 79 at GPU0 (0000:41:00.0): 2 new"]
    assert told(diff(xids(79), xids())) == ["Xid 79 at 0000:41:00.0: 1 in A's log, none in B's"]
    fewer = diff(xids(31, 31, 31), xids(31))
    assert told(fewer) == [] and len(fewer.varying) == 1
    assert told(diff(xids(31), xids(31, 31))) == ["Xid 31 at 0000:41:00.0: 1 new, 1 before"]


# --- which GPU is which


def test_a_gpu_that_is_gone_shifts_the_others_and_nothing_is_confused():
    matrix = Pairs((pair(0, 1, "NVL"), pair(0, 2, "SYS"), pair(1, 2, "SYS")))
    after = gpus(gpu(0), gpu(1, bdf=BDF[2]))
    got = diff([gpus(gpu(0), gpu(1), gpu(2)), matrix], [after, Pairs((pair(0, 1, "SYS"),))])
    assert told(got) == ["GPU1 (0000:61:00.0) (NVIDIA A100) is gone"]
    assert [e.message for e in got.changes[0].effects] == ["The GPU at 0000:81:00.0 was GPU2, now GPU1"]
    assert got.missing == ()


def test_cards_that_all_moved_are_followed():
    got = diff(gpus(gpu(0), gpu(1)), gpus(gpu(0, bdf="0000:c1:00.0"), gpu(1, bdf="0000:d1:00.0", width=8)), TIME)
    assert "GPU1 (0000:d1:00.0): PCIe link 16.0 GT/s x16 -> 16.0 GT/s x8" in told(got)
    assert not [c for c in got.changes if c.kind in ("gpu-gone", "gpu-new")]


def test_a_real_uuid_tells_a_swapped_card():
    uuids = [f"GPU-1234567{n}-aaaa-bbbb-cccc-0123456789ab" for n in (1, 2)]
    assert told(diff(gpus(gpu(uuid=uuids[0])), gpus(gpu(uuid=uuids[1])), TIME)) == ["GPU0 (0000:41:00.0) is another card of the same kind: its UUID changed"]
    assert told(diff(gpus(gpu(uuid=uuids[0])), gpus(gpu(uuid=uuids[1])), NODES)) == []


def test_a_card_that_moved_is_followed_by_its_uuid():
    uuid = "GPU-12345671-aaaa-bbbb-cccc-0123456789ab"
    got = diff(gpus(gpu(0, uuid=uuid), gpu(1)), gpus(gpu(0, uuid=uuid, bdf="0000:c1:00.0")), TIME)
    assert told(got) == ["GPU1 (0000:61:00.0) (NVIDIA A100) is gone", "GPU0 has another address: 0000:41:00.0 -> 0000:c1:00.0"]


# --- one host or two


@pytest.mark.parametrize(
    ("a", "b", "mode"),
    [
        (side(gpus(gpu())), side(gpus(gpu())), TIME),
        (side(gpus(gpu())), side(gpus(gpu()), host="node08"), NODES),
        (side(gpus(gpu()), host=None), side(gpus(gpu())), TIME),
        (side(gpus(gpu()), host=None), side(gpus(gpu(bdf="0000:05:00.0")), host=None), NODES),
        (side(driver("1"), host=None), side(driver("2"), host=None), TIME),
    ],
)
def test_which_it_is(a, b, mode):
    assert compare(a, b).mode == mode
    assert compare(a, b, NODES).mode == NODES and compare(a, b, TIME).mode == TIME


@pytest.mark.parametrize(("uptime", "mode"), [(3600.0, TIME), (90.0, NODES)])
def test_a_captured_host_that_lost_a_gpu_is_known_by_its_boot(uptime, mode):
    """The stand-in for its name is made of the GPUs too."""
    a = side(gpus(gpu(0), gpu(1)), Platform(PlatformEntry(uptime_s=0.0, origin=HERE)), host="host-0a1b2c", at="2026-11-29T10:00:00Z")
    b = side(gpus(gpu(0)), Platform(PlatformEntry(uptime_s=uptime, origin=HERE)), host="host-3d4e5f", at="2026-11-29T11:00:00Z")
    assert compare(a, b).mode == mode


def test_two_nodes_differ_in_addresses_by_nature():
    a = side(gpus(gpu(0), gpu(1)), Pairs((pair(0, 1, "NVL"),)))
    b = side(gpus(gpu(0, bdf="0000:05:00.0"), gpu(1, bdf="0000:06:00.0", width=8)), Pairs((pair(0, 1, "NVL"),)), host="node08")
    got = compare(a, b)
    assert told(got) == ["GPU1 (0000:06:00.0): PCIe link 16.0 GT/s x16 on A, 16.0 GT/s x8 on B"]
    assert len(got.varying) == 2


def test_on_two_nodes_a_gpu_more_is_not_called_new():
    got = compare(side(gpus(gpu(0))), side(gpus(gpu(0), gpu(1)), host="node08"))
    assert told(got) == ["GPU1 (0000:61:00.0) (NVIDIA A100) is only in B"]


def test_several_hosts_are_compared_each_with_its_own():
    def fleet(*widths):
        return Side(path="x", stores=tuple(FactStore(f"n{i}", [gpus(gpu(width=w))]) for i, w in enumerate(widths)))

    got = compare(fleet(16, 16), fleet(16, 8))
    assert [(c.host, c.after) for c in got.changes] == [("n1", "16.0 GT/s x8")]
    assert "the host of n1" in missing(compare(fleet(16, 16), fleet(16)))


# --- one cause, one block


def test_links_that_went_down_explain_the_pairs():
    matrix = [Pairs((pair(0, 1, path), pair(0, 2, "NVL"), pair(1, 2, path))) for path in ("NVL", "SYS")]
    a = [gpus(gpu(0), gpu(1), gpu(2)), nvlinks(True, True, number=1), matrix[0]]
    b = [gpus(gpu(0), gpu(1), gpu(2)), nvlinks(False, False, number=1), matrix[1]]
    got = diff(a, b)
    assert told(got) == ["2 of 2 NVLinks of GPU 1 went down (0-1)"]
    assert {e.message for e in got.changes[0].effects} == {"pair 0-1: NVL -> SYS", "pair 1-2: NVL -> SYS"}


def test_links_of_another_gpu_explain_nothing():
    a = [gpus(*map(gpu, range(4))), nvlinks(True, number=3), Pairs((pair(0, 1, "NVL"),))]
    b = [gpus(*map(gpu, range(4))), nvlinks(False, number=3), Pairs((pair(0, 1, "SYS"),))]
    assert len(diff(a, b).changes) == 2


def test_what_gets_better_does_not_explain_what_gets_worse():
    got = diff([gpus(gpu(0), gpu(1)), nvlinks(False), Pairs((pair(0, 1, "NVL"),))], [gpus(gpu(0), gpu(1)), nvlinks(True), Pairs((pair(0, 1, "SYS"),))])
    assert len(got.changes) == 2 and got.changes[0].direction == WORSE


def test_a_narrow_link_is_one_block_with_both_its_ends():
    def host(width):
        card = PciDevice(bdf=BDF[0], class_code="030200", device_id="10de:20b2", parent="0000:40:01.1", origin=HERE)
        return [gpus(gpu(width=width)), tree(bridge(width=width, parent_known=True), card)]

    got = diff(host(16), host(4))
    assert told(got) == ["GPU0 (0000:41:00.0): PCIe link 16.0 GT/s x16 -> 16.0 GT/s x4"]
    assert [e.kind for e in got.changes[0].effects] == ["pcie-bridge"]


def test_a_driver_update_is_one_block():
    def host(version):
        return [driver(version), Modules({"nvidia": version, "nvidia_uvm": version}, HERE["*"])]

    got = diff(host("550.54.15"), host("580.95.05"))
    assert told(got) == ["driver: 550.54.15 -> 580.95.05"] and len(got.changes[0].effects) == 2


def test_the_same_at_many_bridges_is_one_block():
    def host(acs):
        cards = [PciDevice(bdf=b, class_code="030200", device_id="10de:20b2", parent=f"0000:4{i}:01.1", origin=HERE) for i, b in enumerate(BDF)]
        return [gpus(*map(gpu, range(4))), tree(*(bridge(f"0000:4{i}:01.1", parent_known=True, acs=acs) for i in range(4)), *cards)]

    assert told(diff(host(VALID), host(REDIRECT))) == ["ACS redirect was turned on at 4 bridges: 0000:40:01.1, 0000:41:01.1, 0000:42:01.1, 0000:43:01.1"]


def test_a_bridge_above_no_gpu_matters_little():
    a, b = ([*under(acs=VALID)[:1], tree(*under(acs=VALID)[1], bridge("0000:00:1c.0", acs=acs))] for acs in (VALID, REDIRECT))
    change = diff(a, b).changes[0]
    assert change.severity == NOTE and change.message.endswith("above no GPU")


def test_the_worst_comes_first():
    a = [driver("1"), gpus(gpu(numa_node=0)), nvlinks(True), settings()]
    b = [driver("2"), gpus(gpu(numa_node=1)), nvlinks(False), settings(NCCL_ALGO="Tree")]
    assert [c.kind for c in diff(a, b).changes][0] == "nvlink"
    assert [c.severity for c in diff(a, b).changes] == sorted((c.severity for c in diff(a, b).changes), key=[ERROR, WARNING, NOTE].index)


# --- findings


def test_a_finding_that_appeared_went_or_weighs_otherwise():
    none, warned, found = judged(result()), judged(result(finding(WARNING)), fb_mib=1), judged(result(finding()), fb_mib=2)
    assert "nvlink-down (gpu 0000:41:00.0) appeared" in told(diff(none, found))[0]
    assert "is no longer found" in told(diff(found, none))[0]
    assert "is an error now, was a warning" in " ".join(told(diff(warned, found)))
    assert diff(none, found).changes[0].direction == WORSE and diff(found, none).changes[0].direction == BETTER


def test_a_check_that_could_not_be_made_has_found_nothing_out():
    open_ = judged(result(status=SKIPPED, reason="needs the NVLink states"))
    for got in (diff(judged(result(finding())), open_), diff(open_, judged(result(finding())))):
        assert told(got) == [] and "could not judge it: needs the NVLink states" in missing(got)


def test_a_report_without_judgement_is_not_a_healthy_one():
    assert "what the checks say: read only in A" in missing(diff(judged(result(finding())), side(gpus(gpu(fb_mib=1)))))


def test_a_finding_goes_under_the_change_that_explains_it():
    a = side(gpus(gpu()), nvlinks(True), results=[result()])
    b = side(gpus(gpu()), nvlinks(False), results=[result(finding())])
    got = diff(a, b)
    assert told(got) == ["NVLink 0 of GPU 0 went down"] and [e.slug for e in got.changes[0].effects] == ["nvlink-down"]


def test_a_finding_goes_under_the_diagnosis_that_explains_it():
    root, effect = finding(), finding(NOTE, "pair:0-1", "no-nvlink-path")
    a = side(gpus(gpu()), results=[result(), result(slug="no-nvlink-path")])
    b = side(gpus(gpu(persistence=True)), results=[result(root), result(effect, slug="no-nvlink-path")], diagnoses=[Diagnosis(root, (effect,))])
    change = diff(a, b).changes[0]
    assert change.slug == "nvlink-down" and [e.slug for e in change.effects] == ["no-nvlink-path"]


def test_a_finding_follows_its_gpu_to_its_new_number():
    before = side(gpus(gpu(0), gpu(1), gpu(2)), results=[result(finding(subject="nvlink:2/3"))])
    after = side(gpus(gpu(0), gpu(1, bdf=BDF[2])), results=[result(finding(subject="nvlink:1/3"))])
    assert not [c for c in diff(before, after).changes if c.kind == "finding"]


def test_another_message_is_no_change():
    one, other = finding(), Finding("nvlink-down", ERROR, "gpu:0000:41:00.0", "said in other words", (HERE["*"],))
    assert told(diff(judged(result(one)), judged(result(other), utilisation_pct=5))) == []


# --- paths of NICs


def test_the_way_to_a_nic():
    def host(path):
        nic = Nic(name="NIC0", device="mlx5_0", origin=HERE)
        return [gpus(gpu()), Nics((nic,), (NicPath(gpu=0, nic="NIC0", path=path, origin=HERE),))]

    assert told(diff(host("PIX"), host("SYS"))) == ["GPU0 to NIC mlx5_0: PIX -> SYS"]
    assert told(diff(host("PIX"), host("PIX"))) == []
