"""`gpudoctor explain CODE-or-SLUG`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from gpudoctor.cli.options import offered, text_or_json

if TYPE_CHECKING:
    from gpudoctor.model import Cause
    from gpudoctor.nccl_messages import Family


@click.command("explain")
@click.argument("name", metavar="CODE-or-SLUG-or-MESSAGE", shell_complete=offered("causes"))
@text_or_json
def command(name: str, format_: str) -> None:
    """Explain one cause, or one of NCCL's messages.

    Of a cause: what it means, what shows it, the limits applied and their source, and the remedy. A message may be pasted
    with or without its prefix: `gpudoctor explain "Duplicate GPU detected"`. An error of the driver goes by its number:
    `gpudoctor explain "Xid 79"`.
    """
    from gpudoctor.discover import load
    from gpudoctor.policy.cause import with_policy
    from gpudoctor.report import catalogue

    plugins = with_policy(load())
    wanted = name.strip().lower()
    number = re.fullmatch(r"(s?xid)[ :#-]{0,2}(\d{1,6})", wanted)
    wanted = "xid" if number is not None else wanted
    cause = next((c for c in plugins.causes if wanted in (c.slug, c.code.lower())), None)
    if cause is None:
        message = _message(name)
        if message is not None:
            _write_message(message, next((c for c in plugins.causes if c.slug == message.slug), None), format_)
            return
        raise click.UsageError(_unknown(name.strip(), [c.slug for c in plugins.causes]))
    if format_ == "json":
        _write_json(catalogue.cause_json(plugins, cause))
    else:
        if number is not None:
            sys.stdout.write(_one_number(number[1], int(number[2])))
        sys.stdout.write(catalogue.entry(plugins, cause))


def _unknown(name: str, slugs: list[str]) -> str:
    """What to try instead: by the look of it a number of the driver's, a line of a log, or a slug that is misspelt."""
    from difflib import get_close_matches

    head = f"no cause is called {name!r}"
    if name.isdecimal():
        return f'{head}; did you mean "Xid {name}"?'
    if len(name.split()) > 2:
        return f"no message of NCCL that is known here reads {name!r}; give the whole log to `gpudoctor check --from FILE`"
    near = get_close_matches(name.lower(), slugs, 3)
    return head + (f"; did you mean {' or '.join(near)}?" if near else "; see `gpudoctor checks`")


def _write_json(entry: Mapping[str, object]) -> None:
    """The entry's own keys stand beside the envelope too, where they were before there was one."""
    from gpudoctor.report.jsonout import of_no_host

    sys.stdout.write(json.dumps({**of_no_host(0), **entry, "explain": entry}, ensure_ascii=False) + "\n")


def _one_number(kind: str, code: int) -> str:
    """What one number of the driver's or of an NVSwitch's means, above the words on all of them."""
    from gpudoctor.report.layout import Style, hanging
    from gpudoctor.xids import lookup

    label = f"{'SXid' if kind == 'sxid' else 'Xid'} {code}"
    return "\n".join(hanging(f"{label}: ", "  ", lookup(kind, code).meaning, Style())) + "\n\n"


def _message(text: str) -> Family | None:
    """The family of one of NCCL's messages, by its own name or by the words of a pasted line."""
    from gpudoctor.nccl_messages import classify, family

    known = family(text.strip().lower())
    if known is not None:
        return known
    line = re.match(r"^(?P<before>.*?)\bNCCL (?:WARN|INFO|ATTN) (?P<words>.*)$", text.strip(), re.S)
    words = line["words"] if line is not None else text
    file = re.search(r"([\w./-]+\.(?:cc|h|cu|c)):\d+", line["before"]) if line is not None else None
    found = classify(words + "\n", file[1] if file is not None else None)
    return found[0] if found is not None else None


def _write_message(family: Family, cause: Cause | None, format_: str) -> None:
    from gpudoctor.report.layout import Style, hanging

    if format_ == "json":
        entry = {
            "message": family.id,
            "slug": family.slug,
            "versions": family.versions,
            "meaning": family.meaning,
            "remedy": family.remedy,
            "pattern": family.pattern,
        }
        _write_json(entry)
        return
    lines = [f"NCCL message: {family.id}", ""]
    what = (
        "harmless: nothing is said of it"
        if cause is None and family.tier >= 8
        else "part of another failure"
        if cause is None
        else f"{cause.slug} ({cause.code}: {cause.title}); gpudoctor explain {cause.slug}"
    )
    for label, words in (
        ("Means", family.meaning),
        ("Versions", family.versions),
        ("Cause", what),
        ("Remedy", family.remedy),
        ("Example", family.example),
    ):
        if words:
            lines += hanging(f"{label:<10}", " " * 10, words, Style())
    sys.stdout.write("\n".join(lines) + "\n")
