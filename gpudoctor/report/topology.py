"""The compact picture of a host: pairs, NUMA, PCIe links, NICs. Readable from one GPU to sixteen."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import PATHS, Nics, Pair, Pairs
from gpudoctor.report.layout import Style, hanging, listed, spans

_MATRIX_AT_MOST = 9  # GPUs: a label and nine cells of seven columns fill a line
_GENERATION = {2.5: "Gen1", 5.0: "Gen2", 8.0: "Gen3", 16.0: "Gen4", 32.0: "Gen5", 64.0: "Gen6"}
_COLUMN = 13


def view(store: FactStore, style: Style) -> list[str]:
    """Lines of the picture; empty when nothing of it is known."""
    gpus = [g for g in store.get(Gpus) or () if g.index is not None]
    pairs = [p for p in store.get(Pairs) or () if p.path is not None]
    lines: list[str] = []
    lines += pairs_view(pairs, style)
    lines += _per_gpu("NUMA", gpus, _numa, style)
    lines += _per_gpu("PCIe", gpus, link, style)
    lines += _nics(store.get(Nics), style)
    return lines


def cell(pair: Pair | None) -> str:
    """A pair's path: `NV18`, `PHB`, `PIX*` where only PCIe was asked about, `?` where it is not known."""
    if pair is None or pair.path is None:
        return "?"
    if pair.path == "NVL":
        return f"NV{pair.nvlinks}" if pair.nvlinks else "NVL"
    return pair.path + ("*" if pair.pcie_only else "")


def pairs_view(pairs: list[Pair], style: Style) -> list[str]:
    """One line where all are alike, a matrix where it fits the width, a list else."""
    if not pairs:
        return []
    kinds = list(dict.fromkeys(cell(p) for p in pairs))
    star = ["             * the PCIe path: this source does not show NVLink"] if any(k.endswith("*") for k in kinds) else []
    numbers = sorted({n for p in pairs for n in (p.a, p.b)})
    if len(kinds) == 1:
        what = f"all {len(pairs)} pairs {kinds[0]}" if len(pairs) > 1 else f"GPU{pairs[0].a}-GPU{pairs[0].b} {kinds[0]}"
        return [f"{'Pairs':<{_COLUMN}}{what}", *star]
    table = {(p.a, p.b): p for p in pairs}

    def at(a: int, b: int) -> str:
        return style.plain("·") if a == b else cell(table.get((min(a, b), max(a, b))))

    if len(numbers) <= _MATRIX_AT_MOST:
        lines = [f"{'Pairs':<8}" + "".join(f"{'GPU' + str(n):<7}" for n in numbers).rstrip()]
        lines += [f"  {'GPU' + str(a):<6}" + "".join(f"{at(a, b):<7}" for b in numbers).rstrip() for a in numbers]
        return lines + star
    lines = []
    for place, a in enumerate(numbers):
        by_kind: dict[str, list[int]] = {}
        for b in numbers:
            if a != b:
                by_kind.setdefault(at(a, b), []).append(b)
        by_rank = sorted(by_kind.items(), key=lambda item: (PATHS.index("NVL") if item[0].startswith("NV") else 9, item[0]))
        row = ", ".join(f"{kind} to {spans(others)}" for kind, others in by_rank)
        lines += hanging(f"{'Pairs' if place == 0 else '':<7}{'GPU' + str(a):<6}", " " * _COLUMN, row, style)
    return lines + star


def _numa(gpu: Gpu) -> str | None:
    if gpu.numa_node is None and gpu.cpu_affinity is None:
        return None
    node = "node unknown" if gpu.numa_node is None else f"node {gpu.numa_node}"
    return f"{node} (CPUs {gpu.cpu_affinity})" if gpu.cpu_affinity else node


def link(gpu: Gpu) -> str | None:
    """A GPU's PCIe link now, and what it could be where that is more: `Gen4 x8 of Gen4 x16`. None where nothing is known."""
    if gpu.width is None and gpu.speed_gts is None:
        return None
    now = f"{_generation(gpu.speed_gts)} x{gpu.width if gpu.width is not None else '?'}"
    most = f"{_generation(gpu.max_speed_gts)} x{gpu.max_width if gpu.max_width is not None else '?'}"
    if now == most or gpu.max_width is None and gpu.max_speed_gts is None:
        return now
    return f"{now} of {most}"


def _generation(speed_gts: float | None) -> str:
    return "Gen?" if speed_gts is None else _GENERATION.get(speed_gts, f"{speed_gts:g} GT/s")


def _per_gpu(title: str, gpus: list[Gpu], what: object, style: Style) -> list[str]:
    groups: dict[str, list[int]] = {}
    for gpu in gpus:
        text = what(gpu)  # type: ignore[operator]
        if text is not None and gpu.index is not None:
            groups.setdefault(text, []).append(gpu.index)
    lines: list[str] = []
    for text, numbers in groups.items():
        shown = text if len(groups) == 1 and len(numbers) == len(gpus) > 1 else f"GPU{spans(numbers)} {text}"
        lines += hanging(f"{title if not lines else '':<{_COLUMN}}", " " * _COLUMN, shown, style)
    return lines


def _nics(nics: Nics | None, style: Style) -> list[str]:
    words = nearest(nics)
    return hanging(f"{'NICs':<{_COLUMN}}", " " * _COLUMN, listed(words, style), style) if words else []


def nearest(nics: Nics | None) -> list[str]:
    """`GPU0 mlx5_0 PIX`: each GPU's nearest adapters and how near they are."""
    if nics is None or not nics.paths:
        return []
    devices = {n.name: n.device or n.name for n in nics}
    known = [p for p in nics.paths if p.path in PATHS]
    words = []
    for index in sorted({p.gpu for p in known}):
        own = [p for p in known if p.gpu == index]
        best = min(own, key=lambda p: PATHS.index(p.path)).path
        near = [devices.get(p.nic, p.nic) for p in own if p.path == best]
        words.append(f"GPU{index} {_few(near)} {best}")
    return words


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return listed[0] + (f"+{len(listed) - 1}" if len(listed) > 1 else "")
