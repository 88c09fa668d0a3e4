"""PCIe errors that the firmware keeps to itself and hands to the kernel (APEI, GHES) to KernelEvents.

Servers with firmware-first error handling report a PCIe error over a dozen lines: `{1}[Hardware Error]:   section_type: PCIe
error`, then severity, kind of port, `device_id: 0000:5e:00.0` and last vendor and class, which say whether a GPU, a bridge or
another device is meant.
"""

from __future__ import annotations

from gpudoctor import bdf
from gpudoctor.facts.kernel import KernelEvent
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section

_FIELD = lazy(
    r"\[Hardware Error\]:\s+(?:Error \d{1,3}, type: (?P<type>corrected|recoverable|fatal|info)\b|(?P<section>section_type: .{1,40})"
    rf"|port_type: (?P<port>\d{{1,2}}),|device_id: (?P<at>{bdf.PATTERN})|vendor_id: 0x(?P<vendor>[0-9a-f]{{4}}),"
    r"|class_code: (?P<class>[0-9a-f]{6})\b)"
)
_SEVERITIES = {"corrected": "correctable", "recoverable": "nonfatal", "fatal": "fatal"}
# Root port, upstream and downstream port of a switch, bridges: CPER_PCIE port_type.
_PORTS = ("4", "5", "6", "7", "8")
_NVIDIA = "10de"


class HardwareErrors:
    """Reads the lines of one log in turn; an event is there once the device's class was read, or the report ended."""

    def __init__(self) -> None:
        self._severity: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._pcie = False
        self._port: str | None = None
        self._vendor: str | None = None
        self._event: KernelEvent | None = None

    def take(self, section: Section, line: Line) -> KernelEvent | None:
        found = None if line.cut else _FIELD.search(line.text)
        if found is None:
            return None
        done = None
        if found["type"]:
            done = self.flush()
            self._severity = _SEVERITIES.get(found["type"])
        elif found["section"]:
            done = self.flush()
            self._pcie = "PCIe error" in found["section"]
        elif found["port"]:
            self._port = found["port"]
        elif found["at"] and self._pcie:
            self._event = KernelEvent(
                kind="aer",
                bdf=bdf.normalise(found["at"]),
                severity=self._severity,
                text=line.text[found.start("at") :].strip(),
                origin={"*": section.at(line)},
            )
        elif found["vendor"]:
            self._vendor = found["vendor"]
        elif found["class"]:
            done = self.flush(found["class"])
        return done

    def flush(self, klass: str | None = None) -> KernelEvent | None:
        """The device of the report that ends here, where it is a GPU or a bridge that may lead to one."""
        event, vendor, port = self._event, self._vendor, self._port
        self._forget()
        if event is None:
            return None
        gpu = vendor == _NVIDIA and (klass or "03").startswith("03")
        bridge = klass.startswith("0604") if klass is not None else port in _PORTS
        if not (gpu or bridge):
            return None
        return KernelEvent(
            kind=event.kind,
            bdf=event.bdf,
            severity=event.severity,
            driver="nvidia" if gpu else "pcieport",
            text=event.text,
            origin=event.origin,
        )
