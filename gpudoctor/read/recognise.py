"""Lines to sections: which output is this, where does it begin and end, and whose host is it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudoctor.read.formats import Compiled, compiled
from gpudoctor.read.section import Line, Section
from gpudoctor.read.text import label_of, lines_of, strip_prefixes

MAX_SECTION = 200_000  # lines; a block that grows beyond is closed and a new one begun

# `root@node07:~# nvidia-smi topo -m`, `[user@node07 ~]$ lspci`, `$ nvidia-smi`, `# lspci -vvv`
_PROMPT = re.compile(
    r"^\s*(?:\([\w.-]+\)\s*)?(?:\[?(?P<user>[\w.-]+)@(?P<host>[\w.-]+)[\s:][^$#]{0,120}?\]?\s?[$#]|[$#])\s+(?P<command>\S.*)$"
)
# `pdsh` and `clush` label with the host's name; a word that is no host name (Link:, Bus:) never precedes a known start.
_HOSTLIKE = re.compile(r"^[a-z][a-z0-9]*[a-z0-9.-]*\d[a-z0-9.-]*$", re.I)


class _Open:
    """A section being filled."""

    def __init__(self, how: Compiled, host: str | None, command: str | None) -> None:
        self.how = how
        self.host = host
        self.command = command
        self.lines: list[Line] = []
        self.strange = 0
        self.pending: list[Line] = []  # blank or strange lines, kept only if the block goes on

    def add(self, line: Line) -> None:
        self.lines += self.pending
        self.pending = []
        self.strange = 0
        self.lines.append(line)

    def wait(self, line: Line) -> None:
        self.pending.append(line)


class Recogniser:
    """Cut one document into sections. Feed it lines in order; finished sections come out as they end."""

    def __init__(self, source: str, host: str | None = None) -> None:
        self.source = source
        self.host = host
        self.command: str | None = None
        self._formats = compiled()
        self._tokens = tuple({t.encode() for how in self._formats for t in how.format.tokens})
        self._open: dict[str | None, _Open] = {}
        self._scattered: dict[tuple[str, str | None], _Open] = {}

    def wanted(self, chunk: bytes) -> bool:
        """False where a chunk of whole lines cannot begin or continue anything we know."""
        return bool(self._open) or any(token in chunk for token in self._tokens)

    def run(self, chunks: Iterable[bytes]) -> Iterator[Section]:
        for line in lines_of(chunks, self.wanted):
            yield from self.feed(line)
        yield from self.end()

    def feed(self, line: Line) -> Iterator[Section]:
        text = strip_prefixes(line.text)
        label, host = None, self.host
        labelled = label_of(text)
        # `nvidia-nvswitch3: SXid …` is a kernel message, not a line of a host of that name.
        if labelled and not labelled[0].startswith("nvidia-") and (labelled[0] in self._open or self._starting(labelled[1])):
            label, text = labelled
            if _HOSTLIKE.match(label):
                host = label
        if label is None and "@" in text or text.lstrip()[:1] in "$#":
            self._prompt(text)
            host = self.host
        current = self._open.get(label)
        line = line._replace(text=text)
        if current is not None:
            if self._continues(current, text):
                current.add(line)
                if current.how.until is not None and current.how.until.search(text) or len(current.lines) > MAX_SECTION:
                    yield self._close(label)
                return
            if not text.strip():
                current.wait(line)
                return
        found = self._starting(text)
        if found is None:
            if current is not None:
                current.strange += 1
                current.wait(line)
                if current.strange > current.how.format.strangers:
                    yield self._close(label)
            return
        if found.belongs is None:
            key = (found.format.kind, host)
            self._scattered.setdefault(key, _Open(found, host, None)).add(line)
            return
        if current is not None:
            yield self._close(label)
        self._open[label] = begun = _Open(found, host, self.command)
        self.command = None
        begun.add(line)
        if found.until is not None and found.until.search(text):
            yield self._close(label)

    def end(self) -> Iterator[Section]:
        for label in list(self._open):
            yield self._close(label)
        for begun in self._scattered.values():
            yield self._section(begun)
        self._scattered.clear()

    def _continues(self, current: _Open, text: str) -> bool:
        """Does the line belong to the open block? A fresh start of the same format opens a new block if it says so."""
        how = current.how
        if how.belongs is None or not how.belongs.search(text):
            return False
        return how.format.joins or not (how.first is not None and how.first.search(text))

    def _starting(self, text: str) -> Compiled | None:
        for how in self._formats:
            if any(token in text for token in how.format.tokens) and how.starts.search(text):
                return how
        return None

    def _prompt(self, text: str) -> None:
        found = _PROMPT.match(text)
        if found:
            self.command = found["command"].strip()
            if found["host"]:
                self.host = found["host"]

    def _close(self, label: str | None) -> Section:
        return self._section(self._open.pop(label))

    def _section(self, begun: _Open) -> Section:
        return Section(
            kind=begun.how.format.kind,
            source=self.source,
            lines=tuple(begun.lines),
            host=begun.host,
            command=begun.command,
        )
