"""Writes the manual pages and the shells' completions out of the commands themselves: `python -m tools.man FOLDER`.

The layout is that of /usr/share, so that a wheel can hand it on as it is. What no command says of itself (statuses,
variables, files, examples) stands here.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import click
from click import shell_completion

import gpudoctor
from gpudoctor.cli.main import COMMANDS, cli

DATE = "2026-11-29"  # of the last release, or of its making; given here so that two builds are alike

ONLY = "It only looks: nothing on the host is changed, and no command that a report proposes is run."
LINE = 78  # characters of the source; what a reader sees is filled by man
STATUS = (
    ("0", "Judged, and nothing at or above --fail-on (default: error)."),
    ("1", "A fault was found. It wins over 3."),
    ("2", "Wrong usage, or a policy with mistakes."),
    ("3", "Could not tell: something that the verdict needs hung, failed or was not there. Never 0."),
    ("130", "Interrupted."),
)
ENVIRONMENT = (
    ("NO_COLOR", "Set to anything: no colour. A pipe, or TERM=dumb, has none either."),
    ("GPUDOCTOR_PROBE_DIR", "A recorded host whose answers stand in for this one's; every report says so, and gate refuses it."),
    ("NCCL_TESTS_HOME", "Where nccl-tests are installed, for bandwidth and gate. Then PATH is searched."),
    ("VIRTUAL_ENV, CONDA_PREFIX", "The active environment: the first place in which bandwidth looks for a Python with PyTorch."),
    ("SLURM_JOB_GPUS", "The GPUs of the job: gate judges only these."),
    ("NCCL_*, CUDA_VISIBLE_DEVICES", "Read, never set: what a job started from this shell would get is part of the verdict."),
    ("NCCL_CONF_FILE", "Read as NCCL does, instead of ~/.nccl.conf."),
)
FILES = (
    ("/etc/nccl.conf, ~/.nccl.conf", "NCCL's settings on this host; read only."),
    ("manifest.json", "In a snapshot: what was run, how it ended, and the file with its output."),
)
EXAMPLES = (
    ("What is wrong with this host:", "gpudoctor check"),
    ("A log, an output or a pasted bug report:", "gpudoctor check --from report.txt"),
    ("What needs root, read by root, the rest by you:", "sudo lspci -vv -D > lspci.txt; gpudoctor check --live --from lspci.txt"),
    ("In a prolog or an init container:", "gpudoctor check -q || exit 1"),
    ("What two GPUs reach together:", "gpudoctor bandwidth --gpus 2"),
    ("May this node be used?", "gpudoctor gate --policy h100-sxm-x8"),
    ("A snapshot to send to somebody:", "gpudoctor capture -o host.tar.gz"),
)
SHELLS = (
    (shell_completion.BashComplete, "bash-completion/completions/gpudoctor"),
    (shell_completion.ZshComplete, "zsh/site-functions/_gpudoctor"),
    (shell_completion.FishComplete, "fish/vendor_completions.d/gpudoctor.fish"),
)


def plain(text: str, width: int = 1000) -> str:
    """Words as roff takes them: its own signs spelt, hyphens that can be typed, no line that looks like a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("·", "\\(bu")
    if len(text) > width:
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text)


def paragraphs(help_text: str) -> list[str]:
    """A command's help; what click is told not to wrap (\\b) stays as it is."""
    out = []
    for block in re.split(r"\n\s*\n", help_text.strip()):
        lines = [line.strip() for line in block.split("\n")]
        if lines[0] == "\b":
            out.append("\n".join((".nf", *(plain(line) for line in lines[1:]), ".fi")))
        else:
            out.append(plain(" ".join(lines), LINE))
    return out


def listed(rows: tuple[tuple[str, str], ...]) -> list[str]:
    return [line for term, words in rows for line in (".TP", f"\\fB{plain(term)}\\fR", plain(words, LINE))]


def options(ctx: click.Context, command: click.Command) -> list[str]:
    records = [p.get_help_record(ctx) for p in command.get_params(ctx)]
    rows = tuple((name, " ".join(words.split()) or "As named.") for name, words in filter(None, records))
    return [".SH OPTIONS", *listed(rows)] if rows else []


def head(name: str, summary: str, synopsis: str) -> list[str]:
    return [
        f'.TH {name.upper()} 1 {DATE} "gpudoctor {gpudoctor.__version__}" "User Commands"',
        ".SH NAME",
        plain(f"{name} \0 {summary.rstrip('.')}", LINE).replace("\0", "\\-"),
        ".SH SYNOPSIS",
        synopsis,
        ".SH DESCRIPTION",
    ]


def joined(parts: list[str]) -> list[str]:
    """Paragraphs with what parts them."""
    return [line for number, part in enumerate(parts) for line in ((".PP", part) if number else (part,))]


def top() -> click.Context:
    settings: dict[str, Any] = dict(cli.context_settings)
    return click.Context(cli, info_name="gpudoctor", **settings)


def main_page() -> str:
    ctx = top()
    lines = head("gpudoctor", "find out why several GPUs are slower together than they should be", "\\fBgpudoctor\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]")
    lines += joined([p for p in paragraphs(cli.help or "") if not p.startswith("Exit status")])
    lines += [".PP", plain(ONLY, LINE)]
    lines += [".SH COMMANDS"]
    for name, (_, summary) in COMMANDS.items():
        lines += [".TP", f"\\fBgpudoctor\\-{plain(name)}\\fR(1)", plain(summary)]
    lines += options(ctx, cli)
    for title, rows in (("EXIT STATUS", STATUS), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)):
        lines += [f".SH {title}", *listed(rows)]
    lines += [".SH EXAMPLES"]
    for words, example in EXAMPLES:
        lines += [".TP", plain(words), f"\\fB{plain(example)}\\fR"]
    seen = ",\n".join(f".BR gpudoctor\\-{plain(name)} (1)" for name in COMMANDS).replace(",\n", " ,\n")
    return "\n".join([*lines, ".SH SEE ALSO", seen]) + "\n"


def page(name: str) -> str:
    parent = top()
    command = cli.get_command(parent, name)
    assert command is not None
    ctx = click.Context(command, info_name=name, parent=parent)
    usage = plain(" ".join(command.collect_usage_pieces(ctx)))
    lines = head(f"gpudoctor-{name}", COMMANDS[name][1], f"\\fBgpudoctor {plain(name)}\\fR {usage}")
    lines += joined(paragraphs(command.help or COMMANDS[name][1]))
    lines += options(ctx, command)
    lines += [".SH EXIT STATUS", "See", ".BR gpudoctor (1)."]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR gpudoctor (1)"]) + "\n"


def completion(shell: type[shell_completion.ShellComplete]) -> str:
    """What `_GPUDOCTOR_COMPLETE=bash_source gpudoctor` prints, without asking which bash is installed here."""
    made = shell(cli, {}, "gpudoctor", "_GPUDOCTOR_COMPLETE")
    return shell.source_template % made.source_vars()


def made() -> dict[str, str]:
    """Every file by its place under /usr/share."""
    pages = {"man/man1/gpudoctor.1": main_page(), **{f"man/man1/gpudoctor-{n}.1": page(n) for n in COMMANDS}}
    return {**pages, **{path: completion(shell) for shell, path in SHELLS}}


def write(folder: Path) -> None:
    for path, content in made().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
