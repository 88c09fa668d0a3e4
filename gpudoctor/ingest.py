"""Snapshots and documents to joined facts, one store per host."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.join import join
from gpudoctor.facts.launch import Launches
from gpudoctor.facts.machine import Machine
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Software
from gpudoctor.model import Missing
from gpudoctor.read.section import Section, Unparsable, parser_module
from gpudoctor.record import KeyedRecord

if TYPE_CHECKING:
    from gpudoctor.collect.capture import Snapshot
    from gpudoctor.read.same import Seen
    from gpudoctor.read.source import Document, Folder, Source
    from gpudoctor.read.team import Team


class Intake(KeyedRecord):
    """What came in: one store per host, what was lost, and the files that held nothing known."""

    stores: tuple[FactStore, ...]
    missing: tuple[Missing, ...]
    unknown: tuple[str, ...]
    recognised: int  # sections that yielded facts
    captured_at: str | None = None  # of the first snapshot that says
    copies: tuple[tuple[str, str], ...] = ()  # given again under a name of its own -> under which name it was read
    unread: tuple[Missing, ...] = ()  # of these: inputs that were left before their end


class LeftEarly(OSError):
    """Whoever gives the bytes has no more of them; its words say it all."""


_END, _LEAST_END, _ENDS = 1 << 17, 1 << 12, 1 << 24  # bytes of a log's end that are kept: of one, of one of very many, of all
_ASIDE = frozenset(("kernel-name", "log-end"))  # says where other outputs are from, and is none to judge by itself


class _Another(str):
    """Stands for the name of a machine that nothing names, but whose outputs are not another's."""


class _Pile:
    """Facts by host as they come in."""

    def __init__(self) -> None:
        self.by_host: dict[str | None, list[Fact | Loss]] = {}
        self.tried: dict[str | None, dict[str, str]] = {}  # host -> probe id -> how it ended
        self.missing: list[Missing] = []
        self.unread: list[Missing] = []
        self.unknown: list[str] = []
        self.recognised = 0
        self.captured_at: str | None = None
        self.room = _ENDS
        self.seen: Seen | None = None
        self.folders: list[Folder] = []
        self.copies: list[tuple[str, str]] = []
        self.team: Team | None = None  # helps with long texts, whichever they are
        self._machines: dict[str | None, dict[str | None, Machine]] = {}  # by host: itself, and others under its name

    def add(self, section: Section, failed: bool = False, document: bool = False) -> bool:
        """Parse one section; True when it gave facts. failed: its probe did, which is said already.

        document: it comes from a text that may mix the outputs of several machines.
        """
        into: list[Fact | Loss] = []
        found = False
        try:
            for item in importlib.import_module(parser_module(section.kind)).parse(section):
                into.append(item)
                # A command is no output: what it printed is what there is to judge. Nor is a version in somebody's list.
                found = found or not isinstance(item, (Loss, Launches)) and not (section.kind == "nccl-log" and isinstance(item, Software))
        except Unparsable as error:
            if not failed:
                into.append(Loss(section.source, str(error).removeprefix(f"{section.source}: ")))
        except Exception as error:  # a parser that breaks loses its section, never the run
            into.append(Loss(section.source, f"the parser {section.kind} broke: {type(error).__name__}: {error}"))
        found = found and section.kind not in _ASIDE
        self.recognised += found
        if into:
            self.by_host.setdefault(self._whose(section, into) if document else section.host, []).extend(into)
        return found

    def lose(self, loss: Loss, where: str = "") -> Missing:
        """What is said of it."""
        missing = Missing(loss.fact + where, loss.reason, needed=loss.unread)
        if loss.unread:
            self.unread.append(missing)
        return missing

    def state(self) -> tuple[dict[str | None, int], int, int, int]:
        """What `back` goes back to."""
        return {host: len(parts) for host, parts in self.by_host.items()}, self.recognised, len(self.missing), self.room

    def back(self, state: tuple[dict[str | None, int], int, int, int]) -> None:
        """Without what came in since."""
        counts, self.recognised, lost, self.room = state
        self.by_host = {host: parts[: counts[host]] for host, parts in self.by_host.items() if host in counts}
        del self.missing[lost:]

    def processes_since(self, state: tuple[dict[str | None, int], int, int, int]) -> bool:
        """Did a process of a job write into what came in since?"""
        new = (part for host, parts in self.by_host.items() for part in parts[state[0].get(host, 0) :])
        return any(proc.pid is not None for part in new if isinstance(part, Nccl) for proc in part.procs)

    def _whose(self, section: Section, parts: list[Fact | Loss]) -> str | None:
        """The first machine under the section's host that these facts may be of."""
        known = self._machines.setdefault(section.host, {section.host: Machine()})
        told = Machine.of(parts)
        fitting = [name for name, machine in known.items() if not machine.differs(told)]
        if not fitting:
            fitting = [_Another(f"another machine ({os.path.basename(section.source)}, line {section.lines[0].number})")]
            known[fitting[0]] = Machine()
        known[fitting[0]].learn(parts)
        return fitting[0]


def take(snapshots: Sequence[Snapshot] = (), sources: Iterable[Source] = ()) -> Intake:
    """Everything that was given, parsed and joined by host."""
    pile = _Pile()
    for snapshot in snapshots:
        _take_snapshot(pile, snapshot)
    try:
        for source in sources:
            _take_source(pile, source)
    finally:
        if pile.team is not None:
            pile.team.close()
    return _joined(pile)


def _take_snapshot(pile: _Pile, snapshot: Snapshot) -> None:
    from gpudoctor.collect.capture import MAX_LINES, ended, outcomes_of, sections_of

    pile.captured_at = pile.captured_at or snapshot.captured_at
    pile.by_host.setdefault(snapshot.host, []).extend((outcomes_of(snapshot.captures), *snapshot.losses))
    pile.tried.setdefault(snapshot.host, {}).update(
        {c.probe.id: f"`{c.probe.shown}`: {ended(c)}" for c in snapshot.captures}
    )
    failed = {c.probe.shown for c in snapshot.captures if c.status != "ok"}
    told = {section.source for section in sections_of(snapshot) if pile.add(section, section.source in failed)}
    for capture in snapshot.captures:
        if capture.probe.kind is None and capture.out and capture.probe.shown not in told:
            pile.unknown.append(capture.probe.shown)
        if capture.out.count(b"\n") > MAX_LINES:
            pile.missing.append(Missing(capture.probe.shown, f"longer than {MAX_LINES} lines: only these were read"))
        if capture.status != "ok" or not capture.out:
            pile.missing.append(Missing(capture.probe.shown, ended(capture), needed=capture.probe.needed))


def _take_source(pile: _Pile, source: Source) -> None:
    from gpudoctor.read.source import Folder

    if isinstance(source, Loss):
        pile.missing.append(pile.lose(source))
        return
    if isinstance(source, Folder):
        from gpudoctor.collect.snapshot import load

        first = next((f.name for f in pile.folders if _alike(f, source)), None)
        if first is None:
            pile.folders.append(source)
            _take_snapshot(pile, load(source))
        else:
            pile.copies.append((source.name, first))
        return
    if pile.seen is None:
        from gpudoctor.read.same import Seen

        pile.seen = Seen()
    first = pile.seen.file(source)
    if first is not None:
        pile.copies.append((source.name, first))
        return
    before = pile.state()
    size, kinds, said = _take_document(pile, source)
    # The service is asked twice to see whether anything moves: two answers that are equal are two answers. And two ranks'
    # flight recorders that hold the same are two, which only their names tell.
    apart = "ras" in kinds and not pile.processes_since(before) or kinds == {"flight-recorder"}
    first = pile.seen.content(source, size) if not apart else None
    if first is not None:
        pile.back(before)
        pile.copies.append((source.name, first))
    elif not kinds and not said:
        pile.unknown.append(source.name)


def _alike(one: Folder, other: Folder) -> bool:
    with suppress(OSError):  # what cannot be read is no copy that is known
        return set(one.names) == set(other.names) and all(one.read(n) == other.read(n) for n in one.names)
    return False


class _Taken(NamedTuple):
    size: int  # -1 where it was not read to its end
    kinds: set[str]  # of what was found in it
    said: bool = False  # why nothing was


def _take_document(pile: _Pile, source: Document) -> _Taken:
    from gpudoctor.read.recognise import Recogniser
    from gpudoctor.read.team import Team
    from gpudoctor.read.whole import whole

    pile.team = pile.team or Team()
    kinds: set[str] = set()
    size = 0
    broken: OSError | None = None

    def counted() -> Iterator[bytes]:
        """What can be read: where that ends too early, what came before is good."""
        nonlocal size, broken
        try:
            for chunk in source.chunks():
                size += len(chunk)
                yield chunk
        except OSError as error:
            broken = error

    section, chunks = whole(source.name, counted())
    if isinstance(section, Loss):
        pile.missing.append(pile.lose(section))
        return _Taken(-1, kinds, said=True)
    if section is not None and pile.add(section, document=True):
        kinds.add(section.kind)
    recogniser = Recogniser(source.name, team=pile.team)
    for section in recogniser.run(chunks):
        if pile.add(section, document=True):
            kinds.add(section.kind)
    ending = recogniser.ending(max(_LEAST_END, min(_END, pile.room))) if broken is None else None
    if ending is not None:
        pile.room -= len(ending.content)
        pile.add(ending)
    own = recogniser.own.losses(source.name, bool(kinds))
    pile.missing.extend(map(pile.lose, own))
    if broken is not None:
        from gpudoctor.read.gunzip import CUT

        # A copy that was cut is judged by what is there, as a text that was cut is, where nobody can tell.
        pile.missing.append(pile.lose(Loss(source.name, _left_early(broken, size), unread=str(broken) != CUT or not size)))
        return _Taken(-1, kinds, said=True)
    if size == 0:
        pile.missing.append(Missing(source.name, "it is empty: the command that should fill it printed nothing, or failed"))
    return _Taken(size, kinds, said=bool(own))


def _left_early(error: OSError, size: int) -> str:
    from gpudoctor.read.amount import amount

    if isinstance(error, LeftEarly):
        return str(error)
    read = f"{amount(size)} of it were read, and what follows is unknown" if size else "nothing of it is known"
    return f"could not be read to its end: {error.strerror or error}; {read}"


def _joined(pile: _Pile) -> Intake:
    """Facts of unnamed sources belong to the only named host; with two names or more, each stays apart."""
    named = [h for h in pile.by_host if h is not None and not isinstance(h, _Another)]
    groups: dict[str | None, list[Fact | Loss]] = pile.by_host
    tried = pile.tried
    if len(named) == 1 and None in groups:
        groups = {named[0]: [*groups[named[0]], *groups[None]]}
        tried = {named[0]: {**tried.get(None, {}), **tried.get(named[0], {})}}
    stores = []
    missing = list(pile.missing)
    for host, parts in groups.items():
        probes = tried.get(host, {})
        store = join(FactStore(host, parts, not _looked(probes), named=not isinstance(host, _Another)))
        if probes:
            _explain_absence(store, probes)
        where = f" ({host})" if host is not None and len(groups) > 1 else ""
        missing.extend(pile.lose(loss, where) for loss in store.losses)
        missing.extend(
            Missing(
                c.fact + where,
                f"two sources disagree: {c.kept.value} ({c.kept.source}, {c.kept.where}) is used, "
                f"{c.other.value} ({c.other.source}, {c.other.where}) is not",
            )
            for c in store.contradictions
        )
        stores.append(store)
    if any(Nccl in store for store in stores):
        from gpudoctor.facts.homes import lend_kills, settle

        missing.extend(settle(stores))
        lend_kills(stores)
    return Intake(
        stores=tuple(stores),
        missing=tuple(dict.fromkeys(missing)),
        unknown=tuple(pile.unknown),
        recognised=pile.recognised,
        captured_at=pile.captured_at,
        copies=tuple(pile.copies),
        unread=tuple(dict.fromkeys(pile.unread)),
    )


def _looked(probes: dict[str, str]) -> bool:
    """Did a live look (now or when the snapshot was taken) try the sources a verdict needs?"""
    from gpudoctor.collect.probes import PROBES

    return all(p.id in probes for p in PROBES if p.needed)


def _explain_absence(store: FactStore, probes: dict[str, str]) -> None:
    """For each fact that is not there, how its sources ended."""
    from gpudoctor.collect.givers import GIVERS

    for kind, ids in GIVERS.items():
        if kind not in store:
            ends = [probes[i] for i in ids if i in probes]
            otherwise = "only looked at when asked (--job)" if kind.on_request else "not collected"
            store.missing[kind] = "; ".join(ends) or otherwise
