"""How the probes of a live look ended, and what another tool's own tests say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from gpudoctor.facts.base import Contradiction, Entry, Fact


class Outcome(Entry):
    """How one probe ended. status: ok, exit, signal, timeout, stuck, absent, unrunnable, oversize."""

    probe: str
    argv: tuple[str, ...]
    status: str
    rc: int | None = None
    seconds: float = 0.0
    stderr: str = ""
    timeout_s: float | None = None


class Outcomes(Fact):
    """Only a live look or a snapshot has these; a pasted file has none."""

    label: ClassVar[str] = "how the probes ended"
    hint: ClassVar[str | None] = None

    outcomes: tuple[Outcome, ...]

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def of(self, probe: str) -> Outcome | None:
        return next((o for o in self.outcomes if o.probe == probe), None)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Outcomes:
        return Outcomes(tuple(o for p in parts for o in p.outcomes))


class ToolTest(Entry):
    """One test that a tool made, of one GPU or (gpu None) as a whole. status: pass, fail, warn, skip, not run, info."""

    tool: str  # "DCGM"
    test: str
    status: str
    gpu: int | None = None  # as the tool numbers it
    messages: tuple[str, ...] = ()  # its own words; `messages.0` in origin says where


class ToolTests(Fact):
    """What DCGM's diagnostics and health watches say."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "tests of DCGM"
    hint: ClassVar[str | None] = "dcgmi diag -r 2"

    tests: tuple[ToolTest, ...]

    def __iter__(self) -> Iterator[ToolTest]:
        return iter(self.tests)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> ToolTests:
        return ToolTests(tuple(t for p in parts for t in p.tests))
