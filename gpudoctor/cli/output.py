"""Where a report goes: standard output in one format, files in others."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import click

from gpudoctor.discover import Plugins
from gpudoctor.model import Report
from gpudoctor.record import Record

FORMATS = ("text", "json", "junit", "prometheus", "nagios", "html")
SUFFIXES = {".json": "json", ".txt": "text", ".xml": "junit", ".prom": "prometheus", ".html": "html"}


class OutputFile(Record):
    """A file to write, and as what."""

    path: str
    format: str


class Output(Record):
    """What a user wants of a report: --format, -o, -q, -v."""

    format: str = "text"
    files: tuple[OutputFile, ...] = ()
    quiet: bool = False
    verbose: int = 0


def exit_status(report: Report, format_: str) -> int:
    """The contract's status; Nagios alone has numbers of its own."""
    if format_ == "nagios":
        from gpudoctor.report import nagios

        return nagios.exit_status(report)
    return report.exit_code


def colour_wanted() -> bool:
    """Colour for a person at a terminal who did not refuse it (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def unicode_wanted() -> bool:
    """Can standard output show more than ASCII?"""
    return "utf" in (sys.stdout.encoding or "").lower()


def can_write(format_: str) -> None:
    """Said before anything is looked at: a minute's look that ends without its page would be lost."""
    if format_ == "html":
        from importlib.util import find_spec

        if find_spec("jinja2") is None:
            raise click.UsageError(f"html needs jinja2, which is not installed: {sys.executable} -m pip install 'jinja2>=3.1'")


def render(
    report: Report,
    plugins: Plugins,
    format_: str,
    verbose: int = 0,
    colour: bool = False,
    wide: bool = True,
    extra: dict[str, Any] | None = None,
    line: str | None = None,
) -> str:
    """line: a command's own verdict line, which a page then begins with."""
    if format_ == "json":
        from gpudoctor.report import jsonout

        return jsonout.render(report, extra)
    if format_ == "junit":
        from gpudoctor.report import junit

        return junit.render(report)
    if format_ == "prometheus":
        from gpudoctor.report import prometheus

        page = prometheus.render(report)
        # Its format knows no \\u: a collector refuses the whole file.
        return page if wide else page.encode("ascii", "replace").decode()
    if format_ == "nagios":
        from gpudoctor.report import nagios

        return nagios.render(report)
    if format_ == "html":
        from gpudoctor.report import html

        word, _, sentence = (line or "").removeprefix("gpudoctor: ").partition(" ")
        page = html.render(report, (word, sentence) if line is not None else None, extra)
        return page if wide else page.encode("ascii", "xmlcharrefreplace").decode()
    from gpudoctor.report import text

    return text.render(report, verbose=verbose, colour=colour, unicode=wide)


def write(
    report: Report,
    plugins: Plugins,
    output: Output,
    extra: dict[str, Any] | None = None,
    page: tuple[str, str, str] | None = None,
) -> None:
    """Files first, so that a full disk is said before a reader believes the verdict.

    extra: a command's own key of the JSON. page: its own text for the screen, for a file, and the verdict line.
    """
    line = page[2] if page is not None else None
    for file in output.files:
        text_here = page is not None and file.format == "text"
        content = (
            page[1]
            if page is not None and text_here
            else render(report, plugins, file.format, output.verbose, extra=extra, line=line)
        )
        replace_file(file.path, content)
    if (output.files or output.quiet) and output.format != "nagios":  # which is one line in any case
        from gpudoctor.report import text

        sys.stdout.write((line if line is not None else text.verdict_line(report)) + "\n")
        return
    if page is not None and output.format == "text":
        sys.stdout.write(page[0])
        return
    sys.stdout.write(
        render(report, plugins, output.format, output.verbose, colour_wanted(), unicode_wanted(), extra, line)
    )


def replace_file(path: str, content: str) -> None:
    """Written beside and renamed: a reader never sees half a report."""
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        # Never into what lies there already: in a folder of everybody's it may be a link that leads elsewhere.
        with suppress(FileNotFoundError):
            os.unlink(beside)
        with open(beside, "x", encoding="utf-8") as stream:
            stream.write(content)
        os.replace(beside, path)
    except OSError as error:
        if os.path.exists(beside):
            os.unlink(beside)
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from error
