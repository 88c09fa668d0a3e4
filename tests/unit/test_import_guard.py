"""What a start may load: modules that cost time are imported where they are used."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HOST = ROOT / "tests" / "fakes" / "host"
# Not needed to judge recorded outputs; each of these costs milliseconds or may be absent.
NEVER = (
    "torch", "numpy", "pynvml", "pyudev", "jinja2", "tabulate", "matplotlib", "importlib.metadata", "importlib.resources",
    "email", "dataclasses", "difflib", "hashlib", "statistics", "textwrap", "subprocess", "tarfile", "gzip", "socket",
    "gpudoctor.collect.collector", "gpudoctor.collect.redact", "gpudoctor.collect.runner", "gpudoctor.probe",
    "gpudoctor.read.formats", "gpudoctor.read.recognise", "gpudoctor.report.text", "gpudoctor.parsers.nccl_lines",
)  # fmt: skip
# click lays out its help with textwrap.
HELP_NEVER = (
    *(n for n in NEVER if n != "textwrap"), "json", "xml", "pyexpat", "gpudoctor.checkers", "gpudoctor.parsers", "gpudoctor.facts", "gpudoctor.report",
    "gpudoctor.read", "gpudoctor.ingest", "gpudoctor.engine", "gpudoctor.judge", "gpudoctor.discover", "gpudoctor.model",
)  # fmt: skip


# `-X importtime` would not do: it passes over what importlib.import_module loads, and so over parsers and checkers.
_RUN = """
import sys
sys.argv[0] = "gpudoctor"
try:
    from gpudoctor.cli.main import main
    main()
finally:
    sys.stderr.write("\\nLOADED " + " ".join(sys.modules))
"""


def loaded(*arguments: str) -> set[str]:
    """The modules that gpudoctor loads beyond what this interpreter and click load anyway."""
    bare = _modules("import click, sys; sys.stderr.write('LOADED ' + ' '.join(sys.modules))")
    return _modules(_RUN, *arguments) - bare


def _modules(program: str, *arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert "LOADED " in done.stderr, done.stderr
    return set(done.stderr.rpartition("LOADED ")[2].split())


def within(names: tuple[str, ...], modules: set[str]) -> list[str]:
    """Those of `modules` that are one of `names` or below it."""
    return sorted(m for m in modules if m.startswith(tuple(f"{n}." for n in names)) or m in names)


@pytest.fixture(scope="module")
def check() -> set[str]:
    return loaded("check", "--format", "json", "--from", str(HOST))


def test_a_check_of_a_snapshot_loads_what_it_needs_only(check: set[str]) -> None:
    assert {"gpudoctor.judge", "gpudoctor.parsers.smi_qx", "gpudoctor.report.jsonout"} <= check  # it did run
    assert within(NEVER, check) == []


def test_help_loads_no_more_than_the_command_line() -> None:
    modules = loaded("--help")
    assert "gpudoctor.cli.main" in modules
    assert within(HELP_NEVER, modules) == []
    assert within(("gpudoctor",), modules) == ["gpudoctor", "gpudoctor.cli", "gpudoctor.cli.ending", "gpudoctor.cli.main"]


def test_the_guard_sees_what_lies_below_a_name() -> None:
    assert within(("json", "torch"), {"json.decoder", "jsonout", "torch", "os"}) == ["json.decoder", "torch"]
