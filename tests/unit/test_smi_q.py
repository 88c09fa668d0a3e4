"""nvidia-smi -q as text: whole, one section, elided, flattened."""

from __future__ import annotations

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise, report, slugs

PENDING = """\
Driver Version                            : 510.73.08
CUDA Version                              : 11.6

Attached GPUs                             : 8
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    [...]
    Remapped Rows
        Correctable Error                 : 3
        Uncorrectable Error               : 1
        Pending                           : Yes
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 639 bank(s)
[...]
"""


def sample(name: str, kind: str = "smi-q") -> str:
    return (FIXTURES / "outputs" / kind / f"{name}.txt").read_text()


def gpus(text: str, kind: str = "smi-q") -> Gpus:
    return next(f for f in parse(kind, text) if isinstance(f, Gpus))


def test_text_and_xml_of_one_moment_say_the_same() -> None:
    text, xml = gpus(sample("h200x2-580")), gpus(sample("h200x2-580", "smi-qx"), "smi-qx")
    for a, b in zip(text, xml, strict=True):
        assert {n: getattr(a, n) for n in a._fields if n != "origin"} == {n: getattr(b, n) for n in b._fields if n != "origin"}


def test_v100_of_driver_418() -> None:
    sick, sound = gpus(sample("v100-418"))
    assert (sick.index, sick.bdf, sick.device_id) == (0, "0000:1a:00.0", "10de:1db1")
    assert (sick.speed_gts, sick.max_speed_gts, sick.width, sick.max_width) == (8.0, 8.0, 16, 16)
    assert (sick.ecc_uncorrectable_volatile, sick.ecc_uncorrectable_aggregate) == (0, 2)
    assert (sick.retired_single, sick.retired_double, sick.retired_pending) == (4, 2, True)
    assert sick.throttle == ("sw_power_cap", "hw_slowdown", "hw_thermal")
    assert (sick.power_limit_w, sick.utilisation_pct, sick.virtualization) == (250.0, 97, "none")
    assert (sound.retired_pending, sound.width, sound.throttle) == (False, None, None)


@pytest.mark.parametrize("flat", [False, True])
def test_a_mig_device_is_not_the_gpu(flat: bool) -> None:
    text = sample("a100-mig-470")
    if flat:
        text = "\n".join(line.strip() for line in text.split("\n"))
    gpu = gpus(text).gpus[0]
    assert (gpu.mig_mode, gpu.fb_mib, gpu.bar1_mib) == ("enabled", 40536, 65536)
    assert (gpu.ecc_uncorrectable_volatile, gpu.remap_uncorrectable, gpu.remap_pending) == (5, 2, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: "\n".join(line.strip() for line in t.split("\n")),
        lambda t: "\n".join(" ".join(line.split()) for line in t.split("\n")),
        lambda t: t.replace("    ", "\t"),
        lambda t: t.replace("\n", "\r\n"),
        lambda t: "\n".join("      " + line for line in t.split("\n")),
        lambda t: "\n".join("> " + line for line in t.split("\n")),
    ],
    ids=["flat", "one space", "tabs", "CRLF", "indented", "quoted"],
)
@pytest.mark.parametrize("name", ["h200x2-580", "v100-418"])
def test_a_mangled_paste_reads_the_same(name: str, change: object) -> None:
    whole = gpus(sample(name))
    sections = recognise(change(sample(name)))  # type: ignore[operator]
    assert [s.kind for s in sections] == ["smi-q"]
    read = gpus("".join(line.text + "\n" for line in sections[0]))
    for a, b in zip(whole, read, strict=True):
        for field in (f for f in a._fields if f != "origin"):
            assert getattr(a, field) == getattr(b, field), field


def test_an_excerpt_has_no_index_and_says_what_it_lacks() -> None:
    facts = parse("smi-q", PENDING)
    found = next(f for f in facts if isinstance(f, Gpus))
    assert (found.complete, found.attached) == (False, 8)
    gpu = found.gpus[0]
    assert (gpu.index, gpu.bdf, gpu.remap_pending, gpu.remap_failed) == (None, "0000:3b:00.0", True, False)
    assert (gpu.remap_correctable, gpu.remap_uncorrectable) == (3, 1)
    assert gpu.at("remap_pending").where == "line 11"
    assert gpu.at("remap_pending").value == "Pending                           : Yes"
    reasons = [f.reason for f in facts if isinstance(f, Loss)]
    assert any("line 7" in r for r in reasons) and any("counts 8, 1" in r for r in reasons)
    assert next(f for f in facts if isinstance(f, Driver)).entry.version == "510.73.08"


def test_one_section_alone_gives_indices_where_every_gpu_is_there() -> None:
    block = "GPU 0000000{}:00:00.0\n    Retired Pages\n        Single Bit ECC    : {}\n        Pending Page Blacklist  : {}\n\n"
    text = "Attached GPUs   : 2\n" + block.format(1, 60, "No") + block.format(2, 2, "Yes")
    found = gpus(text)
    assert [(g.index, g.bdf, g.retired_single, g.retired_pending) for g in found] == [
        (0, "0001:00:00.0", 60, False),
        (1, "0002:00:00.0", 2, True),
    ]
    assert found.complete
    assert [g.index for g in gpus(text.replace("GPUs   : 2", "GPUs   : 3"))] == [None, None]
    assert [g.index for g in gpus(text.replace("Attached GPUs   : 2\n", ""))] == [None, None]


def test_ecc_parts_are_added_only_where_all_are_there() -> None:
    text = "GPU 00000000:01:00.0\n    ECC Errors\n        Volatile\n            SRAM Uncorrectable Parity : 2\n"
    assert gpus(text).gpus[0].ecc_uncorrectable_volatile is None
    text += "            SRAM Uncorrectable SEC-DED : 1\n            DRAM Uncorrectable : 4\n"
    assert gpus(text).gpus[0].ecc_uncorrectable_volatile == 7


def test_an_unfinished_last_line() -> None:
    head = "GPU 00000000:01:00.0\n    PCI\n        GPU Link Info\n            Link Width\n                Max : 16x\n"
    assert gpus(head + "                Current : 8x").gpus[0].width == 8
    assert gpus(head + "                Current : 1").gpus[0].width is None
    assert gpus(head + "    BAR1 Memory Usage\n        Total : 655").gpus[0].bar1_mib is None
    assert gpus(head + "    Persistence Mode : Disabled").gpus[0].persistence is False
    assert gpus(head + "    Product Name : NVIDIA H1").gpus[0].name is None


def test_the_next_output_is_not_swallowed() -> None:
    lspci = "\n$ lspci -D\n0000:01:00.0 3D controller: NVIDIA Corporation Device 2335 (rev a1)\n"
    topo = "\n$ nvidia-smi topo -m\n        GPU0    GPU1\nGPU0     X      NV18\nGPU1    NV18     X\n"
    kinds = [s.kind for s in recognise(sample("v100-418") + topo + lspci)]
    assert kinds == ["smi-q", "smi-topo", "lspci"]
    assert [s.kind for s in recognise(sample("v100-418") + sample("a100-mig-470"))] == ["smi-q", "smi-q"]


def test_prose_is_unparsable() -> None:
    with pytest.raises(Unparsable):
        parse("smi-q", "nothing of it\n")


@pytest.mark.parametrize("indent", ["    ", ""])
def test_an_excerpt_that_does_not_name_its_gpu(indent: str) -> None:
    # synthetic
    text = f"This one needs a reset:\n\n{indent}Remapped Rows\n{indent * 2}Uncorrectable Error               : 4\n{indent * 2}Pending : Yes\n\n"
    (section,) = recognise(text)
    assert section.kind == "smi-q"
    (gpu,) = (g for f in parse("smi-q", section.text) if isinstance(f, Gpus) for g in f)
    assert (gpu.index, gpu.bdf, gpu.remap_pending, gpu.subject, gpu.unnamed) == (None, None, True, "gpu:?", True)
    code, result = report("check", "--from", "-", stdin=text.encode())
    assert (code, result["facts"]["gpus"], slugs(result, "warning")) == (0, [], {"ecc-remap"})


@pytest.mark.parametrize("heading", ["Remapped Rows", "Fabric"])
def test_a_heading_alone_says_nothing(heading: str) -> None:
    (section,) = recognise(f"{heading}\n\nare explained below.\n")
    assert parse("smi-q", section.text) == []


def test_what_grep_leaves_of_the_fabric() -> None:
    # synthetic; `nvidia-smi -q | grep -A 2 Fabric` names no GPU
    def registered(*states: str) -> tuple[int, set[str]]:
        blocks = [f"    Fabric\n        State            : {s}\n        Status           : N/A\n" for s in states]
        code, result = report("check", "--from", "-", stdin="--\n".join(blocks).encode())
        return code, slugs(result, "error")

    assert registered("Completed", "In Progress", "In Progress") == (1, {"fabric"})
    assert registered("Completed", "Completed") == registered("N/A") == (0, set())
    broken = "    Fabric\n        State            : Completed\n        Status           : {}\n--\n"
    for status, found in (("Success", set()), ("N/A", set()), ("Unknown Error", {"fabric"}), ("Insufficient Resources", {"fabric"})):
        assert slugs(report("check", "--from", "-", stdin=(broken.format("Success") + broken.format(status)).encode())[1], "error") == found


def test_an_excerpt_is_of_one_gpu_however_often_a_heading_stands_below_others() -> None:
    text = "    Retired Pages\n        Single Bit ECC : 0\n    ECC Errors\n        Volatile\n            Double Bit\n                Total : 0\n"
    text += "        Aggregate\n            Double Bit\n                Total : 2\n"
    (gpu,) = (g for f in parse("smi-q", text) if isinstance(f, Gpus) for g in f)
    assert (gpu.ecc_uncorrectable_volatile, gpu.ecc_uncorrectable_aggregate) == (0, 2)


QUOTED = {
    "Clocks Throttle Reasons": """    Clocks Throttle Reasons
        Idle                        : Not Active
        SW Power Cap                : Not Active
        HW Slowdown                 : Active
            HW Thermal Slowdown     : Not Active
            HW Power Brake Slowdown : Active
        Sync Boost                  : Not Active
        SW Thermal Slowdown         : Not Active
        Display Clock Setting       : Not Active
""",
    "ECC Errors": """    ECC Errors
        Volatile
            SRAM Correctable            : 0
            SRAM Uncorrectable          : 0
            DRAM Correctable            : 4
            DRAM Uncorrectable          : 2
""",
    "MIG Mode": "    MIG Mode\n        Current                     : Enabled\n        Pending                     : Enabled\n",
    "BAR1 Memory Usage": "    BAR1 Memory Usage\n        Total                       : 256 MiB\n        Used                        : 3 MiB\n",
}


@pytest.mark.parametrize(
    ("heading", "field", "value"),
    [
        ("Clocks Throttle Reasons", "throttle", ("hw_slowdown", "hw_power_brake")),
        ("ECC Errors", "ecc_uncorrectable_volatile", 2),
        ("MIG Mode", "mig_mode", "enabled"),
        ("BAR1 Memory Usage", "bar1_mib", 256),
    ],
)
def test_a_part_of_the_output_quoted_without_its_gpu(heading: str, field: str, value: object) -> None:
    sections = [s for s in recognise(f"My GPU says\n\n{QUOTED[heading]}\nWhat now?\n") if s.kind == "smi-q"]
    assert len(sections) == 1
    (gpu,) = next(f for f in parse("smi-q", sections[0].text) if isinstance(f, Gpus))
    assert (getattr(gpu, field), gpu.bdf, gpu.index) == (value, None, None)


def test_the_same_part_of_two_gpus_is_two_gpus() -> None:
    text = QUOTED["MIG Mode"] + QUOTED["MIG Mode"].replace("Enabled", "Disabled")
    assert [g.mig_mode for g in gpus(text)] == ["enabled", "disabled"]


def test_headings_of_a_manual_are_no_output() -> None:
    assert [s for s in recognise("ECC Errors\n\nWhat they mean.\n\nMIG Mode\n\nIt splits a GPU.\n") if s.kind == "smi-q"] == []


def test_a_reason_that_is_active_counts_though_the_list_breaks_off() -> None:
    lines = QUOTED["Clocks Throttle Reasons"].splitlines(keepends=True)
    (gpu,) = gpus("".join(lines[:-1]))  # `grep -A 7`
    assert (gpu.throttle, gpu.hw_slowdown, gpu.hw_power_brake, gpu.hw_thermal, gpu.sw_thermal) == (None, True, True, False, False)
    (gpu,) = gpus("".join(lines[:4]))
    assert (gpu.hw_slowdown, gpu.hw_power_brake) == (True, None)


# Synthetic: excerpts that begin below the GPU's own line, as authors quote them.
EXCERPT = """        Device Id                         : 0x233010DE
        Bus Id                            : 00000000:18:00.0
        Sub System Id                     : 0x16C110DE
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 7
"""


def excerpt(text: str) -> list[tuple[str | None, str | None, int | None, int | None, int | None]]:
    found = [f for s in recognise(text) if s.kind == "smi-q" for f in parse(s.kind, s.text) if isinstance(f, Gpus)]
    return [(g.bdf, g.device_id, g.width, g.max_width, g.replays) for f in found for g in f]


def test_an_excerpt_below_the_gpus_own_line_knows_its_address() -> None:
    first = ("0000:18:00.0", "10de:2330", 8, 16, 7)
    assert excerpt(f"part of -q:\n```\n{EXCERPT}```\n") == [first]
    assert excerpt(EXCERPT.replace("        Device Id                         : 0x233010DE\n", "")) == [("0000:18:00.0", None, 8, 16, 7)]
    # A second GPU whose own line was left out too.
    second = EXCERPT.replace("        Device Id                         : 0x233010DE\n", "").replace("18:00", "2A:00").replace("8x", "16x").replace(": 7", ": 0")
    assert excerpt(EXCERPT + second) == [first, ("0000:2a:00.0", None, 16, 16, 0)]


def test_another_makers_device_begins_no_excerpt() -> None:
    assert excerpt("        Device Id                         : 0x73BF1002\n        Max : 5\n") == []


def test_an_excerpt_cut_anywhere() -> None:
    for end in range(len(EXCERPT)):
        try:
            found = [
                (g.bdf, g.device_id, g.width, g.max_width, g.replays)
                for f in parse("smi-q", EXCERPT[:end])
                if isinstance(f, Gpus)
                for g in f
            ]
        except Unparsable:
            continue
        for got in found:
            assert all(value in (None, right) for value, right in zip(got, ("0000:18:00.0", "10de:2330", 8, 16, 7), strict=True))


def driver(text: str) -> tuple[str | None, str | None]:
    (said,) = [f for s in recognise(text) for f in parse(s.kind, "".join(f"{line.text}\n" for line in s)) if isinstance(f, Driver)]
    return said.entry.version, said.entry.cuda_version


OLD = "Driver Version       : 610.10 [Deprecated; use KMD Version instead]\nCUDA Version         : 13.3 [Deprecated; use CUDA UMD Version instead]\n"
NEW = "KMD Version          : 610.10\nCUDA UMD Version     : 13.3\n"


@pytest.mark.parametrize("text", [OLD, NEW, OLD + NEW])
def test_versions_that_are_named_by_the_drivers_parts(text: str) -> None:
    assert driver(f"==============NVSMI LOG==============\n\n{text}\nAttached GPUs        : 1\n") == ("610.10", "13.3")


def test_the_versions_alone_as_version_prints_them() -> None:
    named = 'DRIVER version      : Deprecated, see "KMD version" instead\nCUDA version        : Deprecated, see "CUDA UMD version" instead\n'
    own = "KMD version         : 610.10\nCUDA UMD version    : 13.3\n"
    assert driver(f"NVIDIA-SMI version  : 610.10\nNVML version        : 610.10\n{named}{own}") == ("610.10", "13.3")
    older = "NVIDIA-SMI version  : 580.65.06\nNVML version        : 580.65\nDRIVER version      : 580.65.06\nCUDA Version        : 13.0\n"
    assert driver(older) == ("580.65.06", "13.0")
