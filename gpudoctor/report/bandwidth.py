"""A measured bandwidth as a reader sees it: some sizes with a small curve, the level, and what it should be."""

from __future__ import annotations

from gpudoctor.expect.group import Group
from gpudoctor.expect.opinion import BASELINE, GRAPH, LIMIT, REFERENCE, WIRE, Opinion, Verdict, amount
from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun
from gpudoctor.facts.store import FactStore
from gpudoctor.report.layout import Style, counted, hanging, listed

MAX_RUNS = 4
_SIZES = 6  # rows of the table
_STEP = 4  # at least so many times between two of them
_BAR = 16  # columns of a full bar
_SHORT = {LIMIT: "limit given", BASELINE: "baseline", REFERENCE: "reference", GRAPH: "estimate of NCCL", WIRE: "wire"}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLUMN = 12
_SIZE = 10


def view(store: FactStore, style: Style) -> list[str]:
    """Every run with rows, with what is expected of it on this host."""
    from gpudoctor.expect.opinions import assess
    from gpudoctor.expect.seats import around_of
    from gpudoctor.facts.bandwidth import Bandwidth, Wanted

    runs = [run for run in store.get(Bandwidth) or () if run.rows]
    lines: list[str] = []
    around = around_of(store)
    for run in runs[:MAX_RUNS]:
        group, verdict = assess(run, around, store.get(Wanted))
        lines += [*([""] if lines else []), *table(run, group, verdict, style)]
    if len(runs) > MAX_RUNS:
        lines.append(f"and {counted(len(runs) - MAX_RUNS, 'more measurement')} (--format json has all)")
    return lines


def table(run: BandwidthRun, group: Group, verdict: Verdict, style: Style) -> list[str]:
    """One run: title, sizes, level, expectations."""
    lines = hanging("", "  ", listed(_title(run, group), style), style)
    rows = chosen(run)
    top = max((row.busbw_gbs or 0.0 for row in rows), default=0.0)
    lines.append(f"{'size':>{_SIZE}}{'time':>12}{'busbw GB/s':>13}")
    for row in rows:
        rate = row.busbw_gbs
        shown = "?" if rate is None else f"{rate:.2f}" if rate < 10 else f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"
        curve = bar(rate, top, style) if run.plateau_busbw_gbs is not None else ""
        lines.append(f"{amount(row.size):>{_SIZE}}{duration(row.time_us):>12}{shown:>13}  {curve}".rstrip())
    lines += _level(run, style)
    lines += expectations(verdict, style)
    return lines


def _title(run: BandwidthRun, group: Group) -> list[str]:
    indices = [f"GPU{g.index}" for g in group.gpus if g.index is not None]
    named = len(run.team) == run.nranks
    ranks = counted(run.nranks, "rank") if run.nranks is not None and not named else None
    names = f"{len(run.team)} x {group.name}" if group.name and len(run.team) > 1 else group.name
    who = " ".join(indices) if 0 < len(indices) <= 8 else names
    link = f" ({group.link})" if group.link and group.observed else ""
    engine = f"{run.engine} {run.tests_version}" if run.tests_version else run.engine
    hosts = counted(len(run.hosts), "host") if len(run.hosts) > 1 else None
    version = run.nccl_version or (group.comm.version if group.comm is not None else None)
    words = [run.collective or run.program or "a collective", f"{who}{link}" if who else None, ranks, hosts, engine]
    words.append(f"NCCL {version}" if version else None)
    return [w for w in words if w]


def chosen(run: BandwidthRun) -> list[BandwidthRow]:
    """Six sizes from small to large: the largest, and back from it in steps of four or more."""
    best: dict[int, BandwidthRow] = {}
    for row in run.rows:
        if row.size > 0 and (row.size not in best or (row.busbw_gbs or 0) > (best[row.size].busbw_gbs or 0)):
            best[row.size] = row
    sizes = sorted(best, reverse=True)
    # The wider the table, the wider the steps, so that small sizes are in it too.
    step = max(_STEP, (sizes[0] / sizes[-1]) ** (1 / (_SIZES - 1)) * 0.99) if sizes else _STEP
    taken: list[int] = []
    for size in sizes:
        if not taken or taken[-1] / size >= (_STEP if len(taken) < 2 else step):
            taken.append(size)
    return [best[size] for size in reversed(taken[:_SIZES])]


def bar(value: float | None, top: float, style: Style) -> str:
    """`███▏`, or `###` where the terminal has no such glyphs."""
    if not value or top <= 0:
        return ""
    eighths = round(8 * _BAR * value / top)
    if not style.unicode:
        return "#" * round(eighths / 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def duration(time_us: float | None) -> str:
    """Microseconds for a reader: `8.03 us`, `1.2 ms`, `?` where they are not known."""
    if time_us is None:
        return "?"
    if time_us < 1000:
        return f"{time_us:.3g} us"
    return f"{time_us / 1000:.3g} ms" if time_us < 1e6 else f"{time_us / 1e6:.3g} s"


def _level(run: BandwidthRun, style: Style) -> list[str]:
    plateau, latency = run.plateau_busbw_gbs, run.latency_us
    words = [f"{plateau:.4g} GB/s"] if plateau is not None else ["none: one rank" if run.nranks == 1 else "none: small sizes only"]
    if latency is not None and run.nranks != 1:
        words.append(f"latency {duration(latency)}")
    if run.average_busbw_gbs is not None:
        words.append(f"footer {run.average_busbw_gbs:.4g} averages in the small sizes")
    if run.wrong is not None:
        words.append("WRONG RESULTS" if run.wrong else "results right" if run.checked is not False else "results not checked")
    if not run.completed:
        words.append("no footer: an excerpt, or cut")
    return hanging(f"{'plateau':<{_COLUMN}}", " " * _COLUMN, listed(words, style), style)


def expectations(verdict: Verdict, style: Style) -> list[str]:
    """All opinions side by side, and the one that decides with its limit."""
    lines: list[str] = []
    for place, opinion in enumerate(verdict.opinions):
        lines += hanging(f"{'expected' if place == 0 else '':<{_COLUMN}}", " " * _COLUMN, _opinion(opinion), style)
    if verdict.used is not None and verdict.ratio is not None:
        word = "in order" if verdict.severity is None else "too low"
        limit = "" if verdict.used.kind == LIMIT else f"; the limit is {verdict.limit_words}"
        text = f"{100 * verdict.ratio:.3g} % of the {_SHORT[verdict.used.kind]}{limit}: {word}"
        lines += hanging(f"{'reached':<{_COLUMN}}", " " * _COLUMN, text, style)
    elif verdict.why_not:
        lines += hanging(f"{'not judged':<{_COLUMN}}", " " * _COLUMN, verdict.why_not, style)
    return lines


def _opinion(opinion: Opinion) -> str:
    value = f"{opinion.gbs:.4g} GB/s  " if opinion.gbs is not None else ""
    source = f"; {opinion.source}" if opinion.kind in (REFERENCE, BASELINE) else ""
    return f"{value}{opinion.words}{source}" + (f" (not used: {opinion.why_not})" if opinion.why_not else "")
