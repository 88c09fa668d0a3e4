"""What another tool's own tests say (DCGM), in short: how many passed, and which did not."""

from __future__ import annotations

from gpudoctor.facts.outcomes import ToolTests
from gpudoctor.facts.store import FactStore
from gpudoctor.report.layout import Style, counted, hanging

_WORDS = {"fail": "failed", "warn": "warned", "skip": "was skipped", "not run": "did not run"}
_WORST = ("fail", "warn", "pass", "skip", "not run")


def view(store: FactStore, style: Style) -> list[str]:
    """`DCGM  8 tests passed; pcie failed on GPU 2 and 3; memory was skipped`."""
    by_test: dict[str, dict[str, list[int]]] = {}
    for test in store.get(ToolTests) or ():
        if test.status in _WORST:
            own = by_test.setdefault(test.test, {}).setdefault(test.status, [])
            own += [test.gpu] if test.gpu is not None else []
    worst = {name: min(found, key=_WORST.index) for name, found in by_test.items()}
    passed = sum(status == "pass" for status in worst.values())
    words = [f"{counted(passed, 'test')} passed"] if passed else []
    watched = any(name.startswith("health: ") for name in worst)
    for name, status in worst.items():
        if status in _WORDS and not (watched and name == "health"):
            gpus = sorted(set(by_test[name][status]))
            where = f" on GPU{'s' if len(gpus) > 1 else ''} {', '.join(map(str, gpus))}" if gpus else ""
            words.append(f"{name} {_WORDS[status]}{where}")
    return hanging("DCGM         ", " " * 13, "; ".join(words), style) if words else []
