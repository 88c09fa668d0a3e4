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
    from gpudoctor.discover import Plugins
    from gpudoctor.model import Cause
    from gpudoctor.nccl_messages import Family


@click.command("explain")
@click.argument("names", metavar="CODE-or-SLUG-or-MESSAGE…", nargs=-1, required=True, shell_complete=offered("causes"))
@text_or_json
def command(names: tuple[str, ...], format_: str) -> None:
    """Explain causes, or NCCL's messages; each by its own words.

    Of a cause: what it means, what shows it, the limits applied and their source, and the remedy. A message may be pasted
    with or without its prefix: `gpudoctor explain "Duplicate GPU detected"`. An error of the driver goes by its number:
    `gpudoctor explain "Xid 79"`. If one of several names is not known nothing is explained, and the status is 2.
    """
    from gpudoctor.discover import load
    from gpudoctor.policy.cause import with_policy

    plugins = with_policy(load())
    wanted = _apart(names, frozenset(n for c in plugins.causes for n in (c.slug, c.code.lower())))
    entries = [(name, _entry(plugins, name)) for name in wanted]
    unknown = [_unknown(name, [c.slug for c in plugins.causes]) for name, entry in entries if entry is None]
    if unknown:  # wrong usage prints nothing that a script would take for an answer
        raise click.UsageError("\n       ".join(unknown))
    known = [entry for _, entry in entries if entry is not None]
    if format_ == "json":
        _write_json([said for said, _ in known] if len(wanted) > 1 else known[0][0])
    else:
        sys.stdout.write("\n".join(text for _, text in known))


def _apart(names: tuple[str, ...], known: frozenset[str]) -> list[str]:
    """What the words mean: names, each by itself, `Xid 79`, or one message that was not put in quotes."""
    words = [name.strip() for name in names]
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].lower() in ("xid", "sxid") and word.isdecimal():
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    if len(joined) > 1 and not any(w.lower() in known for w in joined) and _message(" ".join(words)) is not None:
        return [" ".join(words)]
    return list(dict.fromkeys(joined))


def _entry(plugins: Plugins, name: str) -> tuple[Mapping[str, object], str] | None:
    """For JSON and for a reader; None: nothing of this name is known."""
    from gpudoctor.report import catalogue

    wanted = name.lower()
    number = re.fullmatch(r"(s?xid)[ :#-]{0,2}(\d{1,6})", wanted)
    wanted = "xid" if number is not None else wanted
    cause = next((c for c in plugins.causes if wanted in (c.slug, c.code.lower())), None)
    if cause is not None:
        above = _one_number(number[1], int(number[2])) if number is not None else ""
        return catalogue.cause_json(plugins, cause), above + catalogue.entry(plugins, cause)
    message = _message(name)
    if message is None:
        return None
    return _message_entry(message, next((c for c in plugins.causes if c.slug == message.slug), None))


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


def _write_json(entry: Mapping[str, object] | list[Mapping[str, object]]) -> None:
    """The keys of a single entry stand beside the envelope too, where they were before there was one."""
    from gpudoctor.report.jsonout import of_no_host

    sys.stdout.write(json.dumps({**of_no_host(0), **(entry if isinstance(entry, Mapping) else {}), "explain": entry}, ensure_ascii=False) + "\n")


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


def _message_entry(family: Family, cause: Cause | None) -> tuple[Mapping[str, object], str]:
    from gpudoctor.report.layout import Style, hanging

    entry = {
        "message": family.id,
        "slug": family.slug,
        "versions": family.versions,
        "meaning": family.meaning,
        "remedy": family.remedy,
        "pattern": family.pattern,
    }
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
    return entry, "\n".join(lines) + "\n"
