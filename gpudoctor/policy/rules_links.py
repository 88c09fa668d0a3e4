"""The rules on links: PCIe of every GPU, and its NVLinks."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor import pcie as arithmetic
from gpudoctor.facts.bandwidth import HostCopies
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import NvLinks
from gpudoctor.model import Evidence
from gpudoctor.policy.model import NvLinkRules, PcieRules
from gpudoctor.policy.outcome import Outcome

_READ_LINK = "nvidia-smi -q -x"


def pcie(rules: PcieRules, store: FactStore, gpus: list[Gpu]) -> Iterator[Outcome]:
    if not gpus:
        yield Outcome(rule="pcie").unread("no GPU is listed", _READ_LINK)
    for gpu in gpus:
        if rules.width is not None:
            yield _least("pcie.width", gpu, rules.severity, rules.width, gpu.width, "x{}", gpu.at("width"))
        if rules.capable_generation is not None:
            speed, evidence = _capable(gpu, store)
            most = arithmetic.generation(speed)
            rule = "pcie.capable_generation"
            yield _least(rule, gpu, rules.severity, rules.capable_generation, most, "Gen{}", evidence)
        if rules.generation is not None:
            yield _generation(rules.generation, rules.severity, gpu, store)


def _least(rule: str, gpu: Gpu, severity: str, wanted: int, seen: int | None, form: str, evidence: Evidence) -> Outcome:
    wants = form.format(wanted)
    ask = Outcome(rule=rule, subject=gpu.subject, label=gpu.label, severity=severity, wants=wants)
    if seen is None:
        return ask.unread("its link was not read", _READ_LINK)
    return ask.judged(seen >= wanted, form.format(seen), evidence)


def _capable(gpu: Gpu, store: FactStore) -> tuple[float | None, Evidence]:
    """What both ends allow: the driver's maximum, and the port's where the bus shows it."""
    found = [(gpu.max_speed_gts, gpu.at("max_speed_gts"))]
    tree = store.get(PciTree)
    for port in tree.ancestors(gpu.bdf)[:1] if tree is not None else ():
        if not port.virtual:
            found.append((port.max_speed_gts, port.at("max_speed_gts")))
    known = [(speed, evidence) for speed, evidence in found if speed is not None]
    return min(known, key=lambda k: k[0]) if known else (None, gpu.at("max_speed_gts"))


def _generation(wanted: int, severity: str, gpu: Gpu, store: FactStore) -> Outcome:
    """Only a reading under proven traffic passes: an idle link may show any generation and prove none."""
    ask = Outcome(
        rule="pcie.generation",
        subject=gpu.subject,
        label=gpu.label,
        severity=severity,
        wants=f"Gen{wanted} under load",
    )
    busy = [(s.speed_gts, gpu.at("samples")) for s in gpu.samples or () if s.busy and s.speed_gts is not None]
    for copy in store.get(HostCopies) or ():
        same = copy.bdf == gpu.bdf if copy.bdf is not None else copy.gpu == gpu.index
        if same and copy.speed_gts is not None:
            busy.append((copy.speed_gts, copy.at("speed_gts")))
    if busy:
        speed, evidence = max(busy, key=lambda b: b[0])
        return ask.judged(
            (arithmetic.generation(speed) or 0) >= wanted, f"{arithmetic.name(speed)} under load", evidence
        )
    best, evidence = _capable(gpu, store)
    most = arithmetic.generation(best)
    if most is not None and most < wanted:
        return ask.judged(False, f"Gen{most} at most", evidence)  # what card and slot do not allow, no load brings
    if gpu.speed_gts is None:
        return ask.unread("its link was not read", _READ_LINK)
    now = arithmetic.name(gpu.speed_gts)
    return ask.unread(
        f"{now} was read without proof of traffic, and an idle link proves nothing; a measurement with host copies does",
        "gpudoctor gate --bandwidth",
    )


def nvlink(rules: NvLinkRules, store: FactStore, gpus: list[Gpu]) -> Iterator[Outcome]:
    known = store.get(NvLinks)
    if known is None or not gpus:
        reason = store.why_missing(NvLinks) if known is None else "no GPU is listed"
        yield Outcome(rule="nvlink").unread(reason, NvLinks.hint)
        return
    for gpu in gpus:
        if rules.links is not None:
            yield _links(rules.links, rules.severity, gpu, known)
        if rules.speed_gbs is not None:
            yield _speed(rules.speed_gbs, rules.severity, gpu, known)


def _links(wanted: int, severity: str, gpu: Gpu, known: NvLinks) -> Outcome:
    links = known.of(gpu.index) if gpu.index is not None else ()
    about = known.about(gpu.index) if gpu.index is not None else None
    ask = Outcome(
        rule="nvlink.links", subject=gpu.subject, label=gpu.label, severity=severity, wants=f"{wanted} active NVLinks"
    )
    active = sum(bool(link.active) for link in links)
    if links:
        evidence: tuple[Evidence, ...] = tuple(link.at("active") for link in links if not link.active)[:8]
        evidence = evidence or (links[0].at("active"),)
    else:
        evidence = (about.at("no_nvlink"),) if about is not None else ()
    none = about is not None and bool(about.no_nvlink or about.all_inactive)
    whole = not (about is not None and about.elided) and all(link.active is not None for link in links)
    if active < wanted and not (whole and (links or none)):
        return ask.unread("the state of its NVLinks was not read", NvLinks.hint)
    return ask.judged(active >= wanted, f"{active} of {len(links)} active", *evidence)


def _speed(wanted: float, severity: str, gpu: Gpu, known: NvLinks) -> Outcome:
    active = [link for link in (known.of(gpu.index) if gpu.index is not None else ()) if link.active]
    ask = Outcome(
        rule="nvlink.speed", subject=gpu.subject, label=gpu.label, severity=severity, wants=f"{wanted:g} GB/s a link"
    )
    rates = [(link.speed_gbs, link.at("speed_gbs")) for link in active if link.speed_gbs is not None]
    if not rates or len(rates) < len(active):
        return ask.unread("the rates of its NVLinks were not read", NvLinks.hint)
    slowest, evidence = min(rates, key=lambda r: r[0])
    return ask.judged(slowest >= wanted, f"{slowest:g} GB/s", evidence)
