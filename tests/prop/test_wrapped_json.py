"""Lines of JSON that are unwrapped all at once give what they give one by one."""

from __future__ import annotations

import json
import random
import re

import pytest

from gpudoctor.read import wrapped
from gpudoctor.read.compiled import present
from gpudoctor.read.text import _ODD

WORDS = (
    "node7:1:2 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out", "NCCL ",
    "NCCL INFO NCCL_DEBUG set by environment to INFO", "2026-01-01 00:00:00,123 INFO ", "N", "NCC", "step 12", "", "[rank3]: ", "'", '"', "\\", "\t", "\r", "\n", "\r\n",
    "\x1b[33m", "\x1b[0m", "[0m", "&lt;b&gt;", "&amp;", "<br>", "**", "__", "`", "|", ",2026-01-01T00:00:00Z", "[repeated 8x across cluster]", "→", "\u2028", "e\u0301",
    "{}", '{"log": "NCCL INFO x"}', "log", "message", "^[[0m", "\\n", "u'",
)  # fmt: skip
KEYS = ("log", "message", "msg", "MESSAGE", "textPayload", "time", "stream", "NCCL ", "level", "kubernetes", "text")


def line(pick: random.Random) -> bytes:
    def text() -> str:
        return "".join(pick.choice(WORDS[:5] if pick.random() < 0.6 else WORDS) for _ in range(pick.randrange(5)))

    def value() -> object:
        return pick.choice((text, text, text, lambda: pick.randrange(10**6), lambda: None, lambda: {"pod": text(), "log": "y"}, lambda: [text()]))()

    held = {pick.choice(KEYS): value() for _ in range(pick.randrange(1, 5))}
    made = json.dumps(held, ensure_ascii=pick.random() < 0.7, separators=pick.choice(((", ", ": "), (",", ":"))))
    made = made.replace("\u2028", " ")
    if pick.random() < 0.1:
        made = made[: pick.randrange(len(made))]
    return pick.choice((b"", b"", b"", b"> ", b"x ")) + made.encode() + pick.choice((b"\n", b"\n", b"\r\n"))


@pytest.mark.parametrize("seed", range(4))
def test_all_at_once_or_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(seed)
    lines = [line(pick) for _ in range(4000)]
    at_once = [wrapped.unwrapped(text, present(text, _ODD)) for text in lines]
    taken = sum(wrapped._SIMPLE.search(text) is not None for text in lines)
    monkeypatch.setattr(wrapped, "_SIMPLE", re.compile(rb"(?!)"))
    one_by_one = [wrapped.unwrapped(text, present(text, _ODD)) for text in lines]
    assert at_once == one_by_one
    assert 100 < taken < 3900, taken  # it was asked of both kinds


def test_what_most_collectors_write_is_taken_at_once() -> None:
    message = r"node7:1:2 [3] \"NCCL\" NCCL INFO comm 0x1 rank 0 nranks 8 \u001b[0m\n"
    for text in (
        '{"time":"2026-01-01T00:00:00Z","stream":"stdout","log":"node7:1:2 [3] NCCL INFO Channel 00/0\\n"}',
        '{"@timestamp": "2026", "kubernetes": {"pod": "p-0", "labels": {"a": "b"}}, "message": "node7:1:2 [3] NCCL INFO Channel 00/0"}',
        f'{{"log":"{message}","level":"NOTICE"}}',
    ):
        assert wrapped._SIMPLE.search(text.encode() + b"\n") is not None
