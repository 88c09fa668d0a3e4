"""Real logs as launchers, collectors and people hand them on: whole, they say the same; damaged, less, never something else."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable

import pytest

from gpudoctor.facts.nccl import Nccl
from gpudoctor.parsers.nccl_log import parse
from gpudoctor.read.recognise import Recogniser
from tests.prop.test_cut_nccl import said
from tests.support import FIXTURES

LOGS = FIXTURES / "outputs" / "nccl-log"
NAMES = ("h200x2-2.18.3-socket", "h200x2-2.28.9-small-shm", "h200x2-2.28.9-env-mismatch", "h200x2-2.32.3-duplicate-gpu")
WHEN = "2026-03-01T12:00:01.000000001Z"
Print = Callable[[list[str]], str]


def each(shape: str, written: Callable[[str], str] = str) -> Print:
    """Every line in a shape: %r is its rank, %s the line."""
    return lambda lines: "".join(shape.replace("%r", str(n % 2)).replace("%s", written(line)) + "\n" for n, line in enumerate(lines))


def quoted(line: str) -> str:
    return json.dumps(line)


def ended(line: str) -> str:
    return json.dumps(line + "\n")


def table(columns: Callable[[str], list[str]], quoting: int = csv.QUOTE_MINIMAL) -> Print:
    def written(lines: list[str]) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n", quoting=quoting).writerows(columns(line) for line in lines)
        return out.getvalue()

    return written


WHOLE: dict[str, Print] = {
    "torchrun": each("[rank%r]:%s"),
    "torchrun, coloured": each("\x1b[34m[default%r]:\x1b[0m %s\x1b[0m"),
    "Ray": each("(Worker pid=424%r, ip=10.0.0.5) %s"),
    "Ray, repeated": each("\x1b[36m(Worker pid=424%r)\x1b[0m %s\x1b[32m [repeated 3x across cluster]\x1b[0m"),
    "Ray, repeated first": each("(Worker pid=424%r) %s [repeated 2x across cluster] (Ray deduplicates logs by default.)"),
    "vLLM": each("(EngineCore_0 pid=951) (Worker_TP%r pid=96%r) %s"),
    "SGLang": each("[2025-03-01 12:00:01 TP%r] %s"),
    "mpirun": each("Sun Mar  1 12:00:01 2026[1,%r]<stdout>:%s"),
    "prterun": each("[prterun-node07-42@1,%r]<stdout>: %s"),
    "srun": each("%r: %s"),
    "kubectl": each(f"[pod/train-%r/pytorch] {WHEN} %s"),
    "stern": each("train-%r pytorch %s"),
    "compose": each("trainer-%r  | %s"),
    "journal": each("Mar 01 12:00:01 node07 python3[424%r]: %s"),
    "journal in JSON": each('{"_PID": "42", "MESSAGE": %s, "SYSLOG_IDENTIFIER": "python3"}', quoted),
    "Docker's file": each('{"log":%s,"stream":"stderr","time":"' + WHEN + '"}', ended),
    "Kubernetes in JSON": each('{"kubernetes": {"pod_name": "w-%r"}, "log": %s, "stream": "stdout"}', ended),
    "fluentd": each(f"{WHEN}\tk8s.w-%r\t" + '{"log":%s,"stream":"stdout"}', ended),
    "JSON in JSON": each('{"message": %s, "level": "info"}', lambda line: json.dumps(json.dumps({"log": line + "\n", "stream": "stdout"}))),
    "Stackdriver": lambda lines: json.dumps([{"textPayload": line + "\n", "timestamp": WHEN} for line in lines], indent=2),
    "CloudWatch": lambda lines: json.dumps({"events": [{"timestamp": 1772366400000, "message": line} for line in lines]}),
    "CloudWatch's table": table(lambda line: ["1772366400000", line]),
    "a table, all quoted": table(lambda line: [WHEN, "node07", line], csv.QUOTE_ALL),
    "a table, text in the middle": table(lambda line: ["a1", line, WHEN, "w-0"]),
    "logfmt": each("level=info pod=w-%r msg=%s", quoted),
    "GitHub": each("2026-03-01T12:00:01.1234567Z %s"),
    "Python": each("2026-03-01 12:00:01,123 - train - INFO - %s"),
    "a list of Python's": each("    %s,", repr),
    "a list of JSON": lambda lines: json.dumps(lines, indent=2),
    "one string": lambda lines: json.dumps({"title": "slow", "body": "\n".join(lines)}) + "\n",
    "progress bars": each("\r 10%|#  | 1/10\r 20%|## | 2/10\r%s"),
    "grep, coloured": lambda lines: "\n".join(lines).replace("NCCL", "\x1b[01;31m\x1b[KNCCL\x1b[m\x1b[K") + "\n",
    "colours without escape": each("[32m%s[0m"),
    "colours shown": each("^[[32m%s^[[0m"),
    "a web page": lambda lines: "<html><pre>" + html.escape("\n".join(lines)) + "</pre></html>\n",
    "a web page's lines": each('<div class="line"><span>%s</span></div>', html.escape),
    "entities by number": lambda lines: "\n".join(lines).replace("<", "&#60;").replace(">", "&#x3E;") + "\n",
    "entities twice": lambda lines: html.escape(html.escape("\n".join(lines))) + "\n",
    "arrows": lambda lines: "\n".join(lines).replace("->", "→") + "\n",
    "quoted mail": each("> > %s"),
    "emphasis": lambda lines: "".join(f"**{line}**\n" if line else "\n" for line in lines),
    "code": lambda lines: "".join(f"`{line}`\n" if line else "\n" for line in lines),
    "hard breaks": each("%s\\"),
    "a box": each("│ %s   │"),
    "CR LF": lambda lines: "\r\n".join(lines) + "\r\n",
    "CR": lambda lines: "\r".join(lines) + "\r",
    "CR, one LF": lambda lines: "\r".join(lines) + "\n",
    "PowerShell": lambda lines: "\ufeff" + "\r\n".join(lines),
}


def lines_of(name: str) -> list[str]:
    return (LOGS / f"{name}.txt").read_text().splitlines()


def facts(text: str | bytes, encoding: str = "utf-8") -> set[tuple[object, ...]]:
    raw = text if isinstance(text, bytes) else text.encode(encoding)
    found = [f for s in Recogniser("t").run([raw]) if s.kind == "nccl-log" for f in parse(s) if isinstance(f, Nccl)]
    return said(Nccl.merge(found, lambda _: None) if found else None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WHOLE)
def test_however_it_is_handed_on(way: str, name: str) -> None:
    lines = lines_of(name)
    whole = facts("\n".join(lines) + "\n")
    assert len(whole) > 10
    got = facts(WHOLE[way](lines), "utf-16" if way == "PowerShell" else "utf-8")
    assert got == whole, (sorted(map(repr, whole - got))[:5], sorted(map(repr, got - whole))[:5])
