"""The plain nvidia-smi table of several drivers, and nvidia-smi's CSV."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

OUTPUTS = FIXTURES / "outputs"


def read(text: str) -> FactStore:
    return FactStore(None, [f for s in recognise(text) for f in parse(s.kind, s.text, s.command)])


def table(name: str) -> FactStore:
    return read((OUTPUTS / "smi-table" / name).read_text())


def test_two_line_rows_of_418():
    got = table("v100x2-418.txt")
    driver = got.get(Driver).entry
    assert (driver.version, driver.cuda_version, driver.failure) == ("418.87.01", "10.1", None)
    first, second = got.get(Gpus)
    assert got.get(Gpus).complete
    assert (first.bdf, first.name, first.persistence, first.pstate) == ("0000:1a:00.0", "Tesla V100-SXM2...", True, 0)
    assert (second.ecc_uncorrectable_volatile, second.fb_mib, second.utilisation_pct) == (2, 32480, 97)
    assert (first.mig_mode, first.error) == (None, None)


def test_three_line_rows_and_a_gpu_that_does_not_answer():
    gpus = table("a100x4-470-gpu2-gone.txt").get(Gpus)
    assert [g.error for g in gpus] == [None, None, "ERR!", None]  # ERR! for fan and power alone is no lost GPU
    assert [g.mig_mode for g in gpus] == ["disabled", "enabled", None, "disabled"]
    assert [g.ecc_uncorrectable_volatile for g in gpus] == [0, None, None, 0]  # `On` is MIG's, no count
    assert [g.utilisation_pct for g in gpus] == [0, None, None, 0]
    assert [g.name for g in gpus] == ["NVIDIA A100-SXM...", "NVIDIA A100-SXM...", None, "NVIDIA A100-SXM..."]
    assert [g.inforom_corrupted for g in gpus] == [None, None, None, True]
    assert gpus.by_index(3).at("inforom_corrupted").where == "line 28"


def test_wide_table_of_580():
    gpus = table("rtx4090x2-580.txt").get(Gpus)
    assert [(g.index, g.bdf, g.name, g.display_active, g.persistence) for g in gpus] == [
        (0, "0000:01:00.0", "NVIDIA GeForce RTX 4090", True, False),
        (1, "0000:41:00.0", "NVIDIA GeForce RTX 4090", False, False),
    ]
    assert [(g.pstate, g.utilisation_pct, g.fb_mib, g.ecc_uncorrectable_volatile) for g in gpus] == [(8, 1, 24564, None), (2, 88, 24564, None)]


@pytest.mark.parametrize("change", [lambda t: "".join(f"> {x}\n" for x in t.splitlines()), lambda t: t.replace("\n", "\r\n"), lambda t: "\n".join(" ".join(x.split()) for x in t.splitlines()) + "\n"])
def test_mangled_tables_read_the_same(change):
    text = (OUTPUTS / "smi-table/rtx4090x2-580.txt").read_text()
    def values(store: FactStore) -> list[tuple[Any, ...]]:
        return [(g.index, g.bdf, g.name, g.pstate, g.fb_mib, g.utilisation_pct) for g in store.get(Gpus)]
    assert values(read(change(text))) == values(read(text))


def test_a_list_is_whole_only_with_what_follows_it():
    text = (OUTPUTS / "smi-table/rtx4090x2-580.txt").read_text()
    assert read(text).get(Gpus).complete
    assert not read(text[: text.index("| Processes")]).get(Gpus).complete
    assert not read("$ nvidia-smi -i 0\n" + text).get(Gpus).complete
    first = text.index("|   1  NVIDIA")
    elided = read(text[:first] + "...\n" + text[text.index("| Processes") :])
    assert not elided.get(Gpus).complete and elided.losses
    only_second = text[: text.index("|   0  NVIDIA")] + text[first:]
    assert not read(only_second).get(Gpus).complete


@pytest.mark.parametrize(
    "words",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
    ],
)
def test_the_drivers_words_when_it_does_not_answer(words):
    got = read(f"$ nvidia-smi\n{words}\n")
    assert got.get(Driver).entry.failure.startswith(words[:40])
    assert got.get(Gpus) is None


def test_no_devices_is_an_empty_list():
    assert len(read("# nvidia-smi\nNo devices were found\n").get(Gpus)) == 0


@pytest.mark.parametrize(
    ("line", "index", "bdf"),
    [
        ("Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system to recover this GPU", None, "0000:05:00.0"),
        ("Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error", 3, "0000:5f:00.0"),
        ("Unable to determine the device handle for GPU2: Unknown Error", 2, None),
    ],
)
def test_a_gpu_without_handle(line, index, bdf):
    (gpu,) = read(line + "\n").get(Gpus)
    assert (gpu.index, gpu.bdf) == (index, bdf) and gpu.error


def test_a_whole_name_beats_one_that_the_table_shortened():
    listed = "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
    got = read((OUTPUTS / "smi-table/v100x2-418.txt").read_text() + "\n$ nvidia-smi -L\n" + listed)
    assert [g.name for g in got.get(Gpus)] == ["Tesla V100-SXM2-32GB", "Tesla V100-SXM2..."]


def test_something_else_with_bars_is_no_table():
    with pytest.raises(Unparsable):
        parse("smi-table", "+---+\n| a | b | c |\n+---+\n")


# --- CSV


def csv(text: str) -> FactStore:
    sections = recognise(text)
    assert [s.kind for s in sections] == ["smi-csv"]
    return FactStore(None, parse("smi-csv", sections[0].text))


def test_csv_of_two_h200():
    got = csv((OUTPUTS / "smi-csv/h200x2.txt").read_text())
    first, second = got.get(Gpus)
    assert (first.index, first.bdf, first.name) == (0, "0000:00:06.0", "NVIDIA H200")
    assert (second.speed_gts, second.max_speed_gts, second.card_max_speed_gts, second.slot_max_speed_gts) == (32.0, 32.0, 32.0, None)
    assert (second.width, second.max_width, second.mig_mode) == (16, 16, "disabled")
    assert (second.fabric_state, second.fabric_status) == ("completed", "success")
    assert got.get(Driver).entry.version == "580.159.04"


def test_csv_with_units_loop_and_a_lost_gpu():
    first, second = csv((OUTPUTS / "smi-csv/l40sx2-loop-units.txt").read_text()).get(Gpus)
    assert first.index is None  # no such column
    assert (first.fb_mib, first.utilisation_pct, first.power_limit_w, first.pstate) == (46068, 0, 350.0, 8)
    assert (first.throttle, second.throttle) == (("idle",), ("sw_power_cap", "hw_thermal"))
    assert [(s.speed_gts, s.width, s.busy) for s in first.samples] == [(2.5, 16, None), (16.0, 16, None)]
    assert (first.speed_gts, second.width, second.max_width) == (2.5, 8, 16)
    assert (first.error, second.error, second.at("error").where) == (None, "GPU is lost", "line 5")


def test_csv_in_any_order_and_without_units():
    text = "memory.total [MiB], uuid, ecc.errors.uncorrected.volatile.total, pcie.link.width.current, index\n24564, GPU-00000000-0000-0000-0000-000000000001, 3, [N/A], 4\n"
    (gpu,) = csv(text).get(Gpus)
    assert (gpu.index, gpu.fb_mib, gpu.ecc_uncorrectable_volatile, gpu.width) == (4, 24564, 3, None)


def test_a_row_with_other_columns_is_a_loss():
    facts = parse("smi-csv", "index, name, pcie.link.width.max\n0, NVIDIA L4, 16\n1, NVIDIA L4\n")
    assert [f.fact for f in facts if isinstance(f, Loss)] == ["a row of nvidia-smi's table"]
    assert [g.index for f in facts if isinstance(f, Gpus) for g in f] == [0]


def test_a_lost_gpu_in_csv():
    (gpu,) = csv("index, pci.bus_id, pstate\n1, 00000000:65:00.0, [GPU is lost]\n").get(Gpus)
    assert (gpu.error, gpu.pstate) == ("GPU is lost", None)


@pytest.mark.parametrize("text", ["name, index, value\na, 1, 2\n", "0, NVIDIA H200, 5\n", "index,loss\n0,1.2\n"])
def test_other_tables_are_not_taken(text):
    assert recognise(text) == []


def test_an_excerpt_that_begins_below_the_head():
    text = """| N/A   31C    P0              61W / 400W |      4MiB / 40960MiB |      0%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+
|   5  NVIDIA A100-SXM4-40GB          On  | 00000000:8B:00.0 Off |                    3 |
| N/A   33C    P0              60W / 400W |      4MiB / 40960MiB |      0%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+
"""
    gpus = read(text).get(Gpus)
    assert [(g.index, g.bdf, g.ecc_uncorrectable_volatile, g.mig_mode) for g in gpus] == [(5, "0000:8b:00.0", 3, "disabled")]
    assert not gpus.complete


def test_a_bar_and_an_address_alone_are_no_table():
    assert not [s for s in recognise("| 3 | 00000000:8B:00.0 | reset it |\n| GPU | 00000000:8B:00.0 Off |\n") if s.kind == "smi-table"]


MIG_DEVICES = """+-----------------------------------------------------------------------------+
| MIG devices:                                                                |
+------------------+----------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |
|      ID  ID  Dev |           BAR1-Usage | SM     Unc| CE  ENC  DEC  OFA  JPG|
|==================+======================+===========+=======================|
|  2    9   0   0  |     12MiB /  9856MiB | 14      0 |  1   0    0    0    0 |
|                  |      0MiB / 16383MiB |           |                       |
+------------------+----------------------+-----------+-----------------------+
|  2   10   0   1  |     12MiB /  9856MiB | 14      0 |  1   0    0    0    0 |
+------------------+----------------------+-----------+-----------------------+
"""


def test_the_list_of_mig_devices_alone_names_the_gpus_that_are_split():
    assert [(g.index, g.mig_mode) for g in read(MIG_DEVICES).get(Gpus)] == [(2, "enabled")]


def test_an_empty_list_of_mig_devices_splits_no_gpu():
    text = "| MIG devices:                                  |\n|  No MIG devices found                         |\n"
    assert read(text).get(Gpus) is None


def test_the_list_of_mig_devices_adds_to_the_table_above_it():
    head = "|   2  NVIDIA A100-SXM...  On   | 00000000:47:00.0 Off |                   On |\n"
    (gpu,) = read(head + MIG_DEVICES).get(Gpus)
    assert (gpu.bdf, gpu.mig_mode, gpu.fb_mib) == ("0000:47:00.0", "enabled", None)


@pytest.mark.parametrize(("cell", "mode"), [("On", "enabled"), ("Off", None), ("0", None), ("N/A", None)])
def test_a_table_cut_above_the_line_of_mig_says_it_by_its_ecc_cell(cell, mode):
    head = "| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |\n|=====+====+====|\n"
    row = f"|   0  NVIDIA H100 PCIe               On  |   00000000:C1:00.0 Off |{cell:>21} |\n| N/A"
    (gpu,) = read(head + row).get(Gpus)
    assert (gpu.bdf, gpu.mig_mode) == ("0000:c1:00.0", mode)


# Synthetic, in the shape of `nvidia-smi mig -lgi`, `-lci` and `-lgip`.
MADE = """+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19        9          2:1     |
+-------------------------------------------------------+
|   3  MIG 3g.40gb+me       9        1          4:4     |
+-------------------------------------------------------+
"""
COMPUTE = """+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   1      7       MIG 1g.5gb           0         0          0:1     |
+--------------------------------------------------------------------+
"""
PROFILES = """+-----------------------------------------------------------------------------+
| GPU instance profiles:                                                      |
| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                              Free/Total   GiB              CE    JPEG  OFA  |
|=============================================================================|
|   0  MIG 1g.10gb       19     7/7        9.50       No     14     0     0   |
+-----------------------------------------------------------------------------+
"""


@pytest.mark.parametrize(("text", "cut_up"), [(MADE, [0, 3]), (COMPUTE, [1]), (PROFILES, [])])
def test_instances_that_were_made_say_that_mig_is_on(text: str, cut_up: list[int]) -> None:
    """A list of profiles is no proof: the driver gives it for any GPU that could be cut up."""
    found = [f for s in recognise(text) for f in parse(s.kind, s.text)]
    gpus = [g for f in found if isinstance(f, Gpus) for g in f]
    assert [(g.index, g.mig_mode) for g in gpus] == [(index, "enabled") for index in cut_up]


@pytest.mark.parametrize("text", [MADE, COMPUTE])
def test_a_list_of_instances_cut_anywhere_names_no_other_gpu(text: str) -> None:
    for end in range(len(text)):
        found = [f for s in recognise(text[:end]) if s.kind == "smi-table" for f in parse(s.kind, s.text)]
        assert {g.index for f in found if isinstance(f, Gpus) for g in f} <= {0, 1, 3}
