"""What a paste wears: marks, borders, quotation, HTML. All texts are synthetic."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable

import pytest

from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.parsers import nccl_text, smi_nvlink, smi_q, smi_table, smi_topo
from gpudoctor.parsers.topo_matrix import matrices
from gpudoctor.read.section import Section
from tests.support import recognise

TOPO = (
    "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV12\tSYS\tPXB\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tPXB\t0-31,64-95\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tSYS\t32-63,96-127\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSYS\t X \t\t\t\t\n"
)
LINKS = (
    "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-00000001-1111-2222-3333-444455556666)\n"
    "\t Link 0: 25.781 GB/s\n\t Link 1: <inactive>\n"
    "GPU 1: Tesla V100-SXM2-32GB (UUID: GPU-00000002-1111-2222-3333-444455556666)\n"
    "\t Link 0: 25.781 GB/s\n\t Link 1: 25.781 GB/s\n"
)
TABLE = (
    "+-----------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |\n"
    "|-------------------------------+----------------------+----------------------+\n"
    "|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                    5 |\n"
    "| N/A   30C    P0    52W / 400W |      0MiB / 40536MiB |      0%      Default |\n"
    "|                               |                      |             Disabled |\n"
    "+-------------------------------+----------------------+----------------------+\n"
)
QUERY = (
    "Attached GPUs                             : 1\n"
    "GPU 00000000:07:00.0\n"
    "    PCI\n"
    "        GPU Link Info\n"
    "            Link Width\n"
    "                Max                       : 16x\n"
    "                Current                   : 8x\n"
    "    Remapped Rows\n"
    "        Pending                           : Yes\n"
)
TEXTS = {"topo": TOPO, "links": LINKS, "table": TABLE, "query": QUERY}


def said(sections: list[Section]) -> dict[object, object]:
    """What the parsers make of the sections, as values."""
    parsers = {"smi-topo": smi_topo, "smi-nvlink": smi_nvlink, "smi-table": smi_table, "smi-q": smi_q}
    out: dict[object, object] = {}
    for section in sections:
        for fact in parsers[section.kind].parse(section):
            if isinstance(fact, Pairs):
                out.update({("pair", p.a, p.b): (p.path, p.nvlinks) for p in fact})
            elif isinstance(fact, NvLinks):
                out.update({("link", x.gpu, x.link): (x.active, x.speed_gbs) for x in fact})
            elif isinstance(fact, Gpus):
                for g in fact:
                    out["gpu", g.index, g.bdf] = (g.name, g.cpu_affinity, g.numa_node, g.width, g.max_width, g.remap_pending)
    return out


def each(change: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(n, line) + "\n" for n, line in enumerate(text.splitlines(), 1))


DRESSES: dict[str, Callable[[str], str]] = {
    "cat -n": each(lambda n, line: f"{n:6}\t{line}"),
    "grep -n": each(lambda n, line: f"{n}:{line}"),
    "editor": each(lambda n, line: f"{n:3} {line}"),
    "editor with bar": each(lambda n, line: f"{n:3} | {line}"),
    "list": each(lambda n, line: f"{n}. {line}"),
    "added": each(lambda _, line: f"+{line}"),
    "added, apart": each(lambda _, line: f"+ {line}"),
    "removed": each(lambda _, line: f"-{line}"),
    "comment": each(lambda _, line: f"# {line}".rstrip()),
    "comment in C": each(lambda _, line: f"// {line}"),
    "bullets": each(lambda _, line: f"* {line}"),
    "time in brackets": each(lambda n, line: f"[2024-05-06 12:00:{n:02}] {line}"),
    "log of Python": each(lambda n, line: f"2024-05-06 12:00:{n:02},123 - INFO - {line}"),
    "log of Python, plain": each(lambda _, line: f"INFO:root:{line}"),
    "level": each(lambda _, line: f"[INFO] {line}"),
    "syslog": each(lambda n, line: f"May  6 12:00:{n:02} node07 startup[{n * 7}]: {line}"),
    "compose": each(lambda _, line: f"worker-1  | {line}"),
    "number, level": each(lambda n, line: f"{n}: [INFO] {line}"),
    "strings": each(lambda _, line: f"    {line!r},"),
    "strings of JSON": each(lambda _, line: json.dumps(line) + ","),
    "one string": lambda text: json.dumps({"title": "slow", "body": text}) + "\n",
    "preformatted": lambda text: f"<pre>{text}</pre>\n",
    "breaks": each(lambda _, line: f"{line}<br>"),
    "entities": lambda text: html.escape(text),
    "hard blanks": lambda text: text.expandtabs(8).replace(" ", "\xa0"),
    "zero width": lambda text: text.replace("\n", "\n\u200b").replace("\t", "\t\u200b"),
    "colours without escape": lambda text: text.replace("\n", "[0m\n", 1),
    "hard breaks": each(lambda _, line: f"{line}\\"),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES)
def test_a_dress_changes_no_value(dress, text):
    bare = said(recognise(text))
    assert bare
    assert said(recognise("Look at this:\n\n" + dress(text))) == bare


def test_rows_of_a_markdown_table():
    rows = [line.split("\t")[:7] for line in TOPO.splitlines()]
    table = "\n".join("| " + " | ".join(f"**{c}**" if c[:3] == "GPU" else c for c in row) + " |" for row in rows)
    first, _, rest = table.partition("\n")
    bare = said(recognise(TOPO))
    assert said(recognise(f"{first}\n|{'---|' * 7}\n{rest}\n")) == bare


def test_cells_of_a_web_page():
    rows = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in line.split("\t")[:7]) + "</tr>\n" for line in TOPO.splitlines())
    assert said(recognise(f"<table>\n{rows}</table>\n")) == said(recognise(TOPO))


def test_a_header_in_the_line_of_its_command():
    text = "nvidia-smi topo -m            " + TOPO.lstrip()
    assert said(recognise(text)) == said(recognise(TOPO))


def test_a_setting_behind_a_mark_is_not_made():
    sections = recognise("# " + TOPO.replace("\n", "\n# ") + "NCCL_P2P_DISABLE=1\n- NCCL_SHM_DISABLE=1\n")
    assert [s.kind for s in sections] == ["smi-topo"]


def test_tasks_that_take_turns_are_no_line_numbers():
    other = TOPO.replace("NV12", "PIX")
    turns = "".join(f"0: {a}\n1: {b}\n" for a, b in zip(TOPO.splitlines(), other.splitlines(), strict=True))
    first, second = (said([s]) for s in recognise(turns))
    assert first["pair", 0, 1] == ("NVL", 12) and second["pair", 0, 1] == ("PIX", None)


def test_tasks_one_after_the_other_are_no_line_numbers():
    text = "".join(f"0: {line}\n" for line in LINKS.splitlines()) + "".join(f"1: {line}\n" for line in LINKS.splitlines())
    assert [len(s.lines) for s in recognise(text)] == [6, 6]


def test_prose_around_does_not_matter():
    text = f"Hallo zusammen, hier die Ausgabe:\n{TOPO}\n你好，两张卡之间没有 NVLink。\n{LINKS}Grüße\n"
    assert said(recognise(text)) == {**said(recognise(TOPO)), **said(recognise(LINKS))}


def test_xml_keeps_its_tags_and_entities():
    text = (
        '<nvidia_smi_log>\n<gpu id="00000000:07:00.0">\n<product_name>A &amp; B</product_name>\n<health>\n<summary>N/A</summary>\n'
        "</health>\n</gpu>\n</nvidia_smi_log>\n"
    )
    (section,) = recognise(text)
    assert section.text == text.rstrip("\n") or re.sub(r"\n$", "", section.text) == text.rstrip("\n")


def test_a_line_that_said_nothing_before_is_read_inside_a_block():
    """Lines of one shape are looked at once, but never passed over where a block's marks are known."""
    chatter = "[INFO] GPU0 is at 95%\n[INFO] NIC0: mlx5_0 is up\n" * 3
    dressed = "".join(f"[INFO] {line}\n" for line in (TOPO + "\nNIC Legend:\n\n  NIC0: mlx5_7\n").splitlines())
    assert said(recognise(chatter + dressed)) == said(recognise(TOPO))


def test_a_log_that_speaks_of_gpus_in_ever_new_words_is_still_read():
    words = ("alpha", "beta", "gamma", "delta", "rho", "phi", "chi", "psi", "eta", "mu")
    log = "".join(f"{a} {b} {c} {d} GPU0 is busy\n" for a in words for b in words for c in words for d in words[:6])
    assert said(recognise(log + TOPO + log)) == said(recognise(TOPO))


@pytest.mark.parametrize("width", range(24, 90))
def test_a_clipped_matrix_says_nothing_else(width):
    """As `cut -c`, `less -S` or a narrow window leave it: no cell, list or name may be taken for a shorter one."""
    whole = said(recognise(TOPO))
    sections = recognise("\n".join(line[:width] for line in TOPO.expandtabs(8).splitlines()) + "\n")
    for section in sections:
        columns = {c for m in matrices(section) for c in m.columns or ()}
        assert columns <= {"GPU0", "GPU1", "GPU2", "NIC0"}
    for key, values in said(sections).items():
        assert all(v is None or v == w for v, w in zip(values, whole[key], strict=True)), (key, values)


def test_one_string_of_many_lines_with_a_log_in_it() -> None:
    """A message body as JSON holds it: words of a log in it do not keep the listing from being read."""
    body = (
        "My machine:\\n41:00.0 3D controller: NVIDIA Corporation Device 20f5 (rev a1)\\n\\t\\tLnkSta:\\tSpeed 16GT/s, Width x8\\n"
        "and the log:\\n[ 9.1] NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\\n"
    )
    kinds = [s.kind for s in recognise('{"body": "' + body + '"}\n')]
    assert sorted(kinds) == ["kernel-log", "lspci"]


@pytest.mark.parametrize("name", ["/var/log/messages:", "out/node1.txt:", "topo.log:{}:"])
def test_names_of_files_as_grep_prints_them(name: str) -> None:
    lines = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-31\nGPU1\tNV12\t X \t32-63\n".splitlines()
    (section,) = recognise("".join(f"{name.format(n)}{line}\n" for n, line in enumerate(lines, 9)))
    assert {(p.a, p.b, p.path) for f in smi_topo.parse(section) if isinstance(f, Pairs) for p in f} == {(0, 1, "NVL")}


@pytest.mark.parametrize("name", ["node07.example:", "a sentence.txt:"])
def test_other_words_with_a_colon_are_no_name_of_a_file(name: str) -> None:
    assert recognise(f"{name}GPU0\t X \tNV12\t0-31\n{name}GPU1\tNV12\t X \t32-63\n") == []


ENVIRONMENT = ("HOSTNAME=node07", "NCCL_P2P_DISABLE=1", "CUDA_VISIBLE_DEVICES=0,1", "HOME=/root")
LAUNCHED = [
    "trainer-1  | %s", "trainer    | %s", "[pod/w-0/main] %s", "[pod/w-0/main] 2026-03-01T12:00:00.1Z %s", "Mar 01 12:00:00 node07 python3[12]: %s",
]  # fmt: skip


@pytest.mark.parametrize("shape", LAUNCHED)
def test_an_environment_behind_what_a_launcher_puts_there(shape: str) -> None:
    found = [s for s in recognise("".join(shape.replace("%s", line) + "\n" for line in ENVIRONMENT)) if s.kind == "nccl-conf"]
    texts = [line.text for s in found for line in s.lines]
    assert "NCCL_P2P_DISABLE=1" in texts and "CUDA_VISIBLE_DEVICES=0,1" in texts


@pytest.mark.parametrize("shape", ["# %s", "- %s", "// %s", "; %s", "+ # %s", "12: # %s", "trainer-1  | # %s", "[pod/w-0/main] #%s", "Workaround | %s"])
def test_a_setting_behind_a_mark_that_may_make_a_comment_of_it_is_none(shape: str) -> None:
    found = [s for s in recognise("".join(shape.replace("%s", line) + "\n" for line in ENVIRONMENT)) if s.kind == "nccl-conf"]
    assert not any(line.text.startswith("NCCL_P2P_DISABLE") for s in found for line in s.lines)


QUOTING = ("[rank1]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.", "[rank1]: Last error:", "[rank1]: The flux of peer 7 is inverted", "[rank1]: step 12")
WRAPPED: dict[str, Callable[[str], str]] = {
    "Docker": lambda line: json.dumps({"log": line + "\n", "stream": "stderr"}),
    "the key last": lambda line: json.dumps({"kubernetes": {"pod_name": "w-1"}, "log": line + "\n"}),
    "journald": lambda line: json.dumps({"_PID": "4", "MESSAGE": line, "X": "y"}),
    "a row": lambda line: f'1772366400,"{line}"',
    "a list": lambda line: f"{line!r},",
    "code": lambda line: f"`{line}`",
    "emphasis": lambda line: f"**{line}**",
    "a page": lambda line: f"<div><span>{line}</span></div>",
    "plain": str,
}


@pytest.mark.parametrize("way", WRAPPED)
def test_what_pytorch_quotes_of_nccl_is_the_line_below_however_each_is_wrapped(way: str) -> None:
    (said,) = [s for s in recognise("".join(WRAPPED[way](line) + "\n" for line in QUOTING)) if s.kind == "nccl-text"]
    (nccl,) = nccl_text.parse(said)
    assert isinstance(nccl, Nccl)
    assert [m.text for m in nccl.messages if m.family == "unknown"] == ["The flux of peer 7 is inverted"]
    assert {m.rank for m in nccl.messages} == {1}
