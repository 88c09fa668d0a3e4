"""What the kernel said at boot of a GPU's lanes: `63.008 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at …`.

The rate in that line is that of an idle GPU and says nothing; lanes are not given up to save power.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.checkers.pcie_slot import NARROW
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.model import POSSIBLE, WARNING, Finding, Step
from gpudoctor.parts import is_laptop
from gpudoctor.pattern import lazy

_LANES = lazy(r"limited by [\d.]+ GT/s(?: PCIe)? x(\d+) link.*\(capable of [\d.]+ Gb/s with [\d.]+ GT/s(?: PCIe)? x(\d+) link\)")


def narrow_at_boot(facts: FactView) -> dict[str, tuple[KernelEvent, int, int]]:
    """By address, GPUs that the kernel found on four lanes or fewer of more, and of whose width nothing better is known."""
    log, gpus, tree, platform = facts.get(KernelLog), facts.get(Gpus), facts.get(PciTree), facts.get(Platform)
    if platform is not None and platform.entry.vm:
        return {}
    out: dict[str, tuple[KernelEvent, int, int]] = {}
    for event in log.of("bandwidth-limited") if log is not None else ():
        found = _LANES.search(event.text)
        gpu = gpus.by_bdf(event.bdf) if gpus is not None else None
        device = tree.by_bdf(event.bdf) if tree is not None else None
        if found is None or event.bdf is None or (gpu and gpu.width) or (device and (device.width or not device.is_gpu)):
            continue
        named = gpu is not None or device is not None or any(e.bdf == event.bdf and _of_nvidia(e) for e in log or ())
        now, could = int(found[1]), int(found[2])
        if named and now <= NARROW.value < could and not is_laptop(gpu.name if gpu else None, device.name if device else None):
            out[event.bdf] = (event, now, could)
    return out


def _of_nvidia(event: KernelEvent) -> bool:
    return event.driver == "nvidia" or event.kind in ("xid", "fell-off", "rm-init-failed", "bound")


def boot_findings(facts: FactView) -> Iterator[Finding]:
    for bdf, (event, now, could) in narrow_at_boot(facts).items():
        yield Finding(
            "pcie-width",
            WARNING,
            f"gpu:{bdf}",
            f"The GPU at {bdf}: at boot the kernel found x{now} at the narrowest link of its path ({event.bridge or 'which one, the line does not say'}), "
            f"the card has x{could}. A slot, riser or enclosure with fewer lanes looks the same as lanes that did not train.",
            (event.at("text"),),
            POSSIBLE,
            f"at most {now} of {could} lanes to the host and to GPUs that are reached over PCIe",
            (
                Step("Read what both ends of each link allow and have trained.", f"sudo lspci -vv -s {bdf} | grep -E 'LnkCap:|LnkSta:'; lspci -PP -s {bdf}"),
                Step("Fewer lanes than the slot has: power off, seat the card anew, exchange riser or cable.", None, "hardware"),
            ),
        )
