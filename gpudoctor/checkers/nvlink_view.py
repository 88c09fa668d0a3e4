"""What is known of each GPU's NVLinks, from the link listing, the matrix and the part table: shared by the NVLink checks."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import NvLink, NvLinkGpu, NvLinks, Pair, Pairs
from gpudoctor.model import Step
from gpudoctor.parts import Part, find, needs_all_links
from gpudoctor.record import Record

PCIE_PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")


class Card(Record):
    """One GPU with what the NVLink checks ask of it."""

    index: int
    gpu: Gpu | None
    name: str | None
    part: Part | None

    @property
    def subject(self) -> str:
        return self.gpu.subject if self.gpu is not None else f"gpu:{self.index}"

    @property
    def label(self) -> str:
        return self.gpu.label if self.gpu is not None else f"GPU{self.index}"

    @property
    def kind(self) -> str | None:
        """What makes two cards equal parts: the device id, else the name. None: nobody says."""
        return (self.gpu.device_id if self.gpu is not None else None) or self.name

    @property
    def required(self) -> bool:
        """On this board every link is wired, so one that is down is a fault."""
        return needs_all_links(self.part, self.name)

    @property
    def display_only(self) -> bool:
        return self.part is not None and self.part.display_only

    @property
    def mig(self) -> bool:
        return self.gpu is not None and self.gpu.mig_mode == "enabled"

    @property
    def words(self) -> str:
        """For a reader: the model's name, or that the table of parts does not know it."""
        if self.part is not None or self.name is None:
            return self.name or (
                self.part.form if self.part is not None and self.part.form else "a GPU of unknown model"
            )
        return f"{self.name}, a part that gpudoctor does not know"


def cards(gpus: Gpus | None, links: NvLinks | None = None, pairs: Pairs | None = None) -> dict[int, Card]:
    """Every GPU that has an index, whatever source names it."""
    indices = {g.index for g in gpus or () if g.index is not None}
    if links is not None:
        indices |= {g.gpu for g in links.gpus} | {x.gpu for x in links}
    indices |= {i for p in pairs or () for i in (p.a, p.b)}
    out = {}
    for index in sorted(indices):
        gpu = gpus.by_index(index) if gpus is not None else None
        about = links.about(index) if links is not None else None
        name = (gpu.name if gpu is not None else None) or (about.name if about is not None else None)
        out[index] = Card(index, gpu, name, find(gpu.device_id if gpu is not None else None, name))
    return out


def computing(known: dict[int, Card]) -> dict[int, Card]:
    """Without the cards that only drive a screen; all of them where there is no other."""
    kept = {i: c for i, c in known.items() if not c.display_only}
    return kept or known


def left_out(known: dict[int, Card]) -> str:
    """A sentence for the cards that are not judged, or nothing."""
    kept = computing(known)
    out = [c.label for i, c in known.items() if i not in kept]
    return f" Left out: {', '.join(out)}, which only drives a display." if out else ""


class Links(Record):
    """The link listing of one GPU. `silent` means that nothing in it proves a link's absence."""

    up: tuple[NvLink, ...]
    down: tuple[NvLink, ...]
    all_inactive: bool
    about: NvLinkGpu | None
    elided: bool


def listing(links: NvLinks | None, index: int) -> Links:
    """A sleeping link is trained, so it counts as up."""
    about = links.about(index) if links is not None else None
    mine = links.of(index) if links is not None else ()
    up = tuple(x for x in mine if x.active or x.sleeping)
    down = tuple(x for x in mine if x.active is False and not x.sleeping)
    every = bool(about is not None and about.all_inactive) or bool(down and not up)
    return Links(up, down, every, about, bool(about is not None and about.elided))


def nvl_pairs(pairs: Iterable[Pair] | None, among: Iterable[int] | None = None) -> list[Pair]:
    """The pairs joined by NVLink, of these GPUs or of all."""
    wanted = None if among is None else set(among)
    return [p for p in pairs or () if p.path == "NVL" and (wanted is None or {p.a, p.b} <= wanted)]


def mesh(pairs: Pairs | None, members: Iterable[int]) -> bool:
    """Has each of these GPUs NVLink to each other one, as far as the pairs are known? (Pastes end in the middle of a matrix.)"""
    ids = sorted(members)
    if pairs is None:
        return False
    for place, a in enumerate(ids):
        for b in ids[place + 1 :]:
            pair = pairs.of(a, b)
            if pair is not None and pair.path not in (None, "NVL"):
                return False
    return True


def same_everywhere(known: dict[int, Card], states: dict[int, Links]) -> bool:
    """Do all GPUs of one kind, two or more, have the same number of links up and down? Then it may be the design."""
    counts = {(len(s.up), len(s.down)) for i, s in states.items() if s.up or s.down}
    kinds = {known[i].kind for i, s in states.items() if s.up or s.down}
    return len(counts) == 1 and len(kinds) == 1 and sum(1 for s in states.values() if s.up or s.down) > 1


def far_ends(card: Card, known: dict[int, Card], states: dict[int, Links], pairs: Pairs | None) -> bool:
    """On a board of direct links, do this GPU's inactive links lead to GPUs that have none up? Those are then the fault.

    Four A100 have four links to each neighbour: with one GPU dead, each of the others shows just those four inactive.
    """
    dead = [i for i, c in known.items() if states[i].all_inactive and c.kind == card.kind]
    part = card.part
    if not dead or part is None or not part.required or (part.nvlink_gen or 0) < 3 or len(known) > 4:
        return False
    each = min(part.pair_links, default=0)
    own = {p.nvlinks for p in nvl_pairs(pairs) if card.index in (p.a, p.b)}
    return own <= {each} and each != part.links and len(states[card.index].down) == each * len(dead)


def many(numbers: Iterable[int]) -> str:
    """`NVLink 3`, `NVLinks 3 and 5`, `NVLinks 0, 1 and 4`."""
    words = [str(n) for n in sorted(numbers)]
    if len(words) == 1:
        return f"NVLink {words[0]}"
    return f"NVLinks {', '.join(words[:-1])} and {words[-1]}"


def repair_steps(card: Card, switched: bool) -> tuple[Step, ...]:
    """From least to most: look, reset, power cycle, hardware. A reset behind NVSwitches takes all GPUs at once."""
    only = "" if switched else f" -i {card.index}"
    which = "all GPUs together, which a host with NVSwitches asks for" if switched else "this GPU"
    verify = f"nvidia-smi nvlink -s -i {card.index}"
    return (
        Step("Look for Xid 74 and SXid lines, which name the link and why it failed", "sudo dmesg -T | grep -E 'Xid|SXid'"),
        Step(
            f"Drain the host, stop everything that holds a GPU, and reset {which}: links train again at a reset",
            f"sudo nvidia-smi --gpu-reset{only}",
            "disruptive",
            verify,
        ),
        Step("If the links stay down, power the host off and on, so that the whole board starts anew", None, "disruptive", verify),
        Step(
            "If they are down again after that, swap this GPU with another: a fault that moves with it is the GPU's, one that "
            "stays is the board's. Send a report to the vendor",
            "sudo nvidia-bug-report.sh",
            "hardware",
            "gpudoctor check --select nvlink-down",
        ),
    )
