"""The HTML page: well formed, whole by itself, and no word of the input ever becomes markup."""

from __future__ import annotations

import os
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpudoctor.facts.bandwidth import PairRate, PairRates
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.model import CheckResult, Diagnosis, Evidence, Finding, Gain, Missing, Report, Step
from gpudoctor.report.html import MATRIX_AT_MOST, MAX_BLOCKS, render
from tests.support import FIXTURES, HERE, gpudoctor, store

SICK = FIXTURES / "hosts" / "a100x4-sxm-gpu2-nvlinks-down"
VOID = {"meta"}
TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "div", "p", "h1", "h2", "h3", "h4", "span", "strong",
    "article", "dl", "dt", "dd", "ul", "ol", "li", "pre", "code", "table", "thead", "tbody", "tr", "th", "td", "details", "summary",
}  # fmt: skip
CLASSES = {
    "verdict", "fail", "unknown", "pass", "warning", "error", "note", "where", "sure", "quiet", "copy", "risk", "reversible", "disruptive",
    "hardware", "wide", "gpus", "matrix", "self", "nvl", "near", "mid", "far", "open",
}  # fmt: skip
HOSTILE = "<script>alert(1)</script> \" onload=x ' {{ 7*7 }} {% raw %} \x1b[31mred\x1b[0m \x00 \u202elanoitcerid\u202c \ud800 \uffff </code></style>-->"
HARMLESS = "<script>alert(1)</script> \" onload=x ' {{ 7*7 }} {% raw %} red  lanoitcerid \ufffd \ufffd </code></style>-->"


class Page(HTMLParser):
    """Holds that every tag is closed in order, and keeps what a browser would show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said: list[str] = []
        self.commands: list[str] = []
        self.cells: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [] and text.startswith("<!DOCTYPE html>\n") and text.endswith("</html>\n")

    @property
    def text(self) -> str:
        return " ".join("".join(self.said).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            if name == "class":
                assert value is not None and set(value.split()) <= CLASSES, value
            else:
                assert name in {"lang", "charset", "name", "content", "http-equiv", "scope"}, name
        if tag not in VOID:
            self.open.append(tag)
        if dict(attrs).get("class") == "copy":
            self.commands.append("")
        if tag == "td":
            self.cells.append((str(dict(attrs).get("class")), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag
        if tag in ("p", "div", "li", "dd", "td", "h2", "h3", "pre", "dt"):
            self.said.append("\n")

    def handle_data(self, data: str) -> None:
        assert "\x1b" not in data and "\x00" not in data and "\u202e" not in data
        if "style" in self.open:
            for word in ("url(", "@import", "http"):
                assert word not in data
            return
        self.said.append(data)
        if "pre" in self.open and self.commands and "code" in self.open:
            self.commands[-1] += data
        if self.open and self.open[-1] == "td":
            self.cells[-1] = (self.cells[-1][0], self.cells[-1][1] + data)

    def handle_decl(self, decl: str) -> None:
        assert decl == "DOCTYPE html"

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def a_report(words: str, diagnoses: int = 1) -> Report:
    def finding(severity: str, subject: str) -> Finding:
        return Finding(
            slug="nvlink-down",
            severity=severity,
            subject=subject,
            message=f"What {words}",
            evidence=tuple(Evidence(f"source {n} {words}", f"where {words}", f"value {words}") for n in range(6)),
            confidence="certain",
            cost=f"cost {words}",
            gain=Gain(1, 2, f"unit {words}"),
            remediation=(
                Step(f"step {words}", f"first {words}\nsecond", "disruptive", f"verify {words}"),
                Step(f"no command {words}", risk="hardware"),
            ),
            host=f"host {words}",
        )

    gpus = Gpus(tuple(Gpu(HERE, index=n, name=f"name {words}", cpu_affinity=f"cpus {words}") for n in range(3)))
    rates = PairRates((PairRate(HERE, a=0, b=1, gbs=1.0, what=f"what {words}"),))
    pairs = Pairs((Pair(HERE, a=0, b=1, path="NVL", nvlinks=4), Pair(HERE, a=0, b=2, path="SYS"), Pair(HERE, a=1, b=2, path="PIX")))
    loud = [Diagnosis(finding("error", f"gpu:{n} {words}"), explains=(finding("note", f"pair:{words}"),)) for n in range(diagnoses)]
    return Report(
        source={"kind": "recorded", "paths": [f"path {words}"], "captured_at": f"when {words}"},
        hosts=(store(gpus, pairs, rates, recorded=False),),
        results=(CheckResult("GD401", "nvlink-down", "skipped", f"reason {words}"),),
        diagnoses=(*loud, Diagnosis(finding("note", f"host {words}"))),
        missing=(Missing(f"fact {words}", f"why {words}", f"hint {words}"), Missing(f"lost {words}", f"why not {words}")),
        verdict="fail",
        exit_code=1,
        notes=(f"a note {words}",),
        unknown_input=(f"file {words}",),
    )


def test_hostile_words_stay_words_in_every_place() -> None:
    page = Page(render(a_report(HOSTILE), extra={"gate": a_gate(HOSTILE), "bandwidth": {"notes": [f"measured {HOSTILE}"]}}))
    shown = " ".join(HARMLESS.split())
    for before in (
        "path", "captured when", "a note", "measured", "What", "cost", "1 to 2 unit", "source 0", "source 5", "where", "value", "step",
        "first", "verify", "no command", "name", "cpus", "reason", "fact", "why", "lost", "why not", "hint", "file", "rule", "reached",
    ):  # fmt: skip
        assert f"{before} {shown}" in page.text, before
    assert "49" not in page.text  # no word of the input is a template


def a_gate(words: str) -> dict[str, object]:
    outcome = {"rule": f"rule {words}", "subject": words, "status": "broken", "wants": words, "seen": f"reached {words}", "reason": None}
    accepted = {"slug": "aspm", "subject": words, "reason": words, "until": words, "expired": False}
    return {
        "policy": {"name": words, "source": words},
        "rules": {"met": 1, "broken": 1, "unknown": 0},
        "not_met": [outcome],
        "accepted": [accepted],
    }


def test_commands_are_copied_as_they_are() -> None:
    page = Page(render(a_report("grep -E 'Xid|SXid' <log >out && echo \"$?\"")))
    assert page.commands[0] == "first grep -E 'Xid|SXid' <log >out && echo \"$?\"\nsecond"
    assert page.commands[1].startswith("verify grep")


def test_the_matrix_says_in_words_and_colour_how_each_pair_talks() -> None:
    cells = [c for c in Page(render(a_report("plain"))).cells if c[0] != "None"]
    assert cells == [
        ("self", "·"), ("nvl", "NV4"), ("far", "SYS"), ("nvl", "NV4"), ("self", "·"), ("near", "PIX"), ("far", "SYS"), ("near", "PIX"), ("self", "·"),
    ]  # fmt: skip


def test_more_gpus_than_a_page_is_wide_are_listed() -> None:
    number = MATRIX_AT_MOST + 1
    pairs = [Pair(HERE, a=a, b=b, path="PIX" if b % 2 else "SYS") for a in range(number) for b in range(a + 1, number)]
    base = a_report("plain")
    page = Page(render(Report(**{**{n: getattr(base, n) for n in ("source", "results", "diagnoses", "missing")}, "hosts": (store(Pairs(tuple(pairs))),), "verdict": "fail", "exit_code": 1})))
    assert all(tone == "None" for tone, _ in page.cells) and "GPU32 SYS to" in page.text


def test_thousands_of_findings_are_cut_and_counted() -> None:
    base = a_report("plain")
    some = [
        Diagnosis(Finding(f"cause-{n}", "error", "host", "It is so.", (Evidence("s", "w", "v"),)))
        for n in range(MAX_BLOCKS + 50)
    ]
    page = Page(render(Report(source={}, hosts=base.hosts, results=(), diagnoses=tuple(some), missing=(), verdict="fail", exit_code=1)))
    assert "50 more findings are not shown here" in page.text and f"cause-{MAX_BLOCKS - 1}" in page.text
    assert f"cause-{MAX_BLOCKS} " not in page.text


@pytest.mark.parametrize("host", sorted(p.name for p in (FIXTURES / "hosts").iterdir()))
def test_every_bundled_host_has_a_page_that_says_what_its_text_says(host: str) -> None:
    from gpudoctor.cli.look import look
    from gpudoctor.discover import load
    from gpudoctor.judge import judge
    from gpudoctor.report.text import headline

    seen = look((str(FIXTURES / "hosts" / host),), live=False, job=False, timeout=60)
    report = judge(seen.intake, load(), seen.source)
    page = Page(render(report))
    word, sentence = headline(report)
    assert f"{word} {' '.join(sentence.split())}" in page.text
    for d in report.diagnoses:
        assert d.finding.slug in page.text
        for step in d.finding.remediation if d.finding.severity == "error" else ():
            assert step.command is None or step.command in page.commands


def test_the_command_line_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    done = gpudoctor("check", "--from", str(SICK), "-o", str(path))
    assert done.returncode == 1 and done.stdout.startswith(b"FAULT") and done.stdout.count(b"\n") == 1
    assert "nvlink-down" in Page(path.read_text()).text
    plain = gpudoctor("check", "--from", str(SICK), "--format", "html", env={"PYTHONIOENCODING": "latin-1"})
    assert plain.stdout.isascii() and "✗ nvlink-down" in Page(plain.stdout.decode()).text  # the page says UTF-8


def test_the_gate_and_a_measurement_have_their_own_first_line() -> None:
    done = gpudoctor("gate", "--test", "--policy", "h100-sxm-x8", "--no-bandwidth", "--format", "html", env={"GPUDOCTOR_PROBE_DIR": str(SICK)})
    page = Page(done.stdout.decode())
    assert done.returncode == 1 and "FAIL node07 " in page.text and "8 x H100 SXM (h100-sxm-x8): " in page.text
    measured = gpudoctor("bandwidth", "--from", str(FIXTURES / "outputs" / "nccl-tests" / "h200x2-socket.txt"), "--format", "html")
    assert measured.returncode == 1 and "busbw GB/s" in Page(measured.stdout.decode()).text


def test_a_hostile_file_name_is_shown_and_no_more(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b'"><img src=x onerror=alert(1)>\xff.txt')
    with open(path, "wb") as stream:
        stream.write(b"| <script>alert(2)</script>\nnothing known\n")
    done = gpudoctor("check", "--from", os.fsdecode(path), "-o", str(tmp_path / "r.html"))
    assert done.returncode == 3, done.stderr
    page = Page((tmp_path / "r.html").read_text())
    assert 'Not recognised: ' in page.text and '"><img src=x onerror=alert(1)>\ufffd.txt' in page.text


@pytest.mark.parametrize("words", [("--format", "html"), ("-o", "report.html")])
def test_without_jinja2_it_is_wrong_usage_with_the_command_that_helps(words: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jinja2'] = None\n")
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = gpudoctor("check", "--from", str(SICK), *words, env={"PYTHONPATH": paths}, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == b"" and not (tmp_path / "report.html").exists()
    assert f"{sys.executable} -m pip install 'jinja2>=3.1'".encode() in b" ".join(done.stderr.split())
