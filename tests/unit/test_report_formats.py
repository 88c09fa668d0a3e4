"""JUnit XML, Prometheus text and the Nagios line: their shape, what each finding becomes, and hostile text in all three."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRow, BandwidthRun, HostCopies, HostCopy
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import Nic, Nics, NvLink, NvLinks, Pair, Pairs
from gpudoctor.model import (
    BROKEN,
    ERROR,
    FOUND,
    NOTE,
    OK,
    SKIPPED,
    WARNING,
    CheckResult,
    Diagnosis,
    Evidence,
    Finding,
    Missing,
    Report,
    Step,
)
from gpudoctor.report import junit, nagios, prometheus
from tests.support import HERE

SEEN = (Evidence("nvidia-smi -q -x", "line 3", "x4"),)
# One text that tries every way out at once: markup, the end of a CDATA section, a label's quote, a second metric, a second
# line, performance data, a shell, terminal escapes, characters that XML cannot hold, and a change of writing direction.
HOSTILE = (
    'a<b attr="1">&amp;]]></testsuite>"} 1\nevil_metric{x="y"} 9\n# TYPE evil counter\\" | pwned=1;;; $(reboot) `id` \x1b[31m'
    "\x00\x07\ufffe\u202e'; DROP"
)


def finding(slug: str, severity: str, subject: str = "gpu:0000:41:00.0", message: str = "It is slow.") -> Finding:
    return Finding(
        slug, severity, subject, message, SEEN, remediation=(Step("Reseat it.", "lspci -vv", "hardware", "lspci"),)
    )


def report(*results: CheckResult, verdict: str = "pass", **values: Any) -> Report:
    findings = [f for r in results for f in r.findings]
    status = {"pass": 0, "fail": 1, "unknown": 3}[verdict]
    base: dict[str, Any] = {
        "source": {"kind": "live", "paths": [], "captured_at": "2026-11-29T10:11:12Z"}, "hosts": (), "missing": (), "seconds": 0.25,
        "diagnoses": tuple(Diagnosis(f) for f in findings),
    }  # fmt: skip
    return Report(results=results, verdict=verdict, exit_code=status, **{**base, **values})


FAILED = CheckResult("GD210", "pcie-width", FOUND, None, (finding("pcie-width", ERROR),))
WARNED = CheckResult("GD218", "acs", FOUND, None, (finding("acs", WARNING, "pci:0000:40:01.0"),))
NOTED = CheckResult("GD201", "path-phb", FOUND, None, (finding("path-phb", NOTE, "pair:0-1"),))
FINE = CheckResult("GD104", "xid", OK)
UNSEEN = CheckResult("GD241", "nic-far", SKIPPED, "needs the NICs: not collected")
BROKE = CheckResult("GD301", "ecc-remap", BROKEN, "ecc broke: ValueError: x")
ALL = (FAILED, WARNED, NOTED, FINE, UNSEEN, BROKE)


# --- JUnit: the Ant task's schema (windyroad/JUnit-Schema, JUnit.xsd), as rules

TOKEN = re.compile(r"\S(?:[^\t\n\r]*\S)?")
SUITE = {
    "package": TOKEN, "id": re.compile(r"\d+"), "name": TOKEN, "hostname": TOKEN, "tests": re.compile(r"\d+"),
    "timestamp": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"), "failures": re.compile(r"\d+"), "errors": re.compile(r"\d+"),
    "skipped": re.compile(r"\d+"), "time": re.compile(r"\d+(\.\d+)?"),
}  # fmt: skip
CASE = {"name": TOKEN, "classname": TOKEN, "time": re.compile(r"\d+(\.\d+)?")}
RESULT = {"failure": {"message", "type"}, "error": {"message", "type"}, "skipped": {"message"}}


def valid(text: str) -> ElementTree.Element:
    """The parsed document, held against the schema."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites" and not root.attrib
    for number, suite in enumerate(root):
        assert suite.tag == "testsuite" and set(suite.attrib) == set(SUITE)
        for name, rule in SUITE.items():
            assert rule.fullmatch(suite.attrib[name]), (name, suite.attrib[name])
        assert suite.attrib["id"] == str(number)
        tags = [child.tag for child in suite]
        cases = suite.findall("testcase")
        assert tags == ["properties", *["testcase"] * len(cases), "system-out", "system-err"]
        assert all(
            set(p.attrib) == {"name", "value"} and p.attrib["name"] for p in suite.findall("properties/property")
        )
        for case in cases:
            assert set(case.attrib) == set(CASE) and len(case) <= 1
            assert all(rule.fullmatch(case.attrib[name]) for name, rule in CASE.items())
            for result in case:
                assert set(result.attrib) == RESULT[result.tag] and len(result) == 0 and result.attrib["message"]
        assert int(suite.attrib["tests"]) == len(cases)
        for word, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[word]) == len(suite.findall(f"testcase/{tag}"))
    return root


def outcomes(text: str) -> dict[str, str]:
    return {c.attrib["name"]: c[0].tag if len(c) else "passed" for c in valid(text).iter("testcase")}


def test_junit_has_one_case_a_code_and_each_outcome() -> None:
    assert outcomes(junit.render(report(*ALL, verdict="fail"))) == {
        "GD210 pcie-width": "failure", "GD218 acs": "passed", "GD201 path-phb": "passed", "GD104 xid": "passed",
        "GD241 nic-far": "skipped", "GD301 ecc-remap": "error", "verdict": "passed",
    }  # fmt: skip


def test_junit_takes_warnings_for_failures_when_asked() -> None:
    got = outcomes(junit.render(report(*ALL, verdict="fail", fail_on=WARNING)))
    assert (got["GD210 pcie-width"], got["GD218 acs"], got["GD201 path-phb"]) == ("failure", "failure", "passed")


def test_junit_says_what_it_does_not_fail_for() -> None:
    root = valid(junit.render(report(*ALL, verdict="fail", missing=(Missing("the kernel log", "not permitted"),))))
    assert "warning: acs pci:0000:40:01.0: It is slow." in root.findtext("testsuite/system-out", "")
    assert "not read: the kernel log: not permitted" in root.findtext("testsuite/system-err", "")
    failure = root.find("testsuite/testcase/failure")
    assert (
        failure is not None
        and failure.attrib["type"] == "error"
        and "[hardware]: Reseat it.  lspci -vv" in str(failure.text)
    )


def test_junit_is_never_green_where_nothing_could_be_told() -> None:
    missing = (Missing("the list of GPUs", "nvidia-smi hung", needed=True),)
    root = valid(junit.render(report(FINE, verdict="unknown", missing=missing)))
    error = root.find("testsuite/testcase[@name='verdict']/error")
    assert (
        error is not None and error.attrib["message"] == "could not tell: not read: the list of GPUs: nvidia-smi hung"
    )


def test_junit_of_a_paste_has_a_moment_all_the_same() -> None:
    suite = valid(junit.render(report(FINE, source={"kind": "recorded", "paths": ["x"]})))[0]
    assert suite.attrib["timestamp"] == junit.NO_DATE and suite.attrib["hostname"] == "localhost"


def test_junit_survives_hostile_text() -> None:
    bad = CheckResult("GD210", "pcie-width", FOUND, None, (finding("pcie-width", ERROR, HOSTILE, HOSTILE),))
    skipped = CheckResult("GD211", "pcie-speed", SKIPPED, HOSTILE)
    store = FactStore(HOSTILE, (), recorded=False)
    text = junit.render(
        report(bad, skipped, verdict="fail", hosts=(store,), missing=(Missing(HOSTILE, HOSTILE),), notes=(HOSTILE,))
    )
    assert len(valid(text).findall("testsuite/testcase")) == 3
    assert not re.search("[\x00-\x08\x0b-\x1f\ufffe\u202e]", text)


# --- Prometheus: read back by the official client


def facts() -> FactStore:
    at: dict[str, Any] = {"origin": HERE}
    gpus = (
        Gpu(
            index=0,
            bdf="0000:41:00.0",
            name="NVIDIA H200",
            width=16,
            max_width=16,
            speed_gts=32.0,
            max_speed_gts=32.0,
            replays=3,
            **at,
        ),
        Gpu(index=1, bdf="0000:42:00.0", name="NVIDIA H200", width=8, max_width=16, **at),
    )
    run = BandwidthRun(
        collective="all_reduce", nranks=2, completed=True, **at,
        rows=(BandwidthRow(size=8, busbw_out_gbs=0.1, time_out_us=19.0), BandwidthRow(size=1 << 30, busbw_out_gbs=332.5)),
    )  # fmt: skip
    return FactStore(
        "node07",
        (
            Gpus(gpus), Pairs((Pair(a=0, b=1, path="NVL", nvlinks=18, **at),)), Bandwidth((run,)),
            NvLinks((NvLink(gpu=0, link=3, active=True, speed_gbs=26.5, replay=7, **at), NvLink(gpu=1, link=3, active=False, **at))),
            Nics((Nic(name="NIC0", device="mlx5_0", state="active", rate_gbps=400.0, **at), Nic(name="NIC1", **at))),
            HostCopies((HostCopy(gpu=0, to_device_gbs=55.0, **at),)),
        ),
    )  # fmt: skip


def scraped(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample as Prometheus' own client reads it; it raises on what is malformed."""
    assert text.endswith("\n")
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("gauge", "counter")
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} twice: the server would refuse the whole file"
            assert sample.name.startswith("gpudoctor_") and (family.type == "counter") == sample.name.endswith("_total")
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return (f"gpudoctor_{name}", frozenset(labels.items()))


def test_prometheus_in_base_units() -> None:
    got = scraped(prometheus.render(report(*ALL, verdict="fail", hosts=(facts(),))))
    assert got[key("verdict", verdict="fail")] == 1 and got[key("verdict", verdict="pass")] == 0
    assert got[key("finding", slug="pcie-width", severity="error", subject="gpu:0000:41:00.0")] == 1
    assert got[key("findings", severity="error")] == got[key("findings", severity="note")] == 1
    assert got[key("check_status", code="GD104", slug="xid", status="ok")] == 1
    assert got[key("check_status", code="GD104", slug="xid", status="error")] == 0
    assert got[key("gpu_pcie_link_width", gpu="1")] == 8 and got[key("gpu_pcie_link_width_max", gpu="1")] == 16
    assert got[key("gpu_pcie_link_transfers_per_second", gpu="0")] == 32e9
    assert got[key("gpu_pcie_replays_total", gpu="0")] == 3
    assert (
        got[key("nvlink_active", gpu="1", link="3")] == 0
        and got[key("nvlink_errors_total", gpu="0", link="3", kind="replay")] == 7
    )
    assert got[key("nvlink_bandwidth_bytes_per_second", gpu="0", link="3")] == 26.5e9
    assert got[key("nic_rate_bytes_per_second", device="mlx5_0")] == 50e9
    assert got[key("pair_info", a="0", b="1", path="NVL")] == 1
    assert got[key("bus_bandwidth_bytes_per_second", collective="all_reduce", ranks="2")] == 332.5e9
    assert got[key("collective_latency_seconds", collective="all_reduce", ranks="2")] == pytest.approx(19e-6)
    assert got[key("host_copy_bytes_per_second", gpu="0", direction="to_device")] == 55e9


def test_prometheus_has_no_series_for_what_is_not_known() -> None:
    got = scraped(prometheus.render(report(FINE, hosts=(facts(),))))
    assert key("gpu_pcie_link_transfers_per_second", gpu="1") not in got and key("nic_active", device="NIC1") not in got
    assert key("nvlink_bandwidth_bytes_per_second", gpu="1", link="3") not in got
    assert key("host_copy_bytes_per_second", gpu="0", direction="from_device") not in got


def test_prometheus_names_hosts_only_where_there_are_several() -> None:
    other = FactStore("node08", (Gpus((Gpu(index=0, width=4, origin=HERE),)),))
    got = scraped(prometheus.render(report(FINE, hosts=(facts(), other))))
    assert got[key("gpu_pcie_link_width", gpu="0", host="node08")] == 4
    assert got[key("gpu_pcie_link_width", gpu="0", host="node07")] == 16


def test_prometheus_labels_cannot_be_left() -> None:
    twice = (finding("acs", WARNING, HOSTILE), finding("acs", WARNING, HOSTILE))
    store = FactStore(HOSTILE, (Gpus((Gpu(index=0, name=HOSTILE, bdf=HOSTILE, origin=HERE),)),))
    text = prometheus.render(report(CheckResult("GD218", "acs", FOUND, None, twice), verdict="pass", hosts=(store,)))
    got = scraped(text)
    assert not any("evil" in name for name, _ in got) and not re.search("[\x00-\x09\x0b-\x1f]", text)
    subject = next(dict(labels)["subject"] for name, labels in got if name == "gpudoctor_finding")
    assert 'a<b attr="1">' in subject and '\\"' in subject


# --- Nagios


@pytest.mark.parametrize(
    ("results", "verdict", "word", "status"),
    [
        ((FINE, NOTED), "pass", "OK", 0), ((FINE, WARNED), "pass", "WARNING", 1), ((FAILED, WARNED), "fail", "CRITICAL", 2),
        ((FINE,), "unknown", "UNKNOWN", 3), ((WARNED,), "unknown", "UNKNOWN", 3), ((WARNED,), "fail", "WARNING", 1),
    ],
)  # fmt: skip
def test_nagios_words_and_status(results: tuple[CheckResult, ...], verdict: str, word: str, status: int) -> None:
    made = report(*results, verdict=verdict)
    assert nagios.render(made).startswith(f"GPUDOCTOR {word} - ") and nagios.exit_status(made) == status


PERFORMANCE = re.compile(r"[a-z]+=\d+(\.\d+)?(s|B)?;;;0")


def nagios_line(text: str) -> tuple[str, list[str]]:
    assert text.endswith("\n") and text.count("\n") == 1 and text.count("|") == 1
    words, _, numbers = text.rstrip("\n").partition(" | ")
    assert all(PERFORMANCE.fullmatch(n) for n in numbers.split()), numbers
    return words, numbers.split()


def test_nagios_line_and_numbers() -> None:
    words, numbers = nagios_line(nagios.render(report(*ALL, verdict="fail", hosts=(facts(),))))
    assert words == "GPUDOCTOR CRITICAL - pcie-width gpu:0000:41:00.0: It is slow. (+1 more)"
    assert numbers == [
        "errors=1;;;0",
        "warnings=1;;;0",
        "checks=4;;;0",
        "time=0.25s;;;0",
        "gpus=2;;;0",
        "busbw=332500000000B;;;0",
    ]


def test_nagios_says_what_was_missing() -> None:
    text = nagios.render(
        report(FINE, verdict="unknown", missing=(Missing("the list of GPUs", "nvidia-smi hung", needed=True),))
    )
    assert nagios_line(text)[0] == "GPUDOCTOR UNKNOWN - could not tell: the list of GPUs: nvidia-smi hung"


def test_nagios_line_cannot_be_left() -> None:
    bad = CheckResult("GD210", "pcie-width", FOUND, None, (finding("pcie-width", ERROR, "host", HOSTILE * 20),))
    words, numbers = nagios_line(nagios.render(report(bad, verdict="fail")))
    assert not re.search("[\x00-\x1f`$<>\"'\\\\]", words) and len(words) < 450 and len(numbers) == 4
