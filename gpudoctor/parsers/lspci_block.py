"""One device's block of `lspci -v…` to a PciDevice.

Each line is told by its first word (`LnkSta:`, `Region`, …), so that a server's 7,000 lines cost one lookup each and
only the few that matter a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gpudoctor.facts.pci import PciDevice
from gpudoctor.parsers.lspci_head import Head, known_id
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section

_SPEED = lazy(r"Speed (\d+(?:\.\d+)?) ?GT/s")
_WIDTH = lazy(r"Width x(\d+)(?=(.?))")
_NARROWED = lazy(r"Width x[1-9]\d? ?\(downgraded\)")
_ASPM_CAP = lazy(r"ASPM (not supported|L0s L1|L0s|L1)(?=([,;]?))")
_ASPM_CTL = lazy(r"ASPM (Disabled|L0s L1 Enabled|L0s Enabled|L1 Enabled)")
# `2.5-16GT/s` (lspci 3.6 and later) or `2.5GT/s, 5GT/s, 8GT/s` (before).
_SUPPORTED = lazy(r"(\d+(?:\.\d+)?) ?GT/s")
_FLAG = lazy(r"\b([A-Za-z]\w{1,24})([+-])(?=[\s,;]|$)")
_L1SS = lazy(r"\bASPM_(L1\.[12])([+-])")
_PORT = lazy(
    r"Express (?:\(v\d+\) )?(Root Port|Upstream Port|Downstream Port|(?:Legacy )?Endpoint"
    r"|Root Complex Integrated Endpoint|Root Complex Event Collector|PCI-Express to PCI/PCI-X Bridge"
    r"|PCI/PCI-X to PCI-Express Bridge)"
)
_PORT_TYPES = {
    "Root Port": "root",
    "Upstream Port": "upstream",
    "Downstream Port": "downstream",
    "Endpoint": "endpoint",
    "Legacy Endpoint": "endpoint",
    "Root Complex Integrated Endpoint": "integrated",
    "Root Complex Event Collector": "integrated",
}
_EXTENDED = lazy(r"\[[1-9a-f][0-9a-f]{2} v\d")  # capabilities at 100h and above: the extended space was read
_BUSES = lazy(r"secondary=([0-9a-f]{2}), subordinate=")
_REGION = lazy(r"(?:\d: Memory )?at .*\[size=(\d+)([KMGT]?)\]")
_IDS = lazy(r"\[([0-9a-f]{4}:[0-9a-f]{4})\]")
_ACS_NAMES = frozenset(("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"))
# Of a device without an address, something worth saying must be known.
_TELLING = frozenset(("speed_gts", "width", "max_speed_gts", "max_width", "aspm_enabled", "aspm_supported", "acs"))
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Lines that a device has once: a second one means that a filter (grep) took the address line between them away.
_ONCE = frozenset(("LnkCap:", "LnkCtl:", "LnkSta:", "ACSCap:", "ACSCtl:"))
_EMULATED = lazy(
    r"Red Hat|Virtio|VMware|QEMU|\bBochs|\bXen|XenSource|Hyper-V|VirtualBox|InnoTek|Microsoft Corporation|Parallels"
    r"|440FX|PIIX3|PIIX4|82G33/G31/P35/P31"  # the chips that QEMU's `pc` and `q35` machines imitate
    r"|Intel Corporation Device 0d57",  # Cloud Hypervisor's host bridge
    re.I,
)


class Block:
    """What the lines of one device said so far."""

    def __init__(self, head: Head | None, line: Line | None) -> None:
        self.head = head
        self.values: dict[str, Any] = {}
        self.at: dict[str, Line] = {}
        self.secondary: str | None = None  # the bus below a bridge, two hex digits
        self.closed = False  # the next device's line was seen: nothing of this one can follow
        self._seen: set[str] = set()
        self._regions: list[int] = []
        self._flags: dict[str, bool] = {}
        self._acs: dict[str, bool] = {}
        self._acs_listed = False  # the capability is there, whether or not its bits were printed
        self._extended = False
        self._regions_over = False  # another line followed the list of BARs, so none is missing
        if head is not None and line is not None:
            for name, value in head.values.items():
                self._set(name, value, line)
            if _EMULATED.search(line.text):
                self._set("virtual", True, line)
            if head.dead:
                self._set("all_ones", True, line)

    def takes(self, word: str) -> bool:
        """False: this line cannot be of the same device."""
        return not (word in _ONCE and word in self._seen)

    def feed(self, word: str, rest: str, line: Line) -> None:
        """One line whose first word is known (see HANDLERS)."""
        self._seen.add(word)
        self._regions_over = bool(self._regions) and word not in ("Region", "Memory")
        HANDLERS[word](self, rest, line)

    def _set(self, name: str, value: object, line: Line) -> None:
        self.values[name] = value
        self.at[name] = line

    # --- one method per kind of line

    def _capability(self, rest: str, line: Line) -> None:
        if "access denied" in rest:
            self._set("access_denied", True, line)
            return
        self.values.setdefault("access_denied", False)
        self.at.setdefault("access_denied", line)
        port = _PORT.search(rest)
        if port and not (line.cut and rest.endswith(port[0])):
            self._set("port_type", _PORT_TYPES.get(port[1], "bridge"), line)
        if _EXTENDED.match(rest):
            self._extended = True
            self._acs_listed = self._acs_listed or "Access Control" in rest

    def _link_cap(self, rest: str, line: Line) -> None:
        speed, width, aspm = _SPEED.search(rest), _whole_width(rest, line), _ASPM_CAP.search(rest)
        if speed:
            self._faster(float(speed[1]), line)
        if width:
            self._set("max_width", width, line)
        if aspm and (aspm[2] or aspm[1] == "not supported"):
            self._set("aspm_supported", () if aspm[1] == "not supported" else tuple(aspm[1].split()), line)

    def _link_cap2(self, rest: str, line: Line) -> None:
        if "Supported Link Speeds" in rest:
            speeds = [float(s) for s in _SUPPORTED.findall(rest)]
            if speeds:
                self._faster(max(speeds), line)

    def _faster(self, speed: float, line: Line) -> None:
        # LnkCap can be lowered to what the slot gives (NVIDIA cards do it) while LnkCap2 lists all that the device has.
        if speed > self.values.get("max_speed_gts", 0.0):
            self._set("max_speed_gts", speed, line)

    def _link_sta(self, rest: str, line: Line) -> None:
        speed, width = _SPEED.search(rest), _whole_width(rest, line)
        if speed:
            self._set("speed_gts", float(speed[1]), line)
        if width:
            self._set("width", width, line)
            if _NARROWED.search(rest):
                self._set("narrowed", True, line)
        elif width == 0:
            self._set("link_up", False, line)  # no lane at all
        self._take_flags(rest, line)

    def _link_ctl(self, rest: str, line: Line) -> None:
        state = _ASPM_CTL.search(rest)
        if state:
            words = state[1].split()
            self._set("aspm_enabled", tuple(w for w in words if w.startswith("L")), line)

    def _take_flags(self, rest: str, line: Line) -> None:
        """DLActive, LLActRep, PresDet and ABWMgmt, which stand on the line itself or on the one below."""
        for name, sign in _FLAG.findall(rest):
            self._flags.setdefault(name, sign == "+")
            self.at.setdefault(f"flag {name}", line)

    def _slot_sta(self, rest: str, line: Line) -> None:
        for name, sign in _FLAG.findall(rest):
            if name == "PresDet":
                self._flags[name] = sign == "+"
                self.at["flag PresDet"] = line

    def _substates(self, rest: str, line: Line) -> None:
        found = dict(_L1SS.findall(rest))
        if len(found) == 2:
            self._set("aspm_substates", tuple(n for n in ("L1.1", "L1.2") if found[n] == "+"), line)

    def _acs_cap(self, rest: str, line: Line) -> None:
        self._acs_listed = True

    def _acs_ctl(self, rest: str, line: Line) -> None:
        self._acs_listed = True
        bits = {name: sign == "+" for name, sign in _FLAG.findall(rest) if name in _ACS_NAMES}
        # On a line that ends too early the missing bits would read as absent: wait for the last one.
        if bits and (not line.cut or "DirectTrans" in bits):
            self._acs = bits
            self.at["acs"] = line

    def _subsystem(self, rest: str, line: Line) -> None:
        ids = _IDS.search(rest)
        found = ids[1] if ids else None if line.cut else known_id(rest)
        if found:
            self._set("subsystem_id", found, line)
        if _EMULATED.search(rest):
            self._set("virtual", True, line)
        if self.head is None and "NVIDIA" in rest and "class_code" not in self.values:
            self._set("maker", "nvidia", line)

    def _numa(self, rest: str, line: Line) -> None:
        number = rest.removeprefix("node:").strip()
        if not line.cut and number.lstrip("-").isdigit():
            self._set("numa_reported", int(number), line)
            if int(number) >= 0:
                self._set("numa_node", int(number), line)

    def _iommu(self, rest: str, line: Line) -> None:
        number = rest.removeprefix("group:").strip()
        if not line.cut and number.isdigit():
            self._set("iommu_group", int(number), line)

    def _flags_line(self, rest: str, line: Line) -> None:
        """`Flags: bus master, fast devsel, latency 0, IRQ 18, NUMA node 0, IOMMU group 22` of lspci -v."""
        if line.cut:
            return
        for words in rest.split(", "):
            if words.startswith("NUMA node "):
                self._numa("node:" + words[9:], line)
            elif words.startswith("IOMMU group "):
                self._iommu("group:" + words[11:], line)

    def _kernel(self, rest: str, line: Line) -> None:
        if rest.startswith("driver in use:") and not line.cut:
            words = rest[len("driver in use:") :].split()
            if words:
                self._set("driver", words[0], line)

    def _physical(self, rest: str, line: Line) -> None:
        if rest.startswith("Slot:") and not line.cut:
            self._set("slot", rest[len("Slot:") :].strip() or None, line)

    def _region(self, rest: str, line: Line) -> None:
        size = _REGION.match(rest)
        if size:
            self._regions.append(int(size[1]) * _UNITS[size[2]])
            self.at.setdefault("bar_sizes", line)

    def _bus(self, rest: str, line: Line) -> None:
        buses = _BUSES.search(rest)
        if buses and buses[1] != "00":
            self.secondary = buses[1]
            self.at["secondary"] = line

    def _dead(self, rest: str, line: Line) -> None:
        if "Unknown header type 7f" in rest:
            self._set("all_ones", True, line)

    # ---

    def device(
        self, section: Section, parent: str | None, parent_known: bool | None, bridge: Line | None
    ) -> PciDevice | None:
        """The facts, or None when no line told anything."""
        values = dict(self.values)
        maker = values.pop("maker", None)
        link = self._link_up()
        if link is not None and values.get("link_up") is None:
            values["link_up"] = link
            self.at["link_up"] = self.at.get("flag DLActive") or self.at["flag PresDet"]
        if "ABWMgmt" in self._flags:
            values["bandwidth_limited"] = self._flags["ABWMgmt"]
            self.at["bandwidth_limited"] = self.at["flag ABWMgmt"]
        if self._regions and (self.closed or self._regions_over):
            values["bar_sizes"] = tuple(self._regions)
        if self._acs:
            values["acs"] = self._acs
        elif self.closed and self._extended and not self._acs_listed and not values.get("access_denied"):
            values["acs"] = {}
        if self.head is None and "class_code" not in values and (values.get("driver") == "nvidia" or maker):
            # The address line, which names the class, is not in the input; this driver binds to GPUs only.
            values["class_code"] = "030000"
            self.at["class_code"] = self.at.get("driver") or self.at["maker"]
        if self.head is None and not values.keys() & _TELLING:
            return None
        if parent is not None and bridge is not None:
            self.at["parent"] = bridge
        first = next(iter(self.at.values()))
        evidence = {name: section.at(self.at.get(name, first)) for name in values}
        if bridge is not None:
            evidence["parent"] = section.at(bridge)
        evidence["*"] = section.at(first)
        return PciDevice(**values, parent=parent, parent_known=parent_known, origin=evidence)

    def _link_up(self) -> bool | None:
        """Only a port that reports its data link layer can say that its link is down."""
        active = self._flags.get("DLActive")
        if active:
            return True
        if self._flags.get("PresDet") is False and active is not None:
            return False
        if active is False and self._flags.get("LLActRep"):
            return False
        return None


def _whole_width(rest: str, line: Line) -> int | None:
    """`x1` at the end of a cut line may be the beginning of `x16`."""
    found = _WIDTH.search(rest)
    if not found or line.cut and not found[2]:
        return None
    return int(found[1])


HANDLERS: dict[str, Callable[[Block, str, Line], None]] = {
    "Capabilities:": Block._capability,
    "LnkCap:": Block._link_cap,
    "LnkCap2:": Block._link_cap2,
    "LnkSta:": Block._link_sta,
    "LnkCtl:": Block._link_ctl,
    "TrErr-": Block._take_flags,
    "TrErr+": Block._take_flags,
    "ClockPM-": Block._take_flags,
    "ClockPM+": Block._take_flags,
    "SltSta:": Block._slot_sta,
    "L1SubCtl1:": Block._substates,
    "ACSCap:": Block._acs_cap,
    "ACSCtl:": Block._acs_ctl,
    "Subsystem:": Block._subsystem,
    "NUMA": Block._numa,
    "IOMMU": Block._iommu,
    "Kernel": Block._kernel,
    "Physical": Block._physical,
    "Region": Block._region,
    "Memory": Block._region,  # lspci -v: `Memory at 42000000 (64-bit, prefetchable) [size=16M]`
    "Flags:": Block._flags_line,
    "Bus:": Block._bus,
    "!!!": Block._dead,
}
