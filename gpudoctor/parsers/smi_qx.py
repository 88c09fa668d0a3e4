"""`nvidia-smi -q -x` (XML, drivers 418 to 580 and later) to Gpus and Driver.

Reading starts at the first element, so a document type and its entities are never seen: nothing external can be loaded
and nothing can be expanded. A value counts once its closing tag was read. Where the text stops being XML, reading goes on
at the next `<gpu`, and the gap is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.parsers import expat

from gpudoctor.bdf import normalise
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.model import Evidence
from gpudoctor.parsers.smi_failure import failures
from gpudoctor.parsers.smi_fields import bare, count
from gpudoctor.parsers.smi_gpus import GpuReadings, facts
from gpudoctor.read.section import Line, Section, Unparsable

MAX_RESTARTS = 64  # each reads the rest anew
MAX_DEPTH = 32  # nvidia-smi nests 6 deep; what lies deeper is none of ours
# Branches that hold nothing of the GPU itself: MIG devices repeat its element names, clocks are thousands of lines.
_UNREAD = frozenset({"mig_devices", "supported_clocks", "processes", "accounted_processes"})


class _Reader:
    """Handlers of one section: keeps the path of open elements and the GPU being read."""

    def __init__(self, section: Section) -> None:
        self.section = section
        self.gpus: list[GpuReadings] = []
        self.driver: dict[str, Any] = {}
        self.origin: dict[str, Evidence] = {}
        self.attached: int | None = None
        self.ended = False
        self.elided = False
        self._gpu: GpuReadings | None = None
        self._place = ""
        self._path: list[str] = []
        self._unread = 0  # how deep the element lies inside which nothing is read
        self._text: list[str] = []
        self._lines: Sequence[Line] = ()
        self._parser: Any = None

    def read(self, lines: Sequence[Line], column: int) -> int | None:
        """Read until the end or the first place that is no XML; the number of lines read before it, None at the end."""
        self._lines, self._path, self._text, self._unread, self._gpu = lines, [], [], 0, None
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        text = "\n".join([lines[0].text[column:], *(line.text for line in lines[1:])])
        try:
            # An excerpt may have several elements at its top: a root of our own holds them.
            parser.Parse(f"<all>{text}", False)
            parser.Parse("</all>", True)
        except expat.ExpatError as error:
            return min(error.lineno, len(lines))
        return None

    @property
    def open(self) -> bool:
        """Did the text end inside an element?"""
        return len(self._path) > 1

    def _line(self) -> Line:
        number: int = self._parser.CurrentLineNumber
        return self._lines[min(number, len(self._lines)) - 1]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._text = []
        self._path.append(name.lower())
        if not self._unread and (name in _UNREAD or len(self._path) > MAX_DEPTH):
            self._unread = len(self._path)
        elif name == "gpu" and self._gpu is None and not self._unread:
            bdf = normalise(attributes.get("id", ""))
            self._place = f"gpu {bdf}" if bdf else f"gpu element {len(self.gpus) + 1}"
            line = self._line()
            self._gpu = GpuReadings(bdf, self.section.spot(f"{self._place} (line {line.number})", line.text.strip()))
            self.gpus.append(self._gpu)

    def _characters(self, text: str) -> None:
        self._text.append(text)

    def _end(self, name: str) -> None:
        if self._unread:
            if self._unread == len(self._path):
                self._unread = 0
            self._path.pop()
            return
        path, value = tuple(self._path[1:]), bare("".join(self._text))
        self._path.pop()
        self._text = []
        if value.strip(".") == "" and "..." in value:
            self.elided = True
        elif self._gpu is not None:
            self._gpu_value(name.lower(), path, value)
        elif value:
            self._host_value(name, value)
        if name == "nvidia_smi_log":
            self.ended = True

    def _gpu_value(self, name: str, path: tuple[str, ...], value: str) -> None:
        assert self._gpu is not None
        inside = path[path.index("gpu") + 1 :]
        if not inside:
            self._gpu = None
        else:
            if value:
                self._gpu.add(inside, value, lambda: self._at(inside, value))
            self._gpu.close(name)

    def _at(self, inside: tuple[str, ...], value: str) -> Evidence:
        return self.section.spot(f"{self._place} {'/'.join(inside)} (line {self._line().number})", value)

    def _host_value(self, name: str, value: str) -> None:
        field = {"driver_version": "version", "cuda_version": "cuda_version"}.get(name)
        if field is not None and value[:1].isdigit():
            self.driver.setdefault(field, value)
            self.origin.setdefault(field, self.section.spot(f"{name} (line {self._line().number})", value))
        elif name == "attached_gpus" and self.attached is None:
            self.attached = count(value)


def parse(section: Section) -> Iterator[Fact | Loss]:
    """Facts of one document, whole, cut or damaged; nvidia-smi's words where it printed an error instead."""
    said = list(failures(section))
    yield from said
    lines = section.lines
    at, column = _next(lines, 0, ("<nvidia_smi_log", "<gpu"))
    if at is None:
        if not said:
            raise Unparsable("no element of nvidia-smi's XML")
        return
    reader = _Reader(section)
    cut = False
    for _ in range(MAX_RESTARTS):
        good = reader.read(lines[at:], column)
        if good is None:
            break
        cut = True
        bad = at + good - 1
        if reader.open and bad >= len(lines) - 1:
            yield Loss("the end of nvidia-smi -q -x", f"the XML is cut at line {lines[-1].number} ({section.source})")
            break
        yield Loss("a part of nvidia-smi -q -x", f"line {lines[bad].number} is no XML ({section.source})")
        after, column = _next(lines, max(bad, at + 1), ("<gpu ", "<gpu>"))
        if after is None:
            break
        at = after
    yield from facts(
        reader.gpus, reader.driver, reader.origin, reader.attached, cut or reader.elided or not reader.ended
    )


def _next(lines: Sequence[Line], start: int, tags: tuple[str, ...]) -> tuple[int | None, int]:
    """The first line from `start` that holds one of the tags, and where in it."""
    for place in range(start, len(lines)):
        columns = [c for tag in tags if (c := lines[place].text.find(tag)) >= 0]
        if columns:
            return place, min(columns)
    return None, 0
