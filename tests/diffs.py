"""`gpudoctor diff` as tests call it, and what is read of its answer."""

from __future__ import annotations

import json

from click.testing import CliRunner

from gpudoctor.cli.main import cli


def run(*words):
    """The command in this process: many runs, and an interpreter's start would cost more than all of them."""
    done = CliRunner().invoke(cli, ["diff", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def diff(a, b, *words):
    done = run(a, b, "--format", "json", *words)
    got = json.loads(done.stdout)
    assert done.exit_code == got["exit_code"]
    return done.exit_code, got


def messages(got):
    return [c["message"] for c in got["diff"]["changes"]]


def kinds(got):
    return [c["kind"] for c in got["diff"]["changes"]]
