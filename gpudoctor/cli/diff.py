"""`gpudoctor diff`."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from gpudoctor.cli.look import look
from gpudoctor.cli.options import offered, text_or_json, timeout_option
from gpudoctor.cli.output import colour_wanted, replace_file, unicode_wanted

if TYPE_CHECKING:
    from gpudoctor.diff.model import Side
    from gpudoctor.discover import Plugins

MAX_REPORT = 256 << 20  # bytes of a JSON report
_MAX_NOTES = 4
_FORMATS = {".json": "json", ".txt": "text"}


def _files(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for path in values:
        if os.path.splitext(path)[1].lower() not in _FORMATS:
            raise click.BadParameter(f"{path}: the suffix chooses the format, one of {' '.join(_FORMATS)}")
    return values


@click.command("diff")
@click.argument("a", metavar="A", shell_complete=offered("files"))
@click.argument("b", metavar="B", shell_complete=offered("files"))
@click.option("--time/--nodes", "over_time", default=None, help="One host at two moments, or two nodes (default: told by host names and GPU addresses).")
@timeout_option(words="Limit for reading each of the two.")
@text_or_json
@click.option(
    "-o", "files", multiple=True, callback=_files, metavar="FILE", shell_complete=offered("files"),
    help=f"Write to a file, format by suffix ({' '.join(_FORMATS)}); standard output then has the verdict line only. Repeatable.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict line.")
@click.option("-v", "--verbose", count=True, help="Also notes in full, and what differs by nature.")
def command(
    a: str, b: str, over_time: bool | None, timeout: float, format_: str, files: tuple[str, ...], quiet: bool, verbose: int
) -> None:
    """Say what changed between two snapshots, two nodes or two JSON reports, in words.

    A and B: a snapshot, a folder, any text file, - for standard input, or what `gpudoctor check --format json` printed.

    Exit status: 0 nothing changed, 1 something changed, 3 could not tell (what only one of the two shows is not taken as equal).
    """
    from gpudoctor.diff.compare import compare
    from gpudoctor.diff.model import NODES, TIME
    from gpudoctor.discover import load
    from gpudoctor.model import NOTHING_KNOWN, Missing, Report
    from gpudoctor.record import replace
    from gpudoctor.report import diff, jsonout

    if a == b == "-":
        raise click.UsageError("only one of the two can be standard input")
    started = time.monotonic()
    plugins = load()
    one, other = (_side(path, plugins, timeout) for path in (a, b))
    if one.saved != other.saved:
        # What a report leaves out (versions, settings, how busy a link was) cannot be compared: both are read as reports.
        one, other = (side if side.saved else _as_saved(side) for side in (one, other))
    comparison = compare(one, other, None if over_time is None else TIME if over_time else NODES)
    # One recording twice is the same whatever is not in it; but where nothing was recognised nothing is known to be the same.
    unread = [
        Missing(m.fact if m.fact != NOTHING_KNOWN else f"{m.fact} in {name} ({side.path})", m.reason, needed=True)
        for name, side in (("A", one), ("B", other))
        for m in side.missing
        if m.needed and (not comparison.same or m.fact == NOTHING_KNOWN)
    ]
    comparison = replace(comparison, missing=tuple(dict.fromkeys((*unread, *comparison.missing))))
    verdict, status = diff.verdict_of(comparison)
    seconds, notes = time.monotonic() - started, _notes(one, other)
    report = Report(
        source={"kind": "recorded", "paths": [a, b]}, hosts=other.stores, results=other.results, diagnoses=other.diagnoses,
        missing=comparison.missing, verdict=verdict, exit_code=status, notes=notes,
    )  # fmt: skip
    page = {
        "json": lambda colour, wide: jsonout.render(report, {"diff": diff.as_json(comparison, one, other)}),
        "text": lambda colour, wide: diff.render(comparison, one, other, seconds, notes, verbose, colour, wide),
    }
    for path in files:
        replace_file(path, page[_FORMATS[os.path.splitext(path)[1].lower()]](False, True))
    sys.stdout.write(diff.verdict_line(comparison) + "\n" if files or quiet else page[format_](colour_wanted(), unicode_wanted()))
    sys.exit(status)


def _notes(one: Side, other: Side) -> tuple[str, ...]:
    """What a reader should know of how the two were read: what befell only one of them, and what a report leaves out."""
    out = []
    if one.saved:
        out.append("a JSON report holds no versions, settings and limits of the host, so these were not compared: give snapshots to compare them")
    for name, side, others in (("A", one, other.missing), ("B", other, one.missing)):
        alone = [m for m in side.missing if m not in others and not m.needed and not m.hint]
        out += [f"{name}: {m.fact}: {m.reason}" for m in alone[:_MAX_NOTES]]
        out += [f"{name}: and {len(alone) - _MAX_NOTES} more"] if len(alone) > _MAX_NOTES else []
    return tuple(out)


def _side(path: str, plugins: Plugins, timeout: float) -> Side:
    """A report where it is one, else whatever `--from` takes, judged."""
    from gpudoctor.diff import saved
    from gpudoctor.diff.model import Side
    from gpudoctor.judge import judge

    content = _json_of(path)
    side = saved.parse(content, path) if content is not None else None
    if side is not None:
        return side
    seen = look((path,), live=False, job=False, timeout=timeout)
    report = judge(seen.intake, plugins, seen.source, timed_out=seen.timed_out)
    stores = tuple(s for s in seen.intake.stores if seen.intake.recognised)
    return Side(
        path=path, stores=stores, results=report.results, diagnoses=report.diagnoses, missing=report.missing,
        captured_at=seen.intake.captured_at,
    )  # fmt: skip


def _as_saved(side: Side) -> Side:
    """The same as its own JSON report would have it."""
    from gpudoctor.diff import saved
    from gpudoctor.model import Report
    from gpudoctor.record import replace
    from gpudoctor.report import jsonout

    report = Report(
        source={"captured_at": side.captured_at}, hosts=side.stores, results=side.results, diagnoses=side.diagnoses, missing=(),
        verdict="", exit_code=0,
    )  # fmt: skip
    return replace(saved.of_report(jsonout.envelope(report), side.path), missing=side.missing)


def _json_of(path: str) -> bytes | None:
    """The content of a plain file that begins as JSON does."""
    try:
        if path == "-" or not os.path.isfile(path):
            return None
        with open(path, "rb") as stream:
            head = stream.read(512)
            return head + stream.read(MAX_REPORT) if head.lstrip()[:1] == b"{" else None
    except OSError:
        return None
