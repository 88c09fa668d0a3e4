"""nvbandwidth's text: devices, matrices, and what is nobody's own rate."""

import pytest

from gpudoctor.facts.bandwidth import HostCopies, PairRates
from gpudoctor.parsers import nvbandwidth
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise, report, slugs

TEXT = (FIXTURES / "outputs" / "nvbandwidth" / "two-gpus.txt").read_text()


def facts(text):
    (section,) = [s for s in recognise(text) if s.kind == "nvbandwidth"]
    found = list(nvbandwidth.parse(section))
    copies = [c for f in found if isinstance(f, HostCopies) for c in f]
    return copies, [r for f in found if isinstance(f, PairRates) for r in f]


def test_copies_and_pairs():
    copies, rates = facts(TEXT)
    assert [(c.bdf, c.name, c.to_device_gbs, c.from_device_gbs) for c in copies] == [
        ("0000:00:06.0", "NVIDIA H200", 55.33, None),
        ("0000:00:07.0", "NVIDIA H200", 21.31, None),
    ]
    # A pair counts with its slower direction.
    assert [(r.a, r.b, r.gbs, r.what, r.a_bdf, r.b_name) for r in rates] == [(0, 1, 395.87, "copy read", "0000:00:06.0", "NVIDIA H200")]
    assert copies[1].at("to_device_gbs").where == "line 15"


def test_tests_in_which_gpus_share_links_are_passed_over():
    copies, rates = facts(TEXT.replace("host_to_device_memcpy_ce", "all_to_host_memcpy_ce").replace("device_to_device_memcpy_read_ce", "all_to_one_read_ce"))
    assert (copies, rates) == ([], [])


def test_without_the_list_of_devices_the_number_stays():
    copies, rates = facts("\n".join(line for line in TEXT.splitlines() if "Device" not in line) + "\n")
    assert [(c.gpu, c.bdf) for c in copies] == [(0, None), (1, None)]
    assert rates[0].a_bdf is None


def test_one_direction_alone_is_no_pair():
    _, rates = facts(TEXT.replace(" 1    395.87       N/A", ""))
    assert rates == []


def test_a_long_line_and_noise():
    with pytest.raises(Unparsable):
        parse("nvbandwidth", "Device 0: a" + " " * 50_000 + "\nnothing\n")


ENDED = (
    "nvbandwidth Version: v0.8\nBuilt from Git version: v0.8\n\nCUDA Runtime Version: 12060\nCUDA Driver Version: 12060\nDriver Version: 540.4.0\n\n"
    "Device 0: Orin (00000000:00:00)\n\nRunning host_to_device_memcpy_ce.\n"
)


@pytest.mark.parametrize(
    "line",
    [
        "NVML_ERROR: [Not Found] in expression nvmlDeviceGetHandleByUUID(s, &device) in void setOptimalCpuAffinity(int)() : inline_common.h:142",
        "[CUDA_ERROR_OUT_OF_MEMORY] out of memory in expression cuMemAlloc(&buffer, size) in DeviceBuffer() : memcpy.cpp:40",
    ],
)
def test_a_call_that_failed_ended_it(line):
    result = report("check", "--from", "-", stdin=f"{ENDED}{line}\n".encode())[1]
    assert [d["cause"] for d in result["diagnoses"] if d["severity"] == "error"] and slugs(result) & {"bandwidth-failed", "cuda-error"}


def test_a_run_that_goes_on_has_not_failed():
    assert not slugs(report("check", "--from", "-", stdin=ENDED.encode())[1])
