"""lspci in every form: whole, filtered, quoted, unprivileged, wrapped, machine-readable."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.parsers.lspci import parse as parse_lspci
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

SWITCH = (FIXTURES / "outputs/lspci/switch-path-vvv.txt").read_text()
VM = (FIXTURES / "outputs/lspci/h200x2-vm-vv.txt").read_text()


def tree(text: str, command: str | None = None) -> PciTree:
    found: list[Any] = [f for f in parse("lspci", text, command) if isinstance(f, PciTree)]
    assert len(found) == 1
    result: PciTree = found[0]
    return result


def read(text: str) -> list[PciDevice]:
    """Through recognition, as a pasted file goes."""
    return [
        d for s in recognise(text) if s.kind == "lspci" for fact in parse_lspci(s) if isinstance(fact, PciTree) for d in fact
    ]


def one(text: str) -> PciDevice:
    (device,) = read(text)
    return device


def test_the_path_through_a_switch() -> None:
    found = tree(SWITCH)
    gpu = found.by_bdf("0000:19:00.0")
    assert gpu is not None
    assert [d.bdf for d in found.ancestors(gpu.bdf)] == ["0000:17:00.0", "0000:16:00.0", "0000:15:01.0"]
    assert [d.port_type for d in found.ancestors(gpu.bdf)] == ["downstream", "upstream", "root"]
    assert (gpu.speed_gts, gpu.max_speed_gts, gpu.width, gpu.max_width) == (32.0, 32.0, 16, 16)
    assert (gpu.device_id, gpu.subsystem_id, gpu.class_code) == ("10de:2330", "10de:16c1", "030200")
    assert (gpu.numa_node, gpu.iommu_group, gpu.driver, gpu.slot) == (1, 22, "nvidia", "4")
    assert (gpu.aspm_supported, gpu.aspm_enabled, gpu.aspm_substates) == (("L1",), ("L1",), ("L1.1",))
    assert gpu.bar_sizes == (16 << 20, 128 << 30)
    assert gpu.at("speed_gts").value.startswith("LnkSta:")
    assert gpu.at("parent").value.startswith("Bus: primary=17, secondary=19")


def test_a_narrow_adapter_and_its_port() -> None:
    found = tree(SWITCH)
    nic, port = found.by_bdf("0000:1a:00.0"), found.by_bdf("0000:17:01.0")
    assert nic is not None and port is not None
    assert (nic.width, nic.max_width, nic.parent, nic.aspm_enabled) == (8, 16, "0000:17:01.0", ())
    assert nic.is_nic
    assert (port.width, port.speed_gts, port.max_speed_gts) == (8, 16.0, 32.0)


def test_acs_bits_and_the_ways_of_not_having_them() -> None:
    found = tree(SWITCH)
    bits = {d.bdf: d.acs for d in found}
    redirecting = bits["0000:17:00.0"]
    assert redirecting is not None
    assert (redirecting["SrcValid"], redirecting["ReqRedir"], redirecting["EgressCtrl"]) == (True, True, False)
    assert bits["0000:17:01.0"] is not None and not any(bits["0000:17:01.0"].values())
    assert bits["0000:16:00.0"] == {}  # extended capabilities were read, and ACS is not among them
    assert bits["0000:02:00.0"] is None  # nothing was read


def test_a_slot_that_misreports_presence_is_up_when_its_link_is() -> None:
    port = tree(SWITCH).by_bdf("0000:15:01.0")
    assert port is not None and port.link_up is True  # PresDet- but DLActive+


def test_only_nvidias_display_devices_are_gpus() -> None:
    assert [d.bdf for d in tree(SWITCH).gpus()] == ["0000:19:00.0"]
    with_ids = tree("00:02.0 VGA compatible controller [0300]: Intel Corporation Device [8086:a780] (rev 04)\n")
    assert with_ids.gpus() == ()


def test_complete_only_when_the_whole_bus_was_asked_for() -> None:
    assert not tree(SWITCH).complete  # the command is not known
    assert tree(SWITCH, "sudo lspci -vvv").complete
    for command in ("lspci -vvv | grep -v Audio", "lspci -vv -s 19:00.0", "lspci -d 10de: -vv", "lspci -vvvs 19:00.0", "cat x"):
        assert not tree(SWITCH, command).complete, command
    assert not tree(SWITCH[SWITCH.index("19:00.0 3D") :], "lspci -vvv").complete  # a part pasted under the command
    assert not tree(SWITCH.rstrip("\n"), "lspci -vvv").complete  # the end may be missing
    assert not tree(SWITCH + "...\n", "lspci -vvv").complete


def test_parent_known() -> None:
    whole = tree(SWITCH, "lspci -vvv")
    root, hidden = whole.by_bdf("0000:15:01.0"), whole.by_bdf("0000:00:00.0")
    assert root is not None and root.parent is None and root.parent_known is True
    assert hidden is not None and hidden.parent_known is True  # bus 0
    part = tree(SWITCH).by_bdf("0000:15:01.0")
    assert part is not None and part.parent_known is None  # the bridge above may just not be in the input


def test_a_virtual_machine() -> None:
    found = tree(VM, "lspci -vv -D")
    assert found.complete
    assert [d.bdf for d in found.gpus()] == ["0000:00:06.0", "0000:00:07.0"]
    assert {d.bdf for d in found if d.virtual} == {f"0000:00:0{n}.0" for n in range(6)}
    assert all(d.virtual is None for d in found.gpus())


@pytest.mark.parametrize("change", ["tabs to spaces", "crlf", "quoted", "no indentation"])
def test_how_people_paste(change: str) -> None:
    text = {
        "tabs to spaces": SWITCH.expandtabs(),
        "crlf": SWITCH.replace("\n", "\r\n"),
        "quoted": "".join(f"> {line}\n" for line in SWITCH.split("\n")),
        "no indentation": "\n".join(line.strip() for line in SWITCH.split("\n")),
    }[change]
    plain = tree(SWITCH)
    got = {d.bdf: d for d in read(text)}
    for device in plain:
        same = got[device.bdf]
        for field in ("speed_gts", "max_speed_gts", "width", "max_width", "parent", "acs", "aspm_enabled", "device_id", "bar_sizes"):
            assert getattr(same, field) == getattr(device, field), (device.bdf, field)


def test_lines_that_a_terminal_broke() -> None:
    broken = ""
    for line in SWITCH.split("\n"):
        wide = line.expandtabs()
        broken += "\n".join(wide[n : n + 80] for n in range(0, max(len(wide), 1), 80)) + "\n"
    assert broken != SWITCH.expandtabs()
    plain = {d.bdf: d for d in tree(SWITCH)}
    got = {d.bdf: d for d in read(broken)}
    assert got.keys() == plain.keys()
    for bdf, device in plain.items():
        for field in ("speed_gts", "width", "max_width", "max_speed_gts", "acs", "aspm_supported", "aspm_enabled"):
            assert getattr(got[bdf], field) == getattr(device, field), (bdf, field)


def test_filtered_by_grep_each_line_is_a_device_without_address() -> None:
    devices = read(
        "# lspci -vvv | grep -i acsctl\n"
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
        "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
    )
    assert [(d.bdf, d.acs["ReqRedir"]) for d in devices if d.acs is not None] == [(None, True), (None, False)]


def test_grep_with_addresses_does_not_mix_devices() -> None:
    devices = read(
        "19:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
        "\t\tLnkSta:\tSpeed 32GT/s (ok), Width x16 (ok)\n"
        "\t\tLnkSta:\tSpeed 16GT/s (ok), Width x4 (ok)\n"
    )
    assert [(d.bdf, d.width) for d in devices] == [("0000:19:00.0", 16), (None, 4)]


def test_a_gpus_block_without_its_address_line() -> None:
    device = one(
        "        Region 1: Memory at 7800000000 (64-bit, prefetchable) [size=16G]\n"
        "        Capabilities: [78] Express (v2) Legacy Endpoint, IntMsgNum 0\n"
        "                LnkCap: Port #0, Speed 16GT/s, Width x8, ASPM L1, Exit Latency L1 <16us\n"
        "                                               ^^^^^^^^\n"
        "                LnkCtl: ASPM L1 Enabled; RCB 64 bytes, LnkDisable- CommClk+\n"
        "                LnkSta: Speed 2.5GT/s (downgraded), Width x4 (downgraded)\n"
        "                        TrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-\n"
        "        Kernel driver in use: nvidia\n"
        "libkmod: kmod_config_parse: /etc/modprobe.d/x.conf line 8: ignoring bad line\n"
        "        Kernel modules: nvidiafb, nouveau, nvidia_drm, nvidia\n"
    )
    assert device.bdf is None and device.is_gpu
    assert (device.width, device.max_width, device.aspm_enabled, device.port_type) == (4, 8, ("L1",), "endpoint")
    assert device.link_up is None  # an endpoint does not report its data link layer


def test_link_state_quoted_in_a_sentence() -> None:
    device = one("the bit that matters is LnkSta:\tSpeed 2.5GT/s (downgraded), Width x16\n")
    assert (device.speed_gts, device.width) == (2.5, 16)
    assert read("\tCapabilities: [c1c v1] Physical Layer 16.0 GT/s <?>\n") == []


def test_the_card_can_more_than_lnkcap_says() -> None:
    device = one(
        "01:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3080] (rev a1)\n"
        "\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x16, ASPM L0s L1, Exit Latency L0s <512ns, L1 <4us\n"
        "\t\tLnkCap2: Supported Link Speeds: 2.5-16GT/s, Crosslink- Retimer+ 2Retimers+ DRS-\n"
        "\t\tLnkCtl2: Target Link Speed: 32GT/s, EnterCompliance- SpeedDis-\n"
        "\t\tLnkSta2: Current De-emphasis Level: -6dB, EqualizationComplete+\n"
    )
    assert (device.max_speed_gts, device.speed_gts, device.aspm_supported) == (16.0, None, ("L0s", "L1"))


def test_an_empty_port_is_down() -> None:
    device = one(
        "\t\tLnkCap:\tPort #3, Speed 5GT/s, Width x1, ASPM L0s L1, Exit Latency L0s unlimited, L1 unlimited\n"
        "\t\t\tClockPM- Surprise- LLActRep+ BwNot+ ASPMOptComp+\n"
        "\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x1 (ok)\n"
        "\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-\n"
        "\t\tSltSta:\tStatus: AttnBtn- PowerFlt- MRL- CmdCplt- PresDet- Interlock-\n"
    )
    assert device.link_up is False
    assert one("00:1c.0 PCI bridge: Intel Corporation X\n\t\tLnkSta:\tSpeed 2.5GT/s, Width x0\n").link_up is False


def test_old_lspci_puts_the_flags_on_the_same_line() -> None:
    device = one("\t\tLnkSta:\tSpeed 8GT/s, Width x16, TrErr- Train- SlotClk+ DLActive+ BWMgmt+ ABWMgmt-\n")
    assert (device.speed_gts, device.width, device.link_up, device.bandwidth_limited) == (8.0, 16, True, False)


def test_without_root() -> None:
    device = one(
        "19:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
        "\tFlags: bus master, fast devsel, latency 0, IRQ 18, NUMA node 0\n"
        "\tCapabilities: <access denied>\n\tKernel driver in use: nvidia\n"
    )
    assert device.access_denied is True and device.numa_node == 0
    assert (device.acs, device.width, device.aspm_enabled) == (None, None, None)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "00:06.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)",
            ("0000:00:06.0", "030200", "10de:2335", "NVIDIA Corporation GH100 [H200 SXM 141GB]"),
        ),
        ("00:06.0 0302: 10de:2335 (rev a1)", ("0000:00:06.0", "030200", "10de:2335", None)),
        (
            '00:06.0 "3D controller" "NVIDIA Corporation" "Device 2335" -ra1 "NVIDIA Corporation" "Device 18be"',
            ("0000:00:06.0", "030200", "10de:2335", "NVIDIA Corporation Device 2335"),
        ),
        (
            '00:06.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "GH100 [2335]" -ra1 "" ""',
            ("0000:00:06.0", "030200", "10de:2335", "NVIDIA Corporation GH100"),
        ),
        (
            "10000:e1:00.0 Non-Volatile memory controller: Intel Corporation NVMe (rev 03) (prog-if 02 [NVM Express])",
            ("10000:e1:00.0", "010800", None, "Intel Corporation NVMe"),
        ),
        (
            "0009:01:00.0 3D controller: NVIDIA Corporation GB200 [HGX GB200] (rev a1)",
            ("0009:01:00.0", "030200", None, "NVIDIA Corporation GB200 [HGX GB200]"),
        ),
        ("83:00.0 Bridge: NVIDIA Corporation Device 22a3 (rev a1)", ("0000:83:00.0", "068000", "10de:22a3", "NVIDIA Corporation Device 22a3")),
    ],
)
def test_head_lines(line: str, fields: tuple[str | None, ...]) -> None:
    device = one(line + "\n")
    assert (device.bdf, device.class_code, device.device_id, device.name) == fields


def test_one_v() -> None:
    device = one(
        "62:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
        "\tSubsystem: NVIDIA Corporation Device 16c1\n"
        "\tFlags: bus master, fast devsel, latency 0, IRQ 18, NUMA node 1, IOMMU group 22\n"
        "\tMemory at 42000000 (64-bit, prefetchable) [size=16M]\n"
        "\tMemory at 4000000000 (64-bit, prefetchable) [size=128G]\n"
        "\tCapabilities: [78] Express Endpoint, MSI 00\n"
        "\tCapabilities: [100] Virtual Channel\n"
        "\tKernel driver in use: nvidia\n"
    )
    assert (device.numa_node, device.iommu_group, device.port_type) == (1, 22, "endpoint")
    assert device.bar_sizes == (16 << 20, 128 << 30)
    assert device.acs is None  # -v names the capability, never its bits


def test_a_device_that_no_longer_answers() -> None:
    device = one("41:00.0 3D controller: NVIDIA Corporation Device 2330 (rev ff)\n\t!!! Unknown header type 7f\n")
    assert device.all_ones is True


def test_other_outputs_end_a_listing() -> None:
    kinds = [
        s.kind
        for s in recognise(
            "19:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n\tKernel driver in use: nvidia\n\n"
            "$ nvidia-smi topo -m\n\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-47\nGPU1\tNV18\t X \t0-47\n"
        )
    ]
    assert kinds == ["lspci", "smi-topo"]


def test_a_tree_picture_and_prose_are_no_listing() -> None:
    assert read("-[0000:00]-+-00.0\n           +-01.0-[01]----00.0\n") == []
    assert read("at 10:20.1 The node crashed\n") == []


def test_endless_lines_are_read_as_far_as_they_make_sense() -> None:
    # Each of these took minutes with expressions that try every place of a long word or gap.
    word = one("\t\tLnkSta:\tSpeed 8GT/s, Width x16, " + "a" * 60_000 + "\n")
    assert (word.speed_gts, word.width) == (8.0, 16)
    gap = one("19:00.0 3D controller: NVIDIA Corporation Device 2330" + " " * 60_000 + "x\n")
    assert (gap.bdf, gap.device_id) == ("0000:19:00.0", "10de:2330")


LINK = "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1\n\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)\n"


@pytest.mark.parametrize(
    "command",
    [
        "$ sudo lspci -vvv -s 41:00.0 | grep -E 'LnkCap:|LnkSta:'",
        "> lspci -s 41:00.0 -vv | grep -i lnk",
        "root@node07:~# lspci -vvs 0000:41:00.0 | egrep 'LnkCap|LnkSta'",
        "lspci -vv -s 41:00 | grep Lnk",
    ],
)
def test_the_address_in_the_command_counts(command: str) -> None:
    device = one(f"{command}\n{LINK}")
    assert (device.bdf, device.width, device.max_width) == ("0000:41:00.0", 8, 16)


def test_an_address_in_the_command_belongs_to_one_device_only() -> None:
    assert [d.bdf for d in read(f"$ lspci -vv -s 41:00.0 | grep Lnk\n{LINK}{LINK}")] == ["0000:41:00.0", None]
    for command in ("lspci -vv -s 41: | grep Lnk", "lspci -vv | grep -A9 41:00.0", "lspci -vv -d 10de: | grep Lnk"):
        assert [d.bdf for d in read(f"$ {command}\n{LINK}")] == [None], command
    with_head = "$ lspci -vv -s 41:00.0\n42:00.0 3D controller: NVIDIA Corporation Device 2330\n" + LINK
    assert [d.bdf for d in read(with_head)] == ["0000:42:00.0"]


def test_each_command_behind_a_hash_names_its_device() -> None:
    """Synthetic, in the shape of scripts that print `# COMMAND (remark)` before each output, the tree first."""
    text = (
        "# lspci -t  (the tree)\n-[0000:00]-+-00.0\n           \\-01.1-[41]----00.0\n\n"
        f"# lspci -vvv -s 0000:41:00.0  (the GPU: LnkCap/LnkSta)\n{LINK}\n# lspci -vvv -s 0000:00:01.1  (the bridge of 0000:41:00.0)\n{LINK}"
    )
    assert [d.bdf for d in read(text)] == ["0000:41:00.0", "0000:00:01.1"]
    # A remark of the author's own ends nothing.
    assert [d.bdf for d in read(f"$ lspci -vv -s 41:00.0\n{LINK}# lspci shows half the lanes\n{LINK}")] == ["0000:41:00.0", None]


def test_a_mail_breaks_names_and_lists() -> None:
    """Synthetic, in the shape of a mailing list: the device's name and the bits go on at the left edge."""
    device = one(
        "> 41:00.0 VGA compatible controller: NVIDIA Corporation GA102GL [RTX\n> A6000] (rev a1) (prog-if 00 [VGA\n> controller])\n"
        ">         Control: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop-\n> ParErr- Stepping- SERR- FastB2B- DisINTx-\n"
        ">         Capabilities: [78] Express (v2) Legacy Endpoint, MSI 00\n"
        ">                 DevCap: MaxPayload 256 bytes, PhantFunc 0, Latency L0s\n> unlimited, L1 <64us\n"
        ">                 LnkCap: Port #0, Speed 16GT/s, Width x16, ASPM L0s L1,\n> Exit Latency L0s <512ns, L1 <4us\n"
        ">                 LnkSta: Speed 16GT/s (ok), Width x8 (downgraded)\n"
    )
    assert (device.bdf, device.is_gpu, device.width, device.max_width) == ("0000:41:00.0", True, 8, 16)


@pytest.mark.parametrize("label", ["Card: ", "GPU 1: ", "=== ", "--- ", ""])
def test_a_scripts_word_before_an_address_line(label: str) -> None:
    text = f"""{label}41:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <64us
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x8 (downgraded)
{label}42:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <64us
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)
"""
    assert [(d.bdf, d.is_gpu, d.width, d.max_width) for d in read(text)] == [
        ("0000:41:00.0", True, 8, 16),
        ("0000:42:00.0", True, 16, 16),
    ]


@pytest.mark.parametrize("bare", ["{}", "{}:", "== {} ==", "Device: {}", "    {}"])
def test_an_address_alone_above_the_lines_of_its_device(bare: str) -> None:
    text = "".join(
        f"{bare.format(bdf)}\n                LnkCap: Port #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <64us\n"
        f"                LnkSta: Speed 16GT/s (ok), Width x{width}\n"
        for bdf, width in (("31:00.0", 8), ("0000:4b:00.0", 16))
    )
    assert [(d.bdf, d.width) for d in read(text)] == [("0000:31:00.0", 8), ("0000:4b:00.0", 16)]


def test_an_address_in_a_sentence_is_not_the_next_devices() -> None:
    text = "The port above 40:01.1 is fine.\n\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)\n"
    assert one(text).bdf is None


def test_addresses_alone_are_no_devices() -> None:
    assert read("41:00.0\n42:00.0\n\nand that is all\n") == []


def test_lspcis_word_that_a_link_is_narrower_than_the_device() -> None:
    assert one("\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4 (downgraded)\n").narrowed is True
    for state in ("Speed 2.5GT/s (downgraded), Width x16 (ok)", "Speed 8GT/s, Width x4", "Speed 2.5GT/s (downgraded), Width x0 (downgraded)"):
        assert all(d.narrowed is None for d in read(f"\t\tLnkSta:\t{state}\n\t\tLnkCtl:\tASPM Disabled\n"))


NARROW_LINK = "\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1\n\tLnkSta:\tSpeed 16GT/s, Width x4 (downgraded)\n"


@pytest.mark.parametrize("words", ["under load", "here it is while it works, at 2.5 GT/s before"])
def test_an_address_line_behind_an_authors_words(words: str) -> None:
    (section,) = recognise(f"{words} 62:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)\n{NARROW_LINK}")
    (tree,) = (f for f in parse_lspci(section) if isinstance(f, PciTree))
    assert [(d.bdf, d.width, d.max_width) for d in tree] == [("0000:62:00.0", 4, 16)]


def test_a_sentence_with_an_address_is_no_device() -> None:
    (section,) = recognise(f"I moved it from 62:00.0 and the other is 41:00.0 as before: see\n{NARROW_LINK}")
    assert [d.bdf for f in parse_lspci(section) if isinstance(f, PciTree) for d in f] == [None]


def test_a_log_below_is_none_of_its_lines() -> None:
    head = "  41:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n  \tLnkSta:\tSpeed 32GT/s, Width x16\n"
    for stamp in ("Nov 05 13:55:26 node07", "2025-11-05T13:55:26+00:00 node07"):
        kinds = [s.kind for s in recognise(f"{head}  {stamp} systemd[1]: Failed to start NVIDIA fabric manager service.\n")]
        assert kinds == ["lspci", "fm-log"]


# Synthetic: listings that scripts print, a device a line, and what setpci says of the control register of ACS.
LISTING = """0000:00:01.0  ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
0000:03:08.0  ACSCtl: SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
03:10.0: ACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
"""
SETPCI = """0000:00:01.0 (ecap 000d @150) @156 = 001d
0000:03:08.0 (ecap 000d @f24) @f2a = 0000
0000:03:10.0 (ecap 000d @f24) @f2a = 0019
"""


def every(text: str) -> list[PciDevice]:
    return [d for s in recognise(text) for f in parse(s.kind, s.text, s.command) if isinstance(f, PciTree) for d in f]


@pytest.mark.parametrize("text", [LISTING, SETPCI, f"  {SETPCI.replace(chr(10), chr(10) + '  ')}".rstrip() + "\n"])
def test_a_listing_of_acs_with_its_addresses(text: str) -> None:
    assert [(d.bdf, d.acs and d.acs["SrcValid"], d.acs and d.acs["ReqRedir"], d.acs and d.acs["CmpltRedir"]) for d in every(text)] == [
        ("0000:00:01.0", True, True, True), ("0000:03:08.0", False, False, False), ("0000:03:10.0", True, False, True),
    ]  # fmt: skip


def test_a_listing_of_links_with_its_addresses() -> None:
    text = "GPU 41:00.0: LnkSta: Speed 16GT/s (ok), Width x16 (ok)\nGPU 81:00.0: LnkSta: Speed 16GT/s (ok), Width x8 (downgraded)\n"
    assert [(d.bdf, d.width) for d in every(text)] == [("0000:41:00.0", 16), ("0000:81:00.0", 8)]
    # Whose link this is, the words before the address would have to say.
    assert [d.bdf for d in every("upstream of 41:00.0: LnkSta: Speed 16GT/s, Width x16\n")] == [None]


def test_a_port_is_as_it_was_left() -> None:
    text = "0000:03:08.0 (ecap 000d @f24) @f2a = 001d\n0000:03:08.0 (ecap 000d @f24) @f2a 0000\nsetpci: 0000:04:00.0: Instance #0 of Extended capability 000d not found\n"
    assert [(d.bdf, d.acs and any(d.acs.values())) for d in every(text)] == [("0000:03:08.0", False)]
    # Another register of the same capability is no control register.
    assert every("0000:03:08.0 (ecap 000d @f24) @f28 = 005f\n0000:03:10.0 (ecap 000d @f24) @f2a = 0000\n")[0].bdf == "0000:03:10.0"


@pytest.mark.parametrize("text", [LISTING, SETPCI])
def test_a_listing_of_acs_cut_anywhere(text: str) -> None:
    whole = {d.bdf: d.acs for d in every(text)}
    for end in range(len(text)):
        try:
            found = every(text[:end])
        except Unparsable:
            continue
        assert all(d.acs is None or d.bdf is None or {**(whole[d.bdf] or {}), **d.acs} == whole[d.bdf] for d in found)
