"""Lines to sections: which output is this, where does it begin and end, and whose host is it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from gpudoctor.pattern import lazy
from gpudoctor.read.block import Block
from gpudoctor.read.dress import Shape, may_wear, message_in, pieces, said_in, undress, without_markup
from gpudoctor.read.log_formats import RAS_LINE, RAS_ROW
from gpudoctor.read.nccl_line import before_nccl, is_nccl
from gpudoctor.read.own import OwnReports
from gpudoctor.read.prompts import PROMPT_HINT, Prompts
from gpudoctor.read.section import Line, Section
from gpudoctor.read.sift import Sieve, Sifted
from gpudoctor.read.table import Compiled, Starts, Telling, any_of, compiled
from gpudoctor.read.text import HOSTLIKE, Passing, label_of, lines_of, strip_prefixes

if TYPE_CHECKING:
    from gpudoctor.read.nccl_bulk import NcclBulk
    from gpudoctor.read.team import Team

MAX_SECTION = 200_000  # lines; a block that grows beyond is closed and a new one begun
MAX_AROUND = 20_000  # the same for lines that are kept with their neighbours
_BEFORE = 8
# What a job of many hosts says of itself belongs to none of them.
_JOB_WIDE = frozenset(("torch-watchdog", "ras", "ras-json", "start-failure"))

# A fence, HTML around it, or nvidia-bug-report's line ends whatever came before.
_BOUNDARY = re.compile(r"^\s*(?:`{3,}|~{3,}|_{20,}|</?(?:details|pre|code|summary)\b)")
_COUNTED = re.compile(r"^ {0,3}(?P<number>\d{1,6}):[ \t]?(?P<rest>.*)$")
_DIGITS = str.maketrans("123456789", "000000000")
# Lines of NCCL's RAS service are read one by one, so each may stand behind a head of its own.
_RAS = lazy(rf"(?:^|(?<=[\s:|\]›-]))(?:{RAS_LINE})|(?:^|(?<= {{2}})){RAS_ROW}")
_MAX_BARE = 4096  # a text that speaks of GPUs in so many ways and wears nothing in any of them is a log
_MARKUP = re.compile(r"[<&]|\[\d{0,2}m|\\$")
_XML = frozenset(("smi-qx", "topo-xml"))  # their tags and entities mean something
# nccl-tests names its host before a failure by itself: `node07: Test NCCL failure common.cu:958 …`.
_OWN_LABEL = re.compile(r"Test (?:(?:NCCL |CUDA )?failure |timeout )")


@lru_cache(maxsize=1)
def _telling() -> Telling:
    """Made once: of a folder of thousands of small files it would be most of the work."""
    return any_of(compiled(), more=(PROMPT_HINT,))


@lru_cache(maxsize=1)
def _starts() -> Starts:
    """The same."""
    return Starts(lazy(_telling().exact))


class Recogniser(Passing):
    """Cut one document into sections. Feed it lines in order; finished sections come out as they end."""

    def __init__(self, source: str, host: str | None = None, team: Team | None = None) -> None:
        self.source, self.own = source, OwnReports()
        self._team, self._prompts = team, Prompts(host)
        telling = _telling()
        self._telling = lazy(telling.exact)
        self._open: dict[str | None, Block] = {}
        self._scattered: dict[tuple[str, str | None], Block] = {}
        self._asked = ""  # the line last looked at, and what begins in it: asked of each more than once
        self._answer: Compiled | None = None
        self._shape: Shape | None = None  # what the open block's lines wear
        # Shapes of lines, every digit made equal, in which no block begins, dressed or not; True: nothing else either.
        self._bare: dict[str, bool] = {}
        self._before: deque[Line] = deque(maxlen=_BEFORE)  # the last lines, as they came
        self._after: Block | None = None  # which scattered section the next lines go with
        self._left = 0
        self._quoting: Block | None = None  # where PyTorch's `Last error:` stands: the next line is NCCL's word
        self._nccl: NcclBulk | None = None
        self._sieve = Sieve(telling)
        self._line_ends = 0  # in the last chunk
        self._ready: tuple[bytes, Sifted | None] = (b"", None)  # the chunk that comes next, where somebody sifted it
        self._passed = 0  # line ends in all chunks
        self._tail: deque[bytes] = deque(maxlen=2)  # the last chunks
        self._of_a_job = False

    def marks(self, chunk: bytes) -> Iterable[int]:
        """Places in a chunk of whole lines where something known may begin. NCCL's own lines are read in passing."""
        ready, sifted = self._ready
        if sifted is None or ready is not chunk:
            sifted = self._sieve.sift(chunk)
        elif sifted.places:
            sifted = sifted._replace(places=self._sieve.not_passed_over(chunk, sifted.places))
        if sifted.nccl:
            self._of_nccl().take(sifted, chunk, self._passed)
        self._line_ends = sifted.line_ends
        self._passed += sifted.line_ends
        self._tail.append(chunk)
        return sifted.places

    def ahead(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        if self._team is None:
            yield from chunks
            return
        for ready in self._team.ahead(chunks, self._sieve):
            self._ready = ready
            yield ready[0]

    def line_ends(self, chunk: bytes) -> int:
        return self._line_ends

    def _of_nccl(self) -> NcclBulk:
        if self._nccl is None:
            from gpudoctor.read.nccl_bulk import NcclBulk  # only where there is such a line

            self._nccl = NcclBulk(self.source)
        return self._nccl

    def _by_nccl(self, line: Line) -> bool:
        """Is the line NCCL's own? One that came in no chunk (the last, without its end) is read now."""
        if "NCCL " not in line.text:
            return False
        if line.number > self._passed:
            self._of_nccl().line(line)
        return is_nccl(line.text)

    def busy(self) -> bool:
        return bool(self._open) or self._left > 0 or self._quoting is not None

    def run(self, chunks: Iterable[bytes]) -> Iterator[Section]:
        for line in lines_of(chunks, self, self.own.without):
            yield from self.feed(line)
        yield from self.end()

    def feed(self, line: Line) -> Iterator[Section]:
        self._before.append(line)
        whole = line.text
        if self._left and self._after is not None:
            self._left -= 1
            self._after.lines.append(line)
        if self._quoting is not None and line.text.strip():
            self._quoting.lines.append(line._replace(text=said_in(line.text)))
            self._quoting = None
        elif "Last error:" in line.text:
            line = line._replace(text=said_in(line.text))
        if self._by_nccl(line):
            words = before_nccl(line.text)
            if words is None or self._telling.search(words) is None:
                return
            line = line._replace(text=words)
        if "\\n" in line.text and self._telling.search(line.text) is not None and not self._begins_block(line.text):
            parts = pieces(line.text)
            for n, part in enumerate(parts, 1):
                yield from self.feed(line._replace(text=part, cut=line.cut and n == len(parts)))
            if parts:
                return
        dressed, worn = line.text, strip_prefixes(line.text)
        text = without_markup(worn) if _MARKUP.search(worn) and not self._in_xml() else worn
        telling = self._telling.search(text) is not None
        label, host = None, self._prompts.host
        labelled = label_of(text)
        counted = _COUNTED.match(text)
        if counted is not None and self._goes_on(counted["number"], counted["rest"], line.number):
            labelled = (counted["number"], counted["rest"])
        if labelled and self._shape is not None and None in self._open and self._shape(text) is not None:
            labelled = None
        # `nvidia-nvswitch3: SXid …` is a kernel message, `NVML: Unable to …` the library's: no lines of hosts of that name.
        if labelled and not labelled[0].startswith(("nvidia-", "NVML", "NVRM")) and not _OWN_LABEL.match(labelled[1]):
            if labelled[0] in self._open or telling and labelled[1] and self._begins(labelled[1]):
                label, text = labelled
                if HOSTLIKE.match(label):
                    host = label
        current = self._open.get(label)
        dull = telling and self._shape is None and self._bare.get(text.translate(_DIGITS), False)
        if dull:
            telling = False
        elif label is None:
            text = self._undressed(text, telling, current)
        line = line._replace(text=text)
        if current is not None:
            if current.goes_on(text):
                current.add(line)
                if current.ends(text) or len(current.lines) > MAX_SECTION:
                    yield self._close(label, line)
                return
            if not text.strip():
                current.wait(line)
                return
        # Both are asked: `<summary>nvidia-smi topo -m</summary>` is a boundary and names a command.
        if label is None and (self._prompts.read(text, line.number), _BOUNDARY.match(worn)) != (False, None):
            host = self._prompts.host
            dull = False
            if current is not None:
                yield self._close(None, line)
                current = None
        found = self._starting(text) if telling else None
        if found is not None and self._shape is not None and not may_wear(found.format.kind, worn, text):
            found = None
        if found is None:
            if current is not None:
                current.strange += 1
                current.wait(line)
                if current.strange > current.how.format.strangers:
                    yield self._close(label, line)
            elif dull:  # `[GPU0] step 12`: while no block is open, such a line need not be seen again
                self._sieve.pass_over(whole.encode())
            return
        if found.belongs is None:
            key = (found.format.kind, None if found.format.kind in _JOB_WIDE else host)
            begun = self._scattered.setdefault(key, Block(found, host, None))
            self._of_a_job |= found.format.kind == "torch-watchdog"
            if found.format.kind == "nccl-text" and dressed != worn:
                line = line._replace(text=dressed[: len(dressed) - len(worn)] + text)  # `[rank3]: `: whose words they are
            if found.format.kind == "launch" and whole.endswith("\\") and not line.text.endswith("\\"):
                line = line._replace(text=line.text + "\\")  # the command goes on
            if found.format.around is None:
                begun.add(line)
                if found.format.kind == "nccl-text" and text.rstrip(" `|").endswith("Last error:"):
                    self._quoting = begun
            else:
                self._with_neighbours(begun, *found.format.around)
            if len(begun.lines) > (MAX_SECTION if found.format.around is None else MAX_AROUND):
                yield self._section(self._scattered.pop(key))
                self._left = 0
            return
        if current is not None:
            yield self._close(label, line)
        self._open[label] = begun = Block(found, host, self._prompts.command_of(found.format.kind, line.number))
        begun.add(line)
        if begun.ends(text):
            yield self._close(label, line)

    def _in_xml(self) -> bool:
        return any(block.how.format.kind in _XML for block in self._open.values())

    def _undressed(self, text: str, telling: bool, current: Block | None) -> str:
        """The line without what the paste wears; as it is where it makes sense so."""
        if current is None:
            self._shape = None
        off = self._shape(text) if self._shape is not None else None
        if off is not None:
            return off
        like = text.translate(_DIGITS)
        if not telling or like in self._bare or len(self._bare) > _MAX_BARE:
            return text
        if current is not None and current.goes_on(text) or self._begins(text) is not None:
            return text
        for off, shape in undress(text):
            found = self._begins(off)
            if found is not None and found.format.kind == "ras":
                return off  # its lines are read one by one, each from where it begins
            if found is not None and found.belongs is not None and may_wear(found.format.kind, text, off):
                self._shape = shape
                self._bare.clear()
                return off
        answer = message_in(text, _RAS)
        if answer is not None:
            return answer
        # A line with other digits may begin something: `"version": "2.10"` does, with 1.10 it does not.
        self._bare[like] = all(self._starting(like.replace("0", digit)) is None for digit in "0123456789") and self._starting(text) is None
        return text

    def _begins_block(self, text: str) -> bool:
        """A telling word of a log may stand anywhere in a line, so it does not say how the line begins."""
        found = self._begins(text)
        return found is not None and found.belongs is not None

    def _begins(self, text: str) -> Compiled | None:
        """The format that begins in this line with nothing before it."""
        found = self._starting(text)
        if found is None or found.belongs is None:
            return found
        match = found.starts.search(text)
        return found if match is not None and not text[: match.start()].strip() else None

    def _goes_on(self, label: str, text: str, number: int) -> bool:
        """`12: …` after `11: …` counts lines (grep -n) and names no task: the block goes on under the new number.

        Tasks of a job that take turns print the same line one after the other.
        """
        before = str(int(label) - 1)
        block = self._open.get(before)
        if block is None or label in self._open or not (block.counted or len(block.lines) == 1):
            return False
        last = (block.pending or block.lines)[-1]
        if last.number != number - 1 or last.text.strip()[:12] == text.strip()[:12]:
            return False
        block.counted = True
        self._open[label] = self._open.pop(before)
        return True

    def _with_neighbours(self, begun: Block, before: int, after: int) -> None:
        held = {(kept.number, kept.text) for kept in begun.lines[-before - after - 1 :]}
        begun.lines += [kept for kept in list(self._before)[-before - 1 :] if (kept.number, kept.text) not in held]
        self._after, self._left = begun, after

    def end(self) -> Iterator[Section]:
        for label in list(self._open):
            yield self._section(self._open.pop(label))
        for begun in self._scattered.values():
            yield self._section(begun)
        self._scattered.clear()
        if self._nccl is not None:
            yield Section(kind="nccl-log", source=self.source, lines=(), host=None, read=self._nccl.log)

    def ending(self, most: int) -> Section | None:
        """The last bytes of a job's log, once it was read; None of any other text."""
        if self._nccl is None and not self._of_a_job:
            return None
        text = b"".join(self._tail)
        if self._before and self._before[-1].cut:
            text += self._before[-1].text.encode("utf-8", "replace")
        return Section(kind="log-end", source=self.source, lines=(), content=text[-most:], read=self._passed)

    def _starting(self, text: str) -> Compiled | None:
        if text is not self._asked:
            self._asked, self._answer = text, _starts().find(text)
        return self._answer

    def _close(self, label: str | None, line: Line) -> Section:
        self._prompts.output_ended(line.number)
        return self._section(self._open.pop(label))

    def _section(self, begun: Block) -> Section:
        return Section(
            kind=begun.how.format.kind,
            source=self.source,
            lines=tuple(begun.lines),
            host=None if begun.how.format.kind in _JOB_WIDE else begun.host,
            command=begun.command,
        )
