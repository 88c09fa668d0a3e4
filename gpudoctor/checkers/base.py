"""What a checker is: metadata as class attributes, and one generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.facts.base import Fact
from gpudoctor.facts.store import FactView
from gpudoctor.model import CannotTell, Cause, Finding


class BaseChecker:
    """Subclass, fill in the attributes, write `check`.

    causes: what it may say, one catalogue entry per slug (an entry may be shared by several checkers).
    needs: facts without which it is skipped. any_of: at least one of these must be there.
    wants: facts it reads where they are there. Reading any other fact raises UndeclaredFact.
    """

    name: ClassVar[str] = ""
    causes: ClassVar[tuple[Cause, ...]] = ()
    needs: ClassVar[tuple[type[Fact], ...]] = ()
    any_of: ClassVar[tuple[type[Fact], ...]] = ()
    wants: ClassVar[tuple[type[Fact], ...]] = ()

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        """Yield what is wrong, and what could not be judged. Yielding nothing means: looked, and found in order."""
        raise NotImplementedError
        yield
