"""nvlink-down by listing and by matrix, and the designs that must not be taken for it."""

import pytest

from gpudoctor.checkers.nvlink_down import NvLinkDown
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Platform, PlatformEntry
from gpudoctor.facts.topology import NvLink, NvLinkGpu, NvLinks, Pair, Pairs
from gpudoctor.model import CannotTell
from tests.support import HERE, check, findings

A100 = "NVIDIA A100-SXM4-80GB"
H100 = "NVIDIA H100 80GB HBM3"
V100 = "Tesla V100-SXM2-32GB"


def listing(*gpus, elided=(), all_inactive=()):
    """Each GPU as (name, states): `1` up, `0` inactive, `z` asleep."""
    links, about = [], []
    for index, (name, states) in enumerate(gpus):
        about.append(
            NvLinkGpu(
                gpu=index,
                name=name,
                all_inactive=True if index in all_inactive else None,
                elided=True if index in elided else None,
                origin=HERE,
            )
        )
        for number, state in enumerate(states):
            links.append(
                NvLink(gpu=index, link=number, active=state == "1", sleeping=True if state == "z" else None, origin=HERE)
            )
    return NvLinks(tuple(links), tuple(about))


def matrix(rows, **more):
    """Upper triangle as words: `NV4`, `SYS`; `-` leaves a pair out."""
    pairs, n = [], len(rows) + 1
    for a, row in enumerate(rows):
        for b, cell in zip(range(a + 1, n), row.split(), strict=True):
            if cell == "-":
                continue
            nvl = cell.startswith("NV")
            pairs.append(
                Pair(a=a, b=b, path="NVL" if nvl else cell, nvlinks=int(cell[2:]) if nvl else None, origin=HERE, **more)
            )
    return Pairs(tuple(pairs))


def gpus(*names, complete=True):
    return Gpus(tuple(Gpu(index=i, name=n, origin=HERE) for i, n in enumerate(names)), complete)


def full(n, count):
    return [" ".join([f"NV{count}"] * (n - 1 - a)) for a in range(n - 1)]


def said(*facts):
    return {subject: f.severity for (_, subject), f in findings(NvLinkDown(), *facts).items()}


# --- by listing


def test_sxm_board_with_two_links_down():
    found = findings(NvLinkDown(), listing((V100, "111010")))
    finding = found["nvlink-down", "gpu:0"]
    assert finding.severity == "error" and finding.confidence == "certain"
    assert "NVLinks 3 and 5 inactive" in finding.message and "4 of 6" in finding.message
    assert finding.cost is not None and "52 of 155 GB/s" in finding.cost
    assert len(finding.evidence) == 2 and any(s.risk == "hardware" for s in finding.remediation)
    assert not any("setenable" in (s.command or "") for s in finding.remediation)


def test_all_up_is_in_order_asleep_too():
    assert check(NvLinkDown(), listing((A100, "1" * 12), (A100, "1" * 11 + "z"))) == []


def test_sentence_of_nvidia_smi_on_an_sxm_board():
    assert said(listing((A100, ""), all_inactive=(0,))) == {"gpu:0": "error"}


def test_unknown_sxm_board_is_judged_by_its_name_and_named_unknown():
    found = findings(NvLinkDown(), listing(("NVIDIA X900-SXM8", "1110")))["nvlink-down", "gpu:0"]
    assert found.severity == "error" and "does not know" in found.message


def test_card_without_bridge_is_a_note_and_a_half_seated_bridge_an_error():
    assert said(listing(("NVIDIA RTX A6000", "0000"))) == {"gpu:0": "note"}
    found = findings(NvLinkDown(), listing(("NVIDIA RTX A6000", "1101")))["nvlink-down", "gpu:0"]
    assert found.severity == "error"
    assert any("bridge" in s.step for s in found.remediation)
    assert not any("gpu-reset" in (s.command or "") for s in found.remediation)


def test_bridged_card_whose_other_links_lead_nowhere():
    # An H100 PCIe card with all three bridges lists 17 links, of which 12 are up.
    assert check(NvLinkDown(), listing(("NVIDIA H100 PCIe", "11110111100111100"))) == []
    assert said(listing(("NVIDIA H100 PCIe", "11110000000000000"))) == {"gpu:0": "error"}


def test_part_with_fewer_links_by_design():
    assert check(NvLinkDown(), listing(("NVIDIA H800", "1" * 8), ("NVIDIA H800", "1" * 8))) == []


def test_unknown_part_alike_on_every_gpu_is_left_open():
    (answer,) = {type(x) for x in check(NvLinkDown(), listing(("NVIDIA Q1", "1100"), ("NVIDIA Q1", "1100")))}
    assert answer is CannotTell
    assert said(listing(("NVIDIA Q1", "1111"), ("NVIDIA Q1", "1101"))) == {"gpu:1": "error"}


def test_unknown_part_without_any_link_is_a_note():
    found = findings(NvLinkDown(), listing(("NVIDIA Q1", "00")))["nvlink-down", "gpu:0"]
    assert (found.severity, found.confidence) == ("note", "possible")


def test_part_without_nvlink_says_nothing():
    assert check(NvLinkDown(), listing(("NVIDIA L40S", ""), all_inactive=(0,))) == []


def test_fewer_rows_than_equal_parts():
    seventeen = listing((H100, "1" * 18), (H100, "1" * 17), (H100, "1" * 18))
    assert said(seventeen) == {"gpu:1": "error"}
    # Elided, last in the listing, or another part: no evidence.
    assert said(listing((H100, "1" * 18), (H100, "1" * 17), (H100, "1" * 18), elided=(1,))) == {}
    assert said(listing((H100, "1" * 18), (H100, "1" * 18), (H100, "1" * 17))) == {}
    assert said(listing((H100, "1" * 18), ("NVIDIA H800", "1" * 8), (H100, "1" * 18))) == {}


def test_no_rows_beside_equal_parts_that_have_them():
    rows = listing((A100, "1" * 12), (A100, ""), (A100, "1" * 12))
    assert said(rows) == {}  # the author may have left them out
    about = tuple(NvLinkGpu(gpu=g.gpu, name=g.name, no_nvlink=g.gpu == 1 or None, origin=HERE) for g in rows.gpus)
    bare = NvLinks(rows.links, about)
    found = findings(NvLinkDown(), bare)["nvlink-down", "gpu:1"]
    assert (found.severity, found.confidence) == ("error", "likely") and "no NVLinks" in found.message
    cut = Gpus(tuple(Gpu(index=i, name=A100, mig_mode="enabled", origin=HERE) for i in range(3)))
    assert said(cut, bare) == {}


def test_single_gpu_of_a_machine_has_nothing_to_reach():
    one = gpus(A100)
    assert said(one, listing((A100, ""), all_inactive=(0,))) == {"gpu:0": "note"}
    assert said(gpus(A100, complete=False), listing((A100, ""), all_inactive=(0,))) == {"gpu:0": "error"}


def test_slice_of_a_v100_cube_in_a_virtual_machine_is_left_open():
    vm = Platform(PlatformEntry(vm=True, origin=HERE))
    four = listing(*[(V100, "111100")] * 4)
    assert {type(x) for x in check(NvLinkDown(), vm, four)} == {CannotTell}
    assert set(said(four).values()) == {"error"}


# --- by matrix


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (full(8, 12), A100),
        (full(8, 12), None),
        (full(4, 4), A100),
        (full(4, 6), None),
        (full(4, 6), H100),
        (full(8, 18), H100),
        (full(8, 8), "NVIDIA H800"),
        (full(16, 6), "Tesla V100-SXM3-32GB"),
        # A cube mesh of eight V100, and four of its GPUs.
        (
            [
                "NV1 NV1 NV2 NV2 SYS SYS SYS",
                "NV2 NV1 SYS NV2 SYS SYS",
                "NV2 SYS SYS NV1 SYS",
                "SYS SYS SYS NV1",
                "NV1 NV1 NV2",
                "NV2 NV1",
                "NV2",
            ],
            V100,
        ),
        (["NV1 NV1 NV2", "NV2 NV1", "NV1"], V100),
        (["NV1 NV1 NV2", "NV2 NV1", "NV1"], None),
        (["NV3"], None),
        # Three of one quad of a cube and one of the other; two of different quads.
        (["NV1 NV1 SYS", "NV2 SYS", "SYS"], V100),
        (["SYS"], V100),
        # Two boards of four, joined by PCIe.
        (
            [
                "NV4 NV4 NV4 SYS SYS SYS SYS",
                "NV4 NV4 SYS SYS SYS SYS",
                "NV4 SYS SYS SYS SYS",
                "SYS SYS SYS SYS",
                "NV4 NV4 NV4",
                "NV4 NV4",
                "NV4",
            ],
            A100,
        ),
        # Four of a board and one of the next, as a scheduler hands them out.
        (["NV4 NV4 NV4 SYS", "NV4 NV4 SYS", "NV4 SYS", "SYS"], A100),
        # Bridged in pairs.
        (["NV12 SYS SYS", "SYS SYS", "NV12"], "NVIDIA A100 80GB PCIe"),
        (["NV6 NV6 NV6", "NV6 NV6", "NV6"], "NVIDIA H200 NVL"),
        (["SYS SYS SYS", "SYS SYS", "SYS"], "NVIDIA A100-PCIE-40GB"),
        (["SYS SYS SYS", "SYS SYS", "SYS"], None),
    ],
)
def test_healthy_matrices(rows, name):
    n = len(rows) + 1
    facts = [matrix(rows)] + ([gpus(*[name] * n)] if name else [])
    assert check(NvLinkDown(), *facts) == []


def test_one_gpu_behind_switches_has_seventeen():
    rows = full(8, 18)
    rows = [" ".join("NV17" if 3 in (a, b) else "NV18" for b in range(a + 1, 8)) for a in range(7)]
    found = findings(NvLinkDown(), matrix(rows))
    ((_, subject), finding), = found.items()
    assert (subject, finding.severity, finding.confidence) == ("gpu:3", "error", "likely")
    assert "1 of its links is down" in finding.message


def test_two_gpus_behind_switches_and_the_worse_pair():
    def cell(a, b):
        return "NV16" if 5 in (a, b) else "NV17" if 3 in (a, b) else "NV18"

    rows = [" ".join(cell(a, b) for b in range(a + 1, 8)) for a in range(7)]
    assert said(matrix(rows), gpus(*[H100] * 8)) == {"gpu:3": "error", "gpu:5": "error"}


def test_direct_board_with_one_link_of_a_pair_down():
    assert said(matrix(["NV4 NV4 NV4", "NV3 NV4", "NV4"]), gpus(*[A100] * 4)) == {"pair:1-2": "error"}


def test_direct_board_with_a_pair_lost():
    assert said(matrix(["NV4 NV4 NV4", "SYS NV4", "NV4"]), gpus(*[A100] * 4)) == {"pair:1-2": "error"}


def test_gpu_left_out_of_a_mesh():
    rows = ["NV4 SYS NV4", "SYS NV4", "SYS"]
    found = findings(NvLinkDown(), matrix(rows), gpus(*[A100] * 4))
    assert {s: f.confidence for (_, s), f in found.items()} == {"gpu:2": "likely"}
    # Without knowing the part it could be a display card.
    assert said(matrix(rows)) == {}
    assert said(matrix(rows), gpus(A100, A100, "NVIDIA DGX Display", A100)) == {}


def test_a_dead_gpu_of_a_direct_board_is_the_one_fault():
    rows = ["NV4 SYS NV4", "SYS NV4", "SYS"]
    states = listing(*[(A100, "111111110000")] * 2, (A100, "0" * 12), (A100, "111100001111"))
    # Its neighbours' four links to it are inactive too: their far end is dead.
    assert said(matrix(rows), states) == {"gpu:2": "error"}
    assert said(states) == {"gpu:2": "error"}
    assert said(listing((A100, "111111110000"), (A100, "0" * 12))) == {"gpu:1": "error"}
    # Behind switches the others' links stay up, so four that are down are a fault of their own.
    eight = listing((A100, "111111110000"), (A100, "0" * 12), *[(A100, "1" * 12)] * 6)
    assert said(eight) == {"gpu:0": "error", "gpu:1": "error"}
    # One more link down than that is the neighbour's own.
    more = listing((A100, "111111110000"), (A100, "111111100000"), (A100, "0" * 12), (A100, "111100001111"))
    assert said(more) == {"gpu:1": "error", "gpu:2": "error"}


def test_listing_speaks_before_the_matrix():
    whole = listing(*[(A100, "1" * 12)] * 4)
    assert said(matrix(["NV4 SYS NV4", "SYS NV4", "SYS"]), whole, gpus(*[A100] * 4)) == {}


def test_sxm_host_without_any_nvlink():
    rows = ["SYS SYS SYS", "SYS SYS", "SYS"]
    found = findings(NvLinkDown(), matrix(rows), gpus(*[H100] * 4))
    assert {(s, f.severity, f.confidence) for (_, s), f in found.items()} == {("host", "error", "likely")}
    vm = Platform(PlatformEntry(vm=True, origin=HERE))
    assert findings(NvLinkDown(), vm, matrix(rows), gpus(*[H100] * 4))["nvlink-down", "host"].confidence == "possible"
    assert said(matrix(rows, pcie_only=True), gpus(*[H100] * 4)) == {}
    assert said(matrix(["SYS - -", "SYS SYS", "SYS"]), gpus(*[H100] * 4)) == {}  # rows cut


def test_two_sxm_gpus_without_nvlink_may_sit_on_two_boards():
    found = findings(NvLinkDown(), matrix(["SYS"]), gpus(A100, A100))
    assert {(s, f.severity, f.confidence) for (_, s), f in found.items()} == {("host", "error", "possible")}
    assert said(matrix(["SYS SYS", "SYS"]), gpus(V100, V100, V100)) == {"host": "error"}


def test_one_of_sixteen_behind_switches_lost():
    rows = [" ".join("SYS" if 15 in (a, b) else "NV6" for b in range(a + 1, 16)) for a in range(15)]
    assert said(matrix(rows), gpus(*["Tesla V100-SXM3-32GB"] * 16)) == {"gpu:15": "error"}


def test_two_known_gpus_one_link_short():
    assert said(matrix(["NV17"]), gpus("NVIDIA H200", "NVIDIA H200")) == {"pair:0-1": "error"}
    assert said(matrix(["NV18"]), gpus("NVIDIA H200", "NVIDIA H200")) == {}
    assert said(matrix(["NV3"]), gpus("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090")) == {"pair:0-1": "error"}


def test_display_card_is_left_out_and_said():
    states = listing((A100, "1" * 11 + "0"), ("NVIDIA DGX Display", ""))
    found = findings(NvLinkDown(), states)["nvlink-down", "gpu:0"]
    assert "GPU1" in found.message and "display" in found.message


# --- parts that nothing names


def test_unnamed_gpus_left_out_of_a_switched_mesh():
    """Seven GPUs with NV18 to each other sit on a board of eight."""
    rows = [" ".join("SYS" if 2 in (a, b) else "NV18" for b in range(a + 1, 8)) for a in range(7)]
    found = findings(NvLinkDown(), matrix(rows))
    assert [(key[1], f.severity, f.confidence) for key, f in found.items()] == [("gpu:2", "error", "likely")]
    steps = " ".join(s.step for f in found.values() for s in f.remediation)
    assert "bridge home" not in steps


@pytest.mark.parametrize(
    ("size", "cell"),
    [(5, "NV4"), (5, "NV18"), (9, "NV12"), (4, "NV2")],
    ids=["four by direct links and a display", "no board of five", "a whole board and a card", "two bridges"],
)
def test_unnamed_gpus_beside_a_mesh_by_design(size, cell):
    last = size - 1
    rows = [" ".join("SYS" if b == last else cell for b in range(a + 1, size)) for a in range(last)]
    assert not findings(NvLinkDown(), matrix(rows))


def test_unnamed_gpus_behind_switches_and_one_pair_lost():
    """Seven peers at NV12 are more links than a GPU has: only switches give that, and they join every pair."""
    rows = [" ".join("SYS" if (a, b) == (0, 5) else "NV12" for b in range(a + 1, 8)) for a in range(7)]
    found = findings(NvLinkDown(), matrix(rows))
    assert set(found) == {("nvlink-down", "pair:0-5")}
    said = found["nvlink-down", "pair:0-5"]
    assert "unknown model" not in said.message and any(s.command == "sudo nvidia-smi --gpu-reset" for s in said.remediation)


@pytest.mark.parametrize("cell", ["NV1", "NV2", "NV4", "NV9"])
def test_unnamed_gpus_in_a_mesh_with_a_gap_by_design(cell):
    """Four GPUs whose counts a GPU can have by itself: a bridge or a mesh may lack a pair."""
    rows = [f"{cell} {cell} SYS", f"{cell} {cell}", cell]
    assert not findings(NvLinkDown(), matrix(rows))


def test_a_matrix_that_ends_in_its_seventh_row_still_shows_the_gpu_left_out():
    """The pair 6-7 was not read; GPU2 has NVLink to none of the seven that have it to each other."""
    rows = ["NV18 NODE NV18 NV18 NV18 NV18 NV18", "NODE NV18 NV18 NV18 NV18 NV18", "NODE SYS SYS SYS SYS", "NV18 NV18 NV18 NV18", "NV18 NV18 NV18", "NV18 NV18", "-"]
    assert said(matrix(rows), gpus(*[None] * 8)) == {"gpu:2": "error"}


def test_a_cut_matrix_of_sound_gpus_accuses_none():
    rows = ["NV18 NV18 NV18 NV18 NV18 NV18 NV18", "NV18 NV18 NV18 NV18 NV18 NV18", "NV18 NV18 NV18 NV18 NV18", *(" ".join("-" * n) for n in (4, 3, 2, 1))]
    assert said(matrix(rows), gpus(*[None] * 8)) == {}
    # Of a V100 cube cut after its first row the GPUs of the other quad have no link to GPU0 by design.
    assert said(matrix(["NV1 NV1 NV2 NODE NODE NODE NV2", *(" ".join("-" * n) for n in (6, 5, 4, 3, 2, 1))]), gpus(*[None] * 8)) == {}
    assert said(matrix(["NV1 NV1 NV2 NODE NODE NODE NV2", *(" ".join("-" * n) for n in (6, 5, 4, 3, 2, 1))]), gpus(*[V100] * 8)) == {}


def test_a_superchip_alone_is_not_told_to_seat_a_bridge():
    found = findings(NvLinkDown(), listing(("NVIDIA GH200 480GB", ""), all_inactive=(0,)))["nvlink-down", "gpu:0"]
    assert found.severity == "note" and "bridge" not in found.message and not found.remediation
    card = findings(NvLinkDown(), listing(("NVIDIA A40", ""), all_inactive=(0,)))["nvlink-down", "gpu:0"]
    assert card.severity == "note" and "bridge" in card.message


def test_links_that_the_driver_could_not_set_up():
    from gpudoctor.facts.kernel import KernelLog
    from tests.support import parse

    words = "[6619715.5] NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!\n"
    newer = "[6619715.6] NVRM: knvlinkDiscoverPostRxDetLinks_GB100_REV2: Getting peer17 postRxDetLinkMask failed!\n"
    _, log = parse("kernel-log", words + newer)
    assert [e.kind for e in log.events] == ["nvlink-mask"] * 2
    (found,) = check(NvLinkDown(), log)
    assert (found.severity, found.confidence) == ("error", "likely") and "2 times" in found.message
    # What is up now, or a card that has no NVLink, is no fault; nor is what stands before the last load.
    up = NvLinks(tuple(NvLink(gpu=0, link=n, active=True, origin=HERE) for n in range(18)))
    assert findings(NvLinkDown(), log, up) == {}
    assert findings(NvLinkDown(), log, Gpus((Gpu(index=0, name="NVIDIA L40S", origin=HERE),))) == {}
    load = "[6619720.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"
    assert findings(NvLinkDown(), *parse("kernel-log", words + load)) == {}
    assert [type(f) for f in parse("kernel-log", load)] == [KernelLog]
