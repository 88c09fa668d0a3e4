"""Does this host hand devices to virtual machines? Then ACS and the IOMMU are the wall between them and must stay."""

from __future__ import annotations

from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.model import Evidence, Step


def passes_devices_on(facts: FactView) -> Evidence | None:
    """Proof that a device is held for a guest, or None. vfio-pci merely loaded is not yet a guest."""
    for device in facts.get(PciTree) or ():
        if device.driver == "vfio-pci":
            return device.at("driver")
    return None


def leave_on(what: str) -> tuple[Step, ...]:
    """What to do instead, where the wall must stay."""
    return (
        Step(f"Leave {what} as it is: this host passes devices to virtual machines (vfio-pci), and it is what keeps one guest "
             "from another's memory.", None, "none"),
        Step("For peer to peer inside a guest: ATS on in NIC and switch firmware and direct translated peer to peer in the "
             "switch, as the hypervisor's guide describes; or keep guests off this host.", None, "disruptive"),
    )  # fmt: skip
