"""Kernel log lines in every dress people paste them in."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.kernel import KernelEvent, KernelLog
from tests.support import parse, recognise

XID = "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate."
OFF = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LOAD = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)  Tue Sep 23"


def events(text: str) -> tuple[KernelEvent, ...]:
    """What a live probe's section gives."""
    found: list[Any] = parse("kernel-log", text)
    return found[0].events if found else ()


def read(text: str) -> tuple[KernelEvent, ...]:
    """What `--from FILE` gives: lines found in any text."""
    from gpudoctor.parsers.kernel_log import parse as parse_log

    sections = [s for s in recognise(text) if s.kind == "kernel-log"]
    return tuple(e for s in sections for fact in parse_log(s) if isinstance(fact, KernelLog) for e in fact.events)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[   12.345678] ",
        "[Sun Feb 23 16:24:18 2025] ",
        "Feb 23 16:24:18 node07 kernel: ",
        "Feb 23 16:24:18 node07 kernel: [171167.620236] ",
        "2025-01-21T04:41:44,283302+00:00 ",
        "2025-01-21T04:41:44.283302+00:00 node07 kernel: ",
        "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
        "kern  :warn  : [Sun Feb 23 16:24:18 2025] ",
        "<4>[  88.1234] ",
        "> ",
        "    ",
        "node07: [  12.345678] ",
    ],
)
def test_an_xid_is_read_whatever_stands_before_it(prefix: str) -> None:
    found = read(f"{prefix}{XID}\n")
    assert [(e.kind, e.bdf, e.code, e.text) for e in found] == [("xid", "0000:10:1c.0", 63, XID)]


@pytest.mark.parametrize(
    ("line", "bdf", "code"),
    [
        ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000", "0000:01:00.0", 31),
        ("NVRM: Xid (PCI:0000:06:00 GPU-I:05): 94, pid=5194, Contained: SM (0x1)", "0000:06:00.0", 94),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)", "0018:01:00.0", 149),
        ("NVRM: Xid (PCI:0000:01:00.0): 79, GPU has fallen off the bus.", "0000:01:00.0", 79),
    ],
)
def test_xid_forms(line: str, bdf: str, code: int) -> None:
    (event,) = events(line + "\n")
    assert (event.bdf, event.code) == (bdf, code)


@pytest.mark.parametrize(
    "line",
    [
        "XID 79 errors are serious and GPUs fall off",
        "NVRM: Xid (invalid): some error",
        "grep -i 'NVRM: Xid' /var/log/messages",
        "NVRM: GPU4 RPC event history (CPU <- GSP):",
        "NVRM:      0    4115 NVLINK_INBAND_RECEIVE 0x0000000000000000",
        "nvidia-nvswitch0: open (major=508)",
        "pcieport 0000:00:1c.0: AER: enabled with IRQ 122",
        "DMAR: DRHD: handling fault status reg 2",
        "pcieport 0000:00:01.0: AER: device recovery successful",
    ],
)
def test_what_is_no_event(line: str) -> None:
    assert events(line + "\n") == ()


def test_nvlink5_says_fatal_and_link() -> None:
    fatal, mild, none = events(
        "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)\n"
        "NVRM: Xid (PCI:0009:01:00): 145, pid=8, name=ray::Worker, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8)\n"
        "NVRM: Xid (PCI:0009:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)\n"
    )
    assert [(e.fatal, e.link) for e in (fatal, mild, none)] == [(True, 1), (False, 13), (True, None)]


def test_an_sxid_counts_once_although_its_data_follow() -> None:
    text = (
        "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
        "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00\n"
        "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Data {0x50610002, 0x10100030}\n"
    )
    (event,) = read(text)
    assert (event.kind, event.bdf, event.code, event.fatal, event.link) == ("sxid", "0000:c5:00.0", 20034, True, 30)
    assert recognise(text)[0].host is None  # nvidia-nvswitch3 is a device, not a machine


def test_fabric_manager_log() -> None:
    (event,) = read(
        "[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id "
        "00000000:86:00.0 physical id 3 port 33\n"
    )
    assert (event.kind, event.bdf, event.code, event.fatal, event.link) == ("nvswitch", "0000:86:00.0", 20034, True, 33)


def test_aer_error_counts_once_with_the_ports_announcement() -> None:
    (event,) = events(
        "pcieport 0000:80:01.1: AER: Corrected error received: 0000:81:00.0\n"
        "nvidia 0000:81:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
        "nvidia 0000:81:00.0:   device [10de:2684] error status/mask=00000001/0000e000\n"
        "nvidia 0000:81:00.0:    [ 0] RxErr                  (First)\n"
    )
    assert (event.kind, event.bdf, event.severity, event.driver) == ("aer", "0000:81:00.0", "correctable", "nvidia")


def test_a_report_counts_once_although_its_announcement_names_another_source() -> None:
    # synthetic; some root ports leave the source empty
    announced = "pcieport 0000:00:03.1: AER: Correctable error message received from 0000:00:00.0\n"
    reported = "pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)\n"
    assert [e.bdf for e in events((announced + reported) * 2)] == ["0000:00:03.1"] * 2
    assert [e.bdf for e in events(announced + announced + reported)] == ["0000:00:00.0", "0000:00:03.1"]


def test_a_start_that_fails_below_the_card_that_fell_off_is_that_cards() -> None:
    off, failed = "NVRM: GPU at 0000:01:00.0 has fallen off the bus.\n", "NVRM: RmInitAdapter failed! (0x25:0x28:1148)\n"
    assert {(e.kind, e.bdf) for e in events(off + failed)} == {("fell-off", "0000:01:00.0"), ("rm-init-failed", "0000:01:00.0")}
    assert [e.bdf for e in events(failed)] == [None]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[  12.345678] NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (...)", [145]),
        ("kernel: NVRM: Xid (PCI:...): 137, RLW_RXPIPE interrupt hit on link 11 on GPU0: PRIV Error", [137]),
        ("> Feb 23 16:24:18 node07 kernel: NVRM: Xid (PCI:xxxx:xx:xx): 79, GPU has fallen off the bus.", [79]),
        ("NVRM: Xid (PCI:0000:xx:00): 79, pid=12, GPU has fallen off the bus.", [79]),
        ("Example: `NVRM: Xid (PCI:0000:xx:00): 79, GPU has fallen off the bus.`", []),
        ("If you see NVRM: Xid (PCI:XXXX:XX:XX): 79, ask support.", []),
        ("| 79 | NVRM: Xid (PCI:0000:xx:00): 79, GPU has fallen off the bus |", []),
        ("the text NVRM: Xid (PCI:XXXX:XX:XX): 79, GPU has fallen off the bus.", []),
    ],
)
def test_an_address_that_was_blotted_out(line: str, found: list[int]) -> None:
    assert [(e.code, e.bdf) for e in read(line + "\n")] == [(code, None) for code in found]


@pytest.mark.parametrize(
    ("words", "severity"),
    [
        ("severity=Correctable, type=Data Link Layer, (Transmitter ID)", "correctable"),
        ("severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)", "nonfatal"),
        ("severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)", "fatal"),
    ],
)
def test_aer_severities(words: str, severity: str) -> None:
    (event,) = events(f"pcieport 0000:00:1c.0: AER: PCIe Bus Error: {words}\n")
    assert (event.bdf, event.severity) == ("0000:00:1c.0", severity)


def test_announcement_alone_is_an_event() -> None:
    (event,) = events("pcieport 0000:80:01.1: AER: Correctable error message received from 0000:81:00.0\n")
    assert (event.kind, event.bdf, event.severity) == ("aer", "0000:81:00.0", "correctable")


def test_bandwidth_limited() -> None:
    (event,) = events(
        "pci 0000:01:00.0: 2.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x1 link at 0000:00:1c.0 "
        "(capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
    )
    assert (event.kind, event.bdf, event.bridge) == ("bandwidth-limited", "0000:01:00.0", "0000:00:1c.0")


@pytest.mark.parametrize(
    ("text", "kind", "bdf"),
    [
        ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.\n", "fell-off", "0000:29:00.0"),
        ("NVRM: GPU has fallen off the bus.\n", "fell-off", None),
        ("NVRM: GPU at PCI:0000:0b:00.0 has fallen off the bus\n", "fell-off", "0000:0b:00.0"),
        (
            "NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: (PCI ID: 10de:2901) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.\n",
            "fell-off",
            "0000:18:00.0",
        ),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0xffff:1290)\n", "rm-init-failed", "0000:01:00.0"),
        ("NVRM: rm_init_adapter failed for device bearing minor number 0\n", "rm-init-failed", None),
        (LOAD + "\n", "driver-load", None),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x000c address=0x20]\n", "iommu-fault", "0000:41:00.0"),
        ("nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000c address=0x20]\n", "iommu-fault", "0000:41:00.0"),
        ("DMAR: [DMA Read NO_PASID] Request device [01:00.0] fault addr 0xffe00000\n", "iommu-fault", "0000:01:00.0"),
    ],
)
def test_other_events(text: str, kind: str, bdf: str | None) -> None:
    (event,) = read(text)
    assert (event.kind, event.bdf) == (kind, bdf)


def test_version_mismatch_joins_its_two_lines() -> None:
    (event,) = events(
        "NVRM: API mismatch: the client has the version 535.54.03, but\n"
        "NVRM: this kernel module has the version 530.41.03.  Please\n"
        "NVRM: make sure that this kernel module and all NVIDIA driver\n"
    )
    assert event.kind == "version-mismatch"
    assert "535.54.03" in event.text and "530.41.03" in event.text


def test_what_stands_before_the_last_driver_load_is_stale() -> None:
    before, load, after = events(f"[1.000] {OFF}\n[2.000] {LOAD}\n[3.000] {XID}\n")
    assert [e.stale for e in (before, load, after)] == [True, False, False]


def test_one_log_in_two_forms_counts_once() -> None:
    text = f"[171167.620] {OFF}\n[171190.100] {OFF}\n\nFeb 23 16:24:18 node07 kernel: {OFF}\nFeb 23 16:24:41 node07 kernel: {OFF}\n"
    assert len(read(text)) == 2
    assert len(read(f"[171167.620] {OFF}\n[171167.620] {OFF}\n")) == 1  # the same line pasted twice
    assert len(read(f"{OFF}\n{OFF}\n")) == 2  # no time to tell them apart: each counts


@pytest.mark.parametrize("nov", ["Nov", "nov.", "11月"])
def test_the_journal_of_an_earlier_boot_stands_below_that_of_this_one(nov: str) -> None:
    """As in nvidia-bug-report: what happened before is history, though it comes later in the text."""
    this = f"{nov} 16 11:33:59 node07 kernel: {LOAD}\n"
    earlier = f"{nov} 15 11:00:00 node07 kernel: {LOAD}\n{nov} 15 14:11:38 node07 kernel: {OFF}\n"
    assert [(e.code, e.stale) for e in read(f"  journalctl -b -0:\n{this}\n  journalctl -b -1:\n{earlier}") if e.code] == [(79, True)]
    # After the load of this boot it is none, wherever it stands.
    again = f"{nov} 16 12:00:00 node07 kernel: {OFF}\n"
    assert [(e.code, e.stale) for e in read(f"{again}{earlier}{this}") if e.code] == [(79, True), (79, False)]


@pytest.mark.parametrize(
    ("first", "second"),
    [("Dec 31", "Jan  1"), ("déc. 31", "janv. 01")],  # over the end of a year, and months that nobody here can order
)
def test_stamps_that_do_not_say_what_came_first(first: str, second: str) -> None:
    text = f"{first} 23:59:00 node07 kernel: {LOAD}\n{second} 00:01:00 node07 kernel: {OFF}\n"
    assert [e.stale for e in read(text) if e.code] == [False]


def test_one_log_in_two_forms_of_one_day_counts_once() -> None:
    """/var/log/messages and the journal: rsyslog keeps the kernel's seconds, journalctl drops them."""
    text = f"Nov 16 11:07:51 node07 kernel: [74546.433849] {OFF}\n\nNov 16 11:07:51 node07 kernel: {OFF}\n"
    assert len(read(text)) == 1
    assert len(read(text.replace("\n\nNov 16", "\n\n11月 16"))) == 1


def test_merge_of_two_files_keeps_the_larger_count() -> None:
    one, two = KernelLog(events(f"[1.000] {OFF}\n[2.000] {OFF}\n")), KernelLog(events(f"[1.000] {OFF}\n[9.000] {XID}\n"))
    merged = KernelLog.merge([one, two], lambda _: None)
    assert [e.code for e in merged] == [79, 79, 63]


def test_a_live_log_without_events_is_still_a_log() -> None:
    from gpudoctor.parsers.kernel_log import parse as parse_log
    from gpudoctor.record import replace
    from tests.support import section

    quiet = section("kernel-log", "[ 1.0] Linux version 6.8\n")
    assert list(parse_log(quiet)) == []
    assert [f.events for f in parse_log(replace(quiet, live=True)) if isinstance(f, KernelLog)] == [()]


def test_old_kernels_and_mailers_write_the_slow_link_otherwise() -> None:
    old = "pci 0000:01:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8 GT/s x8 link at 0000:00:01.0 (capable of"
    (event,) = read(old + "\n")
    assert (event.kind, event.bdf, event.bridge) == ("bandwidth-limited", "0000:01:00.0", "0000:00:01.0")
    (event,) = read("pci 0000:01:00.0: 4.000 Gb/s available PCIe bandwidth, limited by 5.0\nGT/s PCIe x1 link at 0000:00:1c.1\n")
    assert (event.bdf, event.bridge) == ("0000:01:00.0", None)


@pytest.mark.parametrize(
    ("line", "severity"),
    [("Corrected,", "correctable"), ("Uncorrected (Fatal),", "fatal"), ("Uncorrected (Non-Fatal),", "nonfatal"), ("Uncorrected", None)],
)
def test_an_aer_line_that_a_mailer_broke(line: str, severity: str | None) -> None:
    (event,) = read(f"> [ 2.5] nvidia 0000:41:00.0: PCIe Bus Error: severity={line}\n> (Fatal), type=Physical Layer\n")
    assert (event.kind, event.bdf, event.severity, event.driver) == ("aer", "0000:41:00.0", severity, "nvidia")
    if severity is None:
        assert not read(f"nvidia 0000:41:00.0: PCIe Bus Error: severity={line}")  # cut: it may go on


def test_an_error_above_that_the_driver_cannot_mend() -> None:
    words = ("AER: can't recover (no error_detected callback)", "device has no AER-aware driver")
    text = "".join(f"[ 9.{n}] nvidia 0000:0{n}:00.0: {w}\n[ 9.{n}] snd_hda_intel 0000:0{n}:00.1: {w}\n" for n, w in enumerate(words, 1))
    found = read(text)
    assert [(e.kind, e.bdf, e.severity, e.driver) for e in found] == [
        ("aer", "0000:01:00.0", None, "nvidia"), ("aer", "0000:02:00.0", None, "nvidia"),
    ]  # fmt: skip


def test_a_card_that_fails_to_start_stands_above_the_load_it_failed_in() -> None:
    tried = (
        "[ 18.30] NVRM: The NVIDIA GPU 0000:b3:00.0\n              NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "              NVRM: fallen off the bus and is not responding to commands.\n"
        "[ 18.43] NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
    )
    load = f"[ 18.44] {LOAD}\n"
    lost, loaded = read(tried + load)
    assert (lost.kind, lost.bdf, lost.stale, loaded.stale) == ("fell-off", "0000:b3:00.0", False, False)
    assert [e.stale for e in read(tried + load + load)] == [True, False, False]  # the next load found it
    assert [e.stale for e in read("NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.\n" + load)] == [True, False]


def test_who_caused_a_fault_of_the_iommu() -> None:
    fault = "AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0x80000040 flags=0x0020]"
    found = read(f"host kernel: nvidia 0000:07:00.0: {fault}\n{fault.replace('domain', 'device=08:00.0 domain')}\n")
    assert [(e.kind, e.bdf, e.driver) for e in found] == [
        ("iommu-fault", "0000:07:00.0", "nvidia"), ("iommu-fault", "0000:08:00.0", None),
    ]  # fmt: skip


def test_what_the_module_says_of_cards_it_did_not_take() -> None:
    text = (
        "[ 3.10] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
        "              NVRM: BAR1 is 0M @ 0x0 (PCI:0000:0c:00.0)\n"
        "[ 3.20] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1189)\n"
        "              NVRM: installed in this system is not supported by the\n"
        "              NVRM: NVIDIA 525.60.11 driver release.\n"
        "[ 3.30] NVRM: None of the NVIDIA devices were initialized.\n"
        f"[ 3.31] {LOAD}\n"
        "[ 9.10] NVRM: The NVIDIA probe routine was not called for 3 device(s).\n"
        "[ 9.20] NVRM: No NVIDIA graphics adapter found!\n"  # a host may have none
    )
    assert [(e.kind, e.bdf, e.stale) for e in read(text)] == [
        ("rm-init-failed", "0000:0c:00.0", False), ("refused", "0000:01:00.0", False), ("refused", None, False),
        ("driver-load", None, False), ("refused", None, False),
    ]  # fmt: skip


FIRMWARE = """[ 9123.411000] {{7}}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4
[ 9123.411001] {{7}}[Hardware Error]: event severity: {severity}
[ 9123.411002] {{7}}[Hardware Error]:  Error 0, type: {severity}
[ 9123.411003] {{7}}[Hardware Error]:   section_type: {section}
[ 9123.411004] {{7}}[Hardware Error]:   port_type: {port}
[ 9123.411005] {{7}}[Hardware Error]:   version: 3.0
[ 9123.411006] {{7}}[Hardware Error]:   command: 0x0546, status: 0x0010
[ 9123.411007] {{7}}[Hardware Error]:   device_id: 0000:b1:00.0
[ 9123.411008] {{7}}[Hardware Error]:   slot: 3
[ 9123.411009] {{7}}[Hardware Error]:   secondary_bus: 0x00
[ 9123.411010] {{7}}[Hardware Error]:   vendor_id: 0x{vendor}, device_id: 0x2330
[ 9123.411011] {{7}}[Hardware Error]:   class_code: {klass}
"""


def firmware(severity: str = "fatal", section: str = "PCIe error", port: str = "0, PCIe end point", vendor: str = "10de", klass: str = "030200") -> str:
    return FIRMWARE.format(severity=severity, section=section, port=port, vendor=vendor, klass=klass)


@pytest.mark.parametrize(("word", "severity"), [("corrected", "correctable"), ("recoverable", "nonfatal"), ("fatal", "fatal")])
def test_a_pcie_error_of_a_gpu_that_the_firmware_reports(word: str, severity: str) -> None:
    (event,) = read(firmware(word))
    assert (event.kind, event.bdf, event.severity, event.driver) == ("aer", "0000:b1:00.0", severity, "nvidia")
    assert "device_id: 0000:b1:00.0" in event.at("text").value


def test_the_firmware_reports_a_port_too() -> None:
    (event,) = read(firmware(port="4, root port", vendor="8086", klass="060400"))
    assert (event.bdf, event.driver) == ("0000:b1:00.0", "pcieport")


@pytest.mark.parametrize(
    "more",
    [
        {"vendor": "144d", "klass": "010802"},  # a drive
        {"vendor": "15b3", "klass": "020700"},
        {"klass": "068000"},  # an NVSwitch
        {"section": "memory error"},
    ],
)
def test_reports_of_other_devices_and_of_memory_are_left_alone(more: dict[str, str]) -> None:
    assert read(firmware(**more)) == ()


def test_a_report_of_the_firmware_cut_anywhere_makes_no_other_device_of_it() -> None:
    text = firmware() + firmware("corrected", vendor="144d", klass="010802")
    whole = [(e.bdf, e.severity) for e in read(text)]
    assert whole == [("0000:b1:00.0", "fatal")]
    for end in range(len(text)):
        assert [(e.bdf, e.severity) for e in read(text[:end])] in ([], whole)


def test_two_reports_of_the_firmware_are_two_errors() -> None:
    assert len(read(firmware("corrected") + firmware("corrected").replace("9123.", "9140."))) == 2


DPC = "pcieport 0000:80:01.1: DPC: containment event, status:0x1f01"


@pytest.mark.parametrize(
    ("text", "bdf", "severity"),
    [
        (f"{DPC} source:0x0000\n", "0000:80:01.1", "fatal"),
        (f"{DPC.replace('0x1f01', '0x200d')}, ERR_FATAL received from 0000:81:00.0\n", "0000:81:00.0", "fatal"),
        (f"{DPC.replace('0x1f01', '0x200b')}, ERR_NONFATAL received from 0000:81:00.0\n", "0000:81:00.0", "nonfatal"),
    ],
)
def test_a_port_that_cut_off_what_lies_below_it(text: str, bdf: str, severity: str) -> None:
    (event,) = events(text)
    assert (event.kind, event.bdf, event.severity) == ("aer", bdf, severity)


def test_a_containment_with_its_report_is_one_event() -> None:
    report = "pcieport 0000:80:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)\n"
    assert [(e.kind, e.bdf) for e in events(f"{DPC} source:0x0000\n{report}")] == [("aer", "0000:80:01.1")]
    assert events("pcieport 0000:80:01.1: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+\n") == ()


@pytest.mark.parametrize(
    "text",
    [
        f"{DPC.replace('0x1f01', '0x200d')}, ERR_FATAL received from 0000:81:00.0\n",
        f"{DPC} source:0x0000\n",
        "NVRM: GPU6 _kgspLogRpcTimeout: ********* GSP Timeout *********\n",
        "NVRM: GPU12 nvCheckOkFailedNoLog: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F)\n",
        "nvidia 0000:14:00.0: probe with driver nvidia failed with error -12\n",
        "nvidia-modeset: ERROR: GPU:12: Error while waiting for GPU progress: 0x0000ca7d:0\n",
    ],
)
def test_what_is_said_without_an_xid_is_never_another_when_cut(text: str) -> None:
    (whole,) = events(text)
    for end in range(len(text)):
        for event in events(text[:end]):
            assert (event.kind, event.bdf, event.gpu, event.severity) == (whole.kind, whole.bdf, whole.gpu, whole.severity), text[:end]


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        # Synthetic: authors cut the driver's name off.
        ("Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", [79]),
        ("> Xid (PCI:0000:01:00): 31, pid=42, name=python3, Ch 00000008", [31]),
        ("Xid (PCI:0000:2b:00): 31 MMU Fault on the second card", []),
        ("we saw Xid (PCI:0000:01:00): 79, which means that it fell off", []),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error", []),
    ],
)
def test_an_xid_without_the_drivers_name(line: str, codes: list[int]) -> None:
    text = f"journalctl says:\n```\n{line}\n```\n"
    events = [e for s in recognise(text) if s.kind == "kernel-log" for f in parse(s.kind, s.text) if isinstance(f, KernelLog) for e in f]
    assert [e.code for e in events if e.kind == "xid"] == codes


STAMPS = ["[   12.345678] ", "[Sun Feb 23 16:24:18 2025] ", "Feb 23 16:24:18 node07 kernel: ", "Feb 23 16:24:18 node07 kernel: [171167.620236] ", "6,3964,206764307,-;"]
QUIET = [
    "nvidia-nvswitch2: open (major=510)",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    "nvidia: loading out-of-tree module taints kernel.",
    "nvidia 0000:41:00.0: vgaarb: VGA decodes changed: olddecodes=io+mem,decodes=none:owns=none",
    "NVRM: Persistence mode is deprecated and will be removed in a future release.",
    "mlx5_core 0000:5c:00.0: firmware version: 28.39.1002",
]


@pytest.mark.parametrize("stamp", STAMPS)
def test_what_the_modules_say_when_all_is_well_is_a_kernel_log(stamp: str) -> None:
    from gpudoctor.parsers.kernel_log import parse as parse_log

    for words in QUIET:
        facts = [f for s in recognise(f"{stamp}{words}\n") if s.kind == "kernel-log" for f in parse_log(s)]
        assert facts == [KernelLog(())], words


@pytest.mark.parametrize("text", ["Load nvidia-peermem before the job, or nvidia: nothing works.", "mlx5_core is the driver of the adapter.", "kernel: see below", "NVRM: is its prefix"])
def test_words_about_the_modules_are_no_kernel_log(text: str) -> None:
    from gpudoctor.parsers.kernel_log import parse as parse_log

    assert [f for s in recognise(f"{text}\n") if s.kind == "kernel-log" for f in parse_log(s)] == []


@pytest.mark.parametrize("write", ['sudo sh -c "echo {}" >> /var/log/messages', 'echo "{}" > /dev/kmsg', "logger -p kern.err {}"])
def test_a_command_that_writes_such_a_line_is_no_event(write: str) -> None:
    assert read(write.format(f"Feb 23 16:24:18 node07 kernel: {OFF}") + "\n") == ()
    assert [e.code for e in read(f"{write.format(OFF)}\n[12.345] {OFF}\n")] == [79]  # what it brought about is one
