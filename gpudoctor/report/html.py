"""Report to one HTML page that stands by itself: its own style, no scripts, nothing fetched, fit for print and mail.

All words go through the template's escaping; attributes hold constants only. jinja2 is an extra and loaded only here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import gpudoctor
from gpudoctor import shipped
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import Nics, Pair, Pairs
from gpudoctor.model import FOUND, NO_GPU, NOTE, NOTHING_KNOWN, OK, Diagnosis, Evidence, Report, Step
from gpudoctor.read.text import clean
from gpudoctor.report import bandwidth, hang, measurement, nccl
from gpudoctor.report.blocks import effects, subject
from gpudoctor.report.layout import MARK, Style
from gpudoctor.report.not_read import KNOWN, by_reason, requests, unjudged, unmade_words
from gpudoctor.report.text import expect, grouped, head_words, headline
from gpudoctor.report.topology import cell, link, nearest, pairs_view

TEMPLATE = "report.html.j2"
MAX_SEEN = 4  # shown; the others fold away
MAX_FOLDED = 100
MAX_BLOCKS = 200  # a log of thousands of ranks has as many findings, and a browser an end of patience
MATRIX_AT_MOST = 32  # GPUs
_PAGE = Style(unicode=True, width=96)
# Not text in HTML: surrogates (half a file name that was no UTF-8) and what Unicode keeps for no character.
_NO_TEXT = re.compile("[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_NEAR = {"PIX": "near", "PXB": "near", "PHB": "mid", "NODE": "mid", "SYS": "far"}


def render(report: Report, verdict: tuple[str, str] | None = None, extra: Mapping[str, Any] | None = None) -> str:
    """The page. verdict: a command's own word and sentence in place of the check's; extra: its own key of the JSON."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_shown, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(shipped.text(TEMPLATE))
    return template.render(_page(report, verdict or headline(report), extra or {})) + "\n"


def _shown(value: object) -> object:
    """What is written for a value: text without terminal escapes, control and direction characters, lines kept."""
    if not isinstance(value, str) or hasattr(value, "__html__"):  # a macro's output, whose parts came through here
        return "" if value is None else value
    return _NO_TEXT.sub("\ufffd", "\n".join(clean(line) for line in value.split("\n")))


def _page(report: Report, verdict: tuple[str, str], extra: Mapping[str, Any]) -> dict[str, Any]:
    loud = grouped(d for d in report.diagnoses if d.finding.severity != NOTE)
    quiet = grouped(d for d in report.diagnoses if d.finding.severity == NOTE)
    word, sentence = verdict
    measured = extra.get("bandwidth") or {}
    return {
        "version": gpudoctor.__version__,
        "word": word,
        "sentence": sentence,
        "tone": "warning" if report.verdict == "pass" and loud else report.verdict,
        "head": head_words(report)[1:],
        "captured": report.source.get("captured_at"),
        "notes": [*report.notes, *measured.get("notes", ())],
        "blocks": [_block(group, report) for group in loud[:MAX_BLOCKS]],
        "quiet": [_block(group, report) for group in quiet[: MAX_BLOCKS - len(loud)]] if len(loud) < MAX_BLOCKS else [],
        "left_out": max(0, len(loud) + len(quiet) - MAX_BLOCKS),
        "expect": "\n".join(expect(report, _PAGE)),
        "gate": extra.get("gate"),
        "hosts": [_host(store, len(report.hosts) > 1) for store in report.hosts if isinstance(store, FactStore)],
        "results": report.results,
        "made": sum(r.status in (OK, FOUND) for r in report.results),
        "offered": sum(r.offered for r in report.results),
        **_open(report),
    }


def _block(group: list[Diagnosis], report: Report) -> dict[str, Any]:
    """One cause with its five labels, as the text has them."""
    first = group[0].finding
    return {
        "severity": first.severity,
        "mark": MARK[first.severity],
        "slug": first.slug,
        "code": next((r.code for r in report.results if r.slug == first.slug), None),
        "subject": subject(first),
        "more": len(group) - 1,
        "confidence": first.confidence,
        "what": first.message,
        "cost": first.cost,
        "gain": f"{first.gain.before:g} to {first.gain.after:g} {first.gain.unit}" if first.gain else None,
        "seen": [_seen(e) for e in first.evidence[:MAX_SEEN]],
        "folded": [_seen(e) for e in first.evidence[MAX_SEEN : MAX_SEEN + MAX_FOLDED]],
        "unshown": max(0, len(first.evidence) - MAX_SEEN - MAX_FOLDED),
        "same": [f"{subject(d.finding)}: {d.finding.message}" for d in group[1 : MAX_FOLDED + 1]],
        "also": effects(e for d in group for e in (*d.explains, *d.alike)),
        "steps": [_step(s) for s in first.remediation],
    }


def _seen(evidence: Evidence) -> dict[str, str]:
    where = f"{evidence.source}, {evidence.where}" if evidence.where else evidence.source
    return {"where": where, "value": " ".join(evidence.value.split())}


def _step(step: Step) -> dict[str, Any]:
    words = step.step.rstrip(".:") + ":" if step.command else step.step
    return {"words": words, "command": step.command, "risk": step.risk, "verify": step.verify}


def _host(store: FactStore, several: bool) -> dict[str, Any]:
    gpus = list(store.get(Gpus) or ())
    pairs = [p for p in store.get(Pairs) or () if p.path is not None]
    texts = [
        ("Bandwidth", bandwidth.view(store, _PAGE)),
        ("Tried", measurement.tried(store, _PAGE)[1:]),
        ("Host copies", measurement.copies(store, _PAGE)[1:]),
        ("Rates of pairs", measurement.matrix(store, _PAGE)),
        ("NCCL", nccl.view(store, _PAGE)),
        ("Ranks", hang.view(store, _PAGE)),
    ]
    return {
        "name": (store.host or "unnamed") if several else None,
        "gpus": [_gpu(g) for g in gpus],
        "matrix": _matrix(pairs),
        "pairs": "\n".join(pairs_view(pairs, _PAGE)).removeprefix("Pairs").lstrip(),
        "nics": nearest(store.get(Nics)),
        "texts": [(title, "\n".join(lines)) for title, lines in texts if lines],
    }


def _gpu(gpu: Gpu) -> list[str]:
    name = f"GPU{gpu.index}" if gpu.index is not None else "GPU ?"
    node = str(gpu.numa_node) if gpu.numa_node is not None else "unknown"
    return [name, gpu.name or "unknown", gpu.bdf or "unknown", link(gpu) or "unknown", node, gpu.cpu_affinity or "unknown"]


def _matrix(pairs: list[Pair]) -> dict[str, Any] | None:
    """Rows of (words, class); none where there is one pair, or more GPUs than a page is wide."""
    numbers = sorted({n for p in pairs for n in (p.a, p.b)})
    if not 3 <= len(numbers) <= MATRIX_AT_MOST:
        return None
    known = {(p.a, p.b): p for p in pairs}
    rows = []
    for a in numbers:
        cells = [known.get((min(a, b), max(a, b))) for b in numbers]
        rows.append((a, [("·", "self") if a == b else (cell(p), _tone(p)) for b, p in zip(numbers, cells, strict=True)]))
    return {"numbers": numbers, "rows": rows, "starred": any(p.pcie_only for p in pairs)}


def _tone(pair: Pair | None) -> str:
    if pair is None or pair.path is None:
        return "open"
    return "nvl" if pair.path == "NVL" else _NEAR.get(pair.path, "open")


def _open(report: Report) -> dict[str, Any]:
    """What was not looked at, in full: on a page there is room, and nobody can ask it again with -v."""
    told = [m for m in report.missing if m.fact not in (NOTHING_KNOWN, NO_GPU)]
    excerpt = bool(report.hosts) and all(s.recorded for s in report.hosts)  # type: ignore[attr-defined]
    lost = [m for m in told if m.hint is None or not excerpt]
    return {
        "missing": _rows(by_reason(lost)),
        "unjudged": [] if excerpt else _rows(unjudged(report)),
        "unknown_input": report.unknown_input,
        "known": KNOWN if any(m.fact == NOTHING_KNOWN for m in report.missing) else None,
        "requests": [] if any(m.fact == NO_GPU for m in report.missing) else requests(list(report.missing)),
        "excerpt": excerpt,
        "unmade": unmade_words(report, excerpt),
    }


def _rows(reasons: Iterable[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    return [("; ".join(names), reason) for reason, names in reasons]
