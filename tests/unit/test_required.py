"""Words without which an expression cannot match are asked for first; and a message that differs in digits only is judged the same."""

from __future__ import annotations

import re

import pytest

from gpudoctor.nccl_messages import classify, classify_again, families
from gpudoctor.required import required
from tests.support import FIXTURES


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("out of memory", ("out of memory",)),
        (r"(?:first thing|second \w+ thing)", ("first thing", "second ")),
        (r"Got completion (?:from )?peer \d+|status=\d+", ("Got completion ", "status=")),
        (r"\bfile\.cc:\d+ \[x\]y{2,3}zzzz+?", ("file.cc:",)),
        (r"abcde?f|gh[|)]ijkl", ("abcd", "ijkl")),
        (r"[]|]four(?<!a|b)", ("four",)),
        (r"(?i:four)five", None),
        (r"longer|(?:a|b)+", None),
        (r"abc", None),
        (r"(?:ab){2}|(?:cd)", None),
        (r"words*|more\n", ("word", "more")),
    ],
)
def test_words_that_must_stand_there(pattern: str, words: tuple[str, ...] | None) -> None:
    re.compile(pattern)
    assert required(pattern) == words


def _texts() -> list[str]:
    logs = [path.read_text(errors="replace") for folder in ("job-log", "nccl-log") for path in sorted((FIXTURES / "outputs" / folder).glob("*")) if path.is_file()]
    lines = {line.partition("NCCL WARN ")[2] or line[-400:] for log in logs for line in log.splitlines() if "WARN" in line or "rror" in line}
    return [f.example + "\n" for f in families()] + [line + "\n" for line in sorted(lines)[:1500]]


def test_no_family_loses_a_message_by_them() -> None:
    texts = _texts()
    asked = 0
    for family in families():
        expression = re.compile(family.pattern)
        words = required(family.pattern)
        asked += words is not None
        for text in texts:
            assert words is None or expression.search(text) is None or any(word in text for word in words), (family.id, text)
    assert asked > len(families()) // 2


def test_what_differs_in_digits_only_is_judged_as_if_it_came_alone() -> None:
    for text in _texts()[: len(families())]:
        for other in (re.sub("[0-9]", "0", text), re.sub("[0-9]", "7", text), text.replace("1", "2"), text.replace("2", "1")):
            for file in (None, "transport/net_ib.cc", "misc/socket.cc"):
                found = classify(text, file)
                assert classify_again(other, file, found[0] if found is not None else None) == classify(other, file)
