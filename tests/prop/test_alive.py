"""Lines that are passed over because nothing can begin in them: what is read of a text is the same as if they were looked at."""

from __future__ import annotations

import random
import re

import pytest

from gpudoctor.read import alive as module
from gpudoctor.read.alive import Alive, alive, anywhere
from gpudoctor.read.recognise import Recogniser, _telling
from gpudoctor.read.table import compiled
from tests.support import FIXTURES

FILES = sorted(p for p in (FIXTURES / "outputs").glob("*/*") if p.suffix in (".txt", ".log") and p.stat().st_size < 40_000)
TOKENS = [token for how in compiled() for token in how.format.tokens]
MARKS = ("", "", "", "> ", "12: ", "[stdout] ", "node07: ", "[rank3]: ", "# ", "| ", "  ", "INFO ", "2026-01-01 00:00:00 ", "[0]df ", "user@node07:~$ ")


def read(text: bytes) -> list[object]:
    found = Recogniser("t").run([text[n : n + 8192] for n in range(0, len(text), 8192)])
    return [(s.kind, s.host, s.command, s.lines) for s in found if s.kind != "nccl-log"]


def text_of(pick: random.Random) -> bytes:
    out: list[str] = []
    for _ in range(pick.randrange(2, 6)):
        lines = pick.choice(FILES).read_text(errors="replace").splitlines()
        at = pick.randrange(max(1, len(lines) - 3))
        mark = pick.choice(MARKS)
        out += (mark + line for line in lines[at : at + pick.randrange(1, 40)])
        for _ in range(pick.randrange(30)):
            words = [pick.choice(TOKENS) if pick.random() < 0.3 else pick.choice(("step", "GPU3", "x", "7", "loader", "nvidia-smi -L", "df", "env", "=", ":", "1.5")) for _ in range(6)]
            out.append(pick.choice(MARKS) + " ".join(words))
    return "\n".join(out).encode() + b"\n"


@pytest.mark.parametrize("seed", range(3))
def test_the_same_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(seed)
    texts = [text_of(pick) for _ in range(40)]
    with_it = [read(text) for text in texts]
    passed = []

    def always(self: Alive, line: bytes, at: int = 0) -> bool:
        passed.append(not judged(self, line, at))
        return True

    judged = Alive.may_begin
    monkeypatch.setattr(Alive, "may_begin", always)
    alive.cache_clear()
    assert with_it == [read(text) for text in texts]
    assert 50 < sum(passed) < len(passed)  # some were passed over, some not
    alive.cache_clear()


def test_an_expression_for_any_place_matches_what_it_matches_at_an_end() -> None:
    lines = [line[:200] for path in FILES for line in path.read_text(errors="replace").splitlines()[:20]]
    for how in compiled():
        if module._ANYTHING.search(how.format.starts):
            continue
        there = re.compile(anywhere(how.format.starts))
        for line in lines[:: max(1, len(lines) // 300)]:
            if there.search("x " + line) is None:
                assert not any(how.starts.search(line[k:]) for k in range(0, len(line), 3)), (how.format.kind, line)


def test_what_holds_a_word_and_nothing_else_is_passed_over() -> None:
    asked = alive(_telling())
    assert not asked.may_begin(b"[loader] GPU1 token processed item to-2991375e82 in 0.513 ms")
    for line in (b"x GPU0 GPU1 CPU Affinity", b"node07: GPU1 NV12 X", b'"GPU1"', b"GPU1 | token", b"GPU1 \x1b[0m", b"GPU1 df", b"[0]df GPU1 of it", b"user@node07:~$ GPU1"):
        assert asked.may_begin(line), line
