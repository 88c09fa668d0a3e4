"""GPUs that stand on the PCI bus and are not in the driver's list: lost, or not granted to this process."""

from __future__ import annotations

from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.system import GrantEntry, PlatformEntry
from gpudoctor.model import CERTAIN, LIKELY, POSSIBLE
from gpudoctor.record import Record


class Absent(Record):
    """One GPU of the bus that the driver does not list.

    lost: True: granted to this process, and it does not answer. False: not visible here, `why` says the reason.
    """

    device: PciDevice
    lost: bool
    why: str
    confidence: str


def comparable(gpus: Gpus | None, tree: PciTree | None, recorded: bool) -> bool:
    """Can the driver's list be held against the bus? Only whole lists with addresses can."""
    if gpus is None or tree is None or not gpus.complete:
        return False
    if not gpus.listed:
        return gpus.attached == 0  # the driver was asked, and knows of none
    if any(g.bdf is None for g in gpus.listed):
        return False
    # `nvidia-smi -i 0` prints one block and counts all: the author's choice, no loss.
    return not (recorded and gpus.attached is not None and gpus.attached > len(gpus.listed))


def absent(gpus: Gpus, tree: PciTree, grant: GrantEntry | None, platform: PlatformEntry | None) -> tuple[Absent, ...]:
    """Every GPU of the bus that the driver does not list; the two must be `comparable`."""
    known = {g.bdf for g in gpus.listed}
    rest = [d for d in tree.gpus() if d.bdf is not None and d.bdf not in known]
    bound = [d for d in rest if d.driver == "nvidia"]
    drivers_read = any(d.driver is not None for d in tree)
    granted = granted_nodes(grant)
    return tuple(_judge(d, len(gpus.listed), len(bound), granted, drivers_read, grant, platform) for d in rest)


def _judge(
    device: PciDevice,
    listed: int,
    bound: int,
    granted: int | None,
    drivers_read: bool,
    grant: GrantEntry | None,
    platform: PlatformEntry | None,
) -> Absent:
    if device.driver is not None and device.driver != "nvidia":
        return Absent(device, False, f"it is bound to {device.driver}", CERTAIN)
    if device.driver is None:
        if drivers_read:
            return Absent(device, False, "no driver is bound to it", CERTAIN)
        return Absent(device, False, "which driver it is bound to is not in the input", POSSIBLE)
    if granted is not None:
        # Minor numbers do not tell which address they stand for, so only the counts can be compared.
        if granted <= listed:
            return Absent(device, False, "this process was granted no device node for it", CERTAIN)
        return Absent(device, True, "its device node is granted", CERTAIN if granted - listed >= bound else LIKELY)
    if platform is not None and platform.container is not None:
        return Absent(device, False, f"this {platform.container} container was probably not given it", LIKELY)
    if grant is not None and grant.nvidia_visible not in (None, "", "all"):
        return Absent(device, False, "NVIDIA_VISIBLE_DEVICES leaves it out", LIKELY)
    return Absent(device, True, "it is bound to the nvidia driver", LIKELY)


def granted_nodes(grant: GrantEntry | None) -> int | None:
    """How many /dev/nvidiaN this process may open; None where nobody looked."""
    if grant is None or grant.device_nodes is None:
        return None
    return len(set(grant.device_nodes) - set(grant.unopenable or ()))
