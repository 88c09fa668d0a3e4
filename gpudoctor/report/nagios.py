"""Report to the one line a Nagios plugin prints: `GPUDOCTOR CRITICAL - words | performance data`, and its exit status.

The form is that of the Monitoring Plugins Development Guidelines (sections "Plugin Output" and "Performance data").
"""

from __future__ import annotations

import re

from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.gpu import Gpus
from gpudoctor.model import ERROR, FOUND, OK, WARNING, Report
from gpudoctor.read.text import clean

STATUS = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
MOST = 400  # characters of words: older servers cut a line at 1024
# `|` begins the performance data; the others are what a server may hand on to a shell in an event handler.
_UNSAFE = re.compile(r"[|`$<>&\"';\\~]")
_STAND_IN = {"|": "/", "'": "", '"': "", "`": "", ";": ","}


def state(report: Report) -> str:
    """Errors are critical, warnings a warning, whatever --fail-on; a fault beats not knowing, not knowing a warning."""
    severities = {f.severity for r in report.results for f in r.findings}
    if ERROR in severities:
        return "CRITICAL"
    if report.verdict == "unknown":
        return "UNKNOWN"
    return "WARNING" if WARNING in severities else "OK"


def exit_status(report: Report) -> int:
    """Nagios' own numbers: 0 to 3, of which 2 is critical and no wrong usage."""
    return STATUS[state(report)]


def render(report: Report) -> str:
    """One line with performance data, which is all that Nagios shows."""
    return line(state(report), _words(report), _performance(report))


def line(word: str, text: str, performance: str = "") -> str:
    """One line whatever the text holds. Also for what goes wrong before there is a report."""
    return f"GPUDOCTOR {word} - {_safe(text)[:MOST]}" + (f" | {performance}" if performance else "") + "\n"


def _words(report: Report) -> str:
    made = sum(r.status in (OK, FOUND) for r in report.results)
    counted = f"{made} of {sum(r.offered for r in report.results)} checks made"
    if state(report) == "UNKNOWN":
        needed = [m for m in report.missing if m.needed]
        why = f"{needed[0].fact}: {needed[0].reason}" if needed else "what the verdict needs could not be read"
        return f"could not tell: {why}"
    loud = [d for d in report.diagnoses if d.finding.severity in (ERROR, WARNING)]
    if not loud:
        return f"nothing found, {counted}"
    first, number = loud[0].finding, sum(1 + len(d.alike) for d in loud)
    return f"{first.slug} {first.subject}: {first.message}" + (f" (+{number - 1} more)" if number > 1 else "")


def _performance(report: Report) -> str:
    findings = [f for r in report.results for f in r.findings]
    values = [
        ("errors", str(sum(f.severity == ERROR for f in findings)), "", "0"),
        ("warnings", str(sum(f.severity == WARNING for f in findings)), "", "0"),
        ("checks", str(sum(r.status in (OK, FOUND) for r in report.results)), "", "0"),
        ("time", f"{report.seconds:.2f}", "s", "0"),
    ]
    for store in report.hosts if len(report.hosts) == 1 else ():
        gpus = store.get(Gpus)  # type: ignore[attr-defined]
        if gpus is not None:
            values.append(("gpus", str(len(gpus)), "", "0"))
        for run in store.get(Bandwidth) or ():  # type: ignore[attr-defined]
            if run.plateau_busbw_gbs is not None:
                values.append(("busbw", f"{run.plateau_busbw_gbs * 1e9:.0f}", "B", "0"))
                break
    # label=value[unit];warn;crit;min
    return " ".join(f"{name}={value}{unit};;;{least}" for name, value, unit, least in values)


def _safe(text: str) -> str:
    return " ".join(_UNSAFE.sub(lambda found: _STAND_IN.get(found[0], " "), clean(text.replace("\n", " "))).split())
