"""The rules on what stands around the GPUs: NUMA nodes, NICs, the driver, the environment."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.gpu import Driver, Gpu
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Numa, Setting, Settings
from gpudoctor.facts.topology import PATHS, Nic, Nics
from gpudoctor.model import Evidence
from gpudoctor.nccl_defaults import strtol
from gpudoctor.policy.model import DriverRules, EnvironmentRules, NicRules, NumaRules
from gpudoctor.policy.node import Node
from gpudoctor.policy.outcome import Outcome


def numa(rules: NumaRules, store: FactStore, gpus: list[Gpu], whole: Node) -> Iterator[Outcome]:
    """`of_gpus` goes by the indices of the node, which are not those of a container that sees some of its GPUs."""
    if not gpus:
        yield Outcome(rule="numa").unread("no GPU is listed", Numa.hint)
    wanted = dict(enumerate(rules.of_gpus or ()))
    for gpu in gpus:
        index = whole.index(gpu)
        node = wanted.get(index) if index is not None else None
        if node is None and rules.of_gpus:
            ask = Outcome(rule="numa.of_gpus", subject=gpu.subject, label=gpu.label, wants="a node for each GPU")
            yield ask.unread("the policy names no node for it" if index is not None else "its index was not read")
        if node is None and not rules.known:
            continue
        ask = Outcome(
            rule="numa.of_gpus" if node is not None else "numa.known",
            subject=gpu.subject,
            label=gpu.label,
            severity=rules.severity,
            wants=f"node {node}" if node is not None else "a known node",
        )
        said = _says_none(gpu, store)
        if gpu.numa_node is not None:
            yield ask.judged(node in (None, gpu.numa_node), f"node {gpu.numa_node}", gpu.at("numa_node"))
        elif said is not None:
            yield ask.judged(False, "no node (-1)", said)
        else:
            yield ask.unread("its NUMA node was not read", "nvidia-smi topo -m")
    for index in wanted:
        if whole.lacks(index):
            ask = Outcome(rule="numa.of_gpus", subject=f"gpu:{index}", severity=rules.severity, wants=f"GPU{index}")
            yield ask.judged(False, "not in the driver's list")


def _says_none(gpu: Gpu, store: FactStore) -> Evidence | None:
    """The firmware places the GPU nowhere: that was read, and is not the same as not read."""
    tree = store.get(PciTree)
    device = tree.by_bdf(gpu.bdf) if tree is not None else None
    return device.at("numa_reported") if device is not None and device.numa_reported == -1 else None


def nics(rules: NicRules, store: FactStore, gpus: list[Gpu]) -> Iterator[Outcome]:
    known = store.get(Nics)
    if known is None:
        yield Outcome(rule="nics").unread(store.why_missing(Nics), Nics.hint)
        return
    chosen = [n for n in known if rules.devices is None or _name(n) in rules.devices]
    for device in rules.devices or ():
        there = any(_name(n) == device for n in chosen)
        ask = Outcome(rule="nics.devices", subject=f"nic:{device}", severity=rules.severity, wants=device)
        yield ask.judged(there, device if there else "not there")
    if rules.count is not None:
        yield _count(rules, chosen)
    else:
        yield from _any(rules, chosen)
    for nic in chosen:
        if rules.state is not None and (rules.count is None or rules.devices is not None):
            yield _state(rules, nic)
        if rules.rate_gbps is not None and (nic.state in ("active", None) or rules.devices is not None):
            yield _rate(rules, nic)
    if rules.nearest is not None:
        names = {n.name for n in chosen} | {_name(n) for n in chosen}
        for gpu in gpus:
            yield _nearest(rules.nearest, rules.severity, gpu, known, names)


def _any(rules: NicRules, chosen: list[Nic]) -> Iterator[Outcome]:
    """What every port must be is met by no port at all, and yet not what was meant."""
    if rules.devices is not None or rules.state is None and rules.rate_gbps is None:
        return
    if not chosen:
        rule = "nics.state" if rules.state is not None else "nics.rate"
        yield Outcome(rule=rule, severity=rules.severity, wants="an adapter").judged(False, "none")
    elif rules.state is None and all(n.state not in ("active", None) for n in chosen):
        ask = Outcome(rule="nics.rate", severity=rules.severity, wants=f"{rules.rate_gbps:g} Gb/s")
        yield ask.judged(False, "no active port", *[n.at("state") for n in chosen[:8]])


def _name(nic: Nic) -> str:
    return nic.device or nic.name


def _count(rules: NicRules, chosen: list[Nic]) -> Outcome:
    wanted, state = rules.count or 0, rules.state or "active"
    fitting = sum(n.state == state for n in chosen)
    ask = Outcome(rule="nics.count", severity=rules.severity, wants=f"{wanted} {state}")
    if fitting < wanted and any(n.state is None for n in chosen):
        return ask.unread("the states of the ports were not read", "ibstat")
    rest = [n.at("state") for n in chosen if n.state != state]
    return ask.judged(fitting >= wanted, f"{fitting} of {len(chosen)} {state}", *rest[:8])


def _state(rules: NicRules, nic: Nic) -> Outcome:
    ask = Outcome(rule="nics.state", subject=nic.subject, severity=rules.severity, wants=str(rules.state))
    if nic.state is None:
        return ask.unread("the state of its port was not read", "ibstat")
    return ask.judged(nic.state == rules.state, nic.state, nic.at("state"))


def _rate(rules: NicRules, nic: Nic) -> Outcome:
    wanted = rules.rate_gbps or 0.0
    ask = Outcome(rule="nics.rate", subject=nic.subject, severity=rules.severity, wants=f"{wanted:g} Gb/s")
    if nic.rate_gbps is None:
        return ask.unread("the rate of its port was not read", "ibstat")
    return ask.judged(nic.rate_gbps >= wanted, f"{nic.rate_gbps:g} Gb/s", nic.at("rate_gbps"))


def _nearest(wanted: str, severity: str, gpu: Gpu, known: Nics, names: set[str]) -> Outcome:
    ask = Outcome(
        rule="nics.nearest",
        subject=gpu.subject,
        label=gpu.label,
        severity=severity,
        wants=f"a NIC at {wanted} or nearer",
    )
    paths = [p for p in known.paths if p.gpu == gpu.index and p.nic in names and p.path in PATHS]
    if not paths:
        if not known.nics:
            return ask.judged(False, "none")
        return ask.unread("the paths between GPUs and NICs were not read", "nvidia-smi topo -m")
    best = min(paths, key=lambda p: PATHS.index(p.path))
    fits = PATHS.index(best.path) <= PATHS.index(wanted)
    return ask.judged(fits, f"{best.nic} at {best.path}", best.at("path"))


def driver(rules: DriverRules, store: FactStore) -> Iterator[Outcome]:
    found = store.get(Driver)
    for rule, limit, field in (
        ("driver.min", rules.min, "version"),
        ("driver.max", rules.max, "version"),
        ("driver.cuda_min", rules.cuda_min, "cuda_version"),
    ):
        if limit is None:
            continue
        have: str | None = getattr(found.entry, field) if found is not None else None
        upper = rule == "driver.max"
        ask = Outcome(rule=rule, severity=rules.severity, wants=f"{limit} or {'older' if upper else 'newer'}")
        numbers, asked = _numbers(have), _numbers(limit)
        if have is None or found is None or not numbers:
            yield ask.unread("the version was not read", Driver.hint)
            continue
        # The newest version counts in as many numbers as it is given: 580 takes 580.65.06.
        # For the oldest 12.4.0 is 12.4.
        fits = numbers[: len(asked)] <= asked if upper else _padded(numbers, asked) >= asked
        yield ask.judged(fits, have, found.entry.at(field))


def _numbers(version: str | None) -> tuple[int, ...]:
    parts = (version or "").split(".")
    return tuple(int(p) for p in parts) if all(p.isdigit() for p in parts) else ()


def _padded(numbers: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    return numbers + (0,) * (len(like) - len(numbers))


def environment(rules: EnvironmentRules, store: FactStore) -> Iterator[Outcome]:
    found = store.get(Settings)
    if found is None:
        yield Outcome(rule="environment.forbid").unread(store.why_missing(Settings), Settings.hint)
        return
    for words in rules.forbid or ():
        ask = Outcome(rule="environment.forbid", severity=rules.severity, wants=f"no {words}")
        name, equals, value = words.partition("=")
        obeyed = found.get(name)  # of several places the one NCCL obeys
        hit = obeyed is not None and (not equals or _same(obeyed.value, value))
        yield (
            ask.judged(False, _said(obeyed), obeyed.at("value"))
            if hit and obeyed is not None
            else ask.judged(True, "not set")
        )


def _same(held: str, forbidden: str) -> bool:
    """NCCL reads ` 1`, `01` and `0x1` as 1."""
    held, forbidden = held.strip(), forbidden.strip()
    numbers = held[:1].isdigit() and forbidden[:1].isdigit()
    return held.lower() == forbidden.lower() or numbers and strtol(held) == strtol(forbidden)


def _said(setting: Setting) -> str:
    return f"{setting.name}={setting.value} ({setting.scope})"
