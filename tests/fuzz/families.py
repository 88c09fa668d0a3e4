"""What is fuzzed: families of parsers, where their seeds lie, and what must hold for any bytes whatever.

A family's `examine(data)` raises `Broken` (or whatever the code under test raised) when a promise does not hold. It
needs no fuzzer: the tests put the seeds and everything a fuzzer once found through the same functions.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple
from xml.etree import ElementTree

from gpudoctor.collect.snapshot import load as load_snapshot
from gpudoctor.discover import Plugins, load
from gpudoctor.ingest import Intake, take
from gpudoctor.judge import judge
from gpudoctor.model import Report
from gpudoctor.policy.load import PolicyError
from gpudoctor.policy.load import load as load_policy
from gpudoctor.read.section import Section, Unparsable, parser_module
from gpudoctor.read.source import Document, Folder, Unreadable, open_path
from gpudoctor.read.text import lines_of
from gpudoctor.report import facts, jsonout, junit, nagios, prometheus, text
from tests.support import FIXTURES, ROOT

OUTPUTS = FIXTURES / "outputs"
FOUND = FIXTURES / "fuzz"  # what a fuzzer found once: <family>/<what it was>
MAX_SEED = 64 << 10
# C0 but newline and tab, DEL, C1, and the marks that turn the direction of a line: a terminal obeys all of them.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Broken(Exception):
    """A promise that did not hold."""


class Family(NamedTuple):
    name: str
    kinds: tuple[str, ...]  # formats of read/table.py or whole documents, whose parsers it drives
    examine: Callable[[bytes], None]
    more: Callable[[], Iterator[bytes]] = lambda: iter(())  # seeds that are no output of a tool

    def seeds(self) -> Iterator[bytes]:
        """Bundled outputs of its kinds, then what was found before."""
        for kind in self.kinds:
            for path in sorted((OUTPUTS / kind).glob("*")):
                if path.name != "ORIGIN.md":
                    yield path.read_bytes()[:MAX_SEED]
        yield from self.more()
        yield from (path.read_bytes() for path in sorted((FOUND / self.name).glob("*")))


@lru_cache(maxsize=1)
def _plugins() -> Plugins:
    return load()


def _intake(*documents: bytes, step: int = 1 << 20) -> Intake:
    def chunks(data: bytes) -> Callable[[], Iterator[bytes]]:
        return lambda: (data[at : at + step] for at in range(0, len(data), step))

    return take((), [Document(name=f"fuzz-{n}.txt", chunks=chunks(data)) for n, data in enumerate(documents)])


def _whole(intake: Intake) -> None:
    """No parser broke, and the facts are JSON as the contract has it."""
    for lost in intake.missing:
        if " broke: " in lost.reason:
            raise Broken(lost.reason)
    json.dumps(facts.facts_json(intake.stores), allow_nan=False)


def _direct(kind: str, data: bytes) -> None:
    """A parser alone, on lines that recognition would not have given it: a cut excerpt with a known command."""
    section = Section(kind=kind, source="fuzz", lines=tuple(lines_of([data])), content=data)
    try:
        for _ in importlib.import_module(parser_module(kind)).parse(section):
            pass
    except Unparsable:
        pass


def of_text(kinds: tuple[str, ...], direct: tuple[str, ...] | None = None) -> Callable[[bytes], None]:
    """The first byte chooses: recognised as any text is, or given to one parser as it stands."""
    alone = kinds if direct is None else direct

    def examine(data: bytes) -> None:
        choice = data[0] if data else 0
        if choice >= 128 and alone:
            _direct(alone[choice % len(alone)], data[1:])
        else:
            _whole(_intake(data))

    return examine


def of_log(data: bytes) -> None:
    """A log read in other pieces is the same log."""
    step = 1 + (data[0] if data else 0) * 7
    at_once, in_pieces = _intake(data), _intake(data, step=step)
    _whole(at_once)
    one, other = (json.dumps(facts.facts_json(i.stores), sort_keys=True) for i in (at_once, in_pieces))
    if one != other:
        raise Broken(f"read in pieces of {step} bytes it says something else:\n{one[:2000]}\n{other[:2000]}")


def of_report(data: bytes) -> None:
    """Any bytes to every format: valid, and nothing in it that a terminal or a browser would obey."""
    intake = _intake(*data.split(b"\x00\xff", 3))
    _whole(intake)
    report = judge(intake, _plugins(), {"kind": "recorded", "paths": ["fuzz.txt"]})
    for result in report.results:
        if result.status == "error":
            raise Broken(f"{result.slug}: {result.reason}")
    if not intake.recognised and report.exit_code == 0:
        raise Broken("nothing was recognised, and it passes")
    _formats(report)


def _formats(report: Report) -> None:
    screen = (text.render(report), text.render(report, verbose=2), text.verdict_line(report), nagios.render(report))
    for page in screen:
        obeyed = _OBEYED.search(page)
        if obeyed:
            raise Broken(f"{obeyed.group()!r} reached the screen: {page[max(0, obeyed.start() - 80) : obeyed.end() + 40]!r}")
    if "\n" in nagios.render(report).rstrip("\n"):
        raise Broken("Nagios' line has several")
    json.loads(jsonout.render(report), parse_constant=_no_number)
    ElementTree.fromstring(junit.render(report))
    for line in prometheus.render(report).splitlines():
        if not line.startswith("#") and not _SAMPLE.fullmatch(line):
            raise Broken(f"no Prometheus sample: {line[:200]!r}")


_SAMPLE = re.compile(r'[a-z_]+(?:\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (?:[-+]?[\d.]+(?:e[-+]?\d+)?)(?: \d+)?')


def _no_number(word: str) -> float:
    raise Broken(f"{word} is no JSON")


def of_archive(data: bytes) -> None:
    """A snapshot, as files beside a manifest or as the archive itself: whatever it holds, nothing but losses."""
    if data[:1] == b"m":
        parts = data[1:].split(b"\x00\xff")
        held = dict(zip(("manifest.json", *(f"probe-{n}.txt" for n in range(len(parts)))), parts, strict=False))
        _whole(take((load_snapshot(Folder(name="fuzz", names=tuple(held), read=held.get)),)))
        return
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        archive.write(data)
        archive.flush()
        try:
            _whole(take((), open_path(archive.name)))
        except Unreadable:
            pass


def _archives() -> Iterator[bytes]:
    """A real snapshot both ways."""
    host = FIXTURES / "hosts" / "rtx4090x2-healthy"
    manifest = json.loads((host / "manifest.json").read_bytes())
    files = [entry["file"] for entry in manifest["probes"] if entry.get("file")][:4]
    yield b"m" + b"\x00\xff".join([(host / "manifest.json").read_bytes(), *((host / f).read_bytes() for f in files)])[:MAX_SEED]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("manifest.json", *files[:2]):
            tar.add(host / name, name)
    yield out.getvalue()


def _policies() -> Iterator[bytes]:
    for path in sorted((ROOT / "gpudoctor" / "data" / "policies").glob("*.toml")):
        yield path.read_bytes()


def of_policy(data: bytes) -> None:
    """A policy is read, or refused with its mistakes; nothing else."""
    try:
        words = data.decode()
    except UnicodeDecodeError:
        return
    try:
        load_policy(words, "fuzz.toml", frozenset(c.slug for c in _plugins().causes))
    except PolicyError:
        pass


def _family(name: str, *kinds: str, direct: tuple[str, ...] | None = None) -> Family:
    return Family(name, kinds, of_text(kinds, direct))


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _family("topology", "smi-topo", "topo-xml"),
        _family("nvidia-smi", "smi-q", "smi-qx", "smi-table", "smi-csv", "smi-nvlink"),
        _family("pci", "lspci", "pci-json"),
        _family("host", "lscpu", "numactl-h", "df", "shm-mount", "rdma-link", "ulimit", "lsmod", "ibstat", "collect-env", "kernel-log", "kernel-boot"),
        _family("probes", "nvml-json", "system-json", "job-json", "pci-json"),
        Family("nccl-log", ("nccl-log", "job-log"), of_log),
        _family("measured", "nccl-tests", "nccl-tests-json", "nvbandwidth", "p2p-test"),
        _family("dcgm", "dcgm", direct=("dcgm", "dcgm-json")),
        _family("hang", "flight-recorder", "ras", "torch-watchdog", direct=("flight-recorder", "ras", "ras-json", "torch-watchdog")),
        Family("report", ("smi-topo", "nccl-log", "smi-nvlink", "kernel-log", "lspci", "ras", "nccl-tests"), of_report),
        Family("archive", (), of_archive, _archives),
        Family("policy", (), of_policy, _policies),
    )
}
