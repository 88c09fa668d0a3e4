"""The compiled walk through a chunk's lines does what Python's does: the same cuts, the same lines left, the same remembered."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpudoctor.parsers import nccl_figures, nccl_pair
from gpudoctor.read import nccl_cut
from gpudoctor.read.compiled import communicator, memory, present, timings
from gpudoctor.read.nccl_cut import Cutter, Cutting
from gpudoctor.read.nccl_line import joined
from gpudoctor.read.shapes import Shapes
from tests.prop.test_nccl_fast import OF_NCCL, OF_OTHERS, PREFIXES

walk = nccl_cut.walk
compiled = pytest.mark.skipif(walk is None, reason="not compiled here (no C compiler, or GPUDOCTOR_PURE was set)")
# Words that mean something to the walk, so that chance puts them together at every border.
WORDS = [
    b"NCCL ", b"NCCL INFO ", b"NCCL WARN ", b" via ", b"Channel 00/0", b"Channel 00/24 : 0 1", b"Ring ", b" 7 : 0 -> 1 -> 2", b"comm 0x7f rank 1 nranks 2 ",
    b"ncclCommInitRank comm 0x7f", b"rank ", b"AllReduce: opCount 1 ", b"AllReduce: 64 Bytes -> Algo 1 proto 2", b"Scatter |", b"64 Bytes -> Algo 1",
    b"Connected all rings", b"Trees [0]", b"h:1:2 [0] ", b"h:1:3 [0] ", b"node:77:78 [1] ", b"P2P/IPC", b"SHM/direct", b"/direct", b"\r", b"\0", b"\xff\xfe", b"1", b"23",
    b"x" * 130, b"9" * 1020, b"y" * 1030, b"",
]  # fmt: skip
# Few threads that say few things again and again, between them of which communicator: what is remembered must be forgotten in time.
HEADS = [b"h:1:2 [0] ", b"h:1:3 [0] ", b"node:1:9 [1] ", b"node:77:78 [1] ", b"no process ", b"NCCL h:1:2 [0] "]
SAID = [
    *(b"Channel %02d/0 : 0[0] -> %d[1] via %s" % (channel, peer, via) for channel in (0, 1) for peer in (1, 2) for via in (b"P2P/IPC", b"SHM/direct")),
    b"Channel 00/24 : 0 1", b"Ring 00 : 0 -> 1 -> 2", b"comm 0x7f rank 1 nranks 2 x", b"ncclCommInitRank comm 0x7f rank 1", b"Trees [0] 1/-1/-1->0->-1",
    b"comm 0x7f rank 0 nranks 2\r", b"Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\rh:1:3 [0] NCCL INFO comm 0x7f rank 1",
]  # fmt: skip


def text_of(*lines: tuple[bytes, bytes]) -> bytes:
    return b"".join(head + b"NCCL INFO " + said + b"\n" for head, said in lines)


TWICE = [(HEADS[1], SAID[0])] * 2  # remembered, and the second time known
again = st.tuples(st.sampled_from(HEADS), st.sampled_from(SAID)).map(b"NCCL INFO ".join)
line = st.one_of(
    again,
    again,
    st.lists(st.sampled_from(WORDS), max_size=7).map(b"".join),
    st.tuples(st.sampled_from(PREFIXES), st.sampled_from([*OF_NCCL, *OF_OTHERS])).map(lambda both: "".join(both).encode()),
    st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")),
)
chunk = st.lists(line, max_size=40).map(lambda lines: b"".join(line + b"\n" for line in lines))


def in_python(cutter: Cutter, text: bytes) -> Cutting:
    found = cutter._many(text, look_for_broken=True)
    if found is None:
        cutter.forget()
        found = cutter._many(joined(text), look_for_broken=False)
        assert found is not None
    if cutter._odd:
        cutter._odd = False
        nccl_cut._cut_at_first_mark(found.cuts)
    if cutter._room < 0:
        cutter.forget()
    return found


def left(found: Cutting, shapes: Shapes) -> list[tuple[bytes, int]]:
    """Of Python's lines those that the compiled walk does not leave out."""
    dull, numbered = shapes.dull
    assert found.others is not None
    return [
        (line, number)
        for line, number in zip(found.others, found.numbers, strict=True)
        if nccl_cut.MARK in line or len(line) > 1024 or (line.translate(None, b"0123456789") not in dull and not shapes.is_passed_over(line))
    ]


@compiled
@settings(max_examples=300, deadline=None)
@given(st.lists(chunk, min_size=1, max_size=4), st.lists(line, max_size=6), st.lists(line, max_size=3), st.sampled_from([100_000, 100_000, 12, 2]), st.sampled_from([-1, -1, 200, 1 << 17]))
@example([b"x" * 130 + b"h:1:2 [0] NCCL INFO Ring 00\rh:1:3 [1] NCCL INFO comm 0x1\n"], [], [], 100_000, -1)
@example([text_of(*((head, said) for said in SAID * 3 for head in HEADS))], [], [], 100_000, -1)
@example([text_of(*TWICE, *TWICE, (HEADS[0], SAID[-2]), *TWICE)], [], [], 100_000, -1)
@example([text_of(*TWICE, *TWICE, (HEADS[2], SAID[-1]), *TWICE)], [], [], 100_000, -1)
@example([text_of(*((head, SAID[0]) for head in HEADS[:4] for _ in TWICE), *TWICE)], [], [], 2, -1)
def test_as_python_does(chunks: list[bytes], dull: list[bytes], passed: list[bytes], most: int, worth: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nccl_cut, "_MAX_TOLD", most)
        patch.setattr(nccl_cut, "_WORTH", worth)
        as_python_does(chunks, dull, passed)


def as_python_does(chunks: list[bytes], dull: list[bytes], passed: list[bytes]) -> None:
    shapes = Shapes(nccl_cut._PID, nccl_cut._PID)
    shapes.dull[0].update(line.translate(None, b"0123456789") for line in dull)
    for line in passed:
        shapes.pass_over(line)
    ours, theirs = Cutter(), Cutter()
    for text in (*chunks, *chunks):
        one, other = ours.cut(text, shapes.dull), in_python(theirs, text)
        assert one.cuts == other.cuts
        assert one.lines == other.lines == text.count(b"\n")
        assert one.others is not None and one.places is not None
        assert list(zip(one.others, one.numbers, strict=True)) == left(other, shapes)
        assert [one.text[at : at + len(line) + 1] for at, line in zip(one.places, one.others, strict=True)] == [line + b"\n" for line in one.others]
        assert (ours._told, ours._sizes, ours._called, ours.run_into) == (theirs._told, theirs._sizes, theirs._called, theirs.run_into)
        assert ours._room == theirs._room


@compiled
@pytest.mark.parametrize("held", [memory, lambda: None])
def test_what_it_cannot_use_is_an_error_and_what_is_called_may_fail(held: Callable[[], object]) -> None:
    none: frozenset[bytes] = frozenset()

    def failing(*what: object) -> None:
        raise LookupError(what)

    def run(text: object, told: object, fellows: object, thread: object, asked: object = frozenset((b"Ring ",))) -> object:
        sets = (told, fellows, none, none, asked, frozenset((b"comm ",)), set(), set())
        return walk(held(), text, True, [], *sets, thread, failing, failing, [], 120)  # type: ignore[arg-type]

    with pytest.raises(TypeError):
        run("text", {}, {}, failing)
    with pytest.raises(TypeError):
        run(b"text\n", [], {}, failing)
    with pytest.raises(LookupError):
        run(b"h NCCL INFO anything\n", {}, {}, failing)
    with pytest.raises(LookupError):
        run(b"h NCCL INFO Ring 00\n", {b"h ": set()}, {}, failing)
    with pytest.raises((TypeError, SystemError)):
        run(b"h NCCL INFO Ring 00\n", {b"h ": 7}, {}, failing)
    for odd in (7, [7], [frozenset()], [set(), None]):
        with pytest.raises((TypeError, SystemError)):
            run(b"h NCCL INFO comm 0x1\n", {b"h ": set()}, {b"h ": odd}, failing)
    with pytest.raises((TypeError, SystemError)):  # what a thread told is a set
        run(b"h NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n", {}, {}, lambda head: [], frozenset((b"Chann",)))
    assert run(b"no line end", {}, {}, failing) == ([], [], [], 0, 0)
    assert run(b"", {}, {}, failing) == ([], [], [], 0, 0)


@compiled
@given(st.one_of(st.binary(max_size=300), st.text().map(str.encode), st.sampled_from(OF_OTHERS).map(str.encode)), st.binary(min_size=1, max_size=12))
def test_bytes_that_are_present(text: bytes, wanted: bytes) -> None:
    found = bytes(byte for byte in wanted if byte in text)
    assert present(text, wanted) == (found if text.isascii() else found + b"\xff")


def test_it_is_compiled_where_it_can_be() -> None:
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if not (shutil.which("cc") or shutil.which("gcc")) or not header.exists():
        pytest.skip("no C compiler, or no headers of this Python")
    if not Path(nccl_cut.__file__).with_name("_lines.c").exists():
        pytest.skip("installed from the wheel for every machine")
    assert walk is not None, "run `pip install --editable .` once more"


NUMBERS = st.one_of(st.integers(0, 4096).map(str), st.sampled_from(["", "-1", "007", "9" * 18, "9" * 19, "1x", "0x1", " 1"]))
HEX = st.one_of(st.integers(0, 1 << 62).map("{:x}".format), st.sampled_from(["", "AB", "0x", "1 2", "g", "f" * 300]))
ENDS = st.sampled_from(["\n", "\r\n", "", " \n", "\r", "\n\n", "x\n", "\r\r\n"])
FORMS = [
    ("{0} comm 0x{4} rank {1} nranks {2} cudaDev {3} nvmlDev {1} busId {5} commId 0x{6} - Init {7}{8}", ("START", "COMPLETE", "STARTCOMPLETE", "")),
    ("comm 0x{4} rank {1} nRanks {2} nNodes {3} localRanks {1} localRank {2} MNNVL {7}{8}", ("0", "1", "", "-1")),
    ("{0} comm 0x{4} rank {1} nranks {2} cudaDev {3} busId {5} - Init {7}{8}", ("START", "COMPLETE")),
    ("Init timings - {0}: rank {1} nranks {2} total {3}.{1} (kernels {7}, alloc {5}){8}", ("0.33", "\xff", ")", "0.1\r")),
    ("Init timings: rank {1} nranks {2} total {3} ({7}{8}", ("a)", "", "b\n)")),
]


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Of a communicator or of how long its start took: whole, or with some word that no release prints, or cut."""
    form, words = draw(st.sampled_from(FORMS))
    name = draw(st.sampled_from(["ncclCommInitRank", "ncclCommInitRankConfig", "", "a b", "ncclCommSplit"]))
    values = [name, *(draw(NUMBERS) for _ in range(3)), *(draw(HEX) for _ in range(3)), draw(st.sampled_from(words)), draw(ENDS)]
    text = form.format(*values).encode("latin-1")
    return text[: draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))]


@compiled
@settings(max_examples=600)
@given(messages())
@example(b"ncclCommInitRank comm 0x7f rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 3b000 commId 0xab - Init START\n")
@example(b"comm 0x7f rank 1 nRanks 2 nNodes 1 localRanks 2 localRank 1 MNNVL 0\r\n")
@example(b"Init timings - ncclCommInitRank: rank 1 nranks 2 total 0.26 (kernels 0.20, alloc 0.02)\n")
def test_messages_as_the_expressions_read_them(message: bytes) -> None:
    one, told = communicator(message), timings(message)
    assert one is None or one == nccl_pair._named(message)
    assert told is None or told == nccl_figures._timings_of(message)
    # What nearly every line is must not be left to the expressions.
    whole = nccl_pair._INIT.fullmatch(message) or nccl_pair._NODES.fullmatch(message)
    assert one is not None or whole is None or any(len(word) > 18 for word in message.split() if word.isdigit())
    for other in (message[3:], message + b"x", b""):
        assert communicator(other) in (None, nccl_pair._named(other))


@compiled
def test_no_message() -> None:
    for odd in (None, "comm 0x7f rank 1", 7):
        for reads in (communicator, timings):
            with pytest.raises(TypeError):
                reads(odd)  # type: ignore[arg-type]
