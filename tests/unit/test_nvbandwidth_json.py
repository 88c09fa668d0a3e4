"""nvbandwidth's JSON: the same facts as its text, of one test after the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.facts.bandwidth import HostCopies, PairRates
from gpudoctor.facts.base import Loss
from gpudoctor.parsers import nvbandwidth, nvbandwidth_json
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise, report, slugs

FILE = FIXTURES / "outputs" / "nvbandwidth" / "four-gpus.json"
TEXT = FILE.read_text()
DOCUMENT = json.loads(TEXT)


def facts(text: str) -> tuple[list[Any], list[Any], list[Loss]]:
    (section,) = [s for s in recognise(text) if s.kind == "nvbandwidth-json"]
    found = list(nvbandwidth_json.parse(section))
    copies = [c for f in found if isinstance(f, HostCopies) for c in f]
    return copies, [r for f in found if isinstance(f, PairRates) for r in f], [f for f in found if isinstance(f, Loss)]


def with_tests(*tests: dict[str, Any], **more: Any) -> str:
    return json.dumps({"nvbandwidth": {**{k: v for k, v in DOCUMENT["nvbandwidth"].items() if k != "testcases"}, **more, "testcases": list(tests)}}, indent=3, sort_keys=True)


def matrix(rows: Any, name: str = "device_to_device_memcpy_read_ce", unit: str = "GB/s", **more: Any) -> dict[str, Any]:
    return {"name": name, "status": "Passed", "bandwidth_description": f"memcpy CE GPU(row) <- GPU(column) bandwidth ({unit})", "bandwidth_matrix": rows, "sum": 1.0, **more}


def test_copies_and_pairs() -> None:
    copies, rates, losses = facts(TEXT)
    assert losses == []
    assert [(c.bdf, c.to_device_gbs, c.from_device_gbs) for c in copies] == [
        ("0000:0f:00.0", 55.3275, 55.6404), ("0000:2f:00.0", 55.2913, 55.1), ("0000:44:00.0", 21.3044, 55.2), ("0000:5a:00.0", 55.31, 55.3),
    ]  # fmt: skip
    kinds = {what: {(r.a, r.b): r.gbs for r in rates if r.what == what} for what in {r.what for r in rates}}
    assert set(kinds) == {"copy read", "copy write", "copy read both ways"} and all(len(pairs) == 6 for pairs in kinds.values())
    # A pair counts with its slower direction, and both ways with the last of its three matrices.
    assert kinds["copy read"][1, 3] == 195.65 and kinds["copy read"][0, 1] == 390.1 and kinds["copy read both ways"][0, 1] == 741.19
    assert copies[2].at("to_device_gbs").value == "row 0, column 2: 21.3044 GB/s" and rates[0].a_name == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("layout", [{"separators": (",", ":")}, {"indent": 2}, {"indent": 8}, {"indent": "\t"}])
def test_whatever_laid_it_out(layout: dict[str, Any]) -> None:
    assert facts(json.dumps(DOCUMENT, **layout) + "\n")[:2] == facts(TEXT)[:2] or [r.gbs for r in facts(json.dumps(DOCUMENT, **layout))[1]] == [r.gbs for r in facts(TEXT)[1]]


def test_the_text_of_the_same_numbers_gives_the_same() -> None:
    text = (FIXTURES / "outputs" / "nvbandwidth" / "two-gpus.txt").read_text()
    devices = [f"{i}: NVIDIA H200 (00000000:00:0{6 + i}): (host)" for i in (0, 1)]
    same = with_tests(
        matrix([["55.33", "21.31"]], "host_to_device_memcpy_ce"), matrix([["N/A", "396.01"], ["395.87", "N/A"]]), **{"GPU Device list": devices}
    )  # fmt: skip
    (section,) = [s for s in recognise(text) if s.kind == "nvbandwidth"]
    plain = [x for f in nvbandwidth.parse(section) for x in f]  # type: ignore[attr-defined]
    copies, rates, _ = facts(same)

    def values(entry: Any) -> dict[str, Any]:
        return {name: getattr(entry, name) for name in entry._fields if name != "origin"}

    assert [values(x) for x in plain] == [values(x) for x in (*copies, *rates)]


def test_a_release_without_the_list_of_devices_leaves_the_numbers() -> None:
    document = {"nvbandwidth": {k: v for k, v in DOCUMENT["nvbandwidth"].items() if k != "GPU Device list"}}
    copies, rates, _ = facts(json.dumps(document, indent=3))
    assert [(c.gpu, c.bdf) for c in copies] == [(0, None), (1, None), (2, None), (3, None)] and rates[0].a_bdf is None


@pytest.mark.parametrize(
    "test",
    [
        {"name": "device_to_device_memcpy_read_ce", "status": "Waived"},
        {"name": "device_to_device_memcpy_read_ce", "status": "Error", "error": "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
        matrix([["N/A", "700"], ["700", "N/A"]], unit="ns"),
        matrix([["N/A", "10"], ["10", "N/A"]], "all_to_one_read_ce"),
        matrix([["N/A", "10"], ["N/A", "N/A"]]),
    ],
)
def test_what_is_no_rate_of_a_pair_is_passed_over(test: dict[str, Any]) -> None:
    assert facts(with_tests(test)) == ([], [], [])


@pytest.mark.parametrize(
    "rows",
    ["x", [], [[]], [["1"], "2"], [["N/A", "nan"], ["1", "N/A"]], [["N/A", "-1"], ["1", "N/A"]], [["N/A", True], ["1", "N/A"]], [["N/A", "1e999"], ["1", "N/A"]], [["1", "2"]] * 7, [["1", "2"], ["3"]], None, [["N/A", {"x": 1}], ["1", "N/A"]]],
)
def test_a_damaged_matrix_is_a_loss_and_the_next_test_is_read(rows: object) -> None:
    copies, rates, losses = facts(with_tests(matrix(rows), matrix([["N/A", "396"], ["395", "N/A"]], "device_to_device_memcpy_write_ce")))
    assert [r.gbs for r in rates] == [395.0] and len(losses) == 1 and "device_to_device_memcpy_read_ce" in losses[0].fact


def test_cut_at_every_byte_no_value_differs() -> None:
    def values(text: str) -> set[tuple[Any, ...]]:
        try:
            found = parse("nvbandwidth-json", text)
        except Unparsable:
            return set()
        out: set[tuple[Any, ...]] = set()
        for fact in found:
            for entry in fact if isinstance(fact, (HostCopies, PairRates)) else ():
                for name in ("to_device_gbs", "from_device_gbs", "gbs", "name", "a_name"):
                    if getattr(entry, name, None) is not None:
                        who = (entry.a, entry.b, entry.what) if isinstance(fact, PairRates) else (entry.bdf,)
                        out.add((*who, name, getattr(entry, name)))
        return out

    whole = values(TEXT)
    assert len(whole) > 30
    for cut in range(0, len(TEXT)):
        assert values(TEXT[:cut]) <= whole, cut


def test_a_document_that_stops_says_so() -> None:
    cut = TEXT[: TEXT.index("device_to_device_memcpy_write_ce")]
    _, rates, losses = facts(cut)
    assert len(rates) == 6 and "stops after 4 of its tests" in losses[0].reason
    with pytest.raises(Unparsable):
        parse("nvbandwidth-json", '{"nvbandwidth": {"error": "x"}}')


def test_both_slow_ones_are_found_with_the_matrix_of_paths_beside_it(tmp_path: Any) -> None:
    rows = "\n".join(f"GPU{a}\t" + "\t".join(" X " if a == b else "NV18" for b in range(4)) for a in range(4))
    (tmp_path / "topo.txt").write_text("\tGPU0\tGPU1\tGPU2\tGPU3\n" + rows + "\n")
    smi = "index, pci.bus_id, name\n" + "".join(f"{i}, 00000000:{b}:00.0, NVIDIA H100 80GB HBM3\n" for i, b in enumerate(("0F", "2F", "44", "5A")))
    (tmp_path / "gpus.csv").write_text(smi)
    status, said = report("bandwidth", "--from", str(FILE), "--from", str(tmp_path / "topo.txt"), "--from", str(tmp_path / "gpus.csv"))
    assert status == 1 and {(f["slug"], f["subject"]) for r in said["results"] for f in r["findings"] if f["severity"] == "error"} == {
        ("host-copy-slow", "gpu:0000:44:00.0"), ("pair-slow", "pair:1-3"),
    }  # fmt: skip
    healthy = json.loads(json.dumps(DOCUMENT).replace("21.3044", "55.3044").replace("195.65", "391.3").replace("196.55", "393.1"))
    (tmp_path / "healthy.json").write_text(json.dumps(healthy))
    status, said = report("bandwidth", "--from", str(tmp_path / "healthy.json"), "--from", str(tmp_path / "topo.txt"), "--from", str(tmp_path / "gpus.csv"))
    assert status == 0 and not slugs(said, "warning", "error")
