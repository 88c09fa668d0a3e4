"""Facts to a report: run the checkers, join their findings, and say pass, fail or unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gpudoctor.correlate.diagnose import diagnose
from gpudoctor.discover import Plugins
from gpudoctor.engine import run
from gpudoctor.facts.base import Fact
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.hang import FlightRecorder, Watchdog
from gpudoctor.facts.kernel import MemoryKills
from gpudoctor.facts.launch import StartFailures
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.outcomes import Outcomes, ToolTests
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Platform
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.ingest import Intake
from gpudoctor.model import (
    BROKEN,
    NO_GPU,
    NOTHING_KNOWN,
    SKIPPED,
    UNBUILT,
    CheckResult,
    Finding,
    Missing,
    Report,
    severity_rank,
)
from gpudoctor.parts import find

HUNG = ("timeout", "stuck")


def judge(
    intake: Intake,
    plugins: Plugins | None,
    source: Mapping[str, object],
    select: Sequence[str] = (),
    ignore: Iterable[str] = (),
    fail_on: str = "error",
    timed_out: bool = False,
    seconds: float = 0.0,
    notes: tuple[str, ...] = (),
    debug: bool = False,
    unanswered: tuple[Missing, ...] = (),
    adjust: Callable[[tuple[CheckResult, ...]], tuple[CheckResult, ...]] | None = None,
) -> Report:
    """The whole judgement. Pure: everything it needs is in its arguments. plugins None: facts only, nothing is judged.

    adjust: what somebody's policy makes of the results before they are joined and counted.
    """
    unchecked = plugins is not None and not plugins.checkers
    plugins = plugins or Plugins(checkers=(), causes=(), failures=())
    results = run(plugins, intake.stores, select, ignore, debug)
    results = adjust(results) if adjust is not None else results
    if any(platform.entry.wsl for store in intake.stores if (platform := store.get(Platform)) is not None):
        from gpudoctor.correlate.wsl import fit_to_wsl

        results = fit_to_wsl(results, intake.stores)
    findings = [f for r in results for f in r.findings]
    jobs_of = None
    if _any_of(intake.stores, Nccl):
        from gpudoctor.correlate.jobs import of_findings

        jobs_of = of_findings(intake.stores)
    diagnoses = diagnose(findings, _gpus_of(intake.stores, findings), jobs_of=jobs_of)
    unsettled = [*unanswered, *_unsettled(intake, results, timed_out, judged=bool(plugins.checkers))]
    beside: tuple[Missing, ...] = ()
    asked_for: list[Missing] = []
    if plugins.checkers and _any_of(intake.stores, ToolTests):
        from gpudoctor.correlate.tools import unexplained

        beside = tuple(unexplained(intake.stores, findings))
        # Where only some checks are asked for, another may well explain it.
        unsettled.extend(m for m in beside if m.needed and not select and not ignore)
    if plugins.checkers and not select and not ignore and _any_of(intake.stores, Watchdog, Nccl, FlightRecorder, StartFailures, MemoryKills):
        from gpudoctor.correlate.ends import unexplained as ended

        told = tuple(ended(intake.stores, findings))
        unsettled.extend(m for m in told if m.needed)
        beside += tuple(m for m in told if not m.needed)
    if plugins.checkers and _any_of(intake.stores, Watchdog, Nccl, FlightRecorder):
        from gpudoctor.correlate.asks import asked

        asked_for.extend(asked(intake.stores, findings, any(m.fact == UNBUILT for m in (*unsettled, *beside))))
    if unchecked:
        unsettled.append(
            Missing("every check", "no checker is installed: gpudoctor finds them as entry points", "pip install gpudoctor", True)
        )
    if select and results and all(r.status == SKIPPED for r in results):
        # Whoever asks for one check wants its answer: that it could not be made is no pass.
        unsettled.append(Missing("every selected check", results[0].reason or "not judged", needed=True))
    bad = any(severity_rank(f.severity) <= severity_rank(fail_on) for f in findings)
    verdict = "fail" if bad else "unknown" if unsettled else "pass"
    return Report(
        source=source,
        hosts=intake.stores,
        results=results,
        diagnoses=diagnoses,
        missing=tuple(dict.fromkeys((*unsettled, *beside, *intake.missing, *asked_for, *_absent(intake.stores, plugins)))),
        verdict=verdict,
        exit_code={"fail": 1, "unknown": 3, "pass": 0}[verdict],
        seconds=seconds,
        notes=notes,
        unknown_input=intake.unknown,
        fail_on=fail_on,
    )


def _any_of(stores: Iterable[FactStore], *kinds: type[Fact]) -> bool:
    return any(kind in store for store in stores for kind in kinds)


def _unsettled(intake: Intake, results: Iterable[CheckResult], timed_out: bool, judged: bool) -> list[Missing]:
    """Why no verdict of health can be given, whatever the checkers found."""
    out: list[Missing] = list(intake.unread) if judged else []
    if timed_out and not (out and all(s.recorded for s in intake.stores)):  # else it is said where the reading ended
        out.append(Missing("the whole look", "ran past --timeout; judged is what was collected until then", needed=True))
    if not intake.stores or not intake.recognised and all(s.recorded for s in intake.stores):
        out.append(
            Missing(NOTHING_KNOWN, "nothing in the input is an output that gpudoctor knows", needed=True)
        )
    for store in intake.stores:
        if not store.recorded:
            out.extend(_unread(store))
    out.extend(
        Missing(f"the check {r.slug}", r.reason or "it broke", needed=True) for r in results if r.status == BROKEN
    )
    return out


def _unread(store: FactStore) -> list[Missing]:
    """A live look needs the list of GPUs, the path of every pair, and every GPU's PCIe link."""
    out: list[Missing] = []
    outcomes = store.get(Outcomes)
    for outcome in outcomes or ():
        if outcome.probe.startswith("smi-") and outcome.status in HUNG:
            out.append(Missing(outcome.at("status").source, outcome.at("status").value, needed=True))
    gpus = store.get(Gpus)
    if gpus is None and _without_gpus(store):
        where = "run gpudoctor where the GPUs are, or give it their outputs (check --from FILE)"
        return [Missing(NO_GPU, f"none is on this host's bus and no NVIDIA driver is installed: {where}", needed=True)]
    if gpus is None:
        return [*out, Missing(Gpus.label, _why(store, Gpus), Gpus.hint, True)]
    if not gpus.gpus:
        return [*out, Missing(Gpus.label, "the driver lists no GPU here", Gpus.hint, True)]
    pairs = store.get(Pairs)
    indices = sorted(g.index for g in gpus if g.index is not None)
    if len(gpus) > 1:
        if pairs is None or len(indices) < len(gpus):
            out.append(Missing(Pairs.label, _why(store, Pairs), Pairs.hint, True))
        else:
            for low in indices:
                for high in indices:
                    pair = pairs.of(low, high) if low < high else None
                    if low < high and (pair is None or pair.path is None):
                        out.append(Missing(f"the path of pair {low}-{high}", "no source gave it", Pairs.hint, True))
    for gpu in gpus:
        if not gpu.c2c and (gpu.width is None or gpu.speed_gts is None):
            out.append(
                Missing(f"the PCIe link of {gpu.label}", "neither driver nor sysfs gave it", "nvidia-smi -q -x", True)
            )
    return out


def _absent(stores: Iterable[FactStore], plugins: Plugins) -> list[Missing]:
    """Facts that a checker wanted and did not get, each once."""
    out: list[Missing] = []
    for store in stores:
        kinds = dict.fromkeys(k for c in plugins.checkers for k in (*c.needs, *c.any_of))
        if _without_nvlink(store):
            kinds.pop(NvLinks, None)
        for kind in kinds:
            # Without a hint it is nothing a reader could provide; what is there on request only is not missing.
            if kind not in store and kind.hint is not None and not kind.on_request:
                out.append(Missing(kind.label, _why(store, kind), kind.hint))
    return out


def _without_gpus(store: FactStore) -> bool:
    """A host without NVIDIA's driver and without a GPU on its bus, as far as that could be read."""
    outcomes, tree = store.get(Outcomes), store.get(PciTree)
    smi = outcomes.of("smi-q-x") if outcomes is not None else None
    return smi is not None and smi.status == "absent" and tree is not None and not tree.gpus()


def _without_nvlink(store: FactStore) -> bool:
    """No GPU of this host can have NVLink, by its make: its links are not missing, and asking for them would help nobody."""
    parts = [find(g.device_id, g.name) for g in store.get(Gpus) or ()]
    return bool(parts) and all(part is not None and not part.nvlink for part in parts)


def _why(store: FactStore, kind: type[Fact]) -> str:
    return store.missing.get(kind, "not in the input" if store.recorded else "no source could be read")


def _gpus_of(
    stores: Iterable[FactStore], findings: Iterable[Finding]
) -> dict[tuple[str | None, str], frozenset[str]]:
    """Every GPU a subject concerns, under all names it has, so that `pair:0-1` and `gpu:0000:41:00.0` meet."""
    several = len(list(stores)) > 1
    names: dict[str | None, dict[str, frozenset[str]]] = {}
    for store in stores:
        table = names.setdefault(store.host if several else None, {})
        for gpu in store.get(Gpus) or ():
            known = frozenset(f"gpu:{n}" for n in (gpu.index, gpu.bdf) if n is not None)
            table.update(dict.fromkeys(known, known))
    out: dict[tuple[str | None, str], frozenset[str]] = {}
    for finding in findings:
        table = names.get(finding.host, {})
        kind, _, rest = finding.subject.partition(":")
        if kind == "pair":
            keys = [f"gpu:{n}" for n in rest.split("-")]
        elif kind == "nvlink":
            keys = [f"gpu:{rest.split('/')[0]}"]
        else:
            keys = [finding.subject]
        out[finding.host, finding.subject] = frozenset().union(*(table.get(k, frozenset((k,))) for k in keys))
    return out


