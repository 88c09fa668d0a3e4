"""What a paste wears: line numbers, diff and comment marks, log prefixes, table borders, quotation marks, HTML.

Each can be content too (`# NCCL_P2P_DISABLE=1` is a setting that is not made), so marks are taken off only where what is
left begins a known block; from there on its lines are read without marks of the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpudoctor.pattern import lazy
from gpudoctor.read.text import clean

Shape = Callable[[str], "str | None"]  # a line without its marks; None: it does not wear them

# Where a `#` or a `-` before the line is more than a mark.
_NEVER_DRESSED = frozenset(("nccl-conf", "ulimit", "df", "lsmod"))
MIN_PIECES = 3  # fewer ends of lines stand in messages of programs too
MAX_MARKS = 4  # of one line: `12: [INFO] + …`

# At most one blank behind a mark belongs to it: what follows may be indented, and the indentation says something.
_MARK = lazy(
    r"""[ \t]{0,8}(?:
        \[?\d{4}[-/]\d\d[-/]\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:[ ]?(?:Z|UTC|[+-]\d\d:?\d\d))?\]?(?:[ ]-[ ]|[,:|]?[ ]?)
      | \d{1,6}(?:\t|[:.)\-][ ]?|[ ]|(?=[|│┃]))                                                # cat -n, grep -n, editors, lists
      | (?:/[\w./@-]{2,160}|(?:[\w@-][\w.@-]{0,64}/){0,8}[\w@-][\w.@-]{0,64}\.(?:txt|log|out|err|md)):(?:\d{1,6}:)?   # grep -r, grep -n with names
      | [|│┃][ ]?
      | [+\-](?![+\-=])[ ]?                                                                    # diff
      | (?:\#{1,6}|/{2,3}|;{1,3}|%{1,2}|\*{1,2}|•)[ ]?                                         # comments, lists
      | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?(?:[ ]-[ ]|[,:|]?[ ]?)
      | [A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d[ ][\w.-]{1,64}[ ][\w./@-]{1,64}(?:\[\d{1,7}\])?:[ ]?   # syslog
      | [IWEF]\d{4}[ ]\d\d:\d\d:\d\d\.\d{1,9}[ ]{1,8}\d{1,8}[ ][\w./-]{1,64}:\d{1,6}\][ ]?         # glog
      | \[?(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR)\]?(?::[\w.]{1,64}:[ ]?|[ ]-[ ]|[:|]?[ ]?)
      | \[[\w.:/-]{1,64}\][ ]?                                                                  # [stdout], [node07]
      | [A-Za-z][\w.-]{0,63}[ ]{0,16}[|│][ ]?                                                  # docker compose
    )""",
    re.X,
)
# Marks that only launchers and collectors of logs put there: compose, kubectl, journald, a clock. None makes a comment of a line.
_LAUNCHED = lazy(
    r"(?:\[[\w.:/-]{1,64}\][ ]?|[A-Za-z][\w.-]{0,60}(?:[-_]\d{1,5}[ ]{0,16}|[ ]{2,16})[|│][ ]?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[ ]?"
    r"|[A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d[ ][\w.-]{1,64}[ ][\w./@-]{1,64}(?:\[\d{1,7}\])?:[ ]?)+"
)
_CELL = lazy(r'[^"\n]{0,200},"((?:[^"\\]|\\.|"")*)"\s*$')  # the last of a row of CSV
# The end of the command's line was lost: `nvidia-smi topo -m     GPU0 GPU1 …`.
_WITH_COMMAND = lazy(r"[^|<>]{0,80}?\bnvidia-smi topo -\w[-\w ]{0,20}?(?=\s{1,40}GPU\d)")
_QUOTED = lazy(r"""^\s*[ub]?(["'])(.*)\1\s*,?\s*$""")
_MESSAGE = lazy(r'"(?:log|msg|message|MESSAGE|text|line|content|textPayload)"\s{0,4}:\s{0,4}"((?:[^"\\]|\\.)*)"')
_KEY = lazy(r"^.*\"\w{1,40}\"\s?:\s?\"")
_ESCAPED = lazy(r"\\(?:([trn\"'/\\])|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_MEANS = {"t": "\t", "r": "", "n": " "}
_EMPHASIS = lazy(r"\*\*|`")
_TAG = lazy(
    r"</?(t[drh]|table|tbody|thead|p|br|pre|code|li|ul|ol|div|span|b|strong|em|i|font|a|samp|tt|details|summary|hr|blockquote)"
    r"(?:\s[^<>]{0,200})?/?>",
    re.I,
)
_ENTITY = lazy(r"&(lt|gt|amp|quot|nbsp|#39|#x27);")
_SPENT = lazy(r"\[(?:(?:[0147]|[39]\d)m|m(?![a-z]))")  # `[multiproc_executor.py:527]` is a file's name
_MEANT = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "nbsp": " ", "#39": "'", "#x27": "'"}


def without_markup(text: str) -> str:
    """Cells of a web page become tabs, entities what they stand for (XML keeps them); colour codes that lost their
    escape character and Markdown's backslash at the end go."""
    text = _SPENT.sub("", text).removesuffix("\\")
    if "<" in text:
        text = _TAG.sub(lambda tag: "\t" if tag[1].lower() in ("td", "th") else "", text)
    return _ENTITY.sub(lambda e: _MEANT[e[1]], text) if "&" in text and not text.lstrip().startswith("<") else text


def pieces(text: str) -> list[str]:
    """The lines of a text that was written as one string, as JSON holds the body of a message."""
    if text.count("\\n") < MIN_PIECES:
        return []
    parts = [_unescaped(part) for part in re.split(r"(?<!\\)(?:\\r)?\\n", text)]
    return [_KEY.sub("", parts[0]), *parts[1:]]


def undress(text: str) -> Iterator[tuple[str, Shape]]:
    """What the line may be without what it wears, with the shape to read the next lines by; least is taken off first."""
    at = 0
    for _ in range(MAX_MARKS):
        found = _MARK.match(text, at)
        if found is None or found.end() == len(text):
            break
        at = found.end()
        yield text[at:], _same_marks(text[:at])
    command = _WITH_COMMAND.match(text)
    if command is not None:
        yield text[command.end() :], _no_marks
    if "|" in text:
        yield _between_bars(text), _between_bars
    quoted = _QUOTED.match(text)
    if quoted is not None:
        yield _unescaped(quoted[2]), _unquoted
    if "**" in text or "`" in text:
        yield _plain(text), _plain


def may_wear(kind: str, text: str, off: str) -> bool:
    """Can what was taken off this line be no part of an output of this kind? What a launcher puts before a line never is one."""
    return kind not in _NEVER_DRESSED or text != off and text.endswith(off) and _LAUNCHED.fullmatch(text, 0, len(text) - len(off)) is not None


def said_in(text: str) -> str:
    """The message of a line that holds nothing else: of JSON's, of a row, of a list, of a page; else the line itself."""
    found = (_MESSAGE.search(text) if "{" in text else None) or (_CELL.match(text) if '"' in text else None)
    if found is not None:
        return _unescaped(found[1]).rstrip()
    quoted = _QUOTED.match(text)
    return _unescaped(quoted[2]) if quoted is not None else _plain(without_markup(text))


def message_in(text: str, begins: re.Pattern[str]) -> str | None:
    """What is left of a log's line from where it `begins`, whatever stands before: a pod's name, a logger's head, JSON's keys."""
    if text.lstrip()[:1] == "{":
        found = _MESSAGE.search(text)
        text = _unescaped(found[1]).rstrip() if found is not None else text
    inside = begins.search(text)
    return text[inside.start() :] if inside is not None else None


def _same_marks(marks: str) -> Shape:
    """Other lines wear the same words and signs, with other numbers; blanks before a number align it."""
    parts = re.split(r"([ \t]*\d+)", marks)
    pattern = "".join(r"[ \t]*\d+" if n % 2 else re.escape(part) for n, part in enumerate(parts))
    if marks.endswith(" "):
        pattern = pattern[: -len(re.escape(" "))] + r"(?: |$)"
    like = re.compile(pattern)

    def shape(text: str) -> str | None:
        found = like.match(text)
        return text[found.end() :] if found is not None else None

    return shape


def _no_marks(text: str) -> None:
    return None


def _between_bars(text: str) -> str:
    """`| GPU0 | X | NV12 |` of a Markdown table; emphasis goes too."""
    return _plain(text.replace("|", "\t"))


def _unquoted(text: str) -> str | None:
    """A line of a list of strings, as Python, JSON and Ansible print it."""
    quoted = _QUOTED.match(text)
    return _unescaped(quoted[2]) if quoted is not None else None


def _unescaped(text: str) -> str:
    return clean(_ESCAPED.sub(lambda e: _MEANS.get(e[1], e[1]) if e[1] else chr(int(e[2] or e[3], 16)), text))


def _plain(text: str) -> str:
    return _EMPHASIS.sub("", text)
