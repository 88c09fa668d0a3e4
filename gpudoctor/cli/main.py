"""The `gpudoctor` command: loads a subcommand only when it is called, so that --help stays quick."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

import click

import gpudoctor

# name -> (module, one-line help); the module's `command` is imported when it runs.
COMMANDS = {
    "check": ("gpudoctor.cli.check", "Say what is wrong with this host's GPU communication, why, and how to fix it."),
    "bandwidth": ("gpudoctor.cli.bandwidth", "Measure the bus, judge it, and find what holds it back."),
    "gate": ("gpudoctor.cli.gate", "Say in one line whether this node may be used, by a policy."),
    "facts": ("gpudoctor.cli.facts", "Show only what was read: GPUs, paths, links, NICs."),
    "capture": ("gpudoctor.cli.capture", "Record this host as a snapshot, private details replaced."),
    "diff": ("gpudoctor.cli.diff", "Say what changed between two snapshots, nodes or reports."),
    "checks": ("gpudoctor.cli.checks", "List every cause gpudoctor can name."),
    "explain": ("gpudoctor.cli.explain", "Explain one cause: reasoning, evidence, thresholds, remedy."),
}



class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(gpudoctor.__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Find out why several GPUs are slower together than they should be.

    \b
    gpudoctor check                     look at this host
    gpudoctor check --from report.txt   judge a log, an output or a pasted bug report
    gpudoctor explain nvlink-down       what a finding means

    Exit status: 0 in order, 1 a fault was found, 2 wrong usage, 3 could not tell.
    """


def _for_nagios(words: list[str]) -> bool:
    return "--format=nagios" in words or "--format nagios" in " ".join(words)


def _refused(message: str) -> int:
    """Nagios shows a plugin's standard output, and takes status 2 for a critical fault of the host."""
    from gpudoctor.report import nagios

    sys.stdout.write(nagios.line("UNKNOWN", f"not run: {message}"))
    return nagios.STATUS["UNKNOWN"]


def main() -> None:
    """Entry point. Ctrl-C ends with 130; a reader that went away (`| head`) ends quietly."""
    # Facts are a tree without cycles: looking for some every 700 objects found none and took 7 ms of a check.
    gc.set_threshold(20_000, 10, 10)
    try:
        status: Any = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.ClickException as error:
        error.show()
        status = _refused(error.format_message()) if _for_nagios(sys.argv) else 2
    except (click.Abort, KeyboardInterrupt):
        status = 130
    except BrokenPipeError:
        # Python would complain once more while it closes stdout.
        sys.stdout = None
        status = 141
    sys.exit(status if isinstance(status, int) else 0)
