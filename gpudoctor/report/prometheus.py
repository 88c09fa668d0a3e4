"""Report to Prometheus' text format, for the node exporter's textfile collector.

Names end in their base unit (bytes, seconds), a finding is a series of value 1, and what is not known has no series:
never a 0 that would be read as a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator

import gpudoctor
from gpudoctor import pcie
from gpudoctor.facts.bandwidth import Bandwidth, HostCopies
from gpudoctor.facts.gpu import Driver, Gpu, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import Nics, NvLinks, Pairs
from gpudoctor.model import BROKEN, FOUND, OK, SEVERITIES, SKIPPED, Report
from gpudoctor.read.text import clean

_VERDICTS = ("pass", "fail", "unknown")
_STATUSES = (OK, FOUND, SKIPPED, BROKEN)
_GBS = 1e9  # GB/s are 10^9 bytes a second
_GTS = 1e9
_GBITS = 1e9 / 8

Labels = tuple[tuple[str, object], ...]


class _Page:
    """Metrics in the order of first use; series of one name stay together, each once."""

    def __init__(self) -> None:
        self.kinds: dict[str, tuple[str, str]] = {}
        self.series: dict[str, dict[str, float]] = {}

    def add(self, name: str, kind: str, words: str, value: float | None, labels: Labels = ()) -> None:
        if value is None:
            return
        self.kinds.setdefault(name, (kind, words))
        self.series.setdefault(name, {}).setdefault(_labels(labels), float(value))

    def gauge(self, name: str, words: str, value: float | None, labels: Labels = ()) -> None:
        self.add(f"gpudoctor_{name}", "gauge", words, value, labels)

    def counter(self, name: str, words: str, value: float | None, labels: Labels = ()) -> None:
        self.add(f"gpudoctor_{name}", "counter", words, value, labels)

    def lines(self) -> Iterator[str]:
        for name, (kind, words) in self.kinds.items():
            yield f"# HELP {name} {words}"
            yield f"# TYPE {name} {kind}"
            for labels, value in self.series[name].items():
                yield f"{name}{labels} {_number(value)}"


def render(report: Report) -> str:
    """The page in Prometheus' text format, in base units."""
    page = _Page()
    page.gauge("info", "The program that wrote this.", 1, (("version", gpudoctor.__version__),))
    for verdict in _VERDICTS:
        page.gauge(
            "verdict",
            "1 for the verdict that was given, 0 for the others.",
            verdict == report.verdict,
            (("verdict", verdict),),
        )
    page.gauge("exit_status", "Exit status: 0 in order, 1 a fault, 3 could not tell.", report.exit_code)
    page.gauge("duration_seconds", "Time that the look and the judgement took.", report.seconds)
    page.gauge("missing", "Sources that could not be read.", len(report.missing))
    findings = [f for r in report.results for f in r.findings]
    for severity in SEVERITIES:
        page.gauge(
            "findings",
            "Findings by severity.",
            sum(f.severity == severity for f in findings),
            (("severity", severity),),
        )
    for finding in findings:
        labels = (
            ("slug", finding.slug),
            ("severity", finding.severity),
            ("subject", finding.subject),
            *_host(finding.host),
        )
        page.gauge("finding", "1 for everything that was found.", 1, labels)
    for result in report.results:
        for status in _STATUSES:
            labels = (("code", result.code), ("slug", result.slug), ("status", status))
            page.gauge(
                "check_status", "1 for the outcome of this check, 0 for the others.", status == result.status, labels
            )
    for store in report.hosts:
        assert isinstance(store, FactStore)
        _facts(page, store, _host(store.host if len(report.hosts) > 1 else None))
    return "\n".join(page.lines()) + "\n"


def _host(host: str | None) -> Labels:
    """Only where several hosts are in one report: of one host Prometheus itself knows the name."""
    return (("host", host),) if host else ()


def _facts(page: _Page, store: FactStore, host: Labels) -> None:
    driver, gpus = store.get(Driver), store.get(Gpus)
    if driver is not None and driver.entry.version:
        page.gauge("driver_info", "The NVIDIA driver.", 1, (("version", driver.entry.version), *host))
    if gpus is not None:
        page.gauge("gpus", "GPUs that the driver lists.", len(gpus), host)
        for gpu in gpus:
            _gpu(page, gpu, (("gpu", _named(gpu)), *host))
    for pair in store.get(Pairs) or ():
        labels = (("a", pair.a), ("b", pair.b), *host)
        if pair.path is not None:
            page.gauge(
                "pair_info",
                "The path of a GPU pair, as nvidia-smi topo -m classes it.",
                1,
                (*labels, ("path", pair.path)),
            )
        page.gauge("pair_nvlinks", "NVLinks that join a pair.", pair.nvlinks, labels)
    for link in store.get(NvLinks) or ():
        labels = (("gpu", link.gpu), ("link", link.link), *host)
        page.gauge("nvlink_active", "1 where the NVLink is up.", link.active, labels)
        page.gauge(
            "nvlink_bandwidth_bytes_per_second",
            "Rate of one NVLink in one direction.",
            _times(link.speed_gbs, _GBS),
            labels,
        )
        for kind in ("replay", "recovery", "crc"):
            page.counter(
                "nvlink_errors_total",
                "Errors of one NVLink since the driver was loaded.",
                getattr(link, kind),
                (*labels, ("kind", kind)),
            )
    for nic in store.get(Nics) or ():
        labels = (("device", nic.device or nic.name), *host)
        page.gauge("nic_active", "1 where the port is active.", nic.state == "active" if nic.state else None, labels)
        page.gauge("nic_rate_bytes_per_second", "Rate of the port.", _times(nic.rate_gbps, _GBITS), labels)
    _measured(page, store, host)


def _gpu(page: _Page, gpu: Gpu, labels: Labels) -> None:
    page.gauge("gpu_info", "A GPU and where it is.", 1, (*labels, ("bdf", gpu.bdf or ""), ("name", gpu.name or "")))
    page.gauge("gpu_pcie_link_width", "Lanes that the GPU's PCIe link uses.", gpu.width, labels)
    page.gauge("gpu_pcie_link_width_max", "Lanes that the card and its slot have.", gpu.max_width, labels)
    page.gauge(
        "gpu_pcie_link_generation",
        "PCIe generation when read; idle GPUs lower it.",
        pcie.generation(gpu.speed_gts),
        labels,
    )
    page.gauge(
        "gpu_pcie_link_generation_max",
        "PCIe generation that the card and its slot have.",
        pcie.generation(gpu.max_speed_gts),
        labels,
    )
    words = "Transfers a second on each lane when read; idle GPUs lower them."
    page.gauge("gpu_pcie_link_transfers_per_second", words, _times(gpu.speed_gts, _GTS), labels)
    page.gauge("gpu_numa_node", "NUMA node of the GPU.", gpu.numa_node, labels)
    page.counter(
        "gpu_pcie_replays_total", "Replays on the GPU's PCIe link since the driver was loaded.", gpu.replays, labels
    )
    words = "Uncorrectable memory errors since the last reset."
    page.gauge("gpu_ecc_uncorrectable_errors", words, gpu.ecc_uncorrectable_volatile, labels)


def _measured(page: _Page, store: FactStore, host: Labels) -> None:
    for run in store.get(Bandwidth) or ():
        labels = (("collective", run.collective or ""), ("ranks", "" if run.nranks is None else run.nranks), *host)
        words = "Bus bandwidth that the large sizes level out at."
        page.gauge("bus_bandwidth_bytes_per_second", words, _times(run.plateau_busbw_gbs, _GBS), labels)
        words = "Shortest time of the small sizes."
        page.gauge("collective_latency_seconds", words, _times(run.latency_us, 1e-6), labels)
    for copy in store.get(HostCopies) or ():
        where = copy.gpu if copy.gpu is not None else copy.bdf or "?"
        for way, rate in (("to_device", copy.to_device_gbs), ("from_device", copy.from_device_gbs)):
            words = "Pinned copies between host memory and a GPU."
            page.gauge(
                "host_copy_bytes_per_second", words, _times(rate, _GBS), (("gpu", where), ("direction", way), *host)
            )


def _named(gpu: Gpu) -> object:
    return gpu.index if gpu.index is not None else gpu.bdf or "?"


def _times(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    """A label's value may hold anything but a bare backslash, quote or line end (Prometheus, Exposition formats)."""
    return clean(value.replace("\n", " ")).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
