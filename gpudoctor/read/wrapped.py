"""What is put around a line of NCCL's by those who collect, export and quote it, taken off before anything is read.

A prefix harms nothing, but NCCL's values end where its line does: behind `NCCL_P2P_DISABLE set by environment to 1` what
follows would be part of the value. So JSON, CSV, HTML, Markdown, and what Ray says at the end of a line go. As many lines are
left as there were: messages that stood in one line are parted by carriage returns, as a progress bar's are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.pattern import lazy
from gpudoctor.read.nccl_line import INFO, MARK

# What gives it away that there is something to take off. One byte is found in a whole chunk at no cost, words are not: of
# those whose byte every log has, some lines at the beginning and at the end are asked.
_TELLS = ((b'"', b'"'), (b"&", b"&"), (b"`", b"`"), (b"\\", b"\\"), (b"*", b"**"), (b"^", b"^[["), (b"#", b"#033["))
_TELLS_OF_ALL = (b"</", b"<br", b"',\n", b"[0m", b"Z,", b" |\n")
_REPEATS = b" across cluster]"
_SAMPLE = 4096  # bytes
_WIDE_TELLS = (b"\xe2\x86\x92", b"\xe2\x80\x93>", b"\xe2\x80\x94>", b"\xe2\x94\x82\n")
_LINE_END = b"\\n"
_MORE = lazy(rb"[\n\"'\\]")
_MAX_LEVELS = 3  # JSON within JSON, entities of entities
_MAX_WRAPPED = 1 << 20  # bytes of a line
_MAX_MERGED = 1 << 14  # the same of a string of CSV that has quotation marks in it

_OWN = lazy(rb"NCCL (?:INFO |WARN |ATTN |DIAG |ABORT |CALL |TRACE |version \d)")
# A string, or an escape outside of one: then no quotation mark of it begins a string.
_STRINGS = lazy(rb'\\.|"([^"\\\n]*(?:\\.[^"\\\n]*)*)"')
# The message of a line of JSON, as most collectors write it.
_ONE = lazy(rb'"(?:log|msg|message|MESSAGE|textPayload)"\s{0,4}:\s{0,4}"([^"\\\n]*(?:\\.[^"\\\n]*)*)"\s{0,4}[,}]')
# The same where NCCL is named nowhere else in the line: all lines of a chunk at once.
_SIMPLE = lazy(
    rb'^\{[^\r\n"N]*(?:(?:N(?!CCL )|"(?!(?:log|msg|message|MESSAGE|textPayload)"))[^\r\n"N]*)*'
    rb'"(?:log|msg|message|MESSAGE|textPayload)"[ \t]{0,4}:[ \t]{0,4}"(?![ \t]{0,16}[\[(]?[ \t]?[ub]?\')([^"\\\r\nN]*(?:(?:N(?!CCL )|\\[^\r\n])[^"\\\r\nN]*)*'
    rb'NCCL [^"\\\r\n]*(?:\\[^\r\n][^"\\\r\n]*)*)"[ \t]{0,4}[,}][^\r\nN]*(?:N(?!CCL )[^\r\nN]*)*(?=\r?\n)',
    re.M,
)
# What `_plain` may take off.
_MARKED = lazy(rb"[&<\\^#,|*`]|\[0?m|_$|across|[^\x00-\x7f]")
_KEY = lazy(rb'"(?:log|msg|message|MESSAGE|text|line|content|textPayload|body)"\s{0,4}(?::|=>)\s{0,4}$')
_OPENS = b" \t:,[{(=>"
_CLOSES = b" \t\r,}])"
_LISTED = lazy(rb"^(\s{0,16}[\[(]?\s?[ub]?)'((?:[^'\\\n]|\\.)*)'[\])]?,?\s{0,4}$")
_ESCAPED = lazy(rb'\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))')
_LETTERS = {b"n": b"\n", b"r": b"", b"t": b"\t", b"b": b"", b"f": b""}
_USUAL = ((rb"\u001b", b"\x1b"), (rb"\n", b"\n"), (rb"\"", b'"'), (rb"\t", b"\t"), (rb"\/", b"/"), (rb"\r", b""))
_ENTITY = lazy(rb"&(?:(lt|gt|amp|quot|apos|nbsp)|#(\d{1,5})|#[xX]([0-9a-fA-F]{1,4}));")
_NAMED = {b"lt": b"<", b"gt": b">", b"amp": b"&", b"quot": b'"', b"apos": b"'", b"nbsp": b" "}
_TAG = lazy(rb"</?(?:t[drh]|table|tbody|thead|p|br|pre|code|li|ul|ol|div|span|b|strong|em|i|font|a|samp|tt|html|body)(?:\s[^<>\n]{0,200})?/?>", re.I)
# Colours whose escape character was lost, or written out by a program that shows control characters.
_SPENT = lazy(rb"(?:\^\[|#033|\\x1b|\\u001b|\\033|\\e|\xe2\x90\x9b)\[[\d;]{0,12}[mK]|(?<!\x1b)\[(?:(?:[0147]|[349]\d|\d{1,3}(?:;\d{1,3}){1,4})m|m(?![a-z]))")
_REPEATED = lazy(rb"(?:\x1b?\[\d{0,3}m)? ?\[repeated \d{1,9}x across cluster\][^\n]*")
_ARROW = lazy(rb"(?:\xe2\x86\x92|\xe2\x80[\x93\x94]>)")
_TABLE_END = lazy(rb",\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\w.:+]{0,20}(?:,[\w./:-]{0,80}){0,16}$")
_BOXES = (b"\xe2\x94\x82", b"\xe2\x94\x83")  # the right side of a frame that a terminal program draws
_EMPHASIS = lazy(rb"(\*{1,3}|`{1,2}|_{2})$")


def unwrapped(chunk: bytes, held: bytes) -> bytes:
    """A text that names NCCL, whole lines or a piece of one, without what stands around NCCL's.

    held: which odd bytes stand in it (gpudoctor.read.compiled.present).
    """
    done_with: set[int] = set()
    if b'"' in held and b'{"' in chunk:
        chunk, done_with = _at_once(chunk)
    begins = _telling(chunk, held) - done_with
    if not begins:
        return chunk
    parts: list[bytes] = []
    done = 0
    for begin in sorted(begins):
        end = chunk.find(b"\n", begin)
        end = len(chunk) if end < 0 else end
        if end - begin > _MAX_WRAPPED:
            continue
        line = chunk[begin:end]
        ending = b"\r" if line.endswith(b"\r") else b""
        bare = _bare(line[: len(line) - len(ending)])
        parts += (chunk[done:begin], bare, ending)
        done = end
    return b"".join((*parts, chunk[done:]))


def _at_once(chunk: bytes) -> tuple[bytes, set[int]]:
    """The chunk with its lines of JSON unwrapped, and where these begin in it: nothing is left to be done of them."""
    parts: list[bytes] = []
    begins: set[int] = set()
    done = size = 0
    for found in _SIMPLE.finditer(chunk):
        text = _message(found)
        if text is not None:
            before = chunk[done : found.start()]
            size += len(before)
            begins.add(size)
            size += len(text)
            parts += (before, text)
            done = found.end()
    return (b"".join((*parts, chunk[done:])), begins) if parts else (chunk, begins)


def _message(found: re.Match[bytes]) -> bytes | None:
    """Of one line; None where there is more to do."""
    text = found[1]
    escape = text.find(b"\\")
    if escape >= 0 and escape == len(text) - len(_LINE_END) and text.endswith(_LINE_END):
        text = text[:escape]
    elif escape >= 0:
        text = _unescaped(text).strip(b"\n")
        if _MORE.search(text) is not None or MARK not in text:
            return None
    return _plain(text)


def _telling(chunk: bytes, held: bytes) -> set[int]:
    """Where the lines begin that name NCCL and may have something around them."""
    begins: set[int] = set()
    tells = [tell for byte, tell in _TELLS if byte in held]
    sample = chunk[: 2 * _SAMPLE] + chunk[-_SAMPLE:] if len(chunk) > 3 * _SAMPLE else chunk
    tells += (tell for tell in _TELLS_OF_ALL if tell in sample)
    if b"pid=" in sample:
        tells.append(_REPEATS)
    if b"\xff" in held:
        tells += _WIDE_TELLS
    if b"\r" in held and chunk.count(b"\r") != chunk.count(b"\r\n"):
        tells.append(b"\r")
    for tell in tells:
        at = chunk.find(tell)
        while at >= 0:
            begin = chunk.rfind(b"\n", 0, at) + 1
            end = chunk.find(b"\n", at)
            end = len(chunk) if end < 0 else end
            if begin not in begins and chunk.find(MARK, begin, end) >= 0:
                begins.add(begin)
            at = chunk.find(tell, end)
    return begins


def _bare(line: bytes) -> bytes:
    """One line; several messages of it are parted by carriage returns."""
    texts = [line]
    for _ in range(_MAX_LEVELS):
        if not any(b'"' in text or b"'" in text for text in texts):
            break
        inner = [message for text in texts for message in _messages(text)]
        if inner == texts:
            break
        texts = inner
    texts = [_plain(part) for text in texts for part in text.split(b"\r") if part]
    if len(texts) == 1:
        return texts[0]
    # It begins with nothing that is passed over, so that it is looked at whatever its first message is.
    return b"\r".join((INFO, *texts)) if sum(MARK in text for text in texts) > 1 else b"\r".join(texts)


def _messages(text: bytes) -> Iterator[bytes]:
    """The messages within a line of JSON, CSV or a list; the line itself where it is none."""
    one = _ONE.search(text) if text.startswith(b"{") else None
    if one is not None and MARK in one[1] and text.count(MARK) == one[1].count(MARK):
        yield from (part for part in _unescaped(one[1]).split(b"\n") if part)
        return
    found = []
    end = 0
    if b'"' in text:
        for begin, end, value in _strings(text):
            if begin > 0 and text[begin - 1] not in _OPENS or end < len(text) and text[end] not in _CLOSES:
                continue
            if MARK in value and _OWN.search(value) or _KEY.search(text, max(0, begin - 40), begin):
                found.append((begin, end, value))
    listed = _LISTED.match(text) if not found and b"'" in text else None
    if listed is not None and _OWN.search(listed[2]):
        found.append((0, len(text), listed[2]))
    if not any(MARK in value for _, _, value in found):
        yield text
        return
    for _, _, value in found:
        yield from (part for part in _unescaped(value).split(b"\n") if part)
    if len(found) > 1:
        yield text[found[-1][1] :] or b" "  # the last message has its end


def _strings(text: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Strings in quotation marks, with what stands within; CSV doubles a mark that is part of one."""
    held: tuple[int, int, bytes] | None = None
    for found in _STRINGS.finditer(text):
        if found[1] is None:
            continue
        if held is not None and held[1] == found.start() and len(held[2]) < _MAX_MERGED:
            held = (held[0], found.end(), held[2] + b'"' + found[1])
            continue
        if held is not None:
            yield held
        held = (found.start(), found.end(), found[1])
    if held is not None:
        yield held


def _unescaped(value: bytes) -> bytes:
    if b"\\" not in value:
        return value
    if b"\\\\" not in value:  # each escape stands by itself: the usual ones go at once
        short = value
        for escape, meant in _USUAL:
            short = short.replace(escape, meant)
        if b"\\" not in short:
            return short
    return _ESCAPED.sub(_character, value)


def _character(found: re.Match[bytes]) -> bytes:
    if found[3] is not None:
        return _LETTERS.get(found[3], found[3])
    return chr(int(found[1] or found[2], 16)).encode("utf-8", "replace")


def _plain(text: bytes) -> bytes:
    """A line of text without markup."""
    if MARK not in text or _MARKED.search(text) is None:
        return text
    for _ in range(_MAX_LEVELS):
        if b"&" not in text or _ENTITY.search(text) is None:
            break
        text = _ENTITY.sub(_meant, text)
    if b"<" in text:
        text = _TAG.sub(b"", text)
    if b"[0m" in text or b"[m" in text or b"^[[" in text or b"#033[" in text or b"\\" in text:
        text = _SPENT.sub(b"", text)
    if b" across cluster]" in text:
        text = _REPEATED.sub(b"", text)
    before = text[: text.find(MARK)]
    if not text.isascii():
        text = _ARROW.sub(b"->", text)
        if b"\xe2\x94" in before and text.rstrip(b" ").endswith(_BOXES):
            text = text.rstrip(b" ")[: -len(_BOXES[0])].rstrip(b" ")
    if b"," in before:
        text = _TABLE_END.sub(b"", text)
    if before.lstrip().startswith(b"|") and text.rstrip().endswith(b"|"):  # a row of a Markdown table
        text = text.rstrip()[:-1].rstrip()
    ending = _EMPHASIS.search(text)
    if ending is not None and ending[1] in before:
        text = text[: ending.start()]
    return text[:-1] if text.endswith(b"\\") else text


def _meant(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return _NAMED[found[1]]
    number = int(found[2]) if found[2] else int(found[3], 16)
    return chr(number).encode("utf-8", "replace") if number >= 32 else b""
