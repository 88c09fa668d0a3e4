"""Tests of another tool (DCGM) that failed, held against what the checkers found: what stays without a cause is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudoctor.facts.outcomes import ToolTest, ToolTests
from gpudoctor.facts.store import FactStore
from gpudoctor.model import Evidence, Finding, Missing
from gpudoctor.pattern import lazy

OVERALL, WATCH = "health", "health: "  # names of DCGM's watches, as its parser gives them
_SHOWN = 300  # characters of a message
_NOT_A_FAULT = frozenset(("persistence mode", "environment variables", "graphics processes"))
# What DCGM wants of a host before it tests it; it has no bearing on how GPUs talk to each other.
_SET_UP = lazy(
    r"persistencemode|becauseeccisnotenabled|eccmemoryon|eccmemoryisnotturnedon|graphicsprocess|skippingtest|skippingplugin|testisskipped|wasskipped"
    r"|performance-limitingenvironmentvariable|cannotreliablyreadthepowerusage"
)


def unexplained(stores: Iterable[FactStore], findings: Iterable[Finding]) -> Iterator[Missing]:
    """A test that failed for a reason that no finding rests on: what it says is no fault that could be named, and no pass."""
    cited = {key for f in findings for e in f.evidence for key in _keys(e)}
    for store in stores:
        told: set[str] = set()
        by_test: dict[str, list[ToolTest]] = {}
        for test in store.get(ToolTests) or ():
            if test.status in ("fail", "warn"):
                by_test.setdefault(test.test, []).append(test)
        if any(name.startswith(WATCH) for name in by_test):
            by_test.pop(OVERALL, None)  # it sums up what the watches tell
        for name, tests in by_test.items():
            failed = any(t.status == "fail" for t in tests)
            messages = [(t, n, text) for t in tests for n, text in enumerate(t.messages)]
            open_ = [text for t, n, text in messages if not cited.intersection(_keys(t.at(f"messages.{n}"))) and not harmless(text)]
            if messages and not open_ or not messages and (not failed or name.lower() in _NOT_A_FAULT):
                continue
            gpus = sorted({t.gpu for t in tests if t.gpu is not None})
            where = f" on GPU{'s' if len(gpus) > 1 else ''} {', '.join(map(str, gpus))}" if gpus else ""
            shown = "; ".join(text[:_SHOWN] for text in dict.fromkeys(open_)) or "no reason is in the input"
            ended = "failed" if failed else "gave a warning"
            what = f"why DCGM's {_called(name)} {ended}{where}"
            if what not in told:
                told.add(what)
                yield Missing(what, (f"DCGM says: {shown}" if open_ else shown).rstrip(" .") + (f"; {_next(name)}" if failed else ""), needed=failed)


def _called(name: str) -> str:
    return f"health watch of the {name.removeprefix(WATCH)}" if name.startswith(WATCH) else name if name == OVERALL else f"test {name}"


def _next(name: str) -> str:
    """What tells more than the table did."""
    again = "dcgmi health -c" if name.startswith(WATCH) or name == OVERALL else "dcgmi diag -r 2 -v"
    return f"the whole output of `{again}`, and of `sudo dmesg -T` from the same time, may tell"


def harmless(text: str) -> bool:
    return _SET_UP.search("".join(text.lower().split())) is not None


def _keys(evidence: Evidence) -> tuple[object, ...]:
    """A message that stands twice is one: a finding shows its first place only."""
    return ((evidence.source, evidence.where), " ".join(evidence.value.split()))
