"""What the NVIDIA driver and the PCIe ports say of a GPU without an Xid: it stopped, was lost, was taken or was not."""

from __future__ import annotations

from collections.abc import Callable

from gpudoctor import bdf
from gpudoctor.facts.kernel import KernelEvent
from gpudoctor.parsers.kernel_line import LOG_LINE, event
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section

_B = bdf.PATTERN
# What the driver's own assertions and watchdogs say of a GPU, often without an Xid: gone, good for nothing before a reset, or
# no answer from its system processor. Newer drivers name the GPU by their own number.
_TOLD = lazy(
    r"NVRM: (?:GPU(?P<gpu>\d{1,3}) )?(?:\S.{0,160}? )?(?:(?P<lost>GPU lost from the bus(?: \[NV_ERR_GPU_IS_LOST\]|\s*$)|rpcSendMessage failed with status 0x0000000f\b)|(?P<reset>Reset required \[NV_ERR_RESET_REQUIRED\])"
    r"|(?P<timeout>\*{3,80} GSP Timeout \*|Timeout after \d+s of waiting for RPC response from GPU\d* GSP|RC watchdog: GPU is probably locked|rpcRecvPoll timedout for fn \d)"
    r"|(?P<uvm>uvm encountered global fatal error 0x\w+, requiring os reboot)"
    r"|(?P<heartbeat>GSP RM heartbeat timed out|Heartbeat timed out, currentTimeMs))"
)
_TOLD_KINDS = {"lost": "fell-off", "reset": "reset-required", "timeout": "gsp-timeout", "heartbeat": "gsp-heartbeat", "uvm": "uvm-fatal"}
_BOUND = lazy(rf"\bnvidia ({_B}): enabling device\b")
# `nvidia 0000:14:00.0: probe with driver nvidia failed with error -1`, before 6.9 `nvidia: probe of 0000:14:00.0 failed with error -1`.
_PROBE = lazy(rf"\bnvidia(?: ({_B}): probe with driver nvidia|: probe of ({_B})) failed with error -\d")
# The display part waits for commands that the GPU does not work on; said every five seconds while it hangs.
_PROGRESS = lazy(r"nvidia-modeset: ERROR: GPU:(\d{1,3}): Error while waiting for GPU progress")
# A port cut off what lies below it. `source:0x0000` is the port's own error; kernels from 6.17 on name the device.
_CONTAINED = lazy(rf"\bpcieport ({_B}): DPC: containment event, status:0x\w+(?:,? (ERR_NONFATAL|ERR_FATAL) received from ({_B})(?=([^.\w]?)))?")
# The driver could not learn which NVLinks of a peer see a far end: no link is set up with it. `Getting peer0's …` before 580.
_MASK = lazy(r"NVRM: knvlink(?:UpdatePostRxDetectLinkMask_\w{1,24}: Failed to update Rx Detect Link mask|DiscoverPostRxDetLinks_\w{1,24}: Getting peer\d{1,3}(?:'s)? postRxDetLinkMask failed)")
# A flood: the kernel (from 6.16 on) counts what it held back of one device, just before that device's next report.
_HELD_BACK = lazy(r"\baer_ratelimit: (\d{1,12}) callbacks suppressed")


def _told(section: Section, line: Line) -> KernelEvent | None:
    found = _TOLD.search(line.text)
    if not found or not found.lastgroup or not LOG_LINE.match(line.text[: found.start()]):
        return None
    gpu = found["gpu"]
    return event(section, line, _TOLD_KINDS[found.lastgroup], found, None, gpu=int(gpu) if gpu else None)


def _bound(section: Section, line: Line) -> KernelEvent | None:
    found = _BOUND.search(line.text)
    return event(section, line, "bound", found, found[1]) if found else None


def _probe(section: Section, line: Line) -> KernelEvent | None:
    found = _PROBE.search(line.text)
    return event(section, line, "probe-failed", found, found[1] or found[2]) if found else None


def _progress(section: Section, line: Line) -> KernelEvent | None:
    found = _PROGRESS.search(line.text)
    if not found or not LOG_LINE.match(line.text[: found.start()]):
        return None
    return event(section, line, "no-progress", found, None, gpu=int(found[1]))


def _mask(section: Section, line: Line) -> KernelEvent | None:
    found = _MASK.search(line.text)
    return event(section, line, "nvlink-mask", found, None) if found and LOG_LINE.match(line.text[: found.start()]) else None


def _held_back(section: Section, line: Line) -> KernelEvent | None:
    found = _HELD_BACK.search(line.text)
    return event(section, line, "aer-held-back", found, None, held_back=int(found[1])) if found else None


def _contained(section: Section, line: Line) -> KernelEvent | None:
    """Kept only where the report of the error itself is not there."""
    found = _CONTAINED.search(line.text)
    if not found or line.cut and not found[4] and " source:" not in line.text:
        return None  # the device that it names may follow
    return event(section, line, "aer-received", found, found[3] or found[1], severity="nonfatal" if found[2] == "ERR_NONFATAL" else "fatal")


# A word that must stand in the line, and who reads it then.
TOLD: tuple[tuple[str, Callable[[Section, Line], KernelEvent | None]], ...] = (
    *((word, _told) for word in ("GPU lost from the bus", "NV_ERR_", "eartbeat timed out", "GSP Timeout", "RPC response from GPU", "probably locked")),
    *((word, _told) for word in ("rpcSendMessage failed", "rpcRecvPoll timedout", "uvm encountered global")),
    ("waiting for GPU progress", _progress),
    ("ostRxDet", _mask),
    ("failed with error -", _probe),
    ("DPC: containment", _contained),
    ("aer_ratelimit", _held_back),
    ("enabling device", _bound),
)
