"""From a live measurement to a report: join it with the facts of the host, judge, vary on a miss, judge again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gpudoctor.bandwidth.options import NotStarted, Options
from gpudoctor.bandwidth.results import own_json, put_facts, put_trials
from gpudoctor.bandwidth.sentence import sentence
from gpudoctor.bandwidth.session import Session
from gpudoctor.bandwidth.work import Progress
from gpudoctor.discover import Plugins
from gpudoctor.expect.opinion import Verdict
from gpudoctor.facts.bandwidth import Wanted
from gpudoctor.facts.store import FactStore
from gpudoctor.ingest import Intake, take
from gpudoctor.judge import judge
from gpudoctor.model import BROKEN, NO_GPU, NOTE, Missing, Report, severity_rank
from gpudoctor.record import KeyedRecord, replace

if TYPE_CHECKING:
    from gpudoctor.collect.capture import Snapshot

# What a bandwidth run itself says. Other checks are asked only where one of these finds something: to say why.
OWN = ("busbw-low", "pair-slow", "host-copy-slow", "wrong-results", "bandwidth-failed", "gpu-not-visible")
_LOOK_S = 60.0
_WITHOUT_GPU = (
    "none is on this host's bus and no NVIDIA driver is installed. Run it where the GPUs are, judge what was measured there with "
    "--from FILE, or try it on CPUs: --backend gloo --gpus 2"
)
# (with its GPU processes, seconds at most) -> the host, and whether the time cut the look short.
LookAtHost = Callable[[bool, float], tuple["Snapshot", bool]]


class Done(KeyedRecord):
    """A judged measurement."""

    report: Report
    extra: dict[str, Any]
    sentence: str
    baseline: dict[str, Any] | None = None  # to be saved, if it is asked for


def measure(
    options: Options,
    wanted: Wanted,
    plugins: Plugins,
    environ: Mapping[str, str],
    folder: str,
    until: float,
    progress: Progress,
    look: LookAtHost,
    fail_on: str = "error",
) -> Done:
    """Everything between the options and the report. Raises plan.Unusable for words that make no plan."""
    began = time.monotonic()
    session = Session(options, environ, folder, until, progress)
    snapshots: list[Any] = []
    try:
        try:
            # Said only after the look: on a host without a GPU no program would help.
            no_program = session.choose()
            progress("looking at the host", 0.0)
            intake = _looked(options, snapshots, until, look)
            session.aim(
                intake.stores[0]
                if options.backend == "nccl" and intake.stores
                else None
                if options.backend == "gloo"
                else FactStore(None, ())
            )
            if no_program is not None:
                raise no_program
            session.run(intake.stores[0] if intake.stores else None)
        except NotStarted as stop:
            return _not_started(session, stop, snapshots, plugins, fail_on, time.monotonic() - began)
        return _judged(session, snapshots, wanted, plugins, fail_on, began)
    finally:
        session.close()


def _looked(options: Options, snapshots: list[Any], until: float, look: LookAtHost) -> Intake:
    """The host's facts; for gloo only its name, since no GPU takes part."""
    if options.backend == "gloo":
        return Intake(stores=(), missing=(), unknown=(), recognised=0)
    snapshot, _ = look(True, max(1.0, min(_LOOK_S, until - time.monotonic())))
    snapshots.append(snapshot)
    return take(snapshots)


def _facts(session: Session, snapshots: list[Any], wanted: Wanted) -> tuple[Intake, FactStore]:
    """The host's facts with NCCL's own log and what was measured."""
    from gpudoctor.read.source import Document

    run = session.measured.run
    sources = []
    if session.measured.log and snapshots:
        log = session.measured.log
        # Under the run's own name: what NCCL said belongs to it.
        name = run.at("rows").source if run is not None else "NCCL's log of the run"
        sources.append(Document(name=name, chunks=lambda: iter((log,))))
    intake = take(snapshots, sources)
    stores = list(intake.stores)
    host = snapshots[0].host if snapshots else None
    mine = next((s for s in stores if s.host == host), None)
    if mine is None:
        mine = FactStore(host, ())
        stores.append(mine)
    put_facts(session, mine, wanted)
    return replace(
        intake, stores=(mine, *(s for s in stores if s is not mine)), recognised=intake.recognised + 1, unknown=()
    ), mine


def _judged(
    session: Session, snapshots: list[Any], wanted: Wanted, plugins: Plugins, fail_on: str, began: float
) -> Done:
    intake, store = _facts(session, snapshots, wanted)
    source: dict[str, object] = {"kind": "live", "paths": []}
    captured = next((s.captured_at for s in snapshots if s.captured_at), None)
    if captured:
        source["captured_at"] = captured
    notes = tuple(
        f"the host's facts were answered from {s.replayed_from}, not from this host" for s in snapshots if s.replayed_from
    )

    def report_of(select: tuple[str, ...]) -> Report:
        known = {c.slug for c in plugins.causes}
        return judge(
            intake,
            plugins,
            source,
            select=[s for s in select if s in known],
            fail_on=fail_on,
            seconds=time.monotonic() - began,
            notes=notes,
        )

    report = report_of(OWN)
    if any(f.severity != NOTE for r in report.results for f in r.findings):
        low = any(r.findings for r in report.results if r.slug in ("busbw-low", "pair-slow"))
        if low and session.options.bisect:
            session.bisect(intake.stores[0] if session.options.backend == "nccl" else None)
        elif session.options.bisect and any(
            r.findings for r in report.results if r.slug in ("bandwidth-failed", "wrong-results")
        ):
            session.after_failure()
        put_trials(session, store)
        report = report_of(())
    verdict = _verdict(session, store, wanted)
    report = _concluded(report, _open(session, verdict), fail_on, bool(snapshots))
    said = sentence(session, report, verdict)
    return Done(
        report=report,
        extra={
            **own_json(session),
            "ratio": verdict.ratio if verdict is not None else None,
            "warn_below": verdict.warn_below if verdict is not None else None,
            "fail_below": verdict.fail_below if verdict is not None else None,
            "expected": _opinions(verdict),
            "sentence": said,
        },
        sentence=said,
        baseline=_baseline(session, store),
    )


def _verdict(session: Session, store: FactStore, wanted: Wanted) -> Verdict | None:
    """All opinions on the run; None where no collective ran."""
    if session.measured.run is None:
        return None
    from gpudoctor.expect.opinions import assess
    from gpudoctor.expect.seats import around_of

    return assess(session.measured.run, around_of(store), wanted)[1]


def _opinions(verdict: Verdict | None) -> list[dict[str, Any]]:
    """For the JSON: what each source expects, how much of it was reached, and which one decided."""
    if verdict is None:
        return []
    return [
        {
            "kind": o.kind,
            "gbs": o.gbs,
            "share": verdict.measured_gbs / o.gbs if verdict.measured_gbs and o.gbs else None,
            "words": o.words,
            "source": o.source,
            "used": verdict.used is not None and o.kind == verdict.used.kind,
            "why_not": o.why_not,
        }
        for o in verdict.opinions
    ]


def _open(session: Session, verdict: Verdict | None) -> Missing | None:
    """What keeps the run from being judged; a run that failed is a finding of its own."""
    run = session.measured.run
    if run is None or run.failures or verdict is None or verdict.used is not None:
        return None
    reason = verdict.why_not or "nothing to compare with"
    return Missing("what the links should give", reason, "gpudoctor bandwidth --min-busbw GB/s", True)


def _concluded(report: Report, open_: Missing | None, fail_on: str, looked: bool) -> Report:
    """The verdict of a measurement: what a `check` needs and did not get does not keep it from being judged."""
    findings = [f for r in report.results for f in r.findings]
    bad = any(severity_rank(f.severity) <= severity_rank(fail_on) for f in findings)
    broken = [
        m
        for m in report.missing
        if m.needed and any(m.fact == f"the check {r.slug}" for r in report.results if r.status == BROKEN)
    ]
    needed = [*broken, *([open_] if open_ is not None else [])]
    verdict = "fail" if bad else "unknown" if needed else "pass"
    # What a look at the host did not find matters only where something is to be explained.
    rest = tuple(m for m in report.missing if m not in needed) if looked and findings else ()
    return replace(
        report,
        missing=(*needed, *(replace(m, needed=False) for m in rest)),
        verdict=verdict,
        exit_code={"fail": 1, "unknown": 3, "pass": 0}[verdict],
    )


def _not_started(
    session: Session, stop: NotStarted, snapshots: list[Any], plugins: Plugins, fail_on: str, seconds: float
) -> Done:
    """Nothing was measured: the report says why, and what would help. A fault of the host that explains it is a fault."""
    intake = take(snapshots) if snapshots else Intake(stores=(), missing=(), unknown=(), recognised=0)
    missing = (Missing(stop.fact, stop.reason, stop.hint, True),)
    report = Report(
        source={"kind": "live", "paths": []},
        hosts=intake.stores,
        results=(),
        diagnoses=(),
        missing=missing,
        verdict="unknown",
        exit_code=3,
        seconds=seconds,
    )
    said = f"Nothing was measured. {stop.reason[:1].upper()}{stop.reason[1:].rstrip('.')}."
    if stop.of_host and snapshots:
        looked = judge(intake, plugins, report.source, fail_on=fail_on, seconds=seconds)
        if looked.verdict == "fail":
            report = replace(looked, missing=(*missing, *looked.missing))
            said = f"{said.rstrip('.')}. On this host: {looked.diagnoses[0].finding.message}"
        elif any(m.fact == NO_GPU for m in looked.missing):
            report = replace(report, missing=(Missing(NO_GPU, _WITHOUT_GPU, None, True),))
            said = f"Nothing was measured: no NVIDIA GPU here, {_WITHOUT_GPU}."
    return Done(report=report, extra={**own_json(session), "ratio": None, "sentence": said}, sentence=said)


def _baseline(session: Session, store: FactStore) -> dict[str, Any] | None:
    run = session.measured.run
    if run is None or run.failures or run.wrong or not run.completed or run.plateau_busbw_gbs is None:
        return None
    from gpudoctor.collect.collector import now
    from gpudoctor.expect.group import group_of
    from gpudoctor.expect.reference import to_json
    from gpudoctor.expect.seats import around_of

    return to_json(run, group_of(run, around_of(store)).devices, now())
