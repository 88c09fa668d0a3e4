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
    from gpudoctor.sayings import Saying

_ERROR = re.compile(r"s?xid[ :#-]{0,2}\d{1,6}", re.I)
_LOGGED = re.compile(r"\bS?Xid \(")  # as the driver prints it, and nobody else
_MOST = 1 << 20  # characters of a paste
_SHOWN = 8  # entries of one


@click.command("explain")
@click.argument("names", metavar="CODE-or-SLUG-or-MESSAGE…", nargs=-1, required=True, shell_complete=offered("causes"))
@text_or_json
def command(names: tuple[str, ...], format_: str) -> None:
    """Explain causes, and lines of NCCL, PyTorch and the kernel; each by its own words.

    Of a cause: what it means, what shows it, the limits applied and their source, and the remedy. A line may be pasted
    as it stands, or without its prefix: `gpudoctor explain "Duplicate GPU detected"`; `-` reads lines from standard input.
    An error of the driver goes by its number too: `gpudoctor explain "Xid 79"`. A word says which causes it may mean:
    `gpudoctor explain hang`. If one of several names is not known nothing is explained, and the status is 2; of a paste of
    several lines those that are known are explained, and standard error tells how many are not.
    """
    from gpudoctor.discover import load
    from gpudoctor.policy.cause import with_policy

    plugins = with_policy(load())
    wanted = _apart(names, frozenset(n for c in plugins.causes for n in (c.slug, c.code.lower())))
    pastes = {name: _lines(plugins, name) for name in wanted}
    entries = [each for name in wanted for each in pastes[name][0] or [(name, _entry(plugins, name))]]
    unknown = [_unknown(name, [c.slug for c in plugins.causes]) for name, entry in entries if entry is None]
    if unknown:  # wrong usage prints nothing that a script would take for an answer
        raise click.UsageError("\n       ".join(unknown))
    known = [entry for _, entry in entries if entry is not None]
    if format_ == "json":
        _write_json([said for said, _ in known] if len(entries) > 1 else known[0][0])
    else:
        sys.stdout.write("\n".join(text for _, text in known))
    for found, passed in pastes.values():
        _tell_passed(passed if found else [])


def _apart(names: tuple[str, ...], known: frozenset[str]) -> list[str]:
    """What the words mean: names, each by itself, `Xid 79`, or one message that was not put in quotes."""
    words = [(sys.stdin.read(_MOST) if name == "-" else name).strip() for name in names]
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].lower() in ("xid", "sxid") and word.isdecimal():
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    apart = any(w.lower() in known or _ERROR.fullmatch(w) for w in joined)
    if len(joined) > 1 and (not apart or _LOGGED.search(" ".join(words))) and _means(" ".join(words)):
        return [" ".join(words)]
    return list(dict.fromkeys(joined))


def _means(text: str) -> bool:
    """Is all of it one message, one line or one word?"""
    from gpudoctor.sayings import number_of, of_line, of_result, of_word

    return any(found is not None for found in (number_of(text), _message(text), of_result(text), of_line(text), of_word(text)))


def _lines(plugins: Plugins, name: str) -> tuple[list[tuple[str, tuple[Mapping[str, object], str] | None]], list[str]]:
    """Of a paste of several lines: the entry of each that is known, each once, and the lines that are not."""
    lines = [line for line in name.splitlines() if line.strip()]
    if len(lines) < 2:
        return [], []
    found: dict[str, tuple[str, tuple[Mapping[str, object], str] | None]] = {}
    passed: list[str] = []
    for line in lines:
        entry = _entry(plugins, line)
        if entry is None:
            passed.append(line)
        else:
            found.setdefault(entry[1], (line, entry))
    return list(found.values())[:_SHOWN], passed


def _tell_passed(lines: list[str]) -> None:
    if lines:
        one = len(lines) == 1
        what = "1 line is" if one else f"{len(lines)} lines are"
        click.echo(f"{what} not known here{':' if one else ', the first:'} {lines[0].strip()[:200]!r}; `gpudoctor check --from FILE` reads whole logs", err=True)


def _entry(plugins: Plugins, name: str) -> tuple[Mapping[str, object], str] | None:
    """For JSON and for a reader; None: nothing of this name is known."""
    from gpudoctor.report import catalogue
    from gpudoctor.sayings import number_of, of_line, of_result, of_word

    by_slug = {c.slug: c for c in plugins.causes}
    cause = by_slug.get(name.lower()) or next((c for c in plugins.causes if name.lower() == c.code.lower()), None)
    number = number_of(name) if cause is None else None
    cause = cause or (by_slug.get("xid") if number is not None else None)
    if cause is not None:
        above = _one_number(*number) if number is not None else ""
        return catalogue.cause_json(plugins, cause), above + catalogue.entry(plugins, cause)
    line = of_result(name) or of_line(name)  # NCCL's families know some results as a framework's words
    if line is not None and line.hint:
        return _saying_entry(plugins, line, False)
    message = _message(name) if line is None or not line.first else None
    if message is not None:
        return _message_entry(message, by_slug.get(message.slug or ""))
    saying = line or of_word(name)
    return _saying_entry(plugins, saying, line is not None) if saying is not None else None


def _saying_entry(plugins: Plugins, saying: Saying, line: bool) -> tuple[Mapping[str, object], str]:
    """What it says and which causes it may mean; of a line the likeliest one in full."""
    from gpudoctor.report import catalogue
    from gpudoctor.report.layout import Style, hanging

    causes = [c for slug in saying.causes for c in plugins.causes if c.slug == slug]
    entry = {
        "saying": saying.id,
        "meaning": saying.meaning,
        "causes": [{"slug": c.slug, "code": c.code, "title": c.title} for c in causes],
        "steps": [{"action": action, "command": command} for action, command in saying.steps],
    }
    lines = hanging("Means     ", " " * 10, saying.meaning, Style())
    for place, cause in enumerate(causes):
        lines += hanging("Look at   " if not place else " " * 10, " " * 10, f"{cause.slug} ({cause.code}): {cause.title}", Style())
    for place, (action, command) in enumerate(saying.steps):
        lines += hanging("Do        " if not place else " " * 10, " " * 10, f"{action}:", Style())
        lines.append(" " * 12 + command)  # never wrapped: it is copied
    if causes and (saying.hint or not (line or len(causes) == 1)):
        lines += hanging("More      ", " " * 10, f"gpudoctor explain {causes[0].slug}", Style())
    full = "\n" + catalogue.entry(plugins, causes[0]) if causes and not saying.hint and (line or len(causes) == 1) else ""
    return entry, "\n".join(lines) + "\n" + full


def _unknown(name: str, slugs: list[str]) -> str:
    """What to try instead: by the look of it a number of the driver's, a line of a log, or a slug that is misspelt."""
    from difflib import get_close_matches

    head = f"no cause is called {name!r}"
    lines = [line.strip() for line in name.splitlines() if line.strip()]
    if len(lines) > 1:
        return f"none of the {len(lines)} lines is known here, the first reads {lines[0][:200]!r}; give the whole log to `gpudoctor check --from FILE`"
    if name.isdecimal():
        return f'{head}; did you mean "Xid {name}"?'
    if len(name.split()) > 2:
        return f"no line that is known here reads {name[:300]!r}; give the whole log to `gpudoctor check --from FILE`"
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
