"""Missing NVLinks inferred from `topo -m` alone: counts that do not fit each other, and GPUs left out of a full mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpudoctor.checkers.nvlink_view import Card, mesh, nvl_pairs
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import LIKELY, POSSIBLE, Evidence
from gpudoctor.record import Record

# No V100 pair has more than three direct links (six behind switches), so counts that differ below this prove nothing
# unless the part is known: a cube mesh mixes NV1 and NV2.
_CUBE_MESH_MAX = 3
# The most NVLinks a GPU has (Hopper, Blackwell). A mesh that would take more of each GPU goes through NVSwitches, and those
# stand on boards of these sizes (HGX and DGX; 16 are two boards).
_MOST_LINKS = 18
_BOARD_SIZES = (8, 16)


class MatrixFault(Record):
    """One inference: the GPU, or the two ends, or (`whole`) the host."""

    gpus: tuple[int, ...]
    message: str
    evidence: tuple[Evidence, ...]
    confidence: str
    down: int | None = None
    up: int = 0
    switched: bool = False
    whole: bool = False


def matrix_faults(pairs: Pairs | None, known: dict[int, Card], vm: bool) -> Iterator[MatrixFault]:
    """Every fault the matrix proves. A PCIe-only matrix, missing rows and bridged pairs prove none."""
    if pairs is None:
        return
    for members in _groups(known):
        seen = [p for p in pairs if p.path is not None and {p.a, p.b} <= members]
        if len(members) < 2 or any(p.pcie_only for p in seen):
            continue
        joined = nvl_pairs(seen)
        if not joined:
            yield from _none_at_all(members, seen, known, vm)
            continue
        part = known[joined[0].a].part
        if part is not None and not part.required:
            yield from _bridged(joined, known)
            continue
        for ends in _boards(joined):
            inside = [p for p in joined if p.a in ends]
            if mesh(pairs, ends):
                yield from _counts(sorted(ends), inside, known)
                if len(ends) == len({i for p in joined for i in (p.a, p.b)}):
                    yield from _outsiders(members - ends, ends, pairs, inside, known)
            elif part is None or (part.nvlink_gen or 0) >= 3:
                yield from _holes(ends, seen, known)


def _boards(joined: list[Pair]) -> list[set[int]]:
    """Sets of GPUs that reach each other over NVLink, directly or through each other."""
    boards: list[set[int]] = []
    for pair in joined:
        touching = [b for b in boards if {pair.a, pair.b} & b]
        boards = [b for b in boards if b not in touching]
        boards.append({pair.a, pair.b}.union(*touching))
    return boards


def _holes(ends: set[int], seen: list[Pair], known: dict[int, Card]) -> Iterator[MatrixFault]:
    """A100 and later SXM boards are full meshes; a pair of one without NVLink has lost it. (V100 cubes have such pairs.)

    Of a part that nobody names it is known where both GPUs share more links with the others than a GPU has: those are switches.
    """
    shared: Counter[int] = Counter()
    for pair in seen:
        if pair.path == "NVL":
            shared.update({pair.a: pair.nvlinks or 0, pair.b: pair.nvlinks or 0})
    for pair in seen:
        if pair.path == "NVL" or not {pair.a, pair.b} <= ends:
            continue
        card = known[pair.a]
        behind = min(shared[pair.a], shared[pair.b]) > _MOST_LINKS
        if card.part is None and not behind:
            continue
        yield MatrixFault(
            (pair.a, pair.b),
            f"GPU{pair.a} and GPU{pair.b}{f' ({card.words})' if card.name else ''} have no NVLink to each other, but both have it "
            f"to the rest of their board{', through NVSwitches' if behind else ''}.",
            (pair.at("path"),),
            LIKELY,
            switched=behind,
        )


def _bridged(joined: list[Pair], known: dict[int, Card]) -> Iterator[MatrixFault]:
    """Cards with bridges: each pair by itself, against what the part has to a neighbour."""
    for pair in joined:
        card = known[pair.a]
        if card.part is None or not pair.nvlinks or pair.nvlinks in card.part.pair_links:
            continue
        whole = min((n for n in card.part.pair_links if n > pair.nvlinks), default=None)
        if whole is None:
            continue
        yield MatrixFault(
            (pair.a, pair.b),
            f"GPU{pair.a} and GPU{pair.b} ({card.words}) share {pair.nvlinks} NVLinks where a whole bridge gives {whole}: a "
            "bridge does not sit, or one of several is missing.",
            (pair.at("nvlinks"),),
            LIKELY,
            whole - pair.nvlinks,
            pair.nvlinks,
        )


def _groups(known: dict[int, Card]) -> list[set[int]]:
    """GPUs of one kind; those of unknown kind are one group of their own."""
    kinds: dict[str | None, set[int]] = {}
    for index, card in known.items():
        kinds.setdefault(card.kind, set()).add(index)
    return list(kinds.values())


def _counts(ends: list[int], joined: list[Pair], known: dict[int, Card]) -> Iterator[MatrixFault]:
    """In a full mesh of equal parts every pair has the same count, but for V100 meshes of direct links."""
    counts = {(p.a, p.b): p.nvlinks for p in joined if p.nvlinks}
    if len(counts) < len(joined):
        return
    most = max(counts.values())
    part = known[ends[0]].part
    if len(set(counts.values())) == 1:
        yield from _all_low(ends, joined, most, known)
        return
    if part is not None and most in part.pair_links and all(c in part.pair_links for c in counts.values()):
        return
    if most <= _CUBE_MESH_MAX or len(ends) < 3:
        return
    # Behind switches a GPU with a link down is low against every other; between two such GPUs the lower one counts.
    low = [g for g in ends if all(c < most for pair, c in counts.items() if g in pair)]
    rest = [g for g in ends if g not in low]
    if len(rest) >= 2 and all(c == most for (a, b), c in counts.items() if a in rest and b in rest):
        for gpu in low:
            best = max(c for (a, b), c in counts.items() if gpu in (a, b))
            yield MatrixFault(
                (gpu,),
                f"{known[gpu].label} has {best} NVLinks to its peers where the others have {most} to each other: "
                f"{most - best} of its links {'is' if most - best == 1 else 'are'} down.",
                tuple(p.at("nvlinks") for p in joined if gpu in (p.a, p.b))[:3],
                LIKELY,
                most - best,
                best,
                switched=True,
            )
    for pair in joined:
        if pair.nvlinks and pair.nvlinks < most and not {pair.a, pair.b} & set(low):
            yield MatrixFault(
                (pair.a, pair.b),
                f"GPU{pair.a} and GPU{pair.b} share {pair.nvlinks} NVLinks where other pairs share {most}: "
                f"{most - pair.nvlinks} between them {'is' if most - pair.nvlinks == 1 else 'are'} down.",
                (pair.at("nvlinks"),),
                LIKELY,
                most - pair.nvlinks,
                pair.nvlinks,
            )


def _all_low(ends: list[int], joined: list[Pair], count: int, known: dict[int, Card]) -> Iterator[MatrixFault]:
    """All pairs alike: only the part's own figure can tell that links are missing (NV17 between two H200)."""
    card = known[ends[0]]
    part = card.part
    if part is None or not part.pair_links or count in part.pair_links:
        return
    whole = min((n for n in part.pair_links if n > count), default=None)
    # Among more than two, one count for all is rather a board that the table does not know.
    if whole is None or len(ends) != 2:
        return
    pair = joined[0]
    yield MatrixFault(
        (pair.a, pair.b),
        f"GPU{pair.a} and GPU{pair.b} ({card.words}) share {count} NVLinks where this part has {whole} to a neighbour: "
        f"{whole - count} {'is' if whole - count == 1 else 'are'} down.",
        (pair.at("nvlinks"),),
        LIKELY,
        whole - count,
        count,
        switched=whole == part.links,
    )


def _outsiders(
    outside: set[int], ends: set[int], pairs: Pairs, joined: list[Pair], known: dict[int, Card]
) -> Iterator[MatrixFault]:
    """A GPU of the same SXM part without NVLink beside a full mesh of two or more others."""
    counts = Counter(p.nvlinks for p in joined if p.nvlinks)
    usual = max(counts, key=counts.__getitem__) if counts else 0
    for gpu in sorted(outside):
        card = known[gpu]
        own = [p for p in pairs if gpu in (p.a, p.b) and p.path is not None and {p.a, p.b} <= ends | {gpu}]
        whole_board = len(ends) not in _BOARD_SIZES and len(ends) + len(outside) in _BOARD_SIZES
        unnamed = card.kind is None and usual * (len(ends) - 1) > _MOST_LINKS and whole_board
        if not (card.required or unnamed) or len(own) < len(ends):
            continue
        links = card.part.links if card.part is not None else None
        # In a V100 cube two of its quads meet by single links, so a GPU of the other quad has none to these.
        if card.part is not None and card.part.nvlink_gen == 2 and usual < (links or 0):
            continue
        # Direct boards: if the others' links are all in use among themselves, this GPU sits on another board.
        if links is not None and usual < links and usual * (len(ends) - 1) >= links:
            continue
        yield MatrixFault(
            (gpu,),
            f"{card.label} ({card.words}) has NVLink to no other GPU, while the {len(ends)} others have it to each other.",
            tuple(dict.fromkeys(p.at("path") for p in own)),
            LIKELY,
            links,
            switched=unnamed or links is not None and usual >= links - 2,
        )


def _none_at_all(members: set[int], seen: list[Pair], known: dict[int, Card], vm: bool) -> Iterator[MatrixFault]:
    """SXM parts and not one NVLink in the whole matrix: the fabric was never set up, or the hypervisor withholds it."""
    first = known[min(members)]
    if not first.required or len(seen) < len(members) * (len(members) - 1) // 2 or not seen:
        return
    # Of a V100 cube two GPUs may have no link; of any three, two do, since it consists of two quads.
    if len(members) == 2 and first.part is not None and first.part.nvlink_gen == 2:
        return
    where = " A hypervisor that hands out GPUs one by one can be the reason too." if vm else ""
    yield MatrixFault(
        tuple(sorted(members)),
        f"No pair of the {len(members)} GPUs ({first.words}) has NVLink, although their board joins them all by it.{where}",
        tuple(p.at("path") for p in seen[:3]),
        POSSIBLE if vm or len(members) == 2 else LIKELY,  # two may sit on two boards
        first.part.links if first.part is not None else None,
        switched=True,
        whole=True,
    )
