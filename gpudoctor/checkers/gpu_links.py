"""A GPU, its card, the port it sits in and the bridges above: what every PCIe check looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.model import CannotTell, Evidence
from gpudoctor.parts import find
from gpudoctor.pattern import lazy
from gpudoctor.record import Record, replace

# Grace superchips: the CPU is reached over NVLink-C2C, the GPU's PCIe function carries no data worth judging.
# Superchips by their product, not by their die, which lspci names too: an H100 is a GH100, an RTX 5090 a GB202.
_GRACE = lazy(r"\b(?:GH200|GB[23]00)\b")


class Reading(Record):
    """A value with where it was read."""

    value: float
    evidence: Evidence


class GpuLink(Record):
    """One GPU's PCIe link. `port` is the bridge end of it, `above` the bridges from there up to the root."""

    gpu: Gpu
    card: PciDevice | None
    port: PciDevice | None
    above: tuple[PciDevice, ...]
    placed: bool  # False: an lspci block without address, so not even the GPU is known

    @property
    def subject(self) -> str:
        return self.gpu.subject

    @property
    def label(self) -> str:
        words = self.gpu.label if self.placed else "a GPU whose address is not in the input"
        return words[0].upper() + words[1:]

    @property
    def bdf(self) -> str:
        """For commands; a stand-in to fill in where the address is unknown."""
        return self.gpu.bdf or "GPU_BDF"

    def now(self, field: str) -> Reading | None:
        """What is trained now (`width`, `speed_gts`): the driver's word, else the card's, else the port's."""
        return _first((self.gpu, self.card, self.port), field)

    def card_max(self, field: str) -> Reading | None:
        """What the card can do. The card's own capability register beats the driver's figure, which the slot may have cut."""
        name = f"max_{field}"
        return _first((self.card,), name) or (
            _first((self.gpu,), "card_max_speed_gts") if field == "speed_gts" else None
        ) or _first((self.gpu,), name)

    def port_max(self, field: str) -> Reading | None:
        """What the port can do."""
        return _first((self.port,), f"max_{field}") or (
            _first((self.gpu,), "slot_max_speed_gts") if field == "speed_gts" else None
        )


def _first(entries: tuple[Gpu | PciDevice | None, ...], field: str) -> Reading | None:
    for entry in entries:
        value = getattr(entry, field, None) if entry is not None else None
        if value is not None and entry is not None:
            return Reading(value, entry.at(field))
    return None


def could_be_gpu(device: PciDevice) -> bool:
    """A GPU, or an lspci block without address line that names NVIDIA's driver."""
    return device.is_gpu or (device.bdf is None and device.class_code is None and device.driver == "nvidia")


def unnamed(facts: FactView) -> tuple[PciDevice, ...]:
    """Devices of an excerpt that does not say what they are, and that may be GPUs: ports and bridges say so themselves."""
    gpus = facts.get(Gpus)
    known = {g.bdf for g in gpus or ()} - {None}
    return tuple(
        d
        for d in facts.get(PciTree) or ()
        if d.class_code is None and d.name is None and not could_be_gpu(d)
        and d.port_type in (None, "endpoint") and d.link_up is not False and not (known and d.bdf is not None)
    )  # fmt: skip


def gpu_links(facts: FactView) -> Iterator[GpuLink]:
    """Every GPU's link. The caller declares Gpus, PciTree and Platform under `wants` or `any_of`.

    Left out, because nothing can be said of them: Grace superchips (NVLink-C2C), cards that only drive a screen beside
    the computing ones, and ports that hold no card.
    """
    tree, gpus = facts.get(PciTree), facts.get(Gpus)
    known = list(gpus or ())
    if tree is not None:
        seen = {g.bdf for g in known}
        if all(g.bdf is None for g in known):
            known = _matched(known, [d for d in tree if could_be_gpu(d)])
        elif gpus is not None and not gpus.complete:  # a whole list leaves out what is not visible here, so do we
            known += [_as_gpu(d) for d in tree if could_be_gpu(d) and d.bdf not in seen and d.driver == "nvidia"]
    cards: dict[str | None, PciDevice] = {} if tree is None else {d.bdf: d for d in tree if d.bdf is not None}
    nameless = [] if tree is None else [d for d in tree if d.bdf is None and could_be_gpu(d)]
    for gpu in known:
        card = cards.get(gpu.bdf) if gpu.bdf else nameless.pop(0) if gpu.index is None and nameless else None
        part = find(gpu.device_id, gpu.name)
        if part is not None and part.display_only:
            continue
        superchip = gpu.c2c or (part is not None and part.form == "superchip") or _GRACE.search(gpu.name or "")
        if superchip or (card is not None and card.link_up is False):
            continue
        above = _above(card, cards)
        # NCCL's topology file drops a switch's downstream ports: the bridge above is then no end of this link.
        port = above[0] if above and above[0].port_type != "upstream" else None
        if port is not None and port.link_up is False:
            continue
        yield GpuLink(gpu, card, port, above, gpu.bdf is not None or gpu.index is not None)


def _above(card: PciDevice | None, devices: Mapping[str | None, PciDevice]) -> tuple[PciDevice, ...]:
    """As PciTree.ancestors, by look-up: a listing may hold thousands of devices, a hostile one a cycle."""
    out: list[PciDevice] = []
    while card is not None and card.parent in devices and len(out) < 32:
        card = devices[card.parent]
        if card in out:
            break
        out.append(card)
    return tuple(out)


def _matched(listed: list[Gpu], cards: list[PciDevice]) -> list[Gpu]:
    """A matrix knows GPUs by index only and lspci by address only. nvidia-smi numbers in the order of addresses, so equal
    counts join; otherwise the cards of the bus are judged on their own."""
    if not cards:
        return listed
    placed = sorted((d for d in cards if d.bdf is not None), key=lambda d: (len(d.bdf or ""), d.bdf))
    numbered = sorted((g for g in listed if g.index is not None), key=lambda g: g.index or 0)
    if len(placed) == len(cards) == len(numbered) == len(listed):
        return [replace(_as_gpu(d), index=g.index, c2c=g.c2c) for g, d in zip(numbered, placed, strict=True)]
    return [_as_gpu(d) for d in cards]


def _as_gpu(device: PciDevice) -> Gpu:
    return Gpu(bdf=device.bdf, name=device.name, device_id=device.device_id, origin=device.origin)


def no_gpu(slug: str, facts: FactView) -> Iterator[CannotTell]:
    """Nothing to look at is no health, unless the whole bus was listed and holds no GPU."""
    gpus, tree = facts.get(Gpus), facts.get(PciTree)
    if not (gpus or ()) and not any(could_be_gpu(d) for d in tree or ()) and not (tree is not None and tree.complete):
        yield CannotTell(slug, "no GPU's link is in the input")


def hidden(link: GpuLink, facts: FactView) -> bool:
    """Does a hypervisor stand between this GPU and what is read of its link?"""
    platform = facts.get(Platform)
    if platform is not None and platform.entry.vm:
        return True
    if any(d.virtual for d in (link.card, *link.above) if d is not None):
        return True
    if not link.above and link.gpu.virtualization in ("passthrough", "vgpu"):
        return True
    # A PCIe card always has a port above it; one on the root bus itself is a hypervisor's picture.
    return link.card is not None and link.card.parent is None and bool(link.card.parent_known)


def seen(*readings: Reading | None) -> tuple[Evidence, ...]:
    """Evidence of several readings, each place once."""
    return tuple(dict.fromkeys(r.evidence for r in readings if r is not None))


def best_speed(link: GpuLink) -> float | None:
    """The fastest rate both ends allow, as far as they are known."""
    known = [r.value for r in (link.card_max("speed_gts"), link.port_max("speed_gts")) if r is not None]
    if link.gpu.max_speed_gts is not None:
        known.append(link.gpu.max_speed_gts)
    return min(known) if known else None


def port_name(link: GpuLink) -> str:
    """The port for a reader: its address, or words where only the driver spoke of it."""
    return str(link.port.bdf) if link.port is not None and link.port.bdf else "the slot"


def look_command(link: GpuLink) -> str:
    """Shows capability and state of both ends of the link."""
    bdfs = [link.bdf, *([str(link.port.bdf)] if link.port is not None and link.port.bdf else [])]
    return "; ".join(f"sudo lspci -vv -s {bdf} | grep -E 'LnkCap:|LnkSta:'" for bdf in bdfs)
