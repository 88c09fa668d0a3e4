"""Which format begins in a line is found by the words that stand in it: the same as asking every format."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.pattern import lazy
from gpudoctor.read.table import Compiled, Starts, any_of, compiled
from tests.support import FIXTURES

STARTS = Starts(lazy(any_of(compiled()).exact))
TOKENS = [token for how in compiled() for token in how.format.tokens]
LINES = sorted({line for path in sorted((FIXTURES / "outputs").glob("*/*")) if path.suffix in (".txt", ".log") for line in path.read_text(errors="replace").splitlines()[:60]})


def one_by_one(text: str) -> Compiled | None:
    return next((how for how in compiled() if how.begins_in(text)), None)


def test_of_every_output_that_is_kept() -> None:
    assert len(LINES) > 1000
    assert [line for line in LINES if STARTS.find(line) is not one_by_one(line)] == []


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.sampled_from(TOKENS), st.text(max_size=4)), min_size=1, max_size=4), st.sampled_from(["", " ", ": "]), st.integers(0, 30))
def test_of_lines_run_together_and_cut(parts: list[str], between: str, cut: int) -> None:
    text = between.join(parts)[cut:]
    assert STARTS.find(text) is one_by_one(text)
