"""Lines of the kernel log, syslog, the journal and the Fabric Manager log to KernelEvents.

Whatever stands in front of a message (seconds since boot, a date, a host name, `kern :warn :`) is left alone: the
messages are found by the words of the driver itself. Prose that talks of Xids does not have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpudoctor import bdf
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.kernel import KernelEvent, KernelLog, MemoryKill, MemoryKills, UnsetLinks
from gpudoctor.parsers.kernel_line import LOG_LINE, event
from gpudoctor.parsers.kernel_told import TOLD
from gpudoctor.pattern import lazy
from gpudoctor.read.kernel_words import NVIDIA_SAYS
from gpudoctor.read.section import Line, Section
from gpudoctor.record import replace

if TYPE_CHECKING:
    from gpudoctor.parsers.apei import HardwareErrors

_B = bdf.PATTERN
_WHOLE = r"(?=([^.\w]?))"  # what follows an address; on a cut line nothing or a point means that it may go on
# `NVRM: Xid (PCI:0000:10:1c): 63, pid=…`, `Xid (0000:01:00): 31, Ch …` (old), `Xid (PCI:0000:06:00 GPU-I:05): 94, …` (MIG).
# Some cut the driver's name off: then only a whole address and what follows the number make it more than a remark.
_XID = lazy(r"(?:NVRM: Xid \((?=[^()]{1,80}\): )|^[\s>*`-]{0,8}Xid \((?=PCI:[0-9a-fA-F:.]{7,16}\): \d{1,5}, ))([^()]{1,80})\): (\d{1,5})(?=(.?))")
# `nvidia-nvswitch3: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 28 LTSSM Fault Up`
_SXID = lazy(r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{4,6})(?=(.?))")
_SWITCH = lazy(
    rf"detected NVSwitch (non-fatal|fatal) error (\d{{4,6}}) on fid \d+ on NVSwitch pci bus id ({_B}) physical id \d+ port (\d+)(?=(.?))"
)
_FATAL = lazy(r"\b(Non-?fatal|Fatal)\b", re.I)
_LINK = lazy(r"\blink:? ?(-?\d+)(?=(.?))", re.I)
_BUS_ERROR = lazy(
    rf"(?:\b([\w-]{{1,32}}) )?({_B}): (?:AER: )?PCIe Bus Error: severity=(Correct|Uncorrect)\w+(?: \((Non-Fatal|Fatal)\))?(?:(,)|\s*$)"
)
# The root port's announcement: `AER: Corrected error received: 0000:81:00.0`, since 6.9 `AER: Correctable error message received from …`.
_RECEIVED = lazy(
    rf"AER: (?:Multiple )?(Correct|Uncorrect)\w+(?: \((Non-Fatal|Fatal)\))? error (?:message )?received(?::| from) ({_B}){_WHOLE}"
)
# An error below a bridge that was not corrected is told to every driver there, and NVIDIA's cannot mend one.
_STRUCK = lazy(rf"\bnvidia ({_B}): (?:AER: can't recover|device has no AER-aware driver)")
_LIMITED = lazy(
    rf"(?:\b([\w-]{{1,32}}) )?({_B}): [\d.]+ Gb/s available PCIe bandwidth, limited by"
    # Up to 5.6 kernels write `8 GT/s x8 link`; mailers and terminals break these long lines anywhere.
    rf"(?: [\d.]+ GT/s(?: PCIe)? x\d+ link(?: at ({_B}){_WHOLE})?)?"
)
_OFF_BUS = lazy(rf"NVRM: (?:GPU (?:(?:at (?:PCI:)?)?({_B}):? .{{0,120}}?)?)?(?:has )?fallen off the bus")
_RM_INIT = lazy(rf"NVRM: (?:GPU (?:at (?:PCI:)?)?({_B}):? )?(?:RmInitAdapter failed|rm_init_adapter failed)")
# A card whose memory windows the firmware did not map; the line above names no card.
_NO_WINDOW = lazy(rf"NVRM: BAR\d is 0M @ 0x0 \(PCI:({_B})")
# The module came and did not take a card: another driver holds it, or it is too old or too new for this driver.
_REFUSED = lazy(
    r"NVRM: (?:The NVIDIA probe routine was not called for \d+ device|None of the NVIDIA devices were (?:initialized|probed)"
    r"|installed in this system (?:is not supported by|requires use of the NVIDIA open))"
)
_LOAD = lazy(r"NVRM: loading NVIDIA UNIX\b.{0,40}?Kernel Module.{0,40}?\s(\d{3}\.\d+(?:\.\d+)?)\s")
_MISMATCH = lazy(r"NVRM: API mismatch: ")
_MODULE = lazy(r"NVRM: (this kernel module has the version \S.*|.{0,20}make sure that this kernel module.*)", re.I)
_IOMMU = lazy(
    rf"(?:(?:\b([\w-]{{1,32}}) )?({_B}): )?AMD-Vi: Event logged \[IO_PAGE_FAULT (?:device=({_B}) )?|DMAR: ?\[.{{3,40}}\] Request device \[({_B})\]"
)
# The three-line form: `NVRM: The NVIDIA GPU 0000:18:00.0`, `NVRM: (PCI ID: …) installed in this system has`, then the words.
_NAMED = lazy(rf"NVRM: The NVIDIA GPU ({_B})")


_SAYS = lazy(NVIDIA_SAYS)
_WRITES = lazy(r"(?:^|[\s;&(\"'])(?:echo|printf|logger)\s")  # a command that puts the line there, to try an alarm
# `Memory cgroup out of memory: Killed process 816 (python), UID 0, …`; older kernels say `Kill process` before they do it.
_LOGGED = lazy(r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? ([A-Za-z0-9][\w.-]{0,120}) kernel(?:\[\d{1,9}\])?: ")
_KILLED = lazy(r"\bKilled process (\d{1,9})(?:, UID \d+,)? \(([^()]{1,40})\)")


def _host(before: str) -> str | None:
    """`Nov 29 12:00:00 node07 kernel: ` of syslog and the journal, `2026-11-29T12:00:00+00:00 node07 kernel[1]: ` of others."""
    found = _LOGGED.search(before)
    return found[1] if found is not None else None


def parse(section: Section) -> Iterator[Fact | Loss]:
    kills = [
        MemoryKill(pid=int(found[1]), name=found[2], host=_host(line.text[: found.start()]) or section.host, origin={"*": section.at(line)})
        for line in section
        if "Killed process" in line.text and (found := _KILLED.search(line.text)) is not None
    ]
    if kills:
        yield MemoryKills(tuple(kills))
    events: list[KernelEvent] = []
    named: str | None = None
    firmware: HardwareErrors | None = None
    for line in section:
        text = line.text
        if "[Hardware Error]" in text:
            if firmware is None:
                from gpudoctor.parsers.apei import HardwareErrors  # few logs have any

                firmware = HardwareErrors()
            told = firmware.take(section, line)
            events += [told] if told is not None else []
            continue
        if "The NVIDIA GPU" in text:
            gpu = _NAMED.search(text)
            named = gpu[1] if gpu else None
        for word, read in _READERS:
            if word in text:
                told = read(section, line)
                if told is not None:
                    if told.bdf is None and named is not None and (told.kind == "fell-off" or "installed in" in text):
                        told = replace(told, bdf=bdf.normalise(named))
                    before = events[-1] if events else None
                    if told.kind == "rm-init-failed" and told.bdf is None and before is not None and before.kind == "fell-off":
                        told = replace(told, bdf=before.bdf)  # the start that this card failed in
                    events.append(told)
                    break
        else:
            # The second half of an API mismatch stands on the line below.
            more = _MODULE.search(text) if events and events[-1].kind == "version-mismatch" else None
            if more:
                events[-1] = replace(events[-1], text=f"{events[-1].text} {more[1].strip()}")
    last = firmware.flush() if firmware is not None else None
    events += [last] if last is not None else []
    if events:
        from gpudoctor.parsers.kernel_events import as_one_log

        log = as_one_log(events)
        yield log
        masks = log.of("nvlink-mask")
        if masks:
            yield UnsetLinks(masks)
    elif section.live or any(_SAYS.search(line.text) and not _WRITES.search(line.text) for line in section):
        yield KernelLog(())  # what the modules say when all is well makes it a kernel log too


def _xid(section: Section, line: Line) -> KernelEvent | None:
    found = _XID.search(line.text)
    if not found or line.cut and not found[3] or _WRITES.search(line.text, 0, found.start()):
        return None
    place = re.search(_B, found[1])
    if place is None:
        # Blotted out (`PCI:0000:xx:00`, `PCI:...`) it is an event where a log's line begins so, and an example in a sentence.
        if not LOG_LINE.match(line.text[: found.start()]) or not ("PCI:" in found[1] or any(c.isdigit() for c in found[1])):
            return None
    rest = line.text[found.end() :]
    return event(
        section,
        line,
        "xid",
        found,
        place[0] if place else None,
        code=int(found[2]),
        fatal=_fatal(rest),
        link=_link(rest, line.cut),
    )


def _sxid(section: Section, line: Line) -> KernelEvent | None:
    found = _SXID.search(line.text)
    if not found or line.cut and not found[3]:
        return None
    rest = line.text[found.end() :]
    return event(
        section, line, "sxid", found, found[1], code=int(found[2]), fatal=_fatal(rest), link=_link(rest, line.cut)
    )


def _fatal(rest: str) -> bool | None:
    found = _FATAL.search(rest)
    return None if not found else found[1].lower() == "fatal"


def _link(rest: str, cut: bool) -> int | None:
    """-1 is the driver's "no link"; a number at the end of a cut line may go on."""
    found = _LINK.search(rest)
    if not found or cut and not found[2] or int(found[1]) < 0:
        return None
    return int(found[1])


def _nvswitch(section: Section, line: Line) -> KernelEvent | None:
    found = _SWITCH.search(line.text)
    if not found:
        return None
    port = None if line.cut and not found[5] else int(found[4])
    return event(section, line, "nvswitch", found, found[3], code=int(found[2]), fatal=found[1] == "fatal", link=port)


def _severity(word: str, fatal: str | None) -> str:
    return "correctable" if word == "Correct" else "fatal" if fatal == "Fatal" else "nonfatal"


def _bus_error(section: Section, line: Line) -> KernelEvent | None:
    found = _BUS_ERROR.search(line.text)
    if not found or line.cut and not found[5]:
        return None
    # Broken before `(Fatal)`: that it was not corrected is all that the line still says.
    severity = None if found[3] == "Uncorrect" and not (found[4] or found[5]) else _severity(found[3], found[4])
    return event(section, line, "aer", found, found[2], driver=found[1], severity=severity)


def _received(section: Section, line: Line) -> KernelEvent | None:
    found = _RECEIVED.search(line.text)
    if not found or line.cut and not found[4]:
        return None
    # Kept only where the device's own line is not there (see _once): one error has both.
    return event(section, line, "aer-received", found, found[3], severity=_severity(found[1], found[2]))


def _struck(section: Section, line: Line) -> KernelEvent | None:
    found = _STRUCK.search(line.text)
    return event(section, line, "aer-received", found, found[1], driver="nvidia") if found else None


def _limited(section: Section, line: Line) -> KernelEvent | None:
    found = _LIMITED.search(line.text)
    if not found:
        return None
    bridge = None if found[3] is None or line.cut and not found[4] else bdf.normalise(found[3])
    return event(section, line, "bandwidth-limited", found, found[2], driver=found[1], bridge=bridge)


def _off_bus(section: Section, line: Line) -> KernelEvent | None:
    found = _OFF_BUS.search(line.text)
    return event(section, line, "fell-off", found, found[1]) if found else None


def _rm_init(section: Section, line: Line) -> KernelEvent | None:
    found = _RM_INIT.search(line.text)
    return event(section, line, "rm-init-failed", found, found[1]) if found else None


def _no_window(section: Section, line: Line) -> KernelEvent | None:
    found = _NO_WINDOW.search(line.text)
    if not found or line.cut and found.end() == len(line.text):
        return None
    return event(section, line, "rm-init-failed", found, found[1])


def _refused(section: Section, line: Line) -> KernelEvent | None:
    found = _REFUSED.search(line.text)
    return event(section, line, "refused", found, None) if found else None


def _load(section: Section, line: Line) -> KernelEvent | None:
    found = _LOAD.search(line.text)
    return event(section, line, "driver-load", found, None) if found else None


def _mismatch(section: Section, line: Line) -> KernelEvent | None:
    found = _MISMATCH.search(line.text)
    return event(section, line, "version-mismatch", found, None) if found else None


def _iommu(section: Section, line: Line) -> KernelEvent | None:
    found = _IOMMU.search(line.text)
    if not found:
        return None
    return event(section, line, "iommu-fault", found, found[2] or found[3] or found[4], driver=found[1])


# A word that must stand in the line, and who reads it then: most lines of a log have none.
_READERS: tuple[tuple[str, Callable[[Section, Line], KernelEvent | None]], ...] = (
    ("Xid (", _xid),
    ("SXid (", _sxid),
    ("detected NVSwitch", _nvswitch),
    ("PCIe Bus Error", _bus_error),
    ("AER: ", _received),
    ("AER", _struck),
    ("available PCIe bandwidth", _limited),
    ("fallen off the bus", _off_bus),
    *TOLD,
    ("nit", _rm_init),  # RmInitAdapter, rm_init_adapter
    ("NVRM: BAR", _no_window),
    ("NVRM: installed in this system ", _refused),
    ("probe routine was not called", _refused),
    ("None of the NVIDIA devices", _refused),
    ("loading NVIDIA UNIX", _load),
    ("API mismatch", _mismatch),
    ("IO_PAGE_FAULT", _iommu),
    ("DMAR:", _iommu),
)
