"""dcgmi's tables and JSON: what they say, and that no failed test is passed over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpudoctor.checkers.ecc_remap import EccRemap
from gpudoctor.checkers.gpu_missing import GpuMissing
from gpudoctor.checkers.host_copy import HostCopySlow
from gpudoctor.checkers.nvlink_down import NvLinkDown
from gpudoctor.checkers.nvlink_errors import NvLinkErrors
from gpudoctor.checkers.pcie_errors import PcieErrors
from gpudoctor.checkers.pcie_link import PcieSpeed, PcieWidth
from gpudoctor.checkers.throttled import Throttled
from gpudoctor.checkers.xid import Xid
from gpudoctor.facts.bandwidth import HostCopies
from gpudoctor.facts.base import Entry, Loss
from gpudoctor.facts.gpu import Driver, Gpu, Gpus
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.outcomes import ToolTest, ToolTests
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.model import CannotTell
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, HERE, check, findings, gpudoctor, parse, recognise, report, slugs

OUTPUTS = FIXTURES / "outputs" / "dcgm"
TABLES = {path.name: path.read_text() for path in sorted(OUTPUTS.glob("*.txt"))}
DOCUMENTS = {path.name: path.read_text() for path in sorted(OUTPUTS.glob("*.json"))}
BAR = "+---------------------------+------------------------------------------------+\n"
HEAD = BAR + "| Diagnostic                | Result                                         |\n" + BAR.replace("-", "=")


def table(*messages: str, test: str = "PCIe", status: str = "Fail - All", name: str = "Warning", ids: str = "") -> str:
    """One failed test with its messages, broken as dcgmi breaks them."""
    rows = [("GPU Device IDs Detected", ids)] if ids else []
    rows += [(test, status)]
    for text in messages:
        rows += [(name if at == 0 else "", text[at : at + 45]) for at in range(0, len(text), 45)]
    return HEAD + "".join(f"| {left:<25} | {right:<46} |\n" for left, right in rows) + BAR


def facts(text: str, kind: str = "dcgm") -> list[Any]:
    return parse(kind, text)


def results(text: str, kind: str = "dcgm") -> list[ToolTest]:
    return [t for f in facts(text, kind) if isinstance(f, ToolTests) for t in f]


def statements(found: list[Any]) -> Iterator[tuple[Any, ...]]:
    def of(what: str, entry: Entry) -> Iterator[tuple[Any, ...]]:
        for name in entry._fields:
            value = getattr(entry, name)
            if value is not None and name not in ("origin", "elided", "text", "complaint", "messages"):
                yield (what, name, value)

    for fact in found:
        if isinstance(fact, ToolTests):
            for t in fact:
                yield ("test", t.test, t.gpu, t.status)
        elif isinstance(fact, Gpus):
            yield from (s for g in fact for s in of(f"gpu {g.index}", g))
        elif isinstance(fact, NvLinks):
            yield from (s for x in fact for s in of(x.subject, x))
            yield from (s for g in fact.gpus for s in of(f"links of {g.gpu}", g))
        elif isinstance(fact, Pairs):
            yield from (s for p in fact for s in of(p.subject, p))
        elif isinstance(fact, HostCopies):
            yield from (s for c in fact for s in of(c.subject, c))
        elif isinstance(fact, KernelLog):
            yield from (("event", e.kind, e.code, e.gpu) for e in fact)
        elif isinstance(fact, Driver):
            yield ("driver", fact.entry.version)
        else:
            assert isinstance(fact, Loss), fact


@pytest.mark.parametrize("name", TABLES)
def test_cut_at_every_byte(name: str) -> None:
    text = TABLES[name]
    whole = set(statements(facts(text)))
    messages = [m for t in results(text) for m in t.messages]
    assert whole
    for end in range(len(text)):
        try:
            found = facts(text[:end])
        except Unparsable:
            continue
        assert set(statements(found)) <= whole, (end, text[max(0, end - 90) : end], set(statements(found)) - whole)
        for message in (m for f in found if isinstance(f, ToolTests) for t in f for m in t.messages):
            assert any(m.startswith(message.removesuffix("…").rstrip()) for m in messages), (end, message)


@pytest.mark.parametrize("name", TABLES)
def test_recognised_as_what_it_is(name: str) -> None:
    text = TABLES[name]
    for whole in (text, "dcgmi said:\n\n```\n" + text + "```\nWhat now?\n", text.replace("\n", "\r\n"), "".join(f"> {line}\n" for line in text.splitlines())):
        assert [s.kind for s in recognise(whole)] == ["dcgm"], whole
        (section,) = recognise(whole)
        assert len(section.lines) >= len(text.splitlines()) - 2


@pytest.mark.parametrize("name", DOCUMENTS)
def test_json_cut_at_every_byte(name: str) -> None:
    text = DOCUMENTS[name]
    whole = set(statements(facts(text, "dcgm-json")))
    assert whole and [s.kind for s in recognise(text)] == ["dcgm-json"]
    for end in range(0, len(text), 3):
        try:
            said = set(statements(facts(text[:end], "dcgm-json")))
        except Unparsable:
            continue
        assert said <= whole, (end, said - whole)


@pytest.mark.parametrize("layout", [{}, {"separators": (",", ":")}, {"indent": 2}])
def test_json_however_it_is_laid_out(layout: dict[str, Any]) -> None:
    for text in DOCUMENTS.values():
        again = json.dumps(json.loads(text), **layout) + "\n"
        assert [s.kind for s in recognise(again)] == ["dcgm-json"]
        assert set(statements(facts(again, "dcgm-json"))) == set(statements(facts(text, "dcgm-json")))


def test_one_output_below_another() -> None:
    smi = (FIXTURES / "outputs" / "smi-topo").glob("*.txt")
    matrix = sorted(smi)[0].read_text()
    every = "\n".join([TABLES["diag-4.4-a100x4-three-faults.txt"], matrix, TABLES["nvlink-s-one-gpu-down.txt"], TABLES["health-two-gpus.txt"], TABLES["topo-gpuid.txt"]])
    assert [s.kind for s in recognise(every)] == ["dcgm", "smi-topo", "dcgm"]
    found = [type(f).__name__ for s in recognise(every) if s.kind == "dcgm" for f in parse("dcgm", s.text)]
    assert {"ToolTests", "NvLinks", "Pairs", "Gpus", "KernelLog"} <= set(found)


def test_below_and_above_nvidia_smis_table() -> None:
    smi = sorted((FIXTURES / "outputs" / "smi-table").glob("*.txt"))[0].read_text()
    for name, text in TABLES.items():
        kinds = [s.kind for s in recognise(smi + "\n" + text)]
        assert kinds.count("dcgm") == 1 and kinds[0] == "smi-table", name
        assert set(statements(parse("dcgm", next(s for s in recognise(smi + "\n" + text) if s.kind == "dcgm").text))) == set(statements(facts(text))), name
        assert [s.kind for s in recognise(text + "\n" + smi)][:2] == ["dcgm", "smi-table"], name


# --- what each table says


def test_diag_of_release_4() -> None:
    found = results(TABLES["diag-4.4-a100x4-three-faults.txt"])
    said = {(t.test, t.gpu): t.status for t in found}
    assert said["software", None] == "fail" and said["software", 2] == "fail" and said["software", 0] == "pass" and said["memory", 3] == "pass"
    (pcie,) = [t for t in found if (t.test, t.gpu) == ("pcie", 0)]
    assert pcie.messages[0].startswith("GPU 0 is running at PCI link width 4X, which is below the minimum allowed link generation of 16 (parameter 'min_pci_width')")
    gpus = {g.index: g for f in facts(TABLES["diag-4.4-a100x4-three-faults.txt"]) if isinstance(f, Gpus) for g in f}
    assert (gpus[0].width, gpus[0].max_width, gpus[2].remap_failed, gpus[1].throttle, gpus[3].device_id) == (4, 16, True, ("dcgm_thermal",), "10de:20b2")


def test_diag_of_releases_2_and_3() -> None:
    found = results(TABLES["diag-2.4-a100x4-link-down.txt"])
    assert {t.gpu: t.status for t in found if t.test == "PCIe"} == {0: "pass", 1: "pass", 3: "pass", 2: "fail", None: "fail"}
    (message,) = [m for t in found for m in t.messages]
    assert message.startswith("GPU 2GPU 2's NvLink link 3 is currently down Run a field diagnostic on the GPU., GPU 2Detected XID 74 for GPU 2")
    passed = {t.test: t.status for t in results(TABLES["diag-3.3-h100x8-passes.txt"])}
    assert passed["Page Retirement/Row Remap"] == "pass" and passed["Pulse Test"] == "skip" and passed["Persistence Mode"] == "fail"


def test_an_excerpt_from_below_the_heading() -> None:
    text = "| GPU Memory                | Pass - GPUs: 1, 2                              |\n|                           | Fail - GPU: 0                                  |\n"
    assert [s.kind for s in recognise(text)] == ["dcgm"]
    assert {t.gpu: t.status for t in results(text)} == {1: "pass", 2: "pass", 0: "fail"}


def test_link_states_and_counts() -> None:
    (links,) = [f for f in facts(TABLES["nvlink-s-one-gpu-down.txt"]) if isinstance(f, NvLinks)]
    assert len(links.links) == 48 and [g.all_inactive for g in links.gpus] == [None, None, True, None]
    (counts,) = [f for f in facts(TABLES["nvlink-e-replays.txt"]) if isinstance(f, NvLinks)]
    assert [(x.gpu, x.link, x.replay, x.recovery, x.crc) for x in counts] == [(1, 0, 0, 0, 0), (1, 1, 17, 0, 2), (1, 2, 0, 0, 0)]
    old = "| GPU ID: 0 | NVLINK Error Counts                             |\n|Link 0     | CRC FLIT Error      | 4                         |\n|Link 0     | CRC Data Error      | 1                         |\n"
    (counts,) = [f for f in facts(old) if isinstance(f, NvLinks)]
    assert [(x.gpu, x.link, x.crc) for x in counts] == [(0, 0, 4)]


def test_topology() -> None:
    (pairs,) = [f for f in facts(TABLES["topo-gpuid.txt"]) if isinstance(f, Pairs)]
    assert [(p.a, p.b, p.path, p.nvlinks, p.pcie_path) for p in pairs] == [(0, 1, "NVL", 4, "PHB"), (0, 2, "PXB", None, None), (0, 3, None, None, None)]
    assert any(isinstance(f, Loss) and "NODE and SYS" in f.reason for f in facts(TABLES["topo-gpuid.txt"]))
    group = "| MyGroup           | Topology Information                                   |\n| NUMA Optimal      | True      |\n| Worst Path        | Connected via a PCIe host bridge                       |\n"
    assert [(t.status, t.messages) for t in results(group)] == [("info", ("Connected via a PCIe host bridge",))]


def test_discovery() -> None:
    (gpus,) = [f for f in facts(TABLES["discovery-l.txt"]) if isinstance(f, Gpus)]
    assert [(g.index, g.bdf, g.name, g.uuid) for g in gpus] == [
        (0, "0000:1b:00.0", "NVIDIA H100 80GB HBM3", "GPU-00000000-0000-0000-0000-000000000001"),
        (1, "0000:43:00.0", "NVIDIA H100 80GB HBM3", "GPU-00000000-0000-0000-0000-000000000002"),
    ]
    # With the addresses, what other tables say of a number is said of the GPU.
    status, document = report("check", "--from", "-", stdin=(TABLES["discovery-l.txt"] + table("Detected XID 79 for GPU 1 Please consult")).encode())
    assert status == 1 and {d["subject"] for d in document["diagnoses"]} == {"gpu:0000:43:00.0"}


def test_health() -> None:
    found = {(t.test, t.gpu): (t.status, t.messages) for t in results(TABLES["health-two-gpus.txt"])}
    assert found["health: PCIe system", 0] == ("warn", ("Detected more than 31 PCIe replays per minute for GPU 0 : 164",))
    assert found["health: Driver", 3][0] == "fail"
    well = BAR + "| Health Monitor Report                                                                |\n" + BAR + "| Overall Health            | Healthy                                                  |\n" + BAR
    assert [(t.test, t.status) for t in results(well)] == [("health", "pass")]


# --- messages to facts, with the healthy near-miss of each


def said(checker: Any, message: str, *more: Any, ids: str = "") -> set[tuple[str, str, str]]:
    return {(slug, subject, f.severity) for (slug, subject), f in findings(checker, *facts(table(message, ids=ids)), *more).items()}


@pytest.mark.parametrize(
    ("checker", "message", "expected"),
    [
        (EccRemap(), "Detected 3 volatile double-bit ECC error(s) in GPU 2. Drain the GPU and reset it or reboot the node.", ("ecc-remap", "gpu:2", "error")),
        (EccRemap(), "GPU 3 has uncorrectable memory errors and row remappings are pending", ("ecc-remap", "gpu:3", "warning")),
        (EccRemap(), "A pending retired page has been detected in GPU 1. Monitor", ("ecc-remap", "gpu:1", "warning")),
        (EccRemap(), "63 or more retired pages have been detected in GPU 1. Run a field diagnostic on the GPU.", ("ecc-remap", "gpu:1", "warning")),
        (EccRemap(), "GPU 4 had uncorrectable memory errors and row remapping failed. Run a field", ("ecc-remap", "gpu:4", "error")),
        (Throttled(), "There were thermal violations totaling 12.5 seconds for GPU 5 Verify that the cooling", ("throttled", "gpu:5", "warning")),
        (Throttled(), "Detected clock throttling due to power violation in GPU 5. Monitor the power conditions.", ("throttled", "gpu:5", "note")),
        (Xid(), "Detected XID 79 for GPU 6 Please consult the documentation for details of this XID.", ("xid", "gpu:6", "error")),
        (Xid(), "Detected fatal NvSwitch SXID 20034 Check DCGM", ("xid", "host", "error")),
        (GpuMissing(), "GPU 7 has fallen off the bus Check", ("gpu-missing", "gpu:7", "error")),
        (NvLinkErrors(), "Detected 12 nvlink_replay_error_count_total NvLink errors on GPU 0's NVLink which exceeds threshold of 1 Monitor", ("nvlink-errors", "gpu:0", "warning")),
        (NvLinkErrors(), "Detected 2 nvlink_recovery_error_count_total NvLink errors on GPU 0's NVLink (should be 0) Run", ("nvlink-errors", "gpu:0", "error")),
        (PcieErrors(), "Detected more than 8 PCIe replays per minute for GPU 0 : 13 Reconnect PCIe card.", ("pcie-errors", "gpu:0", "warning")),
        (PcieWidth(), "GPU 0 is running at PCI link width 8X, which is below the minimum allowed link generation of 16 (parameter 'min_pci_width')", ("pcie-width", "gpu:0", "warning")),
        (PcieSpeed(), "GPU 0 is running at PCI link generation 1, which is below the minimum allowed link generation of 4 (parameter 'min_pci_generation')", ("pcie-speed", "gpu:0", "warning")),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)  # fmt: skip
def test_what_is_explicit_becomes_a_finding(checker: Any, message: str, expected: tuple[str, str, str]) -> None:
    assert expected in said(checker, message)
    status, document = report("check", "--from", "-", stdin=table(message).encode())
    assert not any("DCGM" in m["fact"] for m in document["missing"]), "a finding rests on it, so nothing stays open"
    assert status == (1 if expected[2] == "error" else 0)


@pytest.mark.parametrize("word", ["single-bit ECC error(s) detected in GPU 2 Volatile SBEs: 812", "GPU 2 is fine", "XIDs of GPU 2 were not read"])
def test_what_is_not_explicit_becomes_none(word: str) -> None:
    assert all(isinstance(f, (ToolTests, Loss)) for f in facts(table(word)))


def test_copies_are_held_against_the_link() -> None:
    message = "Bandwidth of GPU 1 in direction h2d of 5.61 did not exceed minimum required bandwidth of 20.00. Please check"
    gpu = Gpus((Gpu(index=1, max_speed_gts=16.0, max_width=16, width=16, origin=HERE),))
    assert ("host-copy-slow", "gpu:1", "error") in said(HostCopySlow(), message, gpu)
    assert all(isinstance(s, CannotTell) for s in check(HostCopySlow(), *facts(table(message))))


def test_a_link_down_by_the_part() -> None:
    one = "GPU 1's NvLink link 3 is currently down Check DCGM and system logs for errors."
    assert said(NvLinkDown(), one, ids="20b2, 20b2") == {("nvlink-down", "gpu:1", "error")}
    assert said(NvLinkDown(), one) == set()  # the part is not known: a card without a bridge says the same
    assert said(NvLinkDown(), one, ids="20b5") == set()
    every = " ".join(f"GPU 1's NvLink link {n} is currently down" for n in range(12)) + " ."
    assert said(NvLinkDown(), every, ids="20b5") == {("nvlink-down", "gpu:1", "note")}  # A100 PCIe without a bridge
    assert said(NvLinkDown(), one, ids="26b9") == set()  # L40S has no NVLink


def test_one_gpu_of_four_without_links_is_no_missing_bridge() -> None:
    found = findings(NvLinkDown(), *facts(TABLES["nvlink-s-one-gpu-down.txt"]))
    assert {(k, f.severity, f.confidence) for k, f in found.items()} == {(("nvlink-down", "gpu:2"), "error", "likely")}
    pair = TABLES["nvlink-s-one-gpu-down.txt"].replace("    gpuId 3:\n        " + ("U " * 12).strip(), "    gpuId 3:\n        " + ("D " * 12).strip())
    assert {f.severity for f in findings(NvLinkDown(), *facts(pair)).values()} == {"note"}  # two bridged cards and two without


def test_a_number_meets_the_address_that_another_output_gives() -> None:
    gpu = Gpus((Gpu(index=6, bdf="0000:ca:00.0", name="NVIDIA A100-SXM4-80GB", origin=HERE),))
    assert said(Xid(), "Detected XID 79 for GPU 6 Please consult", gpu) == {("xid", "gpu:0000:ca:00.0", "error")}


# --- never a false pass


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        (table("There was an internal error during the test: 'A child process (152) exited with non-zero status 1'"), 3, "A child process"),
        (table(), 3, "no reason"),
        (table("GPU 0 was unsuccessfully written to by GPU 1 over NVLink in a peer-to-peer test: small"), 3, "unsuccessfully written"),
        (table("Persistence mode for GPU 0 is disabled.", test="Persistence Mode", status="Fail", name="Error"), 0, None),
        (table(test="Persistence Mode", status="Fail"), 0, None),
        (table("Skipping test memory because ECC is not enabled on GPU 0", test="GPU Memory", status="Skip - All"), 0, None),
        (table("Something that nobody has seen before", test="SM Stress", status="Warn - All"), 0, "nobody has seen"),
        (table(test="PCIe", status="Pass - All"), 0, None),
    ],
)
def test_a_failed_test_without_a_cause_is_said(text: str, status: int, told: str | None) -> None:
    rc, document = report("check", "--from", "-", stdin=text.encode())
    missing = [f"{m['fact']}: {m['reason']}" for m in document["missing"] if "DCGM" in m["fact"]]
    assert rc == status, missing
    assert (told in missing[0]) if told else not missing


def test_of_two_messages_the_one_without_a_cause_is_said() -> None:
    text = table("GPU 3 has uncorrectable memory errors and row remappings are pending", "GPU 3 does something else entirely and fails")
    status, document = report("check", "--from", "-", stdin=text.encode())
    assert status == 3 and slugs(document) >= {"ecc-remap"}
    assert [m["reason"] for m in document["missing"] if "DCGM" in m["fact"]] == [
        "DCGM says: GPU 3 does something else entirely and fails; the whole output of `dcgmi diag -r 2 -v`, and of `sudo dmesg -T` from the same time, may tell"
    ]


def test_who_asks_for_one_check_gets_its_answer() -> None:
    text = table("GPU 3 has uncorrectable memory errors and row remappings are pending", "There was an internal error during the test: 'x'")
    status, _ = report("check", "--from", "-", "--select", "ecc-remap", stdin=text.encode())
    assert status == 0


def test_the_page_says_how_the_tests_ended() -> None:
    done = gpudoctor("check", "--from", str(OUTPUTS / "diag-4.4-a100x4-three-faults.txt"))
    page = " ".join(done.stdout.decode().split())
    assert done.returncode == 1 and "2 tests passed; software failed on GPU 2; pcie failed on GPUs 0, 3;" in page
    assert "why DCGM's test memory_bandwidth failed on GPU 2: DCGM says: GPU 2 only achieved" in page
    _, document = report("facts", "--from", str(OUTPUTS / "diag-3.3-h100x8-passes.txt"))
    assert {"tool": "DCGM", "test": "PCIe", "gpu": None, "status": "pass", "messages": []} in document["facts"]["tool_tests"]


def test_json_of_a_broken_test_stays_open() -> None:
    status, document = report("check", "--from", str(OUTPUTS / "diag-4.2-h100x2-internal-error.json"))
    assert status == 3 and any("A child process (4711)" in m["reason"] for m in document["missing"])


def test_noise() -> None:
    for text in ("| | |\n", "| x | y |\n" * 50, "|" * 500 + "\n", HEAD + "| GPU Memory | Pass - GPUs: 1, x |\n"):
        try:
            facts(text)
        except Unparsable as error:
            assert str(error)
    for text in ('{"DCGM GPU Diagnostic": {"test_categories": [1, null, {"tests": [null, {"name": 3}]}]}}', '{"DCGM Diagnostic": {}}', "[" * 5000):
        with pytest.raises(Unparsable):
            facts(text, "dcgm-json")


def test_an_excerpt_of_a_health_watch_keeps_what_stands_whole() -> None:
    """Synthetic: rows without the frame around them, as authors quote them; the last line of a message may go on."""
    rows = (("Overall Health", "Failure"), ("-> 0", "Failure"), ("   -> NVLINK system", "Failure"), ("", "GPU 0's NvLink link 3 is currently down ..."), ("", "GPU 0's NvLink link 4 is cur"))
    text = "".join(f"| {left:<25} | {right:<45} |\n" for left, right in rows)
    links = [(n.gpu, n.link, n.active) for f in facts(text) if isinstance(f, NvLinks) for n in f]
    assert links == [(0, 3, False)]
    status, document = report("check", "--from", "-", stdin=text.encode())
    assert status == 3
    assert any("link 3 is currently down" in m["reason"] and "dcgmi health -c" in m["reason"] for m in document["missing"])
