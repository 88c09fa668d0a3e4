"""Logs that a mailer, a terminal or a form broke at its width, with every line in one piece again.

NCCL's values end where its lines do, and PyTorch's sentences are known by their words: neither survives a break within. A text is
taken for broken only where the breaks tell of one width: nearly every line that begins nothing of its own stands below one that is
full. As many line ends are left as there were, so that all lines keep their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from gpudoctor.pattern import lazy

_NARROWEST, _WIDEST = 50, 220
_USUAL = frozenset((*range(70, 82), 100, 120, 132))  # of mailers, terminals and forms: fewer breaks prove them
_FEWEST, _FEWEST_USUAL = 3, 2  # breaks that are unlike each other: two ranks print the same twice
_MOST_FULL, _MOST_BROKEN = 0.7, 0.65
_MAX_PIECES = 64
_MOST_ASKED = 8  # lines that are asked before all others
# How a line of a job's log begins, behind marks of quotes: with what launchers, loggers, NCCL and Python put there.
_LOGGED = lazy(
    rb"""(?:
        \S{0,64}?\[(?:(?:rank|Rank|default|trainer)[ ]?\d+|\d+,\d+|pod/|\w{1,16}pid[ =]\d)
      | \(\w[^()\n]{0,60}pid=\d | \{"
      | (?:\d{1,5}:[ ])?[\w.-]{1,64}:\d{1,9}:\d{1,9}[ ](?:\[|NCCL[ ])
      | [\w.-]{1,64}[ ]?[|:][ ]{0,4}[\w.-]{1,64}:\d{1,9}:\d{1,9}[ ]\[ | \[-?\d{1,3}\][ ]NCCL[ ] | NCCL[ ](?:INFO|WARN)[ ]
      | \[?\d{4}-\d\d-\d\d[T ]\d\d: | [A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d: | \d\d:\d\d:\d\d | \[?[IWEFC]\d{4}[ ]\d\d:
      | [A-Za-z_][\w.]{0,80}(?:Error|Exception):[ ] | Exception[ ]raised | terminate[ ]called | [ ]{0,8}what\(\):
    )""",
    re.X,
)
# What else is no rest of a line that was broken.
_OTHER = lazy(rb"Traceback |[ ]{2,8}File \"|frame #|NCCL version |`{3}|~{3}|[-=*#]{3}|# |<|[ \t]*\d+[ \t]+\d+[ \t]")
_QUOTES = lazy(rb"[ \t]{0,16}(?:> ?)*")
_TABLE = lazy(rb"\s*[|+#*=-]|[^\n]*(?:---|===)")
_DIGITS = b"0123456789"


class Fold(NamedTuple):
    """How a text was broken."""

    width: int  # characters of a full line
    at_blanks: bool  # between words, else wherever a line was full
    trimmed: bool  # blanks at the end of a piece are gone


def refolded(head: list[bytes], chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Chunks of whole lines, of which the first were looked at; a last one without its line end is the end of the text."""
    fold = fold_of(b"".join(head))
    if fold is None:
        yield from head
        yield from chunks
        return
    joiner = _Joiner(fold)
    for chunk in chain(head, chunks):
        yield from joiner.take(chunk)
    yield from joiner.end()


def fold_of(text: bytes) -> Fold | None:
    """How it was broken; None where it was not, as far as can be told."""
    raws = text.split(b"\n")
    # One line of a log that is wider than any width tells that nothing broke it, as in nearly all: the longest are asked first.
    for raw in sorted((raw for raw in raws if len(raw) > _WIDEST), key=len, reverse=True)[:_MOST_ASKED]:
        longest = _Piece(raw)
        if longest.logged and longest.length > _WIDEST:
            return None
    lines = [_Piece(raw) for raw in raws]
    width = max((line.length for line in lines if line.logged), default=0)
    if not _NARROWEST <= width <= _WIDEST:
        return None
    full = breaks = whole = 0
    shapes: set[bytes] = set()  # of lines that go on below
    stops: set[bytes] = set()  # of full ones that do not
    trimmed = True
    within = False
    for above, line in zip(lines, lines[1:], strict=False):
        goes_on = not line.begins and bool(line.text.strip())
        if above.logged and above.length == width and not goes_on:
            stops.add(above.shape)
        within = (within or above.logged) and goes_on
        if not within:
            continue
        if line.length > width + 8 or above.length + 1 + line.word <= width:
            whole += 1
            within = False
            continue
        breaks += 1
        full += above.length == width
        trimmed = trimmed and not above.text.endswith(b" ")
        shapes.add(above.shape)
    if len(shapes) < (_FEWEST_USUAL if width in _USUAL else _FEWEST):
        return None
    at_blanks = full < _MOST_FULL * breaks
    # Wherever lines are full: each that is full goes on. Between words: what goes on stands below lines that were nearly full.
    if breaks < _MOST_BROKEN * (breaks + whole) if at_blanks else len(stops) >= len(shapes):
        return None
    return Fold(width, at_blanks, trimmed)


class _Piece:
    """A line of the broken text."""

    __slots__ = ("begins", "ending", "length", "logged", "mark", "text")

    def __init__(self, raw: bytes) -> None:
        self.ending = b"\r" if raw.endswith(b"\r") else b""
        line = raw[:-1] if self.ending else raw
        found = _QUOTES.match(line)
        self.mark = found[0] if found is not None else b""
        self.text = line[len(self.mark) :]
        self.length = len(line) if line.isascii() else len(line.decode("utf-8", "replace"))
        self.logged = _LOGGED.match(self.text) is not None
        self.begins = self.logged or _OTHER.match(self.text) is not None

    @property
    def shape(self) -> bytes:
        return self.text.translate(None, _DIGITS)

    @property
    def word(self) -> int:
        return len(self.text.lstrip().split(b" ", 1)[0])


class _Joiner:
    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._held: list[bytes] = []  # the pieces of a line, its marks with the first
        self._last: _Piece | None = None  # the last of them
        self._mark = b""
        self._known = False  # its first piece begins as a log's lines do

    def take(self, chunk: bytes) -> Iterator[bytes]:
        done: list[bytes] = []
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._next(_Piece(line), done)
        if rest:  # the last line of all, or a piece of an endless one
            self._next(_Piece(rest), done)
            if done:
                yield b"".join(done)
            yield self._flush(ended=False)
        elif done:
            yield b"".join(done)

    def end(self) -> Iterator[bytes]:
        if self._last is not None:
            # Of a text that ends where a line is full more may have been lost.
            yield self._flush(ended=self._fold.at_blanks or self._last.length != self._fold.width)

    def _next(self, line: _Piece, done: list[bytes]) -> None:
        joint = self._joint(line)
        if joint is None:
            done.append(self._flush(ended=True))
            self._held, self._mark, self._known = [line.mark + line.text], line.mark, line.logged
        else:
            self._held.append(joint + self._bare(line))
        self._last = line

    def _joint(self, line: _Piece) -> bytes | None:
        """What stood between the piece above and this one, if it goes on there."""
        above, fold = self._last, self._fold
        if above is None or line.begins or not line.text.strip() or not above.text.strip() or len(self._held) >= _MAX_PIECES or line.length > fold.width + 8:
            return None
        if fold.at_blanks:
            if not self._known or above.length + 1 + line.word <= fold.width:
                return None
            return b"" if above.text.endswith(b" ") else b" "
        if not self._known and (_TABLE.match(above.text) is not None or _TABLE.match(line.text) is not None):
            return None
        if above.length == fold.width:
            return b""
        return b" " if fold.trimmed and above.length == fold.width - 1 else None

    def _bare(self, line: _Piece) -> bytes:
        """Without the marks of its own that the line has too; blanks behind them may be the text's."""
        whole = line.mark + line.text
        if whole.startswith(self._mark):
            return whole[len(self._mark) :]
        return line.text if line.mark.strip() else whole

    def _flush(self, ended: bool) -> bytes:
        if self._last is None:
            return b""
        text = b"".join(self._held) + self._last.ending
        more = b"\n" * (len(self._held) - 1)
        self._held, self._last = [], None
        return text + b"\n" + more if ended else more + text
