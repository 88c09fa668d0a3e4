"""Facts of one host, joined: what checkers and reports read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from gpudoctor.facts.base import Contradiction, Fact, Loss

F = TypeVar("F", bound=Fact)


class UndeclaredFact(Exception):
    """A checker read a fact that it lists neither under `needs` nor under `wants`."""


class FactStore:
    """Merged facts of one host by type. `missing` holds, for a type that is absent, why."""

    def __init__(self, host: str | None, parts: Iterable[Fact | Loss], recorded: bool = True) -> None:
        self.host = host
        self.recorded = recorded
        self.contradictions: list[Contradiction] = []
        self.losses: list[Loss] = []
        self.missing: dict[type[Fact], str] = {}
        grouped: dict[type[Fact], list[Fact]] = {}
        for part in parts:
            if isinstance(part, Loss):
                self.losses.append(part)
            else:
                grouped.setdefault(type(part), []).append(part)
        self._facts: dict[type[Fact], Fact] = {
            kind: kind.merge(found, self.contradictions.append) for kind, found in grouped.items()
        }

    def get(self, kind: type[F]) -> F | None:
        return self._facts.get(kind)  # type: ignore[return-value]

    def put(self, fact: Fact) -> None:
        """Replace a fact by a joined form of it (facts.join only)."""
        self._facts[type(fact)] = fact

    def __contains__(self, kind: type[Fact]) -> bool:
        return kind in self._facts

    def why_missing(self, kind: type[Fact]) -> str:
        """A sentence for a reader: what is absent and why."""
        reason = self.missing.get(kind)
        if reason:
            return f"{kind.label}: {reason}"
        return f"{kind.label}: {'not in the input' if self.recorded else 'no source could be read'}"


class FactView:
    """A checker's window on the store: only what it declared."""

    def __init__(self, store: FactStore, declared: frozenset[type[Fact]]) -> None:
        self._store = store
        self._declared = declared

    def __getitem__(self, kind: type[F]) -> F:
        found = self.get(kind)
        if found is None:
            raise KeyError(kind.__name__)
        return found

    def get(self, kind: type[F]) -> F | None:
        if kind not in self._declared:
            raise UndeclaredFact(f"{kind.__name__} is listed neither under needs nor under wants")
        return self._store.get(kind)

    @property
    def recorded(self) -> bool:
        """True when the input is files, so that absence may be the author's choice."""
        return self._store.recorded

    def why_missing(self, kind: type[Fact]) -> str:
        return self._store.why_missing(kind)
