import pytest

from gpudoctor.checkers.driver import DriverAnswers
from gpudoctor.checkers.version_mismatch import VersionMismatch
from gpudoctor.facts.gpu import Driver, DriverEntry
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.system import Software
from gpudoctor.model import CannotTell, Evidence, Finding
from tests.builders import host
from tests.support import HERE, check, findings, parse, recognise

FROM = Evidence("collect_env", "line 2", "PyTorch version: …")


def driver(**fields):
    return Driver(DriverEntry(origin=HERE, **fields))


def found(*facts):
    return findings(VersionMismatch(), *facts).get(("version-mismatch", "host"))


def test_library_and_module_differ():
    said = found(driver(version="550.54.15", module_version="535.129.03"))
    assert (said.severity, said.confidence) == ("error", "certain")
    assert "550.54.15" in said.message and "535.129.03" in said.message
    assert found(driver(version="550.54.15", module_version="535.129.03"), *host().facts()).confidence == "likely"


def test_equal_versions():
    assert check(VersionMismatch(), driver(version="550.54.15", module_version="550.54.15")) == []
    assert check(VersionMismatch(), driver(version="550.54.15")) == []


def test_nvidia_smis_own_words():
    said = found(driver(failure="Failed to initialize NVML: Driver/library version mismatch", module_version="550.54.15"))
    assert said.severity == "error"
    assert found(driver(failure="Failed to initialize NVML: Unknown Error")) is None
    # Another nvidia-smi is first on the PATH, while NVML answers in the version of the module.
    words = "Failed to initialize NVML: Driver/library version mismatch"
    assert check(VersionMismatch(), driver(failure=words, version="580.159.04", module_version="580.159.04")) == []


def log(**more):
    return KernelLog((KernelEvent(kind="version-mismatch", text="API mismatch", origin=HERE, **more),))


def test_the_kernel_log():
    assert found(log()).confidence == "likely"
    assert found(log(stale=True)) is None
    works = check(VersionMismatch(), log(), driver(version="550.54.15"), *host().facts())
    assert [type(s) for s in works] == [CannotTell]


@pytest.mark.parametrize(
    ("versions", "entry"),
    [
        ({"torch": "2.11.0+cu130"}, {"cuda_version": "12.4", "version": "550.54.15"}),
        ({"torch": "2.11.0", "cuda": "13.0"}, {"cuda_version": "12.8"}),
        ({"torch": "2.4.0+cu124"}, {"version": "470.82.01"}),
    ],
)
def test_cuda_above_the_drivers_major(versions, entry):
    assert found(driver(**entry), Software(versions, FROM)).severity == "error"


@pytest.mark.parametrize(
    ("versions", "entry"),
    [
        ({"torch": "2.6.0+cu124"}, {"cuda_version": "12.2"}),  # a newer minor version works
        ({"torch": "2.0.1+cu118"}, {"cuda_version": "13.0"}),
        ({"torch": "2.9.0+cpu"}, {"cuda_version": "11.4"}),
        ({"torch": "2.11.0+cu130"}, {"version": "580.65.06"}),
        ({"torch": "2.9.0a0+50eac811a6.nv25.09", "cuda": "13.0"}, {"version": "570.124.06"}),  # brings cuda-compat
        ({"nccl": "2.28.9"}, {"cuda_version": "12.2"}),
    ],
)
def test_cuda_the_driver_serves(versions, entry):
    assert check(VersionMismatch(), driver(**{"version": "550.54.15", **entry}), Software(versions, FROM)) == []


def test_version_not_known():
    assert [type(s) for s in check(VersionMismatch(), KernelLog(()))] == [CannotTell]


def test_the_same_words_ten_times_are_said_once() -> None:
    words = "Failed to initialize NVML: Driver/library version mismatch\n"
    (said,) = parse("smi-failure", words * 10)
    assert isinstance(said, Driver) and said.entry.failure == words.strip()


DAEMON = "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: error running hook #0: stderr: "


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("initialization error: nvml error: driver/library version mismatch: unknown.", ("version-mismatch", "updated and the host not yet rebooted")),
        ("requirement error: unsatisfied condition: cuda>=12.6, please update your driver to a newer version: unknown", ("version-mismatch", "asks for cuda>=12.6")),
        ("initialization error: nvml error: driver not loaded: unknown", ("driver-unavailable", "driver not loaded")),
        ("initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file", ("driver-unavailable", "libnvidia-ml.so.1")),
    ],
)
@pytest.mark.parametrize("before", [DAEMON, ""])
def test_what_the_container_toolkit_says_instead_of_a_start(before: str, words: str, said: tuple[str, str]) -> None:
    (section,) = recognise(f"{before}nvidia-container-cli: {words}\n")
    facts = parse(section.kind, section.lines[0].text + "\n")
    made = [f for checker in (VersionMismatch(), DriverAnswers()) for f in check(checker, *facts) if isinstance(f, Finding)]
    assert (made[0].slug, made[0].severity) == (said[0], "error") and said[1] in made[0].message


def test_other_errors_of_the_container_toolkit_are_not_the_drivers() -> None:
    for words in ("ldcache error: process /sbin/ldconfig failed with error code: 1", "device error: 9: unknown device", "mount error: file creation failed"):
        assert [f for s in recognise(f"nvidia-container-cli: {words}\n") for f in parse(s.kind, "".join(x.text + "\n" for x in s))] == []
