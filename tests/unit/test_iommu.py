"""iommu on built hosts."""

from __future__ import annotations

from typing import Any

from gpudoctor.checkers.iommu import IommuTranslating
from gpudoctor.facts.bandwidth import PeerCopies, PeerCopy
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciDevice
from gpudoctor.facts.system import Cpu, CpuEntry, Iommu, IommuEntry, Modules
from gpudoctor.facts.topology import Nic, Nics
from gpudoctor.model import CannotTell, Finding
from gpudoctor.record import replace
from tests.builders import Host, host
from tests.support import HERE, check

L40S: dict[str, Any] = {"name": "NVIDIA L40S", "device_id": "10de:26b9"}
SXM: dict[str, Any] = {"name": "NVIDIA A100-SXM4-40GB", "device_id": "10de:20b0"}


def typed(made: Host, kind: str) -> Host:
    for gpu in made.gpus:
        made.set(made.bdf(gpu), iommu_type=kind)
    return made


def only(made: Host) -> Finding:
    (found,) = check(IommuTranslating(), *made.facts())
    assert isinstance(found, Finding)
    return found


def test_translation_in_the_way_of_peers() -> None:
    for kind in ("DMA", "DMA-FQ"):
        found = only(typed(host(**L40S), kind))
        assert (found.severity, found.confidence, found.subject) == ("warning", "certain", "host")


def test_a_measured_loss_makes_it_an_error() -> None:
    """Copies of p2pBandwidthLatencyTest: 20 GB/s through host memory."""

    def measured(made: Host, on: float, path: str | None) -> Host:
        made.pairs = [replace(p, path=path) for p in made.pairs if path]
        copy = PeerCopy(a=0, b=1, a_bdf=made.bdf(0), b_bdf=made.bdf(1), access=True, on_gbs=on, off_gbs=20.0, origin=HERE)
        return typed(made, "DMA").add(PeerCopies((copy,)))

    for path, on, severity in (("PIX", 9.0, "error"), ("SYS", 9.0, "warning"), ("SYS", 2.0, "error"), (None, 2.0, "error"), ("NVL", 2.0, "note")):
        assert only(measured(host(**L40S), on, path)).severity == severity
    assert only(measured(host(**SXM), 2.0, None)).severity == "note"
    found = only(measured(host(**L40S), 2.0, "SYS"))
    assert "2 GB/s from GPU to GPU and 20 GB/s through host memory" in (found.cost or "")


def test_identity_is_in_order_whatever_other_groups_do() -> None:
    made = typed(host(**L40S), "identity").add(Iommu(IommuEntry(translating=True, origin=HERE)))
    assert check(IommuTranslating(), *made.facts()) == []


def test_off_and_passthrough_are_in_order() -> None:
    for entry in (IommuEntry(mode="off", origin=HERE), IommuEntry(mode="passthrough", translating=False, origin=HERE)):
        assert check(IommuTranslating(), *host(**L40S).add(Iommu(entry)).facts()) == []


def test_the_hosts_own_word_serves_where_groups_are_unread() -> None:
    assert only(host(**L40S).add(Iommu(IommuEntry(translating=True, mode="translating", origin=HERE)))).severity == "warning"


def test_nothing_peers_over_pcie() -> None:
    assert only(typed(host(**SXM).nvlink(), "DMA")).severity == "note"
    assert only(typed(host(1, **L40S), "DMA")).severity == "note"
    assert only(typed(host(name="NVIDIA GeForce RTX 4090", device_id="10de:2684"), "DMA")).severity == "note"


def test_unknown_use_is_a_possible_note() -> None:
    found = only(typed(host(name="NVIDIA Something New", device_id="10de:ffff"), "DMA"))
    assert (found.severity, found.confidence) == ("note", "possible")


def test_gpudirect_rdma_counts_as_use() -> None:
    made = typed(host(**SXM).nvlink(), "DMA").add(Nics((Nic(name="mlx5_0", origin=HERE),)))
    assert only(made.add(Modules({"nvidia_peermem": ""}, HERE["*"]))).severity == "warning"


def test_inside_a_virtual_machine_it_tells_nothing() -> None:
    assert check(IommuTranslating(), *typed(host(**L40S), "DMA").platform(vm=True).facts()) == []
    made = typed(host(**L40S), "DMA")
    assert check(IommuTranslating(), *made.every_bridge(virtual=True).facts()) == []


def test_the_kernel_parameter_fits_the_processor() -> None:
    for vendor, words in (("GenuineIntel", "intel_iommu=on iommu=pt"), ("AuthenticAMD", "iommu=pt"), ("ARM", "iommu.passthrough=1")):
        made = typed(host(**L40S), "DMA").add(Cpu(CpuEntry(vendor=vendor, origin=HERE)))
        assert only(made).remediation[0].command == words
    assert only(typed(host(**L40S), "DMA")).remediation[0].command == "iommu=pt"


def test_a_host_with_guests_keeps_it() -> None:
    made = typed(host(**L40S), "DMA")
    made.devices["0000:f0:00.0"] = PciDevice(bdf="0000:f0:00.0", class_code="030200", driver="vfio-pci", origin=HERE)
    assert not any("iommu" in (s.command or "") for s in only(made).remediation)


def test_unread_groups_cannot_be_told() -> None:
    (said,) = check(IommuTranslating(), *host(**L40S).facts())
    assert isinstance(said, CannotTell)


def faults(bdf: str, driver: str | None = None, stale: bool = False) -> KernelLog:
    return KernelLog(tuple(KernelEvent(kind="iommu-fault", bdf=bdf, driver=driver, stale=stale, text=f"{n}", origin=HERE) for n in (1, 2)))


def test_accesses_of_a_gpu_that_it_refused() -> None:
    (found,) = check(IommuTranslating(), faults("0000:07:00.0", "nvidia"))
    assert isinstance(found, Finding) and found.severity == "warning" and found.subject == "gpu:0000:07:00.0"
    assert "2 times" in found.message
    made = typed(host(**L40S), "identity")
    (found,) = check(IommuTranslating(), *made.facts(), faults(made.bdf(0)))
    assert isinstance(found, Finding) and found.subject == f"gpu:{made.bdf(0)}"


def test_faults_of_other_devices_or_of_an_earlier_driver_are_not_ours() -> None:
    for log in (faults("0000:07:00.0", "ath10k_pci"), faults("0000:07:00.0"), faults("0000:07:00.0", "nvidia", stale=True)):
        (said,) = check(IommuTranslating(), log)
        assert isinstance(said, CannotTell)
