"""Policies as text: what is understood, and every mistake with its line and the nearest right name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.policy.lines import line_of, places
from gpudoctor.policy.load import PolicyError, load
from gpudoctor.policy.schema import READABLE, SECTIONS, TOP, json_schema
from tests.support import ROOT

SLUGS = ("acs", "aspm", "nvlink-down", "pcie-width")
SHIPPED = sorted((ROOT / "gpudoctor" / "data" / "policies").glob("*.toml"))

WHOLE = """\
schema = 1
name = "8 x H100"
on_unknown = "let-through"
require_readable = ["kernel-log", "acs"]

[gpus]
count = 8
model = ["H100", "H200"]

[pairs]
path = "NVL"
nvlinks = 18
severity = "warning"

[[pair]]
of = "0-1"
path = ["PIX", "PXB"]

[pcie]
generation = 5
capable_generation = 5
width = 16

[nvlink]
links = 18
speed = "25 GB/s"

[numa]
of_gpus = [0, 0, 1, 1]
known = true

[nics]
devices = "mlx5_0"
count = 1
state = "active"
rate = "400 Gb/s"
nearest = "PXB"

[driver]
min = "550.54.15"
max = "580"
cuda_min = "12.4"

[environment]
forbid = ["NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL=LOC"]

[measured]
collective = "all_reduce"
gpus = 4
min_busbw = "0.28 TB/s"
max_latency = "0.04 ms"
min_host_copy = "35 GB/s"

[findings]
fail = ["acs"]
warn = ["aspm"]

[[accept]]
slug = "policy"
subject = "pair:0-1"
reason = "bridge on order"
until = 2027-03-31
"""


def read(text: str) -> Any:
    return load(text, "policy.toml", SLUGS)


def mistakes(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        read(text)
    return str(caught.value).splitlines()


def test_a_whole_policy() -> None:
    policy = read(WHOLE)
    assert (policy.name, policy.on_unknown, policy.require_readable) == (
        "8 x H100",
        "let-through",
        ("kernel-log", "acs"),
    )
    assert (policy.gpus.count, policy.gpus.model, policy.gpus.severity) == (8, ("H100", "H200"), "error")
    assert (policy.pairs.path, policy.pairs.nvlinks, policy.pairs.severity) == (("NVL",), 18, "warning")
    assert (policy.pair[0].of, policy.pair[0].path) == (("0-1",), ("PIX", "PXB"))
    assert (policy.nvlink.speed_gbs, policy.nics.rate_gbps, policy.nics.devices) == (25.0, 400.0, ("mlx5_0",))
    measured = policy.measured
    assert measured.min_busbw_gbs == pytest.approx(280) and measured.max_latency_us == pytest.approx(40)
    assert measured.gpus == 4 and measured.host_copies, "a least rate of copies asks for their measurement"
    assert (policy.accept[0].slug, policy.accept[0].until, policy.accept[0].subject) == (
        "policy",
        "2027-03-31",
        "pair:0-1",
    )


def test_an_empty_policy_asks_for_nothing() -> None:
    policy = read("")
    assert policy.name == "policy" and policy.on_unknown == "hold" and policy.gpus is None and policy.measured is None


def test_one_word_of_a_path_stands_for_all_nearer() -> None:
    assert read('[pairs]\npath = "PHB"').pairs.path == ("NVL", "PIX", "PXB", "PHB")
    assert read('[pairs]\npath = ["PHB"]').pairs.path == ("PHB",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[gpus]\n\ncuont = 2", "policy.toml:3: gpus.cuont: unknown key; did you mean gpus.count?"),
        ("[nvlinks]\nlinks = 2", "policy.toml:1: nvlinks: unknown key; did you mean nvlink?"),
        ("count = 2", "policy.toml:1: count: unknown key; did you mean gpus.count?"),
        ('[gpus]\ncount = "8"', "policy.toml:2: gpus.count: must be a whole number, not a text"),
        ("[gpus]\ncount = true", "policy.toml:2: gpus.count: must be a whole number, not true or false"),
        ("[gpus]\ncount = 0", "policy.toml:2: gpus.count: must be 1 or more"),
        ("[gpus]\nmodel = []", "policy.toml:2: gpus.model: is empty"),
        ('gpus = "8"', "policy.toml:1: gpus: is a table, headed [gpus]"),
        ("[pair]\nof = '0-1'", "policy.toml:1: pair: is a list of tables, each headed [[pair]]"),
        ('[[pair]]\nof = "1-0"', 'policy.toml:2: pair[1].of: \'1-0\' is no pair: write "0-1", the lower index first'),
        ('[[pair]]\npath = "NVL"', "policy.toml:1: pair[1]: lacks of"),
        ('[[pair]]\nof = "0-1"', "policy.toml:1: pair[1]: asks for nothing: it lacks path or nvlinks"),
        (
            '[[pair]]\nof = "0-1"\npath = "NVL"\n[[pair]]\nof = ["2-3", "0-1"]\nnvlinks = 4',
            "policy.toml:5: pair[2].of: 0-1 is in pair[1] already",
        ),
        ('[findings]\nfail = ["acs", "aspm"]\nwarn = ["acs"]', "policy.toml:3: findings.warn: acs is under findings.fail too"),
        ("[numa]\nof_gpus = []", "policy.toml:2: numa.of_gpus: is empty"),
        ("[gpus]\ncount = " + 5000 * "9", "policy.toml: no TOML that can be read: a number of thousands of digits"),
        ('[measured]\nmin_busbw = "\u0663 GB/s"', "policy.toml:2: measured.min_busbw: '\u0663 GB/s' is no amount: write it like \"280 GB/s\""),
        ('[pairs]\npath = "NV18"', "policy.toml:2: pairs.path: 'NV18' is none of NVL, PIX, PXB, PHB, NODE, SYS; "
         'NV18 is path = "NVL" with nvlinks = 18'),
        ('[measured]\nmin_busbw = "330"', 'policy.toml:2: measured.min_busbw: \'330\' has no unit: write "330 GB/s"'),
        ("[measured]\nmin_busbw = 330", 'policy.toml:2: measured.min_busbw: has no unit: write "330 GB/s"'),
        ('[measured]\nmin_busbw = "330 gb/s"', "policy.toml:2: measured.min_busbw: '330 gb/s': the unit gb/s is not known; "
         "did you mean GB/s?"),
        ('[measured]\nmin_busbw = "80 Gb/s"', "policy.toml:2: measured.min_busbw: '80 Gb/s': Gb/s counts bits; 80 Gb/s are 10 GB/s "
         "(units here: GB/s or MB/s or TB/s)"),
        ('[nics]\nrate = "50 GB/s"', "policy.toml:2: nics.rate: '50 GB/s': GB/s counts bytes; 50 GB/s are 400 Gb/s "
         "(units here: Gb/s or Gbit/s or Gbps or Mb/s)"),
        ('[measured]\nmin_busbw = "0 GB/s"', "policy.toml:2: measured.min_busbw: '0 GB/s' must be above 0"),
        ('[measured]\ngpus = "two"', 'policy.toml:2: measured.gpus: \'two\' is neither "all" nor a number'),
        ('[measured]\nhost_copies = false\nmin_host_copy = "9 GB/s"', "policy.toml:2: measured.host_copies: is false, and min_host_copy "
         "asks for a measurement of them"),
        ("[driver]\ncuda_min = 12.4", 'policy.toml:2: driver.cuda_min: must be in quotes: "12.4" (a number would make 12.10 of CUDA the '
         "same as 12.1)"),
        ('[driver]\nmin = "latest"', "policy.toml:2: driver.min: 'latest' is no version"),
        ('on_unknown = "pass"', "policy.toml:1: on_unknown: 'pass' is none of hold, let-through"),
        ('require_readable = ["kernel-logs"]', "policy.toml:1: require_readable: 'kernel-logs' is none of " + ", ".join(READABLE)
         + "; did you mean kernel-log?"),
        ('[findings]\nfail = ["nvlink-dwn"]', "policy.toml:2: findings.fail: no check is called 'nvlink-dwn'; did you mean nvlink-down?"),
        ('[environment]\nforbid = ["a b"]', "policy.toml:2: environment.forbid: 'a b' is neither a variable nor NAME=VALUE"),
        ("schema = 2", "policy.toml:1: schema: this gpudoctor reads 1"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_line(text: str, expected: str) -> None:
    assert mistakes(text) == [expected]


def test_an_acceptance_needs_a_reason_and_a_day() -> None:
    assert mistakes('[[accept]]\nslug = "acs"\n\n[[accept]]\nslug = "acs"\nreason = "x"\nuntil = "soon"') == [
        "policy.toml:1: accept[1]: lacks reason",
        "policy.toml:1: accept[1]: lacks until",
        "policy.toml:7: accept[2].until: 'soon' is no date: 2027-03-31",
    ]


def test_all_mistakes_at_once_by_line() -> None:
    got = mistakes("[pcie]\nwidth = 'x16'\n[gpus]\ncuont = 1\n")
    assert [line.split(":")[1] for line in got] == ["2", "4"]


def test_broken_toml_keeps_its_line() -> None:
    (got,) = mistakes("schema = 1\n[gpus\ncount = 1")
    assert got.startswith("policy.toml:2: no TOML: ")
    assert len(mistakes("x = " + "[" * 20000)) == 1


def test_a_message_cannot_steer_a_terminal() -> None:
    assert all("\x1b" not in line and "\x07" not in line for line in mistakes('"\\u001b]0;title\\u0007" = 1'))


@given(st.text(max_size=200))
def test_any_text_is_a_policy_or_a_named_mistake(text: str) -> None:
    try:
        read(text)
    except PolicyError as error:
        assert str(error).startswith("policy.toml")


KEYS = st.sampled_from([k.name for s in SECTIONS for k in s.keys])
VALUES = st.sampled_from(
    ['"x"', "1", "true", "[]", '["a"]', "{a = 1}", "2027-01-01", "1.5", '"1 GB/s"', "[[1]]", "-1", "nan"]
)


@given(st.lists(st.tuples(st.sampled_from([s.name for s in SECTIONS]), KEYS, VALUES), max_size=6), st.booleans())
def test_any_value_anywhere_is_taken_or_named(rows: list[tuple[str, str, str]], repeated: bool) -> None:
    text = "".join(f"[[{s}]]\n{k} = {v}\n" if repeated else f"{s}.{k} = {v}\n" for s, k, v in rows)
    try:
        read(text)
    except PolicyError as error:
        assert all(line.startswith("policy.toml:") for line in str(error).splitlines())


def test_lines_through_strings_arrays_and_comments() -> None:
    text = (
        'a = """\n[no]\nb = 1\n"""  # [not]\n'  # 1-4
        "[t] # x = [\n"  # 5
        "list = [\n  1, # ]\n  2,\n]\n"  # 6-9
        'c."d e".f = "]"\n'  # 10
        "[[t.u]]\nk = '''\n=\n'''\n[[t.u]]\nk = {x = 1}\n"  # 11, 12-14, 15, 16
    )
    found = places(text)
    assert found[("a",)] == 1 and ("no",) not in found and ("b",) not in found
    assert found[("t",)] == 5 and found[("t", "list")] == 6 and found[("t", "c", "d e", "f")] == 10
    assert found[("t", "u", 0, "k")] == 12 and found[("t", "u", 1)] == 15
    assert line_of(found, ("t", "u", 1, "k", "x")) == 16 and line_of(found, ("none",)) is None


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_policies_are_in_order_and_say_their_sources(path: Any) -> None:
    from gpudoctor.discover import load as plugins

    text = path.read_text()
    policy = load(text, path.name, [c.slug for c in plugins().causes])
    assert policy.gpus is not None and policy.gpus.count and policy.measured is not None
    numbers = [line for line in text.splitlines() if line.startswith(("min_busbw", "min_host_copy", "min =", "speed"))]
    lines = text.splitlines()
    for line in numbers:
        before = lines[lines.index(line) - 1 :: -1]
        assert before[0].startswith("#") or before[1].startswith("#"), f"{line} has no source"
    assert (policy.measured.min_busbw_gbs is None) == (path.stem == "rtx4090-x2")


def test_the_expected_policies_are_shipped() -> None:
    assert [p.stem for p in SHIPPED] == ["a100-sxm-x8", "h100-sxm-x8", "h200-sxm-x8", "l40s-x4", "rtx4090-x2"]


def test_the_published_schema_is_current() -> None:
    assert json.loads((ROOT / "gpudoctor" / "data" / "policy.schema.json").read_text()) == json_schema()


def test_every_key_is_documented() -> None:
    page = (ROOT / "docs" / "policy.md").read_text()
    for section in SECTIONS:
        assert f"[{section.name}]" in page, section.name
        for key in section.keys:
            assert f"`{key.name}`" in page, f"{section.name}.{key.name}"
    assert all(f"`{key.name}`" in page for key in TOP) and all(f"`{name}`" in page for name in READABLE)


def test_a_variable_that_is_not_read_cannot_be_forbidden() -> None:
    from gpudoctor.probe.process import allowed

    text = '[environment]\nforbid = ["NCCL_P2P_DISABLE=1", "CUDA_VISIBLE_DEVICES", "HOME=/root"]'
    with pytest.raises(PolicyError) as caught:
        load(text, "policy.toml", SLUGS, allowed)
    assert str(caught.value) == "policy.toml:2: environment.forbid: gpudoctor does not read HOME"
