"""A policy from a node that is known to be good: what it is today is what its kind must be."""

from __future__ import annotations

from gpudoctor import pcie
from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.gpu import Driver, Gpu, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Settings
from gpudoctor.facts.topology import PATHS, Nics, NvLinks, Pair, Pairs
from gpudoctor.policy.node import Node, node
from gpudoctor.read.text import clean

SHARE = 0.85  # of what was measured: the share under which busbw-low warns
# Settings that switch off what a GPU pair lives on; a site that needs one of them accepts it by name.
_FORBIDDEN = ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")


def learn(store: FactStore, when: str) -> str:
    """TOML that this node meets. What could not be read is left out."""
    known = store.get(Gpus)
    gpus = [g for g in known or () if g.index is not None]
    whole = node(store, known) if known is not None else Node()
    blocks = [
        [
            f"# Learned from {_plain(store.host or 'a node')} on {when} by gpudoctor gate --learn.",
            "# Read it before you use it: what this node lacks, it does not ask of others.",
            "schema = 1",
            f"name = {_text(_title(gpus))}",
            'on_unknown = "hold"',
        ],
        _gpus(gpus, whole),
        *_pairs(store.get(Pairs), whole),
        _pcie(gpus),
        _nvlink(gpus, store.get(NvLinks)),
        _numa(gpus) if not whole.hidden else [],
        _nics(gpus, store.get(Nics)),
        _driver(store.get(Driver)),
        _environment(store.get(Settings)),
        _measured(store.get(Bandwidth), len(gpus)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _text(words: str) -> str:
    """A TOML basic string, whatever the driver calls its GPU."""
    return '"' + _plain(words).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(words: str) -> str:
    return clean(words.replace("\n", " ")).replace("\t", " ")


def _texts(words: list[str]) -> str:
    return _text(words[0]) if len(words) == 1 else "[" + ", ".join(_text(w) for w in words) + "]"


def _title(gpus: list[Gpu]) -> str:
    names = list(dict.fromkeys(g.name or "GPU" for g in gpus))
    return f"{len(gpus)} x {names[0]}" if len(names) == 1 else f"{len(gpus)} GPUs"


def _gpus(gpus: list[Gpu], whole: Node) -> list[str]:
    names = list(dict.fromkeys(g.name for g in gpus if g.name))
    return ["[gpus]", f"count = {whole.here + whole.hidden}", *([f"model = {_texts(names)}"] if names else [])] if gpus else []


def _pairs(pairs: Pairs | None, whole: Node) -> list[list[str]]:
    known = [p for p in pairs or () if p.path is not None and not p.pcie_only]
    kinds: dict[tuple[str, int], list[Pair]] = {}
    for pair in known:
        kinds.setdefault((str(pair.path), pair.nvlinks or 0), []).append(pair)
    if len(kinds) == 1:
        return [["[pairs]", *_path(*next(iter(kinds)))]]
    if whole.hidden:
        return []  # this container's numbers are not the node's
    return [
        ["[[pair]]", f"of = {_texts([f'{p.a}-{p.b}' for p in same])}", *_path(path, links)]
        for (path, links), same in sorted(kinds.items(), key=lambda k: PATHS.index(k[0][0]))
    ]


def _path(path: str, links: int) -> list[str]:
    return [f'path = "{path}"', *([f"nvlinks = {links}"] if links else [])]


def _pcie(gpus: list[Gpu]) -> list[str]:
    widths = [g.width for g in gpus if g.width is not None]
    able = [n for n in (pcie.generation(g.max_speed_gts) for g in gpus) if n is not None]
    lines = [f"width = {min(widths)}"] if gpus and len(widths) == len(gpus) else []
    lines += [f"capable_generation = {min(able)}"] if gpus and len(able) == len(gpus) else []
    return ["[pcie]", *lines] if lines else []


def _nvlink(gpus: list[Gpu], links: NvLinks | None) -> list[str]:
    if links is None or not gpus:
        return []
    least = min(sum(bool(link.active) for link in links.of(g.index)) for g in gpus if g.index is not None)
    return ["[nvlink]", f"links = {least}"] if least else []


def _numa(gpus: list[Gpu]) -> list[str]:
    nodes = {g.index: g.numa_node for g in gpus}
    if not gpus or None in nodes.values() or sorted(i for i in nodes if i is not None) != list(range(len(gpus))):
        return []
    return ["[numa]", f"of_gpus = [{', '.join(str(nodes[i]) for i in range(len(gpus)))}]"]


def _nics(gpus: list[Gpu], nics: Nics | None) -> list[str]:
    active = [n for n in nics or () if n.state == "active"]
    if nics is None or not active:
        return []
    lines = ["[nics]", f"devices = {_texts([n.device or n.name for n in active])}", 'state = "active"']
    rates = [n.rate_gbps for n in active if n.rate_gbps is not None]
    lines += [f'rate = "{min(rates):g} Gb/s"'] if len(rates) == len(active) else []
    names = {x for n in active for x in (n.name, n.device)}
    best = [
        min(
            (PATHS.index(p.path) for p in nics.paths if p.gpu == g.index and p.nic in names and p.path in PATHS),
            default=None,
        )
        for g in gpus
    ]
    known = [b for b in best if b is not None]
    return [*lines, *([f'nearest = "{PATHS[max(known)]}"'] if known and len(known) == len(best) and max(known) else [])]


def _driver(driver: Driver | None) -> list[str]:
    version = driver.entry.version if driver is not None else None
    plain = version is not None and all(p.isdigit() for p in version.split("."))
    return ["[driver]", f"min = {_text(version)}"] if version and plain else []


def _environment(settings: Settings | None) -> list[str]:
    if settings is None:
        return []
    held = {f"{s.name}={s.value}" for s in settings}
    forbidden = [words for words in _FORBIDDEN if words not in held]
    return ["[environment]", f"forbid = {_texts(forbidden)}"] if forbidden else []


def _measured(bandwidth: Bandwidth | None, gpus: int) -> list[str]:
    run = next(
        (r for r in bandwidth or () if r.completed and r.plateau_busbw_gbs and not r.failures and not r.wrong), None
    )
    if run is None or run.plateau_busbw_gbs is None:
        return []
    return [
        "[measured]",
        f'collective = "{run.collective}"',
        *([] if run.nranks == gpus else [f"gpus = {run.nranks}"]),
        f"# {100 * SHARE:.0f} % of the {run.plateau_busbw_gbs:.4g} GB/s measured over {run.nranks} GPUs",
        f'min_busbw = "{run.plateau_busbw_gbs * SHARE:.3g} GB/s"',
    ]
