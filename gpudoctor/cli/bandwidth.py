"""`gpudoctor bandwidth`."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli.options import Amount, Takes, engine_options, from_option, offered, report_options, timeout_option
from gpudoctor.cli.output import Output, exit_status, write

if TYPE_CHECKING:
    from gpudoctor.bandwidth.options import Options
    from gpudoctor.facts.bandwidth import Curve, Wanted


def _sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    from gpudoctor.bandwidth.plan import Unusable, sizes

    try:
        return sizes(value) if value is not None else None
    except Unusable as error:
        raise click.BadParameter(str(error)) from error


def _gpus(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from gpudoctor.bandwidth.plan import Unusable, check

    try:
        check(value)
    except Unusable as error:
        raise click.UsageError(str(error)) from error
    return value


@click.command("bandwidth", cls=Takes)
@click.option("--gpus", default="all", show_default=True, callback=_gpus, metavar="N|all|LIST", help="How many, or which: indices of nvidia-smi (0,3) or UUIDs.")
@click.option(
    "--collective",
    type=click.Choice(["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]),
    default="all_reduce",
    show_default=True,
)
@click.option("--pairs", is_flag=True, help="Also every pair by itself.")
@click.option("--sizes", callback=_sizes, metavar="FROM:TO[:FACTOR]", help="8:1G doubles, 8:1G:4 goes by four, 1M,64M is a list.")
@click.option("--quick/--full", "quick", default=True, help="Eight sizes in seconds (default), or every one up to 4 GiB.")
@click.option("--engine", type=click.Choice(["auto", "torch", "nccl-tests"]), default="auto", show_default=True)
@click.option(
    "--backend",
    type=click.Choice(["nccl", "gloo"]),
    default="nccl",
    show_default=True,
    help="gloo runs the same on CPUs, --gpus N processes.",
)
@engine_options
@click.option("--host-copies/--no-host-copies", default=True, help="Measure pinned copies of each GPU (default).")
@click.option("--bisect/--no-bisect", default=True, help="On a miss, find what holds it back (default).")
@click.option("--allow-p2p", is_flag=True, help="On a miss, try peer to peer even if a config file of this site switches it off.")
@click.option(
    "--min-busbw",
    type=Amount(min=0, min_open=True),
    metavar="GB/s",
    help="Your own limit: below it is an error.",
)
@click.option("--min-ratio", type=Amount(0, 1, min_open=True), metavar="SHARE", help="Share of what is expected below which it is a warning.")
@click.option("--baseline", metavar="FILE", shell_complete=offered("files"), help="Compare with what this host reached when it was saved.")
@click.option("--save-baseline", metavar="FILE", shell_complete=offered("files"), help="Save this measurement; refused on a host with errors.")
@from_option("Judge recorded output instead of measuring.")
@click.option("--force", is_flag=True, help="Measure although the GPUs are in use.")
@click.option(
    "--hang-after",
    type=Amount(min=0.5),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Without progress for so long a run hangs, and is stopped.",
)
@timeout_option(300.0, least=1.0)
@report_options()
def command(
    gpus: str,
    collective: str,
    pairs: bool,
    sizes: tuple[int, ...] | None,
    quick: bool,
    engine: str,
    backend: str,
    python: str | None,
    nccl_tests: str | None,
    host_copies: bool,
    bisect: bool,
    allow_p2p: bool,
    min_busbw: float | None,
    min_ratio: float | None,
    baseline: str | None,
    save_baseline: str | None,
    paths: tuple[str, ...],
    force: bool,
    hang_after: float,
    timeout: float,
    output: Output,
    fail_on: str,
) -> None:
    """Measure what the GPUs reach together, say what their links should give, and find what holds them back.

    With nccl-tests where it is installed, else with PyTorch in a Python that has it. Nothing is left behind: every child
    has a deadline, and Ctrl-C ends them all.
    """
    wanted = _wanted(min_busbw, min_ratio, baseline)
    if paths:
        _recorded(paths, timeout, wanted, output, fail_on)
        return
    if backend == "gloo" and engine == "nccl-tests":
        raise click.UsageError("--backend gloo runs in PyTorch, not in nccl-tests")

    from gpudoctor.bandwidth.options import Options

    options = Options(
        gpus=gpus,
        collective=collective,
        sizes=sizes,
        full=not quick,
        pairs=pairs,
        engine=engine,
        backend=backend,
        python=python,
        nccl_tests=nccl_tests,
        bisect=bisect,
        allow_p2p=allow_p2p,
        host_copies=host_copies,
        force=force,
        hang_s=hang_after,
    )
    _live(options, wanted, timeout, save_baseline, output, fail_on)


def _live(
    options: Options,
    wanted: Wanted,
    timeout: float,
    save: str | None,
    output: Output,
    fail_on: str,
) -> None:
    from gpudoctor.bandwidth.guard import room
    from gpudoctor.bandwidth.plan import Unusable
    from gpudoctor.bandwidth.verdict import measure
    from gpudoctor.cli.look import snapshot_of_host
    from gpudoctor.cli.output import colour_wanted, unicode_wanted
    from gpudoctor.discover import load
    from gpudoctor.report.layout import Style
    from gpudoctor.report.measurement import render, verdict_lines

    plugins = load()
    with room() as folder, _Progress() as progress:
        try:
            until = time.monotonic() + timeout
            done = measure(
                options, wanted, plugins, dict(os.environ), folder, until, progress.show, snapshot_of_host, fail_on
            )
        except Unusable as error:
            raise click.UsageError(str(error)) from error
    extra = done.extra
    if save is not None:
        extra["notes"].append(_save(save, done.report, done.baseline))
    line = " ".join(" ".join(verdict_lines(done.report, done.sentence, Style(unicode=False, width=10_000))).split())
    screen, file = (
        render(done.report, extra, done.sentence, style)
        for style in (Style(colour=colour_wanted(), unicode=unicode_wanted()), Style())
    )
    write(done.report, plugins, output, extra={"bandwidth": extra}, page=(screen, file, line))
    sys.exit(exit_status(done.report, output.format))


def _recorded(
    paths: tuple[str, ...],
    timeout: float,
    wanted: Wanted,
    output: Output,
    fail_on: str,
) -> None:
    """The same judgement over what was recorded."""
    from gpudoctor.cli.look import look
    from gpudoctor.discover import load
    from gpudoctor.facts.bandwidth import Bandwidth, HostCopies, PairRates
    from gpudoctor.judge import judge
    from gpudoctor.model import Missing

    plugins = load()
    seen = look(paths, False, False, timeout)
    measured = any(kind in store for store in seen.intake.stores for kind in (Bandwidth, PairRates, HostCopies))
    for store in seen.intake.stores:
        store.put(wanted)
    report = judge(
        seen.intake,
        plugins,
        seen.source,
        fail_on=fail_on,
        timed_out=seen.timed_out,
        seconds=seen.seconds,
        notes=seen.notes,
        # A host in order says nothing of what it reaches, and that was the question.
        unanswered=(Missing(Bandwidth.label, "none is in the input; give it the output of nccl-tests or nvbandwidth", needed=True),)
        if seen.intake.stores and not measured
        else (),
    )
    write(report, plugins, output, extra={"bandwidth": {"engine": None, "program": None}})
    sys.exit(exit_status(report, output.format))


def _wanted(min_busbw: float | None, min_ratio: float | None, baseline: str | None) -> Wanted:
    from gpudoctor.facts.bandwidth import Wanted

    return Wanted(limit_gbs=min_busbw, min_ratio=min_ratio, baselines=_baselines(baseline) if baseline else ())


def _baselines(path: str) -> tuple[Curve, ...]:
    from gpudoctor.expect.reference import from_json

    try:
        with open(path, encoding="utf-8") as stream:
            entries = json.load(stream)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--baseline {path}: {getattr(error, 'strerror', None) or error}") from error
    curves = [from_json(entry, path) for entry in (entries if isinstance(entries, list) else [entries])]
    if not curves or None in curves:
        raise click.UsageError(f"--baseline {path}: not a file of --save-baseline")
    return tuple(c for c in curves if c is not None)


def _save(path: str, report: Any, baseline: dict[str, Any] | None) -> str:
    """Written only from a healthy run: a sick host's number would make every later run look good."""
    if baseline is None or report.exit_code != 0:
        return f"{path} was not written: a baseline is saved from a run without errors and without open questions only"
    kept: list[Any] = []
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
            kept = [e for e in (found if isinstance(found, list) else [found]) if isinstance(e, dict)]
    except (OSError, ValueError):
        kept = []
    same = ("collective", "nranks", "devices")
    entries = [e for e in kept if any(e.get(k) != baseline.get(k) for k in same)] + [baseline]
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "w", encoding="utf-8") as stream:
            json.dump(entries, stream, indent=1)
            stream.write("\n")
        os.replace(beside, path)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from error
    return f"saved as this host's baseline in {path}"


class _Progress:
    """One line on a terminal that says what is being done and how much is left; nothing anywhere else."""

    EVERY_S = 0.1

    def __init__(self) -> None:
        self.on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.began = time.monotonic()
        self.last = 0.0
        self.share = 0.0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.on:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, what: str, share: float) -> None:
        now = time.monotonic()
        if not self.on or now - self.last < self.EVERY_S:
            return
        self.last = now
        if share < self.share or share == 0:
            self.began = now  # another stage begins: what came before says nothing of it
        took, self.share = now - self.began, share
        left = f", about {took / share - took:.0f} s left" if share > 0.1 and took > 0.5 else ""
        sys.stderr.write(f"\r\x1b[K{what[:60]} ({100 * share:.0f} %{left})")
        sys.stderr.flush()
