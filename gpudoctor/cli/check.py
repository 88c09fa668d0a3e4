"""`gpudoctor check`."""

from __future__ import annotations

import sys

import click

from gpudoctor.cli.look import look
from gpudoctor.cli.options import Takes, offered, report_options, source_options
from gpudoctor.cli.output import Output, exit_status, write


def _names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


@click.command("check", cls=Takes)
@source_options()
@click.option(
    "--ras",
    is_flag=False,
    flag_value="localhost:28028",
    default=None,
    metavar="[HOST:PORT]",
    help="Also ask NCCL's RAS service of a running job (localhost:28028): which rank is missing or behind.",
)
@click.option("--select", multiple=True, callback=_names, metavar="CODE-or-SLUG,…", shell_complete=offered("checks"), help="Run only these checks.")
@click.option("--ignore", multiple=True, callback=_names, metavar="CODE-or-SLUG,…", shell_complete=offered("checks"), help="Leave these checks out.")
@report_options(verbose="Also notes in full and every check with its outcome.")
@click.option("--debug", is_flag=True, hidden=True, help="Tracebacks of broken plugins in the report.")
def command(
    paths: tuple[str, ...],
    live: bool,
    job: bool,
    timeout: float,
    ras: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    output: Output,
    fail_on: str,
    debug: bool,
) -> None:
    """Say what is wrong with this host's GPU communication, why, and how to fix it.

    With --from the same judgement over what was recorded: a snapshot, an output, a log, a pasted bug report.
    """
    from gpudoctor.discover import load
    from gpudoctor.engine import chosen_slugs
    from gpudoctor.judge import judge

    plugins = load()
    known = {word for c in plugins.causes for word in (c.slug, c.code)}
    for word in (*select, *ignore):
        if word not in known:
            from difflib import get_close_matches

            near = get_close_matches(word, sorted(known), 1)
            raise click.UsageError(f"no check is called {word!r}" + (f"; did you mean {near[0]}?" if near else ""))
    if plugins.causes and not chosen_slugs(plugins, frozenset(select), frozenset(ignore)):
        raise click.UsageError("--select and --ignore leave no check")
    seen = look(paths, live, job, timeout, ras)
    report = judge(
        seen.intake,
        plugins,
        seen.source,
        select=select,
        ignore=ignore,
        fail_on=fail_on,
        timed_out=seen.timed_out,
        seconds=seen.seconds,
        notes=seen.notes,
        unanswered=seen.unanswered,
        debug=debug,
    )
    write(report, plugins, output)
    sys.exit(exit_status(report, output.format))
