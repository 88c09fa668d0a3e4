"""Options that several commands have. Each is written here once, so that it means the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpudoctor.cli.output import FORMATS, SUFFIXES, Output, OutputFile, can_write

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

C = TypeVar("C", bound=Callable[..., Any])
LOOK_S = 60.0  # a look at this host


def offered(what: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What the shell's TAB key offers here: a function of gpudoctor.cli.complete, which nothing else loads."""

    def at_tab(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from gpudoctor.cli import complete

        found: list[CompletionItem] = getattr(complete, what)(incomplete)
        return found

    return at_tab


class Amount(click.FloatRange):
    """A finite number: `nan`, under no limit and over none, would let everything pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is no number that anything can be held against", param, ctx)
        return number


def report_options(
    quiet: str = "Only the verdict line.",
    verbose: str = "Also notes in full.",
    more: Mapping[str, str] | None = None,
) -> Callable[[C], C]:
    """--format, -o, --fail-on, -q, -v. The command gets `output` and `fail_on`.

    more: suffixes of -o that this command has beside the common ones, and their formats.
    """
    suffixes = {**SUFFIXES, **(more or {})}

    def paths(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[OutputFile, ...]:
        out = []
        for path in values:
            suffix = os.path.splitext(path)[1].lower()
            if suffix not in suffixes:
                raise click.BadParameter(f"{path}: the suffix chooses the format, one of {' '.join(suffixes)}")
            can_write(suffixes[suffix])
            out.append(OutputFile(path, suffixes[suffix]))
        return tuple(out)

    def decorate(command: C) -> C:
        @wraps(command)
        def with_output(
            *args: Any, format_: str, outputs: tuple[OutputFile, ...], quiet: bool, verbose: int, **rest: Any
        ) -> Any:
            return command(*args, output=Output(format_, outputs, quiet, verbose), **rest)

        options = (
            format_option,
            click.option(
                "-o",
                "outputs",
                multiple=True,
                callback=paths,
                metavar="FILE",
                shell_complete=offered("files"),
                help=f"Write to a file, format by suffix ({' '.join(suffixes)}); standard output then has the verdict line only. Repeatable.",
            ),
            click.option(
                "--fail-on",
                type=click.Choice(["error", "warning"]),
                default="error",
                show_default=True,
                help="Exit status 1 from this severity on.",
            ),
            click.option("-q", "--quiet", is_flag=True, help=quiet),
            click.option("-v", "--verbose", count=True, help=verbose),
        )
        return _all(options, with_output)  # type: ignore[return-value]

    return decorate


def format_option(command: C) -> C:
    """--format of a report."""

    def known(ctx: click.Context, param: click.Parameter, value: str) -> str:
        can_write(value)
        return value

    return click.option(
        "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, callback=known
    )(command)


def text_or_json(command: C) -> C:
    """--format where there is no verdict to give to a machine."""
    return click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)(command)


def timeout_option(default: float | None = LOOK_S, words: str = "Limit for the whole command.", least: float = 0.1) -> Callable[[C], C]:
    """--timeout. default None: the command chooses, and its words say how."""
    return click.option(
        "--timeout",
        type=Amount(min=least),
        default=default,
        show_default=default is not None,
        metavar="SECONDS",
        help=words,
    )


def from_option(words: str) -> Callable[[C], C]:
    """--from."""
    return click.option("--from", "paths", multiple=True, metavar="PATH", shell_complete=offered("files"), help=f"{words} Repeatable, - is standard input.")


def job_option(command: C) -> C:
    """--job."""
    return click.option("--job", is_flag=True, help="Also the GPU processes now running.")(command)


def source_options(does: str = "Judge") -> Callable[[C], C]:
    """--from, --live, --job, --timeout: where facts come from. does: what the command does with them."""

    def decorate(command: C) -> C:
        options = (
            from_option(f"{does} what was recorded: a snapshot, a folder, an archive, any text file."),
            click.option("--live", is_flag=True, help="With --from: look at this host too, and join both."),
            job_option,
            timeout_option(),
        )
        return _all(options, command)

    return decorate


class Takes(click.Command):
    """A command that takes files by --from only, and says so to whoever names one without."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            from shlex import quote

            word = f"unexpected argument{'s' if len(rest) > 1 else ''} {', '.join(rest)}"
            if rest[0].startswith("-") and rest[0] != "-":
                raise click.UsageError(f"Got {word}", ctx)
            given = " ".join(f"--from {quote(path)}" for path in rest)
            raise click.UsageError(f"Got {word}; what was recorded is given with --from:  {ctx.command_path} {given}", ctx)
        return rest


def engine_options(command: C) -> C:
    """--python, --nccl-tests: with what is measured."""
    options = (
        click.option("--python", metavar="PATH", shell_complete=offered("files"), help="The Python that has PyTorch (default: the active environment's)."),
        click.option("--nccl-tests", metavar="DIR", shell_complete=offered("files"), help="Where all_reduce_perf is (default: NCCL_TESTS_HOME, PATH)."),
    )
    return _all(options, command)


def _all(options: tuple[Callable[[Any], Any], ...], command: C) -> C:
    """In this order in --help."""
    for option in reversed(options):
        command = option(command)
    return command
