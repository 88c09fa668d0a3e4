"""What was not looked at and why, and the request to paste: the end of every page."""

from __future__ import annotations

from gpudoctor.model import BROKEN, NO_GPU, NOTHING_KNOWN, SKIPPED, Missing, Report
from gpudoctor.report.layout import Style, hanging

MAX_HINTS = 6
KNOWN = (
    "nvidia-smi (also -q, topo, nvlink), lspci -vv, dmesg, NCCL's and PyTorch's logs, nccl-tests' tables, nvbandwidth, p2pBandwidthLatencyTest, dcgmi, env, df, "
    "ibstat and what `gpudoctor capture` writes, each also inside a mail or a bug report"
)
# Outputs by how much they tell.
_TELLING = ("nvidia-smi -q", "nvidia-smi topo", "nvidia-smi nvlink", "sudo lspci", "sudo dmesg", "env ", "cat /etc/nccl", "numactl", "df ")

_OF_A_JOB = ("sudo dmesg",)


def not_read(report: Report, style: Style, verbose: int) -> list[str]:
    """What could not be looked at, and the request to paste. Of an excerpt nearly all is absent: that is said in short."""
    lines: list[str] = []
    if report.unknown_input:
        lines += hanging("Not recognised: ", "  ", f"{', '.join(report.unknown_input)}", style)
        if any(m.fact == NOTHING_KNOWN for m in report.missing):
            lines += hanging("Known are: ", "  ", KNOWN, style)
    told = by_reason([m for m in report.missing if m.hint is None and m.fact not in (NOTHING_KNOWN, NO_GPU)])
    absent = [m for m in report.missing if m.hint is not None]
    limit = 200 if verbose else 6
    for reason, names in told[:limit]:
        lines += hanging("Not read: ", "  ", f"{'; '.join(names)}: {reason}", style)
    if len(told) > limit:
        lines.append(f"  and {len(told) - limit} more (-v)")
    if any(m.fact == NO_GPU for m in report.missing) and not verbose:
        return lines  # nothing that could be asked for is to be had here
    excerpt = all(s.recorded for s in report.hosts)  # type: ignore[attr-defined]
    lines += unmade(report, style, excerpt, verbose)
    if not excerpt or verbose:
        for reason, names in by_reason(absent):
            lines += hanging("Not looked at: ", "  ", f"{', '.join(names)} ({reason})", style)
        lines += _skipped(report, style, verbose)
    return lines + _request(absent, excerpt, style, verbose)


def unmade(report: Report, style: Style, excerpt: bool, verbose: int) -> list[str]:
    """Why fewer checks were made than there are, in one line."""
    said = unmade_words(report, excerpt)
    return hanging("Checks not made: ", "  ", said + (" (-vv names them)" if verbose < 2 else ""), style) if said else []


def unmade_words(report: Report, excerpt: bool) -> str:
    """What the verdict line's "12 of 49" leaves open."""
    left = [r for r in report.results if report.hosts and r.offered and r.status in (SKIPPED, BROKEN)]
    lacking = sum(r.status == SKIPPED and (r.reason or "").startswith("needs ") for r in left)
    idle = sum(r.status == SKIPPED and (r.reason or "nothing to judge") == "nothing to judge" for r in left)
    broken = sum(r.status == BROKEN for r in left)
    doubtful = len(left) - lacking - idle - broken
    words = [
        f"{lacking} need{'s' if lacking == 1 else ''} outputs not {'given' if excerpt else 'read'}" if lacking else "",
        f"{idle} {'has' if idle == 1 else 'have'} nothing to judge here" if idle else "",
        f"{doubtful} could not tell" if doubtful else "",
        f"{broken} broke" if broken else "",
    ]
    return ", ".join(w for w in words if w)


def requests(missing: list[Missing]) -> list[str]:
    """Commands whose output would settle what is open, the most telling first; of a job that hangs or lost a rank, what
    only the job can tell, then why the system may have ended it."""
    pressing = [m.hint for m in missing if m.pressing and m.hint is not None]
    hints = list(dict.fromkeys(part.strip() for m in missing if m.hint and not m.pressing for part in m.hint.split(";")))
    hints = [h for h in hints if not any(p.startswith(f"{h} ") for p in pressing)]
    telling = (_OF_A_JOB if pressing else ()) + _TELLING
    hints.sort(key=lambda h: next((i for i, start in enumerate(telling) if h.startswith(start)), len(telling)))
    return [*dict.fromkeys(pressing), *hints]


def _request(absent: list[Missing], excerpt: bool, style: Style, verbose: int) -> list[str]:
    """What to ask for, ready to paste."""
    hints = requests(absent)
    if not hints:
        return []
    limit = len(hints) if verbose else MAX_HINTS
    hung = any("nvidia-smi" in (m.hint or "") and "no answer in " in m.reason for m in absent)  # to run it again now would hang the reader's terminal too
    once = "Once the driver answers again, these would settle what is open:" if hung else "These would settle what is open:"
    lines = ["To settle what is open, these outputs would help:" if excerpt else once]
    prose = {m.hint for m in absent if m.pressing}
    for hint in hints[:limit]:
        lines += hanging("  ", "    ", hint, style) if hint in prose else [f"  {style.plain(hint)}"]
    if len(hints) > limit:
        lines.append(f"  and {len(hints) - limit} more (-v)")
    if excerpt:
        lines.append("or all at once, private details replaced:  gpudoctor capture -o host.tar.gz")
    return lines


def by_reason(missing: list[Missing]) -> list[tuple[str, list[str]]]:
    """Each reason once, with all that it cost: eight outputs of one tool that is not installed are one line."""
    reasons: dict[str, list[str]] = {}
    for m in missing:
        names = reasons.setdefault(m.reason, [])
        if m.fact not in names:
            names.append(m.fact)
    return list(reasons.items())


def unjudged(report: Report) -> list[tuple[str, list[str]]]:
    """Checks that ran and could not judge: each reason once, with the checks it stopped."""
    reasons: dict[str, list[str]] = {}
    for r in report.results:
        if r.status == SKIPPED and r.reason and not r.reason.startswith(("needs ", "nothing to judge")):
            reasons.setdefault(r.reason, []).append(r.slug)
    return list(reasons.items())


def _skipped(report: Report, style: Style, verbose: int) -> list[str]:
    lines: list[str] = []
    shown = unjudged(report)
    for reason, names in shown if verbose else shown[:6]:
        lines += hanging("Could not judge: ", "  ", f"{', '.join(names)}: {reason}", style)
    if len(shown) > 6 and not verbose:
        lines.append(f"  and {len(shown) - 6} more (-v)")
    return lines
