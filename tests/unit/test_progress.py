"""The line that says how far a long reading is."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from gpudoctor.cli import progress
from gpudoctor.cli.progress import Progress, line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until the test moves it."""
    at = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: at[0])
    return at


def shown_for(path: Path, terminal: io.StringIO, now: list[float], monkeypatch: pytest.MonkeyPatch, seconds: float) -> Progress:
    monkeypatch.setattr("sys.stderr", terminal)
    made = Progress((str(path),))
    now[0] += seconds
    made.read(3_000_000)
    return made


def test_a_line_after_a_second_that_is_wiped_out(tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(12_000_000))
    terminal = Terminal()
    shown_for(path, terminal, now, monkeypatch, 2.0).clear()
    first, wiped, last = terminal.getvalue().split("\r")[1:]
    assert first == "read 3 MB of 12 MB (25 %), 2 MB/s"
    assert wiped == " " * len(first) and last == ""


@pytest.mark.parametrize(("terminal", "seconds"), [(Terminal(), 0.9), (io.StringIO(), 5.0)])
def test_nothing_within_a_second_or_where_no_terminal_is(
    tmp_path: Path, terminal: io.StringIO, seconds: float, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown_for(tmp_path, terminal, now, monkeypatch, seconds).clear()
    assert terminal.getvalue() == ""


def test_not_at_every_chunk(tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    made = shown_for(tmp_path, terminal, now, monkeypatch, 2.0)
    for _ in range(10):
        made.read(1)
    assert terminal.getvalue().count("\r") == 1
    now[0] += 1
    made.read(1)
    assert terminal.getvalue().count("\r") == 2


def test_no_share_where_the_size_is_not_known(tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(b"a\n"))
    for path in (packed, tmp_path, tmp_path / "absent"):
        terminal = Terminal()
        shown_for(path, terminal, now, monkeypatch, 2.0)
        assert terminal.getvalue() == "\rread 3 MB, 2 MB/s"
    assert line(5, 1.0, 0) == "read 5 bytes, 0 MB/s"


def test_a_file_that_grew_is_never_more_than_whole() -> None:
    assert line(3_000_000, 1.0, 2_000_000) == "read 3 MB of 3 MB (100 %), 3 MB/s"


def test_it_names_the_file_in_plain_words_and_never_wraps(tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps is not written over: each would stay on the screen."""
    path = tmp_path / "rank\x1b[2J-0.log"
    path.write_bytes(bytes(12_000_000))
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "_columns", lambda: 20)
    made = Progress((str(path),))
    made.begin(str(path))
    now[0] += 2
    made.read(3_000_000)
    assert terminal.getvalue() == "\rread 3 MB of 12 MB "
    assert line(3_000_000, 1.0, None, str(path)) == "read 3 MB, 3 MB/s: rank-0.log"
