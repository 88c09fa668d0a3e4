"""Which machine an output came from, where nothing names it: documents hold outputs of several.

Two outputs are of different machines where no GPU they both number is the same card, where their matrices count
different GPUs and yet differ in a pair both have, or where the most NVLinks of any pair differ, which tells the part.
Anything less is one machine at two times, or in two states.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.topology import NvLinks, Pairs


class Machine:
    """What is known of one machine's GPUs."""

    def __init__(self) -> None:
        self._cards: tuple[dict[int, str], dict[int, str]] = ({}, {})  # index -> UUID, index -> PCI address
        self._paths: dict[tuple[int, int], tuple[str, int | None]] = {}
        self._count: set[int] = set()  # GPUs of the matrix

    def learn(self, parts: Iterable[Fact | Loss]) -> None:
        other = Machine.of(parts)
        for mine, theirs in zip(self._cards, other._cards, strict=True):
            mine.update({index: card for index, card in theirs.items() if index not in mine})
        self._paths = {**other._paths, **self._paths}
        self._count |= other._count

    @property
    def _most(self) -> int:
        return max((links or 0 for _, links in self._paths.values()), default=0)

    @classmethod
    def of(cls, parts: Iterable[Fact | Loss]) -> Machine:
        made = cls()
        uuids, addresses = made._cards
        for part in parts:
            if isinstance(part, Gpus):
                uuids.update({g.index: g.uuid for g in part if g.index is not None and g.uuid is not None})
                addresses.update({g.index: g.bdf for g in part if g.index is not None and g.bdf is not None})
            elif isinstance(part, NvLinks):
                uuids.update({g.gpu: g.uuid for g in part.gpus if g.uuid is not None})
            elif isinstance(part, Pairs):
                # A matrix of PCIe alone (`topo -mp`) differs by design.
                made._paths.update(
                    {(p.a, p.b): (p.path, p.nvlinks) for p in part if p.path is not None and not p.pcie_only}
                )
        made._count = {index for pair in made._paths for index in pair}
        return made

    def differs(self, other: Machine) -> bool:
        """Is it certain that the two are not one machine?"""
        for mine, theirs in zip(self._cards, other._cards, strict=True):
            both = mine.keys() & theirs.keys()
            if both and not set(mine.values()) & set(theirs.values()):
                return True
        both_paths = self._paths.keys() & other._paths.keys()
        if self._count != other._count and any(self._paths[pair] != other._paths[pair] for pair in both_paths):
            return True
        return bool(self._most and other._most and self._most != other._most)
