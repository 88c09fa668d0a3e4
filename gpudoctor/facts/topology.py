"""How GPUs and NICs reach each other: pairs, NICs, peer-to-peer answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from gpudoctor.facts.base import Contradiction, Entry, Fact, merge_entry, merge_keyed
from gpudoctor.record import replace

# nvidia-smi's path classes, nearest first. NV# is written NVL with the count beside it.
PATHS = ("NVL", "PIX", "PXB", "PHB", "NODE", "SYS")
# The driver's answers to `topo -p2p`.
P2P_WORDS = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")


class Pair(Entry):
    """Two GPUs of one host, a < b (nvidia-smi's indices)."""

    STABLE: ClassVar[tuple[str, ...]] = ("path", "nvlinks")

    a: int
    b: int
    path: str | None = None
    nvlinks: int | None = None
    p2p_read: str | None = None
    p2p_write: str | None = None
    p2p_nvlink: str | None = None
    p2p_atomics: str | None = None
    p2p_pcie: str | None = None  # PCIe peer access alone (`-p2p p`): NS on NVLink parts, so no verdict rests on it
    p2p_unstated: str | None = None  # a -p2p matrix whose capability the input does not name
    # True: the source cannot show NVLink (`topo -mp`, NVML's common ancestor), so its path is only the PCIe one.
    pcie_only: bool | None = None
    pcie_path: str | None = None  # the path without NVLink, where a PCIe-only source gave it

    @property
    def subject(self) -> str:
        return f"pair:{self.a}-{self.b}"


def _rank(pair: Pair) -> int:
    """NVL beats a PCIe-only matrix whatever comes first; among equals the first wins."""
    return 0 if pair.path == "NVL" else 1 if pair.path and not pair.pcie_only else 2


class Pairs(Fact):
    """How every two GPUs reach each other."""

    label: ClassVar[str] = "the path of every GPU pair"
    hint: ClassVar[str | None] = "nvidia-smi topo -m"

    pairs: tuple[Pair, ...]

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def of(self, a: int, b: int) -> Pair | None:
        low, high = min(a, b), max(a, b)
        return next((p for p in self.pairs if p.a == low and p.b == high), None)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Pairs:
        found: dict[tuple[int, int], list[Pair]] = {}
        for part in parts:
            for pair in part.pairs:
                found.setdefault((pair.a, pair.b), []).append(pair)
        out = []
        for (a, b), seen in sorted(found.items()):
            seen.sort(key=_rank)  # stable
            kept = seen[0]
            for other in seen[1:]:
                if other.path and kept.path and other.pcie_only and not kept.pcie_only:
                    other = _as_pcie_path(other)
                kept = merge_entry(kept, other, f"pair {a}-{b}", say)
            out.append(kept)
        return Pairs(tuple(out))


def _as_pcie_path(pair: Pair) -> Pair:
    return replace(
        pair, path=None, pcie_only=None, pcie_path=pair.path, origin={**pair.origin, "pcie_path": pair.at("path")}
    )


class Nic(Entry):
    """One port of an RDMA adapter."""

    STABLE: ClassVar[tuple[str, ...]] = ("device", "bdf")

    name: str  # as in the matrix: NIC0, or mlx5_0 in older drivers
    device: str | None = None  # mlx5_0
    bdf: str | None = None
    model: str | None = None  # "MT4129", as ibstat names the part: equal models are peers
    port: int | None = None
    state: str | None = None  # "active", "down", "init", "armed"
    rate_gbps: float | None = None
    max_rate_gbps: float | None = None
    link_layer: str | None = None  # "InfiniBand", "Ethernet"
    netdev: str | None = None
    numa_node: int | None = None

    @property
    def subject(self) -> str:
        return f"nic:{self.device or self.name}"


class NicPath(Entry):
    """How far one adapter is from one GPU, in the words of the matrix."""

    STABLE: ClassVar[tuple[str, ...]] = ("path",)

    gpu: int
    nic: str
    path: str


class Nics(Fact):
    """The RDMA adapters and their distance to the GPUs."""

    label: ClassVar[str] = "the RDMA network adapters"
    hint: ClassVar[str | None] = "ibstat"

    nics: tuple[Nic, ...]
    paths: tuple[NicPath, ...] = ()
    # Where port states were read: False means that only the matrix was seen and state None says nothing.
    states_read: bool = False

    def __iter__(self) -> Iterator[Nic]:
        return iter(self.nics)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Nics:
        nics: list[Nic] = []
        for nic in (n for part in parts for n in part.nics):
            for place, known in enumerate(nics):
                if nic.name == known.name or (nic.device and nic.device in (known.device, known.name)) or (
                    known.device and known.device == nic.name
                ):
                    merged = merge_entry(known, nic, f"NIC {known.name}", say)
                    # The matrix' own name (NIC0) wins, whatever came first: its paths speak of NIC0.
                    nics[place] = replace(merged, name=nic.name) if nic.name.startswith("NIC") else merged
                    break
            else:
                nics.append(nic)
        paths = merge_keyed(
            (p for part in parts for p in part.paths), lambda p: (p.gpu, p.nic), lambda p: f"GPU{p.gpu} to {p.nic}", say
        )
        return Nics(tuple(nics), paths, any(p.states_read for p in parts))


class NvLink(Entry):
    """One link of one GPU. `speed_gbs` is per link and direction."""

    STABLE: ClassVar[tuple[str, ...]] = ("active",)

    gpu: int
    link: int
    active: bool | None = None
    sleeping: bool | None = None  # trained, asleep to save power: not a fault
    speed_gbs: float | None = None
    replay: int | None = None
    recovery: int | None = None
    crc: int | None = None
    recovery_failed: int | None = None  # NVLink5's failed recoveries
    # NVLink5's other counters under the driver's names ("Rx Errors"); corrected (FEC) and raw counts are not among them.
    counters: tuple[tuple[str, int], ...] | None = None
    errors_before: tuple[int | None, int | None, int | None] | None = (
        None  # replay, recovery, crc of an earlier reading
    )
    remote_bdf: str | None = None
    remote_kind: str | None = None  # "gpu", "switch", "cpu"
    version: int | None = None

    @property
    def subject(self) -> str:
        return f"nvlink:{self.gpu}/{self.link}"


class NvLinkGpu(Entry):
    """What an nvlink listing says of a whole GPU."""

    gpu: int
    name: str | None = None
    uuid: str | None = None
    all_inactive: bool | None = None  # nvidia-smi's own sentence
    no_nvlink: bool | None = None  # listed without any Link row, and the row is complete: this part has none
    elided: bool | None = None  # the author or a cut left links out: absence proves nothing
    complaint: str | None = None  # another tool's words about the errors of its links, whichever they are


class NvLinks(Fact):
    """Every NVLink that was listed, and what was said of a GPU's links as a whole."""

    label: ClassVar[str] = "the NVLink states"
    hint: ClassVar[str | None] = "nvidia-smi nvlink -s; nvidia-smi nvlink -e"

    links: tuple[NvLink, ...]
    gpus: tuple[NvLinkGpu, ...] = ()

    def __iter__(self) -> Iterator[NvLink]:
        return iter(self.links)

    def of(self, gpu: int) -> tuple[NvLink, ...]:
        return tuple(link for link in self.links if link.gpu == gpu)

    def about(self, gpu: int) -> NvLinkGpu | None:
        return next((g for g in self.gpus if g.gpu == gpu), None)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> NvLinks:
        # A source that read the counters twice comes first: its earlier reading fits only its own later one.
        found = sorted((x for p in parts for x in p.links), key=lambda x: x.errors_before is None)
        links = merge_keyed(found, lambda x: (x.gpu, x.link), lambda x: f"NVLink {x.gpu}/{x.link}", say)
        gpus = merge_keyed((g for p in parts for g in p.gpus), lambda g: g.gpu, lambda g: f"GPU{g.gpu}", say)
        return NvLinks(tuple(sorted(links, key=lambda x: (x.gpu, x.link))), gpus)
