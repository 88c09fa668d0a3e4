"""Facts to results: run every selected checker on every host, and let none of them end the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.discover import Plugins
from gpudoctor.facts.store import FactStore, FactView, short
from gpudoctor.model import BROKEN, FOUND, OK, SEVERITIES, SKIPPED, CannotTell, CheckResult, Finding
from gpudoctor.record import replace

MAX_FINDINGS = 5000  # of one checker: an endless generator is a broken plugin, not a sick host


class _Tally:
    """What the checkers said about one slug."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.judged = False
        self.unknown: list[str] = []
        self.not_given: list[str] = []  # of unknown, those whose fact is only there on request
        self.broken: list[str] = []


def run(
    plugins: Plugins,
    hosts: Sequence[FactStore],
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    debug: bool = False,
) -> tuple[CheckResult, ...]:
    """One result per selected code of the catalogue, in code order.

    A slug is `ok` only where a checker that may say it ran and judged every subject; a subject that could not be
    judged makes it `skipped` with the reason, unless something was found.
    """
    chosen = chosen_slugs(plugins, frozenset(select), frozenset(ignore))
    tallies = {slug: _Tally() for slug in chosen}
    for store in hosts:
        for checker in plugins.checkers:
            slugs = {c.slug for c in checker.causes} & tallies.keys()
            if slugs:
                _run_one(checker, store, {s: tallies[s] for s in slugs}, [s.host for s in hosts], debug)
    results = []
    for cause in plugins.causes:
        if cause.slug in tallies:
            results.append(_result(cause.code, cause.slug, tallies[cause.slug]))
    for failure in plugins.failures:
        results.append(CheckResult(failure.name, failure.name, BROKEN, f"the plugin could not be loaded: {failure.reason}"))
    return tuple(results)


def chosen_slugs(plugins: Plugins, select: frozenset[str], ignore: frozenset[str]) -> frozenset[str]:
    """Of the catalogue, what --select and --ignore leave; both take slugs and codes."""
    return frozenset(
        c.slug
        for c in plugins.causes
        if (not select or c.slug in select or c.code in select) and c.slug not in ignore and c.code not in ignore
    )


def _run_one(
    checker: BaseChecker, store: FactStore, tallies: dict[str, _Tally], hosts: Sequence[str | None], debug: bool
) -> None:
    lacking = [kind for kind in checker.needs if kind not in store]
    if not lacking and checker.any_of and not any(kind in store for kind in checker.any_of):
        lacking = list(checker.any_of[:1])
    if lacking:
        reason = "needs " + "; ".join(store.why_missing(kind) for kind in lacking)
        for tally in tallies.values():
            tally.unknown.append(reason)
            if any(kind.on_request for kind in lacking):
                tally.not_given.append(reason)
        return
    view = FactView(store, frozenset((*checker.needs, *checker.any_of, *checker.wants)))
    doubtful: dict[str, list[str]] = {}
    count = 0
    try:
        for said in islice(checker.check(view), MAX_FINDINGS + 1):
            count += 1
            if count > MAX_FINDINGS:
                raise RuntimeError(f"more than {MAX_FINDINGS} findings")
            _vet(checker, said)
            if said.slug not in tallies:
                continue
            if isinstance(said, CannotTell):
                doubtful.setdefault(said.slug, []).append(
                    said.reason if said.subject == "host" else f"{said.subject}: {said.reason}"
                )
            else:
                host = _whose(said.host, store.host, hosts)
                tallies[said.slug].findings.append(replace(said, host=host) if host != said.host else said)
    except (Exception, SystemExit) as error:  # one broken checker must not hide what the others see
        detail = f"{type(error).__name__}: {error}"
        if debug:
            from traceback import format_exc

            detail = format_exc()
        for tally in tallies.values():
            tally.broken.append(f"{checker.name or type(checker).__name__} broke: {detail}")
        return
    for slug, tally in tallies.items():
        if slug in doubtful:
            tally.unknown.extend(doubtful[slug])
        else:
            tally.judged = True


def _whose(said: str | None, own: str | None, hosts: Sequence[str | None]) -> str | None:
    """The host a finding is of: a job's log may speak of a host whose own facts are in another store, or in none."""
    usual = own if len(hosts) > 1 else None
    if said is None or not any(hosts):
        return usual
    if own is not None and short(own) == short(said):
        return usual
    return next((h for h in hosts if h is not None and short(h) == short(said)), said)


def _vet(checker: BaseChecker, said: object) -> None:
    if not isinstance(said, (Finding, CannotTell)):
        raise TypeError(f"yielded {type(said).__name__}, not a Finding or CannotTell")
    if said.slug not in {c.slug for c in checker.causes}:
        raise ValueError(f"said {said.slug}, which is not among its causes")
    if isinstance(said, Finding):
        if said.severity not in SEVERITIES:
            raise ValueError(f"unknown severity {said.severity!r}")
        if not said.evidence:
            raise ValueError(f"{said.slug} without evidence")


def _result(code: str, slug: str, tally: _Tally) -> CheckResult:
    # That a log might say more is worth a word only where nothing else could be asked.
    open_ = [r for r in tally.unknown if r not in tally.not_given]
    asked = bool(open_ or tally.judged or tally.findings)
    reasons = list(dict.fromkeys(tally.broken + (open_ if asked else tally.unknown)))
    shown = "; ".join(reasons[:4]) + (f"; and {len(reasons) - 4} more" if len(reasons) > 4 else "")
    if tally.findings:
        return CheckResult(code, slug, FOUND, shown or None, tuple(tally.findings))
    if tally.broken:
        return CheckResult(code, slug, BROKEN, shown)
    # A log that nobody gave leaves no doubt in what the host itself shows.
    if tally.judged and len(tally.unknown) == len(tally.not_given):
        return CheckResult(code, slug, OK)
    offered = tally.judged or not tally.unknown or len(tally.not_given) < len(tally.unknown)
    return CheckResult(code, slug, SKIPPED, shown or "nothing to judge", offered=offered)
