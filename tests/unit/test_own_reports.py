"""gpudoctor's own reports as input: they quote outputs, so nothing in them is a fact. Made here from synthetic hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpudoctor.cli.main import cli
from gpudoctor.read.own import OwnReports

HOSTS = Path("fixtures/hosts")
DOWN = HOSTS / "a100x4-sxm-gpu2-nvlinks-down"
GOLDEN = sorted([*Path("fixtures/golden").glob("*.txt"), *HOSTS.glob("*/golden/report.txt")])
NCCL = Path("fixtures/outputs/nccl-log")
REPORT = (DOWN / "golden" / "report.txt").read_text().replace("x.y.z", "0.1.0")
SAID = "gpudoctor's own report (its verdict: `"


def run(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, words)
    return ended.exit_code, ended.stdout


def judged(*given: str | Path) -> tuple[int, str]:
    return run("check", "-q", *(word for path in given for word in ("--from", str(path))))


@pytest.mark.parametrize("kind", ["text", "json", "html", "junit", "prometheus", "nagios"])
def test_a_report_is_no_output(kind: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(run("check", "--from", str(DOWN), "--format", kind)[1])
    status, words = judged(tmp_path / "r")
    assert status == 3 and SAID in words and "--from the snapshot or log" in words


def test_facts_of_its_own_too(tmp_path: Path) -> None:
    (tmp_path / "r").write_text(run("facts", "--from", str(DOWN), "--format", "json")[1])
    assert judged(tmp_path / "r")[0] == 3 and SAID in judged(tmp_path / "r")[1]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_every_line_of_it_is_known(path: Path) -> None:
    text = path.read_bytes().replace(b"x.y.z", b"0.1.0")
    assert text.startswith(b"gpudoctor 0.1.0 ")
    for size in (len(text), 700):
        own, out, rest = OwnReports(), b"", text
        while rest:
            end = rest.find(b"\n", min(size, len(rest)) - 1) + 1
            out, rest = out + own.without(rest[:end]), rest[end:]
        assert out == b"\n" * text.count(b"\n") and len(own.found) == 1


@pytest.mark.parametrize("wear", ["{}", "> {}", "    {}", "2026-01-05T10:00:07Z {}"])
@pytest.mark.parametrize("begins", ["gpudoctor ", "FAULT ", "Pairs   "])
def test_worn_or_without_its_head(wear: str, begins: str, tmp_path: Path) -> None:
    lines = REPORT.splitlines()
    skip = next(n for n, line in enumerate(lines) if line.startswith(begins))
    (tmp_path / "r").write_text("".join(wear.format(line) + "\n" for line in lines[skip:]))
    status, words = judged(tmp_path / "r")
    assert status == 3 and "gpudoctor's own report" in words


def test_complaints_that_it_quotes_are_none(tmp_path: Path) -> None:
    text = run("check", "-v", "--from", str(NCCL / "h200x2-2.28.9-killed-peer.txt"))[1]
    assert "NCCL WARN" in re.sub(r"\s+", " ", text)
    (tmp_path / "r").write_text(text)
    assert judged(tmp_path / "r")[0] == 3


@pytest.mark.parametrize("between", ["", "\n", "```\n\n```\n", "$ nvidia-smi nvlink -s\n"])
@pytest.mark.parametrize("above", [True, False])
def test_real_output_beside_it_is_read(between: str, above: bool, tmp_path: Path) -> None:
    healthy = (HOSTS / "h100x8-nvswitch-healthy" / "golden" / "report.txt").read_text().replace("x.y.z", "0.1.0")
    parts = [healthy, (DOWN / "smi-nvlink-s.out").read_text()]
    (tmp_path / "r").write_text(between.join(parts if above else parts[::-1]))
    status, words = judged(tmp_path / "r")
    assert status == 1 and "GPU2 (NVIDIA A100-SXM4-80GB) has no active NVLink" in words


def test_a_jobs_log_below_its_prologs_report_is_judged_unless_that_told_of_a_fault(tmp_path: Path) -> None:
    log = (NCCL.parent / "job-log" / "healthy.log").read_text()
    for host, status in ((HOSTS / "h100x8-nvswitch-healthy", 0), (DOWN, 3)):
        (tmp_path / "r").write_text(run("check", "--from", str(host))[1] + log)
        assert judged(tmp_path / "r")[0] == status


def test_a_matrix_below_it_keeps_its_first_line(tmp_path: Path) -> None:
    matrix = (DOWN / "smi-topo-m.out").read_text().expandtabs(8)
    (tmp_path / "bare").write_text(matrix)
    (tmp_path / "below").write_text(REPORT + "\n" + matrix)
    alone, below = (run("check", "--from", str(tmp_path / name))[1] for name in ("bare", "below"))
    picture = alone[alone.index("Pairs  ") : alone.index("PCIe") if "PCIe" in alone else None].split("\n\n")[0]
    assert picture in below


def test_a_fault_elsewhere_is_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "r").write_text(REPORT)
    assert judged(tmp_path / "r", DOWN)[0] == 1
    assert judged(tmp_path / "r", HOSTS / "rtx4090x2-healthy")[0] == 3


@pytest.mark.parametrize(
    "words",
    [
        "$ gpudoctor check\n",
        "we ran gpudoctor 0.1.0 - it found nothing\n",
        "gpudoctor 0.1.0\nPairs of ranks: 4\n",
        "pip: gpudoctor 0.1.0 - says what is wrong\n",
        "NO FAULT in what was given: 4 of 37 checks made.\n",
        'run: {"tool": {"name": "gpudoctor"}}\n',
    ],
)
def test_who_only_names_it_is_read_as_ever(words: str, tmp_path: Path) -> None:
    log = (NCCL / "h200x2-2.28.9-p2p.txt").read_text()
    (tmp_path / "log").write_text(log)
    (tmp_path / "named").write_text(words + log)
    assert judged(tmp_path / "named") == judged(tmp_path / "log") and judged(tmp_path / "log")[0] == 0


def test_a_snapshot_is_none() -> None:
    assert judged(DOWN)[0] == 1 and judged(HOSTS / "h100x8-nvswitch-healthy")[0] == 0
    manifest = (DOWN / "manifest.json").read_bytes()
    assert OwnReports().without(manifest) == manifest
