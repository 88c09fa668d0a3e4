"""Where outputs begin and end, whose they are, and which command printed them."""

from __future__ import annotations

import re

import pytest

from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.read.prompts import MAX_DISTANCE
from gpudoctor.read.recognise import Recogniser
from gpudoctor.read.section import Unparsable
from gpudoctor.read.table import FORMATS, any_of, compiled
from gpudoctor.read.team import Team
from gpudoctor.read.text import MAX_LINE, clean
from tests.support import FIXTURES, parse, recognise

OUTPUTS = FIXTURES / "outputs"


def clean_lines(text: str) -> str:
    return "".join(f"{clean(line)}\n" for line in text.splitlines())


TOPO = (OUTPUTS / "smi-topo/h200x2-m.txt").read_text()
TOPO = clean_lines(TOPO[: TOPO.index("\nLegend")])
NVLINK = (OUTPUTS / "smi-nvlink/h200x2-s.txt").read_text()
TABLE = (OUTPUTS / "smi-table/rtx4090x2-580.txt").read_text()
LSMOD = (OUTPUTS / "lsmod/dgx.txt").read_text()
CSV = (OUTPUTS / "smi-csv/h200x2.txt").read_text()
EACH = {
    path.parent.name + "/" + path.name: path.read_text()
    for kind in ("smi-topo", "smi-nvlink", "smi-table", "smi-csv", "lscpu", "numactl-h", "df", "ulimit", "lsmod", "ibstat", "smi-q", "smi-qx")
    for path in sorted((OUTPUTS / kind).glob("*.txt"))
    if path.name != "help.txt"
}


def kinds(text: str | bytes) -> list[str]:
    return [s.kind for s in recognise(text)]


def hosts(text: str) -> list[str | None]:
    return [s.host for s in recognise(text)]


def facts(text: str | bytes) -> FactStore:
    return FactStore(None, [f for s in recognise(text) for f in parse(s.kind, s.text, s.command)])


# --- prefixes


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize(
    "prefix",
    ["> ", "[1,0]<stdout>:", "[rank0]: ", "(Worker pid=1) ", "2025-01-02T03:04:05.123456789Z ", "0: ", "node07: ", " 3: "],
)
def test_a_prefix_on_every_line_changes_nothing(prefix, name):
    plain = recognise(EACH[name])
    prefixed = recognise("".join(f"{prefix}{line}\n" for line in EACH[name].splitlines()))
    assert [s.kind for s in prefixed] == [s.kind for s in plain]
    assert [[x.text.strip() for x in s if x.text.strip()] for s in prefixed] == [[x.text.strip() for x in s if x.text.strip()] for s in plain]


def test_interleaved_ranks_are_put_apart():
    rows = TOPO.splitlines()
    mixed = "".join(f"{rank}: {row}\n" for row in rows for rank in (0, 1))
    assert kinds(mixed) == ["smi-topo", "smi-topo"]
    assert [[x.text for x in s] for s in recognise(mixed)] == [rows, rows]


def test_hosts_by_label_and_by_prompt():
    mixed = "".join(f"node{n}: {row}\n" for row in TOPO.splitlines() for n in (1, 2))
    assert sorted(str(h) for h in hosts(mixed)) == ["node1", "node2"]
    assert hosts(f"root@alpha:~# nvidia-smi topo -m\n{TOPO}[me@beta ~]$ nvidia-smi nvlink -s\n{NVLINK}") == ["alpha", "beta"]
    assert hosts("".join(f"0: {row}\n" for row in TOPO.splitlines())) == [None]  # Slurm's rank, no host
    assert hosts(f"git@github.com:some/repo # x\n{TOPO}") == [None]


# --- commands


@pytest.mark.parametrize(
    "above",
    [
        "$ nvidia-smi topo -p2p r",
        "# nvidia-smi topo -p2p r",
        "+ nvidia-smi topo -p2p r",
        "root@node1:/project# nvidia-smi topo -p2p r",
        "[user@node1 ~]$ nvidia-smi topo -p2p r",
        "(base) [user@node1 ~]$ nvidia-smi topo -p2p r",
        "(env) user@node1:~/x$ sudo nvidia-smi topo -p2p r",
        "$ user@node1:~$ nvidia-smi topo -p2p r",
        "user@node1 ~ % nvidia-smi topo -p2p r",
        "nvidia-smi topo -p2p r",
        "/usr/bin/nvidia-smi topo -p2p r",
        "#### nvidia-smi topo -p2p r",
        "Output of `nvidia-smi topo -p2p r`:\n\n```\n",
        "<summary>nvidia-smi topo -p2p r</summary>\n\n```text",
        "$ nvidia-smi -L; nvidia-smi topo -p2p r",
        "$ docker exec box nvidia-smi topo -p2p r",
    ],
)
def test_the_command_above(above):
    (section,) = recognise(f"{above}\n \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n")
    assert section.command is not None
    pair = next(f for f in parse(section.kind, section.text, section.command) if isinstance(f, Pairs)).of(0, 1)
    assert (pair.p2p_read, pair.p2p_unstated) == ("OK", None)


def test_commands_of_one_line_go_to_their_outputs():
    (table, topo) = recognise(f"$ nvidia-smi && nvidia-smi topo -mp\n{TABLE}{TOPO}")
    assert (table.kind, topo.kind, topo.command) == ("smi-table", "smi-topo", "nvidia-smi topo -mp")


def test_a_command_far_above_belongs_to_something_else():
    between = "some words\n" * (MAX_DISTANCE + 1)
    assert [s.command for s in recognise(f"$ nvidia-smi topo -mp\n{between}{TOPO}")] == [None]
    assert [s.command for s in recognise(f"$ nvidia-smi topo -mp\n{between[:22]}{TOPO}")] == ["nvidia-smi topo -mp"]


def test_a_command_is_used_once_and_only_where_it_fits():
    one, two = recognise(f"$ nvidia-smi topo -mp\n{TOPO}\n{TOPO}")
    assert (one.command, two.command) == ("nvidia-smi topo -mp", None)
    assert [s.command for s in recognise(f"$ lscpu\n{TOPO}")] == [None]


# --- where blocks end


def test_several_outputs_between_prose():
    text = f"""Hello,

training hangs on our two GPUs. This is what I see:

```
{TOPO}```
and the links

~~~
{NVLINK}~~~

<details><summary>lsmod</summary>
{LSMOD}</details>

{TABLE}
Any idea? The CSV is

{CSV}
Thanks
"""
    assert kinds(text) == ["smi-topo", "smi-nvlink", "lsmod", "smi-table", "smi-csv"]
    got = facts(text)
    assert len(got.get(Gpus)) == 4  # two of the table, two of the CSV: other addresses
    assert len(got.get(NvLinks).links) == 36


@pytest.mark.parametrize("first", EACH)
def test_any_two_outputs_under_each_other_are_told_apart(first):
    alone = [[x.text for x in s] for s in recognise(EACH[first]) if s.kind != "smi-failure"]  # single lines come last
    for second in ("smi-topo/h200x2-m.txt", "smi-nvlink/h200x2-s.txt", "lsmod/dgx.txt", "smi-table/rtx4090x2-580.txt", "numactl-h/two-nodes-and-memory.txt"):
        if first.split("/")[0] == second.split("/")[0] == "smi-nvlink":
            continue  # `-s` and `-e` under each other are one listing
        got = recognise(f"{EACH[first]}\n{EACH[second]}")
        assert sorted(s.kind for s in got) == sorted(kinds(EACH[first]) + kinds(EACH[second])), second
        for section, lines in zip(got, alone, strict=False):
            # A table's upper edge and the date above it may go to the table before.
            assert [x.text for x in section][: len(lines)] == lines, second


def test_fences_end_a_block_and_a_stranger_may_stand_inside():
    rows = TOPO.splitlines()
    assert kinds("\n".join([*rows[:2], "```", rows[2]]) + "\n") == ["smi-topo", "smi-topo"]
    assert kinds("\n".join([*rows[:2], "^ this one is odd", rows[2]]) + "\n") == ["smi-topo"]
    assert kinds("\n".join([*rows[:2], "two", "strangers", rows[2]]) + "\n") == ["smi-topo", "smi-topo"]


def test_the_same_output_twice_is_two_sections():
    assert kinds(TOPO + TOPO) == ["smi-topo", "smi-topo"]
    assert kinds(TABLE + TABLE) == ["smi-table", "smi-table"]
    assert kinds(CSV + CSV) == ["smi-csv", "smi-csv"]


def test_bug_report_log():
    line = "_" * 44
    text = f"""{line}

Start of NVIDIA bug report log file.  Please include this file.

nvidia-bug-report.sh Version: 37057895

Date: Tue Aug 19 09:00:00 UTC 2025
{line}

*** /proc/driver/nvidia/./version
*** ls: -r--r--r-- 1 root root 0 2025-08-19 09:00:00.000000000 +0000 /proc/driver/nvidia/./version
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build
GCC version:  gcc version 12.3.0
{line}

*** /proc/driver/nvidia/./gpus/0000:41:00.0/information
*** ls: -r--r--r-- 1 root root 0 2025-08-19 09:00:00.000000000 +0000 /proc/driver/nvidia/./gpus/0000:41:00.0/information
Model: \t\t NVIDIA GeForce RTX 4090
IRQ:   \t\t 141
GPU UUID: \t GPU-00000000-0000-0000-0000-000000000007
Video BIOS: \t 95.02.3c.40.b8
Bus Type: \t PCIe
Bus Location: \t 0000:41:00.0
Device Minor: \t 0
GPU Excluded:\t No
{line}

/usr/bin/nvidia-smi topo -m

{TOPO}
{line}

/usr/bin/nvidia-smi nvlink --status

{NVLINK}
{line}

/sbin/lsmod

{LSMOD}
{line}

/usr/bin/lscpu

{EACH["lscpu/epyc-two-sockets.txt"]}
{line}

{EACH["smi-q/h200x2-580.txt"]}
{line}
"""
    assert kinds(text) == ["proc-nvidia", "proc-nvidia", "smi-topo", "smi-nvlink", "lsmod", "lscpu", "smi-q"]
    assert [s.command for s in recognise(text)][2:4] == ["nvidia-smi topo -m", "nvidia-smi nvlink --status"]


def test_the_kernel_modules_own_files():
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 12.3.0\n"
    entry = facts(version).get(Driver).entry
    assert (entry.module_version, entry.open_module, entry.version) == ("535.104.05", False, None)
    entry = facts("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n").get(Driver).entry
    assert (entry.module_version, entry.open_module) == ("580.65.06", True)
    card = "Model: \t\t Tesla V100\nGPU UUID: \t GPU-????????-????-????-????-????????????\nBus Location: \t 0000:1a:00.0\n"
    (gpu,) = facts(card).get(Gpus)
    assert (gpu.name, gpu.bdf, gpu.uuid, gpu.index) == ("Tesla V100", "0000:1a:00.0", None, None)
    with pytest.raises(Unparsable):
        parse("proc-nvidia", "Model: Tesla V100\n")


# --- what is nothing


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n\n",
        "Found 2 devices\n0. GeForce RTX 2080 Ti [00000000:01:00.0]\nStart calling NVLINK query:839863977\nSUPPORT P2P:1\n",
        "GPU memory is full. Link: https://example.org/topo\nSYS = system, NODE = node\n",
        "Epoch 1, GPU0 util 93%, loss 0.12\nGPU 0: 93%\n",
        (OUTPUTS / "smi-topo/help.txt").read_text() + (OUTPUTS / "smi-nvlink/help.txt").read_text(),
        "name,index,value\nfoo,1,2\n",
        "the nvidia driver 535 was loaded; export nothing\n",
        "Model: 5\nVendor: none\n",
    ],
)
def test_foreign_text_is_not_recognised(text):
    assert recognise(text) == []


def test_binary_and_endless_lines():
    noise = bytes((n * 7919 + n // 251) % 256 for n in range(200_000))
    assert recognise(noise) == []
    (endless,) = recognise(b"GPU0 " * 2_000_000)  # 10 MB that look like a header, without a line end
    assert len(endless.lines[0].text) == MAX_LINE
    with pytest.raises(Unparsable):
        parse(endless.kind, endless.text)
    assert kinds(b"a" * 10_000_000 + b"\n" + TOPO.encode()) == ["smi-topo"]
    assert kinds(TOPO.encode("utf-16")) == ["smi-topo"]


def test_what_is_known_is_found_in_the_middle_of_a_large_log():
    junk = "".join(f"2025-01-02 03:04:05,{n % 1000:03d} INFO step {n} | loss 0.{n} | GPU mem 71.{n % 10} GiB | lr 1.0e-4\n" for n in range(30_000))
    text = junk + "root@node9:~# nvidia-smi topo -m\n" + TOPO + junk + "Failed to initialize NVML: Driver/library version mismatch\n" + junk
    sections = recognise(text)
    assert [(s.kind, s.host) for s in sections] == [("smi-topo", "node9"), ("smi-failure", "node9")]
    assert sections[0].command == "nvidia-smi topo -m"
    assert sections[0].lines[0].number == 30_002
    assert sections[1].lines[0].number == 60_002 + len(TOPO.splitlines())
    assert facts(text).get(Driver).entry.failure


# --- the table of formats itself


@pytest.mark.parametrize(("end", "members"), [("\n", 1), ("\r\n", 1), (" \x1b[0m\n", 1), ("\n", 2)], ids=["plain", "crlf", "coloured", "by-children"])
def test_what_a_training_script_says_of_its_gpus_is_seen_a_few_times_only(end, members, monkeypatch):
    """Each of these lines holds a word that may begin an output, and none begins one."""
    seen = []
    monkeypatch.setattr(Recogniser, "feed", lambda self, line, feed=Recogniser.feed: seen.append(line) or feed(self, line))
    text = "".join(f"[GPU{n % 8}] Epoch {n} | Batchsize: 32{end}Rank {n % 8} is done after {n} s{end}" for n in range(40_000)).encode()
    matrix = b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-47\t0\nGPU1\tNV18\t X \t0-47\t0\n"
    whole = text + matrix + text
    team = Team(after=1 << 16, members=members)  # children begin before they could hear of it
    found = list(Recogniser("log", team=team).run(whole[at : at + (1 << 16)] for at in range(0, len(whole), 1 << 16)))
    assert len(team._all) == (members if members > 1 else 0)
    team.close()
    assert [(s.kind, len(s.lines)) for s in found] == [("smi-topo", 3)]
    assert len(seen) < 10_000


def test_a_line_that_begins_an_output_is_found_behind_one_with_other_digits():
    dump = '{\n  "version": "2.10",\n  "pg_config": {},\n  "entries": []\n}\n'
    assert [len(s.lines) for s in recognise('{\n  "version": "1.10",\n  "x": 2\n}\ntext\n' + dump)] == [4]


@pytest.mark.parametrize("name", EACH)
def test_a_line_that_begins_an_output_is_never_passed_over(name):
    telling = re.compile(any_of(compiled()).exact)
    for line in EACH[name].splitlines():
        for how in compiled():
            if how.starts.search(line):
                assert telling.search(line), (how.format.kind, line)
                assert how.begins_in(line), (how.format.kind, line)


@pytest.mark.parametrize("text", ["a" * 60_000, "GPU0 " * 12_000, " " * 60_000 + "x", "1, " * 20_000, "A:" * 30_000, "Link 0: " * 8_000, "=" * 60_000, "/dev/shm " * 7_000, "0-1," * 15_000, "NCCL_X=" * 8_000, "a_1 " * 15_000, "GPU0\t" + "NODE " * 12_000 + "!", "[" * 60_000, "(" * 60_000])
def test_no_expression_explodes(text):
    """A hostile line of the greatest length: an expression that is not linear never comes back from here."""
    for how in compiled():
        for pattern in (how.starts, how.belongs, how.first, how.until):
            assert pattern is None or pattern.search(text) is None or len(text) > 0
    assert all(len(s.lines) == 1 for s in recognise(text + "\n"))


def test_hints_begin_with_a_letter_that_can_be_looked_for():
    for entry in FORMATS:
        for hint in entry.hints:
            assert re.escape(hint[0]) in (hint[0], "\\" + hint[0]) and hint[0] not in ".^$*+?{}[]|()\\", hint
