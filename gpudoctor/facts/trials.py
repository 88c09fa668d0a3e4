"""What was tried after a bandwidth run fell short: one variation each, and what it changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.facts.base import Entry, Fact

# What differs by less than this factor says nothing (our choice, 2026-11): two runs of one healthy host differ by so much.
TELLING = 1.10


class Trial(Entry):
    """One short run under one change. `name` and `scope` name the setting that was taken away, where it was one."""

    what: str  # for a reader: "without NCCL_P2P_DISABLE=1", "peer to peer off"
    before_gbs: float | None = None
    after_gbs: float | None = None
    name: str | None = None
    scope: str | None = None
    value: str | None = None
    culprit: bool = False  # taking it away alone is what helps
    why_not: str | None = None  # it was not tried, or gave no number

    @property
    def gain(self) -> float | None:
        """After over before."""
        return self.after_gbs / self.before_gbs if self.after_gbs and self.before_gbs else None

    @property
    def loss_pct(self) -> float | None:
        """What the setting costs, in per cent of what is reached without it."""
        gain = self.gain
        return 100 * (1 - 1 / gain) if gain else None


class Estimate(Entry):
    """NCCL's own estimate of its rings in a run that no setting held down: channels times bandwidth of one."""

    nranks: int
    channels: int
    bw_gbs: float
    type_intra: str
    without: tuple[str, ...] = ()  # settings that were away


class Trials(Fact):
    """All variations of one measurement that fell short."""

    label: ClassVar[str] = "variations of a bandwidth run"
    hint: ClassVar[str | None] = None

    trials: tuple[Trial, ...]
    estimate: Estimate | None = None

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def of(self, name: str) -> Trial | None:
        """The trial that found this setting to be what holds the run back."""
        return next((t for t in self.trials if t.culprit and t.name == name), None)
