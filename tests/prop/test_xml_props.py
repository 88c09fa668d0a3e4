"""Whatever is fed to the readers of nvidia-smi -q and NCCL's topology: facts, or Unparsable, and never a changed value."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.facts.base import Entry, Fact, Loss
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.system import Cpu, Numa
from gpudoctor.facts.topology import Nics, Pairs
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

SAMPLES = {
    "smi-qx": ("v100-418", "a100-mig-470", "h100-lost-560", "gh200-575"),
    "smi-q": ("v100-418", "a100-mig-470"),
    "topo-xml": ("dgx-mesh", "h200x2-vm"),
}


def sample(kind: str, name: str) -> str:
    return (FIXTURES / "outputs" / kind / f"{name}.txt").read_text()


def entries(facts: list[Fact | Loss]) -> dict[Any, Entry]:
    """Every entry of every fact under a key that a cut cannot change."""
    out: dict[Any, Entry] = {}
    for fact in facts:
        if isinstance(fact, Gpus):
            out.update((("gpu", place), g) for place, g in enumerate(fact))
        elif isinstance(fact, PciTree):
            out.update((("pci", d.bdf), d) for d in fact)
        elif isinstance(fact, Pairs):
            out.update((("pair", p.a, p.b), p) for p in fact)
        elif isinstance(fact, Nics):
            out.update((("nic", n.name), n) for n in fact)
            out.update((("path", p.gpu, p.nic), p) for p in fact.paths)
        elif isinstance(fact, Numa):
            out.update((("node", n.id), n) for n in fact)
        elif isinstance(fact, (Driver, Cpu)):
            out[type(fact)] = fact.entry
    return out


def read(kind: str, text: str) -> dict[Any, Entry]:
    try:
        return entries(parse(kind, text))
    except Unparsable:
        return {}


def differences(whole: dict[Any, Entry], cut: dict[Any, Entry]) -> list[str]:
    out = []
    for key, entry in cut.items():
        for field in entry._fields:
            value = getattr(entry, field)
            if field != "origin" and value is not None and (key not in whole or getattr(whole[key], field) != value):
                out.append(f"{key} {field} = {value!r}")
    return out


def cuts(kind: str, text: str) -> list[int]:
    """Every byte; of the longer nvidia-smi XML those of every value up to its closing tag, and one byte of each tag."""
    if kind != "smi-qx":
        return list(range(len(text)))
    places = {end for found in re.finditer(r">[^<]+</", text) for end in range(found.start(), found.end() + 1)}
    return sorted(places | {found.end() - 1 for found in re.finditer(r"<[^>]+>", text)} | {0, len(text) - 1})


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in SAMPLES.items() for name in names])
def test_cut_at_every_byte_no_value_differs(kind: str, name: str) -> None:
    text = sample(kind, name)
    whole = read(kind, text)
    assert whole
    for end in cuts(kind, text):
        assert not differences(whole, read(kind, text[:end])), f"cut after {text[max(0, end - 60) : end]!r}"


@pytest.mark.parametrize("name", SAMPLES["smi-q"])
def test_flattened_text_cut_at_every_byte(name: str) -> None:
    text = "\n".join(line.strip() for line in sample("smi-q", name).split("\n"))
    whole = read("smi-q", text)
    for end in range(len(text)):
        assert not differences(whole, read("smi-q", text[:end])), f"cut after {text[max(0, end - 60) : end]!r}"


@pytest.mark.parametrize("kind", sorted(SAMPLES))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_damage_ends_in_facts_or_unparsable(kind: str, data: st.DataObject) -> None:
    text = sample(kind, data.draw(st.sampled_from(SAMPLES[kind])))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 80))
        text = text[:at] + data.draw(st.text(max_size=12)) + text[at + gone :]
    for key, entry in read(kind, text).items():
        for field in entry._fields:
            assert getattr(entry, field) not in ("", -1, "N/A") or field == "numa_reported", (key, field)


@pytest.mark.parametrize("kind", sorted(SAMPLES))
@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=400))
def test_any_bytes_behind_a_known_beginning(kind: str, raw: bytes) -> None:
    head = {
        "smi-qx": b'<nvidia_smi_log>\n<gpu id="00000000:01:00.0">\n',
        "smi-q": b"GPU 00000000:01:00.0\n",
        "topo-xml": b'<system version="1">\n',
    }[kind]
    for section in recognise(head + raw):
        if section.kind == kind:
            read(kind, section.text)
