"""Bytes to clean lines: encodings, line ends, escapes, prefixes, long lines, and passing over what does not matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.read.text import MAX_JSON, MAX_LINE, Passing, clean, encoding_of, label_of, lines_of, strip_prefixes


def texts(*chunks: bytes) -> list[str]:
    return [line.text for line in lines_of(chunks)]


def test_line_numbers_and_the_cut_last_line():
    lines = list(lines_of([b"one\n\nthree\nfo", b"ur"]))
    assert [(x.number, x.text, x.cut) for x in lines] == [(1, "one", False), (2, "", False), (3, "three", False), (4, "four", True)]
    assert not any(x.cut for x in lines_of([b"one\ntwo\n"]))


def test_nothing_gives_no_line():
    assert texts() == texts(b"") == texts(b"", b"") == []


def test_chunks_may_break_anywhere():
    data = "größe α\r\nzwei\n".encode()
    for at in range(len(data)):
        assert texts(data[:at], data[at:]) == ["größe α", "zwei"]


def test_windows_line_ends_and_progress_bars():
    lines = list(lines_of([b"one\r\n10%\r20%\r100%\r\nlast\n"]))
    assert [(x.number, x.text) for x in lines] == [(1, "one"), (2, "10%"), (2, "20%"), (2, "100%"), (3, "last")]
    assert texts(b"old\rmac\rend\r") == ["old", "mac", "end"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings(encoding):
    text = "GPU0\tGPU1\nNV18 and Größe\nend\n"
    data = text.encode(encoding)
    assert texts(data) == text.splitlines()
    assert texts(data[:11], data[11:]) == text.splitlines()


def test_encoding_of_short_and_binary_heads():
    assert encoding_of(b"ab") == "utf-8"
    assert encoding_of(b"\xff\xfea\x00") == "utf-16"
    assert encoding_of(b"\x7fELF\x02\x01\x01\x07 some text that is no UTF-16 at all") == "utf-8"


def test_undecodable_bytes_are_replaced_and_nothing_raises():
    assert texts(b"ok \xff\xfe\x80 end\n") == ["ok \ufffd\ufffd\ufffd end"]
    assert len(texts(bytes(range(256)) * 40)) > 1


@given(st.lists(st.text(st.sampled_from("ab \t\r\x7f\x1b[0m:"), max_size=8), max_size=6))
def test_plain_ascii_is_read_at_once_as_it_is_line_by_line(lines):
    raw = "".join(f"{line}\n" for line in lines).encode()
    by_line = list(lines_of([raw + "é\n".encode()]))  # one letter beyond ASCII, and every line is looked at by itself
    assert list(lines_of([raw])) == by_line[:-1]
    assert by_line[-1].text == "é"


@given(st.text(max_size=20))
def test_what_is_printable_holds_nothing_to_clean(text):
    assert clean(text) == clean(text + "\u2060")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[4mGPU0\tGPU1\x1b[0m", "GPU0\tGPU1"),
        ("\x1b]0;title\x07text", "text"),
        ("a\x00b\x08c", "abc"),
        ("\u202eevil\u202c", "evil"),
        ("\x9b31mred", "red"),
        ("\x1b[1mGPU0\x1b(B\x1b[m\tGPU1", "GPU0\tGPU1"),  # of `tput`
    ],
)
def test_escapes_and_control_characters_go(raw, shown):
    assert clean(raw) == shown


@pytest.mark.parametrize("chunk", [7, 600, 100_000])
def test_a_log_that_was_emptied_while_it_is_written_begins_with_zeros(chunk):
    """Its writer goes on where it was; so many zeros are no UTF-16."""
    raw = bytes(30_001) + b"first line\n" + b"some more text\n" * 100 + bytes(999) + b"then\n" + bytes(5) + b"last\n"
    found = list(lines_of(raw[at : at + chunk] for at in range(0, len(raw), chunk)))
    assert [found[n].text for n in (0, 1, -2, -1)] == ["first line", "some more text", "then", "last"]
    for order in ("utf-16-le", "utf-16-be"):
        assert [line.text for line in lines_of([bytes(0), "GPU0\tGPU1\n".encode(order)])] == ["GPU0\tGPU1"]


def test_a_line_that_does_not_end_is_kept_at_its_head():
    chunks = [b"head " + b"x" * 1_000_000] + [b"y" * 1_000_000] * 9 + [b"tail\nnext\n"]
    long, following = lines_of(chunks)
    assert (long.text[:6], len(long.text), long.cut) == ("head x", MAX_LINE, True)
    assert (following.text, following.number, following.cut) == ("next", 2, False)


def test_a_childs_json_line_may_be_long():
    line = b'{"probe": "gpudoctor.pci", "x": "' + b"a" * 1_500_000 + b'"}\n'
    (got,) = lines_of([line[:1_000_000], line[1_000_000:]])
    assert (len(got.text), got.cut) == (len(line) - 1, False)
    (got,) = lines_of([b'{"probe": "gpudoctor.pci", ', b"b" * (2 * MAX_JSON), b"\n"])
    assert (len(got.text), got.cut) == (MAX_JSON, True)


class Only(Passing):
    """Marks every `!`; wants everything from a line with BEGIN to one with END."""

    def __init__(self) -> None:
        self.inside = False

    def marks(self, chunk):
        return [n for n, byte in enumerate(chunk) if byte == ord("!")]

    def busy(self):
        return self.inside


def test_passing_shows_marked_lines_those_before_and_all_while_busy():
    rows = [b"row %d" % n for n in range(100)]
    rows[40] += b" !BEGIN"
    rows[47] += b" END"
    rows[90] += b" !"
    passing, shown = Only(), []
    for line in lines_of([b"\n".join(rows[:45]) + b"\n", b"\n".join(rows[45:]) + b"\n"], passing):
        shown.append(line.number - 1)
        assert line.text == rows[line.number - 1].decode()
        passing.inside = (passing.inside or "BEGIN" in line.text) and "END" not in line.text
    assert shown == [*range(32, 48), *range(82, 91)]


@pytest.mark.parametrize(
    "prefix",
    [
        "> ", ">> ", "> > ", "[1,0]<stdout>:", "[1,12]<stderr>: ", "[node-1:1,0]<stdout>:", "[rank0]: ", "[rank12]:", "[default0]:",
        "(Worker pid=1) ", "(RayWorkerWrapper pid=123, ip=10.0.0.1) ", "(VllmWorker rank=3 pid=77) ", "(EngineCore_0 pid=9) ",
        "2025-01-02T03:04:05.123456789Z ", "2025-01-02 03:04:05,123 ", "2025-01-02T03:04:05+01:00 ",
        "2025-01-02T03:04:05.1Z stdout F ", "> [rank0]: ",
    ],
)  # fmt: skip
def test_prefixes_of_launchers_and_logs(prefix):
    assert strip_prefixes(prefix + "\tGPU0\tGPU1") in ("\tGPU0\tGPU1", "GPU0\tGPU1")


@pytest.mark.parametrize("text", ["GPU0\t X \tNV18", "(no pid here) text", "[1] 4242", "2025-01-02 is a date", "0000:41:00.0 VGA", "[pip3] torch==2.6.0"])
def test_content_that_only_looks_like_a_prefix(text):
    assert strip_prefixes(text) == text


def test_labels():
    assert label_of("node07: GPU0\tGPU1") == ("node07", "GPU0\tGPU1")
    assert label_of(" 0: \tGPU0") == ("0", "\tGPU0")
    assert label_of("3:") == ("3", "")
    assert label_of("0000:41:00.0 VGA") is None
    assert label_of("no label") is None


def test_a_scripts_word_for_a_device_is_no_hosts_label() -> None:
    assert label_of("Card: 01:00.0 VGA") is None and label_of("GPU: 01:00.0 VGA") is None
    assert label_of("gpu01: GPU0\tGPU1") == ("gpu01", "GPU0\tGPU1")
