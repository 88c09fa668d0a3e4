"""The table of `dcgmi diag -r N`, line by line, to the tests that it tells of.

    | GPU Memory                | Pass - GPUs: 1, 2, 3                           |      releases 2 and 3
    |                           | Fail - GPU: 0                                  |
    | Warning                   | GPU 0 Thermal violations totaling 13.3 second  |
    |                           | s started at 9.7 seconds into the test         |
    | pcie                      | Fail                                           |      release 4
    |                           | GPU0: Fail                                     |
    | Warning: GPU0             | GPU 0 is running at PCI link width 4X, which   |

A message is broken every 45 characters, in the middle of a word, so its pieces are put together as they stand.
"""

from __future__ import annotations

import re

from gpudoctor.facts.outcomes import ToolTest
from gpudoctor.model import Evidence
from gpudoctor.read.section import Line, Section

PIECE = 45  # characters of a message in a row
_STATUS = re.compile(r"^(Pass|Fail|Warn|Skip|Not Run)(?:\s*-\s*(?:All|GPUs?:\s*(\d{1,4}(?:,\s*\d{1,4})*)))?\s*(\.{3})?$", re.I)
_ENTITY = re.compile(r"^(GPU|CPU|NvSwitch|Switch)(\d{1,4}): (Pass|Fail|Warn|Skip|Not Run)$", re.I)
_MESSAGE = re.compile(r"^(Warning|Error|Info)(?:: (GPU|CPU|NvSwitch|Switch)(\d{1,4}))?$", re.I)
_DEVICE_ID = re.compile(r"^[0-9a-f]{4}$")
_VERSION = re.compile(r"^\d{3}\.\d{1,4}(?:\.\d{1,4})?$")
_NAMED = re.compile(r"\bGPU ?(\d{1,3})\b")
_TOOL = "DCGM"


class Message:
    """A sentence while its pieces come in."""

    def __init__(self, test: str, gpu: int | None, line: Line, weight: str) -> None:
        self.test = test
        self.gpu = gpu
        self.line = line
        self.weight = weight  # "warning", "error" or "info"
        self.pieces: list[str] = []
        self.whole = False

    @property
    def text(self) -> str:
        """As far as it is sure: the output may stop within the last word, and the last piece of a message may be missing."""
        pieces = self.pieces if self.whole else self.pieces[:-1]
        joined = "".join(piece.ljust(PIECE)[:PIECE] for piece in pieces[:-1]) + (pieces[-1].rstrip() if pieces else "")
        return joined if self.whole else f"{joined.rpartition(' ')[0]} …" if " " in joined else ""

    def spot(self, section: Section) -> Evidence:
        return section.at(self.line, self.text)


class Diag:
    """One table of dcgmi diag."""

    def __init__(self) -> None:
        self.results: list[tuple[str, int | None, str, Line]] = []  # test, GPU, status, where
        self.messages: list[Message] = []
        self.driver: tuple[str, Line] | None = None
        self.ids: tuple[str, ...] = ()
        self.ids_line: Line | None = None
        self._test: str | None = None
        self._message: Message | None = None
        self._broken = False

    def row(self, name: str, cell: str, line: Line) -> None:
        """One row: what stands left and right of the bar, the right side with its blanks."""
        value = cell.strip()
        heading = _MESSAGE.match(name)
        if name == "" and self._message is not None and not _ENTITY.match(value) and not _STATUS.match(value):
            self._broken = line.cut and not line.text.rstrip().endswith("|")
            self._message.pieces.append(cell)
            return
        if line.cut and not line.text.rstrip().endswith("|"):
            return  # which may have been another piece of the message above
        self.close()
        if heading is not None:
            gpu = int(heading[3]) if heading[3] and heading[2].upper() == "GPU" else None
            # Without a test above it the message is of a section's own: `Deployment`, `Error`.
            self._message = Message(self._test or "deployment", gpu, line, heading[1].lower())
            self._message.pieces.append(cell)
        elif name == "" and (entity := _ENTITY.match(value)) and self._test is not None:
            if entity[1].upper() == "GPU":
                self.results.append((self._test, int(entity[2]), entity[3].lower(), line))
        elif status := _STATUS.match(value):
            self._test = name or self._test
            if self._test is not None and self._test.lower() != "diagnostic result":
                gpus: list[int | None] = [int(n) for n in (status[2] or "").split(",") if n.strip()]
                self.results += [(self._test, gpu, status[1].lower(), line) for gpu in gpus or [None]]
        elif name == "Driver Version Detected" and _VERSION.match(value):
            self.driver = (value, line)
        elif name == "GPU Device IDs Detected":
            ids = tuple(part.strip().lower() for part in value.split(","))
            if all(_DEVICE_ID.match(part) for part in ids):
                self.ids, self.ids_line = ids, line

    def section(self) -> None:
        """A line between two parts of the table."""
        self.close()
        self._test = None

    def close(self) -> None:
        """What follows is another row, so the message has all its pieces."""
        if self._message is not None:
            self._message.whole = True
            self.messages.append(self._message)
        self._message = None

    def end(self) -> None:
        """The output stops: a last piece that is shorter than a row is the last one of its message."""
        if self._message is not None:
            self._message.whole = 0 < len(self._message.pieces[-1].strip()) < PIECE - 1 and not self._broken
            self.messages.append(self._message)
        self._message = None

    def tests(self, section: Section) -> list[ToolTest]:
        """One entry a test and GPU, with the messages that name the GPU; the others stand with the test as a whole."""
        out: list[ToolTest] = []
        left = [m for m in self.messages if m.weight != "info" and m.text.strip()]
        for test, gpu, status, line in self.results:
            own = [m for m in left if m.test == test and m.gpu == gpu]
            left = [m for m in left if m not in own]
            out.append(entry(test, gpu, status, section.at(line), [(m.text, m.spot(section)) for m in own]))
        for message in left:
            ends = {s for t, _, s, _ in self.results if t == message.test}
            worse = next((s for s in ("fail", "warn", "skip", "pass") if s in ends), "fail" if message.weight == "error" else "warn")
            out.append(entry(message.test, message.gpu, worse, section.at(message.line), [(message.text, message.spot(section))]))
        return out

    def device_ids(self, section: Section) -> dict[int, tuple[str, Evidence]]:
        """GPU -> PCI device id, where all are of one kind: the table numbers none of them."""
        if self.ids_line is None or len(set(self.ids)) != 1:
            return {}
        gpus = {gpu for _, gpu, _, _ in self.results if gpu is not None} | {m.gpu for m in self.messages if m.gpu is not None}
        gpus |= {int(n) for m in self.messages for n in _NAMED.findall(m.text)}
        return dict.fromkeys(sorted(gpus), (f"10de:{self.ids[0]}", section.at(self.ids_line)))


def entry(test: str, gpu: int | None, status: str, spot: Evidence, messages: list[tuple[str, Evidence]]) -> ToolTest:
    return ToolTest(
        tool=_TOOL,
        test=test,
        gpu=gpu,
        status=status,
        messages=tuple(" ".join(text.split()) for text, _ in messages),
        origin={"*": spot, **{f"messages.{n}": where for n, (_, where) in enumerate(messages)}},
    )
