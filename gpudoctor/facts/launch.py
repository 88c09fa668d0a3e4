"""Commands that a text shows above their own output, and the settings that these commands gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from gpudoctor.facts.base import Contradiction, Entry, Fact
from gpudoctor.model import Evidence
from gpudoctor.record import EMPTY

# Lines between a command and the first line of its output that is known; what the program itself says stands between.
REACH = 40
_PIECES = 12  # lines between two known pieces of one command that was broken with backslashes


class Launch(Entry):
    """One command, or one line of it. `lasting`: `export`, which holds for all that the shell starts after it."""

    source: str
    line: int
    settings: Mapping[str, str] = EMPTY
    lasting: bool = False
    open: bool = False  # goes on in the next line


class Launches(Fact):
    """Settings given on command lines. They count for the run whose output stands below, and for no other."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "the commands of the runs"
    hint: ClassVar[str | None] = None

    launches: tuple[Launch, ...]

    def __iter__(self) -> Iterator[Launch]:
        return iter(self.launches)

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Launches:
        return Launches(tuple(sorted((launch for p in parts for launch in p.launches), key=lambda one: (one.source, one.line))))

    def of(self, first: Evidence, before: Iterable[Evidence] = ()) -> dict[str, Launch]:
        """Name of a setting -> the command that gave it to the output that begins at `first`.

        before: where other outputs begin. One that stands between a command and this output is that command's.
        """
        at = line_of(first)
        if at is None:
            return {}
        others = [n for spot in before if spot.source == first.source and (n := line_of(spot)) is not None and n < at]
        found: dict[str, Launch] = {}
        last: Launch | None = None  # the piece of the command that stands nearest above what is looked at
        over = False
        for launch in reversed(self.launches):
            if launch.source != first.source or launch.line >= at:
                continue
            if not launch.lasting:
                if last is None:
                    over = over or at - launch.line > REACH or any(launch.line < n for n in others)
                else:
                    over = over or not launch.open or last.line - launch.line > _PIECES
                if over:
                    continue
                last = launch
            for name in launch.settings:
                found.setdefault(name, launch)
        return {name: launch for name, launch in found.items() if launch.settings[name] != UNSET}


class StartFailure(Entry):
    """A launcher's own word on why a job did not start. `order`: how near to the reason, among its kind."""

    kind: str
    who: str
    order: int
    words: str
    peer: str | None = None  # the host that could not be reached
    port: int | None = None  # that was taken, or did not answer


class StartFailures(Fact):
    """All of them, of one input."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "what launchers say of a start that failed"
    hint: ClassVar[str | None] = None

    failures: tuple[StartFailure, ...]

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> StartFailures:
        return StartFailures(tuple(f for p in parts for f in p.failures))

    @property
    def first(self) -> StartFailure | None:
        """The one nearest to the reason."""
        return min(self.failures, key=lambda f: f.order, default=None)

    @property
    def of_a_job(self) -> bool:
        """Does a launcher speak? A host that ssh cannot reach may be one of which somebody only wanted the outputs."""
        return any(f.who != "ssh" for f in self.failures)


UNSET = "\0"  # the value that `unset NAME` gives


def line_of(spot: Evidence) -> int | None:
    """The line that evidence of a text points to."""
    number = spot.where.removeprefix("line ")
    return int(number) if number.isdigit() else None
