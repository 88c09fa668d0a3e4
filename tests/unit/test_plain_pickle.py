"""A pickle gives plain data or is refused with the reason; nothing in it ever runs."""

from __future__ import annotations

import builtins
import os
import pickle
import subprocess
from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.parsers import flight_recorder, plain_pickle
from gpudoctor.parsers.plain_pickle import Refused, load
from gpudoctor.read.section import Unparsable
from gpudoctor.read.whole import kind_of, whole
from tests.made_jobs import Job

PLAIN = {
    "text": "ü" * 300,
    "numbers": [0, 1, -1, 255, 70000, -(2**40), 10**30, 2.5, -0.0],
    "nothing": None,
    "flags": (True, False),
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "dicts": {"a": {}, 7: [[]]},
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_of_every_protocol(protocol: int) -> None:
    assert load(pickle.dumps(PLAIN, protocol)) == PLAIN


class Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.how = (function, arguments)

    def __reduce__(self) -> Any:
        return self.how


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "function, argument, named",
    [
        (os.system, "touch {0}", "system"),
        (builtins.eval, "open({0!r}, 'w')", "eval"),
        (builtins.exec, "open({0!r}, 'w')", "exec"),
        (subprocess.check_output, "touch {0}", "check_output"),
        (builtins.getattr, "{0}", "getattr"),
    ],
)
def test_calls_are_refused_and_named(protocol: int, function: Any, argument: str, named: str, tmp_path: Any) -> None:
    mark = str(tmp_path / "ran")
    for value in (Calls(function, argument.format(mark)), {"version": "2.10", "entries": [Calls(function, argument.format(mark))]}):
        with pytest.raises(Refused, match=named):
            load(pickle.dumps(value, protocol))
    assert not os.path.exists(mark)


def global_(module: bytes, name: bytes) -> bytes:
    return b"c" + module + b"\n" + name + b"\n"


@pytest.mark.parametrize(
    "payload",
    [
        global_(b"numpy.core.multiarray", b"_reconstruct") + b"(tR.",
        b"\x80\x02" + global_(b"torch.jit._pickle", b"build_intlist") + b"]\x85R.",
        b"(S'touch /tmp/x'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'true'\no.",  # OBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",  # STACK_GLOBAL
        b"\x80\x04\x8c\x02os\x8c\x06system\x93)\x81.",  # NEWOBJ
        b"\x80\x02\x82\x01.", b"\x80\x02\x83\x01\x00.", b"\x80\x02\x84\x01\x00\x00\x00.",  # extensions
        b"Psomething\n.", b"\x80\x02K\x01Q.",  # persistent ids
        b"\x80\x02}}b.",  # BUILD
        b"\x80\x05\x97.", b"\x80\x05\x97\x98.",  # buffers outside
        b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00x.",  # BYTEARRAY8
        b"\x80\x04\x8f.", b"\x80\x04(\x91.",  # sets
    ],
)  # fmt: skip
def test_every_way_to_more_than_data_is_refused(payload: bytes) -> None:
    with pytest.raises(Refused):
        load(payload)


@pytest.mark.parametrize(
    "bomb, words",
    [
        (b"\x80\x02" + b"]" * 1_200_000 + b".", "lists and dicts"),
        (b"\x80\x02X\xff\xff\xff\x7f", "a text of"),
        (b"\x80\x04\x8d" + b"\xff" * 8, "a text of"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f", "a number of"),
        (b"L" + b"9" * 3000 + b"L\n.", "digits"),
        (b"\x80\x02" + b"(" * 50 + b".", "damaged"),
        (b"\x80\x02}]K\x01s.", "neither text nor number"),
        (b"\x80\x02}" + b")" + b"\x85" * 900_000 + b"K\x01s.", "neither text nor number"),
        (b"\x80\x02r\xff\xff\xff\x7f.", "ends in the middle"),
        (b"\x80\x09.", "protocol 9"),
        (b"\x80\x02(l", "ends in the middle"),
        (b"\x80\x02}(K\x01u.", "damaged"),
        (b"\x80\x02K\x01K\x02a.", "damaged"),
        (b"\x80\x02h\x07.", "damaged"),
        (b"", "ends in the middle"),
    ],
)
def test_bombs_and_damage_are_refused(bomb: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        load(bomb)


def test_a_flood_of_steps_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MAX_STEPS", 1000)
    with pytest.raises(Refused, match="1000 steps"):
        load(b"\x80\x02" + b"N0" * 1000 + b"N.")


def test_a_memo_far_away_takes_no_memory_and_self_reference_no_time() -> None:
    assert load(b"\x80\x02K\x05r\xff\xff\xff\x7f.") == 5
    loop = load(b"\x80\x02]q\x00h\x00a.")
    assert loop[0] is loop
    # Each list holds the one before twice: 2**60 leaves, of which only those that are asked for are looked at.
    doubled = b"\x80\x02]q\x000" + b"(h\x00h\x00lq\x000" * 60 + b"}q\x01X\x07\x00\x00\x00entriesh\x00s."
    section, _ = whole("x", [doubled])
    assert section is not None and not isinstance(section, Loss)
    assert any(isinstance(f, Loss) for f in flight_recorder.parse(section))


def test_refusal_is_told_with_its_reason() -> None:
    data = pickle.dumps({"version": "2.10", "entries": [Calls(os.system, "true")]}, 2)
    section, _ = whole("nccl_trace_rank_0", [data])
    assert section is not None and not isinstance(section, Loss)
    with pytest.raises(Unparsable, match="refused and nothing in it was run: it asks for posix.system"):
        list(flight_recorder.parse(section))


def test_cut_at_every_byte_gives_nothing() -> None:
    data = Job(ranks=2, nodes=1, behind=(1,), seq=3).pickled(0)
    assert load(data)["version"] == "2.10"
    for end in range(len(data)):
        with pytest.raises(Refused):
            load(data[:end])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_recognised_by_content(protocol: int) -> None:
    assert kind_of(pickle.dumps(Job(ranks=2, nodes=1).dump(0), protocol)) == "flight-recorder"


@pytest.mark.parametrize(
    "text",
    [b"0: GPU0\n", b"(base) user@host:~$ ls\n", b"{'a': 1}", b'{"nvml": 1}', b"\x80abc", b"collect\n", b"core\nlog\n", b"[rank0]: x\n", b"", b"]\n", b"(dict)\n"],
)
def test_other_texts_are_not_taken_for_dumps(text: bytes) -> None:
    assert kind_of(text) is None
    section, chunks = whole("x", [text])
    assert section is None and b"".join(chunks) == text
