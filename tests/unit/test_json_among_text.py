"""Every JSON that is known, before and behind other text: both are read, as they are alone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.hang import FlightRecorder, Ras
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.ingest import Intake, take
from gpudoctor.read.source import Document
from gpudoctor.read.text import MAX_LINE
from gpudoctor.read.whole import kind_of, whole
from tests.made_jobs import Job
from tests.support import FIXTURES
from tests.unit.test_ras import answer

OUTPUTS = FIXTURES / "outputs"
TOLD = {
    "flight-recorder": json.dumps(Job(ranks=4, nodes=1, behind=(3,)).dump(0)),  # synthetic
    "flight-recorder, torch 2.2": json.dumps(Job(ranks=4, nodes=1, behind=(3,)).dump(0)["entries"]),  # synthetic
    "flight-recorder, recorded": (OUTPUTS / "flight-recorder" / "flight-recorder-rank0.json").read_text(),
    "ras-json": json.dumps(answer({0: 5, 1: 4})),
    "nvbandwidth-json": (OUTPUTS / "nvbandwidth" / "four-gpus.json").read_text(),
    "nccl-tests-json": (OUTPUTS / "nccl-tests-json" / "h200x2-nvlink.json").read_text(),
}
PROBES = {
    "nvml-json": (OUTPUTS / "nvml-json" / "h200x2-vm.txt").read_text(),
    "pci-json": (OUTPUTS / "pci-json" / "h200x2-vm.txt").read_text(),
    "system-json": (OUTPUTS / "system-json" / "pod-on-two-sockets.txt").read_text(),
    "job-json": (OUTPUTS / "job-json" / "three-processes.txt").read_text(),
}
LAYOUTS: dict[str, dict[str, Any]] = {"one line": {}, "narrow": {"separators": (",", ":")}, "laid out": {"indent": 2}, "by tabs": {"indent": "\t"}}
EVERY = {
    **{f"{kind}, {how}": json.dumps(json.loads(text), **layout) + "\n" for kind, text in TOLD.items() for how, layout in LAYOUTS.items()},
    **PROBES,
}
# Synthetic: begins with what a JSON line could begin with.
KERNEL = "[ 1234.567890] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"


def read(*chunks: str, name: str = "nccl_trace_rank_0") -> Intake:
    return take((), [Document(name=name, chunks=lambda: iter([c.encode("utf-8", "surrogateescape") for c in chunks]))])


def facts(found: Intake) -> dict[str, str]:
    """Every fact as a text, without where it stands."""
    kinds = [s._facts for s in found.stores]
    assert len(kinds) <= 1
    return {kind.__name__: re.sub(r"line \d+|the document", "", repr(fact)) for each in kinds for kind, fact in each.items()}


@pytest.mark.parametrize("name", EVERY)
def test_before_and_behind_other_text(name: str) -> None:
    told = EVERY[name]
    alone, other = facts(read(told)), facts(read(KERNEL))
    assert alone and other and not alone.keys() & other.keys()
    behind = (KERNEL + told, f"Hello,\n\n{told}{KERNEL}")
    if "torch 2.2, " in name and "line" not in name and "narrow" not in name:
        behind = ()  # a list of entries without the head that later ones have is known by its first bytes only
    for text in (told + KERNEL, f"{told}\n\n{KERNEL}", *behind):
        found = read(text)
        assert facts(found) == {**alone, **other}
        assert found.missing == read(told).missing
        (event,) = found.stores[0].get(KernelLog) or ()
        number = text[: text.index(KERNEL)].count("\n") + 1
        assert event.at("code").where == f"line {number}"


@pytest.mark.parametrize("name", [n for n in EVERY if "one line" in n])
@pytest.mark.parametrize("size", [1, 600, 5000])
def test_however_it_comes(name: str, size: int) -> None:
    text = EVERY[name].rstrip("\n") + "\n" + KERNEL
    assert facts(read(*(text[n : n + size] for n in range(0, len(text), size)))) == facts(read(text))


@pytest.mark.parametrize("name", [n for n in EVERY if n.startswith(("flight-recorder", "ras"))])
def test_the_next_text_may_begin_in_its_last_line(name: str) -> None:
    told = EVERY[name].rstrip("\n")
    assert facts(read(told + KERNEL)) == {**facts(read(told)), **facts(read(KERNEL))}


@pytest.mark.parametrize("name", EVERY)
def test_text_behind_json_that_stops_early_is_read(name: str) -> None:
    told = EVERY[name]
    for part in (3, 5, 9):
        cut = told[: len(told) * part // 10]
        found = read(f"{cut}\n{KERNEL}")
        assert facts(found)["KernelLog"] == facts(read(KERNEL))["KernelLog"]
        # What stops says so, whether it is the first thing in a text or the last.
        assert len(found.missing) >= len(read(cut + "\n").missing) > 0
        assert facts(found).keys() <= {*facts(read(told)), "KernelLog"}


def test_text_behind_json_that_nobody_can_decode_is_read() -> None:
    found = read('{"pg_config": ' + "[" * 100_000 + "\n" + KERNEL)
    assert facts(found) == facts(read(KERNEL)) and "cut or damaged" in found.missing[0].reason


def test_long_json_in_one_line_behind_a_log() -> None:
    dump = Job(ranks=4, nodes=1, behind=(3,)).dump(0)
    entries = dump["entries"]
    dump["entries"] = [{**entry, "frames": [{"name": "forward", "filename": "/opt/model/layer.py", "line": n} for n in range(400)]} for entry in entries]
    for one in ({"comm_lib_version": "2.28.9", **dump}, {"entries": dump["entries"], **dump}, dict(reversed(dump.items()))):
        told = json.dumps(one)
        assert len(told) > 2 * MAX_LINE
        alone = read(told)
        for text in (KERNEL + told + "\n", KERNEL + told, told + "\n" + KERNEL):
            assert facts(read(text))["FlightRecorder"] == facts(alone)["FlightRecorder"]


def test_several_in_one_text() -> None:
    run = json.loads(TOLD["nccl-tests-json"])
    text = ""
    for number, layout in enumerate(LAYOUTS.values()):
        run["start_time"] = f"2026-01-0{1 + number}"
        dump = Job(ranks=4, nodes=1, behind=(3,), seq=100 + number).dump(0)
        text += "".join(json.dumps(said, **layout) + "\n" for said in (answer({0: 5, 1: number}), run, dump))
    for begin in ("", KERNEL):
        (store,) = read(begin + text, name="all.txt").stores
        ras, runs, dumps = store.get(Ras), store.get(Bandwidth), store.get(FlightRecorder)
        assert ras is not None and runs is not None and dumps is not None
        assert (len(ras.answers), len(runs.runs), len(dumps.dumps)) == (4, 4, 4)


def test_a_log_of_gigabytes_behind_it_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.read.whole.MAX_WHOLE", 1 << 18)
    told = EVERY["ras-json, one line"]
    taken = []

    def chunks() -> Any:
        yield told.encode()
        for n in range(64):
            taken.append(n)
            yield b"nothing that anybody knows\n" * 1000

    section, rest = whole("x", chunks())
    assert getattr(section, "kind", None) == "ras-json" and len(taken) < 8
    assert sum(len(chunk) for chunk in rest) == 64 * 27_000 + 1  # the line end stands for the section's own
    assert len(taken) == 64


def test_a_recorder_without_an_end_is_said_when_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.read.whole.MAX_WHOLE", 1 << 18)
    head = EVERY["flight-recorder, one line"].rstrip("\n}") + ', "more": ['
    found = read(head, *('"some words", ' * 10_000 for _ in range(8)))
    assert not found.stores and ["not read" in m.reason for m in found.missing] == [True]


@pytest.mark.parametrize("text", [b'{"msg": "started"}\n', b'[{"level": "info"}]\n' * 9, b'{"nvml": 1}\n[rank0]: x\n'])
def test_other_json_is_left_to_those_that_read_lines(text: bytes) -> None:
    assert kind_of(text) is None
    section, chunks = whole("x", [text])
    assert section is None and b"".join(chunks) == text
