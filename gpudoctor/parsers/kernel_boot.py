"""How the kernel began: its command line, what it makes of the IOMMU, and whether a hypervisor is below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.system import Iommu, IommuEntry, Platform, PlatformEntry
from gpudoctor.model import Evidence
from gpudoctor.read.section import Section

_BANNER = re.compile(r"(?:\]\s+|kernel:\s+)Linux version \d")
_BELOW = re.compile(r"Hypervisor detected: (KVM|Microsoft Hyper-V|VMware|Xen HVM)\b")
_HYPERVISORS = {"KVM": "kvm", "Microsoft Hyper-V": "hyperv", "VMware": "vmware", "Xen HVM": "xen"}
_COMMAND = re.compile(r"(?:ommand line: |^\s*(?=BOOT_IMAGE=))(?P<words>\S.*)$")
_DEFAULT = re.compile(r"iommu: Default domain type: (Translated|Passthrough)\b")
_GROUP = re.compile(r"(?:: Adding to iommu group|iommu: Adding device \S+ to group) (\d{1,5})(?=(\D?))")
_WORKS = re.compile(r"DMAR: IOMMU enabled|AMD-Vi: (?:Extended features|Interrupt remapping enabled|Found IOMMU)")
_TYPE = re.compile(r"^\s*(?:/sys/kernel/iommu_groups/\d{1,4}/type:|(?P<times>\d{1,4}) )?(?P<type>DMA-FQ|DMA|identity)\s*$")
_UNIT = re.compile(r"(?<!\S)(?:dmar|ivhd)\d{1,3}(?!\S)")
_OFF = frozenset(("iommu=off", "intel_iommu=off", "amd_iommu=off"))
_THROUGH = frozenset(("iommu=pt", "iommu.passthrough=1", "iommu.passthrough=on", "iommu.passthrough=y"))


class _Told:
    """What the lines say, each kind by the first that does."""

    def __init__(self) -> None:
        self.types: dict[str, Evidence] = {}
        self.default: tuple[bool, Evidence] | None = None  # True: translated
        self.works: Evidence | None = None
        self.groups: set[int] = set()
        self.words: frozenset[str] | None = None
        self.command: Evidence | None = None
        self.units: tuple[int, Evidence] | None = None

    def iommu(self) -> Iommu | None:
        translating, mode, where = self._mode()
        found = next((e for e in (where, self.command, self.works, *self.types.values()) if e is not None), None)
        if self.units is not None:
            found = found or self.units[1]
        if found is None:
            return None
        origin = {"*": found}
        if self.units is not None:
            origin["units"] = self.units[1]
        units = self.units[0] if self.units is not None else None
        return Iommu(IommuEntry(units=units, groups=len(self.groups) or None, translating=translating, mode=mode, origin=origin))

    def _mode(self) -> tuple[bool | None, str | None, Evidence | None]:
        """Does it translate, in which mode, and where that stands: from what is in force to what was asked for.

        The kernel names its default also where there is no unit at all; a group or a unit's own line shows that there is one.
        Of the words of the command line `intel_iommu=on` switches a unit on, whose default is to translate: no mode is known.
        """
        kinds = set(self.types)
        if kinds:
            moving = kinds <= {"DMA", "DMA-FQ"}
            if moving or kinds == {"identity"}:
                return moving, "translating" if moving else "passthrough", next(iter(self.types.values()))
            return None, None, None
        if self.default is not None and (not self.default[0] or self.works is not None):
            return self.default[0], "translating" if self.default[0] else "passthrough", self.default[1]
        words = self.words or frozenset()
        if words & _THROUGH:
            return False, "passthrough", self.command
        if "intel_iommu=on" in words:
            return True, None, self.command
        if words & _OFF:
            return False, "off", self.command
        return None, None, None


def parse(section: Section) -> Iterator[Fact | Loss]:
    told = _Told()
    banner = False
    for line in section:
        text = line.text
        banner = banner or _BANNER.search(text) is not None
        below = _BELOW.search(text)
        if below is not None and not line.cut:
            yield Platform(PlatformEntry(vm=True, hypervisor=_HYPERVISORS[below[1]], origin={"*": section.at(line)}))
        command = _COMMAND.search(text)
        if command is not None and told.words is None:
            words = command["words"].split()
            told.words, told.command = frozenset(words[:-1] if line.cut else words), section.at(line, _settings(words))
        default = _DEFAULT.search(text)
        if default is not None and told.default is None:
            told.default = default[1] == "Translated", section.at(line)
        group = _GROUP.search(text)
        if group is not None and (group[2] or not line.cut):
            told.groups.add(int(group[1]))
        if group is not None or _WORKS.search(text):
            told.works = told.works or section.at(line)
        kind = _TYPE.match(text)
        if kind is not None and not (line.cut and kind["type"] == "DMA"):
            told.types.setdefault(kind["type"], section.at(line))
        units = _UNIT.findall(text) if _UNIT.match(text.strip()) else []
        if units and told.units is None and not line.cut:
            told.units = len(units), section.at(line)
    if banner:
        yield KernelLog(())  # a log from its first line: that nothing of GPUs is in it is an answer
    iommu = told.iommu()
    if iommu is not None:
        yield iommu


def _settings(words: list[str]) -> str:
    """Of a command line what concerns this: the rest names disks."""
    return " ".join(w for w in words if "iommu" in w) or "no setting of the IOMMU"
