"""Every rule of a policy held against the facts of one host."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.parts import normalised
from gpudoctor.policy import readable, rules_host, rules_links, rules_measured
from gpudoctor.policy.allocation import Allocation
from gpudoctor.policy.model import GpuRules, PairRules, Policy
from gpudoctor.policy.node import Node, node
from gpudoctor.policy.outcome import BROKEN, Outcome


def judge(policy: Policy, store: FactStore, given: Allocation, measuring: bool = True) -> tuple[Outcome, ...]:
    """measuring False: [measured] was left out on purpose, and is not judged."""
    return tuple(_all(policy, store, given, measuring))


def _all(policy: Policy, store: FactStore, given: Allocation, measuring: bool) -> Iterator[Outcome]:
    yield from given.outcomes
    yield from readable.judge(policy.require_readable, store)
    gpus = store.get(Gpus)
    mine = [g for g in gpus.listed if given.has(g.index)] if gpus is not None else []
    whole = node(store, gpus) if gpus is not None else Node()
    if policy.gpus is not None:
        yield from _gpus(policy.gpus, store, gpus, mine, whole)
    yield from _pairs(policy, store, mine, whole)
    if policy.pcie is not None:
        yield from rules_links.pcie(policy.pcie, store, mine)
    if policy.nvlink is not None:
        yield from rules_links.nvlink(policy.nvlink, store, mine)
    if policy.numa is not None:
        yield from rules_host.numa(policy.numa, store, mine, whole)
    if policy.nics is not None:
        yield from rules_host.nics(policy.nics, store, mine)
    if policy.driver is not None:
        yield from rules_host.driver(policy.driver, store)
    if policy.environment is not None:
        yield from rules_host.environment(policy.environment, store)
    if policy.measured is not None and measuring:
        yield from rules_measured.judge(policy.measured, store, mine)


def _gpus(rules: GpuRules, store: FactStore, gpus: Gpus | None, mine: list[Gpu], whole: Node) -> Iterator[Outcome]:
    if gpus is None or not gpus.listed:
        reason = store.why_missing(Gpus) if gpus is None else "the driver lists no GPU"
        for rule, asked in (("gpus.count", rules.count), ("gpus.model", rules.model)):
            if asked is not None:
                yield Outcome(rule=rule).unread(reason, Gpus.hint)
        return
    if rules.count is not None:
        yield _count(rules.count, rules.severity, gpus, whole)
    for gpu in mine if rules.model is not None else ():
        yield _model(rules, gpu)


def _count(wanted: int, severity: str, gpus: Gpus, whole: Node) -> Outcome:
    """The node's GPUs: those the driver lists, and those it has and this container or cgroup is not given."""
    here, hidden = whole.here, whole.hidden
    ask = Outcome(rule="gpus.count", wants=str(wanted), severity=severity)
    if not gpus.complete and here < wanted:
        return ask.unread("the list of GPUs is not whole", Gpus.hint)
    first = gpus.listed[0]
    seen = f"{here}" + (f" and {hidden} hidden from here" if hidden else "")
    return ask.judged(here + hidden == wanted, seen, first.at("index" if first.index is not None else "bdf"))


def _model(rules: GpuRules, gpu: Gpu) -> Outcome:
    models = rules.model or ()
    ask = Outcome(
        rule="gpus.model", subject=gpu.subject, label=gpu.label, severity=rules.severity, wants=" or ".join(models)
    )
    if gpu.name is None:
        return ask.unread("its name was not read", Gpus.hint)
    have = normalised(gpu.name).split()
    return ask.judged(any(_within(normalised(model).split(), have) for model in models), gpu.name, gpu.at("name"))


def _within(words: list[str], have: list[str]) -> bool:
    """All words of the policy, one after the other: `a100 sxm4` fits `a100 sxm4 80gb`, and `h100` no `h100l`."""
    return bool(words) and any(have[at : at + len(words)] == words for at in range(len(have)))


def _pairs(policy: Policy, store: FactStore, mine: list[Gpu], whole: Node) -> Iterator[Outcome]:
    """[[pair]] names pairs by the indices of the node; a path is found by those of this process."""
    special = {pair: rules for rules in policy.pair for pair in rules.of or ()}
    if policy.pairs is None and not special:
        return
    known = store.get(Pairs)
    placed = sorted((g.index, whole.index(g)) for g in mine if g.index is not None)
    if not mine or len(placed) < len(mine):
        yield Outcome(rule="pairs").unread("the GPUs of the pairs are not known by index", Gpus.hint)
    for at, (low, of_low) in enumerate(placed):
        for high, of_high in placed[at + 1 :]:
            rules = special.get(f"{of_low}-{of_high}", policy.pairs)
            if rules is not None:
                yield from _pair(rules, known.of(low, high) if known is not None else None, (low, high), store)
    for name, rules in special.items():
        gone = next((end for end in map(int, name.split("-")) if whole.lacks(end)), None)
        if gone is not None:
            ask = Outcome(rule="pair.of", subject=f"pair:{name}", severity=rules.severity, wants=f"the pair {name}")
            yield ask.judged(False, f"no GPU{gone}")


def _pair(rules: PairRules, pair: Pair | None, ends: tuple[int, int], store: FactStore) -> Iterator[Outcome]:
    section = "pair" if rules.of is not None else "pairs"
    wanted = rules.path or ()
    ask = Outcome(
        rule=f"{section}.path",
        subject=f"pair:{ends[0]}-{ends[1]}",
        label=f"GPU{ends[0]} and GPU{ends[1]}",
        severity=rules.severity,
        wants=_path_words(wanted) if wanted else f"NV{rules.nvlinks}",
    )
    if pair is None or pair.path is None:
        yield ask.unread(store.why_missing(Pairs) if Pairs not in store else "no source gave its path", Pairs.hint)
        return
    if pair.pcie_only and pair.path not in wanted:
        yield ask.unread(f"{pair.path} is the PCIe path alone; this source does not show NVLink", Pairs.hint)
        return
    seen = f"NV{pair.nvlinks}" if pair.path == "NVL" and pair.nvlinks else pair.path
    if wanted:
        said = ask.judged(pair.path in wanted, seen, pair.at("path"))
        yield said
        if said.status == BROKEN:
            return  # its links are the same fault again
    if rules.nvlinks is not None:
        links = Outcome(
            rule=f"{section}.nvlinks",
            subject=ask.subject,
            label=ask.label,
            severity=rules.severity,
            wants=f"NV{rules.nvlinks}",
        )
        if pair.path == "NVL" and pair.nvlinks is None:
            yield links.unread("the number of its NVLinks was not read", Pairs.hint)
        else:
            fits = pair.path == "NVL" and (pair.nvlinks or 0) >= rules.nvlinks
            yield links.judged(fits, seen, pair.at("nvlinks"))


def _path_words(paths: tuple[str, ...]) -> str:
    """`NVL`; `PHB or nearer` of a span from the nearest on; else the list."""
    if len(paths) == 1:
        return paths[0]
    return f"{paths[-1]} or nearer" if paths[0] == "NVL" else " or ".join(paths)
