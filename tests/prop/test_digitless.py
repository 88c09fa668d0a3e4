"""What finds known words in lines whose digits were taken out never misses a line that the exact expression finds."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoctor.read.digitless import digitless
from gpudoctor.read.prompts import PROMPT_HINT
from gpudoctor.read.shapes import Shapes
from gpudoctor.read.table import any_of, compiled

HINTS = [*dict.fromkeys(hint for how in compiled() for hint in how.format.hints), PROMPT_HINT]
TELLING = any_of(compiled(), more=(PROMPT_HINT,))
EXACT, BARE = re.compile(TELLING.exact, re.A), re.compile(TELLING.bare, re.A)


def without(text: str) -> str:
    return re.sub("[0-9]", "", text)


@pytest.mark.parametrize("hint", HINTS)
def test_each_hint(hint: str) -> None:
    bare = re.compile(digitless(hint), re.A)  # as bytes are searched

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])  # what must follow is drawn blindly
    @given(st.from_regex(re.compile(hint, re.A), fullmatch=True))
    def found(text: str) -> None:
        assert bare.search(without(text)) is not None

    found()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.text("abc \t-", max_size=8), st.one_of(*(st.from_regex(re.compile(h, re.A), fullmatch=True) for h in HINTS)), st.text("12 xyz:", max_size=8))
def test_all_of_them_at_once(before: str, text: str, after: str) -> None:
    line = before + text + after
    if EXACT.search(line) is not None:
        assert BARE.search(without(line)) is not None


@pytest.mark.parametrize("token", [t for how in compiled() for t in how.format.tokens])
def test_every_token(token: str) -> None:
    assert BARE.search(without(f"12 {token} 34")) is not None
    assert len(without(token).strip()) >= 3  # or every line would be looked at


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (r"GPU \d+: [NT]", "GPU : [NT]"),
        (r"int\d{0,2}\s+", r"int\s+"),
        (r":[0-9a-f]{2}\.[0-7] x", r":[a-f]{0,2}\. x"),
        (r"Running \w{8,50}_", r"Running \w{0,50}_"),
        (r"[A-Z3]x", "[A-Z]?x"),
        (r"\S+ [^:]{2,}", r"\S* [^:]{0,}"),
        (r"a[0-7](?=[ :]{0,40}(?:[\r\n]|\Z))", r"a(?=[ :]{0,40}(?:[\r\n]|\Z))"),
        (r"(?:Group +\d+ +)?Pid", "(?:Group + +)?Pid"),
    ],
)
def test_what_becomes_of_it(given: str, wanted: str) -> None:
    assert digitless(given) == wanted


@pytest.mark.parametrize("strange", ["^GPU", "a$", r"\bGPU", "(GPU)", "(?!GPU)", r"a\1", r"\D+"])
def test_what_is_not_understood_is_refused(strange: str) -> None:
    with pytest.raises(ValueError):
        digitless(strange)


@pytest.fixture(autouse=True)
def from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.read.shapes.FIRST", 0)


def shapes() -> Shapes:
    return Shapes(re.compile(TELLING.exact.encode()), re.compile(TELLING.bare.encode()))


def test_a_line_is_found_behind_hundreds_of_its_like() -> None:
    """`GPU memory 12` may have the shape of a line that names a GPU, `GPU0`, as far as the letters tell."""
    made = shapes()
    dull = b"".join(b"GPU memory %d of 80 GB\n" % n for n in range(400))
    assert made.look(dull).places == []
    assert made.look(dull).places == []
    text = dull + b"GPU0 memory 3 of 80 GB\n" + dull
    assert made.look(text).places == [text.index(b"GPU0") + 2]
    number = b"GPU %d of the job\n"
    assert made.look(b"".join(number % n for n in range(50))).places  # `GPU 0` begins a line of nvidia-smi -q


def test_a_word_that_ends_like_a_type_is_no_row_of_a_table() -> None:
    text = b"".join(b"saved checkpoint %d of 100\n" % n for n in range(400))
    assert shapes().look(text).places == []
    for between in (b"  ", b"\t"):
        row = between.join((b"", b"1048576", b"262144", b"int32", b"17.2")) + b"\n"
        assert len(shapes().look(text + row).places) == 1


def test_what_was_forgotten_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.read.shapes._SHAPES", 2)
    made = shapes()
    text = b"".join(b"%s line\n" % word for word in (b"one", b"two", b"three", b"four", b"GPU memory 1", b"GPU memory 22")) + b"NVRM: Xid 79\n"
    for _ in range(3):
        assert [text[p : p + 1] for p in made.look(text).places] == [b"V"]
