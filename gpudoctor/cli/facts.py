"""`gpudoctor facts`: what was read, without judgement."""

from __future__ import annotations

import sys

import click

from gpudoctor.cli.look import look
from gpudoctor.cli.options import Takes, source_options, text_or_json


@click.command("facts", cls=Takes)
@source_options("Show")
@text_or_json
def command(paths: tuple[str, ...], live: bool, job: bool, timeout: float, format_: str) -> None:
    """Show only what was read, without a verdict: GPUs, pairs, links, NICs, the PCI tree.

    Exit status 0 when anything was, 3 when nothing could be read.
    """
    from gpudoctor.judge import judge

    seen = look(paths, live, job, timeout)
    report = judge(
        seen.intake,
        None,
        seen.source,
        timed_out=seen.timed_out,
        seconds=seen.seconds,
        notes=seen.notes,
    )
    if format_ == "json":
        from gpudoctor.report import jsonout

        sys.stdout.write(jsonout.render(report))
    else:
        from gpudoctor.report import tables

        sys.stdout.write(tables.render(report))
    sys.exit(report.exit_code)
