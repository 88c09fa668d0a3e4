"""`gpudoctor gate`: check, then bandwidth where the policy asks for it, one line and one exit status."""

from __future__ import annotations

import os
import sys
from datetime import date
from typing import TYPE_CHECKING

import click

from gpudoctor.cli.look import PROBE_DIR
from gpudoctor.cli.options import LOOK_S, engine_options, offered, report_options, timeout_option
from gpudoctor.cli.output import Output, OutputFile, exit_status, write

if TYPE_CHECKING:
    from gpudoctor.cli.gating import Gate
    from gpudoctor.discover import Plugins
    from gpudoctor.policy.model import Policy

TOML = "policy"
MOST_BYTES = 1 << 20  # of a policy
POLICY_WAIT_S = 5.0  # for one that comes through a pipe: `--policy <(make-policy)`
MEASURE_S = 300.0  # the deadline with a measurement; without one it is a check's


@click.command("gate")
@click.option(
    "--policy",
    "policy_path",
    metavar="FILE",
    shell_complete=offered("policies"),
    help="What the node must be: a TOML file, or the name of one that is shipped (--list).",
)
@click.option("--list", "list_", is_flag=True, help="Name the policies that are shipped.")
@click.option("--validate", is_flag=True, help="Only read the policy, and say what is wrong with it.")
@click.option("--learn", is_flag=True, help="Write a policy from this node, which must be in order: -o policy.toml.")
@click.option("--bandwidth/--no-bandwidth", default=None, help="Measure, or do not, whatever the policy asks.")
@click.option("--test", is_flag=True, help=f"Allow {PROBE_DIR}: the answers of a recorded host instead of this one's.")
@engine_options
@timeout_option(None, f"Limit for the whole command [default: {LOOK_S:g}, with a measurement {MEASURE_S:g}].")
@report_options("Only the verdict line, in whatever format.", "Also the whole report under the line.", {".toml": TOML})
def command(
    policy_path: str | None,
    list_: bool,
    validate: bool,
    learn: bool,
    bandwidth: bool | None,
    test: bool,
    python: str | None,
    nccl_tests: str | None,
    timeout: float | None,
    output: Output,
    fail_on: str,
) -> None:
    """Say in one line whether this node may be used: check it, measure it where the policy asks, hold it against the policy.

    Exit status: 0 it may, 1 a fault was found, 2 wrong usage or a policy with mistakes, 3 could not tell. Never 0 for what
    could not be read; on_unknown in the policy tells a prolog what to do then.
    """
    if list_:
        sys.stdout.write("".join(f"{name}\n" for name in shipped_policies()))
        return
    recorded = os.environ.get(PROBE_DIR)
    if recorded and not test and not validate:
        raise click.UsageError(
            f"{PROBE_DIR}={recorded}: a gate judges this node and no recorded one (--test allows it)"
        )
    if validate and policy_path is None:
        raise click.UsageError("--validate: which policy? --policy FILE")
    tomls = [o for o in output.files if o.format == TOML]
    if learn and policy_path is not None:
        raise click.UsageError("--learn writes a policy and takes none")
    if learn and (len(tomls) < len(output.files) or output.format != "text"):
        raise click.UsageError("--learn writes a policy and no report: -o FILE.toml, or nothing for standard output")
    if tomls and not learn:
        raise click.UsageError(f"{tomls[0].path}: a policy is written with --learn only")

    from gpudoctor.cli.gating import Gate
    from gpudoctor.discover import load

    plugins = load()
    policy = _policy(policy_path, plugins) if policy_path is not None else None
    if validate:
        assert policy is not None
        sys.stdout.write(f"{policy_path}: in order ({policy.name})\n")
        return
    gate = Gate(plugins, policy, policy_path, fail_on, timeout or LOOK_S, timeout or MEASURE_S)
    gate.look()
    gate.judge()
    if gate.wants_measurement(bandwidth):
        gate.measure(python, nccl_tests)
        gate.judge()
    if learn:
        sys.exit(_learn(gate, tomls))
    line = gate.line()
    page = (line + "\n" + (f"\n{gate.page()}" if output.verbose else ""), f"{line}\n\n{gate.page()}", line)
    write(gate.report, plugins, output, extra=gate.extra(line), page=page)
    sys.exit(exit_status(gate.report, output.format))


def shipped_policies() -> list[str]:
    from gpudoctor import shipped

    return [name.removesuffix(".toml") for name in shipped.names("policies") if name.endswith(".toml")]


def _policy(path: str, plugins: Plugins) -> Policy:
    from gpudoctor.policy.load import PolicyError, load
    from gpudoctor.probe.process import allowed

    if os.sep not in path and not os.path.exists(path) and path in shipped_policies():
        from gpudoctor import shipped

        text = shipped.text(f"policies/{path}.toml")
    else:
        try:
            text = _text(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            known = "" if os.path.exists(path) else f" (shipped are {', '.join(shipped_policies())})"
            raise click.UsageError(f"--policy {path}: {reason}{known}") from error
    try:
        return load(text, path, [c.slug for c in plugins.causes], allowed)
    except PolicyError as error:
        raise click.ClickException(f"the policy has mistakes\n{error}") from error


def _text(path: str) -> str:
    """The whole file: of one that was cut, the rules behind the cut would be lost."""
    from gpudoctor.read.pipe import whole

    raw = whole(path, MOST_BYTES + 1, POLICY_WAIT_S)
    if len(raw) > MOST_BYTES:
        raise click.UsageError(f"--policy {path}: larger than {MOST_BYTES >> 10} KiB")
    if not raw.strip():
        raise click.UsageError(f"--policy {path}: is empty, and would let every node pass")
    return raw.decode("utf-8-sig").replace("\r\n", "\n")


def _learn(gate: Gate, tomls: list[OutputFile]) -> int:
    """Only from a node in order: what a sick one is today would let every sick one through."""
    from gpudoctor.cli.output import replace_file
    from gpudoctor.policy.learn import learn

    if gate.report.exit_code:
        sys.stdout.write(f"{gate.line()}; no policy was written\n")
        return gate.report.exit_code
    text = learn(gate.intake.stores[0], date.today().isoformat())
    if not tomls:
        sys.stdout.write(text)
        return 0
    for output in tomls:
        replace_file(output.path, text)
    sys.stdout.write(f"{gate.line()}; written: {', '.join(o.path for o in tomls)}\n")
    return 0
