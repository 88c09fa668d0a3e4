"""Report to JUnit XML: one test case per code, so that a CI server shows a sick host as it shows a failed test.

The shape is the Ant task's schema (windyroad/JUnit-Schema), the strictest of those in use: what it takes, Jenkins and
GitLab take. JUnit knows no "could not tell", and a suite without failures is green: an unknown verdict is an error of its
own test case.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, tostring

import gpudoctor
from gpudoctor.model import BROKEN, FOUND, OK, SKIPPED, CheckResult, Finding, Missing, Report, severity_rank
from gpudoctor.read.text import clean

# Characters that no XML 1.0 document may hold, escaped or not (Extensible Markup Language 1.0, section 2.2).
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
NO_DATE = "1970-01-01T00:00:00"  # the schema wants a moment, and a pasted file tells none


def render(report: Report) -> str:
    """The document, one line per element."""
    cases = [_case(r, report.fail_on) for r in report.results] + [_verdict(report)]
    suite = Element("testsuite", _suite(report, cases))
    properties = SubElement(suite, "properties")
    for name, value in (("version", gpudoctor.__version__), ("verdict", report.verdict), ("fail_on", report.fail_on)):
        SubElement(properties, "property", {"name": name, "value": value})
    suite.extend(cases)
    SubElement(suite, "system-out").text = _safe("\n".join(_rest(report)))
    SubElement(suite, "system-err").text = _safe("\n".join(_missing(m) for m in report.missing))
    root = Element("testsuites")
    root.append(suite)
    _indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(report: Report, cases: list[Element]) -> dict[str, str]:
    hosts = [str(store.host) for store in report.hosts if store.host]  # type: ignore[attr-defined]
    when = _DATE.match(str(report.source.get("captured_at") or ""))
    return {
        "package": "gpudoctor",
        "id": "0",
        "name": "gpudoctor",
        "timestamp": when[0] if when else NO_DATE,
        "hostname": _token(hosts[0]) if len(hosts) == 1 else "localhost",
        "tests": str(len(cases)),
        "failures": str(sum(c.find("failure") is not None for c in cases)),
        "errors": str(sum(c.find("error") is not None for c in cases)),
        "skipped": str(sum(c.find("skipped") is not None for c in cases)),
        "time": f"{report.seconds:.3f}",
    }


def _case(result: CheckResult, fail_on: str) -> Element:
    case = Element("testcase", {"name": _token(f"{result.code} {result.slug}"), "classname": "gpudoctor", "time": "0"})
    failing = [f for f in result.findings if severity_rank(f.severity) <= severity_rank(fail_on)]
    if failing:
        failing.sort(key=lambda f: severity_rank(f.severity))
        more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        said = {"message": _token(f"{_where(failing[0])}: {failing[0].message}{more}"), "type": failing[0].severity}
        SubElement(case, "failure", said).text = _safe("\n\n".join(_whole(f) for f in failing))
    elif result.status == BROKEN:
        SubElement(case, "error", {"message": _token(result.reason or "it broke"), "type": "broken-check"}).text = ""
    elif result.status == SKIPPED:
        SubElement(case, "skipped", {"message": _token(result.reason or "nothing to judge")}).text = ""
    return case


def _verdict(report: Report) -> Element:
    case = Element("testcase", {"name": "verdict", "classname": "gpudoctor", "time": "0"})
    if report.verdict == "unknown":
        needed = [_missing(m) for m in report.missing if m.needed] or ["what the verdict needs could not be read"]
        SubElement(
            case, "error", {"message": _token(f"could not tell: {needed[0]}"), "type": "could-not-tell"}
        ).text = _safe("\n".join(needed))
    return case


def _rest(report: Report) -> list[str]:
    """What was found below --fail-on: no failure, and not to be lost."""
    below = [f for r in report.results for f in r.findings if severity_rank(f.severity) > severity_rank(report.fail_on)]
    made = sum(r.status in (OK, FOUND) for r in report.results)
    said = f"{made} of {sum(r.offered for r in report.results)} checks made"
    return [said, *report.notes, *(f"{f.severity}: {f.slug} {_where(f)}: {f.message}" for f in below)]


def _where(finding: Finding) -> str:
    return f"{finding.host} {finding.subject}" if finding.host else finding.subject


def _whole(finding: Finding) -> str:
    lines = [f"{finding.severity}: {_where(finding)}: {finding.message}"]
    lines += [f"Cost: {finding.cost}"] if finding.cost else []
    lines += [f"Seen: {e.source}, {e.where}: {e.value}" for e in finding.evidence[:8]]
    for number, step in enumerate(finding.remediation, 1):
        lines.append(f"Fix {number} [{step.risk}]: {step.step}" + (f"  {step.command}" if step.command else ""))
        lines += [f"Verify: {step.verify}"] if step.verify else []
    return "\n".join(lines)


def _missing(missing: Missing) -> str:
    return f"not read: {missing.fact}: {missing.reason}"


def _safe(text: str) -> str:
    """Free of terminal escapes, line by line, and of what XML cannot hold; markup is escaped by the writer."""
    return _FORBIDDEN.sub("", "\n".join(clean(line) for line in text.split("\n")))


def _token(text: str) -> str:
    """For an attribute: one line, single blanks, never empty."""
    return " ".join(_safe(text).split()) or "?"


def _indent(element: Element, depth: int = 0) -> None:
    """xml.etree's own indent would write into elements that hold text only; here children get a line each."""
    for place, child in enumerate(element):
        child.tail = "\n" + "  " * (depth + (place + 1 < len(element)))
        _indent(child, depth + 1)
    if len(element):
        element.text = "\n" + "  " * (depth + 1)
