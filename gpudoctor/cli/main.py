"""The `gpudoctor` command: loads a subcommand only when it is called, so that --help stays quick."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from contextlib import suppress
from typing import Any

import click

import gpudoctor
from gpudoctor.cli import ending

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
    "probe": ("gpudoctor.cli.probe", "Print what one of its own probes reads, as reports cite it."),
}



_OF_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EIO)


class _Failed(Exception):
    """An OSError of a command; click would make status 1 of a broken pipe, which is a verdict."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error


class LazyGroup(click.Group):
    """Imports a command when it is called, and keeps its OSErrors from click, which would make a status of them."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)  # prints --help
        except OSError as error:
            raise _Failed(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            raise _Failed(error) from error

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(error.message.rstrip(".") + _meant(args[0]), ctx) from error

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


def _meant(word: str) -> str:
    """What somebody who typed this may have wanted."""
    if os.path.exists(word):
        from shlex import quote

        return f"; to judge what was recorded:  gpudoctor check --from {quote(word)}"
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, 1)
    return f"; did you mean {near[0]}?" if near else ""


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


def _refused(message: str, otherwise: int) -> int:
    """Nagios shows a plugin's standard output, and takes status 2 for a critical fault of the host."""
    if not _for_nagios(sys.argv):
        return otherwise
    from gpudoctor.report import nagios

    with suppress(OSError):
        sys.stdout.write(nagios.line("UNKNOWN", f"not run: {message}"))
    return nagios.STATUS["UNKNOWN"]


def main() -> None:
    """Ctrl-C ends with 130, SIGTERM with 143; a reader that went away (`| head`) ends quietly; a bug is never a verdict."""
    ending.leave_in_order()
    try:
        ending.ready_streams()
        status = _run()
        unwritten = ending.flushed()
        if unwritten is not None:
            status = _unwritten(unwritten)
    except KeyboardInterrupt as stop:
        status = ending.status_of(stop)
        ending.discard_output()
    ending.leave_no_more()
    gc.freeze()  # the interpreter looks for cycles twice while it ends, in all that is about to go anyway
    sys.exit(status)


def _run() -> int:
    """The command's own status, whatever it ran into."""
    try:
        status: Any = cli.main(standalone_mode=False)
    except SystemExit as stop:
        status = stop.code
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.ClickException as error:
        with suppress(OSError):  # nobody may be there to read it
            error.show()
        return _refused(error.format_message(), 2)
    except click.Abort as stop:
        raise KeyboardInterrupt from stop.__cause__
    except _Failed as failed:
        if failed.error.errno not in _OF_OUTPUT:
            return _broke(failed.error)
        return _unwritten(failed.error)
    except MemoryError:
        ending.complain("gpudoctor: memory ran out; judge parts of the input (--from), or raise the limit (ulimit -v)")
        return _refused("memory ran out", 3)
    except Exception as error:
        return _broke(error)
    return status if isinstance(status, int) else 0


def _unwritten(error: OSError) -> int:
    """Nobody could read the verdict: a status alone must not look like one."""
    ending.discard_output()
    if error.errno == errno.EPIPE:
        return 141
    ending.complain(f"gpudoctor: cannot write to standard output: {error.strerror or error}")
    return _refused("its output could not be written", 2)


def _broke(error: Exception) -> int:
    """A bug of ours says nothing of the host, and status 1 would."""
    if os.environ.get("GPUDOCTOR_DEBUG"):
        raise error
    if isinstance(error, OSError):
        ending.complain(f"gpudoctor could not go on: {error}. This says nothing of the host's GPUs")
        return _refused(f"could not go on: {error.strerror or error}", 3)
    ending.complain(
        f"gpudoctor broke: {ending.where(error)}. This is a bug of gpudoctor and says nothing of the host: please report it, "
        "with what GPUDOCTOR_DEBUG=1 shows"
    )
    return _refused("gpudoctor broke", 3)
