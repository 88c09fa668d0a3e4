"""Facts of one host, joined: what checkers and reports read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from gpudoctor.facts.base import Contradiction, Fact, Loss

F = TypeVar("F", bound=Fact)
STAND_IN = re.compile(r"host-[0-9a-f]{6}(?:-\d+)?$")  # what a snapshot has in place of a host's name


class UndeclaredFact(Exception):
    """A checker read a fact that it lists neither under `needs` nor under `wants`."""


class FactStore:
    """Merged facts of one host by type. `missing` holds, for a type that is absent, why."""

    def __init__(
        self, host: str | None, parts: Iterable[Fact | Loss], recorded: bool = True, named: bool = True
    ) -> None:
        self.host = host
        self.named = named and host is not None  # False: `host` is only what we call a machine that nothing names
        self.recorded = recorded
        self.homes: Homes | None = None  # where a job's log is kept beside facts that may not be of all its hosts
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

    def only(self, *kinds: type[Fact]) -> bool:
        """Is there nothing but these?"""
        return self._facts.keys() <= set(kinds)

    def why_missing(self, kind: type[Fact]) -> str:
        """A sentence for a reader: what is absent and why."""
        reason = self.missing.get(kind)
        if reason:
            return f"{kind.label}: {reason}"
        return f"{kind.label}: {'not in the input' if self.recorded else 'no source could be read'}"


class Homes:
    """The machines of the input that the hosts of a job's log are (facts.homes finds them)."""

    def __init__(self, stores: Mapping[str, FactStore], reasons: Mapping[str, str], nameless: str) -> None:
        self._stores = {short(name): store for name, store in stores.items()}
        self._reasons = {short(name): reason for name, reason in reasons.items()}
        self._nowhere: dict[str, FactStore] = {}  # by reason
        self._nameless = nameless

    def of(self, host: str | None) -> FactStore:
        """Its facts; an empty store, whose `missing` says why, where it is no machine of the input."""
        found = self._stores.get(short(host)) if host is not None else None
        if found is not None:
            return found
        reason = self._reasons.get(short(host), self._nameless) if host is not None else self._nameless
        return self._nowhere.setdefault(reason, Nowhere(reason))


class Nowhere(FactStore):
    """Stands for the facts of a host that the input has none of."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, ())
        self.reason = reason

    def why_missing(self, kind: type[Fact]) -> str:
        return f"{kind.label}: {self.reason}"


class FactView:
    """A checker's window on the store: only what it declared."""

    def __init__(self, store: FactStore, declared: frozenset[type[Fact]]) -> None:
        self._store = store
        self._declared = declared
        self._others: dict[int, FactView] = {}

    def on(self, host: str | None) -> FactView:
        """The window on the machine that a job's log calls `host`: one and the same for hosts that are one machine."""
        homes = self._store.homes
        store = homes.of(host) if homes is not None else self._store
        if store is self._store:
            return self
        known = self._others.get(id(store))
        if known is None:
            known = self._others[id(store)] = FactView(store, self._declared)
        return known

    @property
    def several(self) -> bool:
        """Does a log here speak of machines whose facts are elsewhere, or nowhere?"""
        return self._store.homes is not None

    @property
    def host(self) -> str | None:
        """The machine's name in the input; None where it has none."""
        return self._store.host

    @property
    def nowhere(self) -> str | None:
        """Why nothing is known of this machine, where `on` found none."""
        return self._store.reason if isinstance(self._store, Nowhere) else None

    def __getitem__(self, kind: type[F]) -> F:
        found = self.get(kind)
        if found is None:
            raise KeyError(kind.__name__)
        return found

    def get(self, kind: type[F]) -> F | None:
        if kind not in self._declared:
            raise UndeclaredFact(f"{kind.__name__} is listed neither under needs nor under wants")
        return self._store.get(kind)

    def __contains__(self, kind: type[Fact]) -> bool:
        return self.get(kind) is not None

    @property
    def recorded(self) -> bool:
        """True when the input is files, so that absence may be the author's choice."""
        return self._store.recorded

    def why_missing(self, kind: type[Fact]) -> str:
        return self._store.why_missing(kind)


def short(host: str) -> str:
    """NCCL cuts a host's name at its first dot; a prompt may not."""
    return host.partition(".")[0].casefold()
