"""Whatever the children's JSON holds, its parsers give facts, losses or `Unparsable`, and a cut changes no value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.parsers import probe_json
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, store

KINDS = ("nvml", "pci", "system", "job")
FILES = [(kind, path) for kind in KINDS for path in sorted((FIXTURES / f"outputs/{kind}-json").glob("*.txt"))]


def keys(value: Any) -> set[str]:
    """Every key anywhere in a document: what a hostile answer would use."""
    if isinstance(value, dict):
        return set(value) | {k for v in value.values() for k in keys(v)}
    return {k for v in value for k in keys(v)} if isinstance(value, list) else set()


KNOWN = {kind: sorted(k for other, path in FILES if other == kind for k in keys(json.loads(path.read_text()))) for kind in KINDS}
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 40),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["0000:41:00.0", "16", "0x10de", "0x030200", "32.0 GT/s PCIe", "-1", "0-3", "4: ACTIVE", "/a/0000:41:00.0"]),
)


def values(kind: str) -> st.SearchStrategy[Any]:
    names = st.one_of(st.sampled_from(KNOWN[kind]), st.text(max_size=4))
    return st.recursive(LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)), max_leaves=25)


def survive(kind: str, text: str) -> list[Fact | Loss]:
    try:
        found = parse(f"{kind}-json", text)
    except Unparsable:
        return []
    store(*found)  # merging and joining must stand it too
    assert all(isinstance(f, (Fact, Loss)) for f in found)
    return found


def edited(document: Any, path: list[int], value: Any) -> Any:
    """A copy with the value at one place replaced."""
    if not path or not isinstance(document, (dict, list)) or not document:
        return value
    place = path[0] % len(document)
    if isinstance(document, list):
        return [edited(v, path[1:], value) if n == place else v for n, v in enumerate(document)]
    return {k: edited(v, path[1:], value) if n == place else v for n, (k, v) in enumerate(document.items())}


@pytest.mark.parametrize(("kind", "path"), FILES, ids=[f"{k}-{p.stem}" for k, p in FILES])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_real_answer_with_one_value_replaced(kind: str, path: Path, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, 200), min_size=1, max_size=5))
    document = edited(json.loads(path.read_text()), [2 + places[0], *places[1:]], data.draw(values(kind)))
    document = {**(document if isinstance(document, dict) else {}), "probe": f"gpudoctor.{kind}", "schema": 1}
    ordered = {"probe": document.pop("probe"), "schema": document.pop("schema"), **document}
    survive(kind, json.dumps(ordered))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_known_keys_with_any_values(kind: str, data: st.DataObject) -> None:
    document = data.draw(st.dictionaries(st.sampled_from(KNOWN[kind]), values(kind), max_size=8))
    document.pop("probe", None), document.pop("schema", None)
    survive(kind, json.dumps({"probe": f"gpudoctor.{kind}", "schema": 1, **document}))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(tail=st.text(max_size=60))
def test_any_text_behind_the_head(kind: str, tail: str) -> None:
    survive(kind, f'{{"probe": "gpudoctor.{kind}", "schema": 1, {tail}')


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "tail",
    ['"a": ' + "[" * 100_000, '"count": ' + "9" * 10_000 + "}", '"count": NaN, "devices": {}, "processes": [], "gpus": []}', '"gpus": [1e999]}', '"a": "\\ud800"}'],
    ids=["deep", "long number", "NaN", "infinite", "half a character"],
)
def test_hostile_json(kind: str, tail: str) -> None:
    survive(kind, f'{{"probe": "gpudoctor.{kind}", "schema": 1, {tail}\n')


@pytest.mark.parametrize(("kind", "path"), FILES, ids=[f"{k}-{p.stem}" for k, p in FILES])
def test_a_cut_answer_gives_nothing_rather_than_less(kind: str, path: Path) -> None:
    text = path.read_text().rstrip("\n")
    for end in range(0, len(text), 31):
        with pytest.raises(Unparsable):
            parse(f"{kind}-json", text[:end])
    assert parse(f"{kind}-json", text) == parse(f"{kind}-json", text + "\n")


def test_half_a_character_can_be_written_to_a_report() -> None:
    (found,) = parse("system-json", '{"probe": "gpudoctor.system", "schema": 1, "distributions": {"torch": "2\\udcff\\ud83d\\ude00"}}')
    assert found.versions["torch"].encode() == "2?😀".encode()  # type: ignore[union-attr]


@given(st.one_of(LEAVES, st.lists(LEAVES, max_size=2), st.dictionaries(st.text(max_size=2), LEAVES, max_size=2)))
def test_typed_values(value: Any) -> None:
    number = probe_json.whole(value, 100)
    assert number is None or 0 <= number <= 100 and not isinstance(number, bool)
    text = probe_json.text(value)
    assert text is None or text and "\n" not in text and "\x1b" not in text
    found = probe_json.number(value)
    assert found is None or abs(found) < float("inf")
