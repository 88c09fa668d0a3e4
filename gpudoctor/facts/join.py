"""Cross-links between families: a GPU learns from the PCI tree what the driver did not say, and the reverse."""

from __future__ import annotations

from gpudoctor.facts.bandwidth import PairRates, PeerCopies
from gpudoctor.facts.base import Entry, Loss, merge_entry
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.hang import FlightRecorder
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.record import replace


def join(store: FactStore) -> FactStore:
    """Complete the store in place. Pure: reads nothing but the facts."""
    _names_from_nvlink(store)
    _gpus_from_pci(store)
    _addresses_from_measurement(store)
    _events_of_numbered_gpus(store)
    _dumps_of_one_kind(store)
    return store


def _dumps_of_one_kind(store: FactStore) -> None:
    """Flight recorders of different formats come from different releases of PyTorch: what they count may differ."""
    recorder = store.get(FlightRecorder)
    if recorder is None:
        return
    for what, attribute in (("format", "version"), ("NCCL", "nccl_version")):
        by_version: dict[str, list[str]] = {}
        for dump in recorder.dumps:
            version = getattr(dump, attribute)
            if version is not None:
                by_version.setdefault(version, []).append(f"rank {dump.rank}" if dump.rank is not None else dump.source)
        if len(by_version) > 1:
            shown = "; ".join(
                f"{version} of {', '.join(who[:4])}" + (f" and {len(who) - 4} more" if len(who) > 4 else "")
                for version, who in list(by_version.items())[:4]
            )
            store.losses.append(
                Loss(
                    f"flight recorders of one {what} version",
                    f"they differ ({shown}): the ranks do not run the same software, or the dumps are of different runs",
                )
            )


def _from_pci(device: PciDevice) -> Gpu:
    """The part of a PCI function that is also known of a GPU."""
    return Gpu(
        bdf=device.bdf,
        name=device.name,
        device_id=device.device_id,
        subsystem_id=device.subsystem_id,
        numa_node=device.numa_node,
        cpu_affinity=device.local_cpulist,
        speed_gts=device.speed_gts,
        max_speed_gts=device.max_speed_gts,
        card_max_speed_gts=device.max_speed_gts,
        width=device.width,
        max_width=device.max_width,
        origin=device.origin,
    )


def _gpus_from_pci(store: FactStore) -> None:
    """Fill the driver's list from the bus; where no driver spoke, the bus alone gives the list (without indices)."""
    tree = store.get(PciTree)
    if tree is None:
        return
    gpus = store.get(Gpus)
    on_bus = [d for d in tree.gpus() if d.bdf is not None]
    if gpus is None:
        if on_bus:
            store.put(Gpus(tuple(_from_pci(d) for d in on_bus), complete=tree.complete))
        return
    filled = []
    for gpu in gpus:
        device = tree.by_bdf(gpu.bdf)
        # Silent: the two count differently (a bus reading at idle, a driver reading under load), and a real
        # disagreement of width or node is a checker's business.
        filled.append(merge_entry(gpu, _from_pci(device), gpu.label, lambda _: None) if device else gpu)
    store.put(gpus.with_gpus(tuple(filled)))


def _addresses_from_measurement(store: FactStore) -> None:
    """Measurements name GPUs by address, `topo -m` by nvidia-smi's numbers, which go by address.

    So where nothing else tells which is which, and both have as many GPUs, the order does.
    """
    pairs, gpus = store.get(Pairs), store.get(Gpus)
    measured = [*(store.get(PeerCopies) or ()), *(store.get(PairRates) or ())]
    if pairs is None or not measured or any(g.bdf for g in gpus or ()):
        return
    names: dict[str, tuple[str | None, Entry]] = {}
    for entry in measured:
        for bdf, name in ((entry.a_bdf, entry.a_name), (entry.b_bdf, entry.b_name)):
            if bdf is not None:
                names.setdefault(bdf, (name, entry))
    indices = sorted({i for pair in pairs for i in (pair.a, pair.b)})
    if len(names) != len(indices) or indices != list(range(len(indices))):
        return
    found = [
        Gpu(index=index, bdf=bdf, name=names[bdf][0], origin={"*": names[bdf][1].at("a")})
        for index, bdf in enumerate(sorted(names, key=lambda a: tuple(int(n, 16) for n in a.replace(".", ":").split(":"))))
    ]
    if any(g.name and known.name and g.name != known.name for g in found for known in gpus or () if known.index == g.index):
        return
    merged = Gpus.merge([*([gpus] if gpus is not None else []), Gpus(tuple(found), complete=False)], lambda _: None)
    store.put(replace(merged, complete=gpus.complete if gpus is not None else False))


def _events_of_numbered_gpus(store: FactStore) -> None:
    """What DCGM says of `GPU 3` and the kernel of an address are one GPU's."""
    log, gpus = store.get(KernelLog), store.get(Gpus)
    if log is None or gpus is None or not any(e.gpu is not None for e in log):
        return
    events = []
    for event in log:
        gpu = gpus.by_index(event.gpu) if event.gpu is not None and event.bdf is None else None
        events.append(replace(event, bdf=gpu.bdf, gpu=None) if gpu is not None and gpu.bdf is not None else event)
    store.put(KernelLog(tuple(events)))


def _names_from_nvlink(store: FactStore) -> None:
    """`nvidia-smi nvlink -s` names each GPU: enough to know the part when nothing else is there."""
    links = store.get(NvLinks)
    if links is None:
        return
    gpus = store.get(Gpus)
    known = [
        Gpu(index=g.gpu, name=g.name, uuid=g.uuid, origin=g.origin) for g in links.gpus if g.name is not None
    ]
    if not known:
        return
    if gpus is None:
        store.put(Gpus(tuple(known), complete=False))
    else:
        merged = Gpus.merge([gpus, Gpus(tuple(known), complete=False)], lambda _: None)
        store.put(replace(merged, complete=gpus.complete))
