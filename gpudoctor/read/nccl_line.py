"""What tells a line of NCCL's own: its mark, what stands before it, and what a terminal broke."""

from __future__ import annotations

import re

MARK = b"NCCL "
INFO = b"NCCL INFO "
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]+[0-~]|[@-Z\\-_])")
# A line that a terminal broke within its transport: `via SHM` and `/direct/direct` below it, which is shorter than this.
MAX_SHORT = 33
_SHORT_LINE = re.compile(rb"\n[\w/()]{1,30}\r?\n")
_FOLDED = re.compile(rb"( via (?:P2P|SHM|NET)[^\n]{0,40})\n(?!\d+\r?\n)([\w/()]{1,30})(\r?)\n")
# How a transport stands behind `via `, whole.
TRANSPORT = (
    rb"(?:P2P/(?:direct pointer|indirect/\d+\[[0-9a-f]+\]|IPC|CUMEM|MNNVL)(?:/(?:read|CE))*|SHM(?:/(?:direct|CE)){1,2}|direct shared memory"
    rb"|NET/[\w .+-]+/\d+(?:\(\d+\))?(?:/(?:GDRDMA(?:\(PCI\))?|Shared|flush=[A-Z]\w*))*)"
)
_WHOLE = re.compile(rb" via " + TRANSPORT + rb"[ \r]*$")
# What NCCL itself writes behind its name; a framework that speaks of NCCL writes something else.
OWN = (b"INFO ", b"WARN ", b"ATTN ", b"DIAG ", b"CALL ", b"TRACE", b"ABORT")
_OWN_TEXT = tuple(word.decode() for word in OWN)
LONG = 120  # bytes before NCCL's name: more than launchers put there, so that another writer's words may be among them
# `host:pid:tid [dev] file.cc:line ` right before NCCL's name.
_OWN_HEAD = re.compile(r"[^\s:]{1,64}:\d+:\d+ (?:\[-?\d+\] )?(?:\S{1,60}:\d+ )?$")


def is_nccl(text: str) -> bool:
    """A line that NCCL wrote itself, so that no other format need look at it."""
    at = text.find("NCCL ")
    return at >= 0 and text.startswith(_OWN_TEXT, at + 5)


def is_own(line: bytes) -> bool:
    """The same of a line that is not decoded yet."""
    at = line.find(MARK)
    return at >= 0 and line.startswith(OWN, at + 5)


def before_nccl(text: str) -> str | None:
    """The words of another writer into whose line NCCL's ran; None where only a launcher's prefix stands there."""
    at = text.find("NCCL ")
    if at <= LONG:
        return None
    own = _OWN_HEAD.search(text, max(0, at - 160), at)
    return text[: own.start() if own is not None else at]


def uncoloured(chunk: bytes) -> bytes:
    return _ESCAPES.sub(b"", chunk) if b"\x1b" in chunk else chunk


def joined(text: bytes) -> bytes:
    """With broken transports in one line: as many bytes and line ends as before."""
    return _FOLDED.sub(_one_line, text) if _SHORT_LINE.search(text) is not None else text


def _one_line(found: re.Match[bytes]) -> bytes:
    """A transport that is whole goes on with a slash or not at all: else the short line below it is another writer's."""
    begun, rest, end = found.groups()
    if _WHOLE.search(begun) is not None and not rest.startswith(b"/"):
        return found[0]
    return begun + rest + end + b"\n\n"
