"""Real logs as a mailer, a terminal or a form breaks them at its width: every line comes back whole, and no other log is touched."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from gpudoctor.read.refolded import fold_of
from gpudoctor.read.text import lines_of
from tests.support import FIXTURES

OUTPUTS = FIXTURES / "outputs"
NAMES = ("nccl-log/h200x2-2.18.3-socket.txt", "nccl-log/h200x2-2.28.9-p2p-disabled.txt", "job-log/rank-left-out.log", "job-log/killed-over-sockets.log")


def full(lines: list[str], width: int) -> list[str]:
    """Wherever a line is full, as a terminal does."""
    return [line[at : at + width] for line in lines for at in range(0, len(line) or 1, width)]


def words(lines: list[str], width: int) -> list[str]:
    """Between words, as a mailer does."""
    return [piece for line in lines for piece in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]]


def quoted(lines: list[str]) -> list[str]:
    return ["> " + line for line in lines]


WAYS: dict[str, Callable[[list[str], int], list[str]]] = {
    "terminal": full,
    "mailer": words,
    "quoted, broken": lambda lines, width: full(quoted(lines), width),
    "broken, quoted": lambda lines, width: quoted(full(lines, width)),
    "quoted, broken, quoted": lambda lines, width: quoted(full(quoted(lines), width)),
    "broken by words, quoted": lambda lines, width: quoted(words(lines, width)),
    "indented": lambda lines, width: ["    " + line for line in full(lines, width)],
    "trimmed": lambda lines, width: [line.rstrip() for line in full(lines, width)],
    "CR LF": lambda lines, width: [line + "\r" for line in full(lines, width)],
}


def read(text: str, size: int = 1 << 18) -> list[str]:
    raw = text.encode()
    return [line.text for line in lines_of(raw[at : at + size] for at in range(0, len(raw), size))]


def plain(lines: list[str]) -> list[str]:
    """Without blanks and marks of quotes, which the ways of breaking add and take."""
    return [bare for line in lines if (bare := "".join(line.split()).lstrip(">"))]


def known(lines: list[str]) -> set[str]:
    """Lines that NCCL and PyTorch wrote: of another program's it is not always to be told where they begin."""
    return {line for line in plain(lines) if "NCCL" in line or line.startswith("[rank")}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [72, 80, 100])
@pytest.mark.parametrize("way", WAYS)
def test_every_line_comes_back(way: str, width: int, name: str) -> None:
    lines = (OUTPUTS / name).read_text().splitlines()
    broken = WAYS[way](lines, width)
    got = read("\n".join(broken) + "\n")
    assert len(got) == len(broken)  # so that evidence names the line in which it begins
    lost = known(lines) - known(got)
    assert len(lost) <= 0.05 * len(known(lines)), sorted(lost)[:3]
    settings = {line for line in plain(lines) if "setbyenvironmentto" in line}
    assert settings <= set(plain(got))


def test_a_line_keeps_the_number_of_its_first_piece() -> None:
    lines = (OUTPUTS / NAMES[1]).read_text().splitlines()
    broken = full(lines, 80)
    for number, line in enumerate(read("\n".join(broken) + "\n")):
        assert line.startswith(broken[number]) or not line


@pytest.mark.parametrize("size", [7, 100, 4096, 70_000])
def test_however_it_comes(size: int) -> None:
    text = "\n".join(full((OUTPUTS / "job-log" / "other-settings.log").read_text().splitlines(), 100)) + "\n"
    assert read(text, size) == read(text)


KINDS = ("nccl-log", "job-log", "nccl-tests", "kernel-log")


@pytest.mark.parametrize("name", [path.relative_to(OUTPUTS).as_posix() for kind in KINDS for path in sorted((OUTPUTS / kind).iterdir())])
def test_a_log_that_nobody_broke(name: str) -> None:
    raw = (OUTPUTS / name).read_bytes()
    assert fold_of(raw) is None
    assert fold_of(b"".join(b"    > " + line + b"\n" for line in raw.splitlines())) is None


def test_two_ranks_that_say_the_same_prove_no_width() -> None:
    said = "vm:{0}:{0} [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-Qp0mNa to 33030532 bytes\nDistBackendError and so on\n"
    assert fold_of("".join(said.format(pid) for pid in (1001, 1002, 1003, 1004)).encode()) is None


def test_a_text_that_ends_where_a_line_is_full_may_have_lost_more() -> None:
    broken = full((OUTPUTS / NAMES[0]).read_text().splitlines(), 80)
    for upto in range(20, len(broken)):
        *_, last = lines_of([("\n".join(broken[:upto]) + "\n").encode()])
        assert last.cut == (len(broken[upto - 1]) == 80)


def test_tables_stay_as_they_are() -> None:
    log = full((OUTPUTS / NAMES[0]).read_text().splitlines(), 80)
    table = ["+" + "-" * 78 + "+", "| NVIDIA-SMI 570.86.10 ".ljust(79) + "|", "+" + "-" * 78 + "+"]
    got = read("\n".join([*log, "", *table, ""]))
    assert got[-3:] == table
