"""What a start may load: modules that cost time are imported where they are used."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nccl_logs import job

ROOT = Path(__file__).parent.parent.parent
HOST = ROOT / "tests" / "fakes" / "host"
HEALTHY = ROOT / "fixtures" / "hosts" / "h100x8-nvswitch-healthy"
# Not needed to judge recorded outputs; each of these costs milliseconds or may be absent.
NEVER = (
    "torch", "numpy", "pynvml", "pyudev", "jinja2", "tabulate", "matplotlib", "importlib.metadata", "importlib.resources",
    "email", "dataclasses", "difflib", "hashlib", "statistics", "textwrap", "subprocess", "tarfile", "gzip", "socket",
    "gpudoctor.collect.collector", "gpudoctor.collect.redact", "gpudoctor.collect.runner", "gpudoctor.probe",
    "gpudoctor.read.formats", "gpudoctor.read.recognise", "gpudoctor.report.text", "gpudoctor.parsers.nccl_lines",
)  # fmt: skip
# All that a look at a host alone loads of ours, beside the modules of the checkers. Each module costs a third of a millisecond
# and more: what only a job's log, a measurement, another format or a fault needs is imported where that is found.
HOST_ALONE = {
    "": (
        "bdf", "checkers", "chipsets", "cli", "collect", "correlate", "cpulist", "discover", "engine", "expect", "facts", "ingest", "judge",
        "median", "model", "nccl_defaults", "parsers", "parts", "pattern", "pcie", "read", "record", "report", "shipped", "xids",
    ),
    # Beside the checkers' own: what several share, and what the entries of the catalogue stand in.
    "checkers": (
        "acs_paths", "base", "boot_width", "gpu_links", "isolation", "job_causes", "nccl_causes", "nccl_rules", "nccl_switches",
        "nvlink_matrix", "nvlink_view", "traffic", "xid_remedy",
    ),
    "cli": ("check", "ending", "look", "main", "options", "output", "progress"),
    "collect": ("capture", "givers", "probes", "snapshot"),
    "correlate": ("causes", "diagnose"),
    "expect": ("opinion", "peers"),  # the limits that the catalogue names
    "facts": (
        "bandwidth", "base", "gpu", "hang", "join", "kernel", "launch", "machine", "nccl", "outcomes", "pci", "presence", "store", "system",
        "topology", "trials",
    ),
    "parsers": (
        "fm_service", "kernel_line", "kernel_log", "kernel_told", "lspci", "lspci_block", "lspci_head", "machine_json", "nvml_json", "nvml_links", "pci_json", "probe_json",
        "rdma_json", "smi_failure", "smi_fields", "smi_gpus", "smi_nvlink", "smi_qx", "smi_topo", "system_json", "topo_matrix",
    ),
    "read": ("compiled", "kernel_words", "section", "source", "text"),
    "report": ("blocks", "layout", "not_read", "text", "topology"),
}  # fmt: skip
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


def within(names: tuple[str, ...], modules: set[str]) -> set[str]:
    """Those of `modules` that are one of `names` or below it."""
    return {m for m in modules if m.startswith(tuple(f"{n}." for n in names)) or m in names}


@pytest.fixture(scope="module")
def check() -> set[str]:
    return loaded("check", "--format", "json", "--from", str(HOST))


def test_a_check_of_a_snapshot_loads_what_it_needs_only(check: set[str]) -> None:
    assert {"gpudoctor.judge", "gpudoctor.parsers.smi_qx", "gpudoctor.report.jsonout"} <= check  # it did run
    assert within(NEVER, check) == set()


def test_a_look_at_a_host_alone_loads_nothing_of_a_job() -> None:
    modules = loaded("check", "--from", str(HEALTHY))
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    points = setup["options.entry_points"]["gpudoctor.checkers"].strip().splitlines()
    needed = {line.partition("=")[2].partition(":")[0].strip() for line in points}
    assert needed <= modules  # it did run
    needed |= {".".join(filter(None, ("gpudoctor", part, name))) for part, names in HOST_ALONE.items() for name in names}
    # Import it where it is used; only what every look needs belongs in the list.
    maybe = {"gpudoctor", "gpudoctor.read._lines"}  # the second where it was compiled
    assert sorted(within(("gpudoctor",), modules) - needed - maybe) == []
    assert sorted(needed - modules) == []  # the list says no more than is true
    assert within(tuple(n for n in NEVER if n not in ("textwrap", "gpudoctor.report.text")), modules) == set()


def test_a_log_in_order_needs_no_table_of_complaints(tmp_path: Path) -> None:
    log = tmp_path / "log"
    toml = ("tomllib", "tomli")  # in which that table is written
    for warning, needed in (("", False), ("vm:1:2 [0] misc/socket.cc:47 NCCL WARN Connection reset by peer\n", True)):
        log.write_text("\n".join(job(2)) + "\n" + warning)
        assert bool(within(toml, loaded("check", "--from", str(log)))) is needed


def test_help_loads_no_more_than_the_command_line() -> None:
    modules = loaded("--help")
    assert "gpudoctor.cli.main" in modules
    assert within(HELP_NEVER, modules) == set()
    assert within(("gpudoctor",), modules) == {"gpudoctor", "gpudoctor.cli", "gpudoctor.cli.ending", "gpudoctor.cli.main"}


def test_the_guard_sees_what_lies_below_a_name() -> None:
    assert within(("json", "torch"), {"json.decoder", "jsonout", "torch", "os"}) == {"json.decoder", "torch"}
