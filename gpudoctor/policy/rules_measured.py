"""The rules on what was measured. What was not measured, though it was asked for, could not be told."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.bandwidth import Bandwidth, HostCopies, HostCopy
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.store import FactStore
from gpudoctor.policy.model import MeasuredRules
from gpudoctor.policy.outcome import Outcome

_HINT = "gpudoctor bandwidth"


def judge(rules: MeasuredRules, store: FactStore, gpus: list[Gpu]) -> Iterator[Outcome]:
    if len(gpus) > 1 or rules.min_busbw_gbs is None:
        yield from _run(rules, store, len(gpus))
    if rules.host_copies:
        yield from _copies(rules, store, gpus)


def _run(rules: MeasuredRules, store: FactStore, gpus: int) -> Iterator[Outcome]:
    ranks = gpus if rules.gpus == "all" else int(rules.gpus)
    if ranks < 2:
        return  # nothing to measure between GPUs
    runs = [r for r in store.get(Bandwidth) or () if r.collective == rules.collective and (r.nranks or 0) == ranks]
    run = next((r for r in runs if r.completed and not r.failures), runs[0] if runs else None)
    level = run.plateau_busbw_gbs if run is not None else None
    label = f"{rules.collective} over {ranks} GPUs"
    if run is None or level is None:
        # A run that failed is a finding of its own; here it is only not known.
        reason = (
            "it was not measured"
            if run is None
            else "the run has no large sizes"
            if run.completed
            else "the run did not finish"
        )
        yield Outcome(rule="measured", label=label).unread(reason, _HINT)
        return
    if rules.min_busbw_gbs is not None:
        wants = f"{rules.min_busbw_gbs:g} GB/s"
        ask = Outcome(rule="measured.min_busbw", severity=rules.severity, label=label, wants=wants)
        yield ask.judged(level >= rules.min_busbw_gbs, f"{level:.4g} GB/s", run.at("rows"))
    if rules.max_latency_us is not None:
        wants = f"{rules.max_latency_us:g} us or less"
        ask = Outcome(rule="measured.max_latency", severity=rules.severity, label=label, wants=wants)
        if run.latency_us is None:
            yield ask.unread("no small size was measured", _HINT)
        else:
            yield ask.judged(run.latency_us <= rules.max_latency_us, f"{run.latency_us:.4g} us", run.at("rows"))


def _copies(rules: MeasuredRules, store: FactStore, gpus: list[Gpu]) -> Iterator[Outcome]:
    copies = tuple(store.get(HostCopies) or ())
    least = rules.min_host_copy_gbs
    for gpu in gpus[: rules.gpus if isinstance(rules.gpus, int) else None]:
        copy = next((c for c in copies if (c.bdf == gpu.bdf if c.bdf else c.gpu == gpu.index)), None)
        rates = _rates(copy)
        ask = Outcome(
            rule="measured.host_copies" if least is None else "measured.min_host_copy",
            subject=gpu.subject,
            label=gpu.label,
            severity=rules.severity,
            wants="a measurement" if least is None else f"{least:g} GB/s",
        )
        if copy is None or len(rates) < 2:
            yield ask.unread("copies between it and the host were not measured", _HINT)
        else:
            rate, way, field = min(rates)
            yield ask.judged(rate >= (least or 0.0), f"{rate:.3g} GB/s {way}", copy.at(field))


def _rates(copy: HostCopy | None) -> list[tuple[float, str, str]]:
    if copy is None:
        return []
    ways = (
        (copy.to_device_gbs, "to the GPU", "to_device_gbs"),
        (copy.from_device_gbs, "from the GPU", "from_device_gbs"),
    )
    return [(rate, way, field) for rate, way, field in ways if rate is not None]
